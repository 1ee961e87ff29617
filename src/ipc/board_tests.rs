use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::domain::board::{Feeder, Phase};

/// Claims the page of its argument as `docs/heartbeat-board.md` says it, says a step, and waits.
const WRITER: &str = "
import fcntl, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(3)
words = memoryview(mmap.mmap(fd, 4096)).cast('Q')
words[3] = 41 << 24 | 5 << 16 | 3
words[2] = 1
print('there', flush=True)
sys.stdin.read()
";

fn writer(path: &Path) -> Child {
    let mut command = Command::new("python3");
    command.arg("-c").arg(WRITER).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn says_there(child: &mut Child) -> bool {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line == "there\n"
}

fn home(place: &Path) -> Home {
    Home::make(&[place.join("relight")], Path::new("/runs/7.0")).unwrap()
}

#[test]
fn a_page_is_its_owners_as_long_as_he_lives() {
    let place = tempfile::tempdir().unwrap();
    let home = home(place.path());
    for ranks in [2, KEPT_OPEN + 1] {
        let boards = Boards::new(home.path(), Attempt(4), ranks).unwrap();
        let rank = LocalRank(1);
        assert_eq!(boards.sample(rank), None);
        let mut first = writer(&boards.path(rank));
        assert!(says_there(&mut first));
        let sample = boards.sample(rank).unwrap();
        // Not the number that it wrote, but the one that we know it by.
        assert_eq!(sample.pid, first.id());
        assert_eq!((sample.step, sample.phase, sample.feeder), (Some(41), Phase::Checkpoint, Feeder::Client));
        assert_eq!(boards.sample(LocalRank(0)), None);
        let mut second = writer(&boards.path(rank));
        assert!(!says_there(&mut second));
        assert_eq!(second.wait().unwrap().code(), Some(3));

        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(boards.sample(rank), None, "what the dead wrote counts for nobody");
        assert!(boards.last(rank).is_some(), "but it can be read");
        let mut third = writer(&boards.path(rank));
        assert!(says_there(&mut third));
        assert_eq!(boards.sample(rank).unwrap().pid, third.id());
        third.kill().unwrap();
        third.wait().unwrap();
    }
}

#[test]
fn a_page_that_somebody_spoils_is_none() {
    let place = tempfile::tempdir().unwrap();
    let home = home(place.path());
    let boards = Boards::new(home.path(), Attempt(0), 5).unwrap();
    let paths: Vec<PathBuf> = (0..5).map(|rank| boards.path(LocalRank(rank))).collect();
    let mut writers: Vec<Child> = paths.iter().map(|path| writer(path)).collect();
    assert!(writers.iter_mut().all(says_there));
    assert!((0..5).all(|rank| boards.sample(LocalRank(rank)).is_some()));
    File::options().write(true).open(&paths[0]).unwrap().set_len(100).unwrap();
    fs::write(&paths[1], vec![0xff; 1 << 20]).unwrap();
    fs::write(&paths[2], vec![0; PAGE_BYTES]).unwrap();
    fs::write(&paths[3], "").unwrap();
    for rank in 0..4 {
        assert_eq!(boards.sample(LocalRank(rank)), None, "rank {rank}");
    }
    // Whoever has the page can do without its name.
    fs::remove_file(&paths[4]).unwrap();
    assert!(boards.sample(LocalRank(4)).is_some());
    assert_eq!(boards.sample(LocalRank(5)), None, "no such rank");
    for mut writer in writers {
        let _ = writer.kill();
        writer.wait().unwrap();
    }
}

#[test]
fn what_interpreters_wrote_is_read_in_bounds_and_never_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let home = home(place.path());
    let boards = Boards::new(home.path(), Attempt(0), 3).unwrap();
    let file = |rank| boards.path(LocalRank(rank)).with_extension("stacks");
    assert!(boards.stacks(LocalRank(0)).is_empty());
    fs::write(file(0), "Thread 1").unwrap();
    assert_eq!(boards.stacks(LocalRank(0)), b"Thread 1");
    fs::write(file(0), vec![b'x'; MOST_STACKS + 7]).unwrap();
    assert_eq!(boards.stacks(LocalRank(0)).len(), MOST_STACKS);
    std::os::unix::fs::symlink("/dev/zero", file(1)).unwrap();
    assert!(boards.stacks(LocalRank(1)).is_empty());
    let made = Command::new("mkfifo").arg(file(2)).status().unwrap();
    assert!(made.success());
    assert!(boards.stacks(LocalRank(2)).is_empty());
}

#[test]
fn the_client_lies_where_python_finds_it() {
    let place = tempfile::tempdir().unwrap();
    let home = home(place.path());
    let [start, python] = home.paths().python(true).map(Option::unwrap);
    assert!(start.join("sitecustomize.py").is_file());
    let found = Command::new("python3")
        .args(["-c", "import relight, sys; print(relight.__file__, 'start' in sys.modules)"])
        .env("PYTHONPATH", python)
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found, format!("{} False\n", python.join("relight/__init__.py").display()));
    assert_eq!(home.paths().python(false), [None, Some(python)]);
    assert_eq!(fs::read_to_string(home.path().join("run")).unwrap(), "/runs/7.0");
}

#[test]
fn nothing_is_left_of_an_attempt_and_of_an_agent() {
    let place = tempfile::tempdir().unwrap();
    let parent = place.path().join("relight");
    let first = home(place.path());
    let boards = Boards::new(first.path(), Attempt(0), 1).unwrap();
    let page = boards.path(LocalRank(0));
    // The same attempt once more: an agent that starts it again.
    let again = Boards::new(first.path(), Attempt(0), 1).unwrap();
    assert!(page.exists());
    drop(again);
    assert!(!page.exists());
    drop(boards);
    // An agent that lives keeps its folder, one that was killed does not.
    let dead = parent.join(format!("{PREFIX}0123"));
    fs::create_dir_all(dead.join("attempt-0")).unwrap();
    fs::create_dir(parent.join("other")).unwrap();
    let second = home(place.path());
    assert!(first.path().exists() && second.path().exists() && !dead.exists());
    drop((first, second));
    let left: Vec<_> = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let error = Boards::new(Path::new("/proc/nowhere"), Attempt(0), 1).unwrap_err();
    assert!(error.to_string().starts_with("/proc/nowhere/attempt-0 cannot be written: "), "{error}");
    assert!(Home::make(&[PathBuf::from("/proc/relight")], Path::new("/runs/7.0")).is_err());
}
