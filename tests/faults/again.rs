//! Failures that come again: when a run goes on, and when it stops. The numbers are those of the project's list of
//! scenarios.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::run::{Job, LONG};
use crate::support::leftovers;
use crate::support::relight::Ended;

/// A job whose every attempt fails in these ways, to its end with 93.
fn stops(job: &Job, args: &[&str]) -> (Ended, Journal, CommitLog) {
    let ended = job.command(&["-r", "3"], args).spawn().wait(LONG);
    leftovers::assert_none(&job.scene);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    let journal = job.journal();
    assert_eq!(journal.end_code, Some(93), "{}", ended.stderr);
    (ended, journal, CommitLog::read(&job.log))
}

/// From each fault to the time of the verdict on it.
fn seen_within(limit: Duration, journal: &Journal, log: &CommitLog) {
    let since = |clock| Duration::from(clock_gettime(clock).unwrap());
    let offset = since(ClockId::CLOCK_REALTIME).as_millis() as i128
        - since(ClockId::CLOCK_MONOTONIC).as_millis() as i128;
    for (attempt, root) in (0..).zip(journal.roots()) {
        let Some(fault) = log.fault_at(attempt) else { continue };
        let late = i128::from(root.expect("somebody failed first").wall_ms)
            - (i128::from(fault / 1_000_000) + offset);
        assert!(late <= limit.as_millis() as i128, "attempt {attempt}: seen {late} ms after the fault");
    }
}

#[test]
fn s07_the_same_exception_at_the_same_step_is_made_sure_of_once() {
    let job = Job::new(4, 60);
    // Of all ranks the hub would notice last.
    let faults = ["--fault=exception=labels are missing:2:33:*", "--fault=slow=2:0:33:*"];
    let (ended, journal, log) = stops(&job, &[&["--beat", "--step-time=0.1"][..], &faults].concat());
    let roots: Vec<_> = journal.roots().iter().map(|root| root.map(|root| root.rank)).collect();
    assert_eq!(roots, [Some(2), Some(2)], "{}", ended.stderr);
    assert!(ended.stderr.contains("it failed at the same step 33"), "{}", ended.stderr);
    assert!(journal.found.iter().all(|found| found["culprits"][0][0] == 2), "{:#?}", journal.found);
    seen_within(Duration::from_secs(1), &journal, &log);
}

#[test]
fn s08_the_same_exception_further_on_each_time_never_stops_the_run() {
    let job = Job::new(2, 60);
    let at = |attempt: u64| format!("--fault=exception=labels are missing:1:{}:{attempt}", 12 + attempt * 10);
    let faults: Vec<String> = (0..5).map(at).collect();
    let args: Vec<&str> =
        ["--beat", "--step-time=0.05"].into_iter().chain(faults.iter().map(String::as_str)).collect();
    let running = job.command(&["-r", "3"], &args).spawn();
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 6, "{}", ended.stderr);
    assert!(journal.found.iter().all(|found| found["culprits"][0][0] == 1), "{:#?}", journal.found);
    seen_within(Duration::from_secs(1), &journal, &CommitLog::read(&job.log));
}

#[test]
fn s10_all_ranks_fail_at_import() {
    let job = Job::new(4, 30);
    let began = std::time::Instant::now();
    let ended = job.command(&["-r", "3"], &["--fault=import-crash:*:0:*"]).spawn().wait(LONG);
    leftovers::assert_none(&job.scene);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    let journal = job.journal();
    assert_eq!(journal.attempts.len(), 1, "at once: {}", ended.stderr);
    let found = &journal.found[0];
    assert_eq!((&found["owner"], &found["deterministic"]), (&"user".into(), &true.into()), "{found:#}");
    assert!(ended.stderr.contains("ImportError") && ended.stderr.contains(" of 4 ranks"), "{}", ended.stderr);
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
}
