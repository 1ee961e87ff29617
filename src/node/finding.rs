//! The first question of an agent's life: lead, or follow whom?
//!
//! The first node of a launch leads. Every other one waits for the hint that names a coordinator of this launch; one
//! that waited 10 s for each node before it in vain leads itself, and the exclusive append of the `lead` record decides
//! between two who try. An agent whose guardian says that the coordinator was an earlier life of it leads again.

use std::time::Duration;

use tokio::time::Instant;

use super::control::{Life, Stop};
use super::store::Refusal;
use crate::agent::driver::Input;
use crate::agent::processes::ProcessEvent;
use crate::domain::exit_code;
use crate::domain::guardian::{Start, ToAgent};
use crate::domain::ledger::Ledger;
use crate::domain::record::{Ground, Kind, Outcome};
use crate::domain::spec::RunSpec;
use crate::ipc::guardian::decode;
use crate::store::layout::{OpenOptions, Opened};
use crate::sys::clock;

/// A node that is silent for so long at the start is passed over.
const PASSED_OVER: Duration = Duration::from_secs(10);
/// Between two looks for a coordinator, at first and at most: many nodes look into one directory.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a run directory that a supervisor made may take to be seen here: attribute caches of file servers.
const SEEN: Duration = Duration::from_secs(10);
/// When a node that waits looks whether the run has finished long ago.
const SECOND_THOUGHT: Duration = Duration::from_secs(2);

/// What an agent starts from.
pub(super) struct Found {
    pub(super) opened: Opened,
    pub(super) ledger: Ledger,
    /// It leads, on this ground; none: it follows.
    pub(super) leads: Option<Ground>,
}

impl Life {
    /// Finds the run directory and the place of this agent in the run.
    pub(super) async fn find(&mut self, start: &Start) -> Result<Found, Stop> {
        let place = self.boot.context.place.clone();
        if place.token.is_empty() {
            let opened = self.open(start).await?;
            let ledger = self.ledger(&opened)?;
            let leads = Some(ground(&ledger, start));
            return Ok(Found { opened: *opened, ledger, leads });
        }
        let began = Instant::now();
        let turn = PASSED_OVER * place.index;
        let mut pause = LOOK.0;
        let mut looked = false;
        loop {
            let (store, dir) = (self.store.clone(), self.boot.context.run_dir.clone());
            let hint = self.hearing(store.hint(dir)).await?;
            if hint.is_some_and(|hint| hint.launch == place.token)
                && let Some(found) = self.follow(start).await?
            {
                return Ok(found);
            }
            if began.elapsed() >= turn {
                if let Some(found) = self.take_turn(start, began.elapsed()).await? {
                    return Ok(found);
                }
            } else if !looked && began.elapsed() >= SECOND_THOUGHT {
                looked = true;
                self.finished_before().await?;
            }
            self.hearing(tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(LOOK.1);
        }
    }

    /// Follows the coordinator of this launch, or is it again; none: the journal does not know it (yet).
    async fn follow(&mut self, start: &Start) -> Result<Option<Found>, Stop> {
        let opened = match self.open_once(false).await? {
            Err(refusal) if refusal.missing => return Ok(None),
            other => other?,
        };
        let ledger = self.ledger(&opened)?;
        let ours = ledger.leader().is_some_and(|(lead, _)| lead.launch == self.boot.context.place.token);
        if !ours {
            return Ok(None);
        }
        if let Some(end) = ledger.end() {
            return Err(Stop::Quietly(end.code));
        }
        let leads = Some(ground(&ledger, start)).filter(|ground| *ground == Ground::Returned);
        Ok(Some(Found { opened: *opened, ledger, leads }))
    }

    /// It is this node's turn to lead, unless somebody does already.
    async fn take_turn(&mut self, start: &Start, waited: Duration) -> Result<Option<Found>, Stop> {
        if let Some(found) = self.follow(start).await? {
            return Ok(Some(found));
        }
        let place = &self.boot.context.place;
        if !place.supervised {
            let opened = self.open(start).await?;
            let ledger = self.ledger(&opened)?;
            let leads = Some(ground(&ledger, start));
            return Ok(Some(Found { opened: *opened, ledger, leads }));
        }
        let contained = place.contained;
        match self.open_once(false).await? {
            Ok(opened) => {
                let ledger = self.ledger(&opened)?;
                Ok(Some(Found { opened: *opened, ledger, leads: Some(Ground::First) }))
            }
            Err(refusal) if refusal.missing && waited < SEEN => Ok(None),
            Err(refusal) if refusal.missing => Err(self.not_seen(contained)),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The supervisor made the run directory, and this node does not see it.
    fn not_seen(&self, contained: bool) -> Stop {
        let context = &self.boot.context;
        let (base, node) = (context.run_base.display(), &context.node);
        if contained && context.place.index > 0 {
            // All of them have the same mounts: one says so.
            return Stop::Quietly(exit_code::USAGE);
        }
        if contained {
            let sentence = format!("inside the container {base} is not visible");
            return Stop::Say(exit_code::USAGE, sentence, "add it to --container-mounts".into());
        }
        let sentence = format!("{base}, where the run directory lies, is not visible on {node}");
        Stop::Say(exit_code::USAGE, sentence, "choose a directory that all nodes share with --run-dir".into())
    }

    /// A run that has finished answers so on every node, not only on the first.
    async fn finished_before(&mut self) -> Result<(), Stop> {
        let Ok(opened) = self.open_once(false).await? else { return Ok(()) };
        let Some(previous) = &opened.previous else { return Ok(()) };
        let finished = previous.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Finished);
        if finished && previous.command == command(&self.boot.spec) {
            return Err(Stop::Quietly(exit_code::FINISHED));
        }
        Ok(())
    }

    /// Opens the run directory; a signal that means stop is heard meanwhile.
    async fn open(&mut self, start: &Start) -> Result<Box<Opened>, Stop> {
        let opened = self.open_once(true).await??;
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
            return Ok(self.open_once(true).await??);
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

    async fn open_once(&mut self, create: bool) -> Result<Result<Box<Opened>, Refusal>, Stop> {
        let options = self.options(create);
        let store = self.store.clone();
        self.hearing(store.open(options)).await
    }

    /// How this node opens the run directory.
    pub(super) fn options(&self, create: bool) -> OpenOptions {
        OpenOptions {
            dir: self.boot.context.run_dir.clone(),
            run: self.boot.spec.run_id.clone(),
            create,
            make_parents: self.boot.make_parents,
            command: command(&self.boot.spec),
            wall_ms: clock::now().wall_ms,
        }
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
