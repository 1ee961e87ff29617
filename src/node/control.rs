//! The control thread: opens the run directory, decides whether there is something to run, joins the tasks,
//! and takes the process down in order.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::LocalSet;

use super::beats::{Beats, Listeners, Parts as BeatParts};
use super::evidence::Evidence;
use super::finding::Found;
use super::gate::Gate;
use super::gpus;
use super::hooks::{AgentHooks, CoordinatorHooks, Done};
use super::link::{Line, Names, Search};
use super::listener::{Listener, Taken};
use super::output::{Output, Why};
use super::probe::Probe;
use super::seeker::Seeker;
use super::status::Board;
use super::store::{self, Refusal, StoreLine};
use super::tasks;
use super::telemetry;
use super::teller::{self, Teller};
use super::whereabouts::Whereabouts;
use super::workers::{Ends, GPUS, PROBE, READER, STORE, Workers};
use super::{Boot, Inheritance};
use crate::agent::driver::{Driver as AgentDriver, Input, Parts as AgentParts};
use crate::agent::processes::{Command, ProcessEvent, Processes};
use crate::coordinator::driver::Driver as CoordinatorDriver;
use crate::domain::agent::AgentConfig;
use crate::domain::console::Console;
use crate::domain::coordinator::{Coordinator, CoordinatorConfig, Event as CoordinatorEvent, SNAPSHOT_EVERY};
use crate::domain::errno::errno_name;
use crate::domain::exit_code;
use crate::domain::guardian::{Start, ToAgent, ToGuardian};
use crate::domain::ids::{RunId, Term};
use crate::domain::ledger::Ledger;
use crate::domain::mutant::Mutants;
use crate::domain::record::{FirstFailure, Ground};
use crate::domain::spec::{GrantMode, LaunchPlace};
use crate::domain::wire::Survivor;
use crate::health::error_files;
use crate::health::gpus::Driver;
use crate::ipc::board::{HomeError, HomePaths};
use crate::ipc::guardian::{decode, encode};
use crate::logs::spec::LogSpec;
use crate::net::secret::Secret;
use crate::net::tcp;
use crate::store::hint::{HINT_VERSION, Hint};
use crate::store::layout::Opened;
use crate::sys::page::Page;
use crate::sys::{addresses, procfs, random};

/// How long the store worker may take to write what is left at the end.
const STORE_FLUSH: Duration = Duration::from_secs(2);
/// After the agent said that it goes: how long the coordinator may still have work.
const PARTING: Duration = Duration::from_secs(6);
/// How often the control thread says that it lives, where beats tell it to others.
const TICK: Duration = Duration::from_millis(250);

/// What the main thread hands over.
pub(crate) struct Parts {
    pub(crate) inheritance: Inheritance,
    pub(crate) processes: Processes,
    pub(crate) inbox: UnboundedSender<Input>,
    pub(crate) events: UnboundedReceiver<Input>,
    pub(crate) ignore_hangup: bool,
    pub(crate) ends: Ends,
    pub(crate) home: Result<HomePaths, HomeError>,
}

/// Why nothing runs, or nothing more.
pub(super) enum Stop {
    /// One sentence and a hint, and the exit code.
    Say(u8, String, String),
    /// Nothing to say.
    Quietly(u8),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Say(exit_code::USAGE, refusal.sentence, refusal.hint)
    }
}

/// The body of the control thread; ends the process through the process thread.
pub(crate) fn run(parts: Parts) {
    let processes = parts.processes.clone();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => LocalSet::new().block_on(&runtime, main(parts)),
        Err(error) => give_up(&processes, &error),
    }
    // The process thread ends the process; until then nothing here may be dropped that others wait for.
    loop {
        std::thread::park();
    }
}

/// Before there is a pump for our words they go straight to standard error.
fn give_up(processes: &Processes, error: &dyn std::fmt::Display) {
    let text = format!(
        "relight: error: the agent cannot begin: {error}\nrelight: hint: look at the limits of this node (ulimit -a)\n"
    );
    // Nobody is left to be told if even this fails.
    let _ = std::io::stderr().write_all(text.as_bytes());
    leave(processes, exit_code::FAILED);
}

fn leave(processes: &Processes, code: u8) {
    if let Ok(word) = encode(&ToGuardian::Gone { code }) {
        processes.send(Command::ToGuardian(word));
    }
    processes.send(Command::Exit(i32::from(code)));
}

async fn main(parts: Parts) {
    let Parts { inheritance, processes, inbox, events, ignore_hangup, ends, home } = parts;
    let Inheritance { boot, page, image, _lock: lock } = inheritance;
    let workers = Rc::new(Workers {
        image,
        env: boot.worker_env.clone(),
        processes: processes.clone(),
        ends: ends.clone(),
    });
    // What lies in the run directory is made with it, and refused with it.
    let apart = boot.context.log_dir.as_ref().is_some_and(|dir| !dir.starts_with(&boot.context.run_dir));
    let logs = LogSpec { try_dir: apart, ..boot.logs.clone() };
    let output = match Output::start(logs, &workers) {
        Ok(output) => output,
        Err(error) => return give_up(&processes, &error),
    };
    let coordinator = Rc::new(RefCell::new(None));
    let (store, task) = match store::start(workers.clone(), coordinator.clone()) {
        Ok(both) => both,
        Err(error) => return give_up(&processes, &error),
    };
    telemetry::begin(&boot.worker_env, output.handle());
    tasks::spawn(task.run());
    let console = Console::new(boot.banner.clone()).with_stamp(teller::stamp);
    let teller = Teller::new(console, output.handle(), store.clone(), boot.context.node.clone());
    output.tell(&teller);
    if let Err(error) = &home {
        teller.say(&format!("warning: no heartbeats: {error}"));
    }
    let context = &boot.context;
    let driver = Driver::of(&context.nvml, &context.interpreter, &context.base_env);
    let gate = Gate::new(workers.clone(), context, driver.clone(), inbox.clone());
    if let Some(driver) = driver {
        gpus::watch(workers.clone(), driver, inbox.clone());
    }
    let evidence = Evidence::new(workers.clone(), &boot.context.base_env);
    let mut life = Life {
        boot,
        page: Arc::new(page),
        processes: processes.clone(),
        inbox,
        events,
        ignore_hangup,
        home: home.ok(),
        output,
        store,
        probe: Probe::new(workers.clone(), PROBE),
        reader: Probe::new(workers, READER),
        evidence,
        gate,
        first: Rc::default(),
        bereaved: Rc::default(),
        read: Rc::default(),
        ends,
        socket: None,
        endpoint: Vec::new(),
        teller: teller.clone(),
        coordinator,
    };
    let code = match life.live().await {
        Ok(code) | Err(Stop::Quietly(code)) => code,
        Err(Stop::Say(code, sentence, hint)) => {
            teller.say(&format!("error: {sentence}"));
            if !hint.is_empty() {
                teller.say(&format!("hint: {hint}"));
            }
            code
        }
    };
    life.finish().await;
    leave(&processes, code);
    // Held until the process ends.
    std::mem::forget((lock, life));
}

pub(super) struct Life {
    pub(super) boot: Boot,
    page: Arc<Page>,
    pub(super) processes: Processes,
    inbox: UnboundedSender<Input>,
    pub(super) events: UnboundedReceiver<Input>,
    ignore_hangup: bool,
    home: Option<HomePaths>,
    output: Output,
    pub(super) store: StoreLine,
    probe: Probe,
    /// For what ranks left, and what we leave.
    reader: Probe,
    evidence: Evidence,
    gate: Gate,
    /// The first failure of the newest incident, where the coordinator lives here.
    first: Rc<RefCell<Option<FirstFailure>>>,
    /// The coordinator was lost for good.
    bereaved: Rc<Cell<bool>>,
    /// Records that the agent has read.
    pub(super) read: Rc<Cell<u64>>,
    pub(super) ends: Ends,
    /// Where this agent listens, if that is settled already.
    pub(super) socket: Option<TcpListener>,
    /// Where the coordinator listens, if that is settled already.
    pub(super) endpoint: Vec<SocketAddr>,
    pub(super) teller: Teller,
    coordinator: Rc<RefCell<Option<UnboundedSender<CoordinatorEvent>>>>,
}

impl Life {
    /// From the guardian's first word to the exit code.
    async fn live(&mut self) -> Result<u8, Stop> {
        let start = self.first_word().await?;
        if start.restarts > 0 {
            self.teller.returned();
        }
        self.output_usable(&start).await?;
        let found = self.find(&start).await?;
        let secret = Secret::from_hex(&found.opened.secret).map_err(|_| {
            Stop::Say(exit_code::USAGE, "the secret of the run directory is damaged".into(), String::new())
        })?;
        let place = &self.boot.context.place;
        let names = Names {
            // Machines that share nothing do not know what the first one calls the run.
            run: match place.direct {
                Some(_) => RunId(place.token.clone()),
                None => self.boot.spec.run_id.clone(),
            },
            node: self.boot.context.node.clone(),
            incarnation: start.incarnation,
            secret,
        };
        let code = self.join(names, start, found).await?;
        if self.bereaved.get() {
            self.end_job().await;
        }
        Ok(code)
    }

    /// A later life has ranks to care for, also without logs.
    async fn output_usable(&self, start: &Start) -> Result<(), Stop> {
        match self.output.usable().await {
            Ok(()) => Ok(()),
            Err(why) if start.restarts > 0 => {
                self.output.go_on_without(&self.teller, why);
                Ok(())
            }
            Err(Why::NoWorker(how)) => Err(cannot_begin(&format!("the logs worker: {how}"))),
            Err(Why::Directory { path, errno }) => Err(Stop::Say(
                exit_code::USAGE,
                format!("the log directory {path} cannot be written: {}", errno_name(errno)),
                "choose another place with --log-dir, or make room".to_owned(),
            )),
        }
    }

    /// The guardian says first which life this is.
    async fn first_word(&mut self) -> Result<Start, Stop> {
        while let Some(input) = self.events.recv().await {
            if let Input::Process(ProcessEvent::FromGuardian(bytes)) = input
                && let Ok(ToAgent::Start(start)) = decode(&bytes)
            {
                return Ok(start);
            }
        }
        Err(Stop::Quietly(exit_code::FAILED))
    }

    /// Shared memory, the run directory, the logs, and where the ranks work.
    fn places(&self) -> Vec<PathBuf> {
        let context = &self.boot.context;
        let mut places = vec![PathBuf::from("/dev/shm"), context.run_dir.clone(), context.cwd.clone()];
        places.extend(context.log_dir.clone());
        places
    }

    /// Runs the tasks until all say that they are done.
    async fn join(&mut self, names: Names, start: Start, found: Found) -> Result<u8, Stop> {
        let Found { opened, ledger, leads } = found;
        if leads == Some(Ground::Returned)
            && let Some(end) = ledger.end()
        {
            return Ok(end.code);
        }
        let (socket, addresses) = self.listen(&names)?;
        let (to_coordinator, from_others) = mpsc::unbounded_channel();
        let at = Whereabouts::unknown();
        let line = Line::new(names.clone(), self.inbox.clone(), self.search(), at.clone());
        let answers = Arc::new(AtomicBool::new(leads.is_some()));
        let beats = self.beats(&names, socket, &answers, at, &line, to_coordinator.clone())?;
        let board = Board::new(self.store.clone());
        let (done, mut finished) = mpsc::unbounded_channel();
        let proof = random::u64();
        let mut reached_at = addresses.clone();
        if leads.is_some() && reached_at.is_empty() {
            reached_at = self.hear_operators(&names, &line, &answers);
        }
        match leads {
            None => {
                line.heed(&ledger);
                self.teller.follow();
            }
            Some(ground) => {
                *self.coordinator.borrow_mut() = Some(to_coordinator.clone());
                line.listen(to_coordinator.clone());
                let hooks = CoordinatorHooks {
                    line: line.clone(),
                    teller: self.teller.clone(),
                    board: board.clone(),
                    beats: beats.clone(),
                    store: self.store.clone(),
                    probe: self.probe.clone(),
                    places: self.places(),
                    own: to_coordinator,
                    seeker: self.seeker(&names),
                    hint: self.hint(&names, &opened, &reached_at, proof),
                    answers,
                    incarnation: names.incarnation,
                    ground,
                    numbers: self.boot.spec.numbers.clone(),
                    first: self.first.clone(),
                    done: done.clone(),
                };
                let machine =
                    self.coordinator_machine(&names, &start, (ground, proof), &opened, ledger, addresses);
                tasks::spawn(CoordinatorDriver::new(machine, hooks).run(from_others));
            }
        }
        let hooks = AgentHooks {
            line,
            teller: self.teller.clone(),
            board: board.clone(),
            beats,
            page: self.page.clone(),
            numbers: self.boot.spec.numbers.clone(),
            inbox: self.inbox.clone(),
            store: self.store.clone(),
            reader: self.reader.clone(),
            evidence: self.evidence.clone(),
            gate: self.gate.clone(),
            bereaved: self.bereaved.clone(),
            read: self.read.clone(),
            done,
        };
        let agent = AgentDriver::new(self.agent_parts(&names, &start, &opened), hooks);
        let (_, empty) = mpsc::unbounded_channel();
        tasks::spawn(agent.run(std::mem::replace(&mut self.events, empty)));
        let code = wait_for_all(&mut finished, leads.is_some()).await;
        self.leave_error_file(code).await;
        board.flush();
        Ok(code)
    }

    /// Whoever started this launcher with an error file of its own finds the root of a failure there.
    async fn leave_error_file(&self, code: u8) {
        let Some(path) = self.boot.error_file.clone().filter(|_| code != 0) else { return };
        let Some(first) = self.first.take() else { return };
        let text = error_files::text(&first);
        if !self.reader.leave(path.clone(), text).await {
            self.teller.say(&format!("warning: the error file {} could not be written", path.display()));
        }
    }

    /// Where others reach this node, best address first; none in a launch of one machine.
    fn listen(&mut self, names: &Names) -> Result<(Option<TcpListener>, Vec<String>), Stop> {
        let place = &self.boot.context.place;
        if place.token.is_empty() {
            return Ok((None, Vec::new()));
        }
        let failed = |error| cannot_begin(&format!("no port to listen on: {error}"));
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => tcp::listen(&names.secret).map_err(failed)?,
        };
        let port = socket.local_addr().map_err(failed)?.port();
        let own = reachable(place);
        self.boot.node.address = own[0].to_string();
        self.boot.node.addresses = own.iter().map(IpAddr::to_string).collect();
        self.boot.node.port = port;
        Ok((Some(socket), own.into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect()))
    }

    /// After so long without a sign a connection is gone.
    fn silence(&self) -> Duration {
        const LEAST: Duration = Duration::from_secs(6);
        const BEYOND: Duration = Duration::from_secs(3);
        Duration::from_millis(self.boot.spec.numbers.lost_ms).max(LEAST) + BEYOND
    }

    fn search(&self) -> Search {
        let context = &self.boot.context;
        Search {
            store: self.store.clone(),
            teller: self.teller.clone(),
            dir: context.run_dir.clone(),
            options: self.options(false),
            place: context.place.clone(),
            endpoint: self.endpoint.clone(),
            silence: self.silence(),
        }
    }

    fn hint(&self, names: &Names, opened: &Opened, addresses: &[String], proof: u64) -> Hint {
        Hint {
            v: HINT_VERSION,
            store: opened.store.clone(),
            launch: self.boot.context.place.token.clone(),
            term: Term(0),
            node: names.node.clone(),
            addresses: addresses.to_vec(),
            proof,
        }
    }

    fn beats(
        &self,
        names: &Names,
        socket: Option<TcpListener>,
        answers: &Arc<AtomicBool>,
        at: Whereabouts,
        line: &Line,
        coordinator: UnboundedSender<CoordinatorEvent>,
    ) -> Result<Option<Beats>, Stop> {
        let spec = &self.boot.spec;
        let alone = spec.numbers.grant == GrantMode::Auto && spec.max_nodes == 1 && spec.spares == 0;
        if alone && socket.is_none() {
            return Ok(None);
        }
        // The control thread counts as alive as long as this count goes up.
        let page = self.page.clone();
        tasks::spawn(async move {
            loop {
                page.count_tick();
                tokio::time::sleep(TICK).await;
            }
        });
        let (sessions, mut taken) = mpsc::unbounded_channel();
        let line = line.clone();
        tasks::spawn(async move {
            while let Some(session) = taken.recv().await {
                line.take(session);
            }
        });
        let parts = BeatParts {
            names: names.clone(),
            page: self.page.clone(),
            listeners: Listeners { agent: self.inbox.clone(), coordinator, sessions },
            socket,
            leads: answers.clone(),
            at,
            silence: self.silence(),
        };
        // Without beats there would be no grants: never run on as if they were for ever.
        Beats::start(parts).map(Some).map_err(|error| cannot_begin(&format!("the beat thread: {error}")))
    }

    /// A run that no other node has to find hears commands on this machine all the same. Without a port it has none.
    fn hear_operators(&self, names: &Names, line: &Line, answers: &Arc<AtomicBool>) -> Vec<String> {
        let Ok((socket, at)) = tcp::listen_here() else { return Vec::new() };
        let (taken, mut sessions) = mpsc::unbounded_channel();
        let (names, leads, silence) = (Rc::new(names.clone()), answers.clone(), self.silence());
        tasks::spawn(Listener { socket, names, leads, silence, taken }.serve());
        let line = line.clone();
        tasks::spawn(async move {
            while let Some(session) = sessions.recv().await {
                if let Taken::Operator(_) = session {
                    line.take(session);
                }
            }
        });
        vec![at.to_string()]
    }

    fn seeker(&self, names: &Names) -> Seeker {
        let place = &self.boot.context.place;
        let other = place.nodes.iter().find(|node| **node != names.node);
        Seeker {
            probe: self.probe.clone(),
            errands: Rc::new(self.errands()),
            job: place.job.as_ref().map(|job| job.id.clone()),
            contained: place.contained,
            name: other.map(|node| node.to_string()),
        }
    }

    fn coordinator_machine(
        &self,
        names: &Names,
        start: &Start,
        (ground, proof): (Ground, u64),
        opened: &Opened,
        ledger: Ledger,
        addresses: Vec<String>,
    ) -> Coordinator {
        let nodes = &self.boot.context.place.nodes;
        // Without a directory that all read there is nothing to be proven.
        let shares = self.boot.context.place.direct.is_none();
        let config = CoordinatorConfig {
            node: names.node.clone(),
            incarnation: names.incarnation,
            clean_of: start.clean_of.clone(),
            spec: self.boot.spec.clone(),
            job: self.boot.context.place.job.clone(),
            launch: self.boot.context.place.token.clone(),
            voters: if nodes.is_empty() { vec![names.node.clone()] } else { nodes.clone() },
            addresses,
            ground,
            store: Some(opened.store.clone()),
            distinct: !shares,
            proof: Some(proof).filter(|_| shares),
            snapshot_every: SNAPSHOT_EVERY,
            seed: random::u64(),
            mutants: Mutants::NONE,
        };
        Coordinator::new(config, ledger)
    }

    fn agent_parts(&self, names: &Names, start: &Start, opened: &Opened) -> AgentParts {
        let survivors = start.survivors.iter().map(|pid| Survivor {
            pid: *pid,
            state: i32::try_from(*pid).ok().and_then(procfs::state).unwrap_or('?'),
        });
        AgentParts {
            config: AgentConfig {
                node: names.node.clone(),
                incarnation: names.incarnation,
                clean_of: start.clean_of.clone(),
                survivors: survivors.collect(),
                spec: self.boot.node.clone(),
                store: Some(opened.store.clone()).filter(|_| self.boot.context.place.direct.is_none()),
                numbers: self.boot.spec.numbers.clone(),
                mutants: Mutants::NONE,
            },
            spec: self.boot.spec.clone(),
            context: self.boot.context.clone(),
            logs: self.boot.logs.clone(),
            uid: self.boot.uid,
            ignore_hangup: self.ignore_hangup,
            home: self.home.clone(),
            processes: self.processes.clone(),
            pump: self.output.handle(),
            inbox: self.inbox.clone(),
        }
    }

    /// What is left to write is written, as long as somebody takes it.
    async fn finish(&self) {
        self.output.count_lost(&self.teller).await;
        let _ = tokio::time::timeout(STORE_FLUSH, self.store.finish()).await;
        self.output.finish().await;
        self.processes.send(Command::KillWorker { id: STORE });
        self.processes.send(Command::KillWorker { id: GPUS });
    }
}

fn cannot_begin(what: &str) -> Stop {
    let hint = "look at the limits of this node (ulimit -a)".to_owned();
    Stop::Say(exit_code::FAILED, format!("the agent cannot begin: {what}"), hint)
}

/// The agent said that it goes; a coordinator has a while to finish.
async fn wait_for_all(finished: &mut UnboundedReceiver<Done>, leads: bool) -> u8 {
    let (mut code, mut over) = (None, !leads);
    loop {
        let next = match code {
            None => finished.recv().await,
            Some(code) if over => return code,
            Some(code) => match tokio::time::timeout(PARTING, finished.recv()).await {
                Ok(next) => next,
                Err(_) => return code,
            },
        };
        match next {
            Some(Done::Agent(said)) => code = Some(said),
            Some(Done::Coordinator) => over = true,
            None => return code.unwrap_or(exit_code::FAILED),
        }
    }
}

/// Addresses of this machine, the one first that somebody chose or that faces the other nodes; never none.
fn reachable(place: &LaunchPlace) -> Vec<IpAddr> {
    const MOST: usize = 8;
    let own = addresses::own();
    let parse = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<IpAddr>().ok());
    let facing = parse(&place.towards).and_then(|peer| {
        if own.contains(&peer) { Some(peer) } else { addresses::towards(peer).filter(|ip| own.contains(ip)) }
    });
    let mut all: Vec<IpAddr> = parse(&place.address).into_iter().chain(facing).collect();
    for ip in own {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all.truncate(MOST);
    if all.is_empty() {
        all.push(IpAddr::from([127, 0, 0, 1]));
    }
    all
}
