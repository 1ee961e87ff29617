//! The table of what failures look like: `rules.txt`, read once.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::Owner;

/// Between two columns.
const BETWEEN: &str = " ;; ";

/// Where a row applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An exit code.
    Code,
    /// The signal that ended a process.
    Signal,
    /// The errno of a start that failed.
    Errno,
    /// A process that lives: its state in `/proc`.
    State,
    /// What Slurm calls the state of a job or step.
    Slurm,
    /// A number of NVIDIA's driver.
    Xid,
    /// A line that somebody printed.
    Text,
    /// What we measured ourselves.
    Fact,
}

/// What an observation is worth when the first failure is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It can be the first failure.
    Root,
    /// Somebody else failed before.
    Cascade,
    /// Known otherwise, and better.
    Confirms,
    /// Says nothing.
    Chatter,
}

/// What follows from a row, for whoever decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Another try of the same program cannot mend it.
    pub stop: bool,
    /// Nor can it if it comes again at the same place.
    pub once: bool,
    /// What it resumed from can be the reason.
    pub state: bool,
    /// The device or the host is broken.
    pub decisive: bool,
    /// On one node it is that node's, on all of them the program's.
    pub node: bool,
    /// It passes by itself and no node is to blame.
    pub wait: bool,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Its name, unique.
    pub id: &'a str,
    /// Where it applies.
    pub place: Place,
    /// What it is worth.
    pub class: Class,
    /// Whose it is.
    pub owner: Owner,
    /// What follows.
    pub hints: Hints,
    /// In a few words, for people.
    pub cause: &'a str,
    /// Of a text: one of them is in the line, in any case. Else numbers, ranges and names.
    pub keys: Vec<&'a str>,
    /// A regular expression; empty: a key is enough.
    pub pattern: &'a str,
    /// A line that it fits; empty but for texts.
    pub example: &'a str,
}

impl Rule<'_> {
    /// One of its keys is this name.
    fn names(&self, name: &str) -> bool {
        self.keys.contains(&name)
    }

    /// One of its keys is this number, or a range that holds it.
    fn holds(&self, number: u32) -> bool {
        self.keys.iter().any(|key| {
            let (from, to) = key.split_once('-').unwrap_or((key, key));
            let parsed = from.parse().ok().zip(to.parse().ok());
            parsed.is_some_and(|(from, to): (u32, u32)| (from..=to).contains(&number))
        })
    }
}

/// Why a row is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Bad {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// The rows of a table, and what of it is none.
#[must_use]
pub fn parse(text: &str) -> (Vec<Rule<'_>>, Vec<Bad>) {
    let (mut rules, mut bad): (Vec<Rule<'_>>, Vec<Bad>) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match row(line) {
            Ok(rule) if rules.iter().any(|known| known.id == rule.id) => {
                bad.push(Bad { line: at + 1, what: "two rows of one name" });
            }
            Ok(rule) => rules.push(rule),
            Err(what) => bad.push(Bad { line: at + 1, what }),
        }
    }
    (rules, bad)
}

fn row(line: &str) -> Result<Rule<'_>, &'static str> {
    // The last columns may be empty, and editors take blanks at an end away.
    let columns: Vec<&str> = line.splitn(9, BETWEEN.trim_end()).map(str::trim).collect();
    let [id, place, class, owner, hints, cause, keys, pattern, example] = columns[..] else {
        return Err("there are nine columns");
    };
    let place = match place {
        "code" => Place::Code,
        "signal" => Place::Signal,
        "errno" => Place::Errno,
        "state" => Place::State,
        "slurm" => Place::Slurm,
        "xid" => Place::Xid,
        "text" => Place::Text,
        "fact" => Place::Fact,
        _ => return Err("an unknown place"),
    };
    let class = match class {
        "root" => Class::Root,
        "cascade" => Class::Cascade,
        "confirms" => Class::Confirms,
        "chatter" => Class::Chatter,
        _ => return Err("an unknown class"),
    };
    let between = if place == Place::Text { " | " } else { " " };
    let keys: Vec<&str> = keys.split(between).map(str::trim).filter(|key| !key.is_empty()).collect();
    if id.is_empty() || cause.is_empty() || keys.is_empty() {
        return Err("a name, a cause and a key are needed");
    }
    if (place == Place::Text) == example.is_empty() {
        return Err("texts and only texts have an example");
    }
    let pattern = if pattern == "=" { "" } else { pattern };
    Ok(Rule {
        id,
        place,
        class,
        owner: owner_of(owner)?,
        hints: hints_of(hints)?,
        cause,
        keys,
        pattern,
        example,
    })
}

fn owner_of(word: &str) -> Result<Owner, &'static str> {
    Ok(match word {
        "user" => Owner::User,
        "hardware" => Owner::Hardware,
        "network" => Owner::Network,
        "storage" => Owner::Storage,
        "memory" => Owner::Memory,
        "preemption" => Owner::Preemption,
        "launcher" => Owner::Launcher,
        "unknown" => Owner::Unknown,
        _ => return Err("an unknown owner"),
    })
}

fn hints_of(words: &str) -> Result<Hints, &'static str> {
    let mut hints = Hints::default();
    for word in words.split_ascii_whitespace() {
        match word {
            "stop" => hints.stop = true,
            "once" => hints.once = true,
            "state" => hints.state = true,
            "decisive" => hints.decisive = true,
            "node" => hints.node = true,
            "wait" => hints.wait = true,
            "-" => {}
            _ => return Err("an unknown hint"),
        }
    }
    Ok(hints)
}

/// The table as it is written.
pub const TABLE: &str = include_str!("rules.txt");

static RULES: LazyLock<Vec<Rule<'static>>> = LazyLock::new(|| parse(TABLE).0);

/// Every row, in order.
#[must_use]
pub fn rules() -> &'static [Rule<'static>] {
    &RULES
}

/// The row of this name.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Rule<'static>> {
    rules().iter().find(|rule| rule.id == id)
}

/// The row for a number at a place.
#[must_use]
pub fn for_number(place: Place, number: u32) -> Option<&'static Rule<'static>> {
    rules().iter().find(|rule| rule.place == place && rule.holds(number))
}

/// The row for a name at a place: a state of Slurm, the letter of a process's state.
#[must_use]
pub fn for_name(place: Place, name: &str) -> Option<&'static Rule<'static>> {
    rules().iter().find(|rule| rule.place == place && rule.names(name))
}

/// The tables of `docs/attribution.md`.
#[must_use]
pub fn markdown() -> String {
    let titles = [
        (Place::Code, "Exit codes"),
        (Place::Signal, "Signals"),
        (Place::Errno, "A start that fails, by its errno"),
        (Place::Fact, "What is measured, and exceptions of any other kind"),
        (Place::Text, "Lines"),
        (Place::Xid, "Xids"),
        (Place::Slurm, "States of a job or step in Slurm"),
        (Place::State, "States of a process that lives"),
    ];
    let mut out = String::new();
    for (place, title) in titles {
        // Writing to a String cannot fail.
        let _ =
            write!(out, "## {title}\n\n| seen | means | owner | class | hints |\n|---|---|---|---|---|\n");
        for rule in rules().iter().filter(|rule| rule.place == place) {
            let seen: Vec<String> = rule.keys.iter().map(|key| format!("`{key}`")).collect();
            let (class, hints) = (rule.class.word(), rule.hints.words());
            let _ = writeln!(
                out,
                "| {} | {} | {} | {class} | {hints} |",
                seen.join(", "),
                rule.cause,
                rule.owner.word()
            );
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Cascade => "cascade",
            Self::Confirms => "confirms",
            Self::Chatter => "chatter",
        }
    }
}

impl Hints {
    fn words(self) -> String {
        let all = [
            (self.stop, "stop"),
            (self.once, "once"),
            (self.state, "state"),
            (self.decisive, "decisive"),
            (self.node, "node"),
            (self.wait, "wait"),
        ];
        all.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }
}
