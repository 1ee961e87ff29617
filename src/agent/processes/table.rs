//! Who is there: ranks, workers, and workers that were given up. Nobody else's child is ever asked after.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::child::{Child, Step};
use super::{ProcessEvent, Scope, WorkerId};
use crate::domain::exit::ExitKind;
use crate::domain::ids::{LocalRank, Op};
use crate::domain::time::BootTime;
use crate::sys::capability::Capabilities;
use crate::sys::shm::SharedFiles;
use crate::sys::signals::number::SIGKILL;
use crate::sys::spawn::SpawnRequest;
use crate::sys::tree::{self, Owned, Reaped, Survivor};
use crate::sys::{clock, process, procfs};

/// EBUSY, the same on every Linux architecture.
const BUSY: i32 = 16;
/// Between two walks of a sweep when no child tells its end; doubles up to [`SLOWEST`].
const QUICKEST: Duration = Duration::from_millis(1);
const SLOWEST: Duration = Duration::from_millis(50);
/// A sweep walks again and again without a look at anything else for so long at most.
const TURN: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct RankChild {
    op: Op,
    child: Child,
    /// A sweep gave it up: it is reaped as soon as it ends.
    given_up: bool,
}

#[derive(Debug)]
struct Sweep {
    op: Op,
    until: BootTime,
}

#[derive(Debug)]
pub(super) struct Table<F> {
    pub(super) caps: Capabilities,
    /// SIGCHLD came, or a child lost its owner: look at all of them.
    pub(super) child_changed: bool,
    events: F,
    ranks: BTreeMap<LocalRank, RankChild>,
    workers: BTreeMap<WorkerId, Child>,
    /// Killed workers that have not ended: nobody waits for them.
    abandoned: BTreeSet<i32>,
    sweeps: Vec<Sweep>,
    next_walk: BootTime,
    pause: Duration,
    /// Who was alive at the walk before.
    walked: BTreeSet<i32>,
    /// From the first rank on, where there are such files.
    shared: Option<SharedFiles>,
    any_rank: bool,
}

impl<F: Fn(ProcessEvent)> Table<F> {
    pub(super) fn new(caps: Capabilities, events: F) -> Self {
        Self {
            caps,
            child_changed: false,
            events,
            ranks: BTreeMap::new(),
            workers: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            sweeps: Vec::new(),
            next_walk: BootTime::NEVER,
            pause: QUICKEST,
            walked: BTreeSet::new(),
            shared: None,
            any_rank: false,
        }
    }

    pub(super) fn tell(&self, event: ProcessEvent) {
        (self.events)(event);
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ranks = self.ranks.values().map(|rank| &rank.child);
        ranks.chain(self.workers.values()).flat_map(Child::descriptors)
    }

    pub(super) fn deadline(&self) -> Option<BootTime> {
        self.sweeps.iter().map(|sweep| sweep.until).min().map(|until| until.min(self.next_walk))
    }

    pub(super) fn spawn(&mut self, op: Op, rank: LocalRank, request: &SpawnRequest) {
        let busy = match self.ranks.get(&rank) {
            Some(old) => {
                Some(format!("start (process {} of this rank before is still there)", old.child.pid()))
            }
            None if !self.sweeps.is_empty() => Some("start (the ranks before are being ended)".to_owned()),
            None => None,
        };
        if let Some(what) = busy {
            return self.tell(ProcessEvent::SpawnFailed { op, rank, errno: BUSY, what });
        }
        if !std::mem::replace(&mut self.any_rank, true) {
            self.shared = SharedFiles::before_the_first();
        }
        match Child::begin(request, self.caps) {
            Ok(child) => {
                self.ranks.insert(rank, RankChild { op, child, given_up: false });
            }
            Err(error) => {
                self.tell(ProcessEvent::SpawnFailed { op, rank, errno: error.errno, what: error.what });
            }
        }
    }

    pub(super) fn signal(&mut self, rank: LocalRank, scope: Scope, signal: i32) {
        let Some(RankChild { child, .. }) = self.ranks.get(&rank) else { return };
        if let Some(shared) = self.shared.as_mut().filter(|_| !child.has_ended()).filter(|s| s.has_news()) {
            // It may end of this, and then nobody can see any more what it held.
            let mut pids = tree::below(child.pid(), &Owned::new(), self.caps).unwrap_or_default();
            pids.push(child.pid());
            shared.note(&pids);
        }
        match scope {
            Scope::Leader => child.signal_leader(signal),
            Scope::Group => child.signal_group(signal),
            Scope::IfCaught if !child.has_ended() && procfs::catches(child.pid(), signal) => {
                child.signal_leader(signal);
            }
            Scope::IfCaught => {}
        }
    }

    pub(super) fn release(&mut self, rank: LocalRank) {
        if self.ranks.get(&rank).is_some_and(|rank| rank.child.has_ended())
            && let Some(gone) = self.ranks.remove(&rank)
        {
            gone.child.reap();
        }
    }

    pub(super) fn spawn_worker(&mut self, id: WorkerId, request: &SpawnRequest) {
        self.kill_worker(id);
        match Child::begin(request, self.caps) {
            Ok(child) => {
                self.workers.insert(id, child);
            }
            Err(error) => self.tell(ProcessEvent::WorkerExited {
                id,
                kind: ExitKind::NeverStarted { errno: error.errno, what: error.what },
            }),
        }
    }

    pub(super) fn kill_worker(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.remove(&id) {
            worker.signal_group(SIGKILL);
            self.abandoned.insert(worker.pid());
            self.child_changed = true;
        }
    }

    /// Looks at every child: starts and ends are told, orphans reaped.
    pub(super) fn settle(&mut self) {
        self.child_changed = false;
        self.settle_ranks();
        self.settle_workers();
        let _ = self.reap();
    }

    fn settle_ranks(&mut self) {
        let mut gone = Vec::new();
        for (rank, RankChild { op, child, given_up }) in &mut self.ranks {
            let (op, rank, pid) = (*op, *rank, child.pid());
            while let Some(step) = child.step() {
                let event = match step {
                    Step::Started => ProcessEvent::Spawned { op, rank, pid },
                    Step::Failed(error) => {
                        gone.push(rank);
                        ProcessEvent::SpawnFailed { op, rank, errno: error.errno, what: error.what }
                    }
                    Step::Ended(kind) => {
                        if *given_up {
                            child.reap();
                            gone.push(rank);
                        }
                        ProcessEvent::RankExited { rank, pid, kind, at: clock::boot() }
                    }
                };
                (self.events)(event);
                if gone.last() == Some(&rank) {
                    break;
                }
            }
        }
        for rank in gone {
            self.ranks.remove(&rank);
        }
    }

    fn settle_workers(&mut self) {
        let mut gone = Vec::new();
        for (id, child) in &mut self.workers {
            while let Some(step) = child.step() {
                let kind = match step {
                    Step::Started => continue,
                    Step::Failed(error) => ExitKind::NeverStarted { errno: error.errno, what: error.what },
                    Step::Ended(kind) => {
                        child.signal_group(SIGKILL);
                        child.reap();
                        kind
                    }
                };
                gone.push(*id);
                (self.events)(ProcessEvent::WorkerExited { id: *id, kind });
                break;
            }
        }
        for id in gone {
            self.workers.remove(&id);
        }
    }

    /// Reaps whoever has no owner; workers that were given up are nobody's business. `None`: cannot be told now.
    fn reap(&mut self) -> Option<Reaped> {
        let ranks = self.ranks.values().map(|rank| rank.child.pid());
        let owned: Owned = ranks.chain(self.workers.values().map(Child::pid)).collect();
        let mut reaped = tree::reap_orphans(&owned, self.caps).ok()?;
        let abandoned = std::mem::take(&mut self.abandoned);
        self.abandoned = abandoned.iter().copied().filter(|pid| reaped.left.contains(pid)).collect();
        reaped.left.retain(|pid| !abandoned.contains(pid));
        reaped.ended.retain(|(pid, _)| !abandoned.contains(pid));
        Some(reaped)
    }

    pub(super) fn start_sweep(&mut self, op: Op, patience: Duration) {
        self.sweeps.push(Sweep { op, until: clock::boot().after(patience) });
        self.next_walk = clock::boot();
        self.pause = QUICKEST;
        self.walked.clear();
        if self.shared.as_ref().is_some_and(SharedFiles::has_news) {
            let below = tree::below(process::own_pid(), &self.spared(), self.caps).unwrap_or_default();
            if let Some(shared) = &mut self.shared {
                shared.note(&below);
            }
        }
    }

    /// Workers, and those that were given up: no sweep touches them.
    fn spared(&self) -> Owned {
        self.workers.values().map(Child::pid).chain(self.abandoned.iter().copied()).collect()
    }

    /// One turn of the sweeps, if there are any.
    pub(super) fn sweep(&mut self) {
        if self.sweeps.is_empty() {
            return;
        }
        let begun = clock::boot();
        let (walked, left) = loop {
            let Some((walked, reaped)) = self.walk() else {
                // It cannot be told who is there; that is not "nobody".
                break (vec![Survivor { pid: 0, state: '?' }], Vec::new());
            };
            let ranks_ended = self.ranks.values().all(|rank| rank.child.has_ended());
            if ranks_ended && walked.is_empty() && reaped.is_empty() {
                return self.finish_clean();
            }
            // Those who were killed need a moment to end; new ones forked meanwhile and get none.
            let now: BTreeSet<i32> = walked.iter().map(|survivor| survivor.pid).collect();
            let known = now.is_subset(&self.walked);
            self.walked = now;
            if known && reaped.ended.is_empty() {
                break (walked, reaped.left);
            }
            self.pause = QUICKEST;
            if clock::boot().since(begun) > TURN {
                break (walked, reaped.left);
            }
        };
        self.finish_impatient(walked, left);
        self.next_walk = clock::boot().after(self.pause);
        self.pause = (self.pause * 2).min(SLOWEST);
    }

    /// Kills and reaps once: who was alive, and which orphans were there. `None` if that cannot be told.
    fn walk(&mut self) -> Option<(Vec<Survivor>, Reaped)> {
        for rank in self.ranks.values() {
            rank.child.signal_group(SIGKILL);
        }
        let alive = tree::kill_descendants(&self.spared(), self.caps);
        self.settle_ranks();
        self.settle_workers();
        let reaped = self.reap();
        Some((alive.ok()?, reaped?))
    }

    fn finish_clean(&mut self) {
        for (_, rank) in std::mem::take(&mut self.ranks) {
            rank.child.reap();
        }
        if let Some(shared) = &mut self.shared {
            shared.remove_unheld();
        }
        for Sweep { op, .. } in std::mem::take(&mut self.sweeps) {
            self.tell(ProcessEvent::Swept { op, survivors: Vec::new() });
        }
    }

    fn finish_impatient(&mut self, walked: Vec<Survivor>, left: Vec<i32>) {
        let now = clock::boot();
        if self.sweeps.iter().all(|sweep| now < sweep.until) {
            return;
        }
        self.ranks.retain(|_, rank| {
            rank.given_up = true;
            if rank.child.has_ended() {
                rank.child.reap();
            }
            !rank.child.has_ended()
        });
        let ranks = self.ranks.values().map(|rank| rank.child.pid());
        let unknown = walked.iter().copied().filter(|survivor| survivor.pid == 0).collect::<Vec<_>>();
        let mut survivors = tree::survivors(walked, left.into_iter().chain(ranks).collect());
        survivors.extend(unknown);
        let (over, on): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sweeps).into_iter().partition(|sweep| now >= sweep.until);
        self.sweeps = on;
        for Sweep { op, .. } in over {
            self.tell(ProcessEvent::Swept { op, survivors: survivors.clone() });
        }
    }
}
