//! What the store sees of the ranks. Every rank's client adds one to the key `init/` when it is made; later most
//! back ends put something under a key of the default group that ends with the rank's number. Those that do not (NCCL) are
//! counted where all ranks add to the key of a barrier, too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::domain::ids::{NodeName, Rank};

/// The one key that clients send without a `/` before it.
const INIT: &[u8] = b"init/";
/// In the key of the barrier at the end of `init_process_group`.
const BARRIER: &[u8] = b"store_based_barrier_key:";
/// In keys of the default group.
const GROUP: &[u8] = b"default_pg/";
/// A key in which the group stands further back is none of torch's.
const EARLY: usize = 64;
/// Gaps that are told.
const MOST_GAPS: usize = 8;

/// Who came to the store of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    world: u32,
    joined: BTreeMap<IpAddr, Came>,
    /// The first barrier of all that was seen. Others count nobody: they may be of a few ranks, again and again.
    barrier: Option<Box<[u8]>>,
    ranks: BTreeSet<u32>,
    changed: bool,
}

/// From one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    init: u32,
    barrier: u32,
}

impl Came {
    /// So many ranks, at least.
    fn ranks(self) -> u32 {
        self.init.max(self.barrier)
    }
}

/// Where ranks of the world are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: NodeName,
    /// From which it may connect.
    pub addresses: Vec<IpAddr>,
    /// The first of its ranks.
    pub first: Rank,
    /// How many.
    pub nproc: u32,
}

/// Ranks of one node that did not all reach the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The node; `None`: it is not known where they are missing.
    pub node: Option<NodeName>,
    /// The first of these ranks.
    pub first: Rank,
    /// How many.
    pub of: u32,
    /// How many of them reached the store; 0: none of them did.
    pub there: u32,
}

/// How far the ranks of an attempt came with their start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Ranks that reached the store.
    pub there: u32,
    /// All ranks.
    pub world: u32,
    /// Where some are missing; not all of them where there are many.
    pub gaps: Vec<Gap>,
}

impl Seen {
    pub(super) fn new(world: u32) -> Self {
        Self { world, ..Self::default() }
    }

    /// Somebody put something under this key.
    pub(super) fn set(&mut self, key: &[u8]) {
        if self.ranks.len() < self.world as usize
            && let Some(rank) = rank_of(key)
            && rank < self.world
            && self.ranks.insert(rank)
        {
            self.changed = true;
        }
    }

    /// Somebody at this address added to this key. Who adds nothing asks, again and again.
    pub(super) fn add(&mut self, key: &[u8], delta: i64, peer: IpAddr) {
        if delta != 1 {
            return;
        }
        if key == INIT {
            self.came(peer, |came| &mut came.init);
        } else if has(key, BARRIER) {
            self.arrived(key, peer);
        }
    }

    /// Somebody at this address arrived at a barrier of so many.
    pub(super) fn barrier(&mut self, key: &[u8], world: i64, peer: IpAddr) {
        if world == i64::from(self.world) {
            self.arrived(key, peer);
        }
    }

    fn arrived(&mut self, key: &[u8], peer: IpAddr) {
        if **self.barrier.get_or_insert_with(|| key.into()) == *key {
            self.came(peer, |came| &mut came.barrier);
        }
    }

    fn came(&mut self, peer: IpAddr, count: impl Fn(&mut Came) -> &mut u32) {
        let came = self.joined.entry(peer.to_canonical()).or_default();
        let before = came.ranks();
        let count = count(came);
        *count = count.saturating_add(1);
        self.changed |= came.ranks() > before && before < self.world;
    }

    /// Is anything new since the last call?
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Who is there of the ranks at these places, by rank.
    #[must_use]
    pub fn reach(&self, places: &[Place]) -> Reach {
        let joined: u32 = self.joined.values().fold(0, |sum, came| sum.saturating_add(came.ranks()));
        let known = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let there = joined.max(known).min(self.world);
        let mut reach = Reach { there, world: self.world, gaps: Vec::new() };
        if there >= self.world {
            return reach;
        }
        // Where two nodes share an address nobody knows which of them it was.
        let mut owners: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for address in places.iter().flat_map(|place| &place.addresses) {
            *owners.entry(address.to_canonical()).or_default() += 1;
        }
        let shared = |at: &&IpAddr| owners.get(at).is_none_or(|n| *n > 1);
        if places.len() > 1 && self.joined.keys().any(|at| shared(&at)) {
            reach.gaps = self.unseen(Rank(0), self.world, there, None);
        } else {
            for place in places {
                let here = if places.len() == 1 {
                    joined
                } else {
                    let own = place.addresses.iter().map(IpAddr::to_canonical).collect::<BTreeSet<_>>();
                    own.iter()
                        .filter_map(|at| self.joined.get(at))
                        .fold(0_u32, |sum, came| sum.saturating_add(came.ranks()))
                };
                let here = here.max(self.known_in(place.first, place.nproc)).min(place.nproc);
                if here < place.nproc {
                    reach.gaps.extend(self.unseen(place.first, place.nproc, here, Some(&place.node)));
                }
            }
        }
        reach.gaps.truncate(MOST_GAPS);
        reach
    }

    fn known_in(&self, first: Rank, of: u32) -> u32 {
        let end = first.0.saturating_add(of);
        u32::try_from(self.ranks.range(first.0..end).count()).unwrap_or(u32::MAX)
    }

    /// Of ranks of which so many are there: exactly which are missing, where all of those gave their number.
    fn unseen(&self, first: Rank, of: u32, there: u32, node: Option<&NodeName>) -> Vec<Gap> {
        if there > 0 && self.known_in(first, of) < there {
            return vec![Gap { node: node.cloned(), first, of, there }];
        }
        let mut gaps: Vec<Gap> = Vec::new();
        for rank in (first.0..first.0.saturating_add(of)).filter(|rank| !self.ranks.contains(rank)) {
            if let Some(gap) = gaps.last_mut().filter(|gap| gap.first.0 + gap.of == rank) {
                gap.of += 1;
            } else if gaps.len() < MOST_GAPS {
                gaps.push(Gap { node: node.cloned(), first: Rank(rank), of: 1, there: 0 });
            } else {
                break;
            }
        }
        gaps
    }
}

impl Gap {
    /// `rank 5 (n2)`, `ranks 4-7 (n2)`, `1 of ranks 4-7 (n2)`: who is missing.
    #[must_use]
    pub fn who(&self) -> String {
        let ranks = match self.of {
            1 => format!("rank {}", self.first),
            of => format!("ranks {}-{}", self.first, self.first.0.saturating_add(of.saturating_sub(1))),
        };
        let node = self.node.as_ref().map(|node| format!(" ({node})")).unwrap_or_default();
        match self.there {
            0 => format!("{ranks}{node}"),
            there => format!("{} of {ranks}{node}", self.of.saturating_sub(there)),
        }
    }
}

impl Reach {
    /// Some came and others did not. Where nobody came the program has no use for the store, and nothing is known.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.there > 0 && self.there < self.world
    }

    /// `rank 5 (n2) never reached the store`; `None` where nobody is known to be missing.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let who = self.missing()?;
        Some(format!("{who} never reached the store ({} of {} ranks did)", self.there, self.world))
    }

    /// `rank 5 (n2), ranks 8-15 (n3)`.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        const NAMED: usize = 3;
        if !self.is_partial() {
            return None;
        }
        let mut who: Vec<String> = self.gaps.iter().take(NAMED).map(Gap::who).collect();
        if self.gaps.len() > NAMED || who.is_empty() {
            who.push("others".to_owned());
        }
        Some(who.join(", "))
    }
}

/// Early in the key.
fn has(key: &[u8], part: &[u8]) -> bool {
    let early = key.get(..EARLY + part.len()).unwrap_or(key);
    early.windows(part.len()).any(|window| window == part)
}

/// The rank that a key of the default group ends with: `/default_pg/0//cpu//0/5`. The number behind `//` counts something
/// else: rank 0 of NCCL puts the id of its communicators under `/default_pg/0//cuda//1`.
fn rank_of(key: &[u8]) -> Option<u32> {
    if !has(key, GROUP) {
        return None;
    }
    let mut parts = key.rsplit(|byte| *byte == b'/');
    let last = parts.next()?;
    if last.len() > 9 || last.is_empty() || parts.next()?.is_empty() {
        return None;
    }
    last.iter()
        .try_fold(0_u32, |rank, digit| digit.is_ascii_digit().then(|| rank * 10 + u32::from(digit - b'0')))
}
