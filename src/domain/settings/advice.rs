//! What to write in the place of a value that cannot hold.

use super::key::Key;
use super::resolve::Place;
use super::value::ValueProblem;
use crate::domain::suggest::closest;

/// A hint, where one would help.
pub(super) fn bad_hint(place: &Place, problem: &ValueProblem) -> Option<String> {
    let meant = |words: &[&'static str]| {
        closest(&place.typed, words.iter().copied()).map(|word| format!("did you mean '{word}'?"))
    };
    match problem {
        ValueProblem::NotNproc => meant(&["auto", "gpu", "cpu", "xpu"]),
        ValueProblem::NotNuma => meant(&["node", "socket", "exclusive", "core-complex"]),
        ValueProblem::NotBackend => meant(&["static", "c10d"]),
        ValueProblem::SeveralNodes => Some(
            "in a job of Slurm nothing more is needed; elsewhere say where the machines meet: --master-addr HOST and a \
             --node-rank for each, or --rdzv-backend c10d --rdzv-endpoint HOST:PORT"
                .to_owned(),
        ),
        ValueProblem::NoSecret => Some(
            "give each machine a copy of one secret: (umask 077; head -c 32 /dev/urandom | base64 > secret), then \
             --secret-file secret; on a network of your own alone: --insecure"
                .to_owned(),
        ),
        ValueProblem::SharedPort => Some("choose one, such as 29500".to_owned()),
        ValueProblem::NotGrant => meant(&["auto", "lease"]),
        ValueProblem::NotStoreHost => meant(&["agent", "rank0"]),
        ValueProblem::NotOneOf(_) if place.key == Key::SlurmEnv => meant(&["task", "hide", "keep"]),
        ValueProblem::NotOneOf(_) if place.key == Key::HangAction => meant(&["restart", "warn", "stop", "off"]),
        ValueProblem::NotOneOf(_) if place.key == Key::HeartbeatHooks => meant(&["on", "off"]),
        ValueProblem::NotOneOf(_) => meant(&["all", "own"]),
        ValueProblem::NoGpu => Some("auto takes GPUs where there are any and CPUs elsewhere".to_owned()),
        ValueProblem::NotANumber if place.key == Key::MaxRestarts => meant(&["unlimited"]),
        _ => None,
    }
}
