//! The first question of an agent's life, with hands: the rules are in [`crate::domain::finding`] and
//! [`crate::domain::takeover`].

use std::time::Duration;

use tokio::time::Instant;

use super::control::{Life, Stop};
use super::store::{Refusal, Unusable};
use crate::agent::driver::Input;
use crate::agent::processes::ProcessEvent;
use crate::domain::exit_code;
use crate::domain::finding::{Seeker, Standing};
use crate::domain::guardian::{Start, ToAgent};
use crate::domain::ledger::Ledger;
use crate::domain::record::{Ground, Kind, Outcome};
use crate::domain::spec::RunSpec;
use crate::domain::takeover::{self, Claim, Claimant, Inquiry, Verdict};
use crate::domain::time::human;
use crate::ipc::guardian::decode;
use crate::store::layout::{OpenOptions, Opened};
use crate::sys::clock;

/// How long `squeue` may take: a controller that is down answers after 18 s, and nobody waits for that.
const SQUEUE: Duration = Duration::from_secs(5);

/// What an agent starts from.
pub(super) struct Found {
    pub(super) opened: Opened,
    pub(super) ledger: Ledger,
    /// It leads, on this ground; none: it follows.
    pub(super) leads: Option<Ground>,
}

/// An agent that looks for its place, and since when.
pub(super) struct Search {
    pub(super) seeker: Seeker,
    pub(super) began: Instant,
    /// That the run directory does not answer was said.
    pub(super) said_silent: bool,
}

impl Life {
    /// Finds the run directory and the place of this agent in the run.
    pub(super) async fn find(&mut self, start: &Start) -> Result<Found, Stop> {
        let place = &self.boot.context.place;
        let seeker = Seeker {
            index: place.index,
            launch: place.token.clone(),
            clean_of: start.clean_of.clone(),
            join_timeout: Duration::from_millis(self.boot.spec.numbers.join_timeout_ms),
        };
        let direct = place.direct.clone();
        let mut search = Search { seeker, began: Instant::now(), said_silent: false };
        if let Some(direct) = direct {
            return self.meet(direct, &mut search).await;
        }
        if search.seeker.launch.is_empty() {
            return self.lead(&mut search).await;
        }
        let (mut pause, mut thoughts) = (Seeker::pause(None), 0);
        loop {
            let (store, dir) = (self.store.clone(), self.boot.context.run_dir.clone());
            let hint = self.hearing(store.hint(dir)).await?;
            if hint.is_some_and(|hint| search.seeker.is_ours(&hint.launch))
                && let Some(found) = self.follow(&mut search).await?
            {
                return Ok(found);
            }
            let waited = search.began.elapsed();
            if waited >= search.seeker.turn() {
                if let Some(found) = self.take_turn(&mut search).await? {
                    return Ok(found);
                }
            } else if Seeker::thoughts(waited) > thoughts {
                thoughts = Seeker::thoughts(waited);
                if let Some(found) = self.think_again(&mut search).await? {
                    return Ok(found);
                }
            }
            self.hearing(tokio::time::sleep(pause)).await?;
            pause = Seeker::pause(Some(pause));
        }
    }

    /// Follows the coordinator of this launch, or is it again; none: the journal does not know it (yet).
    async fn follow(&mut self, search: &mut Search) -> Result<Option<Found>, Stop> {
        let opened = match self.open_once(false, search).await? {
            Err(refusal) if refusal.kind == Unusable::Missing => return Ok(None),
            other => other?,
        };
        let ledger = self.ledger(&opened)?;
        stand(search, *opened, ledger)
    }

    /// It is this node's turn to lead, unless somebody does already.
    async fn take_turn(&mut self, search: &mut Search) -> Result<Option<Found>, Stop> {
        if let Some(found) = self.follow(search).await? {
            return Ok(Some(found));
        }
        let place = &self.boot.context.place;
        if !place.supervised {
            return self.lead(search).await.map(Some);
        }
        let contained = place.contained;
        // Whether the run is free was the supervisor's question.
        match self.open_once(false, search).await? {
            Ok(opened) => {
                let ledger = self.ledger(&opened)?;
                Ok(Some(Found { opened: *opened, ledger, leads: Some(Ground::First) }))
            }
            Err(refusal) if refusal.kind != Unusable::Missing => Err(refusal.into()),
            Err(_) if Seeker::looks_on(search.began.elapsed()) => Ok(None),
            Err(_) => Err(self.not_seen(contained)),
        }
    }

    /// Leads, where nobody does and nobody else may be at it.
    pub(super) async fn lead(&mut self, search: &mut Search) -> Result<Found, Stop> {
        let mut opened = self.open(search).await?;
        let mut ledger = self.ledger(&opened)?;
        if search.seeker.ground(&ledger) == Ground::First && self.is_claimed(&ledger).await? {
            // What its owner wrote at last counts.
            opened = self.open(search).await?;
            ledger = self.ledger(&opened)?;
        }
        let leads = Some(search.seeker.ground(&ledger));
        Ok(Found { opened: *opened, ledger, leads })
    }

    fn claim(&self, ledger: &Ledger) -> Claim {
        let context = &self.boot.context;
        let us =
            Claimant { node: &context.node, job: context.place.job.as_ref(), launch: &context.place.token };
        takeover::claim(ledger, us)
    }

    /// Whether another job had the run, which has ended by now; a refusal where it has not.
    async fn is_claimed(&mut self, ledger: &Ledger) -> Result<bool, Stop> {
        let run = self.boot.spec.run_id.to_string();
        let claim = self.claim(ledger);
        if let Some((sentence, hint)) = takeover::refusal(&run, &claim) {
            return Err(Stop::Say(exit_code::USAGE, sentence, hint));
        }
        let Claim::Slurm { id } = claim else { return Ok(false) };
        let (began, mut inquiry, mut said) = (Instant::now(), Inquiry::default(), false);
        loop {
            let words = takeover::question(&id);
            let errands = self.errands();
            let answer = self.hearing(async move { errands.ask(&words, SQUEUE).await }).await?;
            let answer = answer.as_ref().map(String::as_str).map_err(String::as_str);
            match inquiry.judge(&run, &id, answer, began.elapsed()) {
                Verdict::Take => return Ok(true),
                // Those further back would all say the same.
                Verdict::Refuse { .. } if self.boot.context.place.index > 1 => {
                    return Err(Stop::Quietly(exit_code::USAGE));
                }
                Verdict::Refuse { sentence, hint } => {
                    return Err(Stop::Say(exit_code::USAGE, sentence, hint));
                }
                Verdict::Wait => {
                    if !std::mem::replace(&mut said, true) {
                        self.teller
                            .say(&format!("run {run} belongs to {id}, which is ending: waiting for its end"));
                    }
                    self.hearing(tokio::time::sleep(takeover::ASK_AGAIN)).await?;
                }
            }
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

    /// The journal says who leads, also where the hint cannot be read; and a run that has finished, or that cannot be led,
    /// answers so on every node, not only on the first.
    async fn think_again(&mut self, search: &mut Search) -> Result<Option<Found>, Stop> {
        let Ok(opened) = self.open_once(false, search).await? else { return Ok(None) };
        let ledger = self.ledger(&opened);
        if let Ok(ledger) = &ledger
            && search.seeker.standing(ledger) != Standing::Nobody
        {
            return stand(search, *opened, ledger.clone());
        }
        let Some(previous) = &opened.previous else { return Ok(None) };
        let finished = previous.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Finished);
        let same = previous.command == command(&self.boot.spec);
        if finished && same {
            return Err(Stop::Quietly(exit_code::FINISHED));
        }
        // The first node says why.
        let Ok(ledger) = ledger else { return Err(Stop::Quietly(exit_code::USAGE)) };
        let held = same && self.claim(&ledger) != Claim::Free;
        if held && Seeker::is_left_alone(search.began.elapsed()) {
            return Err(Stop::Quietly(exit_code::USAGE));
        }
        Ok(None)
    }

    /// Opens the run directory; a signal that means stop is heard meanwhile.
    async fn open(&mut self, search: &mut Search) -> Result<Box<Opened>, Stop> {
        let opened = self.open_once(true, search).await??;
        let Some(previous) = &opened.previous else { return Ok(opened) };
        let leader = opened.records.iter().rev().find(|r| r.kind == Kind::Lead).map(|r| r.writer.incarnation);
        if leader.is_some_and(|life| search.seeker.clean_of.contains(&life)) {
            // An earlier agent of this launch looked already.
            return Ok(opened);
        }
        let same = previous.command == command(&self.boot.spec);
        if !same {
            // Not under the feet of somebody who trains.
            let ledger = self.ledger(&opened)?;
            self.is_claimed(&ledger).await?;
            let dir = self.boot.context.run_dir.clone();
            let store = self.store.clone();
            let aside = self.hearing(store.set_aside(dir)).await??;
            self.teller.say(&format!(
                "run {} had another command line: this is a new run; the earlier one lies in {}",
                self.boot.spec.run_id,
                aside.display()
            ));
            return Ok(self.open_once(true, search).await??);
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

    /// One that does not answer is asked again, as long as this agent would be missed.
    async fn open_once(
        &mut self,
        create: bool,
        search: &mut Search,
    ) -> Result<Result<Box<Opened>, Refusal>, Stop> {
        loop {
            let options = self.options(create);
            let store = self.store.clone();
            let opened = self.hearing(store.open(options)).await?;
            let silent = opened.as_ref().is_err_and(|refusal| refusal.kind == Unusable::Silent);
            if !silent || !search.seeker.outwaits(search.began.elapsed()) {
                return Ok(opened);
            }
            if !std::mem::replace(&mut search.said_silent, true) && search.seeker.index == 0 {
                let limit = human(search.seeker.join_timeout);
                self.teller
                    .say(&format!("the run directory does not answer: waiting for it, {limit} at most"));
            }
        }
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
    pub(super) async fn hearing<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return Ok(done),
                input = self.events.recv() => {
                    let Some(input) = input else { return Ok(wait.await) };
                    let Input::Process(ProcessEvent::FromGuardian(bytes)) = input else { continue };
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

/// The place in its launch that a journal gives to this agent; none: nobody leads yet.
fn stand(search: &Search, opened: Opened, ledger: Ledger) -> Result<Option<Found>, Stop> {
    let leads = match search.seeker.standing(&ledger) {
        Standing::Nobody => return Ok(None),
        Standing::Ended(code) => return Err(Stop::Quietly(code)),
        Standing::Follow => None,
        Standing::Again => Some(Ground::Returned),
    };
    Ok(Some(Found { opened, ledger, leads }))
}

/// The command line that a run is told apart by.
fn command(spec: &RunSpec) -> Vec<String> {
    std::iter::once(spec.program.clone()).chain(spec.args.iter().cloned()).collect()
}
