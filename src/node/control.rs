//! The control thread: opens the run directory, decides whether there is something to run, joins the tasks,
//! and takes the process down in order.

use std::cell::RefCell;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::beats::{Beats, Listeners};
use super::hooks::{AgentHooks, CoordinatorHooks, Done};
use super::link::{Line, Names};
use super::probe::Probe;
use super::status::Board;
use super::store::{self, Refusal, StoreLine};
use super::tasks;
use super::telemetry;
use super::teller::Teller;
use super::workers::{LOGS, STORE, Workers};
use super::{Boot, Inheritance};
use crate::agent::driver::{Driver as AgentDriver, Input, Parts as AgentParts};
use crate::agent::processes::{Command, ProcessEvent, Processes};
use crate::coordinator::driver::Driver as CoordinatorDriver;
use crate::domain::agent::AgentConfig;
use crate::domain::console::Console;
use crate::domain::coordinator::{Coordinator, CoordinatorConfig, Event as CoordinatorEvent, SNAPSHOT_EVERY};
use crate::domain::exit_code;
use crate::domain::guardian::{Start, ToAgent, ToGuardian};
use crate::domain::ledger::Ledger;
use crate::domain::mutant::Mutants;
use crate::domain::record::{Ground, Kind, Outcome};
use crate::domain::spec::{GrantMode, RunSpec};
use crate::domain::wire::Survivor;
use crate::ipc::guardian::{decode, encode};
use crate::logs::pump::{Config as PumpConfig, Event as PumpEvent, Handle, Pump, PumpError};
use crate::net::secret::Secret;
use crate::store::layout::{OpenOptions, Opened};
use crate::sys::page::Page;
use crate::sys::{clock, procfs, random};

/// How long the store worker may take to write what is left at the end.
const STORE_FLUSH: Duration = Duration::from_secs(2);
/// The last output may take as long as it likes while it moves; so long without a move ends it.
const LOG_FLUSH: Duration = Duration::from_secs(5);
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
}

/// Why nothing runs, or nothing more.
enum Stop {
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
    let Parts { inheritance, processes, inbox, events, ignore_hangup } = parts;
    let Inheritance { boot, page, image, _lock: lock } = inheritance;
    let workers = Rc::new(Workers { image, env: boot.worker_env.clone(), processes: processes.clone() });
    let pump = match start_pump(&boot, &workers) {
        Ok(pump) => pump,
        Err(error) => return give_up(&processes, &error),
    };
    let coordinator = Rc::new(RefCell::new(None));
    let (store, task) = match store::start(workers.clone(), coordinator.clone()) {
        Ok(both) => both,
        Err(error) => return give_up(&processes, &error),
    };
    telemetry::begin(&boot.worker_env, pump.handle());
    tasks::spawn(task.run());
    let console = Console::new(boot.banner.clone());
    let teller = Teller::new(console, pump.handle(), store.clone(), boot.context.node.clone());
    let mut life = Life {
        boot,
        page: Arc::new(page),
        processes: processes.clone(),
        inbox,
        events,
        ignore_hangup,
        pump: pump.handle(),
        store,
        probe: Probe::new(workers),
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
    std::mem::forget((lock, pump));
}

fn start_pump(boot: &Boot, workers: &Rc<Workers>) -> Result<Pump, PumpError> {
    let (tell, mut troubles) = mpsc::unbounded_channel();
    let pump = Pump::start(PumpConfig::new(boot.logs.clone()), move |event| {
        if let PumpEvent::WorkerTrouble(_) = event {
            let _ = tell.send(());
        }
    })?;
    let attach = |pump: &Handle, workers: &Workers| {
        // Without a worker output is queued, then dropped and counted; ranks go on.
        if let Ok(socket) = workers.start(LOGS) {
            pump.attach(OwnedFd::from(socket));
        }
    };
    attach(&pump.handle(), workers);
    let (handle, workers) = (pump.handle(), workers.clone());
    tasks::spawn(async move {
        const PAUSE: Duration = Duration::from_millis(200);
        while troubles.recv().await.is_some() {
            tokio::time::sleep(PAUSE).await;
            attach(&handle, &workers);
        }
    });
    Ok(pump)
}

struct Life {
    boot: Boot,
    page: Arc<Page>,
    processes: Processes,
    inbox: UnboundedSender<Input>,
    events: UnboundedReceiver<Input>,
    ignore_hangup: bool,
    pump: Handle,
    store: StoreLine,
    probe: Probe,
    teller: Teller,
    coordinator: Rc<RefCell<Option<UnboundedSender<CoordinatorEvent>>>>,
}

impl Life {
    /// From the guardian's first word to the exit code.
    async fn live(&mut self) -> Result<u8, Stop> {
        let start = self.first_word().await?;
        if start.restarts > 0 {
            self.teller.returned();
        }
        let opened = self.open(&start).await?;
        let ledger = self.ledger(&opened)?;
        let secret = Secret::from_hex(&opened.secret).map_err(|_| {
            Stop::Say(exit_code::USAGE, "the secret of the run directory is damaged".into(), String::new())
        })?;
        let names = Names {
            run: self.boot.spec.run_id.clone(),
            node: self.boot.context.node.clone(),
            incarnation: start.incarnation,
            secret,
        };
        self.join(names, start, *opened, ledger).await
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

    /// Opens the run directory; a signal that means stop is heard meanwhile.
    async fn open(&mut self, start: &Start) -> Result<Box<Opened>, Stop> {
        let opened = self.open_once().await?;
        let Some(previous) = &opened.previous else { return Ok(opened) };
        let leader = opened.records.iter().rev().find(|r| r.kind == Kind::Lead).map(|r| r.writer.incarnation);
        if leader.is_some_and(|life| start.clean_of.contains(&life)) {
            // An earlier agent of this launch looked already.
            return Ok(opened);
        }
        let same = previous.command == command(&self.boot.spec);
        if !same {
            let dir = self.boot.context.run_dir.clone();
            let store = self.store.clone();
            let aside = self.hearing(store.set_aside(dir)).await??;
            self.teller.say(&format!(
                "run {} had another command line: this is a new run; the earlier one lies in {}",
                self.boot.spec.run_id,
                aside.display()
            ));
            return self.open_once().await;
        }
        if previous.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Finished) {
            self.teller.say(&format!(
                "run {} has finished already; nothing to do (another --run-id starts a new run)",
                self.boot.spec.run_id
            ));
            return Err(Stop::Quietly(exit_code::FINISHED));
        }
        Ok(opened)
    }

    async fn open_once(&mut self) -> Result<Box<Opened>, Stop> {
        let options = OpenOptions {
            dir: self.boot.context.run_dir.clone(),
            run: self.boot.spec.run_id.clone(),
            create: true,
            make_parents: self.boot.make_parents,
            command: command(&self.boot.spec),
            wall_ms: clock::now().wall_ms,
        };
        let store = self.store.clone();
        Ok(self.hearing(store.open(options)).await??)
    }

    /// Waits for something, unless a signal says stop first.
    async fn hearing<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return Ok(done),
                input = self.events.recv() => {
                    let Some(Input::Process(ProcessEvent::FromGuardian(bytes))) = input else { continue };
                    if let Ok(ToAgent::Signal(info)) = decode(&bytes)
                        && info.is_stop()
                    {
                        return Err(Stop::Quietly(exit_code::SIGNAL_BASE.saturating_add(info.no)));
                    }
                }
            }
        }
    }

    fn ledger(&self, opened: &Opened) -> Result<Ledger, Stop> {
        let journal = self.boot.context.run_dir.join("journal");
        let say = |text: String, what: &str| {
            let hint = format!("{what}, or start with another --run-id; nothing was changed");
            Stop::Say(exit_code::USAGE, format!("{} {text}", journal.display()), hint)
        };
        const LOOK: &str = "look at the files";
        if let Some(why) = &opened.unreadable_tail {
            let text =
                format!("is damaged: its last record, {}, cannot be read ({why})", opened.records.len());
            return Err(say(text, LOOK));
        }
        let ledger = Ledger::replay(&opened.records).map_err(|e| say(format!("is damaged: {e}"), LOOK))?;
        if let Some(seq) = ledger.foreign() {
            let text = format!("goes on with records of a newer relight, from {seq} on");
            return Err(say(text, "use the newer relight"));
        }
        Ok(ledger)
    }

    /// Shared memory, the run directory, the logs, and where the ranks work.
    fn places(&self) -> Vec<PathBuf> {
        let context = &self.boot.context;
        let mut places = vec![PathBuf::from("/dev/shm"), context.run_dir.clone(), context.cwd.clone()];
        places.extend(context.log_dir.clone());
        places
    }

    /// Runs the tasks until both say that they are done.
    async fn join(&mut self, names: Names, start: Start, opened: Opened, ledger: Ledger) -> Result<u8, Stop> {
        let ground = ground(&ledger, &start);
        if ground == Ground::Returned
            && let Some(end) = ledger.end()
        {
            return Ok(end.code);
        }
        let spec = self.boot.spec.clone();
        let (to_coordinator, from_others) = mpsc::unbounded_channel();
        *self.coordinator.borrow_mut() = Some(to_coordinator.clone());
        let (done, mut finished) = mpsc::unbounded_channel();
        let line = Line::new(names.clone(), self.inbox.clone());
        line.listen(to_coordinator.clone());
        let beats = self.beats(&spec, &names, to_coordinator)?;
        let board = Board::new(self.store.clone());
        let hooks = CoordinatorHooks {
            line: line.clone(),
            teller: self.teller.clone(),
            board: board.clone(),
            beats: beats.clone(),
            store: self.store.clone(),
            probe: self.probe.clone(),
            places: self.places(),
            node: names.node.clone(),
            incarnation: names.incarnation,
            ground,
            numbers: spec.numbers.clone(),
            done: done.clone(),
        };
        let coordinator = self.coordinator_machine(&names, &start, ground, &opened, ledger);
        tasks::spawn(CoordinatorDriver::new(coordinator, hooks).run(from_others));
        let hooks = AgentHooks {
            line,
            teller: self.teller.clone(),
            board,
            beats,
            page: self.page.clone(),
            numbers: spec.numbers.clone(),
            inbox: self.inbox.clone(),
            done,
        };
        let agent = AgentDriver::new(self.agent_parts(&names, &start, &opened), hooks);
        let (_, empty) = mpsc::unbounded_channel();
        tasks::spawn(agent.run(std::mem::replace(&mut self.events, empty)));
        Ok(wait_for_both(&mut finished).await)
    }

    fn beats(
        &self,
        spec: &RunSpec,
        names: &Names,
        coordinator: UnboundedSender<CoordinatorEvent>,
    ) -> Result<Option<Beats>, Stop> {
        if spec.numbers.grant == GrantMode::Auto && spec.max_nodes == 1 && spec.spares == 0 {
            return Ok(None);
        }
        let page = self.page.clone();
        tasks::spawn(async move {
            loop {
                page.count_tick();
                tokio::time::sleep(TICK).await;
            }
        });
        let listeners = Listeners { agent: self.inbox.clone(), coordinator };
        // Without beats there would be no grants: never run on as if they were for ever.
        let started = Beats::start(names.clone(), self.page.clone(), listeners);
        started.map(Some).map_err(|error| cannot_begin(&format!("the beat thread: {error}")))
    }

    fn coordinator_machine(
        &self,
        names: &Names,
        start: &Start,
        ground: Ground,
        opened: &Opened,
        ledger: Ledger,
    ) -> Coordinator {
        let config = CoordinatorConfig {
            node: names.node.clone(),
            incarnation: names.incarnation,
            clean_of: start.clean_of.clone(),
            spec: self.boot.spec.clone(),
            job: self.boot.context.place.job.clone(),
            launch: self.boot.context.place.token.clone(),
            voters: vec![names.node.clone()],
            addresses: Vec::new(),
            ground,
            store: Some(opened.store.clone()),
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
                store: Some(opened.store.clone()),
                numbers: self.boot.spec.numbers.clone(),
                mutants: Mutants::NONE,
            },
            spec: self.boot.spec.clone(),
            context: self.boot.context.clone(),
            logs: self.boot.logs.clone(),
            uid: self.boot.uid,
            ignore_hangup: self.ignore_hangup,
            processes: self.processes.clone(),
            pump: self.pump.clone(),
            inbox: self.inbox.clone(),
        }
    }

    /// What is left to write is written, as long as somebody takes it.
    async fn finish(&self) {
        let _ = tokio::time::timeout(STORE_FLUSH, self.store.finish()).await;
        let (tell, flushed) = oneshot::channel();
        self.pump.flush(LOG_FLUSH, move |flushed| {
            let _ = tell.send(flushed);
        });
        let _ = flushed.await;
        self.processes.send(Command::KillWorker { id: STORE });
    }
}

fn cannot_begin(what: &str) -> Stop {
    let hint = "look at the limits of this node (ulimit -a)".to_owned();
    Stop::Say(exit_code::FAILED, format!("the agent cannot begin: {what}"), hint)
}

/// The agent said that it goes; the coordinator has a while to finish.
async fn wait_for_both(finished: &mut UnboundedReceiver<Done>) -> u8 {
    let (mut code, mut over) = (None, false);
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

/// The coordinator of an earlier life of this agent comes back; else this is a launch.
fn ground(ledger: &Ledger, start: &Start) -> Ground {
    let own = ledger.leader().is_some_and(|(_, writer)| start.clean_of.contains(&writer.incarnation));
    if own { Ground::Returned } else { Ground::First }
}

/// The command line that a run is told apart by.
fn command(spec: &RunSpec) -> Vec<String> {
    std::iter::once(spec.program.clone()).chain(spec.args.iter().cloned()).collect()
}
