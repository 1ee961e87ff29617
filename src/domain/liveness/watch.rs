//! The agent's side: looks at the pages of its ranks ten times a second and says which ones are silent for too long.
//!
//! Time is the agent's own: what passed while it did not run, with the whole machine perhaps, is nobody's silence.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::board::{Feeder, Phase, Sample, Section};
use super::super::ids::LocalRank;
use super::super::time::BootTime;
use super::limits::{HangSpec, Learned, Limit, MAX_SECTIONS, Pause, Place, Sketch, explicit, limit};

/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(100);
/// A longer time between two looks was a pause of our own.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two words about where ranks are, in milliseconds, in a small world.
const PROGRESS_MS: u64 = 1_000;
/// So many nodes speak in that time; of more, each speaks more rarely.
const SPEAKERS: usize = 256;
/// So many steps of an attempt are not learned from.
const WARM_UP: u64 = 3;

/// How often each of so many nodes says where its ranks are: however many they are, the coordinator hears no more of them.
#[must_use]
pub fn progress_every(nodes: usize) -> Duration {
    let times = u64::try_from(nodes.div_ceil(SPEAKERS).max(1)).unwrap_or(1);
    Duration::from_millis(PROGRESS_MS.saturating_mul(times))
}

/// A rank is silent beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Which one.
    pub local_rank: LocalRank,
    /// What it did last.
    pub place: Place,
    /// The step that is under way.
    pub step: Option<u64>,
    /// For so long, in milliseconds. Of a section: since it was entered.
    pub silent_ms: u64,
    /// The limit that it is beyond, in milliseconds.
    pub limit_ms: u64,
    /// Somebody gave that limit.
    pub explicit: bool,
    /// It ends the world: an explicit limit in any case, another one if nothing speaks against it.
    pub last: bool,
    /// Evidence against a rank is enough to end the world.
    pub kills: bool,
    /// When it ends the world at the latest, in milliseconds of silence; none: never.
    pub end_ms: Option<u64>,
    /// How long a step usually takes, in milliseconds.
    pub usual_ms: Option<u64>,
}

/// A rank that was said to be silent goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Back {
    /// Which one.
    pub local_rank: LocalRank,
    /// It was silent for so long, in milliseconds.
    pub silent_ms: u64,
    /// At this step.
    pub step: Option<u64>,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgress {
    /// Which one.
    pub local_rank: LocalRank,
    /// The step that is under way.
    pub step: Option<u64>,
    /// What it does.
    pub phase: Phase,
    /// Since its page changed, in milliseconds.
    pub age_ms: u64,
    /// Who feeds its page.
    pub feeder: Feeder,
}

/// What one look brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Ranks that are silent beyond a limit, each limit once.
    pub silent: Vec<Silence>,
    /// Ranks of those that go on.
    pub back: Vec<Back>,
    /// Ranks whose pages changed, at most once in [`progress_every`].
    pub progress: Vec<RankProgress>,
}

/// What was seen of one rank.
#[derive(Clone, Debug)]
struct Seen {
    sample: Option<Sample>,
    /// When its page changed last.
    since: u64,
    /// When its step began.
    step_since: u64,
    /// Steps that ended in this attempt.
    steps: u64,
    /// This step had something in it that is no part of a step.
    tainted: bool,
    /// When its phase began.
    phase_since: u64,
    /// Its open sections, by depth and entry.
    entered: BTreeMap<(usize, u64), Entered>,
    told: Told,
    /// Its page changed and that was not told.
    news: bool,
}

/// An open section.
#[derive(Clone, Debug)]
struct Entered {
    since: u64,
    /// Its name, where it has no time of its own.
    untimed: Option<String>,
}

/// What was said of a silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    looked: bool,
    /// When the last limit was told.
    last: Option<u64>,
    /// It was about this section, in which there may be beats.
    section: Option<(usize, u64)>,
}

/// A limit, and since when its time runs.
struct Due {
    place: Place,
    since: u64,
    limit: Limit,
    section: Option<(usize, u64)>,
}

/// The ranks of one attempt on this node. All times are milliseconds in which the agent ran.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ran: u64,
    last: Option<BootTime>,
    ranks: BTreeMap<LocalRank, Seen>,
    step: Sketch,
    eval: Sketch,
    checkpoint: Sketch,
    sections: BTreeMap<String, Sketch>,
    pauses: Learned,
    /// When it is told next where ranks are, and how long after that again.
    tell_at: u64,
    every: u64,
}

impl Watch {
    /// Of one node among so many, by its place among them: they do not all speak at once.
    #[must_use]
    pub fn of_node(place: usize, nodes: usize) -> Self {
        let every = u64::try_from(progress_every(nodes).as_millis()).unwrap_or(PROGRESS_MS);
        let (place, nodes) = (u64::try_from(place).unwrap_or(0), u64::try_from(nodes.max(1)).unwrap_or(1));
        let first = PROGRESS_MS.saturating_add(every.saturating_mul(place.min(nodes)) / nodes);
        // Few are no crowd.
        let tell_at = if every > PROGRESS_MS { first } else { PROGRESS_MS };
        Self { tell_at, every, ..Self::default() }
    }

    /// One look at the pages of all ranks that live; without a page: nobody has claimed it.
    pub fn look(
        &mut self,
        now: BootTime,
        spec: &HangSpec,
        known: &Learned,
        samples: Vec<(LocalRank, Option<Sample>)>,
    ) -> Looked {
        self.count_time(now);
        let mut looked = Looked::default();
        let live: Vec<LocalRank> = samples.iter().map(|(local_rank, _)| *local_rank).collect();
        self.ranks.retain(|local_rank, _| live.contains(local_rank));
        for (local_rank, sample) in samples {
            if let Some(back) = self.take(local_rank, sample) {
                looked.back.push(back);
            }
        }
        let learned = self.learned(known);
        let ran = self.ran;
        for (local_rank, seen) in &mut self.ranks {
            looked.silent.extend(seen.judge(*local_rank, ran, spec, &learned));
        }
        if ran >= self.tell_at {
            looked.progress = self.news();
        }
        looked
    }

    /// A rank has ended, and this stands in its page: where it was.
    pub fn ended(&mut self, local_rank: LocalRank, sample: Option<Sample>) -> Vec<RankProgress> {
        let sample = sample.or_else(|| self.ranks.get(&local_rank).and_then(|seen| seen.sample.clone()));
        self.take(local_rank, sample);
        let ran = self.ran;
        self.ranks.get_mut(&local_rank).and_then(|seen| seen.tell(local_rank, ran)).into_iter().collect()
    }

    /// How long a rank is silent, and what its page says.
    #[must_use]
    pub fn of(&self, local_rank: LocalRank) -> (u64, Option<Sample>) {
        let seen = self.ranks.get(&local_rank);
        seen.map_or((0, None), |seen| (self.ran.saturating_sub(seen.since), seen.sample.clone()))
    }

    /// What is known of the times of this program, with what was learned before.
    #[must_use]
    pub fn learned(&self, known: &Learned) -> Learned {
        let (step, eval, checkpoint) = (self.step.usual(), self.eval.usual(), self.checkpoint.usual());
        let sections = self.sections.iter();
        let sections = sections.filter_map(|(name, sketch)| Some((name.clone(), sketch.usual()?))).collect();
        let mut learned = Learned { step, eval, checkpoint, pauses: self.pauses.pauses.clone(), sections };
        learned.merge(known);
        learned
    }

    /// Whoever was told is another one, or has forgotten: what is silent is said again.
    pub fn tell_again(&mut self) {
        for seen in self.ranks.values_mut() {
            (seen.told, seen.news) = (Told::default(), true);
        }
    }

    fn count_time(&mut self, now: BootTime) {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        let counts = if passed > PAUSE { LOOK } else { passed };
        self.ran = self.ran.saturating_add(u64::try_from(counts.as_millis()).unwrap_or(0));
    }

    fn take(&mut self, local_rank: LocalRank, sample: Option<Sample>) -> Option<Back> {
        let ran = self.ran;
        let seen = self.ranks.entry(local_rank).or_insert_with(|| Seen::new(ran));
        let same = match (&seen.sample, &sample) {
            (Some(before), Some(now)) => {
                before.beat == now.beat && before.step == now.step && before.phase == now.phase
            }
            (before, now) => before.is_some() == now.is_some(),
        };
        for (name, ms) in seen.enter(ran, sample.as_ref()) {
            if self.sections.len() < MAX_SECTIONS || self.sections.contains_key(&name) {
                self.sections.entry(name).or_default().add(ms);
            }
        }
        if same {
            // What it asked for may have changed.
            seen.sample = sample;
            return None;
        }
        let silent_ms = ran.saturating_sub(seen.since);
        let step = seen.sample.as_ref().and_then(|sample| sample.step);
        let in_section = seen.told.section.is_some_and(|key| seen.entered.contains_key(&key));
        let was_told = !in_section && std::mem::take(&mut seen.told).looked;
        let phase = seen.sample.as_ref().map(|sample| sample.phase);
        let phase_ms = ran.saturating_sub(seen.phase_since);
        let durations = seen.change(ran, sample, was_told);
        if let (Some((step_ms, count)), false) = (durations, was_told) {
            for _ in 0..count.min(64) {
                self.step.add(step_ms);
            }
        }
        let now = self.ranks.get(&local_rank).and_then(|seen| seen.sample.as_ref()).map(|s| s.phase);
        match phase.filter(|before| Some(*before) != now) {
            Some(Phase::Eval) if !was_told => self.eval.add(phase_ms),
            Some(Phase::Checkpoint) if !was_told => self.checkpoint.add(phase_ms),
            _ => {}
        }
        if let (true, Some(step)) = (was_told, step) {
            self.pauses.pause(Pause { step, ms: silent_ms, over: true });
        }
        was_told.then_some(Back { local_rank, silent_ms, step })
    }

    fn news(&mut self) -> Vec<RankProgress> {
        let ran = self.ran;
        let tell = |(local_rank, seen): (&LocalRank, &mut Seen)| seen.tell(*local_rank, ran);
        let progress: Vec<RankProgress> = self.ranks.iter_mut().filter_map(tell).collect();
        if !progress.is_empty() {
            self.tell_at = ran.saturating_add(self.every.max(PROGRESS_MS));
        }
        progress
    }
}

impl Seen {
    fn new(ran: u64) -> Self {
        Self {
            sample: None,
            since: ran,
            step_since: ran,
            steps: 0,
            tainted: false,
            phase_since: ran,
            entered: BTreeMap::new(),
            told: Told::default(),
            news: false,
        }
    }

    /// Where it is, if that was not told.
    fn tell(&mut self, local_rank: LocalRank, ran: u64) -> Option<RankProgress> {
        let sample = self.sample.as_ref().filter(|_| self.news)?;
        self.news = false;
        let age_ms = ran.saturating_sub(self.since);
        let (step, phase, feeder) = (sample.step, sample.phase, sample.feeder);
        Some(RankProgress { local_rank, step, phase, age_ms, feeder })
    }

    /// Notes sections that were entered since the last look. Names and times of those that were left and have no time of
    /// their own.
    fn enter(&mut self, ran: u64, sample: Option<&Sample>) -> Vec<(String, u64)> {
        let open = sample.map_or(&[][..], |sample| &sample.sections);
        if open.is_empty() && self.entered.is_empty() {
            return Vec::new();
        }
        let key = |(depth, section): (usize, &Section)| (depth, section.entry);
        let keys: Vec<(usize, u64)> = open.iter().enumerate().map(key).collect();
        let mut left = Vec::new();
        self.entered.retain(|key, entered| {
            let stays = keys.contains(key);
            if let (false, Some(name)) = (stays, entered.untimed.take_if(|_| !stays)) {
                left.push((name, ran.saturating_sub(entered.since)));
            }
            stays
        });
        for (key, section) in keys.into_iter().zip(open) {
            let untimed = section.timeout_ms.is_none().then(|| section.name.clone());
            self.entered.entry(key).or_insert(Entered { since: ran, untimed });
        }
        self.tainted |= open.iter().any(|section| section.timeout_ms.is_some());
        left
    }

    /// Its page changed. How long each of how many steps took that ended by it, where that is worth learning.
    fn change(&mut self, ran: u64, sample: Option<Sample>, was_told: bool) -> Option<(u64, u64)> {
        let before = self.sample.take();
        let (was, is) = (before.as_ref().and_then(|s| s.step), sample.as_ref().and_then(|s| s.step));
        self.tainted |= was_told;
        let mut ended = None;
        if was != is {
            if let (Some(was), Some(is)) = (was, is)
                && is > was
            {
                let count = is - was;
                let took = ran.saturating_sub(self.step_since) / count;
                self.steps = self.steps.saturating_add(count);
                ended = (self.steps > WARM_UP && !self.tainted).then_some((took, count));
            }
            (self.step_since, self.tainted) = (ran, false);
        }
        if let Some(sample) = &sample {
            self.tainted |= matches!(sample.phase, Phase::Eval | Phase::Checkpoint) || sample.extend_ms > 0;
            if before.as_ref().is_none_or(|before| before.phase != sample.phase) {
                self.phase_since = ran;
            }
        }
        (self.sample, self.since, self.news) = (sample, ran, true);
        ended
    }

    /// The worst limit that it is beyond, if that was not said.
    fn judge(
        &mut self,
        local_rank: LocalRank,
        ran: u64,
        spec: &HangSpec,
        learned: &Learned,
    ) -> Option<Silence> {
        let step = self.sample.as_ref().and_then(|sample| sample.step);
        let extend = self.sample.as_ref().map_or(0, |sample| sample.extend_ms);
        let mut worst: Option<(bool, Due, u64)> = None;
        for due in self.limits(spec, learned) {
            let Due { since, limit, .. } = due;
            let silent = ran.saturating_sub(since);
            let beyond = |ms: u64| silent >= ms.saturating_add(extend);
            let last = limit.end_ms.is_some_and(beyond);
            if beyond(limit.look_ms) && worst.as_ref().is_none_or(|(was_last, ..)| last && !was_last) {
                worst = Some((last, due, silent));
            }
        }
        let (last, Due { place, limit, section, .. }, silent_ms) = worst?;
        // What was not enough to end the world is looked at again.
        let due = |at: u64| ran.saturating_sub(at) >= limit.look_ms;
        let news = if last { self.told.last.is_none_or(due) } else { !self.told.looked };
        if !news {
            return None;
        }
        self.told = Told { looked: true, last: last.then_some(ran).or(self.told.last), section };
        let limit_ms = limit.end_ms.filter(|_| last).unwrap_or(limit.look_ms);
        let usual_ms = learned.step.map(|usual| usual.median_ms);
        let Limit { explicit, kills, end_ms, .. } = limit;
        Some(Silence {
            local_rank,
            place,
            step,
            silent_ms,
            limit_ms,
            explicit,
            last,
            kills,
            end_ms,
            usual_ms,
        })
    }

    /// The limits that count now, and since when. An open section with a time of its own takes the place of the limit of
    /// its phase; one within another counts beside it.
    fn limits(&self, spec: &HangSpec, learned: &Learned) -> Vec<Due> {
        let due = |place, limit| Due { place, since: self.since, limit, section: None };
        let Some(sample) = &self.sample else {
            return vec![due(Place::Start, limit(spec, learned, &Place::Start, None, None))];
        };
        let mut limits = Vec::new();
        for (depth, section) in sample.sections.iter().enumerate() {
            let timeout = spec.phases.get(&section.name).copied().or(section.timeout_ms);
            let key = (depth, section.entry);
            let (Some(ms), Some(entered)) = (timeout, self.entered.get(&key)) else { continue };
            let limit = Limit { look_ms: ms, end_ms: Some(ms), explicit: true, kills: true };
            let place = Place::Section(section.name.clone());
            limits.push(Due { place, since: entered.since, limit, section: Some(key) });
        }
        if limits.is_empty() {
            let place = self.place(spec, sample);
            let limit = limit(spec, learned, &place, sample.step, sample.collective_timeout_ms);
            limits.push(due(place, limit));
        }
        limits
    }

    /// What it is doing, as its silence is judged. A section without a time has one of its own that is learned, unless somebody
    /// gave one to its phase.
    fn place(&self, spec: &HangSpec, sample: &Sample) -> Place {
        let phase = match sample.phase {
            Phase::Init | Phase::Eval | Phase::Checkpoint => Place::Phase(sample.phase),
            _ if self.steps == 0 => Place::FirstStep,
            phase => Place::Phase(phase),
        };
        let begun = !matches!(phase, Place::FirstStep | Place::Phase(Phase::Init));
        match sample.sections.last() {
            Some(section) if begun && explicit(spec, &phase).is_none() => {
                Place::Section(section.name.clone())
            }
            _ => phase,
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
