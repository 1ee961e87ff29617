//! Pages that are looked at ten times a second.

use proptest::prelude::*;

use super::super::super::board::{Feeder, Section};
use super::super::limits::{HangAction, HangSpec};
use super::*;

const R0: LocalRank = LocalRank(0);

/// What a rank writes, and the agent's clock.
struct Bed {
    watch: Watch,
    spec: HangSpec,
    known: Learned,
    ms: u64,
    sample: Option<Sample>,
    silent: Vec<Silence>,
    back: Vec<Back>,
    progress: Vec<(u64, RankProgress)>,
}

impl Bed {
    fn new(spec: HangSpec) -> Self {
        let (known, ms) = (Learned::default(), 5_000);
        let (silent, back, progress) = (Vec::new(), Vec::new(), Vec::new());
        Self { watch: Watch::default(), spec, known, ms, sample: None, silent, back, progress }
    }

    fn claimed(spec: HangSpec) -> Self {
        let mut bed = Self::new(spec);
        bed.sample = Some(Sample {
            pid: 1,
            feeder: Feeder::Client,
            step: None,
            phase: Phase::Init,
            beat: 0,
            sections: Vec::new(),
            extend_ms: 0,
            collective_timeout_ms: None,
            stack_signal: None,
            request: None,
        });
        bed.look();
        bed
    }

    fn look(&mut self) {
        let samples = vec![(R0, self.sample.clone())];
        let looked = self.watch.look(BootTime::from_millis(self.ms), &self.spec, &self.known, samples);
        self.silent.extend(looked.silent);
        self.back.extend(looked.back);
        self.progress.extend(looked.progress.into_iter().map(|p| (self.ms, p)));
    }

    /// So much time, in looks.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.ms += 100;
            self.look();
        }
    }

    fn set(&mut self, change: impl FnOnce(&mut Sample)) {
        let sample = self.sample.as_mut().unwrap();
        sample.beat += 1;
        change(sample);
    }

    /// Steps that take so long, from the one that is under way on.
    fn steps(&mut self, count: u64, each_ms: u64) {
        for _ in 0..count {
            self.set(|s| (s.step, s.phase) = (Some(s.step.map_or(0, |step| step + 1)), Phase::Step));
            self.pass(each_ms);
        }
    }

    fn limits(&self) -> Vec<(String, u64, bool)> {
        self.silent.iter().map(|s| (s.place.name().to_owned(), s.silent_ms, s.last)).collect()
    }
}

fn explicit(ms: u64) -> HangSpec {
    HangSpec { timeout_ms: Some(ms), ..HangSpec::default() }
}

#[test]
fn an_explicit_limit_is_told_once_when_it_is_reached() {
    let mut bed = Bed::claimed(explicit(3_000));
    bed.steps(10, 500);
    bed.pass(2_400);
    assert_eq!(bed.limits(), vec![]);
    bed.pass(2_500);
    assert_eq!(bed.limits(), [("step".to_owned(), 3_000, true)]);
    assert!(bed.silent[0].explicit && bed.silent[0].kills);
    assert_eq!((bed.silent[0].step, bed.silent[0].limit_ms), (Some(9), 3_000));
    bed.steps(1, 100);
    assert_eq!(bed.back.iter().map(|b| (b.silent_ms, b.step)).collect::<Vec<_>>(), [(5_400, Some(9))]);
    bed.pass(4_000);
    assert_eq!(bed.silent.len(), 2, "the next silence is another one");
}

#[test]
fn who_never_beats_is_counted_from_its_start_where_it_was_asked_for() {
    let mut bed = Bed::new(explicit(3_000));
    bed.look();
    bed.pass(5_000);
    assert_eq!(bed.limits(), [("init".to_owned(), 3_000, true)]);
    let mut bed = Bed::new(HangSpec::default());
    bed.look();
    bed.pass(3_600_000);
    assert_eq!(
        bed.limits(),
        [("init".to_owned(), 600_000, false)],
        "it is told of once, and nothing follows"
    );
    assert!(!bed.silent[0].kills);
}

#[test]
fn a_slow_start_has_a_limit_of_its_own() {
    let phases = [("init".to_owned(), 90_000)].into();
    let mut bed = Bed::new(HangSpec { phases, ..explicit(5_000) });
    bed.look();
    bed.pass(60_000);
    assert_eq!(bed.limits(), vec![]);
    bed.sample = Bed::claimed(explicit(1)).sample;
    bed.pass(80_000);
    assert_eq!(bed.limits(), vec![], "the time begins anew with its first sign");
    bed.pass(20_000);
    assert_eq!(bed.limits(), [("init".to_owned(), 90_000, true)]);
}

#[test]
fn only_time_in_which_the_agent_ran_counts() {
    for pause in [1_100, 30_000, 86_400_000] {
        let mut bed = Bed::claimed(explicit(3_000));
        bed.steps(2, 100);
        bed.pass(2_000);
        bed.ms += pause;
        bed.look();
        bed.pass(700);
        assert_eq!(bed.limits(), vec![], "a pause of {pause} ms is nobody's silence");
        bed.pass(300);
        assert_eq!(bed.silent.len(), 1);
    }
}

#[test]
fn an_open_section_has_its_own_time_and_nested_ones_keep_theirs() {
    let section = |name: &str, timeout_ms, entry| Section { name: name.to_owned(), timeout_ms, entry };
    let mut bed = Bed::claimed(explicit(3_000));
    bed.steps(2, 100);
    bed.set(|s| s.sections.push(section("outer", Some(20_000), 1)));
    bed.pass(10_000);
    assert_eq!(bed.limits(), vec![], "its phase does not count meanwhile");
    bed.set(|s| s.sections.push(section("inner", Some(4_000), 2)));
    bed.pass(5_000);
    assert_eq!(bed.limits(), [("inner".to_owned(), 4_000, true)]);
    bed.set(|s| s.sections.truncate(1));
    bed.pass(6_000);
    let last = bed.limits().pop();
    assert_eq!(last, Some(("outer".to_owned(), 20_000, true)), "its time ran on");
    // Beats within it do not lengthen it, and it is told of once.
    let told = bed.silent.len();
    for _ in 0..30 {
        bed.set(|_| {});
        bed.pass(100);
    }
    assert_eq!(bed.silent.len(), told);
    bed.set(|s| s.sections.clear());
    bed.pass(2_000);
    assert_eq!(bed.silent.len(), told);
}

#[test]
fn a_section_without_a_time_has_that_of_its_phase_or_of_its_name() {
    let section = Section { name: "load".to_owned(), timeout_ms: None, entry: 1 };
    for (phases, expected) in [
        (vec![], ("step".to_owned(), 3_000, true)),
        (vec![("load".to_owned(), 9_000)], ("load".to_owned(), 9_000, true)),
    ] {
        let mut bed = Bed::claimed(HangSpec { phases: phases.into_iter().collect(), ..explicit(3_000) });
        bed.steps(2, 100);
        bed.set(|s| s.sections.push(section.clone()));
        bed.pass(10_000);
        assert_eq!(bed.limits().first(), Some(&expected));
    }
}

#[test]
fn more_time_can_be_asked_for() {
    let mut bed = Bed::claimed(explicit(3_000));
    bed.steps(2, 100);
    bed.sample.as_mut().unwrap().extend_ms = 10_000;
    bed.pass(12_500);
    assert_eq!(bed.limits(), vec![]);
    bed.pass(1_000);
    assert_eq!(bed.limits(), [("step".to_owned(), 13_000, true)]);
}

#[test]
fn limits_are_learned_without_the_first_steps_and_without_what_is_none() {
    let mut bed = Bed::claimed(HangSpec { floor_ms: 1_000, ..HangSpec::default() });
    // Compiling, filling caches.
    bed.steps(3, 4_000);
    bed.steps(40, 500);
    bed.set(|s| s.phase = Phase::Eval);
    bed.pass(4_000);
    bed.steps(30, 500);
    let usual = bed.watch.learned(&bed.known).step.unwrap();
    assert!((500..700).contains(&usual.p99_ms), "{usual:?}");
    assert_eq!(bed.watch.learned(&bed.known).eval.map(|e| e.count), Some(1));
    assert_eq!(bed.limits(), vec![]);
    bed.pass(20_000);
    let limits: Vec<(u64, bool)> = bed.silent.iter().map(|s| (s.silent_ms, s.last)).collect();
    assert!((5_000..7_000).contains(&limits[0].0) && !limits[0].1, "{limits:?}");
    assert!((10_000..14_000).contains(&limits[1].0) && limits[1].1, "{limits:?}");
}

#[test]
fn a_silence_that_ended_is_remembered_at_its_step() {
    let mut bed = Bed::claimed(HangSpec { floor_ms: 1_000, ..HangSpec::default() });
    bed.steps(40, 100);
    bed.pass(3_000);
    bed.steps(10, 100);
    let pauses = bed.watch.learned(&bed.known).pauses;
    assert_eq!(pauses.iter().map(|p| (p.step, p.over)).collect::<Vec<_>>(), [(39, true)]);
    // In the next attempt it is no news at that step.
    let told = bed.silent.len();
    assert_eq!(told, 1);
    let known = bed.watch.learned(&bed.known);
    let mut next = Bed::claimed(HangSpec { floor_ms: 1_000, ..HangSpec::default() });
    next.known = known;
    next.steps(40, 100);
    next.pass(3_000);
    next.steps(10, 100);
    assert_eq!(next.limits(), vec![]);
}

/// Something may have spoken against an end.
#[test]
fn a_limit_is_told_again_when_it_has_passed_once_more() {
    let mut bed = Bed::claimed(explicit(3_000));
    bed.steps(2, 100);
    bed.pass(10_000);
    let at: Vec<u64> = bed.silent.iter().map(|s| s.silent_ms).collect();
    assert_eq!(at, [3_000, 6_000, 9_000]);
}

#[test]
fn who_is_told_anew_hears_it_again() {
    let mut bed = Bed::claimed(explicit(3_000));
    bed.steps(2, 100);
    bed.pass(3_500);
    bed.watch.tell_again();
    bed.pass(200);
    assert_eq!(bed.silent.len(), 2);
}

#[test]
fn progress_is_told_once_a_second_and_only_when_there_is_some() {
    let mut bed = Bed::claimed(explicit(60_000));
    bed.steps(100, 100);
    let gaps: Vec<u64> = bed.progress.windows(2).map(|w| w[1].0 - w[0].0).collect();
    assert!(bed.progress.len() >= 9 && gaps.iter().all(|gap| *gap >= 1_000), "{gaps:?}");
    bed.pass(2_000);
    let told = bed.progress.len();
    assert_eq!(bed.progress.last().unwrap().1.step, Some(99));
    bed.pass(30_000);
    assert_eq!(bed.progress.len(), told);
}

#[test]
fn many_nodes_say_where_their_ranks_are_no_oftener_than_few() {
    let secs = |nodes| progress_every(nodes).as_secs();
    assert_eq!([1, 256, 257, 1_024, 4_096].map(secs), [1, 1, 2, 4, 16]);
    // Of 4,096 nodes that begin together; one in 16 stands for all.
    let mut spoke = std::collections::BTreeMap::<u64, usize>::new();
    for place in (0..4_096).step_by(16) {
        let mut bed = Bed::claimed(explicit(60_000));
        bed.watch = Watch::of_node(place, 4_096);
        bed.steps(70, 500);
        let at: Vec<u64> = bed.progress.iter().map(|(at, _)| *at).collect();
        assert!(at.len() >= 2 && at.windows(2).all(|w| w[1] - w[0] >= 16_000), "{place}: {at:?}");
        *spoke.entry(at[0] / 1_000).or_default() += 16;
    }
    assert!(spoke.len() >= 16 && spoke.values().all(|count| *count <= 300), "{spoke:?}");
}

#[test]
fn where_a_rank_was_when_it_ended_is_told() {
    let mut bed = Bed::claimed(explicit(60_000));
    bed.steps(20, 100);
    let mut page = bed.sample.clone().unwrap();
    (page.step, page.beat) = (Some(57), page.beat + 1);
    let told = bed.watch.ended(R0, Some(page.clone()));
    assert_eq!(told.iter().map(|p| (p.local_rank, p.step)).collect::<Vec<_>>(), [(R0, Some(57))]);
    assert_eq!(bed.watch.ended(R0, Some(page)), vec![], "once");
    assert_eq!(bed.watch.ended(LocalRank(7), None), vec![], "it never had a page");
}

#[test]
fn a_section_without_a_time_is_learned_by_its_name() {
    let section = |entry| Section { name: "export".to_owned(), timeout_ms: None, entry };
    let mut bed = Bed::claimed(HangSpec { floor_ms: 1_000, ..HangSpec::default() });
    bed.steps(40, 100);
    bed.set(|s| s.sections.push(section(1)));
    bed.pass(4_000);
    assert_eq!(bed.limits(), vec![], "the first time it has as much time as anything unknown");
    bed.set(|s| s.sections.clear());
    bed.steps(1, 100);
    let usual = bed.watch.learned(&bed.known).sections["export"];
    assert!((4_000..5_100).contains(&usual.p99_ms), "{usual:?}");
    bed.set(|s| s.sections.push(section(2)));
    bed.pass(39_000);
    assert_eq!(bed.limits(), vec![]);
    bed.pass(13_000);
    assert_eq!(bed.limits().first().map(|(name, ..)| name.as_str()), Some("export"));
    // Of one with a time nothing is learned.
    bed.set(|s| s.sections = vec![Section { timeout_ms: Some(60_000), name: "other".to_owned(), entry: 3 }]);
    bed.pass(1_000);
    bed.set(|s| s.sections.clear());
    bed.pass(100);
    assert!(!bed.watch.learned(&bed.known).sections.contains_key("other"));
}

#[test]
fn nobody_is_killed_by_what_was_learned_before_the_first_step() {
    let mut bed =
        Bed::claimed(HangSpec { floor_ms: 1_000, action: HangAction::Restart, ..HangSpec::default() });
    bed.known.step = Some(super::super::limits::Usual { median_ms: 10, p99_ms: 10, count: 1_000 });
    bed.pass(3_600_000);
    assert!(bed.silent.iter().all(|s| !s.kills && !s.last), "{:?}", bed.silent);
}

proptest! {
    /// Whoever beats more often than its limit is never silent, however its agent is delayed.
    #[test]
    fn who_beats_is_never_silent(gaps in proptest::collection::vec((1_u64..2_900, 1_u64..50_000), 1..60)) {
        let mut bed = Bed::claimed(explicit(3_000));
        for (alive, pause) in gaps {
            bed.set(|s| s.step = Some(s.step.unwrap_or(0) + 1));
            bed.look();
            bed.pass(alive);
            if pause > 40_000 {
                bed.ms += pause;
            }
        }
        prop_assert_eq!(bed.limits(), vec![]);
    }

    /// No sequence of pages makes it panic or tell more than one limit a look.
    #[test]
    fn any_page_is_taken(pages in proptest::collection::vec(
        (proptest::option::of((any::<u64>(), any::<u64>(), 0_u8..3, proptest::option::of(any::<u64>()), any::<u64>())), any::<u64>()), 1..40)
    ) {
        let mut bed = Bed::new(HangSpec { floor_ms: 1, ..HangSpec::default() });
        for (page, passed) in pages {
            bed.ms = bed.ms.wrapping_add(passed % 3_000);
            bed.sample = page.map(|(step, beat, sections, timeout_ms, extend_ms)| Sample {
                step: Some(step),
                beat,
                extend_ms,
                phase: if beat % 3 == 0 { Phase::Eval } else { Phase::Step },
                sections: (0..sections).map(|i| Section { name: i.to_string(), timeout_ms, entry: beat }).collect(),
                ..Bed::claimed(HangSpec::default()).sample.unwrap()
            });
            let before = bed.silent.len();
            bed.look();
            prop_assert!(bed.silent.len() <= before + 1);
        }
    }
}
