//! torchrun's command line: each row of the table behind `docs/torchrun.md` has cases here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use relight::cli::torchrun::{OPTIONS, RULES, Row, Standing};
use relight::domain::settings::Key;
use serde_json::Value;

use crate::home::Home;

/// What a command line comes to.
enum Want {
    /// A setting has this value.
    Is(&'static str, &'static str),
    /// Accepted, and named among what has no effect.
    Idle(&'static str),
    /// Exit code 2; this is in the sentence.
    Refused(&'static str),
    /// The words that rank 1 is started with, without the interpreter.
    Argv(&'static [&'static str]),
    /// A variable of rank 1.
    Env(&'static str, &'static str),
    /// Exit code 0; this is printed.
    Prints(&'static str),
    /// Two ranks that fail are started, and it ends with this code; this is on standard error.
    Runs(i32, &'static str),
}

use Want::{Argv, Env, Idle, Is, Prints, Refused, Runs};

type Variables = &'static [(&'static str, &'static str)];

/// Row, words behind `relight run --nproc-per-node=2`, environment, result.
const CASES: &[(&str, &str, Variables, Want)] = &[
    ("-h", "-h", &[], Prints("Usage: relight run")),
    ("-h", "--help", &[], Prints("Usage: relight run")),
    ("--print-completion", "--print-completion bash", &[], Prints("_relight()")),
    ("--print-completion", "--print_completion=zsh", &[], Prints("#compdef relight")),
    ("--print-completion", "--print-completion fish", &[], Prints("complete -c relight")),
    ("--print-completion tcsh", "--print-completion tcsh", &[], Refused("no completions for 'tcsh'")),
    ("--nnodes", "--nnodes 1 train.py", &[], Is("nnodes", "1")),
    ("--nnodes", "--nnodes 2 train.py", &[], Refused("asks for several nodes")),
    ("--nproc-per-node", "--nproc_per_node=3 train.py", &[], Is("nproc-per-node", "3")),
    ("--nproc-per-node", "--nproc-per-node xpu train.py", &[], Refused("needs a GPU of Intel")),
    ("--rdzv-backend", "--rdzv-backend c10d train.py", &[], Idle("--rdzv-backend")),
    ("--rdzv-backend", "--rdzv_backend=static train.py", &[], Idle("--rdzv-backend")),
    ("--rdzv-backend", "train.py", &[("PET_RDZV_BACKEND", "c10d")], Idle("PET_RDZV_BACKEND")),
    ("--rdzv-backend etcd", "--rdzv-backend etcd train.py", &[], Refused("relight needs none")),
    ("--rdzv-backend etcd", "--rdzv-backend etcd-v2 train.py", &[], Refused("relight needs none")),
    ("--rdzv-backend PLUGIN", "--rdzv-backend mine train.py", &[], Refused("cannot load a plug-in")),
    ("--rdzv-endpoint", "--rdzv-endpoint n1:29400 train.py", &[], Idle("--rdzv-endpoint")),
    ("--rdzv-endpoint", "--rdzv-endpoint [::1]:0 train.py", &[], Is("rdzv-endpoint", "[::1]:0")),
    ("--rdzv-endpoint", "--rdzv-endpoint ::1 train.py", &[], Is("rdzv-endpoint", "[::1]")),
    ("--rdzv-endpoint", "--rdzv-endpoint n1:65536 train.py", &[], Refused("from 0 to 65535")),
    ("--rdzv-id", "--rdzv-id exp7 train.py", &[], Is("run-id", "exp7")),
    ("--rdzv-id", "--standalone --rdzv-id exp7 train.py", &[], Is("run-id", "exp7")),
    ("--rdzv-id", "--rdzv-id a/b train.py", &[], Refused("cannot name a run")),
    ("--rdzv-conf", "--rdzv-conf join_timeout=60 train.py", &[], Is("join-timeout", "60")),
    ("--rdzv-conf", "--rdzv-conf timeout=70 train.py", &[], Is("join-timeout", "70")),
    ("--rdzv-conf", "--rdzv-backend c10d --rdzv-conf timeout=70 train.py", &[], Is("join-timeout", "600")),
    ("--rdzv-conf", "--rdzv-conf last_call_timeout=5 train.py", &[], Is("last-call", "5")),
    ("--rdzv-conf", "--join-timeout 9 --rdzv-conf join_timeout=60 train.py", &[], Is("join-timeout", "9")),
    (
        "--rdzv-conf",
        "--rdzv-conf read_timeout=1,join_timeout=2,is_host=true train.py",
        &[],
        Idle("--rdzv-conf read_timeout/is_host"),
    ),
    ("--rdzv-conf", "--rdzv-conf a train.py", &[], Refused("gives no value for a")),
    ("--standalone", "--standalone train.py", &[], Is("standalone", "1")),
    ("--standalone", "--standalone --nnodes 1:4 train.py", &[], Is("nnodes", "1")),
    ("--standalone", "--standalone --nnodes 2:4 train.py", &[], Refused("asks for several nodes")),
    ("--standalone", "--standalone --rdzv-endpoint n1:x train.py", &[], Is("standalone", "1")),
    ("--max-restarts", "--max-restarts 3 train.py", &[], Is("max-restarts", "3")),
    ("--max-restarts", "--max-restarts unlimited train.py", &[], Is("max-restarts", "unlimited")),
    ("--max-restarts", "--max-restarts=-1 train.py", &[], Refused("is negative")),
    ("--monitor-interval", "--monitor-interval 0.5 train.py", &[], Idle("--monitor-interval")),
    ("--monitor-interval", "--monitor-interval 0 train.py", &[], Refused("must be above 0")),
    ("--start-method", "--start-method fork train.py", &[], Idle("--start-method")),
    ("--start-method", "--start-method thread train.py", &[], Refused("none of spawn")),
    ("--start-method", "train.py", &[("PET_START_METHOD", "bogus")], Idle("PET_START_METHOD")),
    ("--event-log-handler", "--event-log-handler console train.py", &[], Is("event-log-handler", "console")),
    (
        "--event-log-handler",
        "--max-restarts 0 --event-log-handler console --no-python false",
        &[],
        Runs(1, r#"{"name":"torchelastic.worker.status.FAILED","source":"WORKER""#),
    ),
    (
        "--event-log-handler",
        "--event-log-handler console --no-python true",
        &[],
        Runs(0, r#"{"name":"torchelastic.worker.status.START","source":"WORKER""#),
    ),
    (
        "--event-log-handler",
        "--event-log-handler console --no-python true",
        &[],
        Runs(0, r#"{"name":"torchelastic.worker.status.SUCCEEDED","source":"AGENT""#),
    ),
    (
        "--event-log-handler",
        "--event-log-handler console --no-python true",
        &[],
        Runs(0, r#"{"name":"torchelastic.worker.status.RENDEZVOUS","source":"AGENT""#),
    ),
    (
        "--event-log-handler PLUGIN",
        "--event-log-handler mine train.py",
        &[],
        Refused("cannot load a plug-in"),
    ),
    ("--role", "--role trainer train.py", &[], Env("ROLE_NAME", "trainer")),
    ("-m", "-m pkg.mod -x", &[], Argv(&["-u", "-m", "pkg.mod", "-x"])),
    ("-m", "--module --no-python x", &[], Refused("exclude each other")),
    ("--no-python", "--no-python python3 x", &[], Argv(&["x"])),
    ("--run-path", "--run-path train.py 1", &[], Argv(&["-u", "train.py", "1"])),
    ("--run-path", "--run-path --no-python -m train.py", &[], Argv(&["-u", "train.py"])),
    ("--run-path", "train.py", &[("PET_RUN_PATH", "1"), ("PET_MODULE", "1")], Argv(&["-u", "train.py"])),
    ("--log-dir", "--log-dir /l train.py", &[], Is("log-dir", "/l")),
    ("--log-dir", "--log-dir /dev/null train.py", &[], Env("TORCHELASTIC_ERROR_FILE", "")),
    ("-r", "-r 0:1,10:3 train.py", &[], Is("redirects", "0:1,10:3")),
    ("-r", "--redirects=4 train.py", &[], Refused("selects no streams")),
    ("-t", "-t 3 train.py", &[], Is("tee", "3")),
    ("-t", "--tee 12:1 train.py", &[], Is("tee", "12:1")),
    (
        "--log-line-prefix-template",
        "-t 3 --log-line-prefix-template ${hostname}/${rank}: --no-python ls no-such-file",
        &[],
        Runs(93, "node1/1:ls: "),
    ),
    (
        "--log-line-prefix-template",
        "train.py",
        &[("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank} ")],
        Is("log-line-prefix-template", "${rank} "),
    ),
    ("--local-ranks-filter", "--local-ranks-filter 0,2 train.py", &[], Is("local-ranks-filter", "0,2")),
    ("--local-ranks-filter", "--local-ranks-filter a train.py", &[], Refused("not a list of local ranks")),
    (
        "--duplicate-stdout-filters",
        "--duplicate-stdout-filters a,,b,c train.py",
        &[],
        Is("duplicate-stdout-filters", "a,,b,c"),
    ),
    (
        "--duplicate-stderr-filters",
        "--duplicate_stderr_filters error train.py",
        &[],
        Is("duplicate-stderr-filters", "error"),
    ),
    ("--node-rank", "--node-rank 1 train.py", &[], Idle("--node-rank")),
    (
        "--node-rank",
        "--nnodes 2 --node-rank 1 --master-addr n1 --insecure train.py",
        &[],
        Is("node-rank", "1"),
    ),
    (
        "--node-rank",
        "--nnodes 2 --node-rank 2 --master-addr n1 --insecure train.py",
        &[],
        Refused("beyond the last one, 1"),
    ),
    ("--master-addr", "--nnodes 2 --master-addr n1 --insecure train.py", &[], Is("master-addr", "n1")),
    (
        "--master-addr",
        "--nnodes 2 --master-addr n1 train.py",
        &[],
        Refused("nothing tells them from strangers"),
    ),
    ("--master-addr", "--nnodes 2 train.py", &[], Refused("this is no Slurm job")),
    (
        "--master-port",
        "--nnodes 2 --master-addr n1 --master-port 0 --insecure train.py",
        &[],
        Refused("leaves the port open"),
    ),
    (
        "--rdzv-endpoint",
        "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1 --insecure train.py",
        &[],
        Is("rdzv-endpoint", "n1"),
    ),
    ("--master-addr", "--master_addr n1 train.py", &[], Idle("--master-addr")),
    ("--master-port", "train.py", &[("PET_MASTER_PORT", "1")], Idle("PET_MASTER_PORT")),
    ("--local-addr", "--local-addr 10.0.0.3 train.py", &[], Is("local-addr", "10.0.0.3")),
    ("--local-addr", "--local-addr n1.example train.py", &[], Refused("is no IP address")),
    ("--logs-specs default", "--logs-specs default train.py", &[], Idle("--logs-specs")),
    ("--logs-specs PLUGIN", "--logs-specs mine train.py", &[], Refused("Python plug-in")),
    ("--numa-binding", "--numa-binding core-complex train.py", &[], Is("numa-binding", "core-complex")),
    ("--numa-binding", "--numa-binding near train.py", &[], Refused("none of node, socket")),
    ("--signals-to-handle", "--signals-to-handle SIGTERM,SIGUSR1 train.py", &[], Idle("--signals-to-handle")),
    (
        "--signals-to-handle",
        "--signals-to-handle SIGTERM,SIGFOO --no-python true",
        &[],
        Runs(0, "relight: warning: --signals-to-handle: there is no signal 'SIGFOO'"),
    ),
    (
        "--signals-to-handle",
        "--signals-to-handle SIGTERM,SIGUSR1 train.py",
        &[],
        Env("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"),
    ),
    ("--shutdown-timeout", "--shutdown-timeout 90 train.py", &[], Is("shutdown-timeout", "90")),
    (
        "--shutdown-timeout",
        "train.py",
        &[("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")],
        Is("shutdown-timeout", "5"),
    ),
    ("--virtual-local-rank", "--virtual-local-rank train.py", &[], Env("LOCAL_RANK", "0")),
    (
        "--virtual-local-rank",
        "--virtual_local_rank train.py",
        &[("CUDA_VISIBLE_DEVICES", "4,7")],
        Env("CUDA_VISIBLE_DEVICES", "7"),
    ),
    (
        "--virtual-local-rank",
        "--virtual_local_rank --gpu-visibility own train.py",
        &[("CUDA_VISIBLE_DEVICES", "4,7")],
        Env("CUDA_VISIBLE_DEVICES", "7"),
    ),
    (
        "--virtual-local-rank",
        "--virtual-local-rank train.py",
        &[("HIP_VISIBLE_DEVICES", "4")],
        Refused("2 ranks want a GPU each"),
    ),
    ("x.py --nnodes 3", "train.py --nnodes 3 -h", &[], Argv(&["-u", "train.py", "--nnodes", "3", "-h"])),
    ("x.py --nnodes 3", "train.py --nnodes=3", &[], Idle("--nnodes behind train.py")),
    ("-- x.py", "-- train.py", &[], Argv(&["-u", "train.py"])),
    ("-- x.py", "train.py -- a -- b", &[], Argv(&["-u", "train.py", "a", "--", "b"])),
    ("--nproc_per_node", "--max_restarts 3 train.py", &[], Is("max-restarts", "3")),
    ("--nproc", "--nproc 3 train.py", &[], Is("nproc-per-node", "3")),
    ("--nproc", "--stand train.py", &[], Is("standalone", "1")),
    ("--nproc", "--run- train.py", &[], Is("run-path", "1")),
    (
        "--max-restarts 1 --max-restarts 2",
        "--max-restarts 1 --max-restarts 2 train.py",
        &[],
        Is("max-restarts", "2"),
    ),
    ("-r3", "-r3 train.py", &[], Is("redirects", "3")),
    ("PET_NPROC_PER_NODE=2", "train.py", &[("PET_TEE", "3")], Is("tee", "3")),
    ("PET_NPROC_PER_NODE=2", "train.py", &[("PET_MAX_RESTARTS", " 4\n")], Is("max-restarts", "4")),
    ("PET_NPROC_PER_NODE=2", "--tee 1 train.py", &[("PET_TEE", "3")], Is("tee", "1")),
    ("PET_STANDALONE=1", "train.py", &[("PET_STANDALONE", "2")], Is("standalone", "1")),
    ("PET_STANDALONE=1", "--standalone train.py", &[("PET_STANDALONE", "0")], Is("standalone", "1")),
    ("PET_STANDALONE=1", "train.py", &[("PET_STANDALONE", "true")], Is("standalone", "1")),
    (
        "${local_rank}",
        "train.py --gpu=${local_rank} $$x ${HOME}",
        &[],
        Argv(&["-u", "train.py", "--gpu=1", "$x", "${HOME}"]),
    ),
    ("PYTHON_EXEC", "train.py", &[("PYTHON_EXEC", "/no/python")], Refused("PYTHON_EXEC")),
    ("--bogus", "--bogus train.py", &[], Refused("there is no option --bogus")),
    ("--bogus", "", &[], Refused("there is no program to run")),
    ("--nproc-per-node foo", "--nproc-per-node foo train.py", &[], Refused("neither a number")),
    ("exit 3", "--max-restarts 0 --no-python sh -c exit${IFS}3", &[], Runs(1, "exit code 3")),
    ("no_such_script.py", "no_such_script.py", &[], Refused("there is no script")),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    OPTIONS.iter().chain(RULES)
}

#[test]
fn every_row_has_a_case_and_every_case_a_row() {
    for row in rows() {
        // Under that name: `screens::defaults_under_the_name_torchrun`.
        if row.typed != "torchrun" {
            let cases: Vec<&Want> =
                CASES.iter().filter(|case| case.0 == row.typed).map(|case| &case.3).collect();
            assert!(!cases.is_empty(), "`{}` has no case", row.typed);
            let right = cases.iter().any(|want| match row.standing {
                Standing::Refused => matches!(want, Refused(_)),
                Standing::WithoutEffect => matches!(want, Idle(_)),
                Standing::Same | Standing::Better => true,
            });
            assert!(right, "no case of `{}` shows that it is {}", row.typed, row.standing.word());
        }
    }
    for (typed, ..) in CASES {
        assert!(rows().any(|row| row.typed == *typed), "no row is `{typed}`");
    }
}

#[test]
fn every_case_comes_true() {
    let home = Home::new();
    let wrong: Vec<String> = CASES.iter().filter_map(|case| wrong(&home, case)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn wrong(home: &Home, (typed, words, env, want): &(&str, &str, Variables, Want)) -> Option<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut args = vec!["run", "--nproc-per-node=2"];
    if !matches!(want, Prints(_) | Runs(..)) {
        args.extend(["--dry-run", "--json"]);
    }
    args.extend(&words);
    let mut command = home.relight(&args);
    if matches!(want, Runs(..)) {
        command.env("PATH", "/usr/bin:/bin");
    }
    let output = command.envs(env.iter().copied()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code();
    let plan: Value = serde_json::from_str(&stdout).unwrap_or_default();
    let rank = &plan["ranks"][1];
    let fine = match want {
        Is(key, value) => plan["settings"]
            .as_array()
            .is_some_and(|rows| rows.iter().any(|row| row["name"] == *key && row["value"] == *value)),
        Idle(name) => plan["without_effect"].as_array().is_some_and(|all| all.iter().any(|one| one == name)),
        Refused(part) => code == Some(2) && stderr.contains(part) && stdout.is_empty(),
        Argv(want) => rank["argv"].as_array().is_some_and(|argv| {
            let words: Vec<&str> = argv.iter().skip(1).filter_map(Value::as_str).collect();
            words == *want
        }),
        Env(name, value) => rank["env"][name] == *value,
        Prints(part) => code == Some(0) && stdout.contains(part),
        Runs(want, part) => code == Some(*want) && stderr.contains(part),
    };
    (!fine).then(|| format!("`{typed}`: {words:?} {env:?}\n[exit code {code:?}]\n{stdout}{stderr}"))
}

#[test]
fn a_variable_that_is_no_text_is_refused_where_it_counts() {
    let home = Home::new();
    let garbled = OsStr::from_bytes(b"a\xff");
    let said = |name: &str, other: &[(&str, &str)], words: &[&str]| {
        let args = [&["run", "--dry-run", "--json"], words, &["train.py"]].concat();
        let output = home.relight(&args).envs(other.iter().copied()).env(name, garbled).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for key in Key::ALL {
        for name in key.env().iter().map(|var| var.name) {
            let (code, text) = said(name, &[], &[]);
            assert_eq!(code, Some(2), "{name}: {text}");
            assert!(text.contains(&format!("{name}='a\u{fffd}' is not valid UTF-8")), "{name}: {text}");
        }
    }
    assert_eq!(said("PYTHON_EXEC", &[], &[]).0, Some(2));
    // What is decided elsewhere, and what is none of ours.
    let decided: [(&str, &[(&str, &str)], &[&str]); 4] = [
        ("PET_ROLE", &[], &["--role=x"]),
        ("PET_RDZV_ID", &[("RELIGHT_RUN_ID", "r")], &[]),
        ("PYTHON_EXEC", &[], &["--no-python", "python3"]),
        ("OTHERS", &[], &[]),
    ];
    for (name, other, words) in decided {
        assert_eq!(said(name, other, words).0, Some(0), "{name}");
    }
}

#[test]
fn lines_that_match_lie_in_a_file_of_their_own() {
    let home = Home::new();
    let say = "echo step; echo loss $RANK; echo oops >&2";
    let args = [
        "run",
        "--nproc-per-node=2",
        "--run-id=a",
        "--tee=3",
        "--log-dir=../logs",
        "--duplicate-stdout-filters=loss,grad",
        "--log-line-prefix-template=${rank}|",
        "--no-python",
        "sh",
        "-c",
        say,
    ];
    let output = home.relight(&args).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let attempt = home.path().join("logs/a_node1/attempt_0");
    let text = std::fs::read_to_string(attempt.join("filtered_stdout.log")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0|loss 0", "1|loss 1"]);
    assert!(!attempt.join("filtered_stderr.log").exists());
    assert_eq!(std::fs::read_to_string(attempt.join("1/stderr.log")).unwrap(), "oops\n");
}

#[test]
fn completions_name_options_and_the_link() {
    let home = Home::new();
    home.link("bin/torchrun");
    for shell in ["bash", "zsh", "fish"] {
        let output = home.relight(&["completions", shell]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("nproc-per-node"), "{shell}");
    }
    let torchrun = home.path().join("bin/torchrun");
    let output = home.command(torchrun, &["--print-completion", "bash"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("_torchrun()") && text.contains("--rdzv-backend"), "{text}");
}

/// Two ranks that say who they are on both streams: what reached the console (standard output, standard error), and the
/// files below the attempt's directory with what is in them.
fn said(options: &[&str]) -> (String, String, Vec<(String, String)>) {
    let home = Home::new();
    let args = [
        &["run", "--nproc-per-node=2", "--run-id=a", "--log-dir=../logs"],
        options,
        &["--no-python", "sh", "-c", "echo out$RANK; echo err$RANK >&2"],
    ];
    let output = home.relight(&args.concat()).env("PATH", "/usr/bin:/bin").output().unwrap();
    let console = |bytes: &[u8]| {
        let lines = String::from_utf8_lossy(bytes).into_owned();
        let mut lines: Vec<&str> = lines.lines().filter(|line| !line.starts_with("relight: ")).collect();
        lines.sort_unstable();
        lines.join(",")
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut files = Vec::new();
    for rank in ["0", "1"] {
        for stream in ["stdout", "stderr"] {
            let path = home.path().join("logs/a_node1/attempt_0").join(rank).join(format!("{stream}.log"));
            if let Ok(text) = std::fs::read_to_string(path) {
                files.push((format!("{rank}/{stream}"), text.trim().to_owned()));
            }
        }
    }
    (console(&output.stdout), console(&output.stderr), files)
}

#[test]
fn streams_of_single_ranks_go_where_the_maps_say() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    // Redirected: a file and no console. Teed: a file, and the console with the prefix.
    let (out, err, files) = said(&["-r", "0:1", "-t", "1:2"]);
    assert_eq!((out.as_str(), err.as_str()), ("out1", "[default1]:err1,err0"));
    assert_eq!(files, [file("0/stdout", "out0"), file("1/stderr", "err1")]);
    let (out, err, files) = said(&["--role=eval", "--tee=1"]);
    assert_eq!((out.as_str(), err.as_str()), ("[eval0]:out0,[eval1]:out1", "err0,err1"));
    assert_eq!(files, [file("0/stdout", "out0"), file("1/stdout", "out1")]);
}

#[test]
fn the_filter_of_local_ranks_is_of_the_console_alone() {
    let (out, err, files) = said(&["--local-ranks-filter=1", "--redirects=0:2", "--tee=0:1"]);
    assert_eq!((out.as_str(), err.as_str()), ("out1", "err1"));
    let files: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(files, ["0/stdout", "0/stderr"], "files have everybody");
}

#[test]
fn a_script_by_its_path_runs() {
    let home = Home::new();
    home.write("exp/pkg/where.py", "import sys; print('ran', __name__, sys.argv[1:])");
    let python =
        std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let python = String::from_utf8(python.unwrap().stdout).unwrap();
    let mut command = home.relight(&["run", "--run-path", "pkg/where.py", "${local_rank}"]);
    let output = command.env("PYTHON_EXEC", python.trim()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran __main__ ['0']\n", "{output:?}");
}
