//! The line between an agent and the coordinator in the same process: the same sessions, frames and drops as
//! between nodes, over a pipe in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::tasks;
use crate::agent::driver::Input;
use crate::domain::agent::Event as AgentEvent;
use crate::domain::coordinator::Event as CoordinatorEvent;
use crate::domain::ids::{Incarnation, NodeName, RunId};
use crate::domain::wire::{ToAgent, ToCoordinator};
use crate::net::handshake::{Identity, Role};
use crate::net::secret::Secret;
use crate::net::session::{Receiver, Sender, Session};

/// Frames that wait to be written; one more and the link is given up.
const QUEUE: usize = 1024;
/// Bytes in the pipe.
const PIPE: usize = 1 << 20;
/// Before another try when there is no coordinator to talk to.
const PAUSE: Duration = Duration::from_millis(200);

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

#[derive(Default)]
struct State {
    to_coordinator: Option<mpsc::Sender<ToCoordinator>>,
    to_agents: BTreeMap<NodeName, (Incarnation, mpsc::Sender<ToAgent>)>,
    coordinator: Option<mpsc::UnboundedSender<CoordinatorEvent>>,
}

/// Both ends; shared by the tasks of the control thread.
#[derive(Clone)]
pub(crate) struct Line {
    names: Names,
    agent: mpsc::UnboundedSender<Input>,
    state: Rc<RefCell<State>>,
}

impl Line {
    pub(crate) fn new(names: Names, agent: mpsc::UnboundedSender<Input>) -> Self {
        Self { names, agent, state: Rc::default() }
    }

    /// From here on there is a coordinator to talk to.
    pub(crate) fn listen(&self, coordinator: mpsc::UnboundedSender<CoordinatorEvent>) {
        self.state.borrow_mut().coordinator = Some(coordinator);
    }

    /// The coordinator is gone: every link goes down.
    pub(crate) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.coordinator = None;
        state.to_agents.clear();
        state.to_coordinator = None;
    }

    /// Looks for the coordinator; the agent hears how it went.
    pub(crate) fn connect(&self) {
        let line = self.clone();
        tasks::spawn(async move {
            if line.open().await.is_none() {
                tokio::time::sleep(PAUSE).await;
                line.tell_agent(AgentEvent::LinkDown);
            }
        });
    }

    async fn open(&self) -> Option<()> {
        self.state.borrow().coordinator.as_ref()?;
        let (near, far) = tokio::io::duplex(PIPE);
        let (agent, coordinator) = (self.names.identity(Role::Agent), self.names.identity(Role::Coordinator));
        let (dialled, taken) = tokio::join!(
            Session::<ToAgent, ToCoordinator>::connect(near, &agent, &self.names.secret),
            Session::<ToCoordinator, ToAgent>::accept(far, &coordinator, &self.names.secret),
        );
        let (dialled, taken) = (dialled.ok()?, taken.ok()?);
        let peer = taken.peer().identity.clone();
        let (to_coordinator, outgoing) = mpsc::channel(QUEUE);
        let (to_agent, replies) = mpsc::channel(QUEUE);
        {
            let mut state = self.state.borrow_mut();
            state.to_coordinator = Some(to_coordinator);
            state.to_agents.insert(peer.node.clone(), (peer.incarnation, to_agent));
        }
        let (sender, receiver) = dialled.split();
        tasks::spawn(write(sender, outgoing));
        tasks::spawn(self.clone().read_agent(receiver));
        let (sender, receiver) = taken.split();
        tasks::spawn(write(sender, replies));
        tasks::spawn(self.clone().read_coordinator(receiver, peer));
        self.tell_agent(AgentEvent::LinkUp);
        Some(())
    }

    async fn read_agent(self, mut receiver: Receiver<ToAgent>) {
        while let Ok(frame) = receiver.recv().await {
            self.tell_agent(AgentEvent::Recv(frame));
        }
        self.state.borrow_mut().to_coordinator = None;
        self.tell_agent(AgentEvent::LinkDown);
    }

    async fn read_coordinator(self, mut receiver: Receiver<ToCoordinator>, peer: Identity) {
        while let Ok(frame) = receiver.recv().await {
            self.tell_coordinator(CoordinatorEvent::Recv { from: peer.node.clone(), frame });
        }
        let (node, incarnation) = (peer.node, peer.incarnation);
        self.state.borrow_mut().to_agents.remove(&node);
        self.tell_coordinator(CoordinatorEvent::LinkDown { node, incarnation });
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
        if state.to_coordinator.as_ref().is_some_and(|out| out.try_send(frame).is_err()) {
            state.to_coordinator = None;
        }
    }

    pub(crate) fn to_agent(&self, node: &NodeName, incarnation: Incarnation, frame: ToAgent) {
        let mut state = self.state.borrow_mut();
        let out = state.to_agents.get(node).filter(|(life, _)| *life == incarnation);
        if out.is_some_and(|(_, out)| out.try_send(frame).is_err()) {
            state.to_agents.remove(node);
        }
    }
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
