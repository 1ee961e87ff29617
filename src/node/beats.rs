//! The beat thread: lease and authority, and the beat connections between nodes. Nothing else runs on it, so that a
//! control thread which is busy costs no beat, and one that is stuck is seen from the outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::link::Names;
use super::listener::{Listener, Taken};
use super::tasks::{self, Owned};
use super::whereabouts::{At, Whereabouts};
use crate::agent::driver::Input;
use crate::domain::agent::Event as AgentEvent;
use crate::domain::authority::{Authority, Effect as AuthorityEffect, Event as AuthorityEvent};
use crate::domain::coordinator::Event as CoordinatorEvent;
use crate::domain::health::{CLOCK, Clocks};
use crate::domain::ids::NodeName;
use crate::domain::lease::{Effect as LeaseEffect, Event as LeaseEvent, Lease, Link};
use crate::domain::mutant::Mutants;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::time::{BootTime, earlier};
use crate::domain::wire::{Ack, Beat};
use crate::net::handshake::Role;
use crate::net::session::{Sender, Session};
use crate::net::tcp;
use crate::sys::clock;
use crate::sys::page::Page;

/// Frames that wait to be written; beats that find no room are lost, which the machines survive.
const QUEUE: usize = 16;
/// Bytes in the pipe.
const PIPE: usize = 16 << 10;
/// The page's tick is looked at so often at least.
const LOOK: Duration = Duration::from_secs(1);
/// For a beat connection to be made; the second link is dialled while the first still tries.
const DIAL: Duration = Duration::from_secs(2);
/// Links that were taken are numbered from here, those that were dialled from 0.
const TAKEN: u64 = 1 << 32;

/// What the other threads tell this one, and its tasks each other.
pub(crate) enum Told {
    /// For the lease.
    Lease(LeaseEvent),
    /// For the authority.
    Authority(AuthorityEvent),
    /// A node is given up: nothing of its links counts any more.
    HangUp(NodeName),
    /// A dialled link is open.
    Dialled(Link, mpsc::Sender<Beat>, Owned),
}

/// Who listens to what.
pub(crate) struct Listeners {
    pub(crate) agent: mpsc::UnboundedSender<Input>,
    pub(crate) coordinator: mpsc::UnboundedSender<CoordinatorEvent>,
    /// Control connections that were taken here.
    pub(crate) sessions: mpsc::UnboundedSender<Taken>,
}

/// What the thread is made from.
pub(crate) struct Parts {
    pub(crate) names: Names,
    pub(crate) page: Arc<Page>,
    pub(crate) listeners: Listeners,
    /// Where other nodes come in; none in a world of one node.
    pub(crate) socket: Option<std::net::TcpListener>,
    /// A coordinator lives here.
    pub(crate) leads: Arc<AtomicBool>,
    pub(crate) at: Whereabouts,
    /// After so long without a sign a connection is gone.
    pub(crate) silence: Duration,
}

/// The near end.
#[derive(Clone)]
pub(crate) struct Beats(mpsc::UnboundedSender<Told>);

impl Beats {
    /// Starts the thread.
    pub(crate) fn start(parts: Parts) -> io::Result<Self> {
        let (sender, inbox) = mpsc::unbounded_channel();
        let beats = Self(sender.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("beats".into()).spawn(move || {
            let local = LocalSet::new();
            local.block_on(&runtime, begin(parts, sender, inbox));
        })?;
        Ok(beats)
    }

    pub(crate) fn tell(&self, told: Told) {
        // The thread ends with the process.
        let _ = self.0.send(told);
    }
}

async fn begin(parts: Parts, own: mpsc::UnboundedSender<Told>, inbox: mpsc::UnboundedReceiver<Told>) {
    let Parts { names, page, listeners, socket, leads, at, silence } = parts;
    let names = Rc::new(names);
    let (taken, arrivals) = mpsc::unbounded_channel();
    if let Some(socket) = socket {
        let listener = Listener { socket, names: names.clone(), leads, silence, taken: taken.clone() };
        tasks::spawn(listener.serve());
    }
    let task = Task {
        lease: Lease::new(names.incarnation, Mutants::NONE),
        authority: Authority::new(Mutants::NONE),
        dialler: Rc::new(Dialler { names, at, silence, own, taken }),
        page,
        listeners,
        dialled: BTreeMap::new(),
        dialling: BTreeSet::new(),
        taken: BTreeMap::new(),
        of: BTreeMap::new(),
        next: TAKEN,
        held: false,
        clocks: Clocks::default(),
    };
    task.run(inbox, arrivals).await;
}

struct Task {
    lease: Lease,
    authority: Authority,
    dialler: Rc<Dialler>,
    page: Arc<Page>,
    listeners: Listeners,
    dialled: BTreeMap<Link, (mpsc::Sender<Beat>, Owned)>,
    /// On their way, and still wanted.
    dialling: BTreeSet<Link>,
    taken: BTreeMap<Link, (NodeName, mpsc::Sender<Ack>, Owned)>,
    /// The links of each node in `taken`, and maybe some that are gone.
    of: BTreeMap<NodeName, Vec<Link>>,
    next: u64,
    /// The coordinator was told that it has authority.
    held: bool,
    /// How far the coordinator's clock is off.
    clocks: Clocks,
}

impl Task {
    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Told>,
        mut arrivals: mpsc::UnboundedReceiver<Taken>,
    ) {
        let mut looked = clock::boot();
        loop {
            let now = clock::boot();
            // Asked before every event: whoever talks without a pause keeps no clock from being looked at.
            if now >= self.due(looked) {
                looked = now;
                self.lease(LeaseEvent::Tick { tick: self.page.tick() });
                self.authority(AuthorityEvent::Tick);
            }
            let left = self.due(looked).since(clock::boot());
            tokio::select! {
                told = inbox.recv() => match told {
                    None => return,
                    Some(Told::Lease(event)) => {
                        if let LeaseEvent::LinkDown(link) = &event {
                            self.dialled.remove(link);
                            self.dialling.remove(link);
                        }
                        self.lease(event);
                    }
                    Some(Told::Authority(event)) => self.authority(event),
                    Some(Told::HangUp(node)) => self.taken.retain(|_, (of, _, _)| *of != node),
                    // One that was given up meanwhile closes by being dropped.
                    Some(Told::Dialled(link, beats, reader)) if self.dialling.remove(&link) => {
                        self.dialled.insert(link, (beats, reader));
                        self.lease(LeaseEvent::LinkUp(link));
                    }
                    Some(Told::Dialled(..)) => {}
                },
                Some(arrival) = arrivals.recv() => match arrival {
                    Taken::Beats(session) => self.take(session),
                    other => drop(self.listeners.sessions.send(other)),
                },
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    fn due(&self, looked: BootTime) -> BootTime {
        due(looked, earlier(self.lease.deadline(), self.authority.deadline()))
    }

    fn lease(&mut self, event: LeaseEvent) {
        if let LeaseEvent::Acked { ack, .. } = &event
            && let Some(said) = self.clocks.acknowledged(ack.n, ack.wall_ms, clock::now().wall_ms)
        {
            let results = vec![said.named(CLOCK, 0)];
            let _ = self.listeners.agent.send(Input::Event(AgentEvent::Checked { attempt: None, results }));
        }
        let mut out = Outbox::default();
        self.lease.handle(clock::now(), event, &mut out);
        for effect in out.take_effects() {
            match effect {
                LeaseEffect::Dial(link) => self.dial(link),
                LeaseEffect::CloseLink(link) => {
                    self.dialling.remove(&link);
                    self.dialled.remove(&link);
                }
                LeaseEffect::SendBeat { link, beat } => {
                    self.clocks.sent(beat.n, clock::now().wall_ms);
                    let _ = self.dialled.get(&link).map(|(beats, _)| beats.try_send(beat));
                }
                LeaseEffect::LeaderSilent { since } => {
                    let _ = self.listeners.agent.send(Input::Event(AgentEvent::LeaderSilent { since }));
                }
                LeaseEffect::Granted(until) => {
                    self.page.set_grant(until);
                    let _ = self.listeners.agent.send(Input::Event(AgentEvent::Granted(until)));
                }
            }
        }
    }

    fn authority(&mut self, event: AuthorityEvent) {
        let mut out = Outbox::default();
        let now = clock::now();
        self.authority.handle(now, event, &mut out);
        for effect in out.take_effects() {
            let told = match effect {
                AuthorityEffect::SendAck { node: _, link, ack } => {
                    let ack = Ack { wall_ms: clock::now().wall_ms, ..ack };
                    let _ = self.taken.get(&link).map(|(_, acks, _)| acks.try_send(ack));
                    continue;
                }
                AuthorityEffect::Silent { node, since } => {
                    // It dials anew if it lives: what is still on its way counts no more.
                    self.taken.retain(|_, (of, _, _)| *of != node);
                    CoordinatorEvent::Silent { node, silent: now.boot.since(since) }
                }
                AuthorityEffect::Quiet { node, since } => {
                    CoordinatorEvent::Quiet { node, silent: now.boot.since(since) }
                }
                AuthorityEffect::Late { node, silent } => CoordinatorEvent::Late { node, silent },
                AuthorityEffect::Back { node } => CoordinatorEvent::Back { node },
                AuthorityEffect::Until(_) if self.held => continue,
                AuthorityEffect::Until(_) => {
                    self.held = true;
                    CoordinatorEvent::AuthorityHeld
                }
                AuthorityEffect::Over => {
                    self.held = false;
                    CoordinatorEvent::AuthorityOver
                }
                AuthorityEffect::GrantsClosed { node, over_at } => {
                    CoordinatorEvent::GrantsClosed { node, over_at }
                }
            };
            let _ = self.listeners.coordinator.send(told);
        }
    }

    fn dial(&mut self, link: Link) {
        self.dialling.insert(link);
        let dialler = self.dialler.clone();
        tasks::spawn(async move {
            if dialler.open(link).await.is_none() {
                dialler.tell(Told::Lease(LeaseEvent::LinkDown(link)));
            }
        });
    }

    /// A node's beats arrive here from now on.
    fn take(&mut self, session: Session<Beat, Ack>) {
        let node = session.peer().identity.node.clone();
        let link = Link(self.next);
        self.next += 1;
        let (sender, mut receiver) = session.split();
        let acks = write(sender);
        let (dialler, of) = (self.dialler.clone(), node.clone());
        let reader = Owned::spawn(async move {
            while let Ok(beat) = receiver.recv().await {
                let node = of.clone();
                dialler.tell(Told::Authority(AuthorityEvent::Beat { node, link, beat }));
            }
        });
        // Two links of a node may be open at one time; more are remains that its lease gave up.
        let links = self.of.entry(node.clone()).or_default();
        links.retain(|link| self.taken.contains_key(link));
        for link in links.drain(..links.len().saturating_sub(1)) {
            self.taken.remove(&link);
        }
        links.push(link);
        self.taken.insert(link, (node, acks, reader));
    }
}

/// When the clock and the page's tick are to be looked at again.
fn due(looked: BootTime, wanted: Option<BootTime>) -> BootTime {
    let latest = looked.after(LOOK);
    wanted.map_or(latest, |at| at.min(latest))
}

/// Opens beat connections.
struct Dialler {
    names: Rc<Names>,
    at: Whereabouts,
    silence: Duration,
    own: mpsc::UnboundedSender<Told>,
    taken: mpsc::UnboundedSender<Taken>,
}

impl Dialler {
    fn tell(&self, told: Told) {
        let _ = self.own.send(told);
    }

    /// Opens one link to the coordinator, wherever it is.
    async fn open(self: &Rc<Self>, link: Link) -> Option<()> {
        let session = match self.at.get() {
            At::Unknown => return None,
            At::Here => {
                let (near, far) = tokio::io::duplex(PIPE);
                let (taken, dialled) = tokio::join!(self.accept(far), self.connect(near));
                let _ = self.taken.send(Taken::Beats(taken?));
                dialled?
            }
            At::There(address) => {
                let stream = tcp::dial(&[address], DIAL).await.ok()?;
                tcp::tune(&stream, self.silence);
                self.connect(stream).await?
            }
        };
        let (sender, mut receiver) = session.split();
        let beats = write(sender);
        let told = self.clone();
        let reader = Owned::spawn(async move {
            while let Ok(ack) = receiver.recv().await {
                told.tell(Told::Lease(LeaseEvent::Acked { link, ack }));
            }
            told.tell(Told::Lease(LeaseEvent::LinkDown(link)));
        });
        self.tell(Told::Dialled(link, beats, reader));
        Some(())
    }

    async fn connect<S>(&self, stream: S) -> Option<Session<Ack, Beat>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Session::connect(stream, &self.names.identity(Role::Beat), &self.names.secret).await.ok()
    }

    async fn accept<S>(&self, stream: S) -> Option<Session<Beat, Ack>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Session::accept(stream, &self.names.identity(Role::Coordinator), &self.names.secret).await.ok()
    }
}

/// A queue whose messages go out until nobody holds it.
fn write<T: serde::Serialize + 'static>(mut sender: Sender<T>) -> mpsc::Sender<T> {
    let (queue, mut messages) = mpsc::channel::<T>(QUEUE);
    tasks::spawn(async move {
        while let Some(message) = messages.recv().await {
            if sender.send(&message).await.is_err() {
                break;
            }
        }
        sender.close().await;
    });
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_looked_at_once_a_second_however_much_is_told_meanwhile() {
        let looked = BootTime::from_millis(5_000);
        assert_eq!(due(looked, None), BootTime::from_millis(6_000));
        assert_eq!(due(looked, Some(BootTime::from_millis(9_000))), BootTime::from_millis(6_000));
        assert_eq!(due(looked, Some(BootTime::from_millis(5_200))), BootTime::from_millis(5_200));
        assert_eq!(
            due(looked, Some(BootTime::from_millis(4_000))),
            BootTime::from_millis(4_000),
            "it is late"
        );
    }
}
