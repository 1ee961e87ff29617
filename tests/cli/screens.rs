//! What people see.

use crate::home::{Home, squeezed};

#[test]
fn help() {
    let home = Home::new();
    for (name, args) in
        [("help", &["--help"][..]), ("help_run", &["run", "--help"]), ("help_inject", &["inject", "-h"])]
    {
        insta::assert_snapshot!(name, home.screen(args, &[]));
    }
}

#[test]
fn errors() {
    let home = Home::new();
    home.write("exp/pkg/readme", "");
    home.write("bad.conf", "max-restart = 3\n");
    let cases: &[(&[&str], &[(&str, &str)])] = &[
        (&["run"], &[]),
        (&["run", "missing.py"], &[]),
        (&["run", ""], &[]),
        (&["run", "pkg"], &[]),
        (&["run", "train.py/x"], &[]),
        (&["run", "python", "train.py"], &[]),
        (&["run", "--no-python", "nosuch"], &[]),
        (&["run", "--no-python", "./train.py"], &[]),
        (&["run", "-m", "--no-python", "x"], &[]),
        (&["run", "--nproc-per-node", "0", "train.py"], &[]),
        (&["run", "--nproc-per-node=gpuu", "train.py"], &[]),
        (&["run", "--nproc-per-node=99999999999999", "train.py"], &[]),
        (&["run", "--nnodes=2", "train.py"], &[]),
        (&["run", "--nnodes=1:4", "train.py"], &[]),
        (&["run", "--nnodes=1:2:3", "train.py"], &[]),
        (&["run", "--max-restarts=-1", "train.py"], &[]),
        (&["run", "--max-restarts=many", "train.py"], &[]),
        (&["run", "-r", "4", "train.py"], &[]),
        (&["run", "--local-ranks-filter=a", "train.py"], &[]),
        (&["run", "--shutdown-timeout=soon", "train.py"], &[]),
        (&["run", "--lost-after=2", "train.py"], &[]),
        (&["run", "--grant=lese", "train.py"], &[]),
        (&["run", "--run-id=a/b", "train.py"], &[]),
        (&["run", "--run-id=..", "train.py"], &[]),
        (&["run", "--max-restart=3", "--nproc-per-nod=2", "--tea=3", "train.py"], &[]),
        (&["run", "--learning-rate=3", "train.py"], &[]),
        (&["run", "--lo", "x", "train.py"], &[]),
        (&["run", "--numa-binding=nodes", "train.py"], &[]),
        (&["run", "--rdzv-backend=etcd-v2", "train.py"], &[]),
        (&["run", "--rdzv-backend=c10", "train.py"], &[]),
        (&["run", "--rdzv-endpoint=n1:65536", "train.py"], &[]),
        (&["run", "--rdzv-endpoint=tcp://n1:1", "train.py"], &[]),
        (&["run", "--rdzv-conf=timeout", "train.py"], &[]),
        (&["run", "--rdzv-conf==1", "train.py"], &[]),
        (&["run", "--rdzv-conf=join_timeout=soon", "train.py"], &[]),
        (&["run", "train.py"], &[("PET_RDZV_CONF", "a=1,,b=2")]),
        (&["run", "--monitor-interval=0", "train.py"], &[]),
        (&["run", "--monitor-interval=often", "train.py"], &[]),
        (&["run", "--start-method=thread", "train.py"], &[]),
        (&["run", "--event-log-handler=mine", "train.py"], &[]),
        (&["run", "--logs-specs=mine", "train.py"], &[]),
        (&["run", "--print-completion=tcsh"], &[]),
        (&["run", "--nproc-per-node=xpu", "train.py"], &[]),
        (
            &["run", "--virtual-local-rank", "--nproc-per-node=2", "train.py"],
            &[("CUDA_VISIBLE_DEVICES", "3")],
        ),
        (&["run", "--last-call=never", "train.py"], &[]),
        (&["run", "--nnodes"], &[]),
        (&["run", "--json", "train.py"], &[]),
        (&["run", "accelerate", "launch", "train.py"], &[]),
        (&["run", "deepspeed", "train.py"], &[]),
        (&["run", "/opt/bin/torchrun", "train.py"], &[]),
        (&["run", "-m", "torch.distributed.run", "train.py"], &[]),
        (&["run", "torchrun", "--nproc-per-node=8", "train.py", "--lr", "3"], &[]),
        (&["run", "python3", "-u", "-m", "accelerate.commands.launch", "train.py"], &[]),
        (&["run", "--no-python", "python", "-m", "torch.distributed.launch", "train.py"], &[]),
        (&["run", "mpiexec", "-n", "4", "./a.out"], &[]),
        (&["run", "srun", "-N2", "train.py"], &[]),
        (&["run", "/env/bin/ft_launcher", "train.py"], &[]),
        (&["run", "mpirun", "-n", "4", "./a.out"], &[]),
        (&["run", "--no-python", "srun", "hostname"], &[]),
        (&["run", "--config", "none.conf", "train.py"], &[]),
        (&["run", "--config", "../bad.conf", "train.py"], &[]),
        (&["run", "--config", "/dev/zero", "train.py"], &[]),
        (&["run", "train.py"], &[("PET_NNODES", "x")]),
        (&["run", "train.py"], &[("PET_STANDALONE", "maybe")]),
        (&["run", "train.py"], &[("PYTHON_EXEC", "/no/python")]),
        (&["run", "train.py"], &[("PATH", "/nonexistent")]),
        (&["run", "train.py"], &[("HOME", "")]),
        (&["train.py"], &[]),
        (&["statsu"], &[]),
        (&["status"], &[]),
        (&["status", "nosuch"], &[]),
        (&["status", "./nosuch"], &[]),
        (&["status", "a", "b"], &[]),
        (&["inject", "kill-rank", "--signal", "NONSENSE"], &[]),
        (&["inject", "kill-everything"], &[]),
        (&["inject", "kill-rank", "--rank", "-1"], &[]),
    ];
    let screens: Vec<String> = cases.iter().map(|(args, env)| home.screen(args, env)).collect();
    insta::assert_snapshot!("errors", screens.join("\n"));
    for screen in screens {
        assert!(screen.contains("relight: error: ") && screen.ends_with("[exit code 2]\n"), "{screen}");
    }
}

#[test]
fn dry_run() {
    let home = Home::new();
    let args = [
        "run",
        "--dry-run",
        "--run-id=exp7",
        "--nproc-per-node=2",
        "-r3",
        "--rdzv-backend=c10d",
        "--max-restarts=3",
        "train.py",
        "--lr",
        "3e-4",
        "--gpu=${local_rank}",
        "two words",
    ];
    let env = [("CONDA_PREFIX", "conda"), ("PET_MASTER_ADDR", "n1"), ("OMP_NUM_THREADS", "12")];
    home.program("exp/conda/bin/python3");
    insta::assert_snapshot!("dry_run", squeezed(&home.screen(&args, &env)));
    let args =
        ["run", "--dry-run", "--json", "--run-id=exp7", "--log-dir=/dev/null", "--no-python", "python3", "x"];
    insta::assert_snapshot!("dry_run_json", home.screen(&args, &[]));
    assert!(!home.path().join("home").exists(), "a dry run leaves nothing behind");
}

#[test]
fn config_show() {
    let home = Home::new();
    home.write("my.conf", "# ours\nlost_after = 30\nrole = \"my role\"\nmax-restarts = 9\n");
    let env = [("PET_MAX_RESTARTS", "4"), ("RELIGHT_RUN_DIR", "runs"), ("RELIGHT_CONFIG", "../my.conf")];
    let args = ["config", "show", "--origin", "--nproc_per=2", "--run-id=exp7", "train.py", "--origin"];
    insta::assert_snapshot!("config_origin", squeezed(&home.screen(&args, &env)));
    let screen =
        home.relight(&["config", "show", "--run-id=exp7", "--run-dir=/r"]).envs(env).output().unwrap();
    // What it prints is a configuration file that says the same.
    home.write("again.conf", &String::from_utf8(screen.stdout.clone()).unwrap());
    let again = home.relight(&["config", "show", "--config=../again.conf"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&screen.stdout));
    insta::assert_snapshot!("config_json", home.screen(&["config", "show", "--json", "--run-id=exp7"], &env));
}

#[test]
fn defaults_under_the_name_torchrun() {
    let home = Home::new();
    home.link("bin/torchrun");
    let args = ["--dry-run", "--json", "--run-id=a", "train.py"];
    let output = home.command(home.path().join("bin/torchrun"), &args).output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let restarts =
        plan["settings"].as_array().unwrap().iter().find(|row| row["name"] == "max-restarts").unwrap();
    assert_eq!(
        (&restarts["value"], &restarts["origin"]),
        (&"0".into(), &"default: called as torchrun".into())
    );
}

#[test]
fn interpreters() {
    let home = Home::new();
    for dir in ["venv", "conda"] {
        home.program(&format!("{dir}/bin/python3"));
    }
    home.program("own/python");
    home.program("other");
    home.link("own/relight");
    home.link("bin/relight");
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (venv, conda, other) = (path("venv"), path("conda"), path("other"));
    let chosen = |program: &str, env: &[(&str, &str)]| {
        let mut command = home.command(path(program), &["run", "--dry-run", "--json", "train.py"]);
        let output = command.envs(env.iter().copied()).output().unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |name: &str| plan["python"][name].as_str().unwrap().replace(&path(""), "");
        format!("{} ({})", text("path"), text("from"))
    };
    let all = [("VIRTUAL_ENV", venv.as_str()), ("CONDA_PREFIX", &conda), ("PYTHON_EXEC", &other)];
    assert_eq!(chosen("bin/relight", &all), "other (PYTHON_EXEC)");
    assert_eq!(chosen("own/relight", &all[..2]), "own/python (beside relight)");
    assert_eq!(chosen("bin/relight", &all[..2]), "bin/python3 (beside relight)");
    home.program("own/other/python3");
    let bare = env!("CARGO_BIN_EXE_relight");
    let run = |env: &[(&str, &str)]| {
        let mut command = home.command(bare, &["run", "--dry-run", "--json", "train.py"]);
        let output = command.envs(env.iter().copied()).output().unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["python"]["from"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(&all[..2]), "VIRTUAL_ENV");
    assert_eq!(run(&all[1..2]), "CONDA_PREFIX");
    assert_eq!(run(&[("VIRTUAL_ENV", "/nonexistent")]), "PATH");
}

#[test]
fn run_ids_in_a_job_are_counted() {
    let home = Home::new();
    let job = [("SLURM_JOB_ID", "77"), ("SLURM_SUBMIT_DIR", home.path().to_str().unwrap())];
    let id = || {
        let output = home.relight(&["run", "--dry-run", "--json", "train.py"]).envs(job).output().unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["run_dir"].as_str().unwrap().replace(home.path().to_str().unwrap(), "")
    };
    assert_eq!(id(), "/.relight/77.0");
    home.write(".relight/77.0/run.json", "{}");
    assert_eq!(id(), "/.relight/77.1");
}

#[test]
fn nobody_reads_the_output() {
    let home = Home::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_relight"));
    let status =
        command.args(["gen", "cli"]).env_clear().current_dir(home.path()).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
