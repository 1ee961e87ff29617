//! torchrun's events, for `--event-log-handler console`: one JSON object a line on standard error, when a world is found
//! and its ranks are numbered, when a rank starts or ends, and when the agent goes. Names and fields are torch's
//! (`torch.distributed.elastic.events`); times are 0 there, too.

use std::time::Duration;

use serde::Serialize;

use crate::domain::env::rank::rank_numbers;
use crate::domain::exit::ExitKind;
use crate::domain::ids::{Attempt, LocalRank, Rank, Slot};
use crate::domain::settings::NodeContext;
use crate::domain::spec::RunSpec;
use crate::domain::wire::World;

/// What is known of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) pid: i32,
}

/// This node's ranks among those of its world, and of their role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Nodes of the world.
    pub(super) groups: u32,
    /// This node's place among them.
    pub(super) group_rank: u32,
    /// The role of its ranks; empty: that of the run.
    pub(super) role: String,
    /// What the first of them is among those of its role.
    pub(super) first_of_role: u32,
    /// Ranks of that role.
    pub(super) role_world: u32,
}

impl Group {
    /// Of the node at this place; none where the world has no such place, or no rank there.
    pub(super) fn of(world: &World, slot: Slot) -> Option<Self> {
        let numbers = rank_numbers(world, slot, LocalRank(0)).ok()?;
        let role = world.members.iter().find(|member| member.slot == slot)?.role.clone();
        Some(Self {
            groups: numbers.groups,
            group_rank: numbers.group_rank.0,
            role,
            first_of_role: numbers.role_rank.0,
            role_world: numbers.role_world,
        })
    }
}

/// What happened to it, or to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Start,
    Succeeded,
    Failed,
    /// We stopped it.
    Terminated,
    /// The agent knows its next world. How long that took is told with it, as with the one below.
    Rendezvous,
    /// It has numbered its ranks.
    AssignWorkerRanks,
}

impl State {
    /// How a rank ended.
    pub(super) fn of(kind: &ExitKind, ours: bool) -> Self {
        match (ours, kind.is_success()) {
            (true, _) => Self::Terminated,
            (false, true) => Self::Succeeded,
            (false, false) => Self::Failed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Terminated => "TERMINATED",
            Self::Rendezvous => "RENDEZVOUS",
            Self::AssignWorkerRanks => "ASSIGN_WORKER_RANKS",
        }
    }
}

#[derive(Serialize)]
struct Event<'a> {
    name: String,
    source: &'static str,
    timestamp: u64,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    run_id: &'a str,
    global_rank: Option<u32>,
    group_rank: Option<u32>,
    worker_id: Option<String>,
    role: &'a str,
    hostname: &'a str,
    state: &'static str,
    total_run_time: u64,
    rdzv_backend: &'static str,
    raw_error: Option<&'a str>,
    /// JSON within JSON, as torch has it.
    metadata: String,
    agent_restarts: u64,
    duration_ms: Option<f64>,
}

/// Torch writes one-element lists.
#[derive(Serialize)]
struct Details<'a> {
    group_world_size: Option<u32>,
    entry_point: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_rank: Option<[u32; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role_rank: Option<[u32; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role_world_size: Option<[u32; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<[Option<i32>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_pid: Option<[Option<i32>; 1]>,
}

/// What all events of an attempt have in common.
pub(super) struct Teller<'a> {
    pub(super) spec: &'a RunSpec,
    pub(super) context: &'a NodeContext,
    pub(super) attempt: Attempt,
    /// Before its first world an agent has none; as in torch the next world is told of as a member of the one before.
    pub(super) group: Option<&'a Group>,
    /// Since the agent began.
    pub(super) seconds: u64,
}

impl Teller<'_> {
    /// The line of an event of a rank, with its newline. `error`: what it died of.
    pub(super) fn worker(
        &self,
        state: State,
        worker: Worker,
        kind: Option<&ExitKind>,
        error: &str,
    ) -> String {
        let failed = state == State::Failed;
        let of_role = self.group.map(|g| g.first_of_role.saturating_add(worker.local_rank.0));
        let details = Details {
            local_rank: Some([worker.local_rank.0]),
            role_rank: of_role.map(|rank| [rank]),
            role_world_size: self.group.map(|g| [g.role_world]),
            exit_code: Some([kind.filter(|_| failed).map(ExitKind::torch_code)]),
            worker_pid: Some([Some(worker.pid).filter(|_| failed)]),
            ..self.details()
        };
        let metadata = Metadata {
            global_rank: Some(worker.rank.0),
            worker_id: Some(worker.pid.to_string()),
            raw_error: (!error.is_empty()).then_some(error),
            ..self.metadata(state, &details)
        };
        line(state, "WORKER", metadata)
    }

    /// The line of an event of the agent, and how long that took.
    pub(super) fn agent(&self, state: State, took: Option<Duration>) -> String {
        let duration_ms = took.map(|took| took.as_secs_f64() * 1_000.0);
        line(state, "AGENT", Metadata { duration_ms, ..self.metadata(state, &self.details()) })
    }

    fn details(&self) -> Details<'_> {
        Details {
            group_world_size: self.group.map(|g| g.groups),
            entry_point: entry_point(&self.spec.program),
            local_rank: None,
            role_rank: None,
            role_world_size: None,
            exit_code: None,
            worker_pid: None,
        }
    }

    fn metadata(&self, state: State, details: &Details<'_>) -> Metadata<'_> {
        let role = self.group.map(|g| g.role.as_str()).filter(|role| !role.is_empty());
        Metadata {
            run_id: self.spec.run_id.as_str(),
            global_rank: None,
            group_rank: self.group.map(|g| g.group_rank),
            worker_id: None,
            role: role.unwrap_or(&self.spec.role),
            hostname: self.context.node.as_str(),
            state: state.name(),
            total_run_time: self.seconds,
            rdzv_backend: "relight",
            raw_error: None,
            metadata: serde_json::to_string(details).unwrap_or_default(),
            agent_restarts: self.attempt.0,
            duration_ms: None,
        }
    }
}

fn line(state: State, source: &'static str, metadata: Metadata<'_>) -> String {
    let name = format!("torchelastic.worker.status.{}", state.name());
    let event = Event { name, source, timestamp: 0, metadata };
    let mut line = serde_json::to_string(&event).unwrap_or_default();
    line.push('\n');
    line
}

/// The name without directories.
fn entry_point(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Incarnation, NodeName, RunId};
    use crate::domain::record::Member;

    fn spec() -> RunSpec {
        RunSpec {
            run_id: RunId::new("r1"),
            program: "/a/train.py".into(),
            role: "default".into(),
            ..RunSpec::default()
        }
    }

    fn parsed(line: &str) -> (serde_json::Value, serde_json::Value) {
        assert!(line.ends_with("}\n"), "{line}");
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let details = serde_json::from_str(event["metadata"]["metadata"].as_str().unwrap()).unwrap();
        (event, details)
    }

    /// Two roles in turns, two ranks a node.
    fn world() -> World {
        let member = |slot: u32| Member {
            slot: Slot(slot),
            node: NodeName::new(format!("n{slot}")),
            incarnation: Incarnation::default(),
            nproc: 2,
            log_dir: String::new(),
            role: ["actor", "learner"][slot as usize % 2].into(),
        };
        World { members: (0..4).map(member).collect(), ..World::default() }
    }

    #[test]
    fn torchs_fields() {
        let (spec, context) = (spec(), NodeContext { node: NodeName::new("n1"), ..NodeContext::default() });
        let group = Group::of(&world(), Slot(3));
        let teller =
            Teller { spec: &spec, context: &context, attempt: Attempt(2), group: group.as_ref(), seconds: 7 };
        let worker = Worker { rank: Rank(7), local_rank: LocalRank(1), pid: 77 };
        let kind = ExitKind::Signal { no: 9, core: false };
        let (event, details) =
            parsed(&teller.worker(State::of(&kind, false), worker, Some(&kind), "SIGKILL"));
        assert_eq!(
            (&event["name"], &event["source"]),
            (&"torchelastic.worker.status.FAILED".into(), &"WORKER".into())
        );
        let metadata = &event["metadata"];
        assert_eq!(
            (metadata["global_rank"].as_u64(), metadata["agent_restarts"].as_u64()),
            (Some(7), Some(2))
        );
        assert_eq!(metadata["role"], "learner", "of the node");
        // The fourth of the four ranks of its role, not the eighth of eight.
        assert_eq!(
            details.to_string(),
            r#"{"entry_point":"train.py","exit_code":[-9],"group_world_size":4,"local_rank":[1],"role_rank":[3],"role_world_size":[4],"worker_pid":[77]}"#
        );
        let (event, details) = parsed(&teller.agent(State::Succeeded, None));
        assert_eq!((&event["source"], event["metadata"]["raw_error"].is_null()), (&"AGENT".into(), true));
        assert_eq!(details.to_string(), r#"{"entry_point":"train.py","group_world_size":4}"#);
        assert_eq!(State::of(&ExitKind::Code(1), true), State::Terminated);
        assert_eq!(State::of(&ExitKind::Code(0), true), State::Terminated);
        assert_eq!(State::of(&ExitKind::Code(0), false), State::Succeeded);
    }

    #[test]
    fn before_its_first_world_an_agent_has_no_place() {
        let (spec, context) = (spec(), NodeContext::default());
        let teller = Teller { spec: &spec, context: &context, attempt: Attempt(0), group: None, seconds: 0 };
        let line = teller.agent(State::Rendezvous, Some(Duration::from_micros(1_500)));
        let (event, details) = parsed(&line);
        assert_eq!(event["name"], "torchelastic.worker.status.RENDEZVOUS");
        let metadata = &event["metadata"];
        assert!(metadata["group_rank"].is_null() && details["group_world_size"].is_null(), "{line}");
        assert_eq!((&metadata["duration_ms"], &metadata["role"]), (&1.5.into(), &"default".into()));
        assert_eq!(Group::of(&world(), Slot(9)), None);
    }
}
