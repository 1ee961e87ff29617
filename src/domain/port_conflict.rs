//! Another process listens at the port that was chosen for the ranks to meet at. That is nobody's failure but the
//! launcher's, which chose it: the same nodes start again behind a fresh port, once, and no restart is charged for it.

use super::exit::ExitKind;
use super::ids::Rank;
use super::ledger::Ledger;
use super::record::{Cause, FirstFailure};

const EADDRINUSE: i32 = 98;

/// How the reason begins that people read.
pub const SIGN: &str = "port ";

/// What cannot be started because of such a port: as an agent says it that looks before its ranks start.
#[must_use]
pub fn taken(port: u16) -> String {
    format!("port {port} of rank 0: another process listens there")
}

/// Why this failure is excused; none where it is none of the launcher's, or where the world before ended so, too.
#[must_use]
pub fn excuse(ledger: &Ledger, first: &FirstFailure) -> Option<String> {
    let world = ledger.world()?;
    let port = world.master.port;
    let again = match &world.cause {
        Cause::Incident(broke) => broke.first_failure.as_ref().is_some_and(|before| in_use(before).is_some()),
        Cause::Start => false,
    };
    let conflict = in_use(first).is_some_and(|said| has_number(&said, port));
    (conflict && !again).then(|| format!("{SIGN}{port} of {} was taken by another process", first.node))
}

/// What was said of an address that is in use, by rank 0 or of it.
fn in_use(first: &FirstFailure) -> Option<String> {
    if let ExitKind::NeverStarted { errno: EADDRINUSE, what } = &first.exit {
        return Some(what.clone());
    }
    let text = format!("{}\n{}", first.summary, first.words);
    let lower = text.to_ascii_lowercase();
    let says = lower.contains("address already in use") || lower.contains("eaddrinuse");
    (says && first.rank == Rank(0)).then_some(text)
}

/// The number stands there by itself.
fn has_number(text: &str, number: u16) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|word| word.parse() == Ok(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(rank: u32, summary: &str, words: &str) -> FirstFailure {
        FirstFailure {
            rank: Rank(rank),
            local_rank: 0,
            node: super::super::ids::NodeName::new("n1"),
            pid: 7,
            exit: ExitKind::Code(1),
            wall_ms: 0,
            summary: summary.into(),
            words: words.into(),
            error_file: String::new(),
            recorded_s: None,
        }
    }

    #[test]
    fn what_rank_0_says_of_its_port() {
        let torch = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network \
                     address. port: 15001, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use";
        let toy = "OSError: [Errno 98] rank 0 cannot listen on 10.0.0.1:15001: Address already in use";
        for (first, port, want) in [
            (failure(0, torch, ""), 15_001, true),
            (failure(0, "", toy), 15_001, true),
            (failure(0, toy, ""), 15_002, false),
            (failure(0, toy, ""), 1_500, false),
            (failure(1, toy, ""), 15_001, false),
            (failure(0, "OSError: [Errno 98] 0.0.0.0:6006: Address already in use", ""), 15_001, false),
            (failure(0, "RuntimeError: port 15001", ""), 15_001, false),
        ] {
            let said = in_use(&first).is_some_and(|said| has_number(&said, port));
            assert_eq!(said, want, "{first:?}");
        }
        let never = ExitKind::NeverStarted { errno: EADDRINUSE, what: taken(15_001) };
        let first = FirstFailure { exit: never, ..failure(2, "", "") };
        assert!(in_use(&first).is_some_and(|said| has_number(&said, 15_001)), "{first:?}");
    }
}
