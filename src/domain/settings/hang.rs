//! Settings of what counts as a hang, and of what is done about one.

use std::collections::BTreeMap;

use super::key::Key;
use super::resolve::{Layers, SettingsError};
use super::value::{self, Origin, Value, ValueProblem};
use crate::domain::liveness::limits::{HangAction, HangSpec};

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangSettings {
    /// What is done about a hang.
    pub action: Value<HangAction>,
    /// Silence that is a hang, in milliseconds; none: learned.
    pub timeout_ms: Value<Option<u64>>,
    /// The same for phases and sections by name.
    pub phases: Value<BTreeMap<String, u64>>,
    /// The shortest limit that is learned, in milliseconds.
    pub floor_ms: Value<u64>,
}

impl HangSettings {
    /// At a terminal nothing is done unless somebody asks for it: a person looks, and may hold the program.
    pub(super) fn resolve(layers: &Layers<'_>, at_terminal: bool) -> Result<Self, SettingsError> {
        let timeout_ms = layers.get(
            Key::HeartbeatTimeout,
            |text| value::duration_at_least_1ms(text).map(Some),
            || (None, "learned"),
        )?;
        let phases = layers.get(Key::PhaseTimeout, phases, || (BTreeMap::new(), ""))?;
        let asked = timeout_ms.value.is_some() || !phases.value.is_empty();
        let action = layers.get(Key::HangAction, action, || match at_terminal && !asked {
            true => (HangAction::Off, "stdin is a terminal"),
            false => (HangAction::Restart, ""),
        })?;
        let floor = HangSpec::default().floor_ms;
        let floor_ms = layers.get(Key::HangFloor, value::duration_at_least_1ms, || (floor, ""))?;
        Ok(Self { action, timeout_ms, phases, floor_ms })
    }

    /// What the machines get.
    pub(super) fn spec(&self) -> HangSpec {
        HangSpec {
            action: self.action.value,
            timeout_ms: self.timeout_ms.value,
            phases: self.phases.value.clone(),
            floor_ms: self.floor_ms.value,
        }
    }

    /// One setting for people; `None`: it is none of these.
    pub(super) fn show(&self, key: Key) -> Option<(Option<String>, &Origin)> {
        Some(match key {
            Key::HangAction => (Some(self.action.value.name().to_owned()), &self.action.origin),
            Key::HeartbeatTimeout => (self.timeout_ms.value.map(seconds), &self.timeout_ms.origin),
            Key::PhaseTimeout => {
                let each = self.phases.value.iter().map(|(name, ms)| format!("{name}={}", seconds(*ms)));
                let all: Vec<String> = each.collect();
                ((!all.is_empty()).then(|| all.join(",")), &self.phases.origin)
            }
            Key::HangFloor => (Some(seconds(self.floor_ms.value)), &self.floor_ms.origin),
            _ => return None,
        })
    }
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { (ms / 1_000).to_string() } else { format!("{ms}ms") }
}

fn action(text: &str) -> Result<HangAction, ValueProblem> {
    let found = HangAction::ALL.into_iter().find(|action| action.name() == text.trim());
    found.ok_or(ValueProblem::NotOneOf("restart, warn, stop, off"))
}

/// `eval=600,checkpoint=5min`
fn phases(text: &str) -> Result<BTreeMap<String, u64>, ValueProblem> {
    let mut all = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, time) = part.rsplit_once('=').ok_or(ValueProblem::NotPhaseTime)?;
        let name = name.trim();
        if name.is_empty() {
            return Err(ValueProblem::NotPhaseTime);
        }
        all.insert(name.to_owned(), value::duration_at_least_1ms(time)?);
    }
    if all.is_empty() { Err(ValueProblem::NotPhaseTime) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_by_name() {
        for (text, expected) in [
            ("eval=600", Ok(vec![("eval", 600_000)])),
            ("eval=10min, my section=2.5", Ok(vec![("eval", 600_000), ("my section", 2_500)])),
            ("a=b=3", Ok(vec![("a=b", 3_000)])),
            ("eval=1,eval=2", Ok(vec![("eval", 2_000)])),
            ("eval", Err(ValueProblem::NotPhaseTime)),
            ("=3", Err(ValueProblem::NotPhaseTime)),
            ("", Err(ValueProblem::NotPhaseTime)),
            ("eval=soon", Err(ValueProblem::NotADuration)),
            ("eval=0", Err(ValueProblem::NotADuration)),
        ] {
            let expected = expected.map(|all| all.into_iter().map(|(n, ms)| (n.to_owned(), ms)).collect());
            assert_eq!(phases(text), expected, "{text}");
        }
    }
}
