//! Commands that show what a run directory says.

use std::path::Path;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{EventsArgs, GcArgs, LogsArgs, OutputStream, StatusArgs, WhyArgs};
use super::landing::is_running_here;
use super::runs::RunsError;
use super::{output, runs};
use crate::domain::exit_code::Outcome;
use crate::domain::ids::{Attempt, Rank};
use crate::inspect::status::Alive;
use crate::inspect::{Clock, Said, events, gc, logs, replay, status, why};
use crate::store::look::{self, RunView};
use crate::sys::clock;

fn said(said: &Said) -> Result<Outcome, Failure> {
    output::print(&said.text).map(|()| Outcome::of(said.code))
}

fn read(dir: &Path) -> Result<RunView, Failure> {
    Ok(look::read_run(dir).map_err(RunsError::Layout)?)
}

/// `relight status`.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub fn show_status(process: &Process, args: &StatusArgs) -> Result<Outcome, Failure> {
    let dir = runs::find(process, &args.run)?;
    let view = read(&dir)?;
    let alive = if is_running_here(process, &dir) {
        Alive::Yes
    } else if view.status.as_ref().is_some_and(|status| status.leader.as_str() == process.node()) {
        Alive::No
    } else {
        Alive::Unknown
    };
    let call = runs::call(process, &dir);
    said(&status::render(&view, &call, alive, clock::now().wall_ms, args.json, &Clock::local()))
}

/// `relight why`.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub fn show_why(process: &Process, args: &WhyArgs) -> Result<Outcome, Failure> {
    let view = read(&runs::find(process, &args.run)?)?;
    let number = args.number.or(args.incident);
    said(&if args.json { why::as_json(&view, number) } else { why::render(&view, number, &Clock::local()) })
}

/// `relight events`.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub fn show_events(process: &Process, args: &EventsArgs) -> Result<Outcome, Failure> {
    let view = read(&runs::find(process, &args.run)?)?;
    if args.replay {
        said(&replay::render(&view))
    } else {
        said(&events::render(&view, args.json, &Clock::local()))
    }
}

/// `relight logs`.
///
/// # Errors
/// There is no such run, attempt or rank, or a file cannot be read.
pub fn show_logs(process: &Process, args: &LogsArgs) -> Result<Outcome, Failure> {
    let view = read(&runs::find(process, &args.run)?)?;
    let stream = args.stream.map(|stream| match stream {
        OutputStream::Stdout => logs::Stream::Out,
        OutputStream::Stderr => logs::Stream::Err,
    });
    let wanted = logs::Wanted { rank: args.rank.map(Rank), attempt: args.attempt.map(Attempt), stream };
    let sources = logs::sources(&view, &wanted).map_err(RunsError::Logs)?;
    output::print_bytes(&logs::read(&sources, args.lines).map_err(RunsError::Io)?)?;
    let Some(damage) = &view.damage else { return Ok(Outcome::Finished) };
    output::complain(&format!("relight: the journal is damaged, there may be more: {damage}\n"));
    Ok(Outcome::Failed)
}

/// `relight gc`.
///
/// # Errors
/// The directory cannot be read.
pub fn collect(process: &Process, args: &GcArgs) -> Result<Outcome, Failure> {
    let base = runs::base(process, args.run_dir.as_deref())?;
    let rule = gc::Rule { older_than_days: args.older_than, keep: args.keep };
    match gc::run(&base, rule, clock::now().wall_ms, args.dry_run, |run| is_running_here(process, &run.dir)) {
        Ok(done) => said(&done),
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            Err(RunsError::None { base }.into())
        }
        Err(error) => Err(RunsError::Io(error).into()),
    }
}
