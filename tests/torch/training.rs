//! Training jobs, killed and resumed: the loss of every step and the hash of the weights are those of a run that was let be.
//!
//! The controls run under torchrun, where a rank is lost, too. By default torchrun (2.15) does not get gloo going again after
//! a restart in place: ranks read the addresses of those before them in a store that it keeps. So the controls turn that
//! sharing off, and lose one rank at a step that is known, not several at random.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::RUN;
use crate::support::relight::{Ended, RelightCommand, Running, Scene};
use crate::support::wait::{monotonic_ns, wait_for};
use crate::support::{leftovers, procfs};

/// Starts five times and waits between them.
const KILLED: Duration = Duration::from_secs(480);

/// A training script, and what it does with its arguments.
#[derive(Clone, Copy)]
struct Script {
    file: &'static str,
    args: &'static [&'static str],
    steps: u64,
    /// Steps between checkpoints.
    every: u64,
}

const DDP: Script =
    Script { file: "examples/ddp.py", args: &["--epochs=3", "--ckpt-every=10"], steps: 132, every: 10 };
const FSDP: Script = Script { file: "examples/fsdp.py", args: &[], steps: 60, every: 5 };

/// What rank 0 noted: attempt, step, loss.
type Losses = Vec<(u64, u64, String)>;

/// A run that nobody disturbed.
struct Golden {
    /// Steps, hash of the weights, and what else the last line says.
    result: String,
    curve: BTreeMap<u64, String>,
}

/// One run of a script in a scene of its own.
struct Run<'a> {
    script: Script,
    python: &'a OsString,
    scene: Scene,
}

impl<'a> Run<'a> {
    fn new(script: Script, python: &'a OsString) -> Self {
        Self { script, python, scene: Scene::new() }
    }

    fn program(&self) -> Vec<OsString> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.script.file);
        let folder = self.scene.path("exp").join("ckpt");
        let mut words: Vec<OsString> = vec![script.into(), "--ckpt-dir".into(), folder.into()];
        words.extend(["--loss-file".into(), self.loss_file().into()]);
        words.extend(self.script.args.iter().map(OsString::from));
        words
    }

    fn loss_file(&self) -> PathBuf {
        self.scene.path("exp").join("losses")
    }

    fn relight(&self, restarts: u32, args: &[&str]) -> Running {
        let mut command = RelightCommand::run(&self.scene);
        command.env("PYTHON_EXEC", self.python).arg("--nproc-per-node=2");
        command.arg(format!("--max-restarts={restarts}")).args(self.program()).args(args);
        command.spawn()
    }

    fn torchrun(&self, args: &[&str]) -> Running {
        let mut command = self.scene.command(self.python);
        command.args([
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "--max-restarts=3",
        ]);
        command.args(self.program()).args(args).env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
        let [out, err] = ["stdout", "stderr"].map(|name| self.scene.path(name));
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        Running::of(command.stdin(Stdio::null()).spawn().unwrap(), out, err)
    }

    /// So far. A line is in the file in whole or not at all.
    fn losses(&self) -> Losses {
        let text = fs::read_to_string(self.loss_file()).unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split(' ');
            let (attempt, step) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((attempt, step, words.next()?.to_owned()))
        };
        text.lines().map(|line| read(line).unwrap_or_else(|| panic!("{line:?} in {text}"))).collect()
    }

    /// Every step was made, and whoever made it had this loss; a step that was made twice, twice.
    fn curve(&self) -> BTreeMap<u64, String> {
        let mut curve: BTreeMap<u64, String> = BTreeMap::new();
        for (attempt, step, loss) in self.losses() {
            let known = curve.entry(step).or_insert_with(|| loss.clone());
            assert_eq!(*known, loss, "step {step} in attempt {attempt}, and before");
        }
        curve
    }

    /// Ended well, and as the run that nobody disturbed.
    fn is(&self, golden: &Golden, ended: &Ended) {
        assert_eq!(result(ended), golden.result);
        let curve = self.curve();
        assert_eq!(curve, golden.curve);
        leftovers::assert_none(&self.scene);
    }

    /// The step behind which each attempt that came to one went on; all of them behind the newest complete checkpoint.
    fn resumed_behind(&self) -> BTreeMap<u64, u64> {
        let mut behind = BTreeMap::new();
        let mut made = 0;
        for (attempt, step, _) in self.losses() {
            if let std::collections::btree_map::Entry::Vacant(first) = behind.entry(attempt) {
                // The checkpoint of the last step may have been in the making.
                let every = self.script.every;
                let newest = [made / every * every, u64::saturating_sub(made, 1) / every * every];
                assert!(newest.contains(&(step - 1)), "attempt {attempt}: step {step} behind step {made}");
                first.insert(step - 1);
            }
            made = made.max(step);
        }
        behind
    }
}

/// The last line of a run.
fn result(ended: &Ended) -> String {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let mut lines = ended.stdout.lines().rev().filter_map(|line| line.find("steps ").map(|at| &line[at..]));
    let line = lines.find(|line| line.contains("weights sha256"));
    line.unwrap_or_else(|| panic!("no result\n{}\n{}", ended.stdout, ended.stderr)).trim().to_owned()
}

/// Lines that blame a rank.
fn died<'a>(ended: &'a Ended, who: &'a str) -> impl Iterator<Item = &'a str> {
    ended.stderr.lines().filter(move |line| line.contains(who) && line.contains("died: SIGKILL"))
}

fn unkilled(script: Script, python: &OsString) -> Golden {
    let run = Run::new(script, python);
    let ended = run.relight(3, &[]).wait(RUN);
    leftovers::assert_none(&run.scene);
    let golden = Golden { result: result(&ended), curve: run.curve() };
    assert_eq!(
        run.losses().len() as u64,
        script.steps,
        "a restart, and nobody disturbed it: {}",
        ended.stderr
    );
    assert!(golden.curve.keys().copied().eq(1..=script.steps), "{:?}", golden.curve);
    golden
}

fn killed_by_itself(script: Script, python: &OsString, golden: &Golden) {
    let run = Run::new(script, python);
    let step = script.steps / 2 + 3;
    let ended = run.relight(3, &["--kill-rank", "1", "--kill-step", &step.to_string()]).wait(RUN);
    run.is(golden, &ended);
    assert_eq!(run.resumed_behind()[&1], step / script.every * script.every);
    assert_eq!(died(&ended, "rank 1 ").count(), 1, "{}", ended.stderr);
}

/// The same under torchrun.
fn control(script: Script, python: &OsString, golden: &Golden) {
    let run = Run::new(script, python);
    let step = script.steps / 2 + 3;
    let ended = run.torchrun(&["--kill-rank", "1", "--kill-step", &step.to_string()]).wait(RUN);
    run.is(golden, &ended);
    assert_eq!(run.resumed_behind()[&1], step / script.every * script.every);
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit
    }
}

/// A rank of an attempt, by its environment.
fn rank(running: &Running, attempt: u64, rank: u64) -> Option<i32> {
    let wanted = [format!("RANK={rank}"), format!("TORCHELASTIC_RESTART_COUNT={attempt}")];
    procfs::below(running.pid()).into_iter().map(|p| p.pid).find(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        wanted.iter().all(|entry| environ.split(|b| *b == 0).any(|e| e == entry.as_bytes()))
    })
}

/// SIGKILL for one rank of an attempt at a moment that the dice choose: while it starts, or some steps later.
///
/// Says whether there was still a rank to be killed.
fn kill_one(
    run: &Run<'_>,
    running: &mut Running,
    dice: &mut Dice,
    attempt: u64,
    victim: u64,
    span: u64,
) -> bool {
    let steps = if dice.below(4) == 0 { 0 } else { 1 + dice.below(span) };
    let pause = Duration::from_micros(dice.below(if steps == 0 { 3_000_000 } else { 60_000 }));
    eprintln!("attempt {attempt}: rank {victim} after {steps} steps and {pause:?}");
    wait_for("the moment", RUN, || {
        let made = run.losses().iter().filter(|(of, ..)| *of == attempt).count() as u64;
        let reached = made >= steps && rank(running, attempt, victim).is_some();
        if reached || !running.is_running() { Ok(()) } else { Err(format!("{made} steps")) }
    });
    // Not to wait for anything: this is what makes the moment any moment of a step, a checkpoint or a start.
    std::thread::sleep(pause);
    let Some(pid) = rank(running, attempt, victim) else { return false };
    kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
}

fn killed_at_random(script: Script, python: &OsString, golden: &Golden, kills: u64) {
    let seed = std::env::var("RELIGHT_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(monotonic_ns);
    eprintln!("{}: RELIGHT_TEST_SEED={seed}", script.file);
    let mut dice = Dice(seed);
    let run = Run::new(script, python);
    let mut running = run.relight(20, &["--step-time", "0.03"]);
    let first = dice.below(2);
    let mut done = 0;
    // Both ranks have their turn, and there are steps left for those who come behind.
    while done < kills {
        let span = script.steps / (kills + 2);
        if !kill_one(&run, &mut running, &mut dice, done, (first + done) % 2, span) {
            break;
        }
        done += 1;
    }
    let ended = running.wait(KILLED);
    run.is(golden, &ended);
    run.resumed_behind();
    assert!(done >= 2, "the run was over after {done} kills");
    assert_eq!(died(&ended, "rank ").count() as u64, done, "{}", ended.stderr);
}

/// One test with all its runs, because they are compared with the first.
#[test]
fn ddp_ends_as_if_no_rank_had_died() {
    let Some(python) = crate::python() else { return };
    let golden = unkilled(DDP, &python);
    killed_by_itself(DDP, &python, &golden);
    killed_at_random(DDP, &python, &golden, 2);
    control(DDP, &python, &golden);
}

#[test]
fn fsdp_ends_as_if_no_rank_had_died() {
    let Some(python) = crate::python() else { return };
    let golden = unkilled(FSDP, &python);
    killed_at_random(FSDP, &python, &golden, 3);
    control(FSDP, &python, &golden);
}

/// What `fsdp.py` does where FSDP2 does not run on a CPU. Steps 11 to 14 are made twice, with the same losses.
#[test]
fn fsdp1_goes_on_from_its_checkpoint() {
    let Some(python) = crate::python() else { return };
    let run = Run::new(Script { every: 10, steps: 20, ..FSDP }, &python);
    let args = ["--api=fsdp1", "--steps=20", "--ckpt-every=10", "--kill-rank=0", "--kill-step=15"];
    let ended = run.relight(3, &args).wait(RUN);
    assert!(result(&ended).starts_with("steps 20 "), "{}", ended.stdout);
    leftovers::assert_none(&run.scene);
    assert_eq!(run.curve().len(), 20);
    assert_eq!(run.resumed_behind(), BTreeMap::from([(0, 0), (1, 10)]));
}
