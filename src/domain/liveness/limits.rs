//! How long may a rank be silent? Limits that somebody gave, and limits that were learned from what is usual.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::board::{Phase, Sample, Section};

/// What is done about a program that does not advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HangAction {
    /// Its ranks are started again.
    #[default]
    Restart,
    /// It is said, with stacks, and nothing is done.
    Warn,
    /// The run ends.
    Stop,
    /// Nobody looks.
    Off,
}

impl HangAction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Restart, Self::Warn, Self::Stop, Self::Off];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Warn => "warn",
            Self::Stop => "stop",
            Self::Off => "off",
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangSpec {
    /// What is done.
    pub action: HangAction,
    /// The explicit limit of every phase that has none of its own, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Explicit limits of phases and sections by name, in milliseconds.
    pub phases: BTreeMap<String, u64>,
    /// No learned limit is shorter, in milliseconds.
    pub floor_ms: u64,
}

impl Default for HangSpec {
    fn default() -> Self {
        Self { action: HangAction::Restart, timeout_ms: None, phases: BTreeMap::new(), floor_ms: 60_000 }
    }
}

/// What a rank is doing, as limits are given for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Nobody has claimed its page yet.
    Start,
    /// It has said what it does.
    Phase(Phase),
    /// The first step of an attempt: it compiles, connects and fills caches.
    FirstStep,
    /// A section that was given a time.
    Section(String),
}

impl Place {
    /// Its name in `--phase-timeout`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Start | Self::Phase(Phase::Init) => "init",
            Self::Phase(phase) => phase_name(*phase),
            Self::FirstStep => "first-step",
            Self::Section(name) => name,
        }
    }
}

/// The word for a phase.
#[must_use]
pub const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "init",
        Phase::Data => "data",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
        Phase::Checkpoint => "checkpoint",
        Phase::Eval => "eval",
        Phase::Step => "step",
    }
}

/// A silence that was none of a hang, or that ended an attempt, at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pause {
    /// The step.
    pub step: u64,
    /// How long it was, in milliseconds.
    pub ms: u64,
    /// It ended by itself.
    pub over: bool,
}

/// How long something usually takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usual {
    /// The middle, in milliseconds.
    pub median_ms: u64,
    /// So long or shorter in 99 of 100 cases, in milliseconds.
    pub p99_ms: u64,
    /// From so many.
    pub count: u64,
}

/// What is known of the times of a program; it outlives attempts and requeues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Steps.
    pub step: Option<Usual>,
    /// A whole evaluation.
    pub eval: Option<Usual>,
    /// A whole checkpoint.
    pub checkpoint: Option<Usual>,
    /// Silences beyond the limits, at most [`MAX_PAUSES`], by step.
    pub pauses: Vec<Pause>,
    /// Whole sections to which the program gives no time, at most [`MAX_SECTIONS`], by name.
    #[serde(default)]
    pub sections: BTreeMap<String, Usual>,
}

/// The longest [`Learned::pauses`].
pub const MAX_PAUSES: usize = 16;
/// Sections by other names are not learned: one with a number in its name is another one each time.
pub const MAX_SECTIONS: usize = 16;
/// A limit is learned from so many steps at least.
const STEPS: u64 = 20;
/// A silence opens an investigation at so many times what 99 of 100 steps take.
const LOOK: u64 = 10;
/// At so many times it ends the world if nothing speaks against it.
const END: u64 = 20;
/// The ceiling is never shorter than so many times the shortest limit.
const CEILING: u64 = 5;
/// However early the program ends by itself, nothing is looked into before so many times what 99 of 100 steps take.
const USUAL: u64 = 3;
/// A verdict takes so long, in milliseconds.
const VERDICT_MS: u64 = 6_000;
/// Of a pause that is known at this step so many times are given.
const AGAIN: u64 = 3;

impl Learned {
    /// Takes in what another node, or an attempt before, has learned. The longer time counts.
    pub fn merge(&mut self, other: &Self) {
        let longer = |mine: &mut Option<Usual>, theirs: &Option<Usual>| {
            if theirs.is_some_and(|t| mine.is_none_or(|m| t.p99_ms > m.p99_ms)) {
                *mine = *theirs;
            }
        };
        longer(&mut self.step, &other.step);
        longer(&mut self.eval, &other.eval);
        longer(&mut self.checkpoint, &other.checkpoint);
        for pause in &other.pauses {
            self.pause(*pause);
        }
        for (name, theirs) in &other.sections {
            let room = self.sections.len() < MAX_SECTIONS;
            match self.sections.get_mut(name) {
                Some(mine) if theirs.p99_ms > mine.p99_ms => *mine = *theirs,
                None if room => drop(self.sections.insert(name.clone(), *theirs)),
                Some(_) | None => {}
            }
        }
    }

    /// Remembers a silence beyond the limits. Of one step the longest counts.
    pub fn pause(&mut self, pause: Pause) {
        match self.pauses.iter_mut().find(|known| known.step == pause.step) {
            Some(known) => {
                known.ms = known.ms.max(pause.ms);
                known.over |= pause.over;
            }
            None => self.pauses.push(pause),
        }
        if self.pauses.len() > MAX_PAUSES {
            // The shortest tells least.
            let least = (0..self.pauses.len()).min_by_key(|i| self.pauses[*i].ms).unwrap_or(0);
            self.pauses.remove(least);
        }
        self.pauses.sort_unstable();
    }

    /// It says something else than `before`, by enough to write it down again.
    #[must_use]
    pub fn differs(&self, before: &Self) -> bool {
        let far = |now: Option<&Usual>, was: Option<&Usual>| match (now, was) {
            (Some(now), Some(was)) => now.p99_ms > was.p99_ms.saturating_mul(3) / 2,
            (Some(_), None) => true,
            (None, _) => false,
        };
        far(self.step.as_ref(), before.step.as_ref())
            || far(self.eval.as_ref(), before.eval.as_ref())
            || far(self.checkpoint.as_ref(), before.checkpoint.as_ref())
            || self.sections.iter().any(|(name, now)| far(Some(now), before.sections.get(name)))
            || self.pauses.len() > before.pauses.len()
    }
}

/// How long a silence may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// After so many milliseconds it is looked into.
    pub look_ms: u64,
    /// After so many it ends the world: an explicit limit in any case, a ceiling if nothing speaks against it. None:
    /// never.
    pub end_ms: Option<u64>,
    /// Somebody gave it.
    pub explicit: bool,
    /// Evidence against a rank is enough to end the world before.
    pub kills: bool,
}

/// The limit for a rank at this place and step.
#[must_use]
pub fn limit(
    spec: &HangSpec,
    learned: &Learned,
    place: &Place,
    step: Option<u64>,
    collective_ms: Option<u64>,
) -> Limit {
    if let Some(ms) = explicit(spec, place) {
        // The program would end by itself, with a word from everybody but the culprit: who it is, is told before.
        let look_ms = collective_ms.map_or(ms, |ends| ms.min(before(ends)));
        return Limit { look_ms, end_ms: Some(ms), explicit: true, kills: true };
    }
    let ceiling = spec.floor_ms.saturating_mul(CEILING);
    let long = ceiling.saturating_mul(2);
    let usual = match place {
        // Nothing is killed before the first step unless asked.
        Place::Start | Place::FirstStep | Place::Phase(Phase::Init) => {
            return Limit { look_ms: long, end_ms: None, explicit: false, kills: false };
        }
        Place::Phase(Phase::Eval) => learned.eval,
        Place::Phase(Phase::Checkpoint) => learned.checkpoint,
        Place::Section(name) => learned.sections.get(name).copied(),
        Place::Phase(_) => learned.step.filter(|usual| usual.count >= STEPS),
    };
    let (mut look, mut end) = usual.map_or((ceiling, long), |usual| {
        (usual.p99_ms.saturating_mul(LOOK).max(spec.floor_ms), usual.p99_ms.saturating_mul(END).max(ceiling))
    });
    if usual.is_some() {
        // A silence from which the program came back was no hang: one must be clearly longer.
        let survived = learned.pauses.iter().filter(|pause| pause.over).map(|pause| pause.ms).max();
        end = end.max(survived.unwrap_or(0).saturating_mul(2));
        if let Some(here) = learned.pauses.iter().find(|pause| Some(pause.step) == step) {
            look = look.max(here.ms.saturating_mul(AGAIN) / 2);
            end = end.max(here.ms.saturating_mul(AGAIN));
        }
    }
    if let Some(ms) = collective_ms {
        // But never so early that what is usual is looked into.
        let usual = usual.map_or(0, |usual| usual.p99_ms.saturating_mul(USUAL));
        look = look.min((before(ms) / 4).saturating_mul(3).max(usual));
        end = end.min(before(ms));
    }
    Limit { look_ms: look, end_ms: Some(end.max(look)), explicit: false, kills: true }
}

/// When a verdict is wanted of a program whose collectives give up after so many milliseconds.
fn before(collective_ms: u64) -> u64 {
    let margin = (collective_ms / 10).max(VERDICT_MS).min(collective_ms / 2);
    collective_ms.saturating_sub(margin)
}

/// A rank is given more time than silence otherwise has: by an open section, on its own request, or by a limit of the phase
/// that it is in. Those that wait for it are no hang meanwhile.
#[must_use]
pub fn has_leave(spec: &HangSpec, sample: &Sample, silent_ms: u64) -> bool {
    let timed = |section: &Section| section.timeout_ms.is_some() || spec.phases.contains_key(&section.name);
    let phase = spec.phases.get(phase_name(sample.phase)).is_some_and(|ms| *ms > silent_ms);
    phase || sample.extend_ms > 0 || sample.sections.iter().any(timed)
}

/// It does something that takes its own time beside the steps of others, and whoever waits for it is no hang of a length that
/// was learned.
#[must_use]
pub fn has_own_time(sample: &Sample) -> bool {
    let apart = matches!(sample.phase, Phase::Eval | Phase::Checkpoint);
    apart || sample.extend_ms > 0 || !sample.sections.is_empty()
}

/// What was asked for at this place: by its name, for all phases of a step, or for everything.
#[must_use]
pub fn explicit(spec: &HangSpec, place: &Place) -> Option<u64> {
    let named = |name: &str| spec.phases.get(name).copied();
    let of_a_step = matches!(
        place,
        Place::FirstStep | Place::Phase(Phase::Data | Phase::Forward | Phase::Backward | Phase::Optimizer)
    );
    named(place.name()).or_else(|| named("step").filter(|_| of_a_step)).or(spec.timeout_ms)
}

/// Durations, of which only the quantiles are wanted: buckets a quarter of a power of two wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    counts: BTreeMap<u8, u64>,
    count: u64,
}

impl Sketch {
    /// Takes in one duration, in milliseconds.
    pub fn add(&mut self, ms: u64) {
        let count = self.counts.entry(bucket(ms)).or_default();
        *count = count.saturating_add(1);
        self.count = self.count.saturating_add(1);
    }

    /// What it says; none before anything was taken in.
    #[must_use]
    pub fn usual(&self) -> Option<Usual> {
        let median_ms = self.quantile(50)?;
        Some(Usual { median_ms, p99_ms: self.quantile(99)?, count: self.count })
    }

    /// So many of 100 durations are not longer; at most a quarter too much.
    fn quantile(&self, percent: u64) -> Option<u64> {
        let wanted = self.count.saturating_mul(percent).div_ceil(100);
        let mut seen = 0_u64;
        for (bucket, count) in &self.counts {
            seen = seen.saturating_add(*count);
            if seen >= wanted {
                return Some(upper(*bucket));
            }
        }
        None
    }
}

/// The bucket of a duration. Below 4 ms each has its own.
fn bucket(ms: u64) -> u8 {
    if ms < 4 {
        return u8::try_from(ms).unwrap_or(0);
    }
    let power = 63 - ms.leading_zeros();
    let quarter = (ms >> (power - 2)) & 3;
    u8::try_from(u64::from(power - 1) * 4 + quarter).unwrap_or(u8::MAX)
}

/// The longest duration of a bucket.
fn upper(bucket: u8) -> u64 {
    if bucket < 4 {
        return u64::from(bucket);
    }
    let (power, quarter) = (u32::from(bucket / 4) + 1, u64::from(bucket % 4));
    let start = (1_u64 << power.min(62)).saturating_add(quarter << (power.min(62) - 2));
    start.saturating_add((1_u64 << (power.min(62) - 2)) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usual(p99_ms: u64) -> Option<Usual> {
        Some(Usual { median_ms: p99_ms / 2, p99_ms, count: 100 })
    }

    #[test]
    fn limits_by_place() {
        let none = HangSpec::default();
        let all = HangSpec { timeout_ms: Some(5_000), ..HangSpec::default() };
        let named = HangSpec {
            phases: [("eval", 9_000), ("step", 7_000), ("init", 8_000), ("first-step", 6_000)]
                .map(|(name, ms)| (name.to_owned(), ms))
                .into(),
            ..all.clone()
        };
        let fast = Learned { step: usual(1_800), ..Learned::default() };
        let slow = Learned { step: usual(60_000), eval: usual(120_000), ..Learned::default() };
        let nothing = Learned::default();
        let step = Place::Phase(Phase::Step);
        let eval = Place::Phase(Phase::Eval);
        // What was asked for, what is known, where; when it is looked into, when it ends the world.
        for (spec, learned, place, look, end) in [
            (&all, &nothing, &step, 5_000, Some(5_000)),
            (&all, &nothing, &Place::Start, 5_000, Some(5_000)),
            (&named, &slow, &step, 7_000, Some(7_000)),
            (&named, &slow, &Place::Phase(Phase::Backward), 7_000, Some(7_000)),
            (&named, &slow, &Place::FirstStep, 6_000, Some(6_000)),
            (&named, &slow, &eval, 9_000, Some(9_000)),
            (&named, &slow, &Place::Start, 8_000, Some(8_000)),
            (&named, &slow, &Place::Phase(Phase::Init), 8_000, Some(8_000)),
            (&named, &slow, &Place::Phase(Phase::Checkpoint), 5_000, Some(5_000)),
            (&none, &nothing, &step, 300_000, Some(600_000)),
            (&none, &fast, &step, 60_000, Some(300_000)),
            (&none, &slow, &step, 600_000, Some(1_200_000)),
            (&none, &slow, &eval, 1_200_000, Some(2_400_000)),
            (&none, &fast, &eval, 300_000, Some(600_000)),
            (&none, &fast, &Place::Start, 600_000, None),
            (&none, &fast, &Place::FirstStep, 600_000, None),
        ] {
            let limit = limit(spec, learned, place, Some(7), None);
            assert_eq!((limit.look_ms, limit.end_ms), (look, end), "{spec:?} {learned:?} {place:?}");
        }
    }

    #[test]
    fn few_steps_teach_nothing() {
        let few = Usual { median_ms: 10, p99_ms: 10, count: STEPS - 1 };
        let learned = Learned { step: Some(few), ..Learned::default() };
        let limit = limit(&HangSpec::default(), &learned, &Place::Phase(Phase::Step), Some(7), None);
        assert_eq!(limit.look_ms, 300_000);
    }

    /// P1-22: an evaluation nobody speaks of is killed once, not at every step where it comes again.
    #[test]
    fn a_silence_that_recurs_is_a_phase() {
        let place = Place::Phase(Phase::Step);
        let spec = HangSpec::default();
        let mut learned = Learned { step: usual(1_000), ..Learned::default() };
        let of = |learned: &Learned, step| limit(&spec, learned, &place, Some(step), None);
        assert_eq!(of(&learned, 1_000).end_ms, Some(300_000));
        learned.pause(Pause { step: 1_000, ms: 300_000, over: false });
        assert_eq!(of(&learned, 1_000).end_ms, Some(900_000), "at the same step it has more time");
        assert_eq!(of(&learned, 1_001).end_ms, Some(300_000), "elsewhere it has not");
        learned.pause(Pause { step: 1_000, ms: 800_000, over: true });
        assert_eq!(of(&learned, 1_000).end_ms, Some(2_400_000));
        assert_eq!(of(&learned, 2_000).end_ms, Some(1_600_000), "it came back from such a one");
        assert_eq!(of(&learned, 2_000).look_ms, 60_000);
    }

    #[test]
    fn the_time_of_collectives_is_not_waited_for() {
        let learned = Learned { step: usual(1_000), ..Learned::default() };
        let of = |ms| limit(&HangSpec::default(), &learned, &Place::Phase(Phase::Step), None, ms);
        // Given up after, looked into, ended.
        for (ms, look, end) in [
            (1_800_000, 60_000, 300_000),
            (600_000, 60_000, 300_000),
            (120_000, 60_000, 108_000),
            (60_000, 40_500, 54_000),
            (30_000, 18_000, 24_000),
            (8_000, 3_000, 4_000),
            (2_000, 3_000, 3_000),
            (0, 3_000, 3_000),
        ] {
            let limit = of(Some(ms));
            assert_eq!((limit.look_ms, limit.end_ms), (look, Some(end)), "{ms}");
        }
        let unknown = |ms| {
            limit(&HangSpec::default(), &Learned::default(), &Place::Phase(Phase::Checkpoint), None, Some(ms))
        };
        assert_eq!((unknown(600_000).look_ms, unknown(600_000).end_ms), (300_000, Some(540_000)));
        assert_eq!((unknown(120_000).look_ms, unknown(120_000).end_ms), (81_000, Some(108_000)));
        // What was asked for ends it when it was asked for, and is looked into before.
        let all = HangSpec { timeout_ms: Some(900_000), ..HangSpec::default() };
        let asked = limit(&all, &learned, &Place::Phase(Phase::Step), None, Some(600_000));
        assert_eq!((asked.look_ms, asked.end_ms, asked.explicit), (540_000, Some(900_000), true));
        let short = HangSpec { timeout_ms: Some(5_000), ..HangSpec::default() };
        let asked = limit(&short, &learned, &Place::Phase(Phase::Step), None, Some(600_000));
        assert_eq!((asked.look_ms, asked.end_ms), (5_000, Some(5_000)));
    }

    #[test]
    fn sections_without_a_time_are_learned_by_name() {
        let mut learned = Learned { step: usual(100), ..Learned::default() };
        let load = Place::Section("load".to_owned());
        let of = |learned: &Learned| limit(&HangSpec::default(), learned, &load, Some(7), None);
        assert_eq!((of(&learned).look_ms, of(&learned).end_ms), (300_000, Some(600_000)), "not known yet");
        let mut other = Learned::default();
        other.sections.insert("load".to_owned(), usual(30_000).unwrap());
        assert!(other.differs(&learned) && !learned.differs(&other));
        learned.merge(&other);
        assert_eq!((of(&learned).look_ms, of(&learned).end_ms), (300_000, Some(600_000)));
        other.sections.insert("load".to_owned(), usual(90_000).unwrap());
        learned.merge(&other);
        assert_eq!((of(&learned).look_ms, of(&learned).end_ms), (900_000, Some(1_800_000)));
        for n in 0..100 {
            let sections = [(n.to_string(), usual(1).unwrap())].into();
            learned.merge(&Learned { sections, ..Learned::default() });
        }
        assert_eq!(learned.sections.len(), MAX_SECTIONS);
        // What an older relight wrote down.
        let old = r#"{"step": null, "eval": null, "checkpoint": null, "pauses": []}"#;
        assert_eq!(serde_json::from_str::<Learned>(old).unwrap(), Learned::default());
    }

    #[test]
    fn pauses_are_bounded() {
        let mut learned = Learned::default();
        for step in 0..100 {
            learned.pause(Pause { step, ms: step * 10, over: true });
        }
        assert_eq!(learned.pauses.len(), MAX_PAUSES);
        assert_eq!(learned.pauses.first().map(|p| p.step), Some(84), "the longest are kept");
    }

    proptest! {
        #[test]
        fn quantiles_are_a_quarter_too_long_at_most(mut all in proptest::collection::vec(0_u64..10_000_000, 1..200)) {
            let mut sketch = Sketch::default();
            for ms in &all {
                sketch.add(*ms);
            }
            all.sort_unstable();
            let usual = sketch.usual().unwrap();
            for (percent, got) in [(50, usual.median_ms), (99, usual.p99_ms)] {
                let exact = all[(all.len() * percent).div_ceil(100) - 1];
                prop_assert!(exact <= got && got <= exact + exact / 4 + 1, "{percent}: {exact} {got}");
            }
        }

        #[test]
        fn no_duration_is_too_long(ms in any::<u64>()) {
            let mut sketch = Sketch::default();
            sketch.add(ms);
            prop_assert!(sketch.usual().unwrap().p99_ms >= ms.min(1 << 60));
        }

        #[test]
        fn a_world_is_looked_at_before_it_ends(p99 in 1_u64..10_000_000, floor in 1_u64..1_000_000, collective in proptest::option::of(0_u64..10_000_000)) {
            let spec = HangSpec { floor_ms: floor, ..HangSpec::default() };
            let learned = Learned { step: usual(p99), ..Learned::default() };
            let limit = limit(&spec, &learned, &Place::Phase(Phase::Step), Some(1), collective);
            prop_assert!(limit.end_ms.unwrap() >= limit.look_ms);
            prop_assert!(limit.look_ms >= collective.map_or(floor, |_| floor.min(p99 * USUAL)));
        }
    }
}
