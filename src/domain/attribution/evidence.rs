//! What one rank's end is worth: how it ended, what it said and what was measured around it, by the table.

use serde::{Deserialize, Serialize};

use super::super::errno::errno_name;
use super::super::exit::{ExitKind, signal_name};
use super::engine::{Engine, Hit, engine};
use super::fingerprint::{addresses, entity, fingerprint};
use super::rules::{self, Class, Place, Rule};

/// How many bytes from the end of a stream a line belongs to what its program died of.
pub const NEAR: usize = 8 << 10;
/// How many lines are reported beside the one that counts.
pub const MAX_FINDINGS: usize = 6;
/// Longest line of a finding, in characters.
const LINE: usize = 300;
/// How many addresses of peers are kept of one end.
const MAX_NAMED: usize = 4;

const SIGABRT: u8 = 6;
const SIGBUS: u8 = 7;
const SIGKILL: u8 = 9;
const SIGPIPE: u8 = 13;

/// A line that fits a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The row.
    pub rule: String,
    /// The line, cut and without control characters.
    pub line: String,
    /// What it names: a file, a sample, a device.
    pub entity: Option<String>,
}

/// The kernel's counter of killings for want of memory went up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oom {
    /// What the group of processes may use, in bytes; none: no limit of a group, so the host is full.
    pub limit: Option<u64>,
}

/// What was measured around an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Somebody was killed for want of memory since the ranks were started.
    pub oom: Option<Oom>,
    /// There is no room in `/dev/shm`.
    pub shm_full: bool,
}

/// What one end is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What it can be; none: nothing tells.
    pub class: Option<Class>,
    /// The row of the table that says so; empty where there is none.
    pub rule: String,
    /// What it died of in a few words, where that is more than the row says.
    pub cause: String,
    /// The line that it was recognised by.
    pub line: String,
    /// What it happened to.
    pub entity: Option<String>,
    /// What it is known by; empty: nothing to know it by.
    pub fingerprint: String,
    /// Other lines that fit the table, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Peers that it named, by their addresses.
    pub named: Vec<String>,
    /// What it was recognised by was the last that it said.
    pub last: bool,
}

impl Evidence {
    /// The row.
    #[must_use]
    pub fn row(&self) -> Option<&'static Rule<'static>> {
        rules::by_id(&self.rule)
    }

    /// What explains an end without words of its own; empty where that is only how it ended.
    #[must_use]
    pub fn explains(&self) -> String {
        let told =
            |rule: &&Rule<'_>| matches!(rule.place, Place::Fact | Place::Text) && rule.class == Class::Root;
        self.row().filter(told).map(|_| self.cause()).unwrap_or_default()
    }

    /// What it died of, in a few words.
    #[must_use]
    pub fn cause(&self) -> String {
        if self.cause.is_empty() {
            self.row().map_or("", |rule| rule.cause).to_owned()
        } else {
            self.cause.clone()
        }
    }
}

/// What a rank said last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spoken<'a> {
    /// The exception or error, if one was recognised; else empty.
    pub headline: &'a str,
    /// Its innermost frame of the program's own, file and function.
    pub frame: &'a str,
    /// Traceback or last lines.
    pub text: &'a str,
    /// It said nothing more after the exception.
    pub last: bool,
}

/// A line of a rank's last output that fits a row.
#[derive(Clone, Debug)]
pub struct Sighting {
    rule: &'static Rule<'static>,
    line: String,
    near: bool,
}

impl Sighting {
    /// Something that was measured just now, told in a line.
    #[must_use]
    pub fn measured(rule: &'static Rule<'static>, line: String) -> Self {
        Self { rule, line, near: true }
    }
}

/// What fits the table in the last output of one stream: of each row the first line, and whether the last one was near
/// the end. Bounded by the table.
#[must_use]
pub fn survey(tail: &[u8]) -> Vec<Sighting> {
    let mut seen: Vec<Sighting> = Vec::new();
    let Some(engine) = engine() else { return seen };
    engine.scan(tail, |Hit { rule, line, at }| {
        let near = at + NEAR >= tail.len();
        match seen.iter_mut().find(|known| std::ptr::eq(known.rule, rule)) {
            // The one that is near the end counts.
            Some(known) if near => (known.line, known.near) = (shown(line), true),
            Some(_) => {}
            None => seen.push(Sighting { rule, line: shown(line), near }),
        }
    });
    seen
}

/// Readable, and not too long.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().filter(|c| !c.is_control()).take(LINE).collect::<String>().trim().to_owned()
}

/// What an end is worth.
#[must_use]
pub fn weigh(exit: &ExitKind, spoken: &Spoken<'_>, seen: &[Sighting], facts: Facts) -> Evidence {
    let told = engine().and_then(|engine| told(engine, spoken));
    let chosen = choose(exit, spoken, told, seen, facts);
    let mut evidence = Evidence::default();
    if let Some(Chosen { rule, line, mute }) = chosen {
        evidence.class = (!mute).then_some(rule.class);
        evidence.rule = rule.id.to_owned();
        evidence.entity = entity(&line).or_else(|| entity(spoken.headline));
        evidence.line = line;
        evidence.cause = cause(rule, exit, spoken, facts);
        evidence.fingerprint = known_by(rule, exit, spoken, &evidence.line);
    }
    let others = seen.iter().filter(|s| s.rule.id != evidence.rule && s.rule.class != Class::Chatter);
    let finding =
        |s: &Sighting| Finding { rule: s.rule.id.to_owned(), line: s.line.clone(), entity: entity(&s.line) };
    let mut others: Vec<&Sighting> = others.collect();
    others.sort_by_key(|s| (!s.rule.hints.decisive, !s.near, s.rule.class));
    evidence.last = !spoken.headline.is_empty() && spoken.last;
    evidence.findings = others.into_iter().take(MAX_FINDINGS).map(finding).collect();
    if evidence.class == Some(Class::Cascade) {
        evidence.named = addresses(&evidence.line);
        evidence.named.extend(addresses(spoken.headline));
        evidence.named.sort();
        evidence.named.dedup();
        evidence.named.truncate(MAX_NAMED);
    }
    evidence
}

struct Chosen {
    rule: &'static Rule<'static>,
    line: String,
    /// It has an exit code and nothing else: that may be anything.
    mute: bool,
}

impl Chosen {
    fn of(rule: &'static Rule<'static>, line: &str) -> Option<Self> {
        Some(Self { rule, line: line.to_owned(), mute: false })
    }
}

/// The row that what it said last fits: that of the exception, else of what stands around it, and there a root before
/// what follows from one.
fn told(engine: &Engine, spoken: &Spoken<'_>) -> Option<(&'static Rule<'static>, String)> {
    if spoken.headline.is_empty() {
        return None;
    }
    if let Some(rule) = engine.line(spoken.headline.as_bytes()) {
        return Some((rule, spoken.headline.to_owned()));
    }
    // Lines of source are no words.
    let words = spoken.text.lines().filter(|line| !line.contains("  File \"") && !line.starts_with("    "));
    let fits = words.filter_map(|line| Some((engine.line(line.as_bytes())?, shown(line.as_bytes()))));
    let fits = fits.filter(|(rule, _)| matches!(rule.class, Class::Root | Class::Cascade));
    fits.min_by_key(|(rule, _)| rule.class)
}

fn choose(
    exit: &ExitKind,
    spoken: &Spoken<'_>,
    told: Option<(&'static Rule<'static>, String)>,
    seen: &[Sighting],
    facts: Facts,
) -> Option<Chosen> {
    let near = |wanted: &dyn Fn(&Rule<'_>) -> bool| {
        seen.iter().rev().find(|s| s.near && wanted(s.rule)).and_then(|s| Chosen::of(s.rule, &s.line))
    };
    // A broken device explains everything else.
    let broken = || near(&|rule| rule.hints.decisive && rule.class == Class::Root);
    let said = || told.as_ref().and_then(|(rule, line)| Chosen::of(rule, line));
    let row = |place, number| rules::for_number(place, number).and_then(|rule| Chosen::of(rule, ""));
    let own = || rules::by_id("exception").filter(|_| !spoken.headline.is_empty());
    match exit {
        ExitKind::Lost | ExitKind::Hung => None,
        ExitKind::NeverStarted { errno, .. } => row(Place::Errno, u32::try_from(*errno).unwrap_or(0)),
        ExitKind::Signal { no: SIGKILL, .. } if facts.oom.is_some() => {
            rules::by_id("oom-counter").and_then(|rule| Chosen::of(rule, ""))
        }
        ExitKind::Signal { no: SIGBUS, .. } if facts.shm_full => {
            rules::by_id("shm-full").and_then(|rule| Chosen::of(rule, ""))
        }
        ExitKind::Signal { no: no @ (SIGABRT | SIGPIPE), .. } => broken()
            .or_else(said)
            .or_else(|| near(&|rule| rule.class == Class::Root))
            .or_else(|| near(&|rule| rule.class == Class::Cascade))
            .or_else(|| own().and_then(|rule| Chosen::of(rule, spoken.headline)))
            .or_else(|| row(Place::Signal, u32::from(*no))),
        ExitKind::Signal { no: no @ (SIGKILL | SIGBUS), .. } => broken()
            .or_else(|| near(&|rule| rule.owner == super::Owner::Memory))
            .or_else(|| row(Place::Signal, u32::from(*no))),
        ExitKind::Signal { no, .. } => {
            let struck = row(Place::Signal, u32::from(*no));
            // Who was asked to end while it was on its way out had a reason of its own.
            let leaving = spoken.last && struck.as_ref().is_some_and(|c| c.rule.class == Class::Confirms);
            let own = || said().or_else(|| own().and_then(|rule| Chosen::of(rule, spoken.headline)));
            broken().or_else(|| leaving.then(own).flatten()).or(struck)
        }
        ExitKind::Code(0) => row(Place::Code, 0),
        ExitKind::Code(code) => broken()
            .or_else(said)
            .or_else(|| own().and_then(|rule| Chosen::of(rule, spoken.headline)))
            .or_else(|| near(&|rule| matches!(rule.class, Class::Root | Class::Cascade)))
            .or_else(|| {
                let mute = row(Place::Code, u32::from(*code))?;
                Some(Chosen { mute: mute.rule.id == "code-own", ..mute })
            }),
    }
}

fn cause(rule: &Rule<'_>, exit: &ExitKind, spoken: &Spoken<'_>, facts: Facts) -> String {
    match (rule.id, exit) {
        ("oom-counter", _) => match facts.oom.and_then(|oom| oom.limit) {
            Some(limit) => format!("out of memory: the cgroup's limit of {}", bytes(limit)),
            None => "out of memory: the host had none left".to_owned(),
        },
        ("exception", _) => kind_of(spoken.headline).0.to_owned(),
        ("code-own", ExitKind::Code(code)) => format!("exit code {code}"),
        (_, ExitKind::Signal { no, .. }) if rule.place == Place::Signal => {
            format!("{}: {}", signal_name(*no), rule.cause)
        }
        (_, ExitKind::NeverStarted { errno, .. }) => format!("{}: {}", errno_name(*errno), rule.cause),
        _ => String::new(),
    }
}

/// `512 MB`, `1.5 GB`.
fn bytes(count: u64) -> String {
    let mb = count / (1 << 20);
    match mb {
        0 => format!("{} KB", count / 1024),
        1..10_240 => format!("{mb} MB"),
        _ => format!("{} GB", mb / 1024),
    }
}

/// The kind of an exception, and its message: `KeyError` and `'labels'` of `KeyError: 'labels'`.
fn kind_of(headline: &str) -> (&str, &str) {
    // torch puts `[rank0]: ` before it.
    let bare = match headline.strip_prefix("[rank").and_then(|rest| rest.split_once("]: ")) {
        Some((_, rest)) => rest,
        None => headline,
    };
    let (kind, message) = bare.split_once(": ").unwrap_or((bare, ""));
    if kind.contains(' ') { ("", bare) } else { (kind, message) }
}

fn known_by(rule: &Rule<'_>, exit: &ExitKind, spoken: &Spoken<'_>, line: &str) -> String {
    let class = match rule.class {
        Class::Root => "root",
        Class::Cascade => "cascade",
        Class::Confirms | Class::Chatter => "other",
    };
    match exit {
        // Whoever killed it without a reason that is known may have had another one each time.
        ExitKind::Signal { no: SIGKILL, .. } if rule.id == "signal-kill" => String::new(),
        _ if !spoken.headline.is_empty() => {
            let (kind, message) = kind_of(spoken.headline);
            fingerprint(class, if kind.is_empty() { rule.id } else { kind }, spoken.frame, message)
        }
        ExitKind::Code(code) if rule.place == Place::Code => {
            fingerprint(class, &format!("{}.", rule.id), "", "") + &code.to_string()
        }
        _ => fingerprint(class, rule.id, "", line),
    }
}
