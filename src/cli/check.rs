//! `relight check`: is this node fit for ranks?

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{CheckArgs, RunOptions};
use super::{output, run};
use crate::domain::env;
use crate::domain::exit_code::Outcome;
use crate::domain::health::{CheckResult, Finding, HealthSpec, failed, late};
use crate::domain::ids::Op;
use crate::domain::settings::{LogDir, Settings};
use crate::health::check::{LIMIT, Plan};
use crate::health::gpus::Driver;
use crate::health::protocol::{Request, Response};
use crate::ipc::frame;
use crate::sys::capability::Capabilities;
use crate::sys::spawn::{self, SpawnRequest, Stdin};
use crate::sys::{process as own, wait};

/// The number of a worker's socket.
const SOCKET: i32 = 3;
const SIGKILL: i32 = 9;
/// Beyond the limits of the checks.
const BEYOND: Duration = Duration::from_secs(5);

/// Runs all checks on this node.
///
/// # Errors
/// A setting makes no sense, or nothing can be started.
pub fn check(process: &Process, args: &CheckArgs) -> Result<Outcome, Failure> {
    let options = RunOptions {
        health_cmd: args.health_cmd.clone(),
        health_timeout: args.health_timeout.clone(),
        run_dir: args.run_dir.clone(),
        ..RunOptions::default()
    };
    let settings = run::settings(process, &options, &[])?;
    let results = looked(plan(process, &settings));
    let node = settings.node.as_str();
    let text = if args.json { as_json(node, &results) } else { as_table(node, &results) };
    output::print(&text)?;
    Ok(if failed(&results).is_some() { Outcome::Failed } else { Outcome::Finished })
}

fn plan(process: &Process, settings: &Settings) -> Plan {
    let run_dir = settings.run_dir.value.clone();
    let mut rooms = vec![("run directory".to_owned(), run_dir.clone())];
    if let LogDir::At(dir) = &settings.log_dir.value {
        rooms.push(("log directory".to_owned(), dir.clone()));
    }
    let HealthSpec { commands, timeout_ms } = settings.run_spec().health;
    Plan {
        local: true,
        rooms,
        shared: Some((run_dir, format!("{}-{}", settings.node, own::own_pid()))),
        above: true,
        gpus: Driver::of(process.var(env::RELIGHT_NVML).unwrap_or_default(), Path::new(""), &process.env),
        programs: commands,
        timeout_ms,
        env: process.env.clone(),
        cwd: PathBuf::from("."),
    }
}

/// What a worker finds: one that hangs in the kernel is left behind, and would not let go of this process.
fn looked(plan: Plan) -> Vec<CheckResult> {
    let limits: Vec<(String, Duration)> =
        plan.clone().checks().iter().map(|check| (check.name(), check.limit())).collect();
    let longest = limits.iter().map(|(_, limit)| *limit).max().unwrap_or(LIMIT);
    match ask(plan, longest + BEYOND) {
        Ok(Response::Checks { results, .. }) => results,
        Ok(_) | Err(_) => {
            let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            limits.into_iter().map(|(name, limit)| late(ms(limit)).named(name, ms(limit))).collect()
        }
    }
}

fn ask(plan: Plan, patience: Duration) -> Result<Response, frame::FrameError> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let request = SpawnRequest {
        argv: ["/proc/self/exe", "__worker", "probe"].into_iter().map(Into::into).collect(),
        cwd: PathBuf::from("."),
        stdin: Stdin::Null,
        inherit: vec![(SOCKET, theirs.as_fd().try_clone_to_owned()?)],
        death_signal: Some(SIGKILL),
        ..SpawnRequest::default()
    };
    let worker = spawn::spawn(&request, Capabilities::probe())
        .map_err(|error| io::Error::from_raw_os_error(error.errno))?;
    // The worker has the only other end.
    drop((request, theirs));
    ours.set_read_timeout(Some(patience))?;
    let answer = frame::write(&mut ours, &Request::Checks { op: Op(1), plan })
        .and_then(|()| frame::read::<Response>(&mut ours));
    // Nobody waits for its end, it may hang.
    let _ = own::kill(worker.pid, SIGKILL);
    let _ = wait::reap(worker.pid);
    answer
}

fn as_json(node: &str, results: &[CheckResult]) -> String {
    let checks: Vec<_> = results
        .iter()
        .map(|result| {
            json!({
                "check": result.check,
                "finding": result.finding.word(),
                "warns": result.warns,
                "sentence": result.sentence,
                "took_ms": result.took_ms,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "node": node, "fit": failed(results).is_none(), "checks": checks }))
}

fn as_table(node: &str, results: &[CheckResult]) -> String {
    let width = results.iter().map(|result| result.check.chars().count()).max().unwrap_or(0).min(40);
    let mut out = String::new();
    for result in results {
        let word = if result.warns { "warning" } else { result.finding.word() };
        let took = format!("{} ms", result.took_ms);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{word:8} {:width$}  {:>8}  {}", result.check, took, result.sentence);
    }
    let count = |finding| results.iter().filter(|result| result.finding == finding).count();
    let (fails, unknown) = (count(Finding::Fail), count(Finding::Unknown));
    let _ = match (fails, unknown) {
        (0, 0) => writeln!(out, "{node} is fit"),
        (0, unknown) => writeln!(out, "{node} is fit, as far as can be told: unknown {unknown}"),
        (fails, _) => writeln!(out, "{node} is not fit: failed {fails} of {}", results.len()),
    };
    out
}
