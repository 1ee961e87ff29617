//! Level-triggered waits.

use std::time::{Duration, Instant};

/// Looks again and again until `probe` says `Ok`; panics after `timeout` with the state that it saw last.
pub fn wait_for<T>(what: &str, timeout: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + timeout;
    loop {
        // A probe after the deadline still counts: a loaded machine may have kept us from looking.
        let late = Instant::now() >= until;
        match probe() {
            Ok(value) => return value,
            Err(state) if late => panic!("waited {timeout:?} for {what}; last seen: {state}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Now on CLOCK_MONOTONIC in ns: the clock of the trainer's commit log.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("the clock exists");
    Duration::from(now).as_nanos() as u64
}
