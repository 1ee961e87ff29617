//! What is measured around the ends of ranks: who was killed for want of memory, and whether shared memory is full.

use crate::domain::attribution::evidence::{Facts, Oom};
use crate::domain::exit::ExitKind;
use crate::domain::time::BootTime;
use crate::sys::cgroup::{self, MemoryGroup};
use crate::sys::clock;

const SIGBUS: u8 = 7;
const SIGKILL: u8 = 9;

/// The counters, as they were when the ranks of an attempt were started.
#[derive(Debug, Default)]
pub(super) struct Measured {
    group: Option<MemoryGroup>,
    killed: Option<u64>,
    since: BootTime,
}

impl Measured {
    /// Ranks are about to be started.
    pub(super) fn begin(&mut self) {
        // The group that we are in is the same for as long as we live, but for who moves us.
        self.group = MemoryGroup::own();
        self.killed = self.group.as_ref().and_then(MemoryGroup::kills);
        self.since = clock::boot();
    }

    /// When the ranks of this attempt were started.
    pub(super) fn since(&self) -> BootTime {
        self.since
    }

    /// What is to be known of an end that was seen just now.
    pub(super) fn facts(&self, kind: &ExitKind) -> Facts {
        match kind {
            ExitKind::Signal { no: SIGKILL, .. } => Facts { oom: self.oom(), ..Facts::default() },
            ExitKind::Signal { no: SIGBUS, .. } => {
                Facts { shm_full: cgroup::shared_memory_is_full(), ..Facts::default() }
            }
            _ => Facts::default(),
        }
    }

    fn oom(&self) -> Option<Oom> {
        let (group, before) = (self.group.as_ref()?, self.killed?);
        (group.kills()? > before).then(|| Oom { limit: group.limit() })
    }
}
