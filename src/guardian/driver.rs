//! The loop: wait, build events, ask the machine, carry out its effects.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::GuardianError;
use super::agent::{Agent, Recipe, Shared};
use crate::domain::exit::ExitKind;
use crate::domain::guardian::{Effect, Event, Guardian, Numbers, SignalInfo, Start, ToAgent};
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::time::Now;
use crate::sys::capability::Capabilities;
use crate::sys::lock::Lock;
use crate::sys::page::Page;
use crate::sys::poll::{self, Watch};
use crate::sys::signals::{self, Received, Signals};
use crate::sys::timer::Timer;
use crate::sys::tree::{self, Owned, Survivor};
use crate::sys::wait::{self, Waited};
use crate::sys::{clock, fence, files, memfd, process, procfs, random};

/// Walks of one look: each meets what was forked during the one before.
const WALKS: usize = 8;

/// HUP, INT, QUIT, USR1, USR2, TERM, CONT: handed on.
const FORWARDED: [i32; 7] = [1, 2, 3, 10, 12, 15, 18];
/// A child ended.
const CHLD: i32 = 17;
/// Stands for "unknown" where processes could not be listed: not nobody.
const UNKNOWN: u32 = 0;

/// What a driver is made from.
pub(super) struct Setup<'a> {
    pub(super) recipe: Recipe,
    pub(super) config: &'a [u8],
    pub(super) lock: Option<&'a Lock>,
    pub(super) caps: Capabilities,
    pub(super) numbers: Numbers,
}

/// The guardian's hands.
pub(super) struct Driver<'a> {
    recipe: Recipe,
    config: OwnedFd,
    lock: Option<&'a Lock>,
    caps: Capabilities,
    say: &'a mut dyn FnMut(&dyn Display),
    machine: Guardian,
    signals: Signals,
    timer: Timer,
    page: Page,
    agent: Option<Agent>,
    /// Children that were here before us (a script's `monitor & exec relight run …`): not ours to kill.
    inherited: Owned,
    /// Whom the last kill walk met alive.
    walked: Vec<Survivor>,
    /// Listing processes failed in the last kill walk.
    blind: bool,
}

impl<'a> Driver<'a> {
    pub(super) fn new(setup: Setup<'a>, say: &'a mut dyn FnMut(&dyn Display)) -> Result<Self, GuardianError> {
        let failed = |what| move |source: io::Error| GuardianError::Call { what, source };
        let inherited = procfs::children(process::own_pid(), setup.caps).map_err(failed("list children"))?;
        process::become_subreaper().map_err(failed("become subreaper"))?;
        signals::hold_off_strays();
        let mut caught = FORWARDED.to_vec();
        caught.push(CHLD);
        Ok(Self {
            config: memfd::with_bytes("relight-config", setup.config)
                .map_err(failed("pass on the configuration"))?,
            recipe: setup.recipe,
            lock: setup.lock,
            caps: setup.caps,
            say,
            machine: Guardian::new(random::u64(), setup.numbers).of_user(files::my_uid()),
            signals: Signals::catch(&caught).map_err(failed("catch signals"))?,
            timer: Timer::new().map_err(failed("make a timer"))?,
            page: Page::create()?,
            agent: None,
            inherited: inherited.into_iter().collect(),
            walked: Vec::new(),
            blind: false,
        })
    }

    /// Until the machine says exit.
    pub(super) fn run(mut self) -> i32 {
        loop {
            for event in self.wait() {
                if let Some(code) = self.feed(event) {
                    return i32::from(code);
                }
            }
        }
    }

    /// Sleeps until something happened or is due, and says what. A tick always comes last: it is idempotent, and a
    /// child's end or an early wake-up may have made something possible.
    fn wait(&mut self) -> Vec<Event> {
        let due = self.machine.deadline();
        let timed = self.timer.set(due).is_ok();
        let mut watches = vec![Watch::read(self.signals.as_fd()), Watch::read(self.timer.as_fd())];
        if let Some(agent) = &self.agent {
            watches.extend(agent.ended().map(Watch::read));
            watches.extend(agent.starting().map(Watch::read));
            watches.extend(
                agent.socket().map(|(fd, waits)| if waits { Watch::read_write(fd) } else { Watch::read(fd) }),
            );
        }
        if !timed || poll::wait(&watches, None).is_err() {
            // The kernel has no memory to wait with: everything is looked at below all the same, a little later.
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut events: Vec<Event> = self.signals.pending().iter().filter_map(signal).collect();
        events.extend(self.listen());
        events.push(Event::Tick);
        events
    }

    /// What the agent did and said. Its end is looked for first and told last: what it said before it ended is in the
    /// socket by then.
    fn listen(&mut self) -> Vec<Event> {
        let Some(agent) = &mut self.agent else { return Vec::new() };
        let mut events = Vec::new();
        let ended = wait::reap(agent.pid());
        let started = agent.outcome();
        match &started {
            Some(Ok(())) => events.push(Event::AgentStarted { pid: u32::try_from(agent.pid()).unwrap_or(0) }),
            Some(Err(error)) => {
                let kind = ExitKind::NeverStarted { errno: error.errno, what: error.what.clone() };
                events.push(Event::AgentExited { kind });
            }
            None => {}
        }
        agent.flush();
        events.extend(agent.words().into_iter().map(Event::AgentSays));
        if matches!(started, Some(Err(_))) {
            // It never ran; what there was ends by itself, and the sweep reaps it.
            self.agent = None;
            return events;
        }
        let kind = match ended {
            Waited::Running => return events,
            Waited::Ended(kind) => kind,
            // Reaped by nobody but us: cannot be, and is an end all the same.
            Waited::NotOurs => ExitKind::Lost,
        };
        self.agent = None;
        events.push(Event::AgentExited { kind });
        events
    }

    /// One event and all that follows from it at once; the exit code if it was the last.
    fn feed(&mut self, event: Event) -> Option<u8> {
        let mut queue = VecDeque::from([(clock::now(), event)]);
        while let Some((now, event)) = queue.pop_front() {
            let mut out = Outbox::default();
            self.machine.handle(now, event, &mut out);
            for effect in out.take_effects() {
                if let Effect::Exit(code) = effect {
                    return Some(code);
                }
                queue.extend(self.perform(effect));
            }
        }
        None
    }

    fn perform(&mut self, effect: Effect) -> Option<(Now, Event)> {
        match effect {
            Effect::ForkAgent(start) => return self.fork(start).map(|event| (clock::now(), event)),
            Effect::KillTree => match tree::kill_descendants(&self.inherited, self.caps) {
                Ok(walked) => (self.walked, self.blind) = (walked, false),
                Err(_) => self.blind = true,
            },
            Effect::Reap => return Some((clock::now(), Event::Swept { survivors: self.reap() })),
            // What could not be listed is tried again at the next deadline, 0.1 s later.
            Effect::KillRanks => drop(fence::kill_ranks(&self.inherited, self.caps)),
            Effect::ReadGrant => {
                // The clock first: a grant renewed between the two looks is seen as renewed.
                let now = clock::now();
                let (until, tick) = (self.page.grant(), self.page.tick());
                return Some((now, Event::GrantIs { until, tick }));
            }
            Effect::Tell(word) => self.tell(&word),
            Effect::Say(said) => (self.say)(&said),
            Effect::Exit(_) => {}
        }
        None
    }

    fn tell(&mut self, word: &ToAgent) {
        if let Some(agent) = &mut self.agent {
            agent.tell(word);
        }
    }

    /// `None`: how it went is told by the agent's start.
    fn fork(&mut self, start: Start) -> Option<Event> {
        self.page.reset(start.incarnation);
        let shared = Shared { config: &self.config, page: &self.page, lock: self.lock.map(Lock::fd) };
        match Agent::fork(&self.recipe, &shared, start, self.caps) {
            Ok(agent) => {
                self.agent = Some(agent);
                None
            }
            Err(error) => {
                let kind = ExitKind::NeverStarted { errno: error.errno, what: error.what };
                Some(Event::AgentExited { kind })
            }
        }
    }

    /// Reaps what has ended; who is left below.
    fn reap(&mut self) -> Vec<u32> {
        // The agent's own status is taken by `listen`; while a sweep kills it, it is somebody who is left.
        let agent = self.agent.as_ref().map(Agent::pid);
        let mut owned = self.inherited.clone();
        if let Some(pid) = agent {
            owned.add(pid);
        }
        let walked = std::mem::take(&mut self.walked);
        let Ok(mut reaped) = tree::reap_orphans(&owned, self.caps) else { return vec![UNKNOWN] };
        // Who ended may have forked just before: only a walk that finds nobody says that nobody is left.
        for _ in 0..WALKS {
            if reaped.is_empty() || !reaped.left.is_empty() {
                break;
            }
            let Ok(again) = tree::reap_orphans(&owned, self.caps) else { return vec![UNKNOWN] };
            reaped = again;
        }
        if !reaped.is_empty() && reaped.left.is_empty() {
            return vec![UNKNOWN];
        }
        let left = tree::survivors(walked, reaped.left);
        let left =
            left.into_iter().map(|survivor| survivor.pid).filter(|pid| Some(*pid) != agent).chain(agent);
        let mut left: Vec<u32> = left.filter_map(|pid| u32::try_from(pid).ok()).collect();
        if self.blind {
            left.push(UNKNOWN);
        }
        left
    }
}

/// A signal to hand on; a child's end is none, it only wakes.
fn signal(received: &Received) -> Option<Event> {
    if received.signal == CHLD {
        return None;
    }
    Some(Event::Signal(SignalInfo {
        no: u8::try_from(received.signal).ok()?,
        code: received.code,
        pid: received.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        uid: received.uid.unwrap_or(0),
    }))
}
