//! Tests of what a rank is started with.

use super::*;
use crate::domain::ids::{Incarnation, NodeName, RunId};
use crate::domain::spec::Offer;

fn world(nprocs: &[(u32, u32)]) -> World {
    World {
        members: nprocs
            .iter()
            .map(|&(slot, nproc)| Member {
                slot: Slot(slot),
                node: NodeName::new(format!("n{slot}")),
                incarnation: Incarnation(1),
                nproc,
                log_dir: String::new(),
                role: String::new(),
            })
            .collect(),
        master: Offer { address: "10.0.0.1".into(), port: 29_117, hosted: true },
        resume: None,
        addresses: Vec::new(),
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    list.iter().map(|(a, b)| (OsString::from(a), OsString::from(b))).collect()
}

fn environment(base: &[(&str, &str)], world: &World, slot: u32, local: u32) -> BTreeMap<String, String> {
    environment_with(base, world, (slot, local), |_| ())
}

fn place_in<'a>(
    base: &'a [(OsString, OsString)],
    world: &'a World,
    spec: &'a RunSpec,
    (slot, local): (u32, u32),
) -> RankPlace<'a> {
    RankPlace {
        base,
        world,
        slot: Slot(slot),
        local_rank: LocalRank(local),
        attempt: Attempt(4),
        spec,
        error_file: Some(Path::new("/logs/error.json")),
        run_base: Some(Path::new("/runs")),
        signals: crate::domain::env::SIGNALS,
        slurm_env: SlurmEnv::Task,
        threads: Some(7),
        gpus: GpuVisibility::All,
        board: Some(Path::new("/shm/board/0")),
        python: [None, None],
    }
}

fn environment_with(
    base: &[(&str, &str)],
    world: &World,
    at: (u32, u32),
    change: impl FnOnce(&mut RankPlace<'_>),
) -> BTreeMap<String, String> {
    let spec = RunSpec {
        run_id: RunId::new("r1"),
        role: "trainer".into(),
        max_restarts: Some(3),
        ..RunSpec::default()
    };
    let base = pairs(base);
    let mut place = place_in(&base, world, &spec, at);
    change(&mut place);
    rank_environment(&place)
        .unwrap()
        .into_iter()
        .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
        .collect()
}

#[test]
fn torchruns_names() {
    let got = environment(&[], &world(&[(0, 2), (3, 4)]), 3, 1);
    let want: BTreeMap<String, String> = [
        ("RANK", "3"),
        ("LOCAL_RANK", "1"),
        ("WORLD_SIZE", "6"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("GROUP_RANK", "1"),
        ("GROUP_WORLD_SIZE", "2"),
        ("ROLE_RANK", "3"),
        ("ROLE_WORLD_SIZE", "6"),
        ("ROLE_NAME", "trainer"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29117"),
        ("TORCHELASTIC_RESTART_COUNT", "4"),
        ("TORCHELASTIC_MAX_RESTARTS", "3"),
        ("TORCHELASTIC_RUN_ID", "r1"),
        ("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("TORCHELASTIC_ERROR_FILE", "/logs/error.json"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("OMP_NUM_THREADS", "7"),
        ("RELIGHT_RUN_ID", "r1"),
        ("RELIGHT_ATTEMPT", "4"),
        ("RELIGHT_BOARD", "/shm/board/0"),
        ("RELIGHT_RUN_DIR", "/runs"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(got, want);
}

#[test]
fn python_finds_our_modules_around_the_users() {
    let world = world(&[(0, 1)]);
    let path = |base: &[(&str, &str)], python| {
        environment_with(base, &world, (0, 0), |place| place.python = python).remove("PYTHONPATH")
    };
    let both = [Some(Path::new("/r/start")), Some(Path::new("/r"))];
    for (own, python, expected) in [
        (None, both, Some("/r/start:/r")),
        (Some(""), both, Some("/r/start:/r")),
        (Some("/my:/lib"), both, Some("/r/start:/my:/lib:/r")),
        (Some("/my"), [None, both[1]], Some("/my:/r")),
        (Some("/my"), [None, None], Some("/my")),
        (None, [None, None], None),
    ] {
        let base: Vec<(&str, &str)> = own.map(|own| ("PYTHONPATH", own)).into_iter().collect();
        assert_eq!(path(&base, python).as_deref(), expected);
    }
}

#[test]
fn a_page_of_another_launcher_is_no_ranks() {
    let base = [("RELIGHT_BOARD", "/outer/0")];
    let world = world(&[(0, 1)]);
    let without = environment_with(&base, &world, (0, 0), |place| place.board = None);
    assert_eq!(without.get("RELIGHT_BOARD"), None);
    assert_eq!(environment(&base, &world, 0, 0)["RELIGHT_BOARD"], "/shm/board/0");
}

#[test]
fn what_is_inherited() {
    let base = [
        ("OMP_NUM_THREADS", "7"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("CUDA_VISIBLE_DEVICES", "2,3"),
        ("RELIGHT_SECRET", "hush"),
        ("SLURM_JOB_ID", "7"),
        ("PMIX_RANK", "9"),
        ("PMI_FD", "3"),
        ("PMIGHTY", "kept"),
        ("RANK", "99"),
        ("TWICE", "first"),
        ("TWICE", "second"),
    ];
    let got = environment(&base, &world(&[(0, 2)]), 0, 1);
    for (name, value) in [
        ("OMP_NUM_THREADS", Some("7")),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", Some("3")),
        ("CUDA_VISIBLE_DEVICES", Some("2,3")),
        ("RELIGHT_SECRET", None),
        ("PMIX_RANK", None),
        ("PMI_FD", None),
        ("PMIGHTY", Some("kept")),
        ("RANK", Some("1")),
        ("TWICE", Some("first")),
    ] {
        assert_eq!(got.get(name).map(String::as_str), value, "{name}");
    }
    let alone = environment_with(&[], &world(&[(0, 1)]), (0, 0), |place| place.threads = None);
    assert!(!alone.contains_key("OMP_NUM_THREADS"));
    // Outside a job there is no launcher below that could have left them.
    assert!(environment(&[("PMIX_RANK", "9")], &world(&[(0, 1)]), 0, 0).contains_key("PMIX_RANK"));
}

#[test]
fn ranks_that_are_not_there() {
    let two = world(&[(0, 2)]);
    assert_eq!(rank_numbers(&two, Slot(1), LocalRank(0)), Err(RankEnvError::EmptySlot(Slot(1))));
    assert!(rank_numbers(&two, Slot(0), LocalRank(2)).is_err());
}

#[test]
fn substitution_is_pythons() {
    for (text, want) in [
        ("--gpu=${local_rank}", "--gpu=3"),
        ("$local_rank", "3"),
        ("$local_rank_x ${local_rank_x}", "$local_rank_x ${local_rank_x}"),
        ("$$ $$$$ $", "$ $$ $"),
        ("$${local_rank}", "${local_rank}"),
        ("$$${local_rank}", "$3"),
        ("${HOME}/${x", "${HOME}/${x"),
        ("${local_rank", "${local_rank"),
        ("${}${local_rank}", "${}3"),
        ("$LOCAL_RANK $1 é$é", "$LOCAL_RANK $1 é$é"),
        ("${local rank}", "${local rank}"),
        ("", ""),
    ] {
        assert_eq!(substitute(text, LocalRank(3)), want, "{text}");
    }
}

#[test]
fn argument_vectors() {
    let args = vec!["--x".to_owned(), "${local_rank}".to_owned()];
    let python = Path::new("/env/bin/python3");
    for (kind, want) in [
        (ProgramKind::Script, vec!["/env/bin/python3", "-u", "train", "--x", "2"]),
        (ProgramKind::Module, vec!["/env/bin/python3", "-u", "-m", "train", "--x", "2"]),
        (ProgramKind::Binary, vec!["train", "--x", "2"]),
    ] {
        let spec = RunSpec { kind, program: "train".into(), args: args.clone(), ..RunSpec::default() };
        assert_eq!(rank_argv(&spec, python, LocalRank(2)), want);
    }
}

/// What an agent on the second node of a job has from `srun`.
const AGENT: &[(&str, &str)] = &[
    ("SLURM_JOB_ID", "48213"),
    ("SLURM_JOB_NODELIST", "n[0-3]"),
    ("SLURM_NODELIST", "n[0-3]"),
    ("SLURM_NNODES", "4"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "n[0-3]"),
    ("SLURM_STEP_NUM_NODES", "4"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_TASKS_PER_NODE", "1(x4)"),
    ("SLURM_TASKS_PER_NODE", "1(x4)"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_NPROCS", "4"),
    ("SLURM_NTASKS_PER_NODE", "1"),
    ("SLURM_PROCID", "1"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NODEID", "1"),
    ("SLURM_GTIDS", "1"),
    ("SLURM_TASK_PID", "4711"),
    ("SLURM_CPUS_PER_TASK", "96"),
    ("PMI_RANK", "1"),
];

#[test]
fn a_rank_sees_slurm_as_if_srun_had_started_it() {
    // n3 sits in the slot of n1, which was lost; nodes have different numbers of ranks.
    let mut world = world(&[(0, 2), (1, 4), (2, 4)]);
    world.members[1].node = NodeName::new("n3");
    // Order is that of the slots, whatever that of the record.
    world.members.reverse();
    let got = environment(AGENT, &world, 1, 3);
    for (name, value) in [
        ("SLURM_PROCID", Some("5")),
        ("SLURM_LOCALID", Some("3")),
        ("SLURM_NODEID", Some("1")),
        ("SLURM_NTASKS", Some("10")),
        ("SLURM_NPROCS", Some("10")),
        ("SLURM_NTASKS_PER_NODE", Some("4")),
        ("SLURM_TASKS_PER_NODE", Some("2,4(x2)")),
        ("SLURM_STEP_TASKS_PER_NODE", Some("2,4(x2)")),
        ("SLURM_NNODES", Some("3")),
        ("SLURM_STEP_NUM_NODES", Some("3")),
        ("SLURM_STEP_NUM_TASKS", Some("10")),
        ("SLURM_NODELIST", Some("n[0,3,2]")),
        ("SLURM_STEP_NODELIST", Some("n[0,3,2]")),
        ("SLURM_GTIDS", Some("2,3,4,5")),
        ("SLURM_CPUS_PER_TASK", Some("7")),
        ("SLURM_TASK_PID", None),
        ("PMI_RANK", None),
        // The job and the step are what they were.
        ("SLURM_JOB_ID", Some("48213")),
        ("SLURM_JOB_NODELIST", Some("n[0-3]")),
        ("SLURM_JOB_NUM_NODES", Some("4")),
        ("SLURM_STEP_ID", Some("0")),
    ] {
        assert_eq!(got.get(name).map(String::as_str), value, "{name}");
    }
    // As torchrun's own names say.
    for (ours, theirs) in [
        ("RANK", "SLURM_PROCID"),
        ("LOCAL_RANK", "SLURM_LOCALID"),
        ("GROUP_RANK", "SLURM_NODEID"),
        ("WORLD_SIZE", "SLURM_NTASKS"),
        ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"),
        ("GROUP_WORLD_SIZE", "SLURM_NNODES"),
    ] {
        assert_eq!(got[ours], got[theirs], "{theirs}");
    }
}

#[test]
fn of_slurm_nothing_or_what_the_agent_sees() {
    let world = world(&[(0, 2), (1, 2)]);
    let with = |mode| environment_with(AGENT, &world, (1, 1), |place| place.slurm_env = mode);
    let keep = with(SlurmEnv::Keep);
    for (name, value) in AGENT {
        assert_eq!(keep.get(*name).map(String::as_str), Some(*value), "{name}");
    }
    let hide = with(SlurmEnv::Hide);
    let left: Vec<&str> =
        AGENT.iter().map(|(name, _)| *name).filter(|name| hide.contains_key(*name)).collect();
    assert_eq!(left, ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NNODES"]);
    // Outside a job nothing is made up.
    assert!(environment(&[], &world, 1, 1).keys().all(|name| !name.starts_with("SLURM_")));
    // A number of CPUs that srun would not have told is not told.
    assert!(!environment(&[("SLURM_JOB_ID", "7")], &world, 1, 1).contains_key("SLURM_CPUS_PER_TASK"));
}

#[test]
fn a_rank_sees_the_gpus_that_were_asked_for() {
    let world = world(&[(0, 4)]);
    let with = |base: &[(&str, &str)], local| {
        let got = environment_with(base, &world, (0, local), |place| place.gpus = GpuVisibility::Own);
        let list = |name: &str| got.get(name).cloned();
        (list("CUDA_VISIBLE_DEVICES"), list("HIP_VISIBLE_DEVICES"))
    };
    let own = |text: &str| Some(text.to_owned());
    assert_eq!(with(&[], 2), (own("2"), None));
    assert_eq!(with(&[("CUDA_VISIBLE_DEVICES", "4,5,6,7")], 2), (own("6"), None));
    assert_eq!(with(&[("HIP_VISIBLE_DEVICES", "4,5,6,7")], 2), (None, own("6")));
    assert_eq!(
        with(&[("CUDA_VISIBLE_DEVICES", "0,1"), ("HIP_VISIBLE_DEVICES", "2,3")], 1),
        (own("1"), own("3"))
    );
    // Fewer devices than ranks: those without one share.
    assert_eq!(with(&[("CUDA_VISIBLE_DEVICES", "4,5")], 2), (own("4,5"), None));
    // A virtual rank's own GPU is found in the whole list, once.
    let spec = RunSpec { virtual_local_rank: true, ..RunSpec::default() };
    let base = pairs(&[("CUDA_VISIBLE_DEVICES", "4,5,6,7")]);
    let mut place = place_in(&base, &world, &spec, (0, 2));
    place.gpus = GpuVisibility::Own;
    let got: BTreeMap<_, _> = rank_environment(&place).unwrap().into_iter().collect();
    for (name, value) in [("CUDA_VISIBLE_DEVICES", "6"), ("LOCAL_RANK", "0")] {
        assert_eq!(got.get(std::ffi::OsStr::new(name)), Some(&OsString::from(value)), "{name}");
    }
    let all = environment(&[("CUDA_VISIBLE_DEVICES", "4,5")], &world, 0, 1);
    assert_eq!(all["CUDA_VISIBLE_DEVICES"], "4,5");
    assert!(!environment(&[], &world, 0, 1).contains_key("CUDA_VISIBLE_DEVICES"));
}

#[test]
fn ranks_are_counted_over_nodes_of_other_sizes_and_within_their_role() {
    let mut world = world(&[(0, 1), (1, 3), (4, 2)]);
    for (member, role) in world.members.iter_mut().zip(["actor", "learner", "actor"]) {
        member.role = role.to_owned();
    }
    let names = ["RANK", "WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"];
    let stands = |slot, local| {
        let got = environment(&[], &world, slot, local);
        names.map(|name| got[name].clone()).join(" ")
    };
    assert_eq!(stands(0, 0), "0 6 0 actor 0 3");
    assert_eq!(stands(1, 2), "3 6 1 learner 2 3");
    assert_eq!(stands(4, 0), "4 6 2 actor 1 3");
    assert_eq!(stands(4, 1), "5 6 2 actor 2 3");
}
