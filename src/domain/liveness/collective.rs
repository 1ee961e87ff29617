//! After how long a program ends by itself when its collectives do not advance, where its environment tells it.

use std::ffi::{OsStr, OsString};

use super::super::env;

/// In milliseconds; none where nothing is set. What a program gives to `init_process_group` stands in its page.
#[must_use]
pub fn of_environment(base: &[(OsString, OsString)]) -> Option<u64> {
    let value = |var: env::EnvVar| {
        let entry = base.iter().rev().find(|(name, _)| name == OsStr::new(var.name));
        entry.and_then(|(_, value)| value.to_str()).map(str::trim)
    };
    // NCCL's watchdog waits in the driver like everybody else; who watches it ends the process.
    let watched =
        value(env::TORCH_NCCL_ENABLE_MONITORING).is_none_or(|value| !matches!(value, "0" | "n" | "no"));
    let seconds = value(env::TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC).filter(|_| watched)?.parse::<u64>().ok()?;
    Some(seconds.saturating_mul(1_000)).filter(|ms| *ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_and_what_is_not() {
        let heartbeat = |value| ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", value);
        let monitoring = |value| ("TORCH_NCCL_ENABLE_MONITORING", value);
        type Table<'a> = &'a [(&'a [(&'a str, &'a str)], Option<u64>)];
        let table: Table<'_> = &[
            (&[], None),
            (&[heartbeat("120")], Some(120_000)),
            (&[heartbeat("120"), heartbeat(" 90 ")], Some(90_000)),
            (&[heartbeat("120"), monitoring("1")], Some(120_000)),
            (&[heartbeat("120"), monitoring("0")], None),
            (&[heartbeat("0")], None),
            (&[heartbeat("")], None),
            (&[heartbeat("two minutes")], None),
            (&[heartbeat("18446744073709551615")], Some(u64::MAX)),
        ];
        for (given, expected) in table {
            let given: Vec<(OsString, OsString)> =
                given.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(of_environment(&given), *expected, "{given:?}");
        }
    }
}
