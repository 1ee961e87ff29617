//! Every row of the table has its case, and what is no failure has none.

use proptest::prelude::*;

use super::super::error_file::Recorded;
use super::super::exit::ExitKind;
use super::super::first_failure::{Seen, first_failure};
use super::super::ids::{LocalRank, NodeName, Rank, Slot};
use super::super::last_words::{Kind, last_words};
use super::super::record::Member;
use super::super::time::BootTime;
use super::super::wire::ExitReport;
use super::engine::{MAX_LINE, engine, xid};
use super::evidence::{Evidence, Facts, Oom, Spoken, survey, weigh};
use super::judge::{Scene, verdict};
use super::rules::{Class, Place, TABLE, by_id, for_name, for_number, parse, rules};
use super::*;

const ONE: ExitKind = ExitKind::Code(1);

fn signal(no: u8) -> ExitKind {
    ExitKind::Signal { no, core: false }
}

/// The row that a whole line fits.
fn row(line: &str) -> &'static str {
    engine().unwrap().line(line.as_bytes()).map_or("", |rule| rule.id)
}

#[test]
fn the_table_is_one() {
    let (rules, bad) = parse(TABLE);
    assert_eq!(bad, []);
    assert!(rules.len() > 120 && engine().is_some(), "{}", rules.len());
    for rule in &rules {
        assert!(!rule.cause.ends_with('.') && rule.cause.len() < 90, "{rule:?}");
        assert!(!rule.hints.decisive || rule.owner == Owner::Hardware, "{rule:?}");
        if rule.place == Place::Text && !rule.pattern.is_empty() {
            assert!(regex::bytes::RegexBuilder::new(rule.pattern).unicode(false).build().is_ok(), "{rule:?}");
        }
    }
}

#[test]
fn each_row_has_its_line_and_no_other_takes_it() {
    for rule in rules().iter().filter(|rule| rule.place == Place::Text) {
        assert_eq!(row(rule.example), rule.id, "{}", rule.example);
        // Nor does it matter what stands around it, or which end a line has.
        for (before, after) in [("step 41 done\n", "\nbye\n"), ("", "\r\nmore"), ("[rank3]: x\r", "")] {
            let text = format!("{before}{}{after}", rule.example);
            let mut found = Vec::new();
            engine().unwrap().scan(text.as_bytes(), |hit| found.push((hit.rule.id, hit.line.to_vec())));
            assert_eq!(found, [(rule.id, rule.example.as_bytes().to_vec())], "{text:?}");
        }
    }
}

#[test]
fn each_number_has_one_row() {
    for (place, most) in [(Place::Code, 255), (Place::Signal, 64), (Place::Errno, 200), (Place::Xid, 300)] {
        let holding = |number| {
            let (all, _) = parse(TABLE);
            let all = all.into_iter().filter(|rule| rule.place == place);
            all.filter(|rule| {
                rule.keys.iter().any(|key| {
                    let (from, to) = key.split_once('-').unwrap_or((key, key));
                    (from.parse::<u32>().unwrap()..=to.parse().unwrap()).contains(&number)
                })
            })
            .count()
        };
        for number in 0..most {
            let rows = holding(number);
            // What is special stands before a range that holds it, too.
            assert!(rows <= 1 || place == Place::Code && rows == 2, "{place:?} {number}: {rows} rows");
            assert_eq!(rows > 0, for_number(place, number).is_some());
        }
    }
    let table = [
        (Place::Code, 1, "code-own"),
        (Place::Code, 2, "code-2"),
        (Place::Code, 126, "code-126"),
        (Place::Code, 137, "code-137"),
        (Place::Code, 139, "code-139"),
        (Place::Code, 143, "code-143"),
        (Place::Code, 247, "code-247"),
        (Place::Signal, 6, "signal-abrt"),
        (Place::Signal, 7, "signal-bus"),
        (Place::Signal, 9, "signal-kill"),
        (Place::Signal, 11, "signal-segv"),
        (Place::Signal, 15, "signal-term"),
        (Place::Signal, 25, "signal-limit"),
        (Place::Signal, 31, "signal-sys"),
        (Place::Errno, 2, "errno-missing"),
        (Place::Errno, 24, "errno-files"),
        (Place::Errno, 116, "errno-io"),
        (Place::Errno, 98, "errno-port"),
    ];
    for (place, number, id) in table {
        assert_eq!(for_number(place, number).map(|rule| rule.id), Some(id), "{place:?} {number}");
    }
    for state in [
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "PREEMPTED",
        "CANCELLED",
        "DEADLINE",
        "BOOT_FAIL",
        "REVOKED",
        "FAILED",
    ] {
        assert!(for_name(Place::Slurm, state).is_some(), "{state}");
    }
    for state in ["D", "T", "Z"] {
        assert!(for_name(Place::State, state).is_some(), "{state}");
    }
}

#[test]
fn each_xid_is_read_from_the_drivers_line() {
    let line = |number: u32, what: &str| {
        format!("[ 12.3] NVRM: Xid (PCI:0000:1b:00): {number}, pid=4711, name=python, {what}")
    };
    for rule in rules().iter().filter(|rule| rule.place == Place::Xid) {
        for key in &rule.keys {
            let number: u32 = key.split('-').next().unwrap().parse().unwrap();
            assert_eq!(row(&line(number, "x")), rule.id);
        }
    }
    // What may be said against a device's hardware at once, and what may not.
    for (number, decisive, class) in [
        (13, false, Class::Root),
        (31, false, Class::Root),
        (43, false, Class::Cascade),
        (45, false, Class::Cascade),
        (48, true, Class::Root),
        (63, false, Class::Chatter),
        (64, true, Class::Root),
        (74, true, Class::Root),
        (79, true, Class::Root),
        (92, false, Class::Chatter),
        (94, false, Class::Root),
        (95, true, Class::Root),
        (109, false, Class::Root),
        (119, true, Class::Root),
        (120, true, Class::Root),
        (140, true, Class::Root),
        (149, false, Class::Root),
    ] {
        let rule = for_number(Place::Xid, number).unwrap();
        assert_eq!((rule.hints.decisive, rule.class), (decisive, class), "{number}");
    }
    assert_eq!(
        row(&line(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")),
        "xid-action"
    );
    assert_eq!(
        row(&line(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")),
        "xid-note"
    );
    assert_eq!(row(&line(999, "x")), "");
    assert_eq!(
        (xid(b"Xid (PCI:0000:1b:00): 79"), xid(b"Xid (PCI"), xid(b"Xid (x): y")),
        (Some(79), None, None)
    );
}

#[test]
fn talk_and_guesses_are_no_failures() {
    for line in [
        "INFO step 41 loss 2.31 lr 3e-4",
        "info: nan is handled",
        "loss: 2.3, inf norm 1.0",
        "Epoch 3: banana 12",
        "saved checkpoint to /scratch/exp/step_40",
        "This might be caused by an uncorrectable ECC error encountered on the device",
        "RuntimeError: it failed, possibly due to CUDA out of memory on another rank",
        "Please try: CUDA out of memory can be avoided",
        "Some kernels: it is possible that Connection closed by peer follows",
        "ResumableError: importing",
        "the panicked at nothing",
        "mlx5_core loaded",
        "CANCELLED by nobody",
        "Exited the loop: killed by signal handlers",
        "error: the tensor has shape mismatch",
        "EDAC MC0: 1 CE on DIMM",
        "Assertion passed",
    ] {
        assert_eq!(row(line), "", "{line}");
    }
    // What is said before the guess counts.
    assert_eq!(
        row("RuntimeError: CUDA error: an illegal memory access was encountered. This may be caused by x"),
        "cuda-illegal-access"
    );
    // Chatter is nothing that an end could be known by.
    for rule in rules().iter().filter(|rule| rule.class == Class::Chatter && rule.place == Place::Text) {
        let evidence = ended(ONE, &format!("{}\n", rule.example));
        assert!(evidence.class.is_none() && evidence.findings.is_empty(), "{evidence:?}");
    }
}

/// The evidence of an end with this output.
fn ended(exit: ExitKind, output: &str) -> Evidence {
    measured(exit, output, Facts::default())
}

fn measured(exit: ExitKind, output: &str, facts: Facts) -> Evidence {
    let words = last_words(output.as_bytes());
    let headline = if matches!(words.kind, Kind::Lines | Kind::Silent) { "" } else { &words.headline };
    let spoken = Spoken { headline, frame: &words.frame, text: &words.text, last: words.lines_after < 5 };
    weigh(&exit, &spoken, &survey(output.as_bytes()), facts)
}

fn python(error: &str) -> String {
    format!(
        "step 3\nTraceback (most recent call last):\n  File \"/w/train.py\", line 9, in main\n    step()\n{error}\n"
    )
}

const GLOO: &str =
    "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:3021";

#[test]
fn each_end_has_its_evidence() {
    let oom = Facts { oom: Some(Oom { limit: Some(512 << 20) }), shm_full: false };
    let shm = Facts { oom: None, shm_full: true };
    let none = Facts::default();
    let text = "Out of memory: Killed process 4711 (python)\n";
    let table = [
        ("a counter says it without a word", signal(9), String::new(), oom, "oom-counter", Some(Class::Root), "out of memory: the cgroup's limit of 512 MB"),
        ("nobody says who killed it", signal(9), "step 3\n".into(), none, "signal-kill", Some(Class::Root), "SIGKILL: killed, by whom is not known"),
        ("the kernel said it", signal(9), text.into(), none, "oom-kernel", Some(Class::Root), "out of memory, says the kernel"),
        ("shared memory", signal(7), String::new(), shm, "shm-full", Some(Class::Root), "/dev/shm is full"),
        ("a bus error", signal(7), String::new(), none, "signal-bus", Some(Class::Root), "SIGBUS: a bus error: a mapped file was cut, or shared memory was short"),
        ("a counter is no reason for another end", signal(11), String::new(), oom, "signal-segv", Some(Class::Root), "SIGSEGV: a crash in native code"),
        ("an exception", ONE, python("KeyError: 'labels'"), none, "exception", Some(Class::Root), "KeyError"),
        ("a victim", ONE, python(GLOO), none, "peer-lost", Some(Class::Cascade), "lost the connection to a peer"),
        ("an abort by gloo", signal(6), "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 4096 vs 2048\n".into(), none, "gloo-mismatch", Some(Class::Root), "ranks sent tensors of different sizes"),
        ("an abort by the watchdog", signal(6), "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL\n".into(), none, "nccl-teardown", Some(Class::Cascade), "a process group was torn down"),
        ("an abort without a word", signal(6), String::new(), none, "signal-abrt", Some(Class::Root), "SIGABRT: native code aborted"),
        ("a mute code", ONE, "step 3\n".into(), none, "code-own", None, "exit code 1"),
        ("usage", ExitKind::Code(2), "usage: x\n".into(), none, "code-2", Some(Class::Root), "wrong arguments or usage (exit code 2)"),
        ("a broken device before anything else", ONE, format!("CUDA error: uncorrectable ECC error encountered\n{}", python("ValueError: x")), none, "cuda-ecc", Some(Class::Root), "an ECC error that cannot be corrected"),
        ("a worker of a loader", ONE, python("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."), none, "loader-killed", Some(Class::Root), "a data loader's worker was killed"),
        ("a torn checkpoint", ONE, python("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"), none, "torn-checkpoint", Some(Class::Root), "a checkpoint or file is torn"),
        ("a torn pickle", ONE, python("EOFError: Ran out of input"), none, "torn-checkpoint", Some(Class::Root), "a checkpoint or file is torn"),
        ("no program", ExitKind::NeverStarted { errno: 2, what: "exec x".into() }, String::new(), none, "errno-missing", Some(Class::Root), "ENOENT: the program is not there or cannot be executed"),
        ("a port that is taken, seen before ranks start", ExitKind::NeverStarted { errno: 98, what: "port 15001 of rank 0: another process listens there".into() }, String::new(), none, "errno-port", Some(Class::Root), "EADDRINUSE: the port where ranks meet is taken"),
        ("a port that is taken, says torch", ONE, python("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 15001, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"), none, "port-taken", Some(Class::Root), "a port is taken"),
        ("somebody's TERM", signal(15), String::new(), none, "signal-term", Some(Class::Confirms), "SIGTERM: asked to end"),
        ("lost", ExitKind::Lost, String::new(), none, "", None, ""),
    ];
    for (name, exit, output, facts, rule, class, cause) in table {
        let evidence = measured(exit, &output, facts);
        assert_eq!(
            (&*evidence.rule, evidence.class, &*evidence.cause()),
            (rule, class, cause),
            "{name}: {evidence:?}"
        );
    }
    // Long before the end it is another story.
    let old = format!("{text}{}", "step\n".repeat(4_000));
    assert_eq!(ended(signal(9), &old).rule, "signal-kill");
}

#[test]
fn a_fingerprint_is_the_roots_and_an_entity_is_apart() {
    let of = |error: &str| ended(ONE, &python(error));
    let (one, two) = (
        of("FileNotFoundError: [Errno 2] No such file or directory: '/d/1.bin'"),
        of("FileNotFoundError: [Errno 2] No such file or directory: '/e/2.bin'"),
    );
    assert_eq!(one.fingerprint, two.fingerprint);
    assert_eq!((one.entity.as_deref(), two.entity.as_deref()), (Some("/d/1.bin"), Some("/e/2.bin")));
    assert_eq!(
        one.fingerprint,
        "root|FileNotFoundError|train.py:main|[Errno #] No such file or directory: '/'"
    );
    assert_ne!(of("KeyError: 'labels'").fingerprint, of("KeyError: 'tokens'").fingerprint);
    assert_eq!(of("KeyError: 'labels'").fingerprint, of("KeyError: 'labels'\n\n").fingerprint);
    assert_ne!(ended(ExitKind::Code(3), "").fingerprint, ended(ExitKind::Code(4), "").fingerprint);
    assert_eq!(
        ended(signal(9), "").fingerprint,
        "",
        "whoever killed it may have had another reason each time"
    );
    assert_ne!(ended(signal(11), "").fingerprint, "");
}

/// Ranks of a world with two on each node, their ends by rank, at these milliseconds.
struct World(Vec<Seen>, u32);

impl World {
    fn of(nodes: u32, ends: Vec<(u32, u64, ExitKind, String)>) -> Self {
        let seen = |(rank, ms, exit, output): (u32, u64, ExitKind, String)| {
            let words = last_words(output.as_bytes());
            let recognised = !matches!(words.kind, Kind::Lines | Kind::Silent);
            let report = ExitReport {
                local_rank: LocalRank(rank % 2),
                pid: rank,
                exit: exit.clone(),
                ours: false,
                at: BootTime::from_millis(ms),
                ago_ms: 0,
                summary: if recognised { words.headline.clone() } else { String::new() },
                words: words.text.clone(),
                recorded: None,
                evidence: ended(exit, &output),
            };
            Seen { rank: Rank(rank), node: node(rank / 2), report, at: BootTime::from_millis(ms) }
        };
        Self(ends.into_iter().map(seen).collect(), nodes)
    }

    fn ours(mut self, rank: u32) -> Self {
        self.0.iter_mut().filter(|end| end.rank.0 == rank).for_each(|end| end.report.ours = true);
        self
    }

    fn verdict(&self, lost: &[NodeName]) -> Verdict {
        let members: Vec<Member> = (0..self.1)
            .map(|n| Member {
                slot: Slot(n),
                node: node(n),
                incarnation: Default::default(),
                nproc: 2,
                log_dir: String::new(),
                role: String::new(),
            })
            .collect();
        let addresses = (0..self.1).map(|n| (format!("10.0.0.{n}"), node(n))).collect();
        verdict(&Scene {
            ends: &self.0,
            first: first_failure(&self.0),
            members: &members,
            lost,
            addresses: &addresses,
        })
    }

    fn root(&self) -> Option<u32> {
        first_failure(&self.0).map(|at| self.0[at].rank.0)
    }
}

fn node(number: u32) -> NodeName {
    NodeName::new(format!("n{number}"))
}

fn lines(found: &Verdict) -> String {
    found.reasons.join("\n")
}

#[test]
fn victims_that_speak_first_are_not_the_root() {
    let world = World::of(
        2,
        vec![(0, 0, ONE, python(GLOO)), (2, 40, ONE, python(GLOO)), (3, 900, signal(9), String::new())],
    );
    assert_eq!(world.root(), Some(3), "a victim spoke first");
    let world = World::of(
        2,
        vec![
            (0, 0, ONE, python(GLOO)),
            (1, 0, ONE, python(GLOO)),
            (3, 900, signal(15), python("KeyError: 'x'")),
        ],
    )
    .ours(3);
    assert_eq!(world.root(), Some(3), "it was still on its way out when we ended it");
    let found = world.verdict(&[]);
    assert_eq!(
        (found.culprits, found.owner, &*found.cause),
        (vec![(Rank(3), node(1))], Owner::User, "KeyError")
    );
    let world =
        World::of(2, vec![(0, 0, ONE, python(GLOO)), (3, 900, signal(15), "step 3\n".into())]).ours(3);
    assert_eq!(world.root(), Some(0), "our own kill is no evidence");
}

#[test]
fn only_victims_spoke() {
    let say = |peer: u32| python(&format!("RuntimeError: Connection closed by peer [10.0.0.{peer}]:3021"));
    let world = World::of(4, vec![(0, 0, ONE, say(3)), (2, 5, ONE, say(3)), (4, 9, ONE, say(1))]);
    let found = world.verdict(&[]);
    assert_eq!(
        (found.nodes, found.owner, found.confidence),
        (vec![node(3)], Owner::Network, Confidence::Medium)
    );
    // Each names another: nobody can tell.
    let found = World::of(4, vec![(0, 0, ONE, say(1)), (2, 5, ONE, say(0))]).verdict(&[]);
    assert_eq!((found.nodes, found.culprits, found.confidence), (vec![], vec![], Confidence::Low));
    // All but one.
    let found =
        World::of(2, vec![(0, 0, ONE, say(9)), (1, 5, ONE, say(9)), (2, 9, ONE, say(9))]).verdict(&[]);
    assert_eq!((found.culprits, found.confidence), (vec![(Rank(3), node(1))], Confidence::Low));
    // A lost node is what it was, whatever they say.
    let found = World::of(4, vec![(0, 0, ONE, say(3)), (2, 5, ONE, say(3))]).verdict(&[node(2)]);
    assert_eq!((&*found.cause, found.nodes), ("a node was lost", vec![node(2)]));
}

#[test]
fn a_node_whose_ranks_end_together_is_the_cause() {
    let found = World::of(
        2,
        vec![(2, 0, signal(9), String::new()), (3, 1, signal(9), String::new()), (0, 90, ONE, python(GLOO))],
    )
    .verdict(&[]);
    assert_eq!((&found.nodes, &found.culprits), (&vec![node(1)], &vec![]), "{found:?}");
    assert!(lines(&found).contains("all 2 ranks of n1 ended alike"), "{found:?}");
    // Two that were struck on two nodes are two.
    let found =
        World::of(2, vec![(1, 0, signal(9), String::new()), (3, 150, signal(9), String::new())]).verdict(&[]);
    assert_eq!((found.nodes.len(), found.culprits.len()), (0, 2));
    // One node without a module: its image, not the program.
    let missing = || python("ModuleNotFoundError: No module named 'flash_attn'");
    let found = World::of(2, vec![(2, 0, ONE, missing()), (3, 1, ONE, missing())]).verdict(&[]);
    assert_eq!((found.nodes, found.owner, found.deterministic), (vec![node(1)], Owner::Launcher, false));
}

#[test]
fn the_same_everywhere_is_the_program() {
    let all =
        |error: &str| World::of(2, (0..4).map(|rank| (rank, u64::from(rank), ONE, python(error))).collect());
    for (error, deterministic) in [
        ("KeyError: 'labels'", true),
        ("ModuleNotFoundError: No module named 'flash_attn'", true),
        ("RuntimeError: CUDA error: device-side assert triggered", true),
        ("OSError: [Errno 28] No space left on device: '/scratch/x'", false),
        ("OSError: [Errno 116] Stale file handle: '/scratch/x'", false),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", false),
    ] {
        assert_eq!(all(error).verdict(&[]).deterministic, deterministic, "{error}");
    }
    // A checker or a driver that says so of every node says it of none.
    let found = all("RuntimeError: CUDA error: uncorrectable ECC error encountered").verdict(&[]);
    assert!(!found.hardware && found.nodes.is_empty(), "{found:?}");
    let found = World::of(
        2,
        vec![(1, 0, ONE, python("RuntimeError: CUDA error: uncorrectable ECC error encountered"))],
    )
    .verdict(&[]);
    assert_eq!((found.hardware, found.nodes, found.confidence), (true, vec![node(0)], Confidence::High));
    // One rank alone is not everywhere, but what does not fit does not fit.
    let alone = |error: &str| World::of(2, vec![(1, 0, ONE, python(error))]).verdict(&[]);
    assert!(!alone("KeyError: 'labels'").deterministic);
    assert!(alone("RuntimeError: Error(s) in loading state_dict for GPT:").deterministic);
    assert!(alone("RuntimeError: PytorchStreamReader failed reading zip archive").bad_state);
}

#[test]
fn hardware_before_signals_before_exceptions() {
    let ecc = || python("RuntimeError: CUDA error: uncorrectable ECC error encountered");
    let ends = |order: [u64; 3]| {
        World::of(
            2,
            vec![
                (0, order[0], ONE, python("ValueError: x")),
                (1, order[1], signal(11), String::new()),
                (2, order[2], ONE, ecc()),
            ],
        )
    };
    assert_eq!(ends([0, 2, 4]).root(), Some(2));
    assert_eq!(ends([0, 2, 40]).root(), Some(1));
    assert_eq!(ends([0, 20, 40]).root(), Some(0));
}

/// Scenario 77: the wall clocks of machines do not count, and a jump changes nothing.
#[test]
fn no_wall_clock_is_compared() {
    let mut world = World::of(
        2,
        vec![
            (0, 0, ONE, python(GLOO)),
            (1, 20, ONE, python("ValueError: x")),
            (2, 40, ONE, python("ValueError: y")),
        ],
    );
    let before = (world.root(), world.verdict(&[]));
    for end in &mut world.0 {
        // The other node's clock is two hours ahead; its file says so.
        end.report.recorded = Some(Recorded { at_s: Some(u64::from(end.rank.0) * 7_200), lead_ms: None });
    }
    assert_eq!((world.root(), world.verdict(&[])), before);
}

proptest! {
    #[test]
    fn any_bytes_are_taken(text in prop::collection::vec(any::<u8>(), 0..6000), code in any::<u8>()) {
        let seen = survey(&text);
        let said = String::from_utf8_lossy(&text).into_owned();
        let spoken = Spoken { headline: &said, frame: "f.py:g", text: &said, last: true };
        let evidence = weigh(&ExitKind::Code(code), &spoken, &seen, Facts::default());
        prop_assert!(evidence.findings.len() <= super::evidence::MAX_FINDINGS);
        prop_assert!(evidence.findings.iter().all(|f| f.line.len() <= 4 * 300));
    }

    #[test]
    fn any_table_is_read(text in "([a-z]{0,6}( ;; )?){0,12}\n?") {
        let (rules, bad) = parse(&text);
        prop_assert!(rules.len() + bad.len() <= text.lines().count());
    }

    #[test]
    fn a_line_is_found_wherever_it_stands(before in "[a-z \n]{0,200}", after in "[a-z \n]{0,200}", at in 0_usize..1000) {
        let texts: Vec<_> = rules().iter().filter(|rule| rule.place == Place::Text).collect();
        let rule = texts[at % texts.len()];
        let text = format!("{before}\n{}\n{after}", rule.example);
        let mut found = Vec::new();
        engine().unwrap().scan(text.as_bytes(), |hit| found.push(hit.rule.id));
        prop_assert!(found.contains(&rule.id), "{} in {found:?}", rule.id);
    }
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let line = b"nothing here ".repeat(100_000);
    let mut text = line.clone();
    text.extend_from_slice(b"CUDA out of memory");
    text.extend_from_slice(&line);
    let mut found = Vec::new();
    engine().unwrap().scan(&text, |hit| found.push((hit.rule.id, hit.line.len())));
    assert_eq!(found, [("cuda-memory", MAX_LINE + "CUDA out of memory".len())]);
    // A key at every place costs no more than one look each.
    let many = b"connection reset ".repeat(60_000);
    let mut count = 0;
    engine().unwrap().scan(&many, |_| count += 1);
    assert!(count > 0);
    assert!(by_id("nothing").is_none());
}
