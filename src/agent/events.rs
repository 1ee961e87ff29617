//! torchrun's events, for `--event-log-handler console`: one JSON object a line on standard error, when a rank starts or
//! ends and when the agent goes. Names and fields are torch's (`torch.distributed.elastic.events`); times are 0 there,
//! too.

use serde::Serialize;

use crate::domain::exit::ExitKind;
use crate::domain::ids::{Attempt, LocalRank, Rank};
use crate::domain::settings::NodeContext;
use crate::domain::spec::RunSpec;

/// What is known of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) world_size: u32,
    pub(super) pid: i32,
}

/// What happened to it, or to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Start,
    Succeeded,
    Failed,
    /// We stopped it.
    Terminated,
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
    group_rank: u32,
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
    duration_ms: Option<u64>,
}

/// Torch writes one-element lists.
#[derive(Serialize)]
struct Details<'a> {
    group_world_size: u32,
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
    pub(super) group_rank: u32,
    pub(super) groups: u32,
    /// Since the agent began.
    pub(super) seconds: u64,
}

impl Teller<'_> {
    /// The line of an event, with its newline. `worker`: none for the agent itself; `error`: what it died of.
    pub(super) fn line(
        &self,
        state: State,
        worker: Option<Worker>,
        kind: Option<&ExitKind>,
        error: &str,
    ) -> String {
        let failed = state == State::Failed;
        let details = Details {
            group_world_size: self.groups,
            entry_point: entry_point(&self.spec.program),
            local_rank: worker.map(|w| [w.local_rank.0]),
            role_rank: worker.map(|w| [w.rank.0]),
            role_world_size: worker.map(|w| [w.world_size]),
            exit_code: worker.map(|_| [kind.filter(|_| failed).map(ExitKind::torch_code)]),
            worker_pid: worker.map(|w| [Some(w.pid).filter(|_| failed)]),
        };
        let event = Event {
            name: format!("torchelastic.worker.status.{}", state.name()),
            source: if worker.is_some() { "WORKER" } else { "AGENT" },
            timestamp: 0,
            metadata: Metadata {
                run_id: self.spec.run_id.as_str(),
                global_rank: worker.map(|w| w.rank.0),
                group_rank: self.group_rank,
                worker_id: worker.map(|w| w.pid.to_string()),
                role: &self.spec.role,
                hostname: self.context.node.as_str(),
                state: state.name(),
                total_run_time: self.seconds,
                rdzv_backend: "relight",
                raw_error: (!error.is_empty()).then_some(error),
                metadata: serde_json::to_string(&details).unwrap_or_default(),
                agent_restarts: self.attempt.0,
                duration_ms: None,
            },
        };
        let mut line = serde_json::to_string(&event).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The name without directories.
fn entry_point(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{NodeName, RunId};

    #[test]
    fn torchs_fields() {
        let spec = RunSpec {
            run_id: RunId::new("r1"),
            program: "/a/train.py".into(),
            role: "default".into(),
            ..RunSpec::default()
        };
        let context = NodeContext { node: NodeName::new("n1"), ..NodeContext::default() };
        let teller = Teller {
            spec: &spec,
            context: &context,
            attempt: Attempt(2),
            group_rank: 1,
            groups: 4,
            seconds: 7,
        };
        let worker = Worker { rank: Rank(9), local_rank: LocalRank(1), world_size: 32, pid: 77 };
        let kind = ExitKind::Signal { no: 9, core: false };
        let line = teller.line(State::of(&kind, false), Some(worker), Some(&kind), "SIGKILL");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&event["name"], &event["source"]),
            (&"torchelastic.worker.status.FAILED".into(), &"WORKER".into())
        );
        let metadata = &event["metadata"];
        assert_eq!(
            (metadata["global_rank"].as_u64(), metadata["agent_restarts"].as_u64()),
            (Some(9), Some(2))
        );
        let details: serde_json::Value =
            serde_json::from_str(metadata["metadata"].as_str().unwrap()).unwrap();
        assert_eq!(
            details.to_string(),
            r#"{"entry_point":"train.py","exit_code":[-9],"group_world_size":4,"local_rank":[1],"role_rank":[9],"role_world_size":[32],"worker_pid":[77]}"#
        );
        let agent = teller.line(State::Succeeded, None, None, "");
        assert!(
            agent.ends_with("}\n")
                && agent.contains(r#""source":"AGENT""#)
                && agent.contains(r#""raw_error":null"#)
        );
        assert_eq!(State::of(&ExitKind::Code(1), true), State::Terminated);
        assert_eq!(State::of(&ExitKind::Code(0), true), State::Terminated);
        assert_eq!(State::of(&ExitKind::Code(0), false), State::Succeeded);
    }
}
