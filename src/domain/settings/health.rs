//! Settings of the programs that are asked about a node.

use super::key::Key;
use super::resolve::{Layers, SettingsError};
use super::value::{self, Origin, Value, ValueProblem};
use crate::domain::health::{HealthSpec, TIMEOUT_MS};

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Command lines for a shell.
    pub commands: Value<Vec<String>>,
    /// How long each of them may take, in milliseconds.
    pub timeout_ms: Value<u64>,
}

impl HealthSettings {
    pub(super) fn resolve(layers: &Layers<'_>) -> Result<Self, SettingsError> {
        Ok(Self {
            commands: layers.get(Key::HealthCmd, commands, || (Vec::new(), ""))?,
            timeout_ms: layers.get(Key::HealthTimeout, value::duration_at_least_1ms, || (TIMEOUT_MS, ""))?,
        })
    }

    /// One setting for people; `None`: it is none of these.
    pub(super) fn show(&self, key: Key) -> Option<(Option<String>, &Origin)> {
        Some(match key {
            Key::HealthCmd => {
                let lines = &self.commands.value;
                ((!lines.is_empty()).then(|| lines.join("; ")), &self.commands.origin)
            }
            Key::HealthTimeout => {
                let ms = self.timeout_ms.value;
                let text = if ms.is_multiple_of(1000) { (ms / 1000).to_string() } else { format!("{ms}ms") };
                (Some(text), &self.timeout_ms.origin)
            }
            _ => return None,
        })
    }

    /// What the coordinator binds for the run.
    pub(super) fn spec(&self) -> HealthSpec {
        HealthSpec { commands: self.commands.value.clone(), timeout_ms: self.timeout_ms.value }
    }
}

/// One command a line; an empty one is none.
fn commands(text: &str) -> Result<Vec<String>, ValueProblem> {
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
