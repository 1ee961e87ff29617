//! Finds out what a decision about a failure depends on: whether storage and names work, and what Slurm means to do with
//! the job. Each by a process of its own that may hang; what is not known in time is unknown.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::errands::Errands;
use super::probe::Probe;
use super::tasks;
use crate::domain::coordinator::{Event, Found};
use crate::domain::policy::{Ask, JobWord, Probes};

/// For Slurm and for a name, each.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks; cheap to clone.
#[derive(Clone)]
pub(crate) struct Seeker {
    pub(crate) probe: Probe,
    pub(crate) errands: Rc<Errands>,
    /// The Slurm job.
    pub(crate) job: Option<String>,
    /// In a container there are no commands of Slurm: the supervisor asks.
    pub(crate) contained: bool,
    /// The name of another node; none in a world of one, which needs no names.
    pub(crate) name: Option<String>,
}

impl Seeker {
    /// The answer goes to the coordinator's inbox.
    pub(crate) fn seek(&self, ask: Ask, places: Vec<PathBuf>, own: UnboundedSender<Event>) {
        let seeker = self.clone();
        tasks::spawn(async move {
            let found = match ask {
                Ask::Probes => Found::Probes(seeker.probes(places).await),
                Ask::Slurm => Found::Job(seeker.job().await),
                Ask::Signals => return,
            };
            // Nobody decides any more if it is gone.
            let _ = own.send(Event::Found(found));
        });
    }

    async fn probes(&self, places: Vec<PathBuf>) -> Probes {
        let wanted = places.len();
        let (rows, names) = tokio::join!(self.probe.space(places), self.names());
        Probes { storage: Some(rows.is_some_and(|rows| rows.len() == wanted)), names }
    }

    /// The resolver answers: that it does not know a name is an answer, too.
    async fn names(&self) -> Option<bool> {
        let Some(name) = self.name.as_deref() else { return Some(true) };
        let words = ["getent", "ahosts", name].map(str::to_owned);
        match self.errands.ask(&words, PATIENCE).await {
            Ok(_) => Some(true),
            Err(why) if why.contains("has not answered") => Some(false),
            Err(_) => Some(true),
        }
    }

    async fn job(&self) -> JobWord {
        let Some(job) = self.job.clone() else { return JobWord::Unknown };
        JobWord::read(self.errands.ask(&JobWord::question(&job), PATIENCE).await)
    }
}
