//! The line to the worker that looks whether this node is fit: a fresh one for every question, given up when late.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::probe::ask;
use super::tasks;
use super::workers::{GATE, Workers};
use crate::agent::driver::Input;
use crate::agent::processes::Command;
use crate::domain::agent::Event;
use crate::domain::health::{CheckResult, HealthSpec, late};
use crate::domain::ids::{Attempt, Op};
use crate::domain::settings::NodeContext;
use crate::health::check::{self, LIMIT, Plan};
use crate::health::gpus::Driver;
use crate::health::protocol::{Request, Response};

/// Beyond the limits of the checks: the worker's start, and a loaded machine.
const BEYOND: Duration = Duration::from_secs(5);
/// Nothing that can wait holds up a start: it is looked at when that is over.
const LATER: Duration = Duration::from_secs(2);

/// Looks; cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    workers: Rc<Workers>,
    inbox: UnboundedSender<Input>,
    /// What takes no program of the user.
    own: Rc<Plan>,
    /// How the driver of the GPUs is asked.
    gpus: Option<Driver>,
    /// What a program of the user gets.
    programs: Rc<Plan>,
    /// One worker at a time.
    busy: Rc<tokio::sync::Mutex<()>>,
    /// A look that nobody asked for is on its way.
    waits: Rc<Cell<bool>>,
}

impl Gate {
    pub(crate) fn new(
        workers: Rc<Workers>,
        context: &NodeContext,
        gpus: Option<Driver>,
        inbox: UnboundedSender<Input>,
    ) -> Self {
        Self {
            gpus,
            workers,
            inbox,
            own: Rc::new(own_plan(context)),
            programs: Rc::new(Plan {
                env: context.base_env.clone(),
                cwd: context.cwd.clone(),
                ..Plan::default()
            }),
            busy: Rc::default(),
            waits: Rc::default(),
        }
    }

    /// See `Hooks::check` of the agent's driver.
    pub(crate) fn check(&self, attempt: Option<Attempt>, programs: HealthSpec) {
        let gate = self.clone();
        let Some(attempt) = attempt else {
            self.tell(None, check::local());
            if !self.waits.replace(true) {
                tasks::spawn(async move {
                    sleep(LATER).await;
                    gate.waits.set(false);
                    let results = gate.ask((*gate.own).clone(), LIMIT).await;
                    gate.tell(None, results);
                });
            }
            return;
        };
        tasks::spawn(async move {
            let HealthSpec { commands, timeout_ms } = programs;
            let (env, cwd) = (gate.programs.env.clone(), gate.programs.cwd.clone());
            let gpus = gate.gpus.clone();
            let plan =
                Plan { local: true, gpus, programs: commands, timeout_ms, env, cwd, ..(*gate.own).clone() };
            let limit = plan.clone().checks().iter().map(|check| check.limit()).max().unwrap_or(LIMIT);
            let results = gate.ask(plan, limit).await;
            gate.tell(Some(attempt), results);
        });
    }

    fn tell(&self, attempt: Option<Attempt>, results: Vec<CheckResult>) {
        let _ = self.inbox.send(Input::Event(Event::Checked { attempt, results }));
    }

    /// What a worker finds. One that gives no answer at all leaves everything unknown.
    async fn ask(&self, plan: Plan, limit: Duration) -> Vec<CheckResult> {
        let _one = self.busy.lock().await;
        let names: Vec<String> = plan.clone().checks().iter().map(|check| check.name()).collect();
        let request = Request::Checks { op: Op(1), plan };
        let response = match self.start() {
            Some(mut socket) => timeout(limit + BEYOND, ask(&mut socket, &request)).await.ok().flatten(),
            None => None,
        };
        // It may hang in the kernel: nobody waits for its end.
        self.workers.processes.send(Command::KillWorker { id: GATE });
        match response {
            Some(Response::Checks { results, .. }) => results,
            _ => {
                let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                names.into_iter().map(|name| late(ms).named(name, ms)).collect()
            }
        }
    }

    fn start(&self) -> Option<UnixStream> {
        let socket = self.workers.start(GATE).ok()?;
        socket.set_nonblocking(true).ok()?;
        UnixStream::from_std(socket).ok()
    }
}

fn own_plan(context: &NodeContext) -> Plan {
    let mut rooms = vec![("run directory".to_owned(), context.run_dir.clone())];
    rooms.extend(context.log_dir.clone().map(|dir| ("log directory".to_owned(), dir)));
    // Machines without a directory that all of them read have none to try.
    let shared = context.place.direct.is_none() && !context.place.token.is_empty();
    Plan {
        rooms,
        shared: shared.then(|| (context.run_dir.clone(), context.node.to_string())),
        ..Plan::default()
    }
}
