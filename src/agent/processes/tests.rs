//! Real processes. Each test runs with everything the kernel has, and with each newer call forced off; each needs a
//! process of its own (nextest gives it one), because a process thread reaps every child that is not its own.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::libc;

use super::*;
use crate::sys::procfs;
use crate::sys::seqpacket::Received as Packet;
use crate::sys::spawn::Nofile;
use crate::sys::wait::{self, Waited};

const LIMIT: Duration = Duration::from_secs(30);
const R0: LocalRank = LocalRank(0);

fn variants() -> [Capabilities; 4] {
    let all = Capabilities::probe();
    [all, all.without_pidfd(), all.without_children(), Capabilities::none()]
}

struct Harness {
    caps: Capabilities,
    processes: Processes,
    events: Receiver<ProcessEvent>,
    seen: Vec<ProcessEvent>,
    guardian: Option<Packets>,
    thread: Option<JoinHandle<i32>>,
}

impl Harness {
    fn new(caps: Capabilities) -> Self {
        let (ours, theirs) = Packets::pair().unwrap();
        let (processes, inbox) = channel().unwrap();
        let (sender, events) = mpsc::channel();
        let made = ProcessThread::new(
            Config { caps, guardian: Some(theirs), lock: None, home: None },
            inbox,
            move |event| {
                let _ = sender.send(event);
            },
        )
        .unwrap();
        let thread = Some(std::thread::spawn(move || made.run()));
        Self { caps, processes, events, seen: Vec::new(), guardian: Some(ours), thread }
    }

    fn spawn(&self, rank: u32, script: &str) {
        let request = Box::new(shell(script));
        self.processes.send(Command::Spawn { op: Op(u64::from(rank)), rank: LocalRank(rank), request });
    }

    fn spawn_running(&mut self, rank: u32, script: &str) -> i32 {
        self.spawn(rank, script);
        self.until("Spawned", |event| match event {
            ProcessEvent::Spawned { rank: is, pid, .. } if is.0 == rank => Some(*pid),
            _ => None,
        })
    }

    /// Spawns a rank whose script prints a line when it is ready.
    fn spawn_ready(&mut self, rank: u32, script: &str) -> i32 {
        let (read, write) = io::pipe().unwrap();
        let mut request = Box::new(shell(script));
        request.stdout = Some(write.into());
        self.processes.send(Command::Spawn { op: Op(0), rank: LocalRank(rank), request });
        assert!(
            poll::readable(OwnedFd::from(read).as_fd(), Some(LIMIT)).unwrap(),
            "rank {rank} is not ready"
        );
        self.until("Spawned", |event| match event {
            ProcessEvent::Spawned { rank: is, pid, .. } if is.0 == rank => Some(*pid),
            _ => None,
        })
    }

    fn signal(&self, scope: Scope, signal: i32) {
        self.processes.send(Command::Signal { rank: R0, scope, signal });
    }

    fn sweep(&mut self, patience: Duration) -> Vec<Survivor> {
        self.processes.send(Command::Sweep { op: Op(77), patience });
        self.until("Swept", |event| match event {
            ProcessEvent::Swept { op: Op(77), survivors } => Some(survivors.clone()),
            _ => None,
        })
    }

    /// Waits for the first event, among those not asked for yet, that fits; the ones before it stay.
    fn until<T>(&mut self, what: &str, mut fits: impl FnMut(&ProcessEvent) -> Option<T>) -> T {
        if let Some((at, found)) =
            self.seen.iter().enumerate().find_map(|(at, event)| Some((at, fits(event)?)))
        {
            self.seen.remove(at);
            return found;
        }
        let end = Instant::now() + LIMIT;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(event) => match fits(&event) {
                    Some(found) => return found,
                    None => self.seen.push(event),
                },
                Err(_) => panic!("no {what} ({:?}); seen: {:#?}", self.caps, self.seen),
            }
        }
    }

    fn exit_of(&mut self, rank: u32) -> ExitKind {
        self.until("RankExited", |event| match event {
            ProcessEvent::RankExited { rank: is, kind, .. } if is.0 == rank => Some(kind.clone()),
            _ => None,
        })
    }

    fn failure_of(&mut self, rank: u32) -> (i32, String) {
        self.until("SpawnFailed", |event| match event {
            ProcessEvent::SpawnFailed { rank: is, errno, what, .. } if is.0 == rank => {
                Some((*errno, what.clone()))
            }
            _ => None,
        })
    }

    fn worker_exit(&mut self, id: u32) -> ExitKind {
        self.until("WorkerExited", |event| match event {
            ProcessEvent::WorkerExited { id: is, kind } if is.0 == id => Some(kind.clone()),
            _ => None,
        })
    }

    fn end(mut self) -> i32 {
        self.processes.send(Command::Exit(5));
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Harness {
    /// Whatever a test leaves is killed, also when it failed.
    fn drop(&mut self) {
        self.guardian = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = tree::kill_all(&Owned::new(), Capabilities::probe(), LIMIT);
    }
}

fn shell(script: &str) -> SpawnRequest {
    SpawnRequest {
        argv: ["sh", "-c", script].map(Into::into).to_vec(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/".into(),
        session: true,
        death_signal: Some(libc::SIGKILL),
        ..SpawnRequest::default()
    }
}

fn own_children() -> Vec<i32> {
    procfs::children(process::own_pid(), Capabilities::probe()).unwrap()
}

fn eventually(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + LIMIT;
    while let Err(last) = check() {
        assert!(Instant::now() < end, "{what}: {last}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn children_become(wanted: &[i32]) {
    eventually("our children", || {
        let now = own_children();
        if now == wanted { Ok(()) } else { Err(format!("{now:?} instead of {wanted:?}")) }
    });
}

const KILLED: ExitKind = ExitKind::Signal { no: 9, core: false };

#[test]
fn two_hundred_orphans_cost_no_rank_its_status() {
    // 50 orphans each: a child forks one and ends, so that it falls to us and ends there.
    let script = |code: u32| {
        format!(
            "exec perl -e 'for (1..50) {{ if (!fork) {{ if (!fork) {{ select undef, undef, undef, rand 0.05; exit 7 }} \
             exit 3 }} }} select undef, undef, undef, rand 0.05; exit {code}'"
        )
    };
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let ranks: BTreeMap<u32, i32> =
            (0..4).map(|rank| (rank, harness.spawn_running(rank, &script(10 + rank)))).collect();
        for rank in ranks.keys() {
            assert_eq!(harness.exit_of(*rank), ExitKind::Code(10 + u8::try_from(*rank).unwrap()));
        }
        children_become(&ranks.values().copied().collect::<Vec<_>>());
        assert_eq!(harness.sweep(LIMIT), vec![]);
        children_become(&[]);
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_zombie_leader_hides_no_other_and_keeps_its_group() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        // Two that end after their leader, and one that stays in its group.
        let leader = harness.spawn_ready(
            0,
            "(read x < /proc/self/stat; sleep 0.05; exit 1) & (sleep 0.1; exit 2) & sleep 1000 & echo ready; exit 4",
        );
        assert_eq!(harness.exit_of(0), ExitKind::Code(4));
        eventually("only the sleeper is left beside the zombie", || {
            let now = own_children();
            if now.len() == 2 && now.contains(&leader) { Ok(()) } else { Err(format!("{now:?}")) }
        });
        assert_eq!(procfs::state(leader), Some('Z'));
        harness.signal(Scope::Leader, libc::SIGTERM);
        harness.signal(Scope::Group, libc::SIGTERM);
        children_become(&[leader]);
        assert_eq!(procfs::state(leader), Some('Z'));
        harness.processes.send(Command::Release { rank: R0 });
        children_become(&[]);
        harness.spawn_running(0, "sleep 1000");
        harness.processes.send(Command::Release { rank: R0 });
        harness.signal(Scope::Leader, libc::SIGTERM);
        assert_eq!(harness.exit_of(0), ExitKind::Signal { no: 15, core: false });
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_sweep_leaves_nobody_but_the_workers() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let worker = Box::new(shell("sleep 1000 & exec sleep 1000"));
        harness.processes.send(Command::SpawnWorker { id: WorkerId(1), request: worker });
        // Deaf to TERM, with a descendant in a session of its own two levels down, deaf too.
        harness.spawn_ready(
            0,
            "trap '' TERM; (setsid sh -c 'trap \"\" TERM HUP; (setsid sleep 1000) & echo ready; sleep 1000' &); sleep 1000",
        );
        let stopped = harness.spawn_running(1, "kill -STOP $$");
        eventually("rank 1 is stopped", || match procfs::state(stopped) {
            Some('T') => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let ended = harness.spawn_running(2, "sleep 1000 & exit 9");
        assert_eq!(harness.exit_of(2), ExitKind::Code(9));
        harness.signal(Scope::Group, libc::SIGTERM);
        assert_eq!(harness.sweep(LIMIT), vec![]);
        assert_eq!((harness.exit_of(0), harness.exit_of(1)), (KILLED, KILLED));
        let left = own_children();
        assert_eq!(left.len(), 1, "{left:?} (was {ended})");
        eventually("the worker still has its child", || {
            let below = procfs::children(left[0], Capabilities::probe()).unwrap();
            if below.len() == 1 { Ok(()) } else { Err(format!("{below:?}")) }
        });
        // Its place is free again.
        harness.spawn_running(0, "sleep 1000");
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_sweep_takes_the_shared_memory_of_those_it_kills() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let place = |name: &str| format!("/dev/shm/relight-test-{}-{name}", std::process::id());
        let names = ["group", "session", "asked", "closed"].map(place);
        let [group, session, asked, closed] = &names;
        harness.spawn_ready(
            1,
            &format!(
                "(exec 9<>{group}; exec sleep 1000) & (setsid sh -c 'exec 9<>{session}; exec sleep 1000' &); : >{closed}; \
                 until [ -e {group} ] && [ -e {session} ]; do sleep 0.01; done; echo ready; wait"
            ),
        );
        // Ends at the signal, before the sweep could look.
        harness.spawn_ready(0, &format!("exec 9<>{asked}; echo ready; exec sleep 1000 >/dev/null"));
        harness.signal(Scope::Leader, libc::SIGTERM);
        harness.exit_of(0);
        assert_eq!(harness.sweep(LIMIT), vec![]);
        let left: Vec<&String> = names.iter().filter(|name| std::fs::remove_file(name).is_ok()).collect();
        assert_eq!(left, [closed], "{caps:?}");
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_storm_of_forks_is_swept() {
    // A steady number of processes, each of which lives for one fork only; half of them leave their group each time.
    let comets = |each: &str| {
        format!(
            "exec perl -e 'for (1..6) {{ if (!fork) {{ while (1) {{ exit if fork; {each} }} }} }} $| = 1; print qq(x\\n); sleep 1000'"
        )
    };
    for caps in variants() {
        let mut harness = Harness::new(caps);
        harness.spawn_ready(0, &comets(""));
        // A picture of the whole of /proc takes longer than such a life: there only groups can be caught.
        let own_session = if caps.children { "use POSIX; POSIX::setsid();" } else { "" };
        harness.spawn_ready(1, &comets(own_session));
        let begun = Instant::now();
        assert_eq!(harness.sweep(LIMIT), vec![], "{caps:?}");
        println!("swept in {:?} with {caps:?}", begun.elapsed());
        children_become(&[]);
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn starts_that_fail_are_told_with_their_reason_and_leave_nothing() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let mut request = Box::new(shell(""));
        request.argv = vec!["no-such-program".into()];
        harness.processes.send(Command::Spawn { op: Op(3), rank: R0, request });
        assert_eq!(harness.failure_of(0), (libc::ENOENT, "exec no-such-program (not found on PATH)".into()));
        let mut request = Box::new(shell(""));
        request.argv = vec!["/etc/passwd".into()];
        harness.processes.send(Command::Spawn { op: Op(3), rank: R0, request });
        assert_eq!(harness.failure_of(0).0, libc::EACCES);
        let mut request = Box::new(shell(""));
        request.argv = vec!["no-such-worker".into()];
        harness.processes.send(Command::SpawnWorker { id: WorkerId(1), request });
        assert!(matches!(harness.worker_exit(1), ExitKind::NeverStarted { errno: libc::ENOENT, .. }));
        children_become(&[]);
        harness.spawn_running(0, "sleep 1000");
        harness.spawn(0, "true");
        assert_eq!(harness.failure_of(0).0, libc::EBUSY);
        assert_eq!(harness.sweep(LIMIT), vec![]);
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_limit_of_sixty_four_files_fails_one_rank_and_not_the_others() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let resource = nix::sys::resource::Resource::RLIMIT_NOFILE;
        let (soft, hard) = nix::sys::resource::getrlimit(resource).unwrap();
        harness.spawn_running(0, "sleep 1000");
        nix::sys::resource::setrlimit(resource, 64, hard).unwrap();
        let mut hoard = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let mut request = Box::new(shell("ulimit -n >&2"));
        request.nofile = Some(Nofile { soft, hard });
        harness.processes.send(Command::Spawn { op: Op(1), rank: LocalRank(1), request });
        let failed = harness.failure_of(1);
        drop(hoard);
        nix::sys::resource::setrlimit(resource, soft, hard).unwrap();
        // A walk of the thread's own may have had one open while the table was filled.
        assert_eq!(failed.0, libc::EMFILE);
        assert!(failed.1.ends_with("(open files: limit 64)"), "{}", failed.1);
        harness.spawn_running(1, "exit 3");
        assert_eq!(harness.exit_of(1), ExitKind::Code(3));
        assert_eq!(harness.sweep(LIMIT), vec![]);
        assert_eq!(harness.exit_of(0), KILLED);
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn a_signal_reaches_only_a_rank_that_handles_it() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let deaf = harness.spawn_running(0, "exec sleep 1000");
        harness.signal(Scope::IfCaught, libc::SIGUSR1);
        // Commands are done in order: when the second start is told, the signal was decided on.
        harness.spawn_running(1, "exec sleep 1000");
        assert!(procfs::state(deaf).is_some_and(|state| state != 'Z'));
        assert_eq!(harness.sweep(LIMIT), vec![]);
        harness.exit_of(0);
        harness.spawn_ready(0, "trap 'exit 33' USR1; echo ready; while :; do sleep 0.01; done");
        harness.signal(Scope::IfCaught, libc::SIGUSR1);
        assert_eq!(harness.exit_of(0), ExitKind::Code(33));
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn signals_to_the_agent_itself_are_told_with_their_sender() {
    let mut harness = Harness::new(Capabilities::probe());
    process::kill(process::own_pid(), libc::SIGTERM).unwrap();
    let received = harness.until("Signal", |event| match event {
        ProcessEvent::Signal(received) => Some(*received),
        _ => None,
    });
    assert_eq!((received.signal, received.pid), (libc::SIGTERM, Some(process::own_pid())));
    assert_eq!(harness.end(), 5);
}

#[test]
fn a_killed_worker_is_forgotten_and_a_new_one_takes_its_place() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let start = |script: &str| Command::SpawnWorker { id: WorkerId(1), request: Box::new(shell(script)) };
        harness.processes.send(start("sleep 1000"));
        harness.processes.send(start("exit 6"));
        assert_eq!(harness.worker_exit(1), ExitKind::Code(6));
        harness.processes.send(start("exec sleep 1000"));
        harness.processes.send(Command::KillWorker { id: WorkerId(1) });
        harness.processes.send(Command::KillWorker { id: WorkerId(9) });
        children_become(&[]);
        assert_eq!(harness.sweep(LIMIT), vec![]);
        assert!(harness.seen.is_empty(), "{:?}", harness.seen);
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn impatience_tells_survivors_and_their_places_free_themselves() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        // Freeing this much takes the kernel a while after SIGKILL.
        let pid =
            harness.spawn_ready(0, "exec perl -e '$| = 1; my $x = q(x) x 5e7; print qq(x\\n); sleep 1000'");
        let survivors = harness.sweep(Duration::ZERO);
        if let [survivor] = survivors.as_slice() {
            assert_eq!(survivor.pid, pid);
        } else {
            assert_eq!(survivors, vec![]);
        }
        assert_eq!(harness.exit_of(0), KILLED);
        children_become(&[]);
        harness.spawn_running(0, "sleep 1000");
        assert_eq!(harness.end(), 5);
    }
}

#[test]
fn ranks_die_with_the_process_thread() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let pid = harness.spawn_running(0, "exec sleep 1000");
        assert_eq!(wait::peek(pid), Waited::Running);
        assert_eq!(harness.end(), 5);
        eventually("the rank has its death signal", || match wait::reap(pid) {
            // The harness killed it if the death signal did not: that leaves no child.
            Waited::Ended(KILLED) | Waited::NotOurs => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

#[test]
fn the_guardians_line_carries_messages_both_ways_and_all_of_them_before_the_end() {
    let mut harness = Harness::new(Capabilities::probe());
    let guardian = harness.guardian.take().unwrap();
    assert_eq!(guardian.send(b"hello"), crate::sys::seqpacket::Sent::Done);
    harness.until("FromGuardian", |event| {
        (*event == ProcessEvent::FromGuardian(b"hello".to_vec())).then_some(())
    });
    // More than the socket holds, read only afterwards.
    let bytes = |n: u8| vec![n; 30_000];
    (0..40).for_each(|n| harness.processes.send(Command::ToGuardian(bytes(n))));
    harness.processes.send(Command::Exit(7));
    for n in 0..40 {
        assert!(poll::readable(guardian.as_fd(), Some(LIMIT)).unwrap());
        assert_eq!(guardian.receive(), Packet::Packet(bytes(n)));
    }
    assert_eq!(harness.thread.take().unwrap().join().unwrap(), 7);
    assert_eq!(guardian.receive(), Packet::Closed);
}

#[test]
fn without_its_guardian_the_agent_takes_everything_with_it() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let worker = Box::new(shell("exec sleep 1000"));
        harness.processes.send(Command::SpawnWorker { id: WorkerId(1), request: worker });
        harness.spawn_ready(0, "trap '' TERM; (setsid sh -c 'echo ready; sleep 1000' &); sleep 1000");
        harness.guardian = None;
        assert_eq!(harness.thread.take().unwrap().join().unwrap(), 1);
        assert_eq!(own_children(), Vec::<i32>::new());
    }
}

#[test]
fn four_ranks_start_within_milliseconds() {
    for caps in variants() {
        let mut harness = Harness::new(caps);
        let begun = Instant::now();
        (0..4).for_each(|rank| harness.spawn(rank, "exec sleep 1000"));
        for rank in 0..4 {
            harness.until("Spawned", |event| {
                matches!(event, ProcessEvent::Spawned { rank: is, .. } if is.0 == rank).then_some(())
            });
        }
        let started = begun.elapsed();
        let begun = Instant::now();
        assert_eq!(harness.sweep(LIMIT), vec![]);
        println!("four ranks: started in {started:?}, swept in {:?} with {caps:?}", begun.elapsed());
        assert!(started < Duration::from_secs(2), "{started:?}");
        assert_eq!(harness.end(), 5);
    }
}
