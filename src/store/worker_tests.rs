use std::path::Path;

use super::*;
use crate::store::client::Client;
use crate::store::faults::{Fault, FaultPlan, What};
use crate::store::testing::{WorkerProcess, be_a_worker, options, record};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn child_process() {
    be_a_worker();
}

fn fault(call: Call, from: u32, times: u32, what: What) -> FaultPlan {
    FaultPlan(vec![Fault { call, from, times, what }])
}

/// Makes the directory, so that a later plan counts appends only.
fn made() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    layout::open(&mut Hands::default(), &options(base.path())).unwrap();
    base
}

fn opened(base: &Path, faults: FaultPlan) -> WorkerProcess {
    let mut worker = WorkerProcess::start(&[]);
    worker.send(&Request::Open { op: Op(0), options: options(base), faults: Some(faults) });
    let response = worker.recv();
    assert!(matches!(response, Response::Opened { .. }), "{response:?}");
    worker
}

fn append(worker: &mut WorkerProcess, op: u64, seq: u64, nonce: u64) -> (Response, Vec<Response>) {
    worker.send(&Request::Append { op: Op(op), record: Box::new(record(seq, nonce)), again: false });
    worker.last_word()
}

fn written(op: u64) -> Response {
    Response::Appended { op: Op(op), ended: Ended::Written }
}

fn journal(base: &Path) -> Vec<Record> {
    let journal = Journal::new(options(base).dir.join(names::JOURNAL));
    let tail = layout::read_journal(&mut Hands::default(), &journal).unwrap();
    assert_eq!(tail.unreadable, None);
    tail.records
}

fn temporary_files(base: &Path) -> usize {
    let names = std::fs::read_dir(options(base).dir.join(names::JOURNAL)).unwrap();
    names.filter(|n| n.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count()
}

#[test]
fn records_are_appended_read_and_found_again() {
    let base = tempfile::tempdir().unwrap();
    let mut worker = opened(base.path(), FaultPlan::default());
    for seq in 0..3 {
        assert_eq!(append(&mut worker, seq + 1, seq, 100 + seq), (written(seq + 1), vec![]));
    }
    worker.send(&Request::Read { op: Op(7), seq: Seq(1) });
    assert_eq!(worker.recv(), Response::ReadIs { op: Op(7), is: ReadIs::Record(Box::new(record(1, 101))) });
    worker.send(&Request::Read { op: Op(8), seq: Seq(3) });
    assert_eq!(worker.recv(), Response::ReadIs { op: Op(8), is: ReadIs::Absent });
    worker.send(&Request::Shutdown { op: Op(9) });
    assert_eq!(worker.recv(), Response::Done { op: Op(9) });
    assert_eq!(worker.child.wait().unwrap().code(), Some(EXIT_OK));

    let mut worker = WorkerProcess::start(&[]);
    worker.send(&Request::Open { op: Op(1), options: options(base.path()), faults: None });
    let Response::Opened { opened, .. } = worker.recv() else { panic!("not opened") };
    assert_eq!(opened.records, [record(0, 100), record(1, 101), record(2, 102)]);
    assert_eq!(opened.previous.unwrap().command, options(base.path()).command);
    assert_eq!(temporary_files(base.path()), 0);
}

#[test]
fn a_create_that_succeeded_and_said_no_is_written_once() {
    // After `link`, the two names of the temporary file tell at once; after the directory's fsync the
    // record is read back.
    for call in [Call::Link, Call::FsyncDir] {
        let base = made();
        // Opening an existing journal syncs its directory once.
        let from = u32::from(call == Call::FsyncDir);
        let mut worker = opened(base.path(), fault(call, from, 1, What::FailAfter(EIO)));
        assert_eq!(append(&mut worker, 1, 0, 5), (written(1), vec![]), "{call:?}");
        assert_eq!(journal(base.path()), [record(0, 5)]);
    }
}

#[test]
fn a_name_that_is_not_durable_is_not_success() {
    let base = made();
    let mut worker = opened(base.path(), fault(Call::FsyncDir, 1, 3, What::Fail(EIO)));
    let (last, troubles) = append(&mut worker, 1, 0, 5);
    assert_eq!(last, written(1));
    // The create and two read-backs met the error; the third read-back did not.
    assert_eq!(troubles.len(), 2, "{troubles:?}");
    for trouble in &troubles {
        let Response::Trouble { op: Op(1), kind: TroubleKind::Io, text, .. } = trouble else {
            panic!("{trouble:?}")
        };
        assert!(text.contains("EIO") && text.contains("/run1/journal"), "{text}");
    }
}

#[test]
fn a_full_disk_is_trouble_until_it_is_not() {
    let base = made();
    let mut worker = opened(base.path(), fault(Call::Write, 0, 3, What::Fail(ENOSPC)));
    worker.send(&Request::Append { op: Op(1), record: Box::new(record(0, 5)), again: false });
    let first = worker.recv();
    assert!(matches!(&first, Response::Trouble { kind: TroubleKind::Full, .. }), "{first:?}");
    // Everything else goes on meanwhile.
    worker.send(&Request::Read { op: Op(2), seq: Seq(0) });
    let mut troubles = 1;
    let mut answers = Vec::new();
    while answers.len() < 2 {
        match worker.recv() {
            Response::Trouble { .. } => troubles += 1,
            other => answers.push(other),
        }
    }
    assert_eq!(answers, [Response::ReadIs { op: Op(2), is: ReadIs::Absent }, written(1)]);
    assert_eq!(troubles, 3);
    assert_eq!(temporary_files(base.path()), 0);
}

#[test]
fn another_writers_record_is_handed_back() {
    let base = made();
    let mut one = opened(base.path(), FaultPlan::default());
    let mut two = opened(base.path(), FaultPlan::default());
    assert_eq!(append(&mut one, 1, 0, 5).0, written(1));
    let lost = Response::Appended { op: Op(1), ended: Ended::Lost(Box::new(record(0, 5))) };
    assert_eq!(append(&mut two, 1, 0, 6), (lost, vec![]));
}

/// Killed before and after every call of an append; a new worker gets the same request.
#[tokio::test]
async fn a_killed_worker_is_replaced_and_the_append_is_there_once() {
    let calls = [Call::Open, Call::Write, Call::Fsync, Call::Link, Call::Stat, Call::FsyncDir, Call::Unlink];
    for call in calls {
        for what in [What::DieBefore, What::DieAfter] {
            let base = made();
            // Opening an existing run directory opens its journal and syncs it once.
            let from = u32::from(matches!(call, Call::Open | Call::FsyncDir));
            let mut first = WorkerProcess::start(&[]);
            let socket = first.socket.try_clone().unwrap();
            let mut client = Client::new(socket, Duration::from_secs(20)).unwrap();
            let faults = Some(fault(call, from, 1, what));
            client.send(Request::Open { op: Op(0), options: options(base.path()), faults }).unwrap();
            let opened = client.recv().await.unwrap();
            assert!(matches!(opened, Response::Opened { .. }), "{call:?} {what:?}: {opened:?}");

            let record = Box::new(record(0, 5));
            client.send(Request::Append { op: Op(1), record, again: false }).unwrap();
            let error = client.recv().await.unwrap_err();
            assert!(matches!(error, FrameError::Closed | FrameError::Io(_)), "{call:?} {what:?}: {error}");
            assert_eq!(first.died_of(), Some(9), "{call:?} {what:?}");
            assert!(client.late_at().is_some());

            let second = WorkerProcess::start(&[]);
            client.replace(second.socket.try_clone().unwrap()).unwrap();
            assert_eq!(client.recv().await.unwrap(), written(1), "{call:?} {what:?}");
            assert_eq!((client.owed(), client.late_at()), (0, None));
            assert_eq!(journal(base.path()).len(), 1, "{call:?} {what:?}");
        }
    }
}

#[test]
fn a_new_worker_does_not_write_into_another_store() {
    let base = made();
    let mut worker = WorkerProcess::start(&[]);
    let dir = options(base.path()).dir;
    worker.send(&Request::Reopen { op: Op(0), dir, store: StoreId::new("elsewhere") });
    assert_eq!(worker.recv(), Response::Done { op: Op(0) });
    worker.send(&Request::Append { op: Op(1), record: Box::new(record(0, 5)), again: true });
    let trouble = worker.recv();
    assert!(matches!(trouble, Response::Trouble { kind: TroubleKind::OtherStore, .. }), "{trouble:?}");
    assert_eq!(journal(base.path()), []);
}

#[test]
fn a_slow_worker_is_late_and_a_silent_one_is_not() {
    let base = made();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let worker = WorkerProcess::start(&[]);
        let patience = Duration::from_millis(300);
        let mut client = Client::new(worker.socket.try_clone().unwrap(), patience).unwrap();
        assert_eq!(client.late_at(), None);
        let faults = Some(fault(Call::Fsync, 0, 1, What::Slow(60_000)));
        client.send(Request::Open { op: Op(0), options: options(base.path()), faults }).unwrap();
        client.recv().await.unwrap();
        assert_eq!(client.late_at(), None);
        let record = Box::new(record(0, 5));
        client.send(Request::Append { op: Op(1), record, again: false }).unwrap();
        let late = tokio::time::Instant::from_std(client.late_at().unwrap());
        let answer = tokio::time::timeout_at(late, client.recv()).await;
        assert!(answer.is_err(), "{answer:?}");
    });
}

#[test]
fn three_writers_share_500_numbers_and_each_has_one_owner() {
    const NUMBERS: u64 = 500;
    let base = made();
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            let mut worker = opened(base.path(), FaultPlan::default());
            std::thread::spawn(move || {
                let mut won = Vec::new();
                for seq in 0..NUMBERS {
                    let nonce = writer * 10_000 + seq;
                    match append(&mut worker, seq + 1, seq, nonce) {
                        (Response::Appended { ended: Ended::Written, .. }, _) => won.push(nonce),
                        (Response::Appended { ended: Ended::Lost(_), .. }, _) => {}
                        other => panic!("{other:?}"),
                    }
                }
                won
            })
        })
        .collect();
    let mut won: Vec<u64> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    let mut stored: Vec<u64> = journal(base.path()).iter().map(|r| r.nonce).collect();
    won.sort_unstable();
    stored.sort_unstable();
    assert_eq!(won.len() as u64, NUMBERS);
    assert_eq!(won, stored);
}

#[test]
fn a_long_journal_arrives_whole() {
    let base = made();
    let journal = Journal::new(options(base.path()).dir.join(names::JOURNAL));
    let mut expected = Vec::new();
    for seq in 0..40 {
        let mut record = record(seq, seq);
        record.why = vec!["x".repeat(100_000)];
        // Not durable: 40 fsyncs are not what is tested.
        let path = journal.dir().join(crate::store::posix::record_name(Seq(seq)));
        std::fs::write(path, codec::encode(&record).unwrap()).unwrap();
        expected.push(record);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let worker = WorkerProcess::start(&[]);
        let socket = worker.socket.try_clone().unwrap();
        let mut client = Client::new(socket, Duration::from_secs(20)).unwrap();
        client.send(Request::Open { op: Op(0), options: options(base.path()), faults: None }).unwrap();
        let Response::Opened { opened, .. } = client.recv().await.unwrap() else { panic!("not opened") };
        assert!(opened.records == expected);
    });
}

#[test]
fn plain_files_status_events_and_proofs() {
    let base = made();
    let dir = options(base.path()).dir;
    let mut worker = opened(base.path(), FaultPlan::default());
    let (path, bytes) = ("incidents/0000/why.json".to_owned(), b"{}".to_vec());
    worker.send(&Request::WriteFile { op: Op(1), path, bytes, durable: true });
    assert_eq!(worker.recv(), Response::Done { op: Op(1) });
    assert_eq!(std::fs::read(dir.join("incidents/0000/why.json")).unwrap(), b"{}");
    let (path, bytes) = ("../secret".to_owned(), vec![]);
    worker.send(&Request::WriteFile { op: Op(2), path, bytes, durable: false });
    assert!(matches!(worker.recv(), Response::Failed { op: Op(2), kind: TroubleKind::Denied, .. }));
    for n in 3..20_u64 {
        worker.send(&Request::Status { op: Op(n), bytes: n.to_string().into_bytes() });
    }
    for n in 3..20 {
        assert_eq!(worker.recv(), Response::Done { op: Op(n) });
    }
    assert_eq!(std::fs::read(dir.join("status.json")).unwrap(), b"19");
    worker.send(&Request::Events { op: Op(20), lines: vec!["{}".into(), "[]".into()] });
    assert_eq!(worker.recv(), Response::Done { op: Op(20) });
    assert_eq!(std::fs::read(dir.join("events.jsonl")).unwrap(), b"{}\n[]\n");
    worker.send(&Request::WriteNonce { op: Op(21) });
    let Response::Nonce { word, .. } = worker.recv() else { panic!("no nonce") };
    for (word, yes) in [(word, true), ("0123".into(), false), ("../secret".into(), false)] {
        worker.send(&Request::ReadNonce { op: Op(22), word });
        assert_eq!(worker.recv(), Response::Proves { op: Op(22), yes });
    }
}

#[test]
fn nothing_works_before_an_open_and_nonsense_ends_the_worker() {
    let mut worker = WorkerProcess::start(&[]);
    worker.send(&Request::Read { op: Op(1), seq: Seq(0) });
    assert!(matches!(worker.recv(), Response::Failed { op: Op(1), .. }));
    worker.send(&Request::Append { op: Op(2), record: Box::new(record(0, 1)), again: false });
    assert!(matches!(worker.recv(), Response::Failed { op: Op(2), .. }));
    std::io::Write::write_all(&mut worker.socket, &[255; 64]).unwrap();
    assert_eq!(worker.child.wait().unwrap().code(), Some(EXIT_BROKEN));
}

/// The order of the real system calls of one append.
#[test]
fn strace_sees_write_fsync_link_and_fsync_of_the_directory() {
    let base = made();
    let trace = base.path().join("trace");
    let Some(trace_path) = trace.to_str() else { panic!("a path that is no text") };
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "strace is not installed: it must be under CI");
        eprintln!("skipped: strace is not installed");
        return;
    }
    let calls = "trace=openat,write,fsync,link,linkat,unlink,unlinkat";
    let mut worker = WorkerProcess::start(&["strace", "-f", "-y", "-e", calls, "-o", trace_path]);
    worker.send(&Request::Open { op: Op(0), options: options(base.path()), faults: None });
    worker.recv();
    assert_eq!(append(&mut worker, 1, 0, 5), (written(1), vec![]));
    worker.send(&Request::Shutdown { op: Op(2) });
    worker.recv();
    worker.child.wait().unwrap();

    let text = std::fs::read_to_string(&trace).unwrap();
    let of_append = text.lines().skip_while(|l| !(l.contains("/journal/.tmp-") && l.contains("O_EXCL")));
    let steps: Vec<&str> = of_append
        .filter(|l| l.contains("/journal"))
        .map(|l| match () {
            () if l.contains("O_EXCL") => "create temporary file",
            () if l.contains("write(") => "write",
            () if l.contains("fsync(") && l.contains(".tmp-") => "fsync of the file",
            () if l.contains("link") && !l.contains("unlink") => "link",
            () if l.contains("O_DIRECTORY") => "open directory",
            () if l.contains("fsync(") => "fsync of the directory",
            () if l.contains("unlink") => "unlink",
            () => "something else",
        })
        .collect();
    let expected = [
        "create temporary file",
        "write",
        "fsync of the file",
        "link",
        "open directory",
        "fsync of the directory",
        "unlink",
    ];
    assert_eq!(steps, expected, "{text}");
    assert!(text.contains("= 0"), "{text}");
}

/// `cargo nextest run --run-ignored only -E 'test(what_it_costs)' --no-capture`
#[test]
#[ignore = "prints what an append costs on this disk and asserts no time: run it by name"]
fn what_it_costs() {
    let base = tempfile::tempdir_in(".").unwrap();
    let started = Instant::now();
    layout::open(&mut Hands::default(), &options(base.path())).unwrap();
    eprintln!("a new run directory: {:?}", started.elapsed());
    let mut worker = opened(base.path(), FaultPlan::default());
    let mut took: Vec<Duration> = (0..500)
        .map(|seq| {
            let started = Instant::now();
            assert_eq!(append(&mut worker, seq + 1, seq, seq).0, written(seq + 1));
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    eprintln!("append through the worker: median {:?}, p90 {:?}, p99 {:?}", took[250], took[450], took[495]);
    let started = Instant::now();
    layout::open(&mut Hands::default(), &options(base.path())).unwrap();
    eprintln!("opening 500 records: {:?}", started.elapsed());
}
