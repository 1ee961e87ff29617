//! What people see before a run: settings with their origins, and what a run would start.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::facts::Process;
use super::failure::Failure;
use super::flags::ConfigShow;
use super::output;
use super::run::{self, Launch};
use crate::domain::env::{self, RankPlace, rank_argv, rank_environment};
use crate::domain::exit_code::Outcome;
use crate::domain::ids::{Attempt, Incarnation, LocalRank, Slot};
use crate::domain::record::Member;
use crate::domain::settings::{Key, Origin, Row, Settings};
use crate::domain::spec::{Offer, StoreHost};
use crate::domain::wire::World;

/// `relight config show`.
///
/// # Errors
/// A file or a value makes no sense.
pub fn config(process: &Process, show: &ConfigShow, program: &[String]) -> Result<Outcome, Failure> {
    let settings = run::settings(process, &show.run, program)?;
    let text = if show.json {
        format!("{:#}\n", json!({ "settings": rows_json(&settings) }))
    } else if show.origin {
        rows_table(&settings)
    } else {
        rows_file(&settings)
    };
    output::print(&text).map(|()| Outcome::Finished)
}

/// As a configuration file.
fn rows_file(settings: &Settings) -> String {
    let mut out = String::new();
    for Row { key, value, origin } in settings.rows() {
        // A name that was made up for one run would make every run of the file that one.
        if key == Key::RunId && matches!(origin, Origin::Default(_)) {
            out.push_str("# run-id is made up anew for each run\n");
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match value {
            Some(value) if value != value.trim() || value.starts_with('"') => {
                writeln!(out, "{} = \"{value}\"", key.name())
            }
            Some(value) => writeln!(out, "{} = {value}", key.name()),
            None => writeln!(out, "# {} is not set", key.name()),
        };
    }
    out
}

fn rows_table(settings: &Settings) -> String {
    let rows: Vec<(&str, String, String)> = settings
        .rows()
        .into_iter()
        .map(|row| (row.key.name(), row.value.unwrap_or_else(|| "-".to_owned()), row.origin.to_string()))
        .collect();
    let name = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let value = rows.iter().map(|row| row.1.chars().count()).max().unwrap_or(0).min(48);
    let mut out = String::new();
    for row in rows {
        let _ = writeln!(out, "{:name$}  {:value$}  ({})", row.0, row.1, row.2);
    }
    out
}

fn rows_json(settings: &Settings) -> Vec<Value> {
    let row =
        |row: Row| json!({ "name": row.key.name(), "value": row.value, "origin": row.origin.to_string() });
    settings.rows().into_iter().map(row).collect()
}

/// One rank as it would be started.
struct Planned {
    local_rank: u32,
    argv: Vec<String>,
    /// The CPUs that it is bound to; empty: it is not.
    cpus: Vec<u32>,
    /// What relight adds to the environment or changes in it.
    env: Vec<(String, String)>,
}

/// Shows what a run would start.
///
/// # Errors
/// The output cannot be written.
pub fn dry_run(launch: &Launch, as_json: bool) -> Result<Outcome, Failure> {
    let ranks = plan(launch);
    let text = if as_json { dry_run_json(launch, &ranks) } else { dry_run_text(launch, &ranks) };
    output::print(&text).map(|()| Outcome::Finished)
}

/// The port that stands for "chosen when the attempt starts".
const ANY_PORT: &str = "<a free one>";

fn plan(launch: &Launch) -> Vec<Planned> {
    let context = &launch.config.context;
    let world = World {
        members: vec![Member {
            slot: Slot(0),
            node: context.node.clone(),
            incarnation: Incarnation(0),
            nproc: launch.config.node.nproc,
            log_dir: launch.config.node.log_dir.clone(),
            role: launch.config.node.role.clone(),
        }],
        master: Offer {
            address: launch.config.node.address.clone(),
            port: 0,
            hosted: context.rdzv_store == StoreHost::Agent,
        },
        resume: None,
        addresses: Vec::new(),
    };
    let lossy = |text: &OsStr| text.to_string_lossy().into_owned();
    let one = |local: u32| -> Option<Planned> {
        let local_rank = LocalRank(local);
        let error_file: Option<PathBuf> = context
            .log_dir
            .as_ref()
            .map(|dir| dir.join("attempt_0").join(local.to_string()).join("error.json"));
        let place = RankPlace {
            base: &context.base_env,
            world: &world,
            slot: Slot(0),
            local_rank,
            attempt: Attempt(0),
            spec: &launch.config.spec,
            error_file: error_file.as_deref(),
            run_base: Some(&context.run_base),
            signals: &context.signals,
            slurm_env: context.slurm_env,
            threads: context.threads,
            gpus: context.gpus,
            board: None,
            python: [None, None],
        };
        let is_inherited = |pair: &(OsString, OsString)| context.base_env.contains(pair);
        let env = rank_environment(&place).ok()?.into_iter().filter(|pair| !is_inherited(pair));
        let env = env.map(|(name, value)| {
            let value = if name == env::MASTER_PORT.name { ANY_PORT.to_owned() } else { lossy(&value) };
            (lossy(&name), value)
        });
        let argv = rank_argv(&launch.config.spec, &context.interpreter, local_rank);
        Some(Planned {
            local_rank: local,
            argv: argv.iter().map(|word| lossy(word)).collect(),
            cpus: context.cpus.get(local as usize).cloned().unwrap_or_default(),
            env: env.collect(),
        })
    };
    (0..launch.config.node.nproc).filter_map(one).collect()
}

fn dry_run_text(launch: &Launch, ranks: &[Planned]) -> String {
    let mut out = String::from("Dry run: nothing is started.\n\nsettings\n");
    for line in rows_table(&launch.settings).lines() {
        let _ = writeln!(out, "  {line}");
    }
    let context = &launch.config.context;
    let _ = writeln!(out, "\nrun directory  {}", context.run_dir.display());
    if let Some(dir) = &context.log_dir {
        let _ = writeln!(out, "logs           {}", dir.display());
    }
    if !context.interpreter_from.is_empty() {
        let _ =
            writeln!(out, "python         {} ({})", context.interpreter.display(), context.interpreter_from);
    }
    if !context.ignored.is_empty() {
        let _ = writeln!(out, "without effect {}", context.ignored.join(", "));
    }
    let is_common = |pair: &&(String, String)| ranks.iter().all(|rank| rank.env.contains(pair));
    if let Some(first) = ranks.first() {
        let _ = writeln!(out, "\nevery rank");
        for (name, value) in first.env.iter().filter(is_common) {
            let _ = writeln!(out, "  {name}={}", quoted(value));
        }
    }
    for rank in ranks {
        let argv: Vec<String> = rank.argv.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(out, "\nrank {}\n  {}", rank.local_rank, argv.join(" "));
        if !rank.cpus.is_empty() {
            let cpus: Vec<String> = rank.cpus.iter().map(u32::to_string).collect();
            let _ = writeln!(out, "  bound to CPUs {}", cpus.join(","));
        }
        for (name, value) in rank.env.iter().filter(|pair| !is_common(pair)) {
            let _ = writeln!(out, "  {name}={}", quoted(value));
        }
    }
    out
}

fn dry_run_json(launch: &Launch, ranks: &[Planned]) -> String {
    let rank = |rank: &Planned| {
        let env: serde_json::Map<String, Value> =
            rank.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut all =
            json!({ "rank": rank.local_rank, "local_rank": rank.local_rank, "argv": rank.argv, "env": env });
        if !rank.cpus.is_empty() {
            all["cpus"] = json!(rank.cpus);
        }
        all
    };
    let context = &launch.config.context;
    let python = (!context.interpreter_from.is_empty())
        .then(|| json!({ "path": context.interpreter.to_string_lossy(), "from": context.interpreter_from }));
    let all = json!({
        "settings": rows_json(&launch.settings),
        "without_effect": context.ignored,
        "run_dir": context.run_dir.to_string_lossy(),
        "log_dir": context.log_dir.as_ref().map(|dir| dir.to_string_lossy()),
        "python": python,
        "ranks": ranks.iter().map(rank).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

/// As a shell would need it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
