//! The agent's task on the control thread: builds an event, asks the machine, carries out the effects.
//!
//! Nothing here waits for anything but its inbox and its deadline: processes live on the process thread, pipes
//! on the log pump, files in workers.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

pub use super::ends::Files;
use super::ends::{Answer, End, Ends};
use super::events::{Group, State, Teller, Worker};
use super::liveness::Looks;
use super::measured::Measured;
use super::processes::{Command, ProcessEvent, Processes, Scope as ProcessScope};
use super::rendezvous::{Rendezvous, said};
use super::start::{Refused, Starter};
use crate::domain::agent::{Agent, AgentConfig, Effect, Event, Scope, Seat};
use crate::domain::attribution::evidence::survey;
use crate::domain::devices::{Gpus, Word};
use crate::domain::error_file::ErrorNote;
use crate::domain::exit::ExitKind;
use crate::domain::guardian::{SignalInfo, ToAgent};
use crate::domain::health::HealthSpec;
use crate::domain::ids::{Attempt, Incarnation, LocalRank, NodeName, Op, Slot, Term};
use crate::domain::last_words::last_words;
use crate::domain::note::Note;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::rendezvous;
use crate::domain::settings::NodeContext;
use crate::domain::spec::{Offer, RunSpec, StoreHost};
use crate::domain::time::{BootTime, earlier};
use crate::domain::wire::{Survivor, ToCoordinator, World};
use crate::ipc::board::{Boards, HomePaths};
use crate::ipc::guardian::decode;
use crate::logs::pump::{Handle, Tail};
use crate::logs::spec::LogSpec;
use crate::logs::{Source, Stream};
use crate::stacks::protocol::{Found, Target};
use crate::sys::port::PortHold;
use crate::sys::{clock, procfs, random};
use crate::torch_store::Told;

const SIGKILL: i32 = 9;
/// `si_code` of a signal that the kernel sent, as it does for a terminal.
const SI_KERNEL: i32 = 128;
/// Ports of so many attempts are not offered again.
const REMEMBERED_PORTS: usize = 64;

/// What reaches the agent's task.
#[derive(Debug)]
pub enum Input {
    /// For the machine as it is.
    Event(Event),
    /// From the process thread.
    Process(ProcessEvent),
    /// From the store that this node hosts for the ranks of this attempt.
    Store(Attempt, Told),
    /// The log pump gave the last output of a rank that ended.
    Drained {
        /// Its attempt.
        attempt: Attempt,
        /// Which rank.
        local_rank: LocalRank,
        /// How it ended.
        kind: ExitKind,
        /// When.
        at: BootTime,
        /// What it said last; none if the pump is gone.
        tail: Option<Tail>,
    },
    /// What ranks left in their error files.
    ErrorFiles {
        /// Their attempt.
        attempt: Attempt,
        /// Of each that was asked for; none: no answer in time.
        notes: Option<Vec<(LocalRank, Option<ErrorNote>)>>,
    },
    /// From the process that asks the driver of this node's GPUs.
    Gpus(GpuNews),
    /// What was found out about ranks that do not advance.
    Evidence {
        /// Their attempt.
        attempt: Attempt,
        /// One a rank that was asked for, in order.
        found: Vec<Found>,
    },
}

/// What the process that asks the driver of GPUs does.
#[derive(Debug)]
pub enum GpuNews {
    /// It said something.
    Word(Word),
    /// It has said nothing for so long, in milliseconds, and was given up.
    Late(u64),
}

/// What the agent's task asks of the rest of the process.
pub trait Hooks {
    /// Look for a coordinator.
    fn connect(&mut self);
    /// Say this to the coordinator; a frame that cannot go out is a lost link.
    fn send(&mut self, frame: ToCoordinator);
    /// Try whether this address answers, and say so with `Event::Reached`.
    fn try_reach(&mut self, node: NodeName, address: String);
    /// Make this file among the probes of the run directory, and say so with `Event::Probed`.
    fn probe(&mut self, name: String);
    /// Read these error files, those that were changed since (unix milliseconds), and say so with
    /// [`Input::ErrorFiles`], in any case and soon.
    fn error_files(&mut self, attempt: Attempt, files: Files, not_before_ms: u64);
    /// Find out where these ranks stand, with two looks that lie at least so far apart, and say so with
    /// [`Input::Evidence`], in any case and within 5 s. Another look ends the one before.
    fn collect_evidence(&mut self, attempt: Attempt, ranks: Vec<Target>, between: Duration);
    /// Look whether this node is fit, and say so with `Event::Checked`. With an attempt: all there is to look at, and these
    /// programs of the user, each of which may take so long; in any case and soon after. Without: what takes no programs,
    /// some time.
    fn check(&mut self, attempt: Option<Attempt>, programs: HealthSpec);
    /// Whose grants count from here on.
    fn follow(&mut self, term: Term, leader: Incarnation, previous_dead: bool, forever: bool);
    /// An explanation.
    fn note(&mut self, note: Note);
    /// Something about the ranks changed.
    fn changed(&mut self, agent: &Agent);
    /// The agent goes with this code.
    fn exit(&mut self, code: u8);
}

/// What the task is made from.
pub struct Parts {
    /// For the machine.
    pub config: AgentConfig,
    /// What is run.
    pub spec: RunSpec,
    /// Places, output, environment.
    pub context: NodeContext,
    /// Where the ranks' output goes.
    pub logs: LogSpec,
    /// The user who runs us.
    pub uid: u32,
    /// SIGHUP was ignored at the start.
    pub ignore_hangup: bool,
    /// Where heartbeat pages lie; none: there is no place for them.
    pub home: Option<HomePaths>,
    /// The process thread.
    pub processes: Processes,
    /// The log pump.
    pub pump: Handle,
    /// The other end of the inbox.
    pub inbox: UnboundedSender<Input>,
}

/// The task.
pub struct Driver<H> {
    pub(super) parts: Parts,
    pub(super) hooks: H,
    pub(super) agent: Agent,
    pub(super) looks: Looks,
    attempt: Attempt,
    sources: BTreeMap<LocalRank, (Source, i32)>,
    ends: Ends,
    measured: Measured,
    gpus: Gpus,
    hold: Option<PortHold>,
    used_ports: Vec<u16>,
    /// The ranks' rendezvous store, where this node hosts it.
    rendezvous: Rendezvous,
    /// The ranks' pages of the heartbeat board.
    pub(super) boards: Option<Boards>,
    /// This node in the newest world.
    group: Option<Group>,
    began: BootTime,
    /// Since when the next world is waited for.
    idle: BootTime,
}

impl<H: Hooks> Driver<H> {
    /// A task over these parts; nothing happens before [`Driver::run`].
    pub fn new(parts: Parts, hooks: H) -> Self {
        Self {
            agent: Agent::new(parts.config.clone()),
            looks: Looks::new(&parts.context.base_env),
            parts,
            hooks,
            attempt: Attempt(0),
            sources: BTreeMap::new(),
            ends: Ends::default(),
            measured: Measured::default(),
            gpus: Gpus::default(),
            hold: None,
            used_ports: Vec::new(),
            rendezvous: Rendezvous::default(),
            boards: None,
            group: None,
            began: clock::boot(),
            idle: clock::boot(),
        }
    }

    /// Works until the inbox is closed.
    pub async fn run(mut self, mut inbox: UnboundedReceiver<Input>) {
        self.handle(Event::Begin);
        self.hooks.check(None, HealthSpec::default());
        loop {
            let input = match earlier(self.agent.deadline(), self.looks.next) {
                None => inbox.recv().await,
                Some(at) => {
                    let left = at.since(clock::boot());
                    match tokio::time::timeout(left, inbox.recv()).await {
                        Ok(input) => input,
                        Err(_) => Some(Input::Event(Event::Tick)),
                    }
                }
            };
            match input {
                None => return,
                Some(input) => self.take(input),
            }
            self.look();
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.handle(event),
            Input::Process(event) => self.process(event),
            Input::Store(attempt, told) if attempt == self.attempt => match told {
                Told::Reach(reach) => self.handle(Event::StoreSeen { attempt, reach }),
                told => self.hooks.note(Note::RendezvousStore { said: said(&told) }),
            },
            Input::Store(..) => {}
            Input::Drained { attempt, local_rank, kind, at, tail } => {
                let end = self.read(attempt, local_rank, kind, at, tail);
                self.ends.heard(end);
                self.go_on();
            }
            Input::ErrorFiles { attempt, notes } => {
                self.ends.read(attempt, notes);
                self.go_on();
            }
            Input::Gpus(news) => self.hear_of_gpus(news),
            Input::Evidence { attempt, found } => self.collected(attempt, found),
        }
    }

    fn hear_of_gpus(&mut self, news: GpuNews) {
        let changed = match news {
            GpuNews::Word(word) => self.gpus.hear(clock::boot(), word),
            GpuNews::Late(ms) => {
                self.gpus.late(ms);
                true
            }
        };
        if changed {
            self.handle(Event::Checked { attempt: None, results: vec![self.gpus.result()] });
        }
    }

    /// An event for the machine, behind what waits.
    pub(super) fn tell(&self, event: Event) {
        let _ = self.parts.inbox.send(Input::Event(event));
    }

    pub(super) fn handle(&mut self, event: Event) {
        let mut out = Outbox::default();
        let ended = match &event {
            Event::RankExited { kind, summary, .. } if self.parts.context.events => {
                Some((kind.clone(), summary.clone()))
            }
            _ => None,
        };
        self.agent.handle(clock::now(), event, &mut out);
        for note in out.take_notes() {
            if self.parts.context.events {
                self.print_event(&note, ended.as_ref());
            }
            self.hooks.note(note);
        }
        for effect in out.take_effects() {
            self.perform(effect);
        }
        self.plan_look();
        self.hooks.changed(&self.agent);
    }

    /// A rank started or ended: torchrun's event of it.
    fn print_event(&self, note: &Note, ended: Option<&(ExitKind, String)>) {
        let (attempt, rank, state, kind, error) = match (note, ended) {
            (Note::Spawned { attempt, rank, .. }, _) => (*attempt, *rank, State::Start, None, ""),
            (Note::RankEnded { attempt, rank, ours, .. }, Some((kind, summary))) => {
                (*attempt, *rank, State::of(kind, *ours), Some(kind), summary.as_str())
            }
            _ => return,
        };
        let Some((source, pid)) = self.sources.values().find(|(source, _)| source.rank == rank) else {
            return;
        };
        let worker = Worker { rank, local_rank: source.local_rank, pid: *pid };
        let line = self.events(attempt).worker(state, worker, kind, error);
        self.parts.pump.say(Stream::Err, line);
    }

    fn events(&self, attempt: Attempt) -> Teller<'_> {
        Teller {
            spec: &self.parts.spec,
            context: &self.parts.context,
            attempt,
            group: self.group.as_ref(),
            seconds: clock::boot().since(self.began).as_secs(),
        }
    }

    fn process(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Spawned { op, rank, pid } => {
                if let Some((_, known)) = self.sources.get_mut(&rank) {
                    *known = pid;
                }
                self.handle(Event::Spawned { op, pid: u32::try_from(pid).unwrap_or(0) });
            }
            ProcessEvent::SpawnFailed { op, rank, errno, what } => {
                // Its pipes have no writer: let the pump close them.
                self.parts.pump.drain(self.attempt, rank, |_| ());
                self.handle(Event::SpawnFailed { op, errno, what });
            }
            ProcessEvent::RankExited { rank, pid: _, kind, at } => {
                self.handle(self.last_page(self.attempt, rank, &kind));
                self.drain(rank, kind, at);
            }
            ProcessEvent::Swept { op, survivors } => {
                self.idle = clock::boot();
                let survivors = survivors
                    .iter()
                    .map(|s| Survivor { pid: u32::try_from(s.pid).unwrap_or(0), state: s.state });
                let event = Event::Swept { op, survivors: survivors.collect() };
                if let Some(event) = self.ends.sweep(event) {
                    self.handle(event);
                }
                self.hooks.check(None, HealthSpec::default());
            }
            ProcessEvent::WorkerExited { .. } => {}
            ProcessEvent::FromGuardian(bytes) => match decode::<ToAgent>(&bytes) {
                Ok(ToAgent::Signal(info)) => self.signal(info),
                Ok(ToAgent::RanksKilled { .. }) => self.handle(Event::RanksKilled),
                Ok(ToAgent::Start(_)) | Err(_) => {}
            },
            // A terminal and Slurm send signals to everybody; the guardian hands on what they mean.
            ProcessEvent::Signal(_) => {}
        }
    }

    fn signal(&mut self, info: SignalInfo) {
        let terminal = info.code == SI_KERNEL && info.pid == 0;
        let known = info.pid != 0;
        let user = terminal || (known && info.uid == self.parts.uid);
        self.handle(Event::OsSignal {
            signal: info.no,
            terminal,
            pid: known.then_some(info.pid),
            uid: known.then_some(info.uid),
            user,
        });
    }

    /// A rank ended: its last words are read before the machine hears of it.
    fn drain(&mut self, local_rank: LocalRank, kind: ExitKind, at: BootTime) {
        self.ends.expect();
        let attempt = self.attempt;
        let mut answer =
            Answer { inbox: self.parts.inbox.clone(), input: Some((attempt, local_rank, kind, at)) };
        self.parts.pump.drain(attempt, local_rank, move |tail| answer.give(Some(tail)));
    }

    /// Error files are looked at where ranks may have left some, and what is known of ends is told.
    fn go_on(&mut self) {
        if let Some((ranks, not_before_ms)) = self.ends.wanted() {
            let attempt = self.attempt;
            let place = |rank| Some((rank, self.parts.logs.error_file(attempt, rank)?));
            let files: Files = ranks.into_iter().filter_map(place).collect();
            if files.is_empty() {
                self.ends.read(attempt, Some(Vec::new()));
            } else {
                self.hooks.error_files(attempt, files, not_before_ms);
            }
        }
        for event in self.ends.take() {
            self.handle(event);
        }
    }

    /// What a rank that ended said last.
    fn read(
        &mut self,
        attempt: Attempt,
        local_rank: LocalRank,
        kind: ExitKind,
        at: BootTime,
        tail: Option<Tail>,
    ) -> End {
        let failed = !kind.is_success();
        let words = tail.as_ref().filter(|_| failed).map(|tail| {
            let said =
                if tail.stderr.iter().all(u8::is_ascii_whitespace) { &tail.stdout } else { &tail.stderr };
            last_words(said)
        });
        let seen = tail.as_ref().filter(|_| failed).map(|tail| {
            let mut seen = survey(&tail.stdout);
            seen.extend(survey(&tail.stderr));
            seen.extend(self.gpus.sightings(self.measured.since()));
            seen
        });
        let facts = self.measured.facts(&kind);
        if let (Some(tail), Some((source, _)), true) = (tail, self.sources.get(&local_rank), failed) {
            self.parts.pump.reveal(*source, tail);
        }
        let now = clock::now();
        let ago = u64::try_from(now.boot.since(at).as_millis()).unwrap_or(0);
        let when = (at, now.wall_ms.saturating_sub(ago));
        End::new((attempt, local_rank), kind, when, words.unwrap_or_default())
            .with(seen.unwrap_or_default(), facts)
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect => self.hooks.connect(),
            Effect::Send(frame) => self.hooks.send(frame),
            Effect::Reach { node, address } => self.hooks.try_reach(node, address),
            Effect::Probe { name } => self.hooks.probe(name),
            Effect::Check { attempt } => {
                let programs = self.agent.programs();
                self.hooks.check(Some(attempt), programs);
            }
            Effect::Follow { term, leader, previous_dead, forever } => {
                self.hooks.follow(term, leader, previous_dead, forever);
            }
            Effect::Spawn { attempt, world, slot, seats } => self.spawn(attempt, &world, slot, &seats),
            Effect::Signal { local_rank, scope, signal } => self.send_signal(local_rank, scope, signal),
            Effect::Sweep { op, patience_ms } => {
                let patience = Duration::from_millis(patience_ms);
                self.parts.processes.send(Command::Sweep { op, patience });
            }
            Effect::StoreOver { attempt } => self.rendezvous.over(attempt),
            Effect::OpenOffer { op } => self.open_offer(op),
            Effect::Inspect { attempt, id, ranks } => self.inspect(attempt, id, ranks),
            Effect::Exit(code) => {
                if self.parts.context.events {
                    let state = if code == 0 { State::Succeeded } else { State::Failed };
                    let line = self.events(self.attempt).agent(state, None);
                    self.parts.pump.say(Stream::Err, line);
                }
                self.hooks.exit(code);
            }
        }
    }

    fn spawn(&mut self, attempt: Attempt, world: &World, slot: Slot, seats: &[Seat]) {
        self.attempt = attempt;
        self.ends.begin(attempt, clock::now().wall_ms);
        self.measured.begin();
        self.sources.clear();
        self.place(world, slot);
        let store = self.rendezvous.open(attempt, world, slot, &self.parts.inbox);
        // From here on the port belongs to the store, or to rank 0.
        let hold = self.hold.take();
        let store = store.and_then(|()| self.rendezvous.leave_to_rank_0(world, slot, hold));
        if let Err(why) = store {
            return self.refuse(seats, &why);
        }
        self.boards = self.make_boards(attempt, seats.len());
        let starter = Starter {
            spec: &self.parts.spec,
            context: &self.parts.context,
            logs: &self.parts.logs,
            world,
            slot,
            attempt,
            ignore_hangup: self.parts.ignore_hangup,
            nofile: self.rendezvous.nofile(),
            boards: self.boards.as_ref(),
            python: self
                .parts
                .home
                .as_ref()
                .map_or([None, None], |home| home.python(self.parts.context.heartbeat_hooks)),
        };
        let world_size = rendezvous::world_size(&world.members);
        let mut refused: Vec<(Op, Refused)> = Vec::new();
        for seat in seats {
            let source = Source { attempt, local_rank: seat.local_rank, rank: seat.rank, world_size };
            match starter.request(*seat) {
                Err(why) => refused.push((seat.op, why)),
                Ok(started) => {
                    self.parts.pump.add(source, started.stdout, started.stderr);
                    self.sources.insert(seat.local_rank, (source, 0));
                    let request = Box::new(started.request);
                    self.parts.processes.send(Command::Spawn { op: seat.op, rank: seat.local_rank, request });
                }
            }
        }
        for (op, Refused { errno, what }) in refused {
            // Through the inbox: the machine is in the middle of its effects.
            let _ = self.parts.inbox.send(Input::Event(Event::SpawnFailed { op, errno, what }));
        }
    }

    /// Pages for the ranks of an attempt, in the place of those of the attempt before.
    fn make_boards(&mut self, attempt: Attempt, ranks: usize) -> Option<Boards> {
        self.boards = None;
        let home = self.parts.home.as_ref()?;
        match Boards::new(&home.dir, attempt, u32::try_from(ranks).unwrap_or(u32::MAX)) {
            Ok(boards) => Some(boards),
            Err(error) => {
                self.hooks.note(Note::Said { text: format!("no heartbeats in this attempt: {error}") });
                None
            }
        }
    }

    /// This node's place in its next world; torchrun tells how long it took to find that world and that place.
    fn place(&mut self, world: &World, slot: Slot) {
        let began = clock::boot();
        let group = Group::of(world, slot);
        if self.parts.context.events {
            let (found, numbered) = (began.since(self.idle), clock::boot().since(began));
            for (state, took) in [(State::Rendezvous, found), (State::AssignWorkerRanks, numbered)] {
                let line = self.events(self.attempt).agent(state, Some(took));
                self.parts.pump.say(Stream::Err, line);
            }
        }
        self.group = group;
    }

    /// None of these ranks can be started.
    fn refuse(&mut self, seats: &[Seat], why: &Refused) {
        for seat in seats {
            let Refused { errno, what } = why.clone();
            let _ = self.parts.inbox.send(Input::Event(Event::SpawnFailed { op: seat.op, errno, what }));
        }
    }

    fn send_signal(&mut self, local_rank: LocalRank, scope: Scope, signal: u8) {
        let mut signal = i32::from(signal);
        let scope = match scope {
            Scope::IfCaught => ProcessScope::IfCaught,
            Scope::Leader => {
                let pid = self.sources.get(&local_rank).map_or(0, |(_, pid)| *pid);
                // Stopped, traced or in uninterruptible sleep: it would not answer.
                if matches!(procfs::state(pid), Some('T' | 't' | 'D')) {
                    signal = SIGKILL;
                }
                ProcessScope::Leader
            }
        };
        self.parts.processes.send(Command::Signal { rank: local_rank, scope, signal });
    }

    fn open_offer(&mut self, op: Op) {
        let event = match self.offer() {
            Ok(offer) => Event::OfferReady { op, offer },
            Err(_) => Event::OfferFailed { op },
        };
        let _ = self.parts.inbox.send(Input::Event(event));
    }

    /// A port that nobody has. Somebody may listen there before our store does: then it is another one.
    fn offer(&mut self) -> io::Result<Offer> {
        const TRIES: u32 = 3;
        let address = self.parts.config.spec.address.clone();
        let hosted = self.parts.context.rdzv_store == StoreHost::Agent;
        let mut tries = 0;
        loop {
            tries += 1;
            let port = self.hold_port()?;
            match if hosted { self.rendezvous.offer(&address, port).map(|()| true) } else { Ok(false) } {
                Ok(hosted) => return Ok(Offer { address, port, hosted }),
                Err(_) if tries < TRIES => {}
                Err(said) => {
                    self.hooks.note(Note::RendezvousStore { said });
                    return Ok(Offer { address, port, hosted: false });
                }
            }
        }
    }

    fn hold_port(&mut self) -> io::Result<u16> {
        let hold = PortHold::new(&self.used_ports, random::u64())?;
        let port = hold.port();
        self.used_ports.push(port);
        if self.used_ports.len() > REMEMBERED_PORTS {
            self.used_ports.remove(0);
        }
        self.hold = Some(hold);
        Ok(port)
    }
}
