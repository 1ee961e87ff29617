//! The beat thread: lease and authority, with connections of their own, so that liveness never waits behind
//! work. Not started where grants are for ever.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::link::Names;
use super::tasks;
use crate::agent::driver::Input;
use crate::domain::agent::Event as AgentEvent;
use crate::domain::authority::{Authority, Effect as AuthorityEffect, Event as AuthorityEvent};
use crate::domain::coordinator::Event as CoordinatorEvent;
use crate::domain::lease::{Effect as LeaseEffect, Event as LeaseEvent, Lease, Link};
use crate::domain::mutant::Mutants;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::time::earlier;
use crate::domain::wire::{Ack, Beat};
use crate::net::handshake::Role;
use crate::net::session::Session;
use crate::sys::clock;
use crate::sys::page::Page;

/// Beats or acknowledgements that wait to be written on one link.
const QUEUE: usize = 16;
/// Bytes in the pipe of a link.
const PIPE: usize = 16 << 10;
/// How often the tick of the control thread is looked at while nothing else happens.
const LOOK: Duration = Duration::from_secs(1);

/// What the beat thread is told.
pub(crate) enum Told {
    Lease(LeaseEvent),
    Authority(AuthorityEvent),
    /// From a link: it is open.
    Opened(Link, mpsc::Sender<Beat>, mpsc::Sender<Ack>),
}

/// Who hears of it.
pub(crate) struct Listeners {
    pub(crate) agent: mpsc::UnboundedSender<Input>,
    pub(crate) coordinator: mpsc::UnboundedSender<CoordinatorEvent>,
}

/// The way in; any thread may hold one.
#[derive(Clone)]
pub(crate) struct Beats(mpsc::UnboundedSender<Told>);

impl Beats {
    /// Starts the thread.
    pub(crate) fn start(names: Names, page: Arc<Page>, listeners: Listeners) -> io::Result<Self> {
        let (sender, inbox) = mpsc::unbounded_channel();
        let beats = Self(sender.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("beats".into()).spawn(move || {
            let local = LocalSet::new();
            let task = Task {
                lease: Lease::new(names.incarnation, Mutants::NONE),
                authority: Authority::new(Mutants::NONE),
                names: Rc::new(names),
                page,
                listeners,
                own: sender,
                links: BTreeMap::new(),
                held: false,
            };
            local.block_on(&runtime, task.run(inbox));
        })?;
        Ok(beats)
    }

    pub(crate) fn tell(&self, told: Told) {
        let _ = self.0.send(told);
    }
}

struct Task {
    lease: Lease,
    authority: Authority,
    names: Rc<Names>,
    page: Arc<Page>,
    listeners: Listeners,
    own: mpsc::UnboundedSender<Told>,
    links: BTreeMap<Link, (mpsc::Sender<Beat>, mpsc::Sender<Ack>)>,
    held: bool,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Told>) {
        loop {
            let now = clock::boot();
            let wanted = earlier(self.lease.deadline(), self.authority.deadline());
            let left = wanted.map_or(LOOK, |at| at.since(now)).min(LOOK);
            match tokio::time::timeout(left, inbox.recv()).await {
                Ok(None) => return,
                Ok(Some(Told::Lease(event))) => self.lease(event),
                Ok(Some(Told::Authority(event))) => self.authority(event),
                Ok(Some(Told::Opened(link, beats, acks))) => {
                    self.links.insert(link, (beats, acks));
                    self.lease(LeaseEvent::LinkUp(link));
                }
                Err(_) => {
                    self.lease(LeaseEvent::Tick { tick: self.page.tick() });
                    self.authority(AuthorityEvent::Tick);
                }
            }
        }
    }

    fn lease(&mut self, event: LeaseEvent) {
        let mut out = Outbox::default();
        self.lease.handle(clock::now(), event, &mut out);
        for effect in out.take_effects() {
            match effect {
                LeaseEffect::Dial(link) => self.dial(link),
                LeaseEffect::CloseLink(link) => drop(self.links.remove(&link)),
                LeaseEffect::SendBeat { link, beat } => {
                    // A full queue is a link that does not move; the lease dials another.
                    let _ = self.links.get(&link).map(|(beats, _)| beats.try_send(beat));
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
                    let _ = self.links.get(&link).map(|(_, acks)| acks.try_send(ack));
                    continue;
                }
                AuthorityEffect::Silent { node, since } => {
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

    /// Opens a link to the coordinator in this process.
    fn dial(&self, link: Link) {
        let (own, names) = (self.own.clone(), self.names.clone());
        tasks::spawn(async move {
            if open(link, &own, &names).await.is_none() {
                let _ = own.send(Told::Lease(LeaseEvent::LinkDown(link)));
            }
        });
    }
}

async fn open(link: Link, own: &mpsc::UnboundedSender<Told>, names: &Names) -> Option<()> {
    let (near, far) = tokio::io::duplex(PIPE);
    let (beat, coordinator) = (names.identity(Role::Beat), names.identity(Role::Coordinator));
    let (dialled, taken) = tokio::join!(
        Session::<Ack, Beat>::connect(near, &beat, &names.secret),
        Session::<Beat, Ack>::accept(far, &coordinator, &names.secret),
    );
    let (dialled, taken) = (dialled.ok()?, taken.ok()?);
    let node = taken.peer().identity.node.clone();
    let (beats, mut beats_out) = mpsc::channel::<Beat>(QUEUE);
    let (acks, mut acks_out) = mpsc::channel::<Ack>(QUEUE);
    let (mut beat_sender, mut ack_receiver) = dialled.split();
    let (mut ack_sender, mut beat_receiver) = taken.split();
    tasks::spawn(async move {
        while let Some(beat) = beats_out.recv().await {
            if beat_sender.send(&beat).await.is_err() {
                break;
            }
        }
        beat_sender.close().await;
    });
    tasks::spawn(async move {
        while let Some(ack) = acks_out.recv().await {
            if ack_sender.send(&ack).await.is_err() {
                break;
            }
        }
        ack_sender.close().await;
    });
    let told = own.clone();
    tasks::spawn(async move {
        while let Ok(beat) = beat_receiver.recv().await {
            let _ = told.send(Told::Authority(AuthorityEvent::Beat { node: node.clone(), link, beat }));
        }
    });
    let told = own.clone();
    tasks::spawn(async move {
        while let Ok(ack) = ack_receiver.recv().await {
            let _ = told.send(Told::Lease(LeaseEvent::Acked { link, ack }));
        }
        let _ = told.send(Told::Lease(LeaseEvent::LinkDown(link)));
    });
    let _ = own.send(Told::Opened(link, beats, acks));
    Some(())
}
