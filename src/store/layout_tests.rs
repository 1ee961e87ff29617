use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::domain::record::{Kind, Outcome};
use crate::store::codec;
use crate::store::faults::{Fault, FaultPlan, What};
use crate::store::testing::{options, record};

fn open_in(base: &Path) -> Result<Opened, LayoutError> {
    open(&mut Hands::default(), &options(base))
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    files::look(path).unwrap().mode
}

fn put(dir: &Path, record: &Record) {
    let bytes = codec::encode(record).unwrap();
    fs::write(dir.join(names::JOURNAL).join(posix::record_name(record.seq)), bytes).unwrap();
}

/// Sentence and hint, without the temporary path.
fn said(base: &Path, error: &LayoutError) -> String {
    format!("{error}; {}", error.hint()).replace(base.to_str().unwrap(), "BASE")
}

#[test]
fn a_new_directory_is_private_and_complete() {
    let base = tempfile::tempdir().unwrap();
    let opened = open_in(base.path()).unwrap();
    let dir = options(base.path()).dir;
    assert_eq!(
        (opened.records.len(), opened.previous.clone(), opened.unreadable_tail.clone()),
        (0, None, None)
    );
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join(names::SECRET)), 0o600);
    assert_eq!(opened.secret.len(), 64);
    for name in names::DIRS {
        assert_eq!(mode(&dir.join(name)), 0o700, "{name}");
    }
    let again = open_in(base.path()).unwrap();
    assert_eq!((&again.store, &again.secret), (&opened.store, &opened.secret));
    assert_eq!(again.previous, Some(Previous { ended: None, command: options(base.path()).command }));
    let json: RunJson = serde_json::from_slice(&fs::read(dir.join(names::RUN)).unwrap()).unwrap();
    assert_eq!((json.v, json.store, json.created_ms), (1, opened.store, 1_700_000_000_000));
}

#[test]
fn only_the_first_coordinator_makes_it_and_parents_only_where_wanted() {
    let base = tempfile::tempdir().unwrap();
    let mut wants = options(base.path());
    wants.create = false;
    let error = open(&mut Hands::default(), &wants).unwrap_err();
    assert!(matches!(error, LayoutError::Missing(_)), "{error}");
    wants.create = true;
    wants.dir = base.path().join("a/b/run1");
    let error = open(&mut Hands::default(), &wants).unwrap_err();
    insta::assert_snapshot!(said(base.path(), &error), @"cannot make the run directory BASE/a/b/run1: BASE/a/b does not exist; make it, or choose another place with --run-dir");
    wants.make_parents = true;
    open(&mut Hands::default(), &wants).unwrap();
    assert_eq!(mode(&base.path().join("a")), 0o700);
}

#[test]
fn a_half_made_directory_is_completed_and_an_empty_one_is_taken() {
    let base = tempfile::tempdir().unwrap();
    let dir = options(base.path()).dir;
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o755);
    assert_eq!(open_in(base.path()).unwrap().previous, None);
    assert_eq!(mode(&dir), 0o700);
    let secret = open_in(base.path()).unwrap().secret;
    fs::remove_file(dir.join(names::RUN)).unwrap();
    fs::remove_dir(dir.join(names::PROBE)).unwrap();
    let opened = open_in(base.path()).unwrap();
    assert_eq!((opened.previous, opened.secret), (None, secret));
}

#[test]
fn what_is_no_run_directory_of_ours_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let dir = options(base.path()).dir;
    let mut seen = Vec::new();
    let mut see = || seen.push(said(base.path(), &open_in(base.path()).unwrap_err()));

    symlink(base.path(), &dir).unwrap();
    see();
    fs::remove_file(&dir).unwrap();
    fs::write(&dir, "").unwrap();
    see();
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("thesis.tex"), "").unwrap();
    see();
    fs::remove_file(dir.join("thesis.tex")).unwrap();
    chmod(&dir, 0o777);
    see();
    chmod(&dir, 0o700);
    fs::write(dir.join(names::RUN), "{").unwrap();
    see();
    fs::write(dir.join(names::RUN), "{\"v\": 9}").unwrap();
    see();
    fs::remove_file(dir.join(names::RUN)).unwrap();
    open_in(base.path()).unwrap();
    chmod(&dir.join(names::SECRET), 0o644);
    see();
    fs::remove_file(dir.join(names::SECRET)).unwrap();
    see();
    fs::write(dir.join(names::SECRET), "short").unwrap();
    chmod(&dir.join(names::SECRET), 0o600);
    see();
    fs::remove_dir(dir.join(names::NONCE)).unwrap();
    see();
    insta::assert_snapshot!(seen.join("\n"), @"");
}

#[test]
fn the_directory_of_another_run_is_refused() {
    let base = tempfile::tempdir().unwrap();
    open_in(base.path()).unwrap();
    let mut wants = options(base.path());
    wants.run = RunId::new("run2");
    let error = open(&mut Hands::default(), &wants).unwrap_err();
    insta::assert_snapshot!(said(base.path(), &error), @"BASE/run1 is the directory of run run1, not of run2; choose another place with --run-dir");
}

#[test]
fn somebody_elses_directory_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let dir = options(base.path()).dir;
    fs::create_dir(&dir).unwrap();
    if std::os::unix::fs::chown(&dir, Some(12_345), None).is_err() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    let error = open_in(base.path()).unwrap_err();
    assert!(matches!(error, LayoutError::ForeignOwner { owner: 12_345, .. }), "{error}");
}

#[test]
fn full_read_only_and_closed_places_are_named() {
    let plan = |call, errno| FaultPlan(vec![Fault { call, from: 0, times: 1, what: What::Fail(errno) }]);
    let mut seen = Vec::new();
    for (call, errno) in [
        (Call::Mkdir, 28),
        (Call::Write, 122),
        (Call::Mkdir, 30),
        (Call::Mkdir, 13),
        (Call::Link, 1),
        (Call::Link, 95),
        (Call::Fsync, 5),
    ] {
        let base = tempfile::tempdir().unwrap();
        let error = open(&mut Hands::new(plan(call, errno)), &options(base.path())).unwrap_err();
        seen.push(said(base.path(), &error));
        // Nothing is left that a second try would trip over.
        open_in(base.path()).unwrap();
    }
    let text = seen.join("\n");
    insta::with_settings!({filters => vec![
        (r"\d+ bytes free", "N bytes free"),
        (r"\.tmp-[0-9a-f]+", ".tmp-X"),
    ]}, {
        insta::assert_snapshot!(text, @"");
    });
}

#[test]
fn the_tail_is_found_by_reading_and_damage_before_it_is_seen() {
    let base = tempfile::tempdir().unwrap();
    open_in(base.path()).unwrap();
    let dir = options(base.path()).dir;
    let at = |seq| dir.join(names::JOURNAL).join(posix::record_name(Seq(seq)));
    for seq in 0..3 {
        put(&dir, &record(seq, seq));
    }
    assert_eq!(open_in(base.path()).unwrap().records.len(), 3);

    fs::write(at(3), "").unwrap();
    let opened = open_in(base.path()).unwrap();
    assert_eq!((opened.records.len(), opened.unreadable_tail.as_deref()), (3, Some("it is empty")));

    put(&dir, &record(4, 4));
    let error = open_in(base.path()).unwrap_err();
    insta::assert_snapshot!(said(base.path(), &error), @"");
    fs::remove_file(at(3)).unwrap();
    let error = open_in(base.path()).unwrap_err();
    insta::assert_snapshot!(said(base.path(), &error), @"");
}

#[test]
fn an_ended_run_says_so_and_is_set_aside() {
    let base = tempfile::tempdir().unwrap();
    let dir = options(base.path()).dir;
    for k in 1..3 {
        assert_eq!(open_in(base.path()).unwrap().previous, None);
        let end = End {
            outcome: Outcome::Finished,
            code: 0,
            requeue: false,
            incident: None,
            sentence: "finished".into(),
        };
        let mut last = record(0, 1);
        (last.kind, last.body) = (Kind::End, Body::End(end.clone()));
        put(&dir, &last);
        assert_eq!(open_in(base.path()).unwrap().previous.unwrap().ended, Some(end));
        let aside = set_aside(&mut Hands::default(), &dir).unwrap();
        assert_eq!(aside, base.path().join(format!("run1~{k}")));
        assert!(aside.join(names::RUN).is_file());
    }
    let error = set_aside(&mut Hands::default(), &dir).unwrap_err();
    assert!(matches!(error, LayoutError::Missing(_)), "{error}");
}

#[test]
fn eight_creators_make_one_directory() {
    let base = tempfile::tempdir().unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open_in(base.path()).unwrap())).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|o| o.previous.is_none()).count(), 1);
    for other in &opened {
        assert_eq!((&other.store, &other.secret), (&opened[0].store, &opened[0].secret));
    }
}
