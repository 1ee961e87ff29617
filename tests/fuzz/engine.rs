//! Runs a target: first what is kept in its corpus, then inputs that are made from it. What behaves in a new way is
//! changed further.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::heap;
use super::mutate::{Dice, mutate};

const SECONDS: &str = "RELIGHT_FUZZ_SECONDS";
const SEED: &str = "RELIGHT_FUZZ_SEED";
/// Set: what behaved in a new way is put into the corpus, the shortest inputs first.
const KEEP: &str = "RELIGHT_FUZZ_KEEP";
/// So many inputs of a run are put there at most, each no longer than so many bytes.
const KEPT: usize = 12;
const SHORT: usize = 4 << 10;
/// So many inputs that behave differently are kept in mind.
const POOL: usize = 4_096;
/// One input may take so long, of a processor.
const SLOW: Duration = Duration::from_secs(2);

/// Something that takes bytes of others.
pub struct Target {
    /// Its name: of the test and of the folder of its inputs.
    pub name: &'static str,
    /// Inputs to begin with, beside those in the folder.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Takes one input; panics if a rule is broken. What it gives says how the input behaved: one that behaves in a new
    /// way is worth changing further.
    pub run: fn(&[u8]) -> u64,
    /// The longest input, in bytes.
    pub longest: usize,
    /// The most memory that an input of this length may take, in bytes.
    pub heap: fn(usize) -> usize,
    /// Words of its grammar.
    pub words: &'static [&'static [u8]],
}

/// A number for anything that can be hashed: for [`Target::run`].
pub fn behaviour(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The variant of an enum and its inner ones, without what is in them: `Err(TooLong { … })` is `Err(TooLong`.
pub fn shape(of: impl std::fmt::Debug) -> u64 {
    let text = format!("{of:?}");
    let names =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with(char::is_uppercase));
    behaviour(names.take(8).collect::<Vec<_>>())
}

/// Runs a target for as long as `RELIGHT_FUZZ_SECONDS` says.
pub fn play(target: &Target) {
    let number = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let seconds = number(SECONDS).map_or(2.0, |text| text.parse().expect("RELIGHT_FUZZ_SECONDS is a number"));
    let seed = number(SEED).map_or(1, |text| text.parse().expect("RELIGHT_FUZZ_SEED is a number"));
    let mut pool = (target.seeds)();
    let made = pool.len();
    pool.extend(kept(target.name));
    let known_before = pool.len();
    assert!(!pool.is_empty(), "{} has nothing to begin with", target.name);
    let mut known = HashSet::new();
    for input in &pool {
        known.insert(judge(target, input, seed));
    }
    let (mut dice, mut runs, known_ways) = (Dice(seed), 0_u64, known.len());
    let began = used();
    let end = began + Duration::from_secs_f64(seconds);
    while used() < end {
        let mut input = pool[dice.below(pool.len())].clone();
        mutate(&mut dice, &mut input, &pool, target.words, target.longest);
        runs += 1;
        if known.insert(judge(target, &input, seed)) && pool.len() < POOL {
            pool.push(input);
        }
    }
    let found = known.len() - known_ways;
    let full = if pool.len() >= POOL { " (the last ones were not changed further)" } else { "" };
    if number(KEEP).is_some() {
        keep(target.name, pool.split_off(known_before));
    }
    eprintln!(
        "{}: {SEED}={seed}, {:.1} s of a processor; {made} seeds made and {} kept, which behave in {known_ways} ways; {runs} inputs \
         tried, {found} of them in a new way{full}",
        target.name,
        (used() - began).as_secs_f64(),
        known_before - made,
    );
}

/// Processor time of this process.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the clock exists").into()
}

/// Processor time of this thread.
fn own() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock exists").into()
}

/// Puts inputs into a target's folder, under names that their bytes give.
fn keep(name: &str, mut inputs: Vec<Vec<u8>>) {
    std::fs::create_dir_all(folder(name)).expect("the corpus can be written");
    inputs.retain(|input| input.len() <= SHORT);
    inputs.sort_by_key(Vec::len);
    // From the whole range of lengths: the shortest ones alone are all alike.
    let step = inputs.len().div_ceil(KEPT).max(1);
    for input in inputs.iter().step_by(step) {
        let path = folder(name).join(format!("{:016x}", behaviour(input)));
        std::fs::write(path, input).expect("the corpus can be written");
    }
}

/// Runs one input, and says where it lies if a rule is broken.
fn judge(target: &Target, input: &[u8], seed: u64) -> u64 {
    let before = own();
    let (ended, most) = heap::most(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let (took, limit) = (own().saturating_sub(before), (target.heap)(input.len()));
    let broken = match &ended {
        Err(_) => "it panicked (the message stands above)".to_owned(),
        Ok(_) if most > limit => format!("it took {most} bytes of memory, {limit} are justified"),
        Ok(_) if took > SLOW => format!("it took {took:?}"),
        Ok(behaviour) => return *behaviour,
    };
    let path = std::env::temp_dir().join(format!("fuzz-{}-{:016x}", target.name, behaviour(input)));
    std::fs::write(&path, input).expect("the temporary folder can be written");
    panic!(
        "{}, an input of {} bytes, {SEED}={seed}: {broken}\nkept as {}; put it into {} to have it tried every time",
        target.name,
        input.len(),
        path.display(),
        folder(target.name).display(),
    );
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name)
}

/// The inputs in a target's folder, by name; a folder that is not there is empty.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder(name)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file of the corpus")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `play` says of a target that breaks a rule.
    fn found(run: fn(&[u8]) -> u64) -> String {
        let seeds = || vec![br#"{"number": 1, "list": [1, 2]}"#.to_vec()];
        let target = Target {
            name: "planted",
            seeds,
            run,
            longest: 4_096,
            heap: |length| 64 * length + 4_096,
            words: &[],
        };
        let ended = catch_unwind(AssertUnwindSafe(|| play(&target))).expect_err("it finds it");
        let said = ended.downcast_ref::<String>().expect("a message").clone();
        let kept = said.lines().find_map(|line| line.strip_prefix("kept as ")?.split(';').next());
        std::fs::remove_file(kept.expect("an input was kept")).expect("it is there");
        said
    }

    #[test]
    fn planted_faults_are_found() {
        // An overflow behind a number that only a mutation writes.
        let overflow = found(|input| {
            let value: serde_json::Value = serde_json::from_slice(input).unwrap_or_default();
            value["number"].as_u64().map_or(0, |number| number * 2)
        });
        assert!(overflow.contains("it panicked"), "{overflow}");
        // Memory on the word of four bytes.
        let memory = found(|input| {
            let length = input.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            behaviour(vec![0_u8; (length as usize).min(1 << 20)].len())
        });
        assert!(memory.contains("bytes of memory"), "{memory}");
    }
}
