//! The process thread: the one thread that starts, signals, reaps and sweeps, and holds the line to the guardian.
//!
//! It is the agent's main thread, because death signals follow the thread that forked. It never waits for anything
//! but its `poll`: a start reports through a pipe, an end through a pidfd (or SIGCHLD), and a process that is
//! stopped or stuck in the kernel only lacks its event. It alone starts processes, so its table is the registry of
//! owned children, with no lock.
//!
//! A rank that has ended stays a zombie until it is swept or released: as long as it is there, its number names its
//! group and nobody else's.

mod child;
mod guardian;
mod table;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::Duration;

use crate::domain::exit::ExitKind;
use crate::domain::ids::{LocalRank, Op};
use crate::domain::time::{BootTime, earlier};
use crate::ipc::board::Home;
use crate::sys::capability::Capabilities;
use crate::sys::lock::LockShare;
use crate::sys::poll::{self, Watch};
use crate::sys::seqpacket::Packets;
pub use crate::sys::signals::Received;
use crate::sys::signals::{Signals, number};
use crate::sys::spawn::SpawnRequest;
pub use crate::sys::tree::Survivor;
use crate::sys::tree::{self, Owned};
use crate::sys::wake::Wake;
use crate::sys::{clock, process};
use guardian::Link;
use table::Table;

/// How long the last messages to the guardian may take before the process ends without them.
const FLUSH: Duration = Duration::from_secs(1);
/// How long everything below is killed and reaped once the guardian is gone.
const ORPHANED: Duration = Duration::from_secs(2);

/// How long the children may be left alone after a look at all of them took as long.
const LONGEST_REST: Duration = Duration::from_millis(50);
/// Commands are carried out for so long at most before anything else is looked at.
const TURN: Duration = Duration::from_millis(20);

/// One worker process: store, logs, probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// Whom a signal reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The rank's first process.
    Leader,
    /// Every process of the rank's group, also when the first one has ended. A rank without a session of its own
    /// has no group: its first process.
    Group,
    /// The first process, if it has a handler for that signal; else nobody.
    IfCaught,
}

/// What the process thread shall do.
#[derive(Debug)]
pub enum Command {
    /// Start a rank: `Spawned` or `SpawnFailed` follows. Refused with EBUSY while the same rank is there
    /// (not swept, not released) or a sweep is under way.
    Spawn {
        /// Comes back with the outcome.
        op: Op,
        /// Which.
        rank: LocalRank,
        /// What.
        request: Box<SpawnRequest>,
    },
    /// Send a signal. To whom there is none, it is lost.
    Signal {
        /// Which rank.
        rank: LocalRank,
        /// How much of it.
        scope: Scope,
        /// The number.
        signal: i32,
    },
    /// Start a worker; an earlier one of the same id is killed and forgotten first. A start that fails
    /// is told as `WorkerExited` with `NeverStarted`.
    SpawnWorker {
        /// Which.
        id: WorkerId,
        /// What.
        request: Box<SpawnRequest>,
    },
    /// Kill a worker and forget it: nothing more is told of it, and no sweep waits for it.
    KillWorker {
        /// Which.
        id: WorkerId,
    },
    /// SIGKILL every rank and every descendant that is no worker (nor below one), again and again until nothing is
    /// left: `Swept` follows. Every rank that had not ended tells its `RankExited` before.
    Sweep {
        /// Comes back with the outcome.
        op: Op,
        /// After so long the survivors are told.
        patience: Duration,
    },
    /// Reap a rank that has ended, without a sweep: its group is of no interest any more. Ignored while it runs.
    Release {
        /// Which.
        rank: LocalRank,
    },
    /// A message for the guardian; in order.
    ToGuardian(Vec<u8>),
    /// End the process with this code, once the guardian's messages are written.
    Exit(i32),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The rank's program runs.
    Spawned {
        /// From the command.
        op: Op,
        /// Which.
        rank: LocalRank,
        /// Its pid; with a session of its own also the group's.
        pid: i32,
    },
    /// The rank's program does not run.
    SpawnFailed {
        /// From the command.
        op: Op,
        /// Which.
        rank: LocalRank,
        /// The errno of the call that failed.
        errno: i32,
        /// The call, and the limit that it met or what to do.
        what: String,
    },
    /// A rank that was `Spawned` has ended. It stays a zombie until swept or released.
    RankExited {
        /// Which.
        rank: LocalRank,
        /// Its pid.
        pid: i32,
        /// How (`Lost` if somebody else took its status).
        kind: ExitKind,
        /// When it was seen.
        at: BootTime,
    },
    /// A sweep is over; the ranks' places are free, but for those of survivors, which free themselves
    /// (with `RankExited`) when they end.
    Swept {
        /// From the command.
        op: Op,
        /// What SIGKILL did not end in time. One with pid 0 and state `?`: it could not be told who is left.
        survivors: Vec<Survivor>,
    },
    /// A worker ended that nobody killed.
    WorkerExited {
        /// Which.
        id: WorkerId,
        /// How.
        kind: ExitKind,
    },
    /// One message.
    FromGuardian(Vec<u8>),
    /// A signal reached the agent itself.
    Signal(Received),
}

/// Gives commands; any thread may hold one.
#[derive(Clone, Debug)]
pub struct Processes {
    commands: mpsc::Sender<Command>,
    wake: Wake,
}

impl Processes {
    /// Hands a command over; never blocks. After the thread's end it is lost, as the process is.
    pub fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.wake.wake();
        }
    }
}

/// The other end of [`Processes`].
#[derive(Debug)]
pub struct Inbox {
    commands: mpsc::Receiver<Command>,
    wake: Wake,
}

/// Both ends of the way in.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn channel() -> io::Result<(Processes, Inbox)> {
    let wake = Wake::new()?;
    let (sender, receiver) = mpsc::channel();
    Ok((Processes { commands: sender, wake: wake.clone() }, Inbox { commands: receiver, wake }))
}

/// What the process thread needs.
#[derive(Debug)]
pub struct Config {
    /// What may be used.
    pub caps: Capabilities,
    /// The line to the guardian: its end is ours.
    pub guardian: Option<Packets>,
    /// Our share of the node's lock: its file is removed when the guardian is gone, who would have done so.
    pub lock: Option<LockShare>,
    /// The ranks' pages: gone when this process ends.
    pub home: Option<Home>,
}

/// The signals that are told (SIGCHLD is our own affair).
const TOLD: [i32; 6] =
    [number::SIGTERM, number::SIGINT, number::SIGHUP, number::SIGUSR1, number::SIGUSR2, number::SIGCONT];

/// The thread's state; lives on the thread that runs it.
#[derive(Debug)]
pub struct ProcessThread<F> {
    inbox: Inbox,
    signals: Signals,
    guardian: Option<Link>,
    lock: Option<LockShare>,
    _home: Option<Home>,
    table: Table<F>,
    exit: Option<(i32, BootTime)>,
    /// The children are not looked at before.
    rest: BootTime,
    /// Commands wait: the next turn comes at once.
    more: bool,
}

impl<F: Fn(ProcessEvent) + Send> ProcessThread<F> {
    /// Makes this process a subreaper, and catches SIGCHLD, TERM, INT, HUP (unless ignored), USR1, USR2 and CONT
    /// from now on. `events` is called on the process thread and must not block.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new(config: Config, inbox: Inbox, events: F) -> io::Result<Self> {
        process::become_subreaper()?;
        let caught: Vec<i32> = TOLD.into_iter().chain([number::SIGCHLD]).collect();
        Ok(Self {
            inbox,
            signals: Signals::catch(&caught)?,
            guardian: config.guardian.map(Link::new),
            lock: config.lock,
            _home: config.home,
            table: Table::new(config.caps, events),
            exit: None,
            rest: BootTime(0),
            more: false,
        })
    }

    /// Works until the process shall end, and returns its code: that of `Exit`, or 1 when the guardian is gone
    /// (everything below is killed then, workers too). Must run on the thread that lives as long as the process.
    pub fn run(mut self) -> i32 {
        loop {
            let ready = self.wait();
            if ready.signals {
                self.take_signals();
            }
            let begun = clock::boot();
            if (ready.child || self.table.child_changed) && begun >= self.rest {
                self.table.settle();
                // A look at thousands takes a while, and one end of thousands follows another: what ends meanwhile
                // is seen together.
                let now = clock::boot();
                self.rest = now.after(now.since(begun).min(LONGEST_REST));
            }
            self.take_commands();
            self.table.sweep();
            if self.exchange_with_guardian().is_err() {
                let _ = tree::kill_all(&Owned::new(), self.table.caps, ORPHANED);
                if let Some(lock) = self.lock {
                    // A lock file that stays is no harm: it is free.
                    let _ = lock.remove();
                }
                return 1;
            }
            if let Some((code, deadline)) = self.exit {
                let written = self.guardian.as_ref().is_none_or(Link::is_written);
                if written || clock::boot() >= deadline {
                    return code;
                }
            }
        }
    }

    /// As [`run`](Self::run), and ends the process with the code at once.
    pub fn run_to_exit(self) -> ! {
        let code = self.run();
        process::exit_now(code)
    }

    fn wait(&self) -> Ready {
        let mut watches = vec![Watch::read(self.inbox.wake.as_fd()), Watch::read(self.signals.as_fd())];
        if let Some(link) = &self.guardian {
            watches.push(link.watch());
        }
        let first_child = watches.len();
        let now = clock::boot();
        if now >= self.rest {
            watches.extend(self.table.descriptors().map(Watch::read));
        }
        let timeout = self.deadline(now).map(|deadline| deadline.since(now));
        match poll::wait(&watches, timeout) {
            Ok(ready) => Ready {
                signals: ready.get(1).copied().unwrap_or(true),
                child: ready.iter().skip(first_child).any(|ready| *ready),
            },
            Err(_) => {
                // No memory, or more descriptors than the limit: look everywhere, but not in a tight loop.
                let own: BorrowedFd<'_> = self.inbox.wake.as_fd();
                let _ = poll::readable(own, Some(Duration::from_millis(10)));
                Ready { signals: true, child: true }
            }
        }
    }

    fn deadline(&self, now: BootTime) -> Option<BootTime> {
        if self.more {
            return Some(now);
        }
        let own = earlier(self.exit.map(|(_, deadline)| deadline), (now < self.rest).then_some(self.rest));
        earlier(self.table.deadline(), own)
    }

    fn take_signals(&mut self) {
        for received in self.signals.pending() {
            if received.signal == number::SIGCHLD {
                self.table.child_changed = true;
            } else {
                self.table.tell(ProcessEvent::Signal(received));
            }
        }
    }

    fn take_commands(&mut self) {
        self.inbox.wake.clear();
        let begun = clock::boot();
        self.more = false;
        while let Ok(command) = self.inbox.commands.try_recv() {
            match command {
                Command::Spawn { op, rank, request } => self.table.spawn(op, rank, &request),
                Command::Signal { rank, scope, signal } => self.table.signal(rank, scope, signal),
                Command::SpawnWorker { id, request } => self.table.spawn_worker(id, &request),
                Command::KillWorker { id } => self.table.kill_worker(id),
                Command::Sweep { op, patience } => self.table.start_sweep(op, patience),
                Command::Release { rank } => self.table.release(rank),
                Command::ToGuardian(bytes) => {
                    if let Some(link) = &mut self.guardian {
                        link.queue(bytes);
                    }
                }
                Command::Exit(code) => {
                    self.exit.get_or_insert((code, clock::boot().after(FLUSH)));
                }
            }
            // Thousands of starts take seconds; signals and the guardian do not wait for them.
            if clock::boot().since(begun) >= TURN {
                self.more = true;
                return;
            }
        }
    }

    fn exchange_with_guardian(&mut self) -> Result<(), guardian::Gone> {
        let Some(link) = &mut self.guardian else { return Ok(()) };
        let table = &self.table;
        link.exchange(|bytes| table.tell(ProcessEvent::FromGuardian(bytes)))
    }
}

struct Ready {
    signals: bool,
    child: bool,
}

#[cfg(test)]
mod tests;
