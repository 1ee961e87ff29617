//! What is said of a world that may have fewer nodes than a full one.

use super::{count, join};
use crate::domain::note::Note;
use crate::domain::time::human;

/// How many nodes a world has that may have fewer.
pub(super) fn elastic(note: &Note) -> Option<String> {
    Some(match note {
        Note::LastCall { have, max, patience, missing } if missing.is_empty() => {
            format!("{have} of up to {max} nodes are there: waiting {} for more", human(*patience))
        }
        Note::LastCall { have, max, patience, missing } => {
            let other = if missing.len() == 1 { "another node" } else { "other nodes" };
            format!(
                "waiting {} for {} or {other}, then going on with {have} of {max} nodes",
                human(*patience),
                join(missing)
            )
        }
        Note::Resized { nodes, max, ranks, was: None, missing, .. } => {
            let missing = match missing.len() {
                0 => String::new(),
                1 => format!(" {} has not come;", join(missing)),
                _ => format!(" {} have not come;", join(missing)),
            };
            format!("{nodes} of {max} nodes:{missing} the world starts with {}", count(*ranks, "rank"))
        }
        Note::Resized { nodes, max, ranks, was: Some(was), missing, .. } if nodes < was => {
            let ranks = count(*ranks, "rank");
            format!("{nodes} of {max} nodes: {} missing; the world shrinks to {ranks}", join(missing))
        }
        Note::Resized { nodes, max, ranks, came, .. } => {
            let join_in = if came.len() == 1 { "joins" } else { "join" };
            format!(
                "{nodes} of {max} nodes: {} {join_in}; the world grows to {}",
                join(came),
                count(*ranks, "rank")
            )
        }
        Note::CameLate { node } => {
            format!("{node} came late: it waits as a spare and is taken in at the next restart")
        }
        _ => return None,
    })
}
