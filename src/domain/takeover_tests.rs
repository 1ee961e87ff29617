use super::*;
use crate::domain::ids::{Attempt, Incarnation, Seq, Term};
use crate::domain::record::{Body, End, Ground, Kind, Lead, Outcome, RECORD_VERSION, Record, Writer};

fn job(id: &str, restart: u32) -> JobRef {
    JobRef { id: id.into(), restart }
}

fn record(seq: u64, kind: Kind, body: Body) -> Record {
    Record {
        v: RECORD_VERSION,
        seq: Seq(seq),
        kind,
        term: Term(0),
        attempt: Attempt(0),
        writer: Writer { node: NodeName::new("n01"), incarnation: Incarnation(1) },
        nonce: 1,
        wall_ms: 0,
        why: vec!["because".into()],
        body,
    }
}

fn lead(job: Option<JobRef>, launch: &str) -> Record {
    let lead = Lead {
        node: NodeName::new("n01"),
        addresses: Vec::new(),
        job,
        launch: launch.into(),
        voters: vec![NodeName::new("n01")],
        ground: Ground::First,
        spec: None,
    };
    record(0, Kind::Lead, Body::Lead(lead))
}

fn end() -> Record {
    let end =
        End { outcome: Outcome::Failed, code: 1, requeue: false, incident: None, sentence: "failed".into() };
    record(1, Kind::End, Body::End(end))
}

#[test]
fn who_may_still_be_at_it() {
    let slurm = |id: &str| Claim::Slurm { id: id.into() };
    let machine = || Claim::Machine { node: NodeName::new("n01") };
    // lead: job and launch; us: node, job, launch.
    let table = [
        // Nobody was there.
        (None, ("n02", Some(job("8", 0)), "x"), Claim::Free),
        // Another job: Slurm is asked, from inside a job and from outside.
        (Some((Some(job("7", 0)), "a")), ("n01", Some(job("8", 0)), "b"), slurm("7")),
        (Some((Some(job("7", 2)), "a")), ("n01", None, ""), slurm("7")),
        // The same launch, by another of its agents.
        (Some((Some(job("7", 0)), "a")), ("n02", Some(job("7", 0)), "a"), Claim::Free),
        // Two commands of one script, one after the other.
        (Some((Some(job("7", 0)), "a")), ("n01", Some(job("7", 0)), "b"), Claim::Free),
        // Two steps of one job, perhaps at the same time.
        (Some((Some(job("7", 0)), "7.0.3")), ("n01", Some(job("7", 0)), "7.0.4"), slurm("7.3")),
        // A requeued job goes on, also from a step; its own past does not.
        (Some((Some(job("7", 0)), "7.0.3")), ("n01", Some(job("7", 1)), "7.1.0"), Claim::Free),
        (Some((Some(job("7", 1)), "7.1.0")), ("n01", Some(job("7", 0)), "7.0.9"), Claim::Later),
        // Outside any job a lock tells, on its machine only.
        (Some((None, "")), ("n01", None, ""), Claim::Free),
        (Some((None, "")), ("n02", None, ""), machine()),
        (Some((None, "")), ("n02", Some(job("7", 0)), "7.0.0"), machine()),
    ];
    for (before, (node, job, launch), expected) in table {
        let node = NodeName::new(node);
        let records: Vec<Record> =
            before.iter().map(|(job, launch): &(Option<JobRef>, &str)| lead(job.clone(), launch)).collect();
        let us = Claimant { node: &node, job: job.as_ref(), launch };
        assert_eq!(claim(&Ledger::replay(&records).unwrap(), us), expected, "{before:?}, {us:?}");
        let ended: Vec<Record> = records.into_iter().chain([end()]).collect();
        if ended.len() == 2 {
            assert_eq!(claim(&Ledger::replay(&ended).unwrap(), us), Claim::Free, "after an end: {before:?}");
        }
    }
}

#[test]
fn what_slurm_prints_is_understood_or_counts_as_alive() {
    assert_eq!(said(""), Said::Ended);
    assert_eq!(said("\n  \n"), Said::Ended);
    for state in ENDED {
        assert_eq!(said(state), Said::Ended);
    }
    assert_eq!(said("COMPLETING\n"), Said::Completing);
    assert_eq!(said("PENDING\nCOMPLETING\n"), Said::Completing);
    for state in ["RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "SIGNALING", "a new word"] {
        assert_eq!(said(&format!("COMPLETED\n{state}\n")), Said::Alive(state.into()));
    }
}

#[test]
fn a_job_is_left_alone_until_slurm_says_that_it_has_ended() {
    let wait = Duration::from_secs(1);
    let refused = |verdict| match verdict {
        Verdict::Refuse { sentence, hint } => {
            assert!(hint.contains("scancel 7") && hint.contains("--run-id"), "{hint}");
            sentence
        }
        other => unreachable!("{other:?}"),
    };
    let mut inquiry = Inquiry::default();
    assert_eq!(inquiry.judge("r", "7", Ok("COMPLETING"), wait), Verdict::Wait);
    assert_eq!(inquiry.judge("r", "7", Ok("COMPLETED"), wait), Verdict::Take);
    let gone = "slurm_load_jobs error: Invalid job id specified";
    assert_eq!(inquiry.judge("r", "7", Err(gone), wait), Verdict::Take);
    let sentence = refused(inquiry.judge("r", "7", Ok("RUNNING"), wait));
    assert_eq!(sentence, "run r belongs to job 7, which has not ended (RUNNING)");
    let sentence = refused(inquiry.judge("r", "7", Ok("COMPLETING"), CLEANING));
    assert!(sentence.contains("still being cleaned up"), "{sentence}");
    let sentence = refused(inquiry.judge("r", "7.3", Ok("RUNNING"), wait));
    assert!(sentence.contains("step 7.3"), "{sentence}");
    // No answer is not an end.
    let mut inquiry = Inquiry::default();
    for _ in 1..UNANSWERED {
        assert_eq!(inquiry.judge("r", "7", Err("squeue: not found"), wait), Verdict::Wait);
    }
    let sentence = refused(inquiry.judge("r", "7", Err("squeue: not found"), wait));
    assert!(sentence.contains("squeue: not found"), "{sentence}");
}

#[test]
fn the_question_names_the_job_or_the_step() {
    assert_eq!(question("7").join(" "), "squeue --noheader --jobs=7 --format=%T");
    assert_eq!(question("7.3").join(" "), "squeue --noheader --steps=7.3 --format=RUNNING");
}
