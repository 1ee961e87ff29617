//! What a person sees: one line per state change, from the coordinator only. Blame names rank, node and
//! evidence; a decision names the next step; the last line says where to look.

mod elastic;

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::board::Request;
use super::errno::errno_name;
use super::exit::signal_name;
use super::exit_code::DO_NOT_REQUEUE;
use super::failed_box::FailedBox;
use super::health::{CheckResult, Finding};
use super::ids::{Attempt, NodeName, Rank, RunId};
use super::liveness::limits::Place;
use super::note::{DAMAGED, NoPlace, Note, Replaced, Sign};
use super::port_conflict;
use super::record::{Decision, FirstFailure, Incident, Order, Victim};
use super::time::human;
use super::torch_store::seen::Reach;
use super::wire::RefusedWhy;

/// What the first lines say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Banner {
    /// The run.
    pub run: RunId,
    /// What names it in a command that finds it from anywhere: its id, else its directory.
    pub call: String,
    /// Nodes of a full world.
    pub nodes: u32,
    /// Nodes of the smallest world that may run; 0: the same.
    pub least: u32,
    /// Ranks on each.
    pub nproc: u32,
    /// The interpreter; empty for a program of its own.
    pub interpreter: String,
    /// Why this one.
    pub interpreter_from: String,
    /// `OMP_NUM_THREADS` of the ranks, if it is set.
    pub omp_threads: Option<String>,
    /// The run directory.
    pub dir: String,
    /// A person is at the terminal.
    pub interactive: bool,
    /// Ranks that do not advance are looked for.
    pub watched: bool,
    /// Restarts that were allowed.
    pub max_restarts: Option<u32>,
    /// Options that were given and have no effect.
    pub ignored: Vec<String>,
    /// What is run, as it was typed.
    pub program: String,
}

/// Makes lines of notes.
#[derive(Clone, Debug)]
pub struct Console {
    banner: Banner,
    said_banner: bool,
    incident: Option<Incident>,
    /// The first failure of the newest incident that has one, as it was told.
    first: Option<(u64, FirstFailure)>,
    restarted: bool,
    /// A slot went to another node since a world ran last.
    replaced: bool,
    /// The newest incident that is a hang.
    hung: Option<u64>,
    ended: bool,
    /// A local time for unix milliseconds.
    stamp: fn(u64) -> String,
}

impl Console {
    /// A console that has said nothing yet.
    #[must_use]
    pub fn new(banner: Banner) -> Self {
        Self {
            banner,
            said_banner: false,
            incident: None,
            first: None,
            restarted: false,
            replaced: false,
            hung: None,
            ended: false,
            stamp: |ms| format!("{}.{:03}", ms / 1000, ms % 1000),
        }
    }

    /// How the report at the end says when something was; in unix seconds without.
    #[must_use]
    pub fn with_stamp(mut self, stamp: fn(u64) -> String) -> Self {
        self.stamp = stamp;
        self
    }

    /// An earlier life of this process has said the first lines already.
    pub fn returned(&mut self) {
        self.said_banner = true;
    }

    /// The verdict of an incident is known in full.
    pub fn settled(&mut self, incident: &Incident) {
        self.incident = Some(incident.clone());
    }

    /// The lines for a note, with the prefix and without newlines. `time` is the local time of day.
    pub fn lines(&mut self, note: &Note, time: &str) -> Vec<String> {
        let text: Vec<String> = match note {
            Note::Leads { continues, next_attempt, term, .. } => {
                let mut lines = self.banner_lines();
                if *continues {
                    lines.push(format!(
                        "run {} continues: term {term}, next attempt {next_attempt}",
                        self.banner.run
                    ));
                }
                lines
            }
            Note::Ended { code, sentence } => return self.end_lines(*code, sentence, time),
            Note::AttemptRunning { attempt, down: Some(down), spares, .. } => {
                self.restarted = true;
                vec![format!("{time} {}", self.running(attempt, *down, *spares))]
            }
            Note::SlotFilled { .. } => {
                self.replaced = true;
                self.one_line(note).map(|line| vec![format!("{time} {line}")]).unwrap_or_default()
            }
            Note::HangFound { incident, sentence, dir, next, .. } => {
                self.hung = *incident;
                let place = format!("{}/{dir}", self.banner.dir);
                let next = if next.is_empty() { String::new() } else { format!("; {next}") };
                vec![format!("{time} {sentence}{next}   -> stacks: {place}")]
            }
            Note::Decided { incident, decision: Decision::Restart, .. } if self.hung == Some(*incident) => {
                vec![format!("{time} restarting (change: --hang-action, --heartbeat-timeout)")]
            }
            Note::RankFailed { first, stopped, incident, spread, .. } => {
                self.first = Some((*incident, first.clone()));
                let others = if spread.is_empty() { stopped_ranks(*stopped) } else { spread.clone() };
                vec![format!("{time} {}; {others}", first.sentence())]
            }
            _ => self.one_line(note).map(|line| vec![format!("{time} {line}")]).unwrap_or_default(),
        };
        prefixed(text)
    }

    fn banner_lines(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.said_banner, true) {
            return Vec::new();
        }
        let b = &self.banner;
        let nodes = match b.least {
            least if least > 0 && least < b.nodes => format!("{least} to {} nodes", b.nodes),
            _ => count(b.nodes, "node"),
        };
        let mut first = format!("run {}: {nodes} x {}", b.run, count(b.nproc, "rank"));
        if !b.interpreter.is_empty() {
            let _ = write!(first, ", python {} ({})", b.interpreter, b.interpreter_from);
        }
        if let Some(threads) = &b.omp_threads {
            let _ = write!(first, ", OMP_NUM_THREADS={threads}");
        }
        let mut lines = vec![first, format!("logs, journal: {}   status: relight status {}", b.dir, b.call)];
        if b.interactive {
            let restarts = match b.max_restarts {
                Some(0) => "no restarts".to_owned(),
                Some(n) => format!("at most {}", count(n, "restart")),
                None => "restarts while there is progress".to_owned(),
            };
            let hangs = if b.watched { "" } else { ", hang detection off (terminal)" };
            let nodes = count(b.nodes, "node");
            lines.push(format!("interactive: {nodes}, {restarts}{hangs}. Ctrl-C stops, twice kills"));
        }
        if !b.ignored.is_empty() {
            lines.push(format!("without effect here: {}", b.ignored.join(", ")));
        }
        lines
    }

    #[allow(clippy::too_many_lines)] // One arm a note.
    fn one_line(&self, note: &Note) -> Option<String> {
        Some(match note {
            Note::Decided { decision: Decision::Stop { code }, incident, why, .. }
                if *code >= DO_NOT_REQUEUE =>
            {
                self.stops(*code, *incident, why)
            }
            Note::Decided { decision, restart, charged, max_restarts, why, wait_ms, grows, .. } => {
                let restart = if *charged { *restart } else { 0 };
                let line = self.decided(decision, restart, *max_restarts, why, *grows)?;
                match wait_ms {
                    0 => line,
                    ms => {
                        let wait = human(Duration::from_millis(*ms));
                        format!("{line} in {wait}, as it failed before (change: --restart-backoff)")
                    }
                }
            }
            Note::Evicted { node, reason, back: false } => {
                format!("{node} is taken out of the run: {reason}")
            }
            Note::Evicted { node, reason, back: true } => {
                format!("{node} is given back to the run: {reason}")
            }
            Note::KeptIn { node, why } => format!("{node} is not taken out: {why}"),
            Note::Ordered { ordered } => {
                format!("{} by {}: {}", order(&ordered.order), ordered.by, ordered.reason)
            }
            Note::HeldBack => "the run is paused: nothing is started until `relight ctl resume`".to_owned(),
            Note::TakenOut { why } => {
                format!("this node was taken out of the run: {why}; its agent ends here")
            }
            Note::GrantRanOut { node, own: true, .. } => {
                format!("too few nodes answered in time: {node}, which leads, has stopped its own ranks, too")
            }
            Note::GrantRanOut { node, .. } => format!(
                "the grant of {node} ran out while its agent did not answer: its guardian stopped its ranks"
            ),
            Note::AgentReturned { node, .. } => {
                format!("the agent on {node} ended and its ranks with it; it was started again")
            }
            Note::NodeLost { node, silent, slot, sign } => {
                let was = if slot.is_none() { "; it was a spare" } else { "" };
                format!("{node} is gone: {}{was}", signs(*silent, sign))
            }
            Note::NodeBack { node, spare: true } => format!("{node} is back: it waits as a spare"),
            Note::NodeBack { node, spare: false } => format!("{node} is back"),
            Note::NotExclusive { nodes: [one, other], both: true } => {
                format!(
                    "warning: {one} and {other} could both make one file in the run directory: its file system cannot decide between two coordinators"
                )
            }
            Note::PassedOver { nodes, leads } => {
                let verb = if nodes.len() == 1 { "it comes first and" } else { "they come first and" };
                format!("{leads} leads in the place of {}: {verb} did not answer in time", join(nodes))
            }
            Note::Refused { node, why } => refused(node, why)?,
            Note::SlotFilled { slot, node, instead_of, why, spare, ranks } => {
                let of =
                    if spare.0 > 0 { format!(" (spare {} of {})", spare.0, spare.1) } else { String::new() };
                let (first, last) = *ranks;
                let ranks = ranges(&(first.0..=last.0).map(Rank).collect::<Vec<_>>());
                format!("{}; {node}{of} takes slot {slot}, {ranks}", replaced(instead_of, *why))
            }
            Note::NodeDirty { node, survivors } => {
                let list = survivors.iter().map(|(pid, state)| format!("{pid} (state {state})"));
                let list = list.collect::<Vec<_>>().join(", ");
                format!("{node}: process {list} survived SIGKILL; no ranks there until it is gone")
            }
            Note::WaitingForNodes { patience, missing, .. } if !missing.is_empty() => {
                let other = if missing.len() == 1 { "another node" } else { "other nodes" };
                format!("waiting up to {} for {} or {other}", human(*patience), join(missing))
            }
            Note::WaitingForNodes { have, need, patience, .. } => {
                format!(
                    "waiting for {} that can run ranks, {have} there; giving up in {}",
                    count(*need, "node"),
                    human(*patience)
                )
            }
            Note::LastCall { .. } | Note::Resized { .. } | Note::CameLate { .. } => elastic::elastic(note)?,
            Note::StopRequested { signal, terminal, ranks, grace, again, .. } => {
                stopping(*signal, *terminal, *ranks, *grace, *again)
            }
            Note::AllStopped { took } => format!("all ranks stopped in {}", human(*took)),
            Note::StoreTrouble { text, since, runs } => store_trouble(text, *since, *runs),
            Note::StoreLate { attempt, reach, since } => store_late(*attempt, reach, *since),
            Note::RendezvousStore { said } => format!("rendezvous store: {said}"),
            Note::LogsDisabled { path, errno } => {
                format!("logs: {path} cannot be written: {}; going on without", errno_name(*errno))
            }
            Note::LogsLost { bytes } => {
                format!("logs: {} of output are in no file, as none could be written", size(*bytes))
            }
            Note::Unhealthy { node, results } => unhealthy(node, results),
            Note::OtherScript { node, leader } => {
                format!("warning: {} on {node} is not the same file as on {leader}", self.banner.program)
            }
            Note::NoneBlamed { nodes, of, together } => none_blamed(nodes, *of, *together),
            Note::StoreBack { after } => {
                format!("the run directory can be written again after {}", human(*after))
            }
            Note::NotWaitedFor { nodes } => {
                format!("{} may still have processes of this run; not waiting any longer", join(nodes))
            }
            Note::StoodDown { why } => {
                format!(
                    "this coordinator ends: {why}; without another one its ranks are stopped and the exit code is 1"
                )
            }
            Note::Suspected { .. } | Note::GoesOn { .. } | Note::RankAsks { .. } => silence(note)?,
            _ => return gone(note),
        })
    }

    fn end_lines(&mut self, code: u8, sentence: &str, time: &str) -> Vec<String> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let call = &self.banner.call;
        if code == 0 {
            let command = if self.restarted { "details: relight why" } else { "logs: relight logs" };
            return prefixed([format!("{time} finished     {command} {call}")]);
        }
        // What was told counts where it is newer than the last verdict: that one was not written.
        let told = self.first.take();
        let newer = |i: &Incident| told.as_ref().is_some_and(|(told, _)| *told > i.incident);
        let settled = self.incident.take().filter(|i| !newer(i));
        let first = match &settled {
            Some(incident) => incident.first_failure.clone(),
            None => told.map(|(_, first)| first),
        };
        let lost = settled.as_ref().map_or(&[][..], |i| &i.lost);
        if code >= 128 || (first.is_none() && lost.is_empty()) {
            let command = if code < 128 { "details: relight why" } else { "logs: relight logs" };
            return prefixed([format!("{time} ended: {sentence}. Exit {code}.     {command} {call}")]);
        }
        let mut lines = vec![format!("{time} ended: {sentence}. Exit {code}.")];
        lines.extend(settled.as_ref().and_then(whole_node));
        if first.is_none() {
            let verb = if lost.len() == 1 { "was" } else { "were" };
            lines.push(format!("first failure: {} {verb} lost", join(lost)));
        }
        let mut lines = prefixed(lines);
        if let Some(root) = &first {
            // Without the prefix: people and scripts know it from torchrun.
            lines.extend(self.failed_box(root, settled.as_ref()));
        }
        let mut rest = settled.as_ref().map(|i| victims(i, first.is_none())).unwrap_or_default();
        rest.push(format!("details: relight why {call}   logs: {}", self.banner.dir));
        lines.extend(prefixed(rest));
        lines
    }

    fn failed_box(&self, root: &FirstFailure, settled: Option<&Incident>) -> Vec<String> {
        let others = settled.map_or(&[][..], |i| &i.others);
        let victims = settled.map_or(&[][..], |i| &i.victims);
        FailedBox { program: &self.banner.program, root, others, victims, stamp: self.stamp }.lines()
    }

    fn running(&mut self, attempt: &Attempt, down: Duration, spares: u32) -> String {
        let replaced = std::mem::replace(&mut self.replaced, false);
        let left = match spares {
            0 if !replaced => String::new(),
            0 => "; no spare left".to_owned(),
            n => format!("; {} left", count(n, "spare")),
        };
        let call = &self.banner.call;
        format!("attempt {attempt} running; lost {}{left}     details: relight why {call}", human(down))
    }

    /// The run ends for what its program did: the last word is where to look.
    fn stops(&self, code: u8, incident: u64, why: &[String]) -> String {
        let why = why.last().map_or("no reason is known", |w| w.as_str());
        let words = |(number, first): &&(u64, FirstFailure)| *number == incident && !first.words.is_empty();
        let place = self
            .first
            .as_ref()
            .filter(words)
            .map(|_| format!("   Traceback: {}/incidents/{incident:04}/traceback.txt", self.banner.dir));
        format!("not restarting: {why}. Exit {code}.{}", place.unwrap_or_default())
    }

    /// Nothing where the next line says it: who takes the slot of a lost node, or that one is waited for.
    /// `restart` is 0 for one that does not count.
    fn decided(
        &self,
        decision: &Decision,
        restart: u32,
        max: Option<u32>,
        why: &[String],
        grows: bool,
    ) -> Option<String> {
        let number = match max {
            Some(max) => format!("restart {restart} of {max}"),
            None => format!("restart {restart}"),
        };
        let nodes = match self.banner.nodes {
            // How many the next world has, and who comes, is the next line.
            _ if grows => "",
            1 => " on the same node",
            _ => " on the same nodes",
        };
        Some(match decision {
            Decision::Restart if restart == 0 => {
                let port = why.iter().find(|why| why.starts_with(port_conflict::SIGN));
                let port = port.map_or(String::new(), |why| format!("{why}; "));
                format!("{port}starting again{nodes}")
            }
            Decision::Restart => format!("{number}{nodes}"),
            Decision::Replace { .. } | Decision::Shrink { .. } if restart == 0 => return None,
            Decision::Replace { nodes } | Decision::Shrink { nodes } => {
                format!("{number} without {}", join(nodes))
            }
            Decision::Stop { code } => {
                let why = why.last().map_or("no reason is known", |w| w.as_str());
                format!("not restarting: {why}; the run ends with exit code {code}")
            }
        })
    }
}

/// What the console says of a note in one sentence, without prefix and time; none where it says nothing of it, or more.
#[must_use]
pub fn sentence(note: &Note) -> Option<String> {
    match note {
        // It depends on what was said before.
        Note::Decided { .. } => None,
        _ => Console::new(Banner::default()).one_line(note),
    }
}

fn order(order: &Order) -> String {
    match order {
        Order::Pause => "paused".to_owned(),
        Order::Resume => "resumed".to_owned(),
        Order::Restart => "restarted".to_owned(),
        Order::Evict { node } => format!("{node} is to be taken out, asked for"),
        Order::Stop => "stopped".to_owned(),
    }
}

/// Bytes, in a unit that can be read.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, "bytes");
    for larger in UNITS {
        if value < 10_000 {
            break;
        }
        (value, unit) = (value / 1_000, larger);
    }
    format!("{value} {unit}")
}

/// Ranks that do not advance, or do again, and what they ask for.
fn silence(note: &Note) -> Option<String> {
    Some(match note {
        Note::Suspected { everybody: true, silent, usual, limit, explicit, .. } => {
            let known = match (usual, explicit) {
                (_, true) => format!(" (limit {})", human(*limit)),
                (Some(usual), false) => format!(" (usual step {})", human(*usual)),
                (None, false) => String::new(),
            };
            format!("no rank has advanced for {}{known}; collecting stacks", human(*silent))
        }
        Note::Suspected { rank, node, silent, limit, place, .. } => {
            let what = match place {
                Place::Start => format!("has given no sign for {} since its start", human(*silent)),
                Place::Section(name) => format!("has been in section {name} for {}", human(*silent)),
                place => format!("has not advanced for {} ({})", human(*silent), place.name()),
            };
            format!("rank {rank} ({node}) {what}, limit {}; collecting stacks", human(*limit))
        }
        Note::GoesOn { rank, node, silent, .. } => {
            format!("rank {rank} ({node}) advances again after {}", human(*silent))
        }
        Note::RankAsks { rank, node, request: Request::Evict { reason } } => {
            format!("rank {rank} ({node}) asks for its node to be taken out: {reason}")
        }
        Note::RankAsks { rank, node, request: Request::Stop { reason } } => {
            format!("rank {rank} ({node}) asks for the end of the run: {reason}")
        }
        _ => return None,
    })
}

/// What tells that a node is gone.
fn signs(silent: Duration, sign: &Sign) -> String {
    let silence = format!("no sign for {}", human(silent));
    match sign {
        Sign::Silence => silence,
        Sign::Closed => format!("{silence}, its connection was closed"),
        Sign::TaskEnded => format!("{silence}, and its task has ended"),
        Sign::Unreachable { from } => format!("{silence}, {} cannot reach it either", join(from)),
    }
}

/// Why another node is where this one was.
/// The worst of what was found, with how many more there are.
fn unhealthy(node: &NodeName, results: &[CheckResult]) -> String {
    let mut sorted: Vec<&CheckResult> = results.iter().collect();
    sorted.sort_by_key(|result| std::cmp::Reverse(result.finding));
    let Some(worst) = sorted.first() else { return format!("{node} is healthy") };
    let more = match sorted.len() {
        1 => String::new(),
        count => format!(" (and {} more: relight check)", count - 1),
    };
    let verb = match worst.finding {
        Finding::Fail => "fails",
        Finding::Unknown => "gives no answer to",
        Finding::Pass | Finding::Skipped => "has a word of warning from",
    };
    format!("{node} {verb} the check {}: {}{more}", worst.check, worst.sentence)
}

fn none_blamed(nodes: &[NodeName], of: u32, together: bool) -> String {
    let names = join(nodes);
    if together {
        let count = nodes.len();
        return format!(
            "{count} of {of} nodes fail a check together ({names}): none is blamed; look at the check, the storage, the network"
        );
    }
    format!("{names} failed a check, and there is no node to take the place: kept")
}

fn replaced(node: &NodeName, why: Replaced) -> String {
    match why {
        Replaced::Lost => format!("{node} lost"),
        Replaced::Dirty => format!("{node} has a process that survived SIGKILL"),
        Replaced::FailedTwice => format!("{node} failed first in two attempts running"),
        Replaced::Away => format!("{node} has no agent"),
        Replaced::Evicted => format!("{node} was taken out"),
    }
}

/// What the node is to be looked at for; nothing that only says that the run is over.
fn refused(node: &NodeName, why: &RefusedWhy) -> Option<String> {
    Some(match why {
        RefusedWhy::Ended(_) => return None,
        RefusedWhy::OtherStore => format!(
            "{node} reads another directory under the same name: it cannot take part; look at the mounts there"
        ),
        RefusedWhy::Evicted => format!("{node} is kept out of this run"),
        RefusedWhy::Differs { what, leader } => what.of(node, leader),
        RefusedWhy::SameName => format!(
            "a second machine calls itself {node}: it cannot take part; give each machine a host name of its own"
        ),
    })
}

/// `n01`, `n01 and n02`, `n01, n02 and n03`; a long list is cut.
fn join(nodes: &[NodeName]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&str> = nodes.iter().map(|n| n.as_str()).collect();
    match names.as_slice() {
        [] => "nobody".to_owned(),
        [one] => (*one).to_owned(),
        many if many.len() > SHOWN => {
            format!("{} and {} more", many[..SHOWN].join(", "), many.len() - SHOWN)
        }
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Who asked for the end, and what comes if the ranks do not follow.
fn stopping(signal: u8, terminal: bool, ranks: u32, grace: Duration, again: bool) -> String {
    const SIGINT: u8 = 2;
    let ranks = count(ranks, "rank");
    let by = match (terminal, signal) {
        (true, SIGINT) => "Ctrl-C".to_owned(),
        (true, _) => format!("{} from the terminal", signal_name(signal)),
        (false, _) => signal_name(signal),
    };
    match (again, terminal) {
        (true, _) => format!("killing {ranks} ({by} again)"),
        (false, true) => {
            format!("stopping {ranks} ({by}); once more kills, else SIGKILL in {}", human(grace))
        }
        (false, false) => format!("stopping {ranks} ({by}); SIGKILL in {}", human(grace)),
    }
}

/// What an agent says of the end, where no coordinator can.
fn gone(note: &Note) -> Option<String> {
    Some(match note {
        Note::LeaderGone { leader, silent, patience, .. } => format!(
            "{leader}, which leads this run, is gone: no sign for {}; all ranks are stopped, looking for it for {} more",
            human(*silent),
            human(*patience)
        ),
        Note::NoPlace { why: NoPlace::OtherRun } => {
            "the machine that leads has begun another run: this one is over here. Exit 1".to_owned()
        }
        Note::NoPlace { why: NoPlace::Differs { what, leader } } => what.here(leader),
        Note::NoPlace { why: NoPlace::SameName { node } } => {
            format!(
                "another machine of this run calls itself {node}, too: give each a host name of its own. Exit 2"
            )
        }
        Note::GaveUp { leader: None, .. } => "no coordinator was found: the agent ends".to_owned(),
        Note::GaveUp { leader: Some(leader), first, silent, .. } => {
            let what =
                if *first { format!("the first node {leader}") } else { format!("{leader}, which led,") };
            format!("{what} is gone (no sign for {}): the run ends here. Exit 1", human(*silent))
        }
        _ => return None,
    })
}

fn store_late(attempt: Attempt, reach: &Reach, since: Duration) -> String {
    let missing = reach.missing().unwrap_or_default();
    format!(
        "attempt {attempt}: {} of {} ranks have reached the store within {}; not yet: {missing}",
        reach.there,
        reach.world,
        human(since)
    )
}

/// Said at once and then from time to time.
fn store_trouble(text: &str, since: Duration, runs: bool) -> String {
    let long = if since < Duration::from_secs(1) { String::new() } else { format!(" for {}", human(since)) };
    let ranks = if runs { "ranks that run go on" } else { "no ranks run until then" };
    match text.strip_prefix(DAMAGED) {
        Some(damage) => {
            format!(
                "the journal is damaged, nothing can be written behind it{long}: {damage}; looking again, {ranks}"
            )
        }
        None => format!("the run directory cannot be written{long}: {text}; trying again, {ranks}"),
    }
}

fn stopped_ranks(stopped: u32) -> String {
    match stopped {
        0 => "it was the only rank".to_owned(),
        n => format!("{} stopped because of it", count(n, "rank")),
    }
}

/// All ranks of one node died by themselves and alike: that is the node's doing, and it is named once.
fn whole_node(incident: &Incident) -> Option<String> {
    let first = incident.first_failure.as_ref()?;
    let count = incident.whole_node()?;
    Some(format!("all {count} ranks of {} died alike ({}): look at the node", first.node, first.exit))
}

/// Our lines begin alike.
fn prefixed(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("relight: {line}")).collect()
}

/// Who ended because of somebody else; those that ended by themselves only where nothing else lists them.
fn victims(incident: &Incident, all: bool) -> Vec<String> {
    let (ours, own): (Vec<_>, Vec<_>) = incident.victims.iter().partition(|v| v.ours);
    let mut lines = Vec::new();
    if !ours.is_empty() {
        let ranks: Vec<Rank> = ours.iter().map(|v| v.rank).collect();
        lines.push(format!("victims, stopped by relight: {}", ranges(&ranks)));
    }
    if all {
        lines.extend(own_ends(&own));
    }
    lines
}

/// Those that ended by themselves, one line for each node and way to end.
fn own_ends(victims: &[&Victim]) -> Vec<String> {
    let mut groups: Vec<(&NodeName, String, Vec<Rank>)> = Vec::new();
    for victim in victims {
        let exit = victim.exit.to_string();
        match groups.iter_mut().find(|(node, how, _)| *node == &victim.node && *how == exit) {
            Some((_, _, ranks)) => ranks.push(victim.rank),
            None => groups.push((&victim.node, exit, vec![victim.rank])),
        }
    }
    let line = |(node, exit, ranks): (&NodeName, String, Vec<Rank>)| {
        let word = if ranks.len() == 1 { "victim" } else { "victims" };
        format!("{word}: {} ({node}): {exit}", ranges(&ranks))
    };
    groups.into_iter().map(line).collect()
}

/// `ranks 0-2, 5`.
#[must_use]
pub fn ranges(ranks: &[Rank]) -> String {
    let mut sorted: Vec<u32> = ranks.iter().map(|r| r.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in sorted {
        match parts.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(rank) => *end = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let list: Vec<String> =
        parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", list.join(", "))
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::super::exit::ExitKind;
    use super::*;

    #[test]
    fn ranks_are_written_as_ranges() {
        let ranks = |list: &[u32]| ranges(&list.iter().map(|r| Rank(*r)).collect::<Vec<_>>());
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[2, 0, 1, 5, 5, 7, 8]), "ranks 0-2, 5, 7-8");
    }

    #[test]
    fn a_restart_that_does_not_count_has_no_number() {
        let mut console = Console::new(Banner { nodes: 1, ..Banner::default() });
        let mut said = |charged| {
            let (decision, max_restarts) = (Decision::Restart, Some(3));
            console.lines(
                &Note::Decided {
                    incident: 0,
                    decision,
                    restart: 1,
                    charged,
                    max_restarts,
                    wait_ms: 0,
                    grows: false,
                    why: Vec::new(),
                },
                "",
            )
        };
        assert_eq!(said(true), ["relight:  restart 1 of 3 on the same node"]);
        assert_eq!(said(false), ["relight:  starting again on the same node"]);
    }

    #[test]
    fn trouble_with_the_run_directory_says_what_it_means_for_the_ranks() {
        let said = |text: &str, runs| {
            let note = Note::StoreTrouble { text: text.into(), since: Duration::from_secs(60), runs };
            sentence(&note).unwrap_or_default()
        };
        assert_eq!(
            said("write record 3: EROFS", true),
            "the run directory cannot be written for 60 s: write record 3: EROFS; trying again, ranks that run go on"
        );
        assert_eq!(
            said("write record 3: EROFS", false),
            "the run directory cannot be written for 60 s: write record 3: EROFS; trying again, no ranks run until then"
        );
        assert_eq!(
            said(&format!("{DAMAGED}record 3 cannot be read: it is empty"), false),
            "the journal is damaged, nothing can be written behind it for 60 s: record 3 cannot be read: it is empty; looking again, no ranks run until then"
        );
    }

    #[test]
    fn a_failure_is_one_line_with_rank_node_and_evidence() {
        let mut console = Console::new(Banner { run: RunId::new("r"), ..Banner::default() });
        let first = FirstFailure {
            rank: Rank(19),
            local_rank: 3,
            node: NodeName::new("n07"),
            pid: 4,
            exit: ExitKind::Signal { no: 9, core: false },
            wall_ms: 0,
            summary: "died: SIGKILL".into(),
            words: String::new(),
            error_file: String::new(),
            recorded_s: None,
        };
        let note =
            Note::RankFailed { attempt: Attempt(0), incident: 0, first, stopped: 31, spread: String::new() };
        assert_eq!(
            console.lines(&note, "14:03:22"),
            ["relight: 14:03:22 rank 19 (n07) died: SIGKILL; 31 ranks stopped because of it"]
        );
    }
}
