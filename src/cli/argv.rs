//! torchrun's rules for a command line, before clap sees it: options end at the first positional, which is the
//! program; everything behind it goes to the program untouched. A long option may be written with hyphens or
//! underscores and shortened to any prefix that is unique. `-r3`, `-r 3` and `-r=3` are the same.
//!
//! What comes out is well-formed (`--name=value`), so that clap only fills the structs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::failure::UsageError;
use super::torchrun;
use crate::domain::suggest::closest;

/// A command line of `run`, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Options, each one word.
    pub options: Vec<String>,
    /// Program and arguments.
    pub program: Vec<String>,
}

struct Known {
    takes_value: bool,
    name: String,
}

/// The options of a command, by every spelling.
struct Options {
    long: BTreeMap<String, Known>,
    short: BTreeMap<char, Known>,
}

impl Options {
    fn of(command: &clap::Command) -> Self {
        let mut all = Self { long: BTreeMap::new(), short: BTreeMap::new() };
        for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
            let Some(name) = arg.get_long() else { continue };
            let takes_value = arg.get_action().takes_values();
            let known = || Known { takes_value, name: name.to_owned() };
            for spelling in std::iter::once(name).chain(arg.get_all_aliases().unwrap_or_default()) {
                all.long.insert(spelling.to_owned(), known());
            }
            if let Some(short) = arg.get_short() {
                all.short.insert(short, known());
            }
        }
        // clap adds these only when it builds the command.
        let help = || Known { takes_value: false, name: "help".to_owned() };
        all.long.insert("help".to_owned(), help());
        all.short.insert('h', help());
        all
    }

    /// The option that was meant by `--typed`.
    fn find(&self, typed: &str) -> Result<&Known, UsageError> {
        let word = typed.replace('_', "-");
        if let Some(known) = self.long.get(&word) {
            return Ok(known);
        }
        let mut meant: Vec<(&String, &Known)> =
            self.long.iter().filter(|(name, _)| !word.is_empty() && name.starts_with(&word)).collect();
        meant.dedup_by(|a, b| a.1.name == b.1.name);
        match meant.as_slice() {
            [(_, known)] => Ok(known),
            [] => {
                let closest = closest(&word, self.long.keys().map(String::as_str)).map(str::to_owned);
                Err(UsageError::UnknownOption { option: format!("--{typed}"), closest })
            }
            // What torchrun takes for one of its own is that, though options of ours begin so, too.
            several => match torchrun::meant(typed).and_then(|name| self.long.get(&name)) {
                Some(known) => Ok(known),
                None => Err(UsageError::Ambiguous {
                    option: format!("--{typed}"),
                    candidates: several.iter().map(|(name, _)| format!("--{name}")).collect(),
                }),
            },
        }
    }
}

/// Splits the words behind `run`.
///
/// # Errors
/// The first word that is no option of this command, or an option without its value.
pub fn split(command: &clap::Command, words: &[OsString]) -> Result<Split, UsageError> {
    let options = Options::of(command);
    let mut out = Split::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = utf8(word)?;
        at += 1;
        if text == "--" {
            out.program =
                words[at..].iter().map(|word| utf8(word).map(str::to_owned)).collect::<Result<_, _>>()?;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, inline) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            at += push(&mut out, options.find(name)?, inline, words.get(at), &format!("--{name}"))?;
        } else if text.len() > 1 && text.starts_with('-') {
            at += shorts(&options, &mut out, &text[1..], words.get(at))?;
        } else {
            // A -- directly behind the program is torchrun's, too: it is taken away.
            let taken = usize::from(words.get(at).is_some_and(|word| word == "--"));
            let rest = std::iter::once(word).chain(&words[at + taken..]);
            out.program = rest.map(|word| utf8(word).map(str::to_owned)).collect::<Result<_, _>>()?;
            break;
        }
    }
    Ok(out)
}

/// A word of short options: `-m`, `-r3`, `-mr3`. Answers how many further words it took.
fn shorts(
    options: &Options,
    out: &mut Split,
    letters: &str,
    next: Option<&OsString>,
) -> Result<usize, UsageError> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let Some(known) = options.short.get(&letter) else {
            return Err(UsageError::UnknownOption { option: format!("-{letter}"), closest: None });
        };
        if known.takes_value {
            let inline = rest.as_str();
            let inline = (!inline.is_empty()).then(|| inline.strip_prefix('=').unwrap_or(inline));
            return push(out, known, inline, next, &format!("-{letter}"));
        }
        push(out, known, None, None, &format!("-{letter}"))?;
    }
    Ok(0)
}

/// Adds one option. Answers how many further words it took.
fn push(
    out: &mut Split,
    known: &Known,
    inline: Option<&str>,
    next: Option<&OsString>,
    typed: &str,
) -> Result<usize, UsageError> {
    if !known.takes_value {
        if inline.is_some() {
            return Err(UsageError::TakesNoValue { option: typed.to_owned() });
        }
        out.options.push(format!("--{}", known.name));
        return Ok(0);
    }
    let (value, taken) = match inline {
        Some(value) => (value, 0),
        None => match next.map(|word| utf8(word)).transpose()?.filter(|word| is_value(word)) {
            Some(value) => (value, 1),
            None => return Err(UsageError::NeedsValue { option: typed.to_owned() }),
        },
    };
    out.options.push(format!("--{}={value}", known.name));
    Ok(taken)
}

/// What looks like an option is no value, unless it is a negative number.
fn is_value(word: &str) -> bool {
    word.strip_prefix('-').is_none_or(|rest| rest.is_empty() || rest.parse::<f64>().is_ok())
}

fn utf8(word: &OsStr) -> Result<&str, UsageError> {
    word.to_str().ok_or_else(|| UsageError::NotUtf8 { word: word.to_string_lossy().into_owned() })
}
