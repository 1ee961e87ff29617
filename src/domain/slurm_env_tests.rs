use super::*;

fn read(vars: &[(&str, &str)]) -> Option<SlurmPlace> {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    SlurmPlace::read(&vars).unwrap()
}

fn place(parts: &[&[(&str, &str)]]) -> SlurmPlace {
    read(&parts.concat()).unwrap()
}

fn names(nodes: &[&str]) -> Vec<NodeName> {
    nodes.iter().map(|node| NodeName::new(*node)).collect()
}

const JOB: &[(&str, &str)] = &[
    ("SLURM_JOB_ID", "48213"),
    ("SLURM_JOB_NODELIST", "n[01-03]"),
    ("SLURM_JOB_CPUS_PER_NODE", "96(x3)"),
    ("SLURM_SUBMIT_DIR", "/scratch/exp7"),
];
const ON_N01: &[(&str, &str)] = &[("SLURMD_NODENAME", "n01"), ("SLURM_NODEID", "0")];
const BATCH: &[(&str, &str)] =
    &[("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_GTIDS", "0"), ("SLURM_GPUS_ON_NODE", "8")];

#[test]
fn outside_a_job_there_is_nothing() {
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[("SLURM_JOB_ID", ""), ("SLURM_JOB_NODELIST", "n[")]), None);
}

#[test]
fn a_batch_script() {
    let found = place(&[JOB, ON_N01, BATCH, &[("SLURM_NTASKS_PER_NODE", "8"), ("SLURM_NTASKS", "24")]]);
    let expected = SlurmPlace {
        form: Form::Batch,
        job: "48213".into(),
        restarts: 0,
        step: None,
        nodes: names(&["n01", "n02", "n03"]),
        node: Some(NodeName::new("n01")),
        index: Some(0),
        task: 0,
        local_task: 0,
        tasks_here: 1,
        header_tasks: Some(8),
        header_cpus: None,
        cpus_here: None,
        cpus: Some(96),
        gpus: Some(8),
        launch: None,
        supervisor_port: None,
        address: None,
        peers: Vec::new(),
        launch_address: None,
        components: 1,
    };
    assert_eq!(found, expected);
}

#[test]
fn the_headers_tasks_are_what_the_header_says() {
    let counted = |vars: &[(&str, &str)]| place(&[JOB, ON_N01, BATCH, vars]).header_tasks;
    assert_eq!(counted(&[]), None);
    // A header without tasks: Slurm counts something else there.
    assert_eq!(counted(&[("SLURM_TASKS_PER_NODE", "96(x3)")]), None);
    assert_eq!(counted(&[("SLURM_NTASKS", "24"), ("SLURM_TASKS_PER_NODE", "8(x3)")]), Some(8));
    assert_eq!(counted(&[("SLURM_NTASKS", "24"), ("SLURM_TASKS_PER_NODE", "9(x2),6")]), None);
    assert_eq!(counted(&[("SLURM_NTASKS_PER_NODE", "0")]), None);
}

#[test]
fn a_requeued_job() {
    assert_eq!(place(&[JOB, ON_N01, BATCH, &[("SLURM_RESTART_COUNT", "2")]]).restarts, 2);
    assert_eq!(place(&[JOB, ON_N01, &[("SLURM_RESTART_COUNT", "many")]]).restarts, 0);
}

#[test]
fn a_prompt_on_a_node_and_one_on_the_login_node() {
    let step = [("SLURM_STEP_ID", "4294967290"), ("SLURM_STEP_TASKS_PER_NODE", "1"), ("SLURM_PROCID", "0")];
    let node = place(&[JOB, ON_N01, &step]);
    assert_eq!((node.form, node.step, node.tasks_here, node.index), (Form::Prompt, None, 1, Some(0)));
    let login = place(&[JOB, &[("SLURM_TASKS_PER_NODE", "1(x3)")]]);
    assert_eq!((login.form, login.node, login.index, login.tasks_here), (Form::Prompt, None, None, 1));
    assert_eq!(login.nodes.len(), 3);
}

const STEP: &[(&str, &str)] = &[
    ("SLURM_STEP_ID", "3"),
    ("SLURM_STEP_NODELIST", "n[02,01,03]"),
    ("SLURMD_NODENAME", "n02"),
    ("SLURM_NODEID", "0"),
];

#[test]
fn a_step_with_one_task_on_a_node() {
    let found = place(&[
        JOB,
        STEP,
        &[("SLURM_STEP_TASKS_PER_NODE", "1(x3)"), ("SLURM_PROCID", "1"), ("SLURM_LOCALID", "0")],
    ]);
    assert_eq!((found.form, found.step, found.tasks_here, found.task), (Form::Step, Some(3), 1, 1));
    // In the job's order, whatever the step's is.
    assert_eq!((found.nodes, found.index), (names(&["n01", "n02", "n03"]), Some(1)));
}

#[test]
fn a_step_on_some_nodes_of_the_job() {
    let found = place(&[JOB, STEP, &[("SLURM_STEP_NODELIST", "n[03,02]")]]);
    assert_eq!((found.nodes, found.index), (names(&["n02", "n03"]), Some(0)));
    // A job's list that knows nothing of the step's nodes is stale or somebody else's.
    let found = place(&[JOB, STEP, &[("SLURM_STEP_NODELIST", "m[2,1]")]]);
    assert_eq!(found.nodes, names(&["m2", "m1"]));
}

#[test]
fn a_step_with_several_tasks_on_a_node() {
    let tasks = |vars: &[(&str, &str)]| {
        let found = place(&[JOB, STEP, vars]);
        (found.tasks_here, found.local_task)
    };
    assert_eq!(tasks(&[("SLURM_STEP_TASKS_PER_NODE", "8(x3)"), ("SLURM_LOCALID", "5")]), (8, 5));
    let uneven = ("SLURM_STEP_TASKS_PER_NODE", "1,4(x2)");
    assert_eq!(tasks(&[uneven]), (1, 0));
    assert_eq!(tasks(&[uneven, ("SLURM_NODEID", "2")]), (4, 0));
    assert_eq!(tasks(&[("SLURM_GTIDS", "0,1,2")]), (3, 0));
    assert_eq!(tasks(&[("SLURM_STEP_TASKS_PER_NODE", "x"), ("SLURM_NODEID", "99")]), (1, 0));
}

#[test]
fn an_agent_of_a_supervisor() {
    let given = [
        ("RELIGHT_SUPERVISED", "1"),
        ("RELIGHT_NODELIST", "n[03,01-02]"),
        ("RELIGHT_HEADER_TASKS", "8"),
        ("SLURM_NTASKS_PER_NODE", "1"),
    ];
    let found = place(&[JOB, STEP, &given]);
    assert_eq!((found.form, found.header_tasks), (Form::Supervised, Some(8)));
    assert_eq!((found.nodes, found.index), (names(&["n03", "n01", "n02"]), Some(2)));
}

#[test]
fn inside_a_rank_of_another_run() {
    let found = place(&[JOB, STEP, &[("RELIGHT_ATTEMPT", "0"), ("RELIGHT_SUPERVISED", "1")]]);
    assert_eq!((found.form, found.step, found.tasks_here), (Form::Nested, None, 1));
}

#[test]
fn a_heterogeneous_job_says_so() {
    assert_eq!(place(&[JOB, ON_N01, BATCH, &[("SLURM_HET_SIZE", "2")]]).components, 2);
}

#[test]
fn nodes_that_differ_have_no_common_number_of_cpus() {
    assert_eq!(place(&[JOB, &[("SLURM_JOB_CPUS_PER_NODE", "96(x2),48")]]).cpus, None);
}

#[test]
fn a_list_that_is_none_is_an_error() {
    let vars = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", "n[1")];
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let error = SlurmPlace::read(&vars).unwrap_err();
    assert_eq!(
        error.to_string(),
        "SLURM_JOB_NODELIST is no list of nodes: the bracket at position 1 is not closed"
    );
}

#[test]
fn the_supervisor_tells_the_address_of_each_node() {
    let addresses = ("RELIGHT_NODE_ADDRS", "n01=10.0.0.1,n02=ib-n02,n03=fd00::3");
    let told = |node| place(&[JOB, &[("SLURMD_NODENAME", node), addresses]]).address;
    assert_eq!(told("n01").as_deref(), Some("10.0.0.1"));
    assert_eq!(told("n02"), None, "a name is no address");
    assert_eq!(told("n03").as_deref(), Some("fd00::3"));
    assert_eq!(told("n04"), None);
    // Of the first nodes in their order, where a coordinator is looked for.
    let on =
        |nodes: &str| place(&[JOB, &[("RELIGHT_SUPERVISED", "1"), ("RELIGHT_NODELIST", nodes), addresses]]);
    assert_eq!(on("n[03,02,01]").peers, ["fd00::3", "10.0.0.1"]);
    let many: Vec<String> = (0..100).map(|no| format!("m{no}=10.1.0.{no}")).collect();
    let told = [("RELIGHT_SUPERVISED", "1"), ("RELIGHT_NODELIST", "m[0-99]")];
    let peers = place(&[JOB, &told, &[("RELIGHT_NODE_ADDRS", &many.join(","))]]).peers;
    assert_eq!((peers.len(), peers.last().map(String::as_str)), (MOST_PEERS, Some("10.1.0.15")));
}

#[test]
fn numbers_by_node_are_written_as_slurm_does() {
    for (numbers, text) in [
        (vec![], ""),
        (vec![8], "8"),
        (vec![8, 8, 8, 8], "8(x4)"),
        (vec![4, 4, 4, 2], "4(x3),2"),
        (vec![2, 4, 4, 2], "2,4(x2),2"),
    ] {
        assert_eq!(by_node(numbers.clone()), text);
        for (node, number) in numbers.iter().enumerate() {
            assert_eq!(Counts::parse(text).unwrap().get(u32::try_from(node).unwrap()), Some(*number));
        }
    }
}

#[test]
fn the_headers_cpus_are_what_the_header_says() {
    let counted = |vars: &[(&str, &str)]| place(&[JOB, ON_N01, vars]).header_cpus;
    assert_eq!(counted(&[("SLURM_CPUS_PER_TASK", "12")]), Some(12));
    // In a step the number is that of the agent's task.
    let step = [("SLURM_STEP_ID", "0"), ("SLURM_CPUS_PER_TASK", "96")];
    assert_eq!(counted(&step), None);
    let supervised = [step[0], step[1], ("RELIGHT_SUPERVISED", "1")];
    assert_eq!(counted(&supervised), None);
    let told = [supervised.as_slice(), &[("RELIGHT_HEADER_CPUS", "12")]].concat();
    assert_eq!(counted(&told), Some(12));
}
