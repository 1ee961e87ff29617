//! The trainer's commit log, and what must be true of it whatever happened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// One line.
#[derive(Clone, Debug)]
pub struct Event {
    /// `start`, `resume`, `step`, `ckpt`, `fault`, `grandchild`, `end`.
    pub ev: String,
    /// The attempt.
    pub attempt: u64,
    /// The rank.
    pub rank: u64,
    /// The step, where there is one.
    pub step: u64,
    /// CLOCK_MONOTONIC, ns.
    pub t: u64,
    /// All of it.
    pub all: Value,
}

/// The log so far.
#[derive(Debug, Default)]
pub struct CommitLog {
    /// In the order in which they were written.
    pub events: Vec<Event>,
}

impl CommitLog {
    /// Reads the log; a file that is not there yet is empty.
    pub fn read(path: &Path) -> Self {
        Self::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let event = |line: &str| {
            let all: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("commit log: {error}: {line:?}"));
            let number = |name: &str| all[name].as_u64().unwrap_or(0);
            let ev = all["ev"].as_str().unwrap_or_default().to_owned();
            Event {
                ev,
                attempt: number("attempt"),
                rank: number("rank"),
                step: number("step"),
                t: number("t"),
                all: all.clone(),
            }
        };
        Self { events: text.lines().map(event).collect() }
    }

    /// As [`Self::read`], while the ranks write on: a line that is not complete yet is left out.
    pub fn read_so_far(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        Self::parse(text.rsplit_once('\n').map_or("", |(complete, _)| complete))
    }

    /// The attempt of the newest event, without a look at the others.
    pub fn newest_attempt_in(path: &Path) -> u64 {
        let text = fs::read_to_string(path).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let line = complete.rsplit('\n').next().unwrap_or_default();
        serde_json::from_str::<Value>(line).ok().and_then(|event| event["attempt"].as_u64()).unwrap_or(0)
    }

    /// The events of one kind.
    pub fn of<'a>(&'a self, ev: &'a str) -> impl Iterator<Item = &'a Event> + 'a {
        self.events.iter().filter(move |e| e.ev == ev)
    }

    /// The process of a rank in an attempt.
    pub fn pid(&self, attempt: u64, rank: u64) -> Option<i32> {
        let start = self.of("start").find(|e| e.attempt == attempt && e.rank == rank)?;
        start.all["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }

    /// The newest attempt that has started a rank.
    pub fn newest_attempt(&self) -> u64 {
        self.of("start").map(|e| e.attempt).max().unwrap_or(0)
    }

    /// Steps done by a rank in an attempt: the last one.
    pub fn reached(&self, attempt: u64, rank: u64) -> u64 {
        self.of("step").filter(|e| e.attempt == attempt && e.rank == rank).map(|e| e.step).max().unwrap_or(0)
    }

    /// When the fault of this attempt happened as far as the trainer knows.
    pub fn fault_at(&self, attempt: u64) -> Option<u64> {
        self.of("fault").filter(|e| e.attempt == attempt).map(|e| e.t).max()
    }

    /// The first process of an attempt, and its first step: both as instants.
    pub fn first(&self, ev: &str, attempt: u64) -> Option<u64> {
        self.events.iter().filter(|e| e.ev == ev && e.attempt == attempt).map(|e| e.t).min()
    }

    /// Every step of every rank exactly once, or done again, alike, from the last durable checkpoint on; never skipped;
    /// and no two attempts alive at one time.
    pub fn check(&self, world: u64, steps: u64, ckpt_every: u64) {
        let mut durable = 0;
        let mut states: BTreeMap<(u64, u64), String> = BTreeMap::new();
        let mut attempts: Vec<u64> = self.of("start").map(|e| e.attempt).collect();
        attempts.sort_unstable();
        attempts.dedup();
        let mut quiet_since = 0;
        for attempt in attempts {
            let mine: Vec<&Event> = self.events.iter().filter(|e| e.attempt == attempt).collect();
            let began = mine.iter().map(|e| e.t).min().unwrap_or(0);
            assert!(
                began > quiet_since,
                "attempt {attempt} started while a rank of an earlier one was at work"
            );
            quiet_since = mine.iter().map(|e| e.t).max().unwrap_or(0);
            let mut saved = durable;
            for rank in 0..world {
                let mut at = None;
                for event in mine.iter().filter(|e| e.rank == rank) {
                    match (event.ev.as_str(), at) {
                        ("start", _) => at = None,
                        ("resume", _) => {
                            // A rank may be killed behind the rename of a manifest and before it tells the log.
                            let untold = ckpt_every > 0 && event.step == durable + ckpt_every;
                            assert!(
                                event.step == durable || untold,
                                "attempt {attempt} rank {rank} resumes behind step {} and not behind {durable}",
                                event.step
                            );
                            at = Some(event.step);
                        }
                        ("step", Some(before)) => {
                            assert_eq!(
                                event.step,
                                before + 1,
                                "attempt {attempt} rank {rank} skips or repeats a step"
                            );
                            let state = event.all["state"].as_str().unwrap_or_default().to_owned();
                            let known = states.entry((rank, event.step)).or_insert_with(|| state.clone());
                            assert_eq!(
                                *known, state,
                                "rank {rank} did step {} again with another result",
                                event.step
                            );
                            at = Some(event.step);
                        }
                        ("ckpt", _) => saved = saved.max(event.step),
                        ("step", None) => panic!("attempt {attempt} rank {rank} steps before it resumed"),
                        _ => {}
                    }
                }
            }
            let resumed = mine.iter().filter(|e| e.ev == "resume").map(|e| e.step).max().unwrap_or(0);
            durable = saved.max(resumed);
        }
        for rank in 0..world {
            for step in 1..=steps {
                assert!(states.contains_key(&(rank, step)), "rank {rank} never did step {step}");
            }
        }
    }
}
