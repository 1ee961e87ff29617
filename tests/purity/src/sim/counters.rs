//! What happened how often.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened how often.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            /// Adds another count.
            pub fn add(&mut self, other: &Self) { $(self.$name += other.$name;)* }

            /// Names and counts.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> { vec![$((stringify!($name), self.$name)),*] }
        }
    };
}

counters! {
    /// Ranks that were stopped.
    ranks_stopped,
    /// Worlds that ended because one was.
    hangs,
    /// Launches, the first of each scenario included.
    launches,
    /// Attempts that were opened.
    attempts,
    /// Attempts that followed an incident.
    restarts,
    /// Nodes that were declared lost.
    losses,
    /// Nodes that were declared lost before their silence was long enough, because others did not reach them.
    lost_unreachable,
    /// The same, because their connection was closed.
    lost_closed,
    /// The same, because their task had ended.
    lost_ended,
    /// Nodes that were in doubt.
    doubts,
    /// Beats that came late.
    late_beats,
    /// Lost nodes that came back.
    came_back,
    /// Records that changed who votes.
    memberships,
    /// Snapshots of the ledger.
    snapshots,
    /// Nodes whose processes were killed at once.
    nodes_gone,
    /// Agents that the supervisor started.
    agents_started,
    /// Agents to whom their leader was silent.
    silent_leaders,
    /// Lost nodes that beat again.
    backs,
    /// Messages that were dropped as stale.
    stale_drops,
    /// Appends that were written although an error was reported.
    lost_replies,
    /// Records that landed after their error was reported.
    late_landings,
    /// Appends that were lost to another record.
    appends_lost,
    /// Stops of a process that leads.
    pauses,
    /// Stops of other agents.
    freezes,
    /// Control threads that stood still.
    stuck,
    /// One-way cuts.
    one_way_cuts,
    /// Cuts both ways.
    cuts,
    /// Messages that were lost.
    dropped,
    /// Messages that came twice.
    doubled,
    /// Messages that came late.
    late,
    /// Agents that were killed and started again.
    agent_crashes,
    /// Nodes that lost power.
    node_crashes,
    /// Nodes that came back.
    node_returns,
    /// Coordinators that came back.
    returns,
    /// Ranks that failed by themselves.
    rank_failures,
    /// Ranks that lost a peer with its node.
    peers_lost,
    /// Ranks that exited with 0 before their peers.
    early_exits,
    /// Ranks that could not be started.
    spawn_failures,
    /// Grants that ran out with ranks running.
    grants_over,
    /// Second beat links.
    second_links,
    /// Nodes with survivors.
    dirty,
    /// Authority that ran out.
    authority_over,
    /// Coordinators that stood down.
    stood_down,
    /// Slots that were given to another node.
    replaced,
    /// Worlds with fewer nodes than a full one.
    smaller_worlds,
    /// Worlds with fewer nodes than the one before.
    shrunk,
    /// Worlds with more.
    grown,
    /// Last calls.
    last_calls,
    /// Runs that finished.
    finished,
    /// Runs that failed.
    failed,
    /// Runs that were stopped.
    stopped,
    /// Agents that gave up looking for a coordinator.
    orphans,
    /// Nodes that were taken out.
    evicted,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, count)) in self.list().into_iter().enumerate() {
            write!(f, "{}{name} {count}", if i == 0 { "" } else { "  " })?;
        }
        Ok(())
    }
}
