//! torchrun's own parser beside relight's: what one takes, the other takes, and both find the same program.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use relight::cli::failure::UsageError;
use relight::cli::torchrun::{OPTIONS as OURS, Row};
use relight::cli::{ParseError, Parsed, parse};
use relight::domain::settings::Key;
use serde_json::{Value, json};

use crate::python;
use crate::support::relight::{Scene, binary};

/// How the two compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Both {
    /// Both take it.
    Take,
    /// Both refuse it.
    Refuse,
    /// relight takes more.
    OnlyWeTake,
    /// relight refuses it, and `docs/torchrun.md` says so.
    OnlyTorchrunTakes,
}

use Both::{OnlyTorchrunTakes, OnlyWeTake, Refuse, Take};

type Variables = &'static [(&'static str, &'static str)];

/// Words are separated by blanks; `_` stands for a blank within one.
const LINES: &[(&str, Variables, Both)] = &[
    ("train.py", &[], Take),
    ("train.py --nnodes 3 -r9", &[], Take),
    ("-- train.py", &[], Take),
    ("train.py -- a -- b", &[], Take),
    ("train.py -- --", &[], Take),
    ("-- train.py -- a", &[], Take),
    ("--standalone -- train.py a", &[], Take),
    ("train.py --", &[], Take),
    ("", &[], Refuse),
    ("--nnodes", &[], Refuse),
    ("--bogus train.py", &[], Refuse),
    ("-x train.py", &[], Refuse),
    ("--nproc-per_node=2 train.py", &[], OnlyWeTake),
    ("--nproc-per-node=2 train.py", &[], Take),
    ("--nproc_per_node 2 train.py", &[], Take),
    ("--nproc 2 train.py", &[], OnlyWeTake),
    ("--max 2 train.py", &[], OnlyWeTake),
    ("--log x train.py", &[], Refuse),
    ("--stand train.py", &[], Take),
    ("--rdzv-en h:1 train.py", &[], Take),
    ("--master-p 1 train.py", &[], Take),
    ("--local-r 0 train.py", &[], Take),
    ("--run- train.py", &[], Take),
    ("--run train.py", &[], Refuse),
    ("--re 3 train.py", &[], Take),
    ("-r3 -t 1 train.py", &[], Take),
    ("-r=3 train.py", &[], Take),
    ("-r 0:1,1:2 train.py", &[], Take),
    ("-r 10:3 train.py", &[], OnlyWeTake),
    ("-r 4 train.py", &[], Refuse),
    ("-t x train.py", &[], Refuse),
    ("-mpkg", &[], Refuse),
    ("-m pkg.mod", &[], Take),
    ("-mr3 pkg.mod", &[], Take),
    ("-m --no-python pkg", &[], Refuse),
    ("--run-path --no-python -m train.py", &[], Take),
    ("--nproc-per-node 0 train.py", &[], Refuse),
    ("--nproc-per-node foo train.py", &[], Refuse),
    ("--nproc-per-node cpu train.py", &[], Take),
    ("--nproc-per-node auto train.py", &[], Take),
    ("--nproc-per-node xpu train.py", &[], Refuse),
    ("--nnodes 1:2:3 train.py", &[], Refuse),
    ("--nnodes 0 train.py", &[], Refuse),
    ("--nnodes 2:1 train.py", &[], Refuse),
    ("--nnodes x train.py", &[], Refuse),
    ("--nnodes 1:1 train.py", &[], Take),
    ("--max-restarts x train.py", &[], Refuse),
    ("--max-restarts -1 train.py", &[], Refuse),
    ("--max-restarts unlimited train.py", &[], OnlyWeTake),
    ("--max-restarts 1 --max-restarts 2 train.py", &[], Take),
    ("--rdzv-backend c10d train.py", &[], Take),
    ("--rdzv-backend static train.py", &[], Take),
    ("--rdzv-backend zeus train.py", &[], Refuse),
    ("--rdzv-backend etcd-v2 train.py", &[], OnlyTorchrunTakes),
    ("--rdzv-backend etcd train.py", &[], OnlyTorchrunTakes),
    ("--standalone --rdzv-backend zeus train.py", &[], Take),
    ("--rdzv-endpoint h:65535 --rdzv-backend c10d train.py", &[], Take),
    ("--rdzv-endpoint h:65536 --rdzv-backend c10d train.py", &[], Refuse),
    ("--rdzv-endpoint h:x --rdzv-backend c10d train.py", &[], Refuse),
    ("--rdzv-endpoint [::1]:5 --rdzv-backend c10d train.py", &[], Take),
    ("--rdzv-endpoint [::1] --rdzv-backend c10d train.py", &[], Take),
    ("--rdzv-endpoint a/b:5 --rdzv-backend c10d train.py", &[], Refuse),
    ("--rdzv-conf a=1,b=2=3 train.py", &[], Take),
    ("--rdzv-conf a train.py", &[], Refuse),
    ("--rdzv-conf a= train.py", &[], Refuse),
    ("--rdzv-conf =1 train.py", &[], Refuse),
    ("--rdzv-conf a=1, train.py", &[], Refuse),
    ("--rdzv-conf= train.py", &[], Take),
    ("--rdzv-id exp7 train.py", &[], Take),
    ("--monitor-interval 0.5 train.py", &[], Take),
    ("--monitor-interval often train.py", &[], Refuse),
    ("--monitor-interval 0 train.py", &[], Refuse),
    ("--start-method fork train.py", &[], Take),
    ("--start-method thread train.py", &[], Refuse),
    ("train.py", &[("PET_START_METHOD", "bogus")], Take),
    ("--event-log-handler console train.py", &[], Take),
    ("--role a=b train.py", &[], Take),
    ("--role= train.py", &[], Take),
    ("--log-dir /tmp/x train.py", &[], Take),
    ("--local-ranks-filter 0,1 train.py", &[], Take),
    ("--local-ranks-filter 0,a train.py", &[], Refuse),
    ("--log-line-prefix-template ${rank} train.py", &[], Take),
    ("--duplicate-stdout-filters a,,b,c train.py", &[], Take),
    ("--duplicate_stderr_filters a train.py", &[], Take),
    ("--node-rank 0 --master-addr 10.0.0.1 --master-port 5 train.py", &[], Take),
    ("--local-addr 10.0.0.1 train.py", &[], Take),
    ("--local-addr n1.example train.py", &[], OnlyTorchrunTakes),
    ("--logs-specs mine train.py", &[], Refuse),
    ("--numa-binding node train.py", &[], Take),
    ("--numa-binding near train.py", &[], Refuse),
    ("--signals-to-handle SIGTERM,SIGUSR1 train.py", &[], Take),
    ("--shutdown-timeout 90 train.py", &[], Take),
    ("--shutdown-timeout 0.5 train.py", &[], OnlyWeTake),
    ("--shutdown-timeout -1 train.py", &[], Refuse),
    ("--virtual-local-rank train.py", &[], Take),
    ("--standalone=1 train.py", &[], Refuse),
    ("train.py", &[("PET_STANDALONE", "1")], Take),
    ("train.py", &[("PET_STANDALONE", "2")], Take),
    ("train.py", &[("PET_STANDALONE", "true")], OnlyWeTake),
    ("train.py", &[("PET_STANDALONE", "maybe")], Refuse),
    ("--standalone train.py", &[("PET_STANDALONE", "0")], Take),
    ("train.py", &[("PET_NPROC_PER_NODE", "x")], Refuse),
    ("train.py", &[("PET_NPROC_PER_NODE", " 2\n"), ("PET_MAX_RESTARTS", " 1 ")], Take),
    ("--standalone --nnodes 1:4 train.py", &[], Take),
    ("--standalone --nnodes 2 train.py", &[], OnlyTorchrunTakes),
    ("--nproc-per-node 1 train.py", &[("PET_NPROC_PER_NODE", "x")], Take),
    ("train.py", &[("PET_MAX_RESTARTS", "x")], Refuse),
    ("train.py", &[("PET_MODULE", "1"), ("PET_NO_PYTHON", "1")], Refuse),
    ("--help", &[], Take),
];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// What torchrun's parser makes of each line.
fn torchruns(python: &OsString, scene: &Scene) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torch/parser.py");
    let mut child = scene
        .command(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for (line, variables, _) in LINES {
        let variables: serde_json::Map<String, Value> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        writeln!(input, "{}", json!([words(line), variables])).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.lines().filter_map(|line| line.strip_prefix("= "));
    answers.map(|answer| serde_json::from_str(answer).unwrap()).collect()
}

/// Its options with all spellings, and the variable that each has for a default.
const OPTIONS: &str = "
import json
from torch.distributed.argparse_util import check_env, env
from torch.distributed.run import get_args_parser
for action in get_args_parser()._actions:
    if action.option_strings:
        variable = 'PET_' + action.dest.upper() if isinstance(action, (env, check_env)) else ''
        print('=', json.dumps([action.option_strings, variable]))
";

/// A newer torch with another option makes this fail: the page says what becomes of each.
#[test]
fn every_option_and_variable_of_torchruns_is_known() {
    let Some(python) = python() else { return };
    let output = Command::new(&python).args(["-c", OPTIONS]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<(Vec<String>, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("= "))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(rows.len() > 30, "{text}{}", String::from_utf8_lossy(&output.stderr));
    let variables: Vec<&str> = Key::ALL.into_iter().flat_map(|key| key.env()).map(|var| var.name).collect();
    let mut missing = Vec::new();
    for (spellings, variable) in &rows {
        let names =
            |row: &&Row| spellings.iter().any(|spelling| row.typed.split(' ').next() == Some(spelling));
        if !OURS.iter().any(|row| names(&row)) {
            missing.push(format!("no row for {spellings:?}"));
        }
        for spelling in spellings {
            // The words that an option wants do not matter: that there is none is said first.
            let said = parse(OsStr::new("torchrun"), &[OsString::from(spelling)]);
            if matches!(
                said,
                Err(ParseError::Usage(UsageError::UnknownOption { .. } | UsageError::Ambiguous { .. }))
            ) {
                missing.push(format!("{spelling} is not taken"));
            }
        }
        if !variable.is_empty() && !variables.contains(&variable.as_str()) {
            missing.push(format!("{variable} is not read"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn what_torchruns_own_parser_takes() {
    let Some(python) = python() else { return };
    let scene = Scene::new();
    let torchrun = scene.path("torchrun");
    std::os::unix::fs::symlink(binary(), &torchrun).unwrap();
    let exp = scene.path("parse");
    fs::create_dir_all(exp.join("pkg")).unwrap();
    fs::write(exp.join("train.py"), "").unwrap();
    let theirs = torchruns(&python, &scene);
    assert_eq!(theirs.len(), LINES.len(), "torchrun's parser answered {} lines", theirs.len());
    let mut wrong = Vec::new();
    for ((line, variables, both), theirs) in LINES.iter().zip(theirs) {
        let mut command: Command = scene.command(&torchrun);
        let output = command
            .args(["--dry-run", "--json"])
            .args(words(line))
            .envs(variables.iter().copied())
            .env("PYTHON_EXEC", &python)
            .current_dir(&exp)
            .output()
            .unwrap();
        let they_take = theirs.is_array() || theirs == "exit 0";
        let we_take = output.status.success();
        let got = match (we_take, they_take) {
            (true, true) => Take,
            (false, false) => Refuse,
            (true, false) => OnlyWeTake,
            (false, true) => OnlyTorchrunTakes,
        };
        if got != *both {
            let complaint = String::from_utf8_lossy(&output.stderr);
            wrong.push(format!(
                "{line} {variables:?}: torchrun {theirs}, relight {}: {complaint}",
                output.status
            ));
        }
        // And both find the same program.
        let all: Vec<OsString> = words(line).into_iter().map(OsString::from).collect();
        if let (Some(theirs), Ok(Parsed::Run { program, .. })) =
            (theirs.as_array(), parse(OsStr::new("torchrun"), &all))
        {
            let theirs: Vec<&str> = theirs.iter().filter_map(Value::as_str).collect();
            if theirs != program {
                wrong.push(format!("{line}: torchrun runs {theirs:?}, relight {program:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
