//! Each seeded bug is noticed within 500 seeds, by the rule that it breaks.

use purity::domain::mutant::{Mutant, Mutants};
use purity::sim::{Scenario, run};

fn caught(mutant: Mutant, rules: &[&str]) {
    let mut others = Vec::new();
    for seed in 0..500 {
        let Some(violation) = run(&Scenario::of(seed), Mutants::only(mutant), false).violation else {
            continue;
        };
        if rules.contains(&violation.rule) {
            return;
        }
        others.push(format!("seed {seed}: {violation}"));
    }
    panic!("{} is not caught by {rules:?}; other rules: {others:#?}", mutant.name());
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident, $($rule:literal),+;)*) => {
        $(#[test] fn $name() { caught(Mutant::$mutant, &[$($rule),+]); })*

        #[test]
        fn every_mutant_has_its_test() {
            assert_eq!(Mutant::ALL, [$(Mutant::$mutant),*]);
        }
    };
}

mutants! {
    grant_from_receipt: GrantFromReceipt, "rank_only_under_grant";
    act_before_written: ActBeforeWritten, "spawn_only_after_written";
    accept_stale: AcceptStale, "stale_changes_nothing";
    new_bytes_same_seq: NewBytesSameSeq, "journal_exactly_once";
    slot_twice: SlotTwice, "slot_once";
    no_pause_guard: NoPauseGuard, "pause_loses_nobody";
    coordinator_counts_itself: CoordinatorCountsItself, "authority_disjoint";
    start_before_grant_over: StartBeforeGrantOver, "one_attempt_alive";
    charge_twice: ChargeTwice, "failure_charged_once";
    forget_unknown_append: ForgetUnknownAppend, "running_or_closed_in_60_s";
    blame_victim: BlameVictim, "no_victim_is_blamed";
    below_min: BelowMin, "never_below_min";
    grow_at_once: GrowAtOnce, "no_restart_to_grow";
    no_last_call: NoLastCall, "last_call_is_kept";
    no_breaker: NoBreaker, "no_eviction_beyond_the_breaker";
    evicted_returns: EvictedReturns, "evicted_stays_out";
    stop_despite_progress: StopDespiteProgress, "progress_is_not_stopped";
}
