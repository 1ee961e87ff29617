//! Configuration files: one `key = value` a line.
//!
//! ```text
//! # The whole line is a comment when it starts with '#'.
//! max-restarts = 3
//! lost-after = 30
//! run_dir = "/scratch/runs with a space"
//! ```
//! A key is the name of a long option of `run`, with hyphens or underscores. A value may stand in double quotes,
//! which are taken off; there are no escapes and no comments behind a value. A key may occur once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::key::Key;
use crate::domain::suggest::closest;

/// A line of a configuration file, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(pub u32);

/// A configuration file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its settings.
    pub values: BTreeMap<Key, (Line, String)>,
}

/// A configuration file that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Neither empty, nor a comment, nor `key = value`.
    #[error("{}, line {}: this is not `key = value`", path.display(), line.0)]
    NotAPair {
        /// The file.
        path: PathBuf,
        /// The line.
        line: Line,
    },
    /// No setting has this name.
    #[error("{}, line {}: there is no setting '{key}'", path.display(), line.0)]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line.
        line: Line,
        /// What it says.
        key: String,
        /// What may be meant.
        closest: Option<&'static str>,
    },
    /// The same key twice.
    #[error("{}, line {}: '{}' was set in line {} already", path.display(), line.0, key.name(), first.0)]
    Twice {
        /// The file.
        path: PathBuf,
        /// The second line.
        line: Line,
        /// The first line.
        first: Line,
        /// The setting.
        key: Key,
    },
}

impl FileError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { closest, .. } => closest.map(|word| format!("did you mean '{word}'?")),
            Self::NotAPair { .. } | Self::Twice { .. } => None,
        }
    }
}

impl ConfigFile {
    /// Parses a file's text.
    ///
    /// # Errors
    /// The first line that makes no sense.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        let mut values: BTreeMap<Key, (Line, String)> = BTreeMap::new();
        for (number, text) in (1_u32..).zip(text.lines()) {
            let (line, text) = (Line(number), text.trim());
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let path = || path.to_owned();
            let Some((key, value)) = text.split_once('=') else {
                return Err(FileError::NotAPair { path: path(), line });
            };
            let (name, value) = (key.trim(), value.trim());
            let Some(key) = Key::named(name) else {
                let closest = closest(&name.replace('_', "-"), Key::ALL.map(Key::name));
                return Err(FileError::UnknownKey { path: path(), line, key: name.to_owned(), closest });
            };
            let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            if let Some((first, _)) = values.insert(key, (line, unquoted.to_owned())) {
                return Err(FileError::Twice { path: path(), line, first, key });
            }
        }
        Ok(Self { path: path.to_owned(), values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, FileError> {
        ConfigFile::parse(Path::new("c.conf"), text)
    }

    #[test]
    fn lines() {
        let file = parse("\n# c\n max_restarts=3\nrun-dir = \"/a b/c=d\" \nrole=\n").unwrap();
        let got: Vec<(Key, u32, &str)> =
            file.values.iter().map(|(key, (line, value))| (*key, line.0, value.as_str())).collect();
        assert_eq!(got, [(Key::MaxRestarts, 3, "3"), (Key::Role, 5, ""), (Key::RunDir, 4, "/a b/c=d")]);
    }

    #[test]
    fn nonsense() {
        for (text, sentence, hint) in [
            ("nonsense", "c.conf, line 1: this is not `key = value`", None),
            (
                "\nmax-restart = 1",
                "c.conf, line 2: there is no setting 'max-restart'",
                Some("did you mean 'max-restarts'?"),
            ),
            ("= 1", "c.conf, line 1: there is no setting ''", None),
            ("role = a\nrole = b", "c.conf, line 2: 'role' was set in line 1 already", None),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.to_string(), sentence);
            assert_eq!(error.hint().as_deref(), hint);
        }
    }
}
