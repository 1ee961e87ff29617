//! Settings of what ranks say beyond streams and files: the prefix of their lines, copies of some lines, events.

use super::key::Key;
use super::resolve::{Layers, SettingsError};
use super::value::{Origin, Value, ValueProblem};

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSettings {
    /// What stands before a line of a rank on the console; empty: `[${role_name}${local_rank}]:`.
    pub prefix: Value<String>,
    /// Texts; lines of standard output that hold one of them are written once more.
    pub stdout_filters: Value<Vec<String>>,
    /// The same for standard error.
    pub stderr_filters: Value<Vec<String>>,
    /// Events of ranks and agents are printed.
    pub events: Value<bool>,
}

impl OutputSettings {
    pub(super) fn resolve(layers: &Layers<'_>) -> Result<Self, SettingsError> {
        let filters = || (Vec::new(), "");
        Ok(Self {
            prefix: layers.get(
                Key::LogLinePrefixTemplate,
                |text| Ok(text.to_owned()),
                || (String::new(), ""),
            )?,
            stdout_filters: layers.get(Key::DuplicateStdoutFilters, filter_list, filters)?,
            stderr_filters: layers.get(Key::DuplicateStderrFilters, filter_list, filters)?,
            events: layers.get(Key::EventLogHandler, handler, || (false, ""))?,
        })
    }

    /// One setting for people; `None`: it is none of these.
    pub(super) fn show(&self, key: Key) -> Option<(Option<String>, &Origin)> {
        let list = |filters: &Vec<String>| {
            let texts: Vec<String> = filters.iter().map(|text| text.replace(',', ",,")).collect();
            (!texts.is_empty()).then(|| texts.join(","))
        };
        Some(match key {
            Key::LogLinePrefixTemplate => {
                let text = &self.prefix.value;
                ((!text.is_empty()).then(|| text.clone()), &self.prefix.origin)
            }
            Key::DuplicateStdoutFilters => (list(&self.stdout_filters.value), &self.stdout_filters.origin),
            Key::DuplicateStderrFilters => (list(&self.stderr_filters.value), &self.stderr_filters.origin),
            Key::EventLogHandler => {
                let name = if self.events.value { "console" } else { "null" };
                (Some(name.to_owned()), &self.events.origin)
            }
            _ => return None,
        })
    }
}

/// `a,b`; two commas are one that is meant. An empty text is in every line.
fn filter_list(text: &str) -> Result<Vec<String>, ValueProblem> {
    let mut all = vec![String::new()];
    let mut rest = text;
    while let Some(at) = rest.find(',') {
        let (before, after) = rest.split_at(at);
        let last = all.pop().unwrap_or_default() + before;
        if let Some(tail) = after.strip_prefix(",,") {
            all.push(last + ",");
            rest = tail;
        } else {
            all.extend([last, String::new()]);
            rest = &after[1..];
        }
    }
    let last = all.pop().unwrap_or_default() + rest;
    all.push(last);
    Ok(all)
}

/// torchrun's names; the rendezvous of relight has no events of its own.
fn handler(text: &str) -> Result<bool, ValueProblem> {
    match text {
        "console" => Ok(true),
        "null" | "dynamic_rendezvous" => Ok(false),
        _ => Err(ValueProblem::NotHandler),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// What is shown is read as the same.
        #[test]
        fn filters_survive(texts in proptest::collection::vec("[a-c ,]{1,6}", 1..4)) {
            let shown: Vec<String> = texts.iter().map(|text| text.replace(',', ",,")).collect();
            // A comma at an edge cannot be told from the one between two texts.
            let plain = texts.iter().all(|text| !text.starts_with(',') && !text.ends_with(','));
            let read = filter_list(&shown.join(","));
            proptest::prop_assert!(!plain || read == Ok(texts));
        }
    }

    #[test]
    fn filters() {
        for (text, want) in [
            ("a", vec!["a"]),
            ("a,b c", vec!["a", "b c"]),
            ("a,,b,c", vec!["a,b", "c"]),
            (",,,x", vec![",", "x"]),
            ("a,", vec!["a", ""]),
            ("", vec![""]),
        ] {
            assert_eq!(filter_list(text).unwrap(), want, "{text}");
        }
    }
}
