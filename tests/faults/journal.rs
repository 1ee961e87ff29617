//! The journal as files: the only place that knows how its records are spelt.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One life of the worker group, as journalled.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its number.
    pub number: u64,
    /// It was opened because of an incident.
    pub after_incident: bool,
    /// That incident counts against `--max-restarts`.
    pub charged: bool,
    /// Who failed first in the attempt before.
    pub first_failure: Option<FirstFailure>,
}

/// Who failed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFailure {
    /// The rank.
    pub rank: u64,
    /// `code 3`, `signal 9` or the word for anything else.
    pub exit: String,
    /// Unix milliseconds.
    pub wall_ms: u64,
    /// Summary and last words, for people.
    pub text: String,
}

/// What the journal of a run says.
#[derive(Debug)]
pub struct Journal {
    /// In order.
    pub attempts: Vec<Attempt>,
    /// First failures of the settled verdicts, in order.
    pub verdicts: Vec<Option<FirstFailure>>,
    /// Whose fault they were, in order.
    pub found: Vec<Value>,
    /// Code of the last `end`.
    pub end_code: Option<u64>,
}

impl Journal {
    /// Reads the journal of the run `id` in `run_dir`; panics where it does not hold what every journal holds.
    pub fn read(run_dir: &Path, id: &str) -> Self {
        let mut files = record_files(run_dir, id);
        files.sort();
        let mut journal =
            Self { attempts: Vec::new(), verdicts: Vec::new(), found: Vec::new(), end_code: None };
        for (at, file) in files.iter().enumerate() {
            let text = fs::read(file).expect("a record can be read");
            let record: Value = serde_json::from_slice(&text)
                .unwrap_or_else(|error| panic!("{} is no JSON: {error}", file.display()));
            assert_eq!(record["v"], 1, "{}", file.display());
            assert_eq!(record["seq"], at as u64, "numbers have no gap: {}", file.display());
            let why = record["why"].as_array().map_or(0, Vec::len);
            assert!(why > 0, "every record says why: {}", file.display());
            journal.take(&record);
        }
        journal
    }

    fn take(&mut self, record: &Value) {
        let kind = record["kind"].as_str().unwrap_or_default();
        let body = &record["body"][kind];
        match kind {
            "attempt" => {
                let incident = &body["cause"]["incident"];
                self.attempts.push(Attempt {
                    number: record["attempt"].as_u64().expect("an attempt has a number"),
                    after_incident: incident.is_object(),
                    charged: incident["charged"].as_bool().unwrap_or(false),
                    first_failure: first_failure(&incident["first_failure"]),
                });
            }
            "incident" => {
                self.verdicts.push(first_failure(&body["first_failure"]));
                self.found.push(body["verdict"].clone());
            }
            "end" => self.end_code = body["code"].as_u64(),
            _ => {}
        }
    }

    /// First failures as known in the end: the settled verdicts.
    pub fn roots(&self) -> Vec<Option<&FirstFailure>> {
        self.verdicts.iter().map(Option::as_ref).collect()
    }
}

fn first_failure(value: &Value) -> Option<FirstFailure> {
    Some(FirstFailure {
        rank: value["rank"].as_u64()?,
        exit: exit(&value["exit"]),
        wall_ms: value["wall_ms"].as_u64().unwrap_or(0),
        text: format!(
            "{} {}",
            value["summary"].as_str().unwrap_or(""),
            value["words"].as_str().unwrap_or("")
        ),
    })
}

fn exit(value: &Value) -> String {
    if let Some(code) = value["Code"].as_u64() {
        return format!("code {code}");
    }
    if let Some(no) = value["Signal"]["no"].as_u64() {
        return format!("signal {no}");
    }
    value.to_string()
}

fn record_files(run_dir: &Path, id: &str) -> Vec<PathBuf> {
    let place = [run_dir.join(id).join("journal"), run_dir.join("journal")].into_iter().find(|p| p.is_dir());
    let place = place.unwrap_or_else(|| panic!("{} holds no journal", run_dir.display()));
    let is_record = |path: &PathBuf| {
        path.file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.len() == 20 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    fs::read_dir(place)
        .expect("the journal can be listed")
        .flatten()
        .map(|e| e.path())
        .filter(is_record)
        .collect()
}
