//! Real processes, with and without the newer calls.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::*;
use crate::domain::exit::ExitKind;
use crate::sys::process;
use crate::sys::wait::{Waited, peek, reap_blocking};

fn variants() -> [Capabilities; 2] {
    [Capabilities::probe(), Capabilities::none()]
}

fn request(argv: &[&str]) -> SpawnRequest {
    SpawnRequest {
        argv: argv.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/".into(),
        ..SpawnRequest::default()
    }
}

/// Runs a shell line and returns what it printed and how it ended.
fn run(mut request: SpawnRequest, caps: Capabilities) -> (String, Waited) {
    let (read, write) = io::pipe().unwrap();
    request.stdout = Some(write.into());
    let record = spawn(&request, caps).unwrap();
    drop(request);
    let mut text = String::new();
    io::BufReader::new(read).read_to_string(&mut text).unwrap();
    (text, reap_blocking(record.pid))
}

fn failure(request: &SpawnRequest, caps: Capabilities) -> SpawnError {
    let error = spawn(request, caps).unwrap_err();
    assert!(
        procfs::children(process::own_pid(), caps).unwrap().is_empty(),
        "the failed child was not reaped"
    );
    error
}

#[test]
fn the_child_has_what_was_asked_for_and_nothing_else() {
    for caps in variants() {
        // A descriptor without close-on-exec, as a library may leave one.
        // SAFETY: duplicates a number; the result is owned by nobody else.
        let leak = unsafe { libc::fcntl(0, libc::F_DUPFD, 50) };
        assert!(leak >= 50);
        let (seven_read, mut seven) = io::pipe().unwrap();
        io::Write::write_all(&mut seven, b"seven").unwrap();
        drop(seven);
        let mut wanted = request(&[
            "sh",
            "-c",
            "ls /proc/self/fd | tr '\\n' ' '; cat <&7; echo \" $PWD $X\"; readlink /proc/self/fd/0; \
             grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -n; ps -o sid= -p $$ | tr -d ' '; echo $$; \
             cat /proc/self/oom_score_adj",
        ]);
        wanted.env.push(("X".into(), "y z".into()));
        wanted.inherit = vec![(7, seven_read.into())];
        wanted.session = true;
        wanted.ignore = vec![libc::SIGUSR1, libc::SIGUSR2];
        wanted.oom_score_adj = Some(500);
        wanted.nofile = Some(Nofile { soft: 99, hard: 100 });
        let (text, ended) = run(wanted, caps);
        // SAFETY: the number is this test's own.
        unsafe { libc::close(leak) };
        let lines: Vec<&str> = text.lines().collect();
        // `ls` itself has one more for the directory.
        assert_eq!(lines[0], "0 1 2 3 7 seven / y z", "{text}");
        assert_eq!(lines[1], "/dev/null");
        assert!(lines[2].ends_with("0000000000000000"), "{text}");
        assert!(lines[3].ends_with("0000000000000a00"), "{text}");
        assert_eq!(lines[4], "99");
        assert_eq!(lines[5], lines[6], "it leads its session");
        assert_eq!(lines[7], "500");
        assert_eq!(ended, Waited::Ended(ExitKind::Code(0)));
    }
}

#[test]
fn descriptors_that_lie_on_each_others_places_are_sorted_out() {
    for caps in variants() {
        let (a, mut a_in) = io::pipe().unwrap();
        let (b, mut b_in) = io::pipe().unwrap();
        io::Write::write_all(&mut a_in, b"A").unwrap();
        io::Write::write_all(&mut b_in, b"B").unwrap();
        drop((a_in, b_in));
        let (a, b): (OwnedFd, OwnedFd) = (a.into(), b.into());
        // Each wants the other one's number, and a third stays where it is.
        let (for_a, for_b) = (b.as_raw_fd(), a.as_raw_fd());
        let mut wanted = request(&["sh", "-c", &format!("cat <&{for_a}; cat <&{for_b}")]);
        wanted.inherit = vec![(for_a, a), (for_b, b)];
        let (text, _) = run(wanted, caps);
        assert_eq!(text, "AB");
    }
}

#[test]
fn what_keeps_a_program_from_running_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let lost = file("lost", "#!/no/such/interpreter\n", 0o755);
    let text = file("text", "hello\n", 0o755);
    for caps in variants() {
        let what = |argv0: &str| {
            let error = failure(&request(&[argv0]), caps);
            (error.errno, error.what)
        };
        assert_eq!(
            what("no-such-program"),
            (libc::ENOENT, "exec no-such-program (not found on PATH)".into())
        );
        assert_eq!(what("/no/such"), (libc::ENOENT, "exec /no/such (no such file on this node)".into()));
        let (errno, words) = what(&plain);
        assert_eq!(errno, libc::EACCES);
        assert!(words.contains("not executable"), "{words}");
        let (errno, words) = what(&lost);
        assert_eq!(errno, libc::ENOENT);
        assert!(words.contains("interpreter"), "{words}");
        assert_eq!(what(&text).0, libc::ENOEXEC);

        let mut elsewhere = request(&["true"]);
        elsewhere.cwd = "/no/such/dir".into();
        let error = failure(&elsewhere, caps);
        assert_eq!(error.what, "chdir /no/such/dir (no such directory on this node)");
        assert_eq!(failure(&request(&[]), caps).errno, libc::EINVAL);
        assert_eq!(failure(&request(&["true", "a\0b"]), caps).errno, libc::EINVAL);
        let mut twice = request(&["true"]);
        twice.inherit =
            vec![(5, fs::File::open("/dev/null").unwrap().into()), (5, fs::File::open("/").unwrap().into())];
        assert_eq!(failure(&twice, caps).errno, libc::EINVAL);
    }
}

#[test]
fn path_is_the_childs_own_and_a_refused_place_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a"), dir.path().join("b"));
    for (place, mode) in [(&first, 0o644), (&second, 0o755)] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("prog"), "#!/bin/sh\necho ran $0\n").unwrap();
        fs::set_permissions(place.join("prog"), fs::Permissions::from_mode(mode)).unwrap();
    }
    for caps in variants() {
        let mut wanted = request(&["prog"]);
        wanted.env = vec![("PATH".into(), format!("{}:{}:/bin", first.display(), second.display()).into())];
        assert_eq!(run(wanted, caps).0, format!("ran {}\n", second.join("prog").display()));
        let mut refused = request(&["prog"]);
        refused.env = vec![("PATH".into(), first.display().to_string().into())];
        assert_eq!(failure(&refused, caps).errno, libc::EACCES);
    }
}

#[test]
fn the_start_does_not_wait_for_the_program() {
    for caps in variants() {
        let request = request(&["true"]);
        let (record, mut starting) = begin(&request, caps).unwrap();
        assert!(record.start_time > 0);
        assert_eq!(record.pidfd.is_some(), caps.pidfd);
        let end = Instant::now() + Duration::from_secs(10);
        let outcome = loop {
            if let Some(outcome) = starting.outcome() {
                break outcome;
            }
            assert!(Instant::now() < end, "no word from the child");
            poll::readable(starting.as_fd(), Some(Duration::from_secs(1))).unwrap();
        };
        assert_eq!(outcome, Ok(()));
        assert_eq!(reap_blocking(record.pid), Waited::Ended(ExitKind::Code(0)));
        assert_eq!(peek(record.pid), Waited::NotOurs);
    }
}

#[test]
fn death_follows_the_thread_that_spawned() {
    for caps in variants() {
        let mut wanted = request(&["sleep", "1000"]);
        wanted.death_signal = Some(libc::SIGKILL);
        let record = std::thread::spawn(move || spawn(&wanted, caps).unwrap()).join().unwrap();
        assert_eq!(reap_blocking(record.pid), Waited::Ended(ExitKind::Signal { no: 9, core: false }));
    }
}

#[test]
fn an_end_by_a_real_time_signal_is_told() {
    let record = spawn(&request(&["sh", "-c", "kill -40 $$"]), Capabilities::probe()).unwrap();
    assert_eq!(reap_blocking(record.pid), Waited::Ended(ExitKind::Signal { no: 40, core: false }));
}

#[test]
fn a_full_table_of_descriptors_is_named() {
    for caps in variants() {
        let old = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 64, old.1).unwrap();
        let mut hoard = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let none = spawn(&request(&["true"]), caps).unwrap_err();
        // One pipe fits, and then the child has no room for /dev/null.
        hoard.truncate(hoard.len() - 2);
        let child = spawn(&request(&["true"]), caps).map(|record| reap_blocking(record.pid));
        drop(hoard);
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, old.0, old.1).unwrap();
        assert_eq!(
            none,
            SpawnError { errno: libc::EMFILE, what: "pipe for the start (open files: limit 64)".into() }
        );
        let child = child.unwrap_err();
        assert_eq!(
            (child.errno, child.what.as_str()),
            (libc::EMFILE, "open /dev/null (open files: limit 64)")
        );
    }
}
