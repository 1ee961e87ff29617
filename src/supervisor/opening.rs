//! Before anything is started: which run this is, and its directory.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::time::Instant;

use super::files::{Files, Refusal};
use super::{RunName, Say, SupervisorConfig};
use crate::domain::exit_code;
use crate::domain::ids::RunId;
use crate::domain::ledger::Ledger;
use crate::domain::record::{Outcome, Record};
use crate::domain::spec::JobRef;
use crate::domain::suggest::quoted;
use crate::domain::takeover::{self, Claim, Claimant, Inquiry, Verdict};
use crate::net::secret::Secret;
use crate::slurm::ask::Slurm;
use crate::store::layout::{OpenOptions, Opened};
use crate::sys::clock;
use crate::sys::lock::{Holder, Lock, LockError};

/// Runs of one job.
const MOST: u32 = 10_000;

/// The run that is supervised.
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) dir: PathBuf,
    pub(super) secret: Secret,
    /// No second supervisor of this run on this node.
    _lock: Held,
}

/// A lock whose file goes with it.
struct Held(Option<Lock>);

impl Drop for Held {
    fn drop(&mut self) {
        // A lock file that stays is no harm: it is free.
        drop(self.0.take().map(Lock::remove));
    }
}

/// Nothing is to be started.
pub(super) struct Stop {
    pub(super) code: u8,
    /// Sentences.
    pub(super) said: Vec<String>,
}

impl Stop {
    fn refused(sentence: &dyn Display, hint: &str) -> Self {
        let mut said = vec![format!("error: {sentence}")];
        if !hint.is_empty() {
            said.push(format!("hint: {hint}"));
        }
        Self { code: exit_code::USAGE, said }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::refused(&refusal.sentence, &refusal.hint)
    }
}

/// Finds or makes the run directory. `say` gets what people should know.
pub(super) async fn open(
    config: &SupervisorConfig,
    files: &mut Files,
    slurm: &Slurm,
    say: &mut Say,
) -> Result<Run, Stop> {
    match &config.name {
        RunName::Chosen(id) => match take(config, id)? {
            Ok(lock) => {
                leave_alone(config, files, slurm, id, say).await?;
                open_one(config, files, id, lock, say).await
            }
            Err(holder) => {
                let by = holder.map(|holder| format!(" as pid {}", holder.pid)).unwrap_or_default();
                let sentence = format!("run {id} is already running on this node{by}");
                Err(Stop::refused(
                    &sentence,
                    &format!("see it: relight status {}; for another run: --run-id ID", quoted(id.as_str())),
                ))
            }
        },
        RunName::Counted { fresh } => {
            for k in 0..MOST {
                let id = RunId(format!("{}.{k}", config.job.id));
                // One that another command of the script holds counts as used.
                let Ok(lock) = take(config, &id)? else { continue };
                let options = options(config, &id);
                let opened = files.open(&options).await?;
                // Whatever came of it: each command of this start of the job has another run.
                let first = files.claim(&options, &claim(&config.job)).await?;
                if first && !(*fresh && opened.previous.is_some()) {
                    return settle(config, files, opened, (id, lock), say).await;
                }
            }
            let sentence = format!("there are {MOST} runs of job {}", config.job.id);
            Err(Stop::refused(&sentence, "name it: --run-id ID"))
        }
    }
}

fn take(config: &SupervisorConfig, id: &RunId) -> Result<Result<Held, Option<Holder>>, Stop> {
    let holder =
        Holder { pid: std::process::id(), started_ms: clock::now().wall_ms, command: config.shown.clone() };
    // Not the name of the agents' own lock: one of them runs on this node.
    let name = format!("{id} supervisor");
    match Lock::try_take(&config.private_dir, &name, &config.base.join(id.as_str()), &holder) {
        Ok(lock) => Ok(Ok(Held(Some(lock)))),
        Err(LockError::Held { holder }) => Ok(Err(holder)),
        Err(error) => Err(Stop::refused(&error, "")),
    }
}

fn options(config: &SupervisorConfig, id: &RunId) -> OpenOptions {
    OpenOptions {
        dir: config.base.join(id.as_str()),
        run: id.clone(),
        create: true,
        make_parents: false,
        command: config.command.clone(),
        wall_ms: clock::now().wall_ms,
    }
}

async fn open_one(
    config: &SupervisorConfig,
    files: &mut Files,
    id: &RunId,
    lock: Held,
    say: &mut Say,
) -> Result<Run, Stop> {
    let opened = files.open(&options(config, id)).await?;
    settle(config, files, opened, (id.clone(), lock), say).await
}

/// Another job may have this run, and train: then it is none of ours. The ids that are counted hold the job's own.
async fn leave_alone(
    config: &SupervisorConfig,
    files: &mut Files,
    slurm: &Slurm,
    id: &RunId,
    say: &mut Say,
) -> Result<(), Stop> {
    let Ok(opened) = files.open(&again(config, id)).await else {
        // What is wrong with it is said by whoever opens it in earnest.
        return Ok(());
    };
    let Ok(ledger) = Ledger::resume(&opened.records) else { return Ok(()) };
    let us = Claimant { node: &config.node, job: Some(&config.job), launch: "" };
    let claim = takeover::claim(&ledger, us);
    if let Some((sentence, hint)) = takeover::refusal(id.as_str(), &claim) {
        return Err(Stop::refused(&sentence, &hint));
    }
    let Claim::Slurm { id: theirs } = claim else { return Ok(()) };
    let (began, mut inquiry, mut said) = (Instant::now(), Inquiry::default(), false);
    loop {
        let answer = slurm.question(&takeover::question(&theirs)).await;
        let answer = answer.as_ref().map(String::as_str).map_err(String::as_str);
        match inquiry.judge(id.as_str(), &theirs, answer, began.elapsed()) {
            Verdict::Take => return Ok(()),
            Verdict::Refuse { sentence, hint } => return Err(Stop::refused(&sentence, &hint)),
            Verdict::Wait => {
                if !std::mem::replace(&mut said, true) {
                    say(&format!("run {id} belongs to {theirs}, which is ending: waiting for its end"));
                }
                tokio::time::sleep(takeover::ASK_AGAIN).await;
            }
        }
    }
}

/// A directory that was there continues its run, unless that has finished or was another one.
async fn settle(
    config: &SupervisorConfig,
    files: &mut Files,
    mut opened: Box<Opened>,
    (id, lock): (RunId, Held),
    say: &mut Say,
) -> Result<Run, Stop> {
    let options = options(config, &id);
    if let Some(previous) = &opened.previous {
        if previous.command != config.command {
            let aside = files.set_aside(&options.dir).await?;
            say(&format!(
                "run {id} had another command line: this is a new run; the earlier one lies in {}",
                aside.display()
            ));
            opened = files.open(&options).await?;
            if matches!(config.name, RunName::Counted { .. }) {
                files.claim(&options, &claim(&config.job)).await?;
            }
        } else if previous.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Finished) {
            let sentence =
                format!("run {id} has finished already; nothing to do (another --run-id starts a new run)");
            return Err(Stop { code: exit_code::FINISHED, said: vec![sentence] });
        }
    }
    let secret = Secret::from_hex(&opened.secret)
        .map_err(|_| Stop::refused(&"the secret of the run directory is damaged", ""))?;
    Ok(Run { id, dir: options.dir, secret, _lock: lock })
}

/// What a command of this start of the job leaves in its run directory.
fn claim(job: &JobRef) -> String {
    format!("start-{}.{}", job.id, job.restart)
}

/// For looking into the run directory once more.
pub(super) fn again(config: &SupervisorConfig, id: &RunId) -> OpenOptions {
    OpenOptions { create: false, ..options(config, id) }
}

/// Where the coordinator of the launch with this token listens, as the journal has it.
pub(super) async fn recorded(options: &OpenOptions, files: &mut Files, token: &str) -> Vec<SocketAddr> {
    let Ok(opened) = files.open(options).await else { return Vec::new() };
    let Ok(ledger) = Ledger::resume(&opened.records) else { return Vec::new() };
    let lead = ledger.leader().map(|(lead, _)| lead).filter(|lead| lead.launch == token);
    let addresses = lead.into_iter().flat_map(|lead| &lead.addresses);
    addresses.filter_map(|text| text.parse().ok()).collect()
}

/// How the launch with this token has ended, if it has.
pub(super) async fn result(options: &OpenOptions, files: &mut Files, token: &str) -> Option<u8> {
    let opened = files.open(options).await.ok()?;
    result_of(&opened.records, token)
}

fn result_of(records: &[Record], token: &str) -> Option<u8> {
    let ledger = Ledger::resume(records).ok()?;
    // The end of an earlier launch is not ours.
    ledger.leader().filter(|(lead, _)| lead.launch == token)?;
    ledger.end().map(|end| end.code)
}
