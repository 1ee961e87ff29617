//! The lines between the agents and the coordinator: over TCP between nodes, over a pipe in memory within one
//! process, with the same sessions, frames and drops.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::listener::Taken;
use super::store::StoreLine;
use super::tasks::{self, Owned};
use super::teller::Teller;
use super::whereabouts::{At, Whereabouts};
use crate::agent::driver::Input;
use crate::domain::agent::Event as AgentEvent;
use crate::domain::coordinator::Event as CoordinatorEvent;
use crate::domain::exit_code;
use crate::domain::ids::{Incarnation, NodeName, RunId};
use crate::domain::ledger::Ledger;
use crate::domain::spec::LaunchPlace;
use crate::domain::wire::{FromOperator, FromSupervisor, ToAgent, ToCoordinator, ToOperator, ToSupervisor};
use crate::net::broadcast::Broadcast;
use crate::net::handshake::{Identity, Role};
use crate::net::secret::Secret;
use crate::net::session::{Receiver, Sender, Session, SessionError};
use crate::net::tcp;
use crate::store::layout::OpenOptions;

/// Frames that wait to be written; one more and the link is given up.
const QUEUE: usize = 1024;
/// Commands of people at one time.
const OPERATORS: usize = 16;
/// Bytes in the pipe.
const PIPE: usize = 1 << 20;
/// Before another try when there is no coordinator to talk to.
const PAUSE: Duration = Duration::from_millis(200);
/// For a connection to be made.
const DIAL: Duration = Duration::from_secs(3);
/// For a host on which a coordinator may be.
const LIKELY: Duration = Duration::from_millis(700);
/// So many answers of another version are enough.
const OTHERS: u32 = 3;
/// For the hint, where a coordinator was found before.
const HINT: Duration = Duration::from_millis(500);
/// Between two looks into the journal while nobody answers.
const LOOK: Duration = Duration::from_secs(2);
/// For a peer to answer when the coordinator wants to know whether it can be reached.
const REACH: Duration = Duration::from_secs(1);

/// Who talks, and with which proof.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) run: RunId,
    pub(crate) node: NodeName,
    pub(crate) incarnation: Incarnation,
    pub(crate) secret: Secret,
}

impl Names {
    pub(crate) fn identity(&self, role: Role) -> Identity {
        Identity { run: self.run.clone(), role, node: self.node.clone(), incarnation: self.incarnation }
    }
}

/// Where a coordinator in another process is looked for.
#[derive(Clone)]
pub(crate) struct Search {
    /// The run directory has the hint.
    pub(crate) store: StoreLine,
    pub(crate) teller: Teller,
    pub(crate) dir: PathBuf,
    /// How the run directory is opened by whoever does not make it.
    pub(crate) options: OpenOptions,
    pub(crate) place: LaunchPlace,
    /// Where the coordinator is, whatever the run directory says; empty: it says.
    pub(crate) endpoint: Vec<SocketAddr>,
    /// After so long without a sign a connection is gone.
    pub(crate) silence: Duration,
}

/// One end of a session: dropped, its tasks end and the other end hears it.
struct Open<Out> {
    number: u64,
    out: mpsc::Sender<Out>,
    _reader: Owned,
}

#[derive(Default)]
struct State {
    sessions: u64,
    /// The newest try to reach the coordinator; an older one has nothing to say.
    wanted: u64,
    to_coordinator: Option<Open<ToCoordinator>>,
    to_agents: BTreeMap<NodeName, (Incarnation, Open<ToAgent>)>,
    supervisor: Option<Open<ToSupervisor>>,
    /// Commands of people that wait for their answer.
    operators: BTreeMap<u64, Open<ToOperator>>,
    coordinator: Option<mpsc::UnboundedSender<CoordinatorEvent>>,
    /// Why the last coordinator that was found would not talk to us.
    refused: Option<String>,
    /// How often one of another version answered.
    others: u32,
    /// When the journal was last looked into for an end.
    looked: Option<Instant>,
    /// Where the coordinator listens, as the journal has it.
    recorded: Vec<SocketAddr>,
}

/// Both ends; shared by the tasks of the control thread.
#[derive(Clone)]
pub(crate) struct Line {
    names: Names,
    agent: mpsc::UnboundedSender<Input>,
    /// Shared: it names every node of the launch, and each session has a line.
    search: Rc<Search>,
    at: Whereabouts,
    state: Rc<RefCell<State>>,
    broadcast: Rc<RefCell<Broadcast>>,
}

impl Line {
    pub(crate) fn new(
        names: Names,
        agent: mpsc::UnboundedSender<Input>,
        search: Search,
        at: Whereabouts,
    ) -> Self {
        Self { names, agent, search: Rc::new(search), at, state: Rc::default(), broadcast: Rc::default() }
    }

    /// From here on there is a coordinator to talk to in this process.
    pub(crate) fn listen(&self, coordinator: mpsc::UnboundedSender<CoordinatorEvent>) {
        self.state.borrow_mut().coordinator = Some(coordinator);
    }

    /// The record by which the coordinator leads says where it listens: that is known also where its hint cannot be read.
    pub(crate) fn heed(&self, ledger: &Ledger) {
        let Some((lead, _)) = ledger.leader() else { return };
        if lead.launch == self.search.place.token && lead.node != self.names.node {
            let at = lead.addresses.iter().filter_map(|text| text.parse().ok());
            self.state.borrow_mut().recorded = at.collect();
        }
    }

    /// The coordinator of this process is gone: every link to it goes down.
    pub(crate) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.coordinator = None;
        state.to_agents.clear();
        state.supervisor = None;
        if self.at.get() == At::Here {
            state.to_coordinator = None;
            self.at.set(At::Unknown);
            drop(state);
            self.tell_agent(AgentEvent::LinkDown);
        }
    }

    /// A node is given up: nothing of its session counts any more.
    pub(crate) fn hang_up(&self, node: &NodeName) {
        let gone = self.state.borrow_mut().to_agents.remove(node);
        if let Some((incarnation, _)) = gone {
            self.tell_coordinator(CoordinatorEvent::LinkDown { node: node.clone(), incarnation });
        }
    }

    /// Looks for the coordinator; the agent hears how it went.
    pub(crate) fn connect(&self) {
        // A session that brings nothing any more may still look alive.
        self.state.borrow_mut().to_coordinator = None;
        let line = self.clone();
        let number = self.number();
        {
            let mut state = self.state.borrow_mut();
            // What is left of an earlier session says nothing any more, and an earlier try no more than that.
            drop(state.to_coordinator.take());
            state.wanted = number;
        }
        tasks::spawn(async move {
            let Err(error) = line.open(number).await else { return };
            if let Some(error) = error {
                line.was_refused(&error);
            }
            tasks::spawn(line.clone().look_for_the_end());
            tokio::time::sleep(PAUSE).await;
            if line.is_wanted(number) {
                line.tell_agent(AgentEvent::LinkDown);
            }
        });
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.state.borrow().wanted == number
    }

    /// Another version stays another version, and another secret another one: whoever meets it again and again can only say
    /// so and go. Another run may end.
    fn was_refused(&self, error: &SessionError) {
        let mut state = self.state.borrow_mut();
        let known = state.refused.replace(error.to_string());
        let hint = match error {
            SessionError::OtherProtocol { .. } => {
                format!("install one relight on every node ({})", self.names.node)
            }
            SessionError::NotBelieved if self.is_direct() => {
                "--secret-file must be the same on every machine".to_owned()
            }
            SessionError::OtherRun(_) if self.is_direct() && known.is_none() => {
                drop(state);
                let said = "another run is led there: waiting for its end; --rdzv-id must be the same on every machine";
                return self.search.teller.say(said);
            }
            _ => return,
        };
        state.others += 1;
        if state.others == OTHERS {
            drop(state);
            self.search.teller.say(&format!("error: {error}"));
            self.search.teller.say(&format!("hint: {hint}"));
            self.tell_agent(AgentEvent::RunEnded { code: exit_code::USAGE });
        }
    }

    /// Nobody answers: a run that has ended while this node was away says so in its journal.
    async fn look_for_the_end(self) {
        let due = {
            let mut state = self.state.borrow_mut();
            let now = Instant::now();
            let looks = !self.search.place.token.is_empty() && self.search.endpoint.is_empty();
            let due = looks && state.looked.is_none_or(|at| now >= at + LOOK);
            if due {
                state.looked = Some(now);
            }
            due
        };
        if !due {
            return;
        }
        let Ok(opened) = self.search.store.open(self.search.options.clone()).await else { return };
        let Ok(ledger) = Ledger::replay(&opened.records) else { return };
        self.heed(&ledger);
        let ours = ledger.leader().is_some_and(|(lead, _)| lead.launch == self.search.place.token);
        if let (true, Some(end)) = (ours, ledger.end()) {
            self.tell_agent(AgentEvent::RunEnded { code: end.code });
        }
    }

    /// Machines meet without Slurm.
    pub(crate) fn is_direct(&self) -> bool {
        self.search.place.direct.is_some()
    }

    /// Why the newest try to reach a coordinator failed, if it was answered at all.
    pub(crate) fn refused(&self) -> Option<String> {
        self.state.borrow().refused.clone()
    }

    async fn open(&self, number: u64) -> Result<(), Option<SessionError>> {
        let here = self.state.borrow().coordinator.is_some();
        let session = if here { self.open_here().await? } else { self.open_there().await? };
        if !self.is_wanted(number) {
            return Ok(());
        }
        let (sender, receiver) = session.split();
        let (out, outgoing) = mpsc::channel(QUEUE);
        tasks::spawn(write(sender, outgoing));
        let reader = Owned::spawn(self.clone().read_agent(number, receiver));
        {
            let mut state = self.state.borrow_mut();
            state.to_coordinator = Some(Open { number, out, _reader: reader });
            (state.refused, state.others) = (None, 0);
        }
        self.tell_agent(AgentEvent::LinkUp);
        Ok(())
    }

    async fn open_here(&self) -> Result<Session<ToAgent, ToCoordinator>, SessionError> {
        let (near, far) = tokio::io::duplex(PIPE);
        let (agent, coordinator) = (self.names.identity(Role::Agent), self.names.identity(Role::Coordinator));
        let (dialled, taken) = tokio::join!(
            Session::<ToAgent, ToCoordinator>::connect(near, &agent, &self.names.secret),
            Session::<ToCoordinator, ToAgent>::accept(far, &coordinator, &self.names.secret),
        );
        self.take_agent(taken?);
        self.at.set(At::Here);
        dialled
    }

    async fn open_there(&self) -> Result<Session<ToAgent, ToCoordinator>, Option<SessionError>> {
        let (told, hosts) = self.addresses().await;
        let mut met = match tcp::dial(&told, DIAL).await {
            Ok(stream) => match self.greet(stream).await {
                Ok(session) => return Ok(session),
                Err(error) => Some(error),
            },
            Err(_) => None,
        };
        // A stranger may listen on a port that could be ours, and another agent does not lead: each is asked.
        let ports = tcp::candidates(&self.names.secret);
        for host in hosts {
            for stream in tcp::answering(host, &ports, LIKELY).await {
                match self.greet(stream).await {
                    Ok(session) => return Ok(session),
                    // An agent that does not lead, even ourselves, says less than another version.
                    Err(_) if matches!(met, Some(SessionError::OtherProtocol { .. })) => {}
                    Err(error) => met = Some(error),
                }
            }
        }
        Err(met)
    }

    async fn greet(&self, stream: TcpStream) -> Result<Session<ToAgent, ToCoordinator>, SessionError> {
        tcp::tune(&stream, self.search.silence);
        let peer = stream.peer_addr().map_err(SessionError::Io)?;
        let identity = self.names.identity(Role::Agent);
        let session = Session::connect(stream, &identity, &self.names.secret).await?;
        self.at.set(At::There(peer));
        Ok(session)
    }

    /// Where the hint says; without one, where the coordinator was and where the journal has it. And hosts on which it may be:
    /// a hint may be an old one.
    async fn addresses(&self) -> (Vec<SocketAddr>, Vec<IpAddr>) {
        let Search { store, dir, place, endpoint, .. } = &*self.search;
        if !endpoint.is_empty() {
            return (endpoint.clone(), Vec::new());
        }
        // A run directory that stands still must not keep an agent from a coordinator that it knows.
        let known = match self.at.get() {
            At::There(known) => Some(known),
            At::Here | At::Unknown => None,
        };
        let hint = match known {
            Some(_) => tokio::time::timeout(HINT, store.hint(dir.clone())).await.unwrap_or(None),
            None => store.hint(dir.clone()).await,
        };
        match hint.filter(|hint| hint.launch == place.token) {
            Some(hint) if hint.node == self.names.node => (Vec::new(), Vec::new()),
            Some(hint) => {
                self.tell_agent(AgentEvent::Proof(hint.proof));
                let told: Vec<SocketAddr> =
                    hint.addresses.iter().filter_map(|text| text.parse().ok()).collect();
                let host = told.first().map(SocketAddr::ip);
                (told, host.into_iter().collect())
            }
            None => {
                let recorded = self.state.borrow().recorded.clone();
                let likely = place.towards.iter().chain(&place.peers).filter_map(|text| text.parse().ok());
                let best = known.into_iter().chain(recorded.first().copied()).map(|at| at.ip());
                let told = known.into_iter().chain(recorded.iter().copied());
                (once(told), once(best.chain(likely)))
            }
        }
    }

    /// Somebody came over the network.
    pub(crate) fn take(&self, taken: Taken) {
        match taken {
            Taken::Agent(session) => self.take_agent(session),
            Taken::Supervisor(session) => self.take_supervisor(session),
            Taken::Operator(session) => self.take_operator(session),
            Taken::Impostor(from, error) => self.impostor(from, &error),
            // Beats have their own thread.
            Taken::Beats(_) => {}
        }
    }

    /// People should hear of a machine of theirs that cannot take part, from the one that they look at.
    fn impostor(&self, from: IpAddr, error: &SessionError) {
        match error {
            SessionError::BadProof => {
                let must =
                    if self.is_direct() { "; --secret-file must be the same on every machine" } else { "" };
                let said = "wants to take part and does not know the secret of this run: it stays outside";
                self.search.teller.say(&format!("warning: {from} {said}{must}"));
            }
            // In a job agents look for their coordinator where others may have theirs.
            SessionError::OtherRun(_) if self.is_direct() => {
                let said =
                    "belongs to another run: it stays outside; --rdzv-id must be the same on every machine";
                self.search.teller.say(&format!("warning: {from} {said}"));
            }
            _ => {}
        }
    }

    fn take_agent(&self, session: Session<ToCoordinator, ToAgent>) {
        if self.state.borrow().coordinator.is_none() {
            // It stood down while hands were shaken: the other end hears the end of the session.
            return;
        }
        let peer = session.peer().identity.clone();
        let (sender, receiver) = session.split();
        let (out, replies) = mpsc::channel(QUEUE);
        tasks::spawn(write_to_agent(sender, replies, self.broadcast.clone()));
        let number = self.number();
        let reader = Owned::spawn(self.clone().read_coordinator(number, receiver, peer.clone()));
        // A newer session of the same node takes the place of the older one, of which nothing counts any more.
        let open = Open { number, out, _reader: reader };
        self.state.borrow_mut().to_agents.insert(peer.node, (peer.incarnation, open));
    }

    fn take_supervisor(&self, session: Session<FromSupervisor, ToSupervisor>) {
        if self.state.borrow().coordinator.is_none() {
            return;
        }
        let (sender, receiver) = session.split();
        let (out, orders) = mpsc::channel(QUEUE);
        tasks::spawn(write(sender, orders));
        let number = self.number();
        let reader = Owned::spawn(self.clone().read_supervisor(number, receiver));
        self.state.borrow_mut().supervisor = Some(Open { number, out, _reader: reader });
        self.tell_coordinator(CoordinatorEvent::SupervisorLink { up: true });
    }

    /// A person's command: one order, one answer.
    fn take_operator(&self, session: Session<FromOperator, ToOperator>) {
        if self.state.borrow().coordinator.is_none() || self.state.borrow().operators.len() >= OPERATORS {
            return;
        }
        let (sender, mut receiver) = session.split();
        let (out, answers) = mpsc::channel(1);
        tasks::spawn(write(sender, answers));
        let id = self.number();
        let line = self.clone();
        let reader = Owned::spawn(async move {
            if let Ok(FromOperator { ordered }) = receiver.recv().await {
                line.tell_coordinator(CoordinatorEvent::Order { id, ordered });
                // Its end is that of the person's patience.
                let _ = receiver.recv().await;
            }
            line.state.borrow_mut().operators.remove(&id);
        });
        self.state.borrow_mut().operators.insert(id, Open { number: id, out, _reader: reader });
    }

    /// What became of an order; nobody hears it who has gone meanwhile.
    pub(crate) fn to_operator(&self, id: u64, answer: ToOperator) {
        let state = self.state.borrow();
        let _ = state.operators.get(&id).map(|open| open.out.try_send(answer));
    }

    fn number(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.sessions += 1;
        state.sessions
    }

    async fn read_agent(self, number: u64, mut receiver: Receiver<ToAgent>) {
        while let Ok(frame) = receiver.recv().await {
            self.tell_agent(AgentEvent::Recv(frame));
        }
        let current = {
            let mut state = self.state.borrow_mut();
            let current = state.to_coordinator.as_ref().is_some_and(|open| open.number == number);
            // Ends this very task at its next wait, and there is none.
            current && state.to_coordinator.take().is_some()
        };
        if current {
            self.tell_agent(AgentEvent::LinkDown);
        }
    }

    async fn read_coordinator(self, number: u64, mut receiver: Receiver<ToCoordinator>, peer: Identity) {
        let (node, incarnation) = (peer.node, peer.incarnation);
        while let Ok(frame) = receiver.recv().await {
            self.tell_coordinator(CoordinatorEvent::Recv { from: node.clone(), frame });
        }
        {
            let mut state = self.state.borrow_mut();
            if state.to_agents.get(&node).is_some_and(|(_, open)| open.number == number) {
                drop(state.to_agents.remove(&node));
            }
        }
        self.tell_coordinator(CoordinatorEvent::LinkDown { node, incarnation });
    }

    async fn read_supervisor(self, number: u64, mut receiver: Receiver<FromSupervisor>) {
        while let Ok(message) = receiver.recv().await {
            self.tell_coordinator(CoordinatorEvent::Supervisor(message));
        }
        let current = {
            let mut state = self.state.borrow_mut();
            let current = state.supervisor.as_ref().is_some_and(|open| open.number == number);
            current && state.supervisor.take().is_some()
        };
        if current {
            self.tell_coordinator(CoordinatorEvent::SupervisorLink { up: false });
        }
    }

    fn tell_agent(&self, event: AgentEvent) {
        let _ = self.agent.send(Input::Event(event));
    }

    fn tell_coordinator(&self, event: CoordinatorEvent) {
        if let Some(coordinator) = &self.state.borrow().coordinator {
            let _ = coordinator.send(event);
        }
    }

    /// A frame that finds no room gives the link up: its writer ends, and with it the session.
    pub(crate) fn to_coordinator(&self, frame: ToCoordinator) {
        let mut state = self.state.borrow_mut();
        if state.to_coordinator.as_ref().is_some_and(|open| open.out.try_send(frame).is_err()) {
            state.to_coordinator = None;
            drop(state);
            self.tell_agent(AgentEvent::LinkDown);
        }
    }

    pub(crate) fn to_agent(&self, node: &NodeName, incarnation: Incarnation, frame: ToAgent) {
        let full = {
            let state = self.state.borrow();
            let open = state.to_agents.get(node).filter(|(life, _)| *life == incarnation);
            open.is_some_and(|(_, open)| open.out.try_send(frame).is_err())
        };
        if full {
            self.hang_up(node);
        }
    }

    /// One that does not listen is asked again, or hears it when it comes back.
    pub(crate) fn to_supervisor(&self, order: ToSupervisor) {
        let state = self.state.borrow();
        let _ = state.supervisor.as_ref().map(|open| open.out.try_send(order));
    }

    /// Whether the host of this node answers at all: one that refuses is there.
    pub(crate) fn try_reach(&self, node: NodeName, address: &str) {
        use std::io::ErrorKind;
        let Ok(address) = address.parse::<SocketAddr>() else { return };
        let line = self.clone();
        tasks::spawn(async move {
            let ok = match tcp::dial(&[address], REACH).await.map_err(|error| error.kind()) {
                Ok(_) | Err(ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => true,
                Err(ErrorKind::TimedOut | ErrorKind::HostUnreachable) => false,
                // Our own trouble says nothing about that host.
                Err(_) => return,
            };
            line.tell_agent(AgentEvent::Reached { node, ok });
        });
    }
}

/// Each of them where it came first.
fn once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut kept, next| {
        if !kept.contains(&next) {
            kept.push(next);
        }
        kept
    })
}

/// Ends when nobody holds the queue or the session fails; then the other end hears it.
async fn write<T: serde::Serialize>(mut sender: Sender<T>, mut frames: mpsc::Receiver<T>) {
    while let Some(frame) = frames.recv().await {
        if sender.send(&frame).await.is_err() {
            break;
        }
    }
    sender.close().await;
}

/// As [`write`], to an agent.
async fn write_to_agent(
    mut sender: Sender<ToAgent>,
    mut frames: mpsc::Receiver<ToAgent>,
    broadcast: Rc<RefCell<Broadcast>>,
) {
    while let Some(frame) = frames.recv().await {
        let parts = broadcast.borrow_mut().parts(&frame);
        let sent = match parts {
            Ok(Some((begin, end))) => sender.send_with(&begin, &end).await,
            Ok(None) => sender.send(&frame).await,
            Err(error) => Err(error),
        };
        if sent.is_err() {
            break;
        }
    }
    sender.close().await;
}
