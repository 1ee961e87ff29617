//! The loop: wait, build an event, ask the machine, carry out its effects.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::files::{Files, Recipe};
use super::link::{self, Search, Word};
use super::opening::{self, Run, Stop};
use super::{Say, SupervisorConfig, SupervisorError};
use crate::domain::env;
use crate::domain::exit::ExitKind;
use crate::domain::exit_code;
use crate::domain::ids::NodeName;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::policy::JobWord;
use crate::domain::supervisor::{Effect, Event, SrunId, Supervisor, SupervisorConfig as Rules};
use crate::domain::wire::FromSupervisor;
use crate::net::session::{Identity, Role};
use crate::slurm::ask::{Slurm, told};
use crate::slurm::children::Children;
use crate::sys::ready::Ready;
use crate::sys::signals::{self, Received, Signals, number};
use crate::sys::spawn::{SpawnRequest, Stdin};
use crate::sys::{clock, random};

/// HUP, INT, QUIT, USR1, USR2, TERM.
const CAUGHT: [i32; 6] =
    [number::SIGHUP, number::SIGINT, number::SIGQUIT, number::SIGUSR1, number::SIGUSR2, number::SIGTERM];
/// `si_code` of a signal that the kernel sent, as it does for a terminal.
const SI_KERNEL: i32 = 128;
/// How often orphans are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// An order to Slurm that fails is repeated so often.
const ORDERS: u32 = 3;
/// How long the last orders may take when everything else is over.
const PARTING: Duration = Duration::from_secs(10);

/// Signals with their place in the event loop.
struct Ears {
    signals: Signals,
    ready: Ready,
}

impl Ears {
    fn new() -> io::Result<Self> {
        signals::hold_off_strays();
        let signals = Signals::catch(&CAUGHT)?;
        let ready = Ready::new(signals.as_fd().try_clone_to_owned()?)?;
        Ok(Self { signals, ready })
    }

    /// Waits for the next ones. May be dropped at any time.
    async fn hear(&mut self) -> Vec<Received> {
        loop {
            let heard = self.signals.pending();
            if !heard.is_empty() {
                return heard;
            }
            if self.ready.news().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Supervises; gives the exit code.
pub(super) async fn run(config: &mut SupervisorConfig) -> Result<u8, SupervisorError> {
    let failed = |what| move |source| SupervisorError::Call { what, source };
    let mut ears = Ears::new().map_err(failed("catch signals"))?;
    let children = Children::new(config.caps).map_err(failed("become subreaper"))?;
    let files = |config: &SupervisorConfig| -> Result<Files, SupervisorError> {
        let fd = config.image.fd().try_clone_to_owned().map_err(failed("pass on the binary"))?;
        let image = crate::sys::memexec::Image::from_fd(fd);
        Ok(Files::new(Recipe { children: children.clone(), image, env: config.worker_env.clone() }))
    };
    let slurm = Slurm::new(children.clone(), config.env.clone(), config.job.id.clone());
    let mut asker = files(config)?;
    // Sentences on the way, also while it waits.
    let mut say = std::mem::replace(&mut config.say, Box::new(|_| ()));
    let prepared = tokio::select! {
        biased;
        signal = stop_heard(&mut ears) => {
            return Ok(exit_code::SIGNAL_BASE.saturating_add(signal));
        }
        prepared = prepare(config, &mut asker, &slurm, &mut say) => prepared,
    };
    config.say = say;
    let (run, asked) = match prepared {
        Ok(prepared) => prepared,
        Err(stop) => {
            for sentence in stop.said {
                (config.say)(&sentence);
            }
            return Ok(stop.code);
        }
    };
    let linked = files(config)?;
    let mut driver = Driver::new(config, run, asked, children, slurm, (asker, linked));
    Ok(driver.run(&mut ears).await)
}

async fn stop_heard(ears: &mut Ears) -> u8 {
    loop {
        for heard in ears.hear().await {
            match u8::try_from(heard.signal) {
                // What is only passed on has nobody to go to yet.
                Ok(signal) if ![10, 12].contains(&signal) => return signal,
                _ => {}
            }
        }
    }
}

/// What Slurm was asked before the start.
struct Asked {
    oom_kill_step: bool,
    addresses: Option<String>,
}

async fn prepare(
    config: &SupervisorConfig,
    files: &mut Files,
    slurm: &Slurm,
    say: &mut Say,
) -> Result<(Run, Asked), Stop> {
    let (run, oom_kill_step, addresses) = tokio::join!(
        opening::open(config, files, slurm, say),
        slurm.srun_knows("--oom-kill-step"),
        slurm.addresses(&config.nodes),
    );
    // Without an answer the agents go by what they find themselves.
    let addresses = addresses.ok().and_then(|addresses| told(&addresses));
    Ok((run?, Asked { oom_kill_step, addresses }))
}

/// One `srun` of ours.
struct Srun {
    pid: i32,
    /// Its process is killed through here; closed when it has ended.
    kill: UnboundedSender<()>,
    step: Rc<RefCell<Option<String>>>,
}

struct Driver<'a> {
    config: &'a mut SupervisorConfig,
    machine: Supervisor,
    run: Run,
    token: String,
    children: Children,
    slurm: Slurm,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    files: Rc<Mutex<Files>>,
    link: Option<Files>,
    messages: UnboundedSender<FromSupervisor>,
    outgoing: Option<UnboundedReceiver<FromSupervisor>>,
    events: UnboundedSender<Word>,
    incoming: UnboundedReceiver<Word>,
    sruns: BTreeMap<SrunId, Srun>,
    orders: JoinSet<()>,
    told_version: bool,
}

impl<'a> Driver<'a> {
    fn new(
        config: &'a mut SupervisorConfig,
        run: Run,
        asked: Asked,
        children: Children,
        slurm: Slurm,
        (files, link): (Files, Files),
    ) -> Self {
        let token: String = random::bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let plan = &mut config.plan;
        plan.oom_kill_step = asked.oom_kill_step;
        plan.tell.push((env::RELIGHT_RUN_ID.name, run.id.to_string()));
        plan.tell.push((env::RELIGHT_LAUNCH.name, token.clone()));
        plan.tell.extend(asked.addresses.map(|text| (env::RELIGHT_NODE_ADDRS.name, text)));
        let env = plan.env(&config.env);
        let rules = Rules { nodes: config.nodes.clone(), stop: config.stop };
        let (messages, outgoing) = mpsc::unbounded_channel();
        let (events, incoming) = mpsc::unbounded_channel();
        Self {
            machine: Supervisor::new(rules),
            config,
            run,
            token,
            children,
            slurm,
            env,
            files: Rc::new(Mutex::new(files)),
            link: Some(link),
            messages,
            outgoing: Some(outgoing),
            events,
            incoming,
            sruns: BTreeMap::new(),
            orders: JoinSet::new(),
            told_version: false,
        }
    }

    /// Until the machine says exit.
    async fn run(&mut self, ears: &mut Ears) -> u8 {
        let mut sweep = Instant::now() + SWEEP;
        let mut events = vec![Event::Begin];
        loop {
            for event in events.drain(..) {
                if let Some(code) = self.feed(event) {
                    return self.part(code).await;
                }
            }
            let due = self.machine.deadline().map(|due| Instant::now() + due.since(clock::now().boot));
            tokio::select! {
                biased;
                heard = ears.hear() => events.extend(heard.iter().filter_map(signal)),
                word = self.incoming.recv() => match word {
                    Some(Word::Event(event)) => events.push(event),
                    Some(Word::Version(version)) => self.version(&version),
                    Some(Word::Stranger(why)) => self.stranger(&why),
                    None => {}
                },
                Some(_) = self.orders.join_next() => {}
                () = tokio::time::sleep_until(due.unwrap_or(sweep).min(sweep)) => {
                    if Instant::now() >= sweep {
                        self.children.reap_orphans();
                        sweep = Instant::now() + SWEEP;
                    }
                    events.push(Event::Tick);
                }
            }
        }
    }

    fn feed(&mut self, event: Event) -> Option<u8> {
        let mut out = Outbox::default();
        self.machine.handle(clock::now(), event, &mut out);
        for effect in out.take_effects() {
            match effect {
                Effect::Srun { srun, nodes, immediate } => self.srun(srun, &nodes, immediate),
                Effect::Scancel { srun, signal } => self.scancel(srun, signal),
                Effect::KillSrun { srun } => drop(self.sruns.get(&srun).map(|srun| srun.kill.send(()))),
                Effect::Send(message) => drop(self.messages.send(message)),
                Effect::Connect => self.connect(),
                Effect::ReadResult => self.read_result(),
                Effect::AskJob => self.ask_job(),
                Effect::Say(said) => (self.config.say)(&said),
                Effect::Exit(code) => return Some(code),
            }
        }
        None
    }

    /// The last orders go out before we do: nobody is left to repeat them.
    async fn part(&mut self, code: u8) -> u8 {
        let orders = async { while self.orders.join_next().await.is_some() {} };
        // A Slurm that does not answer keeps nobody here.
        let _ = tokio::time::timeout(PARTING, orders).await;
        code
    }

    fn srun(&mut self, srun: SrunId, nodes: &[NodeName], immediate: bool) {
        let request = SpawnRequest {
            argv: self.config.plan.argv(nodes, immediate),
            env: self.env.clone(),
            cwd: self.config.cwd.clone(),
            stdin: Stdin::Null,
            // A terminal's Ctrl-C is ours alone: srun would make SIGKILL of it.
            session: true,
            death_signal: self.config.tied.then_some(number::SIGTERM),
            ..SpawnRequest::default()
        };
        let tell = self.events.clone();
        let mut child = match self.children.start(&request) {
            Ok(child) => child,
            Err(error) => {
                let _ = tell.send(Word::Event(Event::NoSrun { srun, why: error.to_string() }));
                return;
            }
        };
        let (kill, mut kills) = mpsc::unbounded_channel();
        self.sruns.insert(srun, Srun { pid: child.pid(), kill, step: Rc::default() });
        tokio::task::spawn_local(async move {
            let started = child.started().await;
            let kind = loop {
                tokio::select! {
                    biased;
                    kind = child.ended() => break kind,
                    Some(()) = kills.recv() => child.signal(number::SIGKILL),
                }
            };
            let event = match started {
                Ok(()) => ended(srun, &kind),
                Err(error) => Event::NoSrun { srun, why: error.to_string() },
            };
            let _ = tell.send(Word::Event(event));
        });
    }

    /// Slurm is told to signal the step of an `srun`, whose number is asked for the first time it is needed.
    fn scancel(&mut self, id: SrunId, signal: u8) {
        let Some(srun) = self.sruns.get(&id) else { return };
        let (pid, step, slurm, tell) = (srun.pid, srun.step.clone(), self.slurm.clone(), self.events.clone());
        self.orders.spawn_local(async move {
            for _ in 0..ORDERS {
                let known = step.borrow().clone();
                let found = match known {
                    Some(known) => Ok(Some(known)),
                    None => slurm.step_of(pid).await,
                };
                let done = match found {
                    Ok(None) => {
                        let _ = tell.send(Word::Event(Event::NoStep { srun: id }));
                        return;
                    }
                    Ok(Some(found)) => {
                        *step.borrow_mut() = Some(found.clone());
                        slurm.signal(&found, signal).await
                    }
                    Err(error) => Err(error),
                };
                match done {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(target: "relight::supervisor", %error, signal, "Slurm did not signal the agents");
                    }
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }

    /// The first time: from then on the link looks for a coordinator by itself whenever it has none.
    fn connect(&mut self) {
        let (Some(files), Some(outgoing)) = (self.link.take(), self.outgoing.take()) else { return };
        let search = Search {
            dir: self.run.dir.clone(),
            options: opening::again(self.config, &self.run.id),
            token: self.token.clone(),
            identity: Identity {
                run: self.run.id.clone(),
                role: Role::Supervisor,
                node: self.config.node.clone(),
                incarnation: crate::domain::ids::Incarnation(0),
            },
            secret: self.run.secret.clone(),
        };
        tokio::task::spawn_local(link::run(search, files, outgoing, self.events.clone()));
    }

    fn read_result(&mut self) {
        let tell = self.events.clone();
        let files = self.files.clone();
        let (id, token) = (self.run.id.clone(), self.token.clone());
        let options = opening::again(self.config, &id);
        tokio::task::spawn_local(async move {
            let result = opening::result(&options, &mut *files.lock().await, &token).await;
            let _ = tell.send(Word::Event(Event::Result(result)));
        });
    }

    /// Whoever asked does not wait long, and hears nothing of an answer that comes later.
    fn ask_job(&self) {
        let (slurm, messages) = (self.slurm.clone(), self.messages.clone());
        let question = JobWord::question(&self.config.job.id);
        tokio::task::spawn_local(async move {
            let word = JobWord::read(slurm.question(&question).await);
            let _ = messages.send(FromSupervisor::Job(word));
        });
    }

    /// The agents are of a version that cannot be talked with. They train all the same; nobody here hears of it.
    fn stranger(&mut self, why: &str) {
        if !std::mem::replace(&mut self.told_version, true) {
            (self.config.say)(&format!("warning: {why}: install one relight here and where the agents run"));
        }
    }

    /// Said once: where the agents run another file than we do, or another version.
    fn version(&mut self, theirs: &str) {
        if std::mem::replace(&mut self.told_version, true) {
            return;
        }
        if let Some(said) = versions(self.config.plan.line.image.as_deref(), theirs) {
            (self.config.say)(&said);
        }
    }
}

/// What is said of the agents' version, if anything.
fn versions(image: Option<&str>, theirs: &str) -> Option<String> {
    let ours = env!("CARGO_PKG_VERSION");
    let versions = if theirs == ours {
        format!("relight {ours} there and here")
    } else {
        format!("relight {theirs} there, {ours} here")
    };
    match image {
        Some(image) => {
            Some(format!("agents run inside {image} ({versions}); Slurm is asked from the batch host"))
        }
        None if theirs == ours => None,
        None => Some(format!("warning: agents run another version ({versions})")),
    }
}

fn ended(srun: SrunId, kind: &ExitKind) -> Event {
    match kind {
        ExitKind::Code(code) => Event::SrunEnded { srun, rc: i32::from(*code) },
        ExitKind::Signal { no, .. } => Event::SrunKilled { srun, signal: *no },
        ExitKind::NeverStarted { .. } | ExitKind::Lost | ExitKind::Hung => Event::SrunEnded { srun, rc: -1 },
    }
}

fn signal(received: &Received) -> Option<Event> {
    let signal = u8::try_from(received.signal).ok()?;
    let terminal = received.code == SI_KERNEL;
    Some(Event::OsSignal { signal, terminal, user: received.code <= 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_differs_is_said_and_one_that_does_not_only_of_a_container() {
        let ours = env!("CARGO_PKG_VERSION");
        assert_eq!(versions(None, ours), None);
        assert_eq!(
            versions(None, "9.8.7"),
            Some(format!("warning: agents run another version (relight 9.8.7 there, {ours} here)"))
        );
        assert_eq!(
            versions(Some("llm.sqsh"), ours),
            Some(format!(
                "agents run inside llm.sqsh (relight {ours} there and here); Slurm is asked from the batch host"
            ))
        );
        assert_eq!(
            versions(Some("llm.sqsh"), "9.8.7"),
            Some(format!(
                "agents run inside llm.sqsh (relight 9.8.7 there, {ours} here); Slurm is asked from the batch host"
            ))
        );
    }
}
