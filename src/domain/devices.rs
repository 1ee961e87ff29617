//! What NVIDIA's driver says of the GPUs of a node: Xids while ranks run, and the state of each GPU.
//!
//! An Xid that breaks a device is evidence for every rank of its node that ends afterwards, and the node fails its check for
//! the rest of the run. Others are told beside what a rank said.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::attribution::evidence::Sighting;
use super::attribution::rules::{self, Class, Place, Rule};
use super::health::{CheckResult, Said};
use super::time::BootTime;

/// The name of the check.
pub const CHECK: &str = "GPUs (NVML)";
/// The driver says with it that what it wants done has changed; what that is stands in the GPU's state.
const ACTION_CHANGED: u32 = 154;
/// So many rows of its memory may be remapped for errors that could not be corrected.
const MOST_REMAPPED: u64 = 512;
/// Xids that are kept, the newest.
const MOST_XIDS: usize = 64;
/// GPUs of one node.
const MOST_GPUS: usize = 64;
/// The longest name of a device, in characters.
const LONGEST: usize = 120;

/// One line of the process that asks the driver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// An Xid, just now.
    Xid {
        /// Its number.
        xid: u32,
        /// Which GPU, by its index; none: nobody knows.
        gpu: Option<u32>,
        /// Its name.
        uuid: String,
    },
    /// How a GPU is.
    Found {
        /// Which one, by its index.
        gpu: u32,
        /// Its name.
        uuid: String,
        /// What the driver says of it; what it does not say is not there.
        found: State,
    },
    /// That was all of a look.
    Looked {
        /// So many GPUs.
        looked: u32,
    },
    /// There is nothing to look at.
    Skipped {
        /// Why.
        skipped: String,
    },
}

/// How a GPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct State {
    /// It cannot be opened any more: not 0.
    pub missing: u32,
    /// Rows of its memory that were remapped for errors that could not be corrected.
    pub remapped: u64,
    /// Rows wait to be remapped: not 0. It takes a reset.
    pub pending: u32,
    /// A row could not be remapped: not 0.
    pub failed: u32,
    /// What the driver wants done: 0 nothing.
    pub action: u32,
    /// Errors of memory that could not be corrected, since the driver was loaded.
    pub ecc: u64,
}

/// One Xid.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Xid {
    number: u32,
    gpu: Option<u32>,
    uuid: String,
    at: BootTime,
}

impl Xid {
    fn rule(&self) -> Option<&'static Rule<'static>> {
        rules::for_number(Place::Xid, self.number).filter(|_| self.number != ACTION_CHANGED)
    }

    fn breaks(&self) -> bool {
        self.rule().is_some_and(|rule| rule.hints.decisive && rule.class == Class::Root)
    }

    fn sentence(&self) -> String {
        let cause = self.rule().map_or("of a kind that is not known", |rule| rule.cause);
        format!("Xid {} of {}: {cause}", self.number, device(self.gpu, &self.uuid))
    }
}

fn device(gpu: Option<u32>, uuid: &str) -> String {
    match (gpu, uuid) {
        (Some(gpu), "") => format!("GPU {gpu}"),
        (Some(gpu), uuid) => format!("GPU {gpu} ({uuid})"),
        (None, _) => "a GPU".to_owned(),
    }
}

/// What is known of a node's GPUs.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    xids: Vec<Xid>,
    states: BTreeMap<u32, (String, State)>,
    /// So many there were at the first look.
    first: Option<u32>,
    looked: Option<u32>,
    skipped: Option<String>,
    late_ms: Option<u64>,
}

impl Gpus {
    /// The driver said something. True: what is to be said of the node may have changed.
    pub fn hear(&mut self, now: BootTime, word: Word) -> bool {
        self.late_ms = None;
        match word {
            Word::Xid { xid, gpu, uuid } => {
                let uuid = printable(&uuid);
                self.xids.push(Xid { number: xid, gpu, uuid, at: now });
                let extra = self.xids.len().saturating_sub(MOST_XIDS);
                // What breaks a device is never forgotten for what does not.
                for _ in 0..extra {
                    let at = self.xids.iter().position(|xid| !xid.breaks()).unwrap_or(0);
                    self.xids.remove(at);
                }
                true
            }
            Word::Found { gpu, uuid, found } => {
                if self.states.len() < MOST_GPUS || self.states.contains_key(&gpu) {
                    self.states.insert(gpu, (printable(&uuid), found));
                }
                false
            }
            Word::Looked { looked } => {
                self.first.get_or_insert(looked);
                self.looked = Some(looked);
                true
            }
            Word::Skipped { skipped } => {
                self.skipped = Some(printable(&skipped));
                true
            }
        }
    }

    /// It has said nothing for so long, in milliseconds, and is asked no more.
    pub fn late(&mut self, ms: u64) {
        self.late_ms = Some(ms);
    }

    /// What that means for the node.
    #[must_use]
    pub fn result(&self) -> CheckResult {
        self.said().named(CHECK, 0)
    }

    /// The same, without its name.
    #[must_use]
    pub fn said(&self) -> Said {
        let broken = self.xids.iter().find(|xid| xid.breaks()).map(Xid::sentence);
        let worst = || self.states.iter().find_map(|(gpu, (uuid, state))| state.fails(*gpu, uuid));
        let warns = || self.states.iter().find_map(|(gpu, (uuid, state))| state.warns(*gpu, uuid));
        if let Some(sentence) = broken.or_else(worst) {
            return Said::fail(sentence);
        }
        match (self.late_ms, &self.skipped, self.looked) {
            (Some(ms), ..) => super::health::late(ms),
            (None, Some(why), _) => Said::skipped(why.clone()),
            (None, None, None) => Said::unknown("the driver has said nothing yet"),
            (None, None, Some(looked)) if self.first.is_some_and(|first| looked < first) => {
                let first = self.first.unwrap_or_default();
                Said::fail(format!("{looked} of {first} GPUs are left"))
            }
            (None, None, Some(looked)) => warns()
                .map_or_else(|| Said::pass(format!("{looked} GPUs, nothing said against them")), Said::warn),
        }
    }

    /// Xids since then that can be the first failure, for a rank that ended; those that break a device last, as what is
    /// said last counts.
    #[must_use]
    pub fn sightings(&self, since: BootTime) -> Vec<Sighting> {
        let mut xids: Vec<&Xid> = self.xids.iter().filter(|xid| xid.at >= since).collect();
        xids.sort_by_key(|xid| xid.breaks());
        let root = |xid: &&Xid| {
            let rule = xid.rule().filter(|rule| rule.class == Class::Root)?;
            Some(Sighting::measured(rule, xid.sentence()))
        };
        xids.iter().filter_map(root).collect()
    }
}

impl State {
    fn fails(&self, gpu: u32, uuid: &str) -> Option<String> {
        let name = device(Some(gpu), uuid);
        if self.missing != 0 {
            return Some(format!("{name} cannot be opened"));
        }
        if let Some(wants) = wanted(self.action) {
            return Some(format!("the driver wants {name} {wants}"));
        }
        if self.failed != 0 {
            return Some(format!("{name}: a row of its memory could not be remapped"));
        }
        (self.remapped >= MOST_REMAPPED)
            .then(|| format!("{name}: {} rows of its memory are remapped", self.remapped))
    }

    fn warns(&self, gpu: u32, uuid: &str) -> Option<String> {
        let name = device(Some(gpu), uuid);
        if self.pending != 0 {
            return Some(format!("{name}: rows of its memory wait to be remapped, which takes a reset"));
        }
        (self.ecc > 0).then(|| format!("{name}: {} ECC errors could not be corrected", self.ecc))
    }
}

/// What the driver wants, by its number. One that is not known yet is some action all the same.
fn wanted(action: u32) -> Option<&'static str> {
    Some(match action {
        0 => return None,
        1 => "reset",
        2 | 7 => "and its node rebooted",
        3 => "drained of peer-to-peer traffic",
        4 => "drained and reset",
        _ => "repaired",
    })
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::super::health::Finding;
    use super::*;

    fn xid(number: u32) -> Word {
        Word::Xid { xid: number, gpu: Some(1), uuid: "GPU-aa".into() }
    }

    fn found(state: State) -> [Word; 2] {
        [Word::Found { gpu: 1, uuid: "GPU-aa".into(), found: state }, Word::Looked { looked: 2 }]
    }

    fn after(words: &[Word]) -> (Finding, bool, String) {
        let mut gpus = Gpus::default();
        for word in words {
            gpus.hear(BootTime::from_millis(5), word.clone());
        }
        let said = gpus.result();
        (said.finding, said.warns, said.sentence)
    }

    #[test]
    fn what_takes_a_node_out_and_what_does_not() {
        use Finding::{Fail, Pass, Skipped, Unknown};
        let state = State::default;
        let look = || found(state()).to_vec();
        let with = |word: Word| [look(), vec![word]].concat();
        let table: [(&str, Vec<Word>, Finding, bool, &str); 16] = [
            ("nothing said", vec![], Unknown, false, "the driver has said nothing yet"),
            ("healthy", look(), Pass, false, "2 GPUs, nothing said against them"),
            (
                "no library",
                vec![Word::Skipped { skipped: "no\n library".into() }],
                Skipped,
                false,
                "no library",
            ),
            ("off the bus", with(xid(79)), Fail, false, "Xid 79 of GPU 1 (GPU-aa): the GPU fell off the bus"),
            (
                "ECC",
                with(xid(48)),
                Fail,
                false,
                "Xid 48 of GPU 1 (GPU-aa): an ECC error that cannot be corrected",
            ),
            ("a program's fault", with(xid(31)), Pass, false, "2 GPUs, nothing said against them"),
            ("a note", with(xid(63)), Pass, false, "2 GPUs, nothing said against them"),
            ("an unknown one", with(xid(9_999)), Pass, false, "2 GPUs, nothing said against them"),
            // Its words may be "None": the state tells.
            ("an action that is over", with(xid(154)), Pass, false, "2 GPUs, nothing said against them"),
            (
                "an action",
                found(State { action: 1, ..state() }).to_vec(),
                Fail,
                false,
                "the driver wants GPU 1 (GPU-aa) reset",
            ),
            (
                "a new action",
                found(State { action: 77, ..state() }).to_vec(),
                Fail,
                false,
                "the driver wants GPU 1 (GPU-aa) repaired",
            ),
            (
                "a row",
                found(State { failed: 1, ..state() }).to_vec(),
                Fail,
                false,
                "GPU 1 (GPU-aa): a row of its memory could not be remapped",
            ),
            (
                "many rows",
                found(State { remapped: 512, ..state() }).to_vec(),
                Fail,
                false,
                "GPU 1 (GPU-aa): 512 rows of its memory are remapped",
            ),
            (
                "rows that wait",
                found(State { pending: 1, ..state() }).to_vec(),
                Pass,
                true,
                "GPU 1 (GPU-aa): rows of its memory wait to be remapped, which takes a reset",
            ),
            (
                "old errors",
                found(State { ecc: 3, ..state() }).to_vec(),
                Pass,
                true,
                "GPU 1 (GPU-aa): 3 ECC errors could not be corrected",
            ),
            (
                "one is gone",
                [look(), vec![Word::Looked { looked: 1 }]].concat(),
                Fail,
                false,
                "1 of 2 GPUs are left",
            ),
        ];
        for (name, words, finding, warns, sentence) in table {
            assert_eq!(after(&words), (finding, warns, sentence.to_owned()), "{name}");
        }
        let mut gpus = Gpus::default();
        gpus.late(30_000);
        assert_eq!(gpus.result().finding, Unknown, "a driver that hangs is not known to be bad");
    }

    #[test]
    fn only_xids_since_the_ranks_began_are_told() {
        let mut gpus = Gpus::default();
        for (ms, number) in [(1, 79), (10, 31), (11, 9_999), (11, 45), (11, 63), (12, 48)] {
            gpus.hear(BootTime::from_millis(ms), xid(number));
        }
        let told = |since| gpus.sightings(BootTime::from_millis(since)).len();
        assert_eq!((told(0), told(10), told(12), told(13)), (3, 2, 1, 0));
        // However many come, the one that breaks the device is kept.
        for _ in 0..1_000 {
            gpus.hear(BootTime::from_millis(20), xid(31));
        }
        assert_eq!(gpus.xids.len(), MOST_XIDS);
        assert!(gpus.result().sentence.starts_with("Xid 79"), "{:?}", gpus.result());
    }
}
