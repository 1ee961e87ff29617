//! The batch form, from the script to the exit code.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::{Job, LONG, argv};
use crate::support::wait::wait_for;
use crate::support::{leftovers, procfs};

/// Says who it is, in one line of a file that all ranks append to.
const SAY: &str = "open('ranks', 'a').write('{RANK} {WORLD_SIZE} {TORCHELASTIC_RESTART_COUNT} {SLURMD_NODENAME}\\n'.format(**os.environ))";

fn ranks(job: &Job) -> Vec<String> {
    let text = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
    let mut ranks: Vec<String> = text.lines().map(str::to_owned).collect();
    ranks.sort();
    ranks
}

#[test]
fn one_agent_on_each_node_and_the_code_is_the_runs() {
    let job = Job::new(2);
    // Whatever srun says.
    job.leave("rc", "7");
    let mut command = job.run(SAY);
    command.env("SLURM_NTASKS_PER_NODE", "2").env("SLURM_NTASKS", "4").env("SLURM_CPUS_PER_TASK", "2");
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert!(
        ended.stderr.starts_with(
            "relight: header asks for 2 tasks per node; starting 1 agent per node with all 4 cores\n\
             relight: ranks see SLURM_PROCID/LOCALID/NTASKS as under srun (--slurm-env task)\n"
        ),
        "{}",
        ended.stderr
    );
    assert_eq!(ranks(&job), ["0 4 0 n1", "1 4 0 n1", "2 4 0 n2", "3 4 0 n2"]);
    let calls = job.sruns();
    assert_eq!(calls.len(), 1, "{calls:#?}\n{}", ended.stderr);
    let (call, env) = (argv(&calls[0]), &calls[0]["env"]);
    assert!(
        call.starts_with(
            "--no-kill --kill-on-bad-exit=0 --wait=0 --overlap --mpi=none --cpu-bind=none --input=none --unbuffered --export=ALL \
             --oom-kill-step=0 --cpus-per-task=4 --ntasks-per-node=1 --nodes=2 --ntasks=2 --nodelist=n[1-2] "
        ),
        "{call}"
    );
    for gone in
        ["SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_PROCID", "SLURM_NODEID"]
    {
        assert!(env[gone].is_null(), "{gone} is an option of srun: {env}");
    }
    assert_eq!(env["RELIGHT_RUN_ID"], "7.0");
    assert!(job.scene.path("exp/.relight/7.0/run.json").exists());
    // A session of its own: a terminal's Ctrl-C does not reach it.
    assert_eq!(calls[0]["sid"], calls[0]["pid"]);
    leftovers::assert_none(&job.scene);
}

#[test]
fn a_run_that_fails_fails_though_srun_says_nothing() {
    let job = Job::new(2);
    job.leave("old", "");
    let mut command = job.relight();
    command.args(["run", "--max-restarts", "1", "--lost-after", "6"]).arg(job.script("sys.exit(3)"));
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(!argv(&job.sruns()[0]).contains("oom-kill-step"));
    leftovers::assert_none(&job.scene);
}

#[test]
fn each_command_of_a_script_is_a_run_and_a_requeue_counts_anew() {
    let job = Job::new(1);
    let run = |restart: Option<&str>| {
        let mut command = job.run(SAY);
        if let Some(restart) = restart {
            command.env("SLURM_RESTART_COUNT", restart);
        }
        let ended = command.spawn().wait(LONG);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr
    };
    run(None);
    run(None);
    let ids: Vec<_> = job.sruns().iter().map(|call| call["env"]["RELIGHT_RUN_ID"].clone()).collect();
    assert_eq!(ids, ["7.0", "7.1"]);
    // The same script again, after a requeue: the first command has finished.
    let said = run(Some("1"));
    assert_eq!(
        said,
        "relight: run 7.0 has finished already; nothing to do (another --run-id starts a new run)\n"
    );
    assert_eq!(job.sruns().len(), 2);
    // The second command, another one than the first, continues its own run.
    let mut other = job.run(SAY);
    let ended = other.arg("other").env("SLURM_RESTART_COUNT", "1").spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(job.sruns()[2]["env"]["RELIGHT_RUN_ID"], "7.1");
    assert!(ended.stderr.contains("run 7.1 had another command line"), "{}", ended.stderr);
    leftovers::assert_none(&job.scene);
}

#[test]
fn an_agent_that_is_gone_is_started_again_on_its_node() {
    let job = Job::new(2);
    // The first world waits for what never comes; the second one ends.
    let script = format!("{SAY}\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(1000)");
    let mut running = job.run(&script).spawn();
    job.wait_for_lines("ranks", 2, &mut running);
    let step = job.wait_for_step(1);
    // Guardian, agent and rank of n2, at once.
    let guardian = step["tasks"][1].as_i64().unwrap() as i32;
    for process in procfs::below(guardian).iter().map(|p| p.pid).chain([guardian]) {
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let calls = job.sruns();
    assert!(calls.len() >= 2, "{calls:?}");
    let again = argv(&calls[1]);
    assert!(
        again.contains(" --immediate=10 --ntasks-per-node=1 --nodes=1 --ntasks=1 --nodelist=n2 "),
        "{again}"
    );
    assert_eq!(ranks(&job).iter().filter(|rank| rank.contains(" 2 1 ")).count(), 2, "{:?}", ranks(&job));
    leftovers::assert_none(&job.scene);
}

#[test]
fn agents_outlive_an_srun_that_is_killed() {
    let job = Job::new(2);
    let script = format!("{SAY}\nwhile not os.path.exists('go'): time.sleep(0.02)");
    let mut running = job.run(&script).spawn();
    job.wait_for_lines("ranks", 2, &mut running);
    let step = job.wait_for_step(1);
    kill(Pid::from_raw(step["srun"].as_i64().unwrap() as i32), Signal::SIGKILL).unwrap();
    fs::write(job.scene.path("exp/go"), "").unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(job.sruns().len(), 1);
    // Nobody waited for them: they end with their coordinator, a little later than the supervisor.
    let tasks: Vec<i32> =
        step["tasks"].as_array().unwrap().iter().map(|task| task.as_i64().unwrap() as i32).collect();
    wait_for("the agents to end", LONG, || {
        let left: Vec<_> =
            tasks.iter().filter_map(|pid| procfs::read(*pid)).filter(|p| p.state != 'Z').collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{} are left", left.len())) }
    });
    leftovers::assert_none(&job.scene);
}

#[test]
fn the_users_own_line_stays_and_chooses_nodes() {
    let job = Job::new(3);
    // Until the supervisor has heard from the agents.
    let script = job.script(&format!("{SAY}\nwhile not os.path.exists('go'): time.sleep(0.02)"));
    let mut command = job.relight();
    command.args(["srun", "--label", "--container-image=llm.sqsh", "-w", "n[1,3]", "--"]);
    command.arg(crate::support::relight::binary()).args(["run", "--lost-after", "6"]).arg(script);
    let running = command.spawn();
    let version = env!("CARGO_PKG_VERSION");
    let line = format!(
        "relight: agents run inside llm.sqsh (relight {version} there and here); Slurm is asked from the batch host\n"
    );
    wait_for("the versions to be told", LONG, || {
        let said = fs::read_to_string(job.scene.path("stderr")).unwrap_or_default();
        if said.contains(&line) { Ok(()) } else { Err(said) }
    });
    fs::write(job.scene.path("exp/go"), "").unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let call = argv(&job.sruns()[0]);
    assert!(call.starts_with("--label --container-image=llm.sqsh --no-kill "), "{call}");
    assert!(call.contains(" --nodes=2 --ntasks=2 --nodelist=n[1,3] "), "{call}");
    assert_eq!(ranks(&job), ["0 2 0 n1", "1 2 0 n3"]);
    leftovers::assert_none(&job.scene);
}

/// The file that says where the coordinator is may be unreadable just then; Slurm's addresses of the nodes are known.
#[test]
fn without_a_hint_the_coordinator_is_found_by_its_ports() {
    let job = Job::new(2);
    let script = format!("{SAY}\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(1000)");
    let mut running = job.run(&script).spawn();
    job.wait_for_lines("ranks", 2, &mut running);
    let hint = job.scene.path("exp/.relight/7.0/coordinator");
    fs::remove_file(&hint).unwrap();
    fs::create_dir(&hint).unwrap();
    let guardian = job.wait_for_step(1)["tasks"][1].as_i64().unwrap() as i32;
    let agents: Vec<i32> =
        procfs::below(guardian).iter().filter(|p| p.ppid == guardian).map(|p| p.pid).collect();
    assert_eq!(agents.len(), 1, "{agents:?}");
    kill(Pid::from_raw(agents[0]), Signal::SIGKILL).unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ranks(&job).iter().filter(|rank| rank.contains(" 2 1 ")).count(), 2, "{:?}", ranks(&job));
    leftovers::assert_none(&job.scene);
}

/// The same for the supervisor: it is needed when the next agent is missing.
#[test]
fn without_a_hint_the_supervisor_finds_the_next_coordinator() {
    let job = Job::new(2);
    let script = format!("{SAY}\nif os.environ['TORCHELASTIC_RESTART_COUNT'] in '01': time.sleep(1000)");
    let mut running = job.run(&script).spawn();
    job.wait_for_lines("ranks", 2, &mut running);
    let hint = job.scene.path("exp/.relight/7.0/coordinator");
    fs::remove_file(&hint).unwrap();
    fs::create_dir(&hint).unwrap();
    let tasks = job.wait_for_step(1)["tasks"].clone();
    let guardian = |task: usize| tasks[task].as_i64().unwrap() as i32;
    let leads: Vec<i32> =
        procfs::below(guardian(0)).iter().filter(|p| p.ppid == guardian(0)).map(|p| p.pid).collect();
    assert_eq!(leads.len(), 1, "{leads:?}");
    kill(Pid::from_raw(leads[0]), Signal::SIGKILL).unwrap();
    job.wait_for_lines("ranks", 4, &mut running);
    for process in procfs::below(guardian(1)).iter().map(|p| p.pid).chain([guardian(1)]) {
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let again = argv(&job.sruns()[1]);
    assert!(again.contains(" --nodes=1 --ntasks=1 --nodelist=n2 "), "{again}");
    leftovers::assert_none(&job.scene);
}

/// srun takes the first of two variables of one name there, and the last elsewhere: there must be one.
#[test]
fn an_environment_of_the_users_own_choice_reaches_the_agents() {
    let job = Job::new(2);
    let script = job.script(SAY);
    let mut command = job.relight();
    command.args(["srun", "--export=NONE", "--"]);
    command.arg(crate::support::relight::binary()).args(["run", "--lost-after", "6"]).arg(script);
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ranks(&job).len(), 2);
    assert!(ended.stderr.contains("finished"), "{}", ended.stderr);
    leftovers::assert_none(&job.scene);
}

/// What of Slurm a rank sees, in one line of a file that all ranks append to.
const SEES: &str =
    "names = 'PROCID LOCALID NODEID NTASKS NPROCS NTASKS_PER_NODE TASKS_PER_NODE STEP_NODELIST GTIDS'.split()
line = ' '.join([os.environ['RANK']] + [os.environ.get('SLURM_' + name, '-') for name in names])
open('ranks', 'a').write(line + '\\n')";

#[test]
fn ranks_see_slurm_as_if_srun_had_started_them() {
    for (mode, says, sees) in [
        (
            "task",
            "ranks see SLURM_PROCID/LOCALID/NTASKS as under srun (--slurm-env task)",
            [
                "0 0 0 0 4 4 2 2(x2) n[1-2] 0,1",
                "1 1 1 0 4 4 2 2(x2) n[1-2] 0,1",
                "2 2 0 1 4 4 2 2(x2) n[1-2] 2,3",
                "3 3 1 1 4 4 2 2(x2) n[1-2] 2,3",
            ],
        ),
        (
            "hide",
            "ranks see no SLURM_PROCID/LOCALID/NTASKS (--slurm-env hide)",
            ["0 - - - - - - - - -", "1 - - - - - - - - -", "2 - - - - - - - - -", "3 - - - - - - - - -"],
        ),
        (
            "keep",
            "ranks see SLURM_PROCID/LOCALID/NTASKS of their agent (--slurm-env keep)",
            [
                "0 0 0 0 2 - - - n[1-2] -",
                "1 0 0 0 2 - - - n[1-2] -",
                "2 1 0 1 2 - - - n[1-2] -",
                "3 1 0 1 2 - - - n[1-2] -",
            ],
        ),
    ] {
        let job = Job::new(2);
        let mut command = job.relight();
        command.args(["run", "--lost-after", "6", "--slurm-env", mode]).arg(job.script(SEES));
        command.env("SLURM_NTASKS_PER_NODE", "2").env("SLURM_NTASKS", "4").env("SLURM_CPUS_PER_TASK", "3");
        let ended = command.spawn().wait(LONG);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stderr.lines().nth(1), Some(format!("relight: {says}").as_str()));
        assert_eq!(ranks(&job), sees, "{mode}");
        // The header's ranks are its tasks.
        assert!(ended.stderr.contains(", OMP_NUM_THREADS=3\n"), "{}", ended.stderr);
        leftovers::assert_none(&job.scene);
    }
}

/// Where a rank stands: in the world, on its node, among the ranks of its role, and in Slurm.
const STANDS: &str = "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE'.split()
names += 'ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE SLURM_PROCID SLURM_LOCALID SLURM_TASKS_PER_NODE SLURM_GTIDS'.split()
open('ranks', 'a').write(' '.join(os.environ[name] for name in names) + '\\n')";

#[test]
fn nodes_bring_other_numbers_of_ranks_and_other_roles() {
    let job = Job::new(3);
    job.leave("env-n1", r#"{"PET_NPROC_PER_NODE": "1", "PET_ROLE": "actor"}"#);
    job.leave("env-n2", r#"{"PET_NPROC_PER_NODE": "3", "PET_ROLE": "learner"}"#);
    job.leave("env-n3", r#"{"PET_NPROC_PER_NODE": "2", "PET_ROLE": "actor"}"#);
    let ended = job.run(STANDS).spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(
        ranks(&job),
        [
            "0 6 0 1 0 3 actor 0 3 0 0 1,3,2 0",
            "1 6 0 3 1 3 learner 0 3 1 0 1,3,2 1,2,3",
            "2 6 1 3 1 3 learner 1 3 2 1 1,3,2 1,2,3",
            "3 6 2 3 1 3 learner 2 3 3 2 1,3,2 1,2,3",
            "4 6 0 2 2 3 actor 1 3 4 0 1,3,2 4,5",
            "5 6 1 2 2 3 actor 2 3 5 1 1,3,2 4,5",
        ]
    );
    leftovers::assert_none(&job.scene);
}
