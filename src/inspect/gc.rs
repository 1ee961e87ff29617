//! `relight gc`: which run directories may go.

use std::path::{Path, PathBuf};

use super::sentences::{count, ms};
use super::{Said, human_bytes};
use crate::domain::exit_code;
use crate::store::IoTrouble;
use crate::store::look::{self, Listed};

/// Without `--older-than` and `--keep`, an ended run stays for so long, in days.
pub const DEFAULT_DAYS: u64 = 30;
const DAY_MS: u64 = 24 * 3600 * 1000;

/// What may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Only runs without a sign of life for so many days.
    pub older_than_days: Option<u64>,
    /// The newest so many ended runs stay.
    pub keep: Option<usize>,
}

/// Why a run stays, or that it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Remove,
    /// It runs.
    Live,
    /// It did not end: it may be continued.
    NotEnded,
    /// Not ours, open to others, or of a newer program.
    NotOurs,
    /// Too young.
    Young,
    /// Among the newest that stay.
    Kept,
}

/// Decides for every run. `is_live` knows the runs of this node; a run that is neither ended nor set aside
/// (`~`) always stays.
#[must_use]
pub fn plan(runs: &[Listed], rule: Rule, now_ms: u64, is_live: impl Fn(&Listed) -> bool) -> Vec<Verdict> {
    let days = match (rule.older_than_days, rule.keep) {
        (None, None) => DEFAULT_DAYS,
        (days, _) => days.unwrap_or_default(),
    };
    let mut verdicts: Vec<Verdict> = runs
        .iter()
        .map(|run| match run {
            run if !run.ours => Verdict::NotOurs,
            run if is_live(run) => Verdict::Live,
            run if !run.ended && !run.name.contains('~') => Verdict::NotEnded,
            run if now_ms.saturating_sub(run.changed_ms) < days.saturating_mul(DAY_MS) => Verdict::Young,
            _ => Verdict::Remove,
        })
        .collect();
    if let Some(keep) = rule.keep {
        let candidate = |v: Verdict| matches!(v, Verdict::Remove | Verdict::Young);
        let mut newest: Vec<usize> = (0..runs.len()).filter(|i| candidate(verdicts[*i])).collect();
        newest.sort_by_key(|i| std::cmp::Reverse(runs[*i].changed_ms));
        for i in newest.into_iter().take(keep) {
            verdicts[i] = Verdict::Kept;
        }
    }
    verdicts
}

/// An age as people count it: hours up to two days, days from there on.
fn age(age_ms: u64) -> String {
    let days = age_ms / DAY_MS;
    if days < 2 { ms(age_ms) } else { format!("{days} days") }
}

/// What was done, or would be. `failed` holds what could not be removed, with the reason.
#[must_use]
pub fn render(
    base: &Path,
    decided: &[(Listed, Verdict)],
    failed: &[(PathBuf, String)],
    now_ms: u64,
    dry_run: bool,
) -> Said {
    let mut text = String::new();
    let (mut gone, mut bytes) = (0, 0_u64);
    for (run, verdict) in decided {
        let age = age(now_ms.saturating_sub(run.changed_ms));
        let size = human_bytes(run.bytes);
        let word = match verdict {
            Verdict::Remove => {
                if let Some((_, why)) = failed.iter().find(|(dir, _)| *dir == run.dir) {
                    text.push_str(&format!("not removed {}: {why}\n", run.name));
                    continue;
                }
                gone += 1;
                bytes = bytes.saturating_add(run.bytes);
                let done = if dry_run { "would remove" } else { "removed" };
                text.push_str(&format!("{done} {}: last change {age} ago, {size}\n", run.name));
                continue;
            }
            Verdict::Live => "it runs",
            Verdict::NotEnded => "it did not end and may be continued",
            Verdict::NotOurs => "not ours, open to others, or of a newer relight",
            Verdict::Young | Verdict::Kept => continue,
        };
        text.push_str(&format!("kept {}: {word}\n", run.name));
    }
    let done = if dry_run { "would be removed" } else { "removed" };
    let size = human_bytes(bytes);
    text.push_str(&format!("{} {done} from {}, {size}\n", count(gone, "run"), base.display()));
    Said { text, code: if failed.is_empty() { 0 } else { exit_code::FAILED } }
}

/// The whole command: looks, decides, removes (unless `dry_run`), says.
pub fn run(
    base: &Path,
    rule: Rule,
    now_ms: u64,
    dry_run: bool,
    is_live: impl Fn(&Listed) -> bool,
) -> Result<Said, IoTrouble> {
    let runs = look::list(base)?;
    let verdicts = plan(&runs, rule, now_ms, is_live);
    let decided: Vec<(Listed, Verdict)> = runs.into_iter().zip(verdicts).collect();
    let mut failed = Vec::new();
    for (run, _) in decided.iter().filter(|(_, v)| *v == Verdict::Remove && !dry_run) {
        if let Err(e) = look::remove(&run.dir) {
            failed.push((run.dir.clone(), e.to_string()));
        }
    }
    Ok(render(base, &decided, &failed, now_ms, dry_run))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100 * DAY_MS;

    fn run(name: &str, days: u64, ended: bool) -> Listed {
        let dir = PathBuf::from("/base").join(name);
        Listed {
            name: name.into(),
            dir,
            ours: true,
            ended,
            changed_ms: NOW - days * DAY_MS,
            bytes: 1_500_000,
        }
    }

    fn all() -> Vec<Listed> {
        let mut foreign = run("foreign", 90, true);
        foreign.ours = false;
        vec![
            run("crashed", 90, false),
            run("aside~1", 60, false),
            run("ended", 40, true),
            run("fresh", 2, true),
            foreign,
            run("live", 50, true),
        ]
    }

    #[test]
    fn only_what_is_over_goes() {
        let runs = all();
        let verdicts = |rule| plan(&runs, rule, NOW, |r| r.name == "live");
        use Verdict::*;
        assert_eq!(verdicts(Rule::default()), [NotEnded, Remove, Remove, Young, NotOurs, Live]);
        let days = Rule { older_than_days: Some(50), keep: None };
        assert_eq!(verdicts(days), [NotEnded, Remove, Young, Young, NotOurs, Live]);
        let keep = Rule { older_than_days: None, keep: Some(2) };
        assert_eq!(verdicts(keep), [NotEnded, Remove, Kept, Kept, NotOurs, Live]);
        let none = Rule { older_than_days: Some(0), keep: Some(0) };
        assert_eq!(verdicts(none), [NotEnded, Remove, Remove, Remove, NotOurs, Live]);
    }

    #[test]
    fn it_says_what_it_does() {
        let runs = all();
        let verdicts = plan(&runs, Rule::default(), NOW, |r| r.name == "live");
        let decided: Vec<_> = runs.into_iter().zip(verdicts).collect();
        let failed = [(PathBuf::from("/base/ended"), "remove /base/ended: EIO, I/O error".to_owned())];
        let dry = render(Path::new("/base"), &decided, &[], NOW, true);
        let real = render(Path::new("/base"), &decided, &failed, NOW, false);
        assert_eq!((dry.code, real.code), (0, 1));
        insta::assert_snapshot!(dry.text + "--\n" + &real.text, @r"
        kept crashed: it did not end and may be continued
        would remove aside~1: last change 60 days ago, 1.5 MB
        would remove ended: last change 40 days ago, 1.5 MB
        kept foreign: not ours, open to others, or of a newer relight
        kept live: it runs
        2 runs would be removed from /base, 3.0 MB
        --
        kept crashed: it did not end and may be continued
        removed aside~1: last change 60 days ago, 1.5 MB
        not removed ended: remove /base/ended: EIO, I/O error
        kept foreign: not ours, open to others, or of a newer relight
        kept live: it runs
        1 run removed from /base, 1.5 MB
        ");
    }
}
