//! What the tasks of agent and coordinator ask of the rest of the process, carried out.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use super::beats::{Beats, Told};
use super::evidence::Evidence;
use super::gate::Gate;
use super::link::Line;
use super::probe::Probe;
use super::seeker::Seeker;
use super::status::Board;
use super::store::StoreLine;
use super::tasks;
use super::teller::{Teller, Who};
use crate::agent::driver::{Files, Input};
use crate::domain::agent::{Agent, Event as AgentEvent};
use crate::domain::authority::Event as AuthorityEvent;
use crate::domain::coordinator::{Collected, Coordinator, Event as CoordinatorEvent};
use crate::domain::health::HealthSpec;
use crate::domain::ids::{Attempt, Incarnation, NodeName, Op, Term};
use crate::domain::lease::Event as LeaseEvent;
use crate::domain::note::Note;
use crate::domain::policy::Ask;
use crate::domain::record::{FirstFailure, Ground, Incident, Record};
use crate::domain::spec::Numbers;
use crate::domain::time::BootTime;
use crate::domain::wire::{ToAgent, ToCoordinator, ToOperator, ToSupervisor};
use crate::health::protocol::SpaceRow;
use crate::stacks::protocol::Target;
use crate::store::hint::{HINT, Hint};
use crate::sys::page::Page;

/// Why the process may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The agent goes with this code.
    Agent(u8),
    /// The coordinator's work is over.
    Coordinator,
}

/// What was around when a world broke; what could not be told in time is `null`.
#[derive(Serialize)]
struct Surroundings {
    space: Option<Vec<SpaceRow>>,
}

/// For the agent's task.
pub(crate) struct AgentHooks {
    pub(crate) line: Line,
    pub(crate) teller: Teller,
    pub(crate) board: Board,
    pub(crate) beats: Option<Beats>,
    pub(crate) page: Arc<Page>,
    pub(crate) numbers: Numbers,
    pub(crate) inbox: mpsc::UnboundedSender<Input>,
    pub(crate) store: StoreLine,
    /// Reads what ranks left.
    pub(crate) reader: Probe,
    /// Looks at ranks that do not advance.
    pub(crate) evidence: Evidence,
    /// Looks whether this node is fit.
    pub(crate) gate: Gate,
    /// Set when the coordinator is lost for good.
    pub(crate) bereaved: Rc<Cell<bool>>,
    /// Records that this agent has read.
    pub(crate) read: Rc<Cell<u64>>,
    pub(crate) done: mpsc::UnboundedSender<Done>,
}

impl crate::agent::driver::Hooks for AgentHooks {
    fn connect(&mut self) {
        self.line.connect();
    }

    fn send(&mut self, frame: ToCoordinator) {
        self.line.to_coordinator(frame);
    }

    fn try_reach(&mut self, node: NodeName, address: String) {
        self.line.try_reach(node, &address);
    }

    fn probe(&mut self, name: String) {
        let (store, inbox) = (self.store.clone(), self.inbox.clone());
        tasks::spawn(async move {
            if let Some(won) = store.probe(name.clone()).await {
                let _ = inbox.send(Input::Event(AgentEvent::Probed { name, won }));
            }
        });
    }

    fn error_files(&mut self, attempt: Attempt, files: Files, not_before_ms: u64) {
        let (reader, inbox) = (self.reader.clone(), self.inbox.clone());
        tasks::spawn(async move {
            let (ranks, paths): (Vec<_>, Vec<_>) = files.into_iter().unzip();
            let notes = reader.error_files(paths, not_before_ms).await;
            let notes = notes.map(|notes| ranks.into_iter().zip(notes).collect());
            let _ = inbox.send(Input::ErrorFiles { attempt, notes });
        });
    }

    fn collect_evidence(&mut self, attempt: Attempt, ranks: Vec<Target>, between: Duration) {
        let (evidence, inbox) = (self.evidence.clone(), self.inbox.clone());
        tasks::spawn(async move {
            let found = evidence.collect(ranks, between).await;
            let _ = inbox.send(Input::Evidence { attempt, found });
        });
    }

    fn check(&mut self, attempt: Option<Attempt>, programs: HealthSpec) {
        self.gate.check(attempt, programs);
    }

    fn follow(&mut self, term: Term, leader: Incarnation, previous_dead: bool, forever: bool) {
        match &self.beats {
            Some(beats) => beats.tell(Told::Lease(LeaseEvent::Welcome {
                leader,
                term,
                forever,
                previous_leader_dead: previous_dead,
                numbers: Box::new(self.numbers.clone()),
            })),
            None => {
                // Nobody else could take over, so nobody has to be waited for.
                self.page.set_grant(BootTime::NEVER);
                let _ = self.inbox.send(Input::Event(AgentEvent::Granted(BootTime::NEVER)));
            }
        }
    }

    fn note(&mut self, note: Note) {
        if matches!(note, Note::GaveUp { leader: Some(_), .. }) {
            self.bereaved.set(true);
        }
        if matches!(note, Note::GaveUp { .. })
            && let Some(why) = self.line.refused()
        {
            self.teller.say(&format!("the last coordinator that answered: {why}"));
            if self.line.is_direct() {
                self.teller.say("hint: --secret-file and --rdzv-id must say the same on every machine");
            }
        }
        self.teller.note(Who::Agent, note);
    }

    fn changed(&mut self, agent: &Agent) {
        self.read.set(agent.ledger().next().0);
        self.board.ranks(agent);
    }

    fn exit(&mut self, code: u8) {
        let _ = self.done.send(Done::Agent(code));
    }
}

/// For the coordinator's task.
pub(crate) struct CoordinatorHooks {
    pub(crate) line: Line,
    pub(crate) teller: Teller,
    pub(crate) board: Board,
    pub(crate) beats: Option<Beats>,
    pub(crate) store: StoreLine,
    pub(crate) probe: Probe,
    /// Finds out what decisions depend on.
    pub(crate) seeker: Seeker,
    /// Where room is looked at when a world broke.
    pub(crate) places: Vec<PathBuf>,
    /// The inbox of its own task.
    pub(crate) own: mpsc::UnboundedSender<CoordinatorEvent>,
    /// What other nodes find it by.
    pub(crate) hint: Hint,
    /// Other nodes are answered.
    pub(crate) answers: Arc<AtomicBool>,
    pub(crate) incarnation: Incarnation,
    pub(crate) ground: Ground,
    pub(crate) numbers: Numbers,
    /// The first failure of the newest incident.
    pub(crate) first: Rc<RefCell<Option<FirstFailure>>>,
    pub(crate) done: mpsc::UnboundedSender<Done>,
}

impl CoordinatorHooks {
    /// Notes what was around when a world broke. Nobody waits for it.
    fn look_around(&self, incident: u64) {
        let path = format!("incidents/{incident:04}/surroundings.json");
        let (probe, store, places) = (self.probe.clone(), self.store.clone(), self.places.clone());
        tasks::spawn(async move {
            let space = probe.space(places).await;
            store.write(path, serde_json::to_vec_pretty(&Surroundings { space }).unwrap_or_default());
        });
    }

    fn authority(&self, event: AuthorityEvent) {
        if let Some(beats) = &self.beats {
            beats.tell(Told::Authority(event));
        }
    }
}

impl crate::coordinator::driver::Hooks for CoordinatorHooks {
    fn send(&mut self, to: NodeName, incarnation: Incarnation, frame: ToAgent) {
        self.line.to_agent(&to, incarnation, frame);
    }

    fn append(&mut self, op: Op, record: Box<Record>) {
        self.store.append(op, record);
    }

    fn lead(&mut self, term: Term, voters: Vec<NodeName>) {
        self.hint.term = term;
        if !self.hint.addresses.is_empty() {
            self.store.write(HINT.to_owned(), self.hint.to_bytes());
        }
        self.authority(AuthorityEvent::Lead {
            term,
            leader: self.incarnation,
            own: self.hint.node.clone(),
            voters,
            numbers: Box::new(self.numbers.clone()),
            earlier: self.ground == Ground::Returned,
        });
    }

    fn voters(&mut self, voters: Vec<NodeName>) {
        self.authority(AuthorityEvent::Voters(voters));
    }

    fn close_grants(&mut self, node: NodeName) {
        self.authority(AuthorityEvent::CloseGrants { node });
    }

    fn admit(&mut self, node: NodeName, incarnation: Incarnation) {
        self.authority(AuthorityEvent::Admit { node, incarnation });
    }

    fn disconnect(&mut self, node: NodeName) {
        self.line.hang_up(&node);
        if let Some(beats) = &self.beats {
            beats.tell(Told::HangUp(node));
        }
    }

    fn supervisor(&mut self, message: ToSupervisor) {
        self.line.to_supervisor(message);
    }

    fn probe(&mut self, name: String) {
        let (store, own) = (self.store.clone(), self.own.clone());
        tasks::spawn(async move {
            if let Some(won) = store.probe(name.clone()).await {
                let _ = own.send(CoordinatorEvent::Probed { name, won });
            }
        });
    }

    fn collected(&mut self, collected: Collected) {
        for (name, bytes) in super::collected::files(&collected) {
            self.store.write(format!("{}/{name}", collected.dir), bytes);
        }
    }

    fn seek(&mut self, ask: Ask) {
        if ask == Ask::Slurm && self.seeker.contained {
            return self.line.to_supervisor(ToSupervisor::AskJob);
        }
        self.seeker.seek(ask, self.places.clone(), self.own.clone());
    }

    fn answer(&mut self, id: u64, answer: ToOperator) {
        self.line.to_operator(id, answer);
    }

    fn report(&mut self, incident: &Incident) {
        self.teller.settled(incident);
        *self.first.borrow_mut() = incident.first_failure.clone();
        let dir = format!("incidents/{:04}", incident.incident);
        // Records of numbers and strings have no way to fail.
        let report = serde_json::to_vec_pretty(incident).unwrap_or_default();
        self.store.write(format!("{dir}/report.json"), report);
        if let Some(first) = incident.first_failure.as_ref().filter(|f| !f.words.is_empty()) {
            self.store.write(format!("{dir}/traceback.txt"), format!("{}\n", first.words).into_bytes());
        }
    }

    fn note(&mut self, note: Note) {
        if let Note::RankFailed { incident, .. } = &note {
            self.look_around(*incident);
        }
        self.teller.note(Who::Coordinator, note);
    }

    fn changed(&mut self, coordinator: &Coordinator, quiet: bool) {
        self.board.run(coordinator, quiet);
    }

    fn over(&mut self, _code: u8) {
        let _ = self.done.send(Done::Coordinator);
    }

    fn stand_down(&mut self) {
        self.answers.store(false, Ordering::Relaxed);
        self.authority(AuthorityEvent::StandDown);
        self.line.close();
        let _ = self.done.send(Done::Coordinator);
    }
}
