//! The file `coordinator`: who leads, and where. A hint that nobody trusts: whoever follows it asks for a proof.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::faults::Hands;
use super::posix;
use crate::domain::ids::{NodeName, StoreId, Term};

/// The name of the file.
pub const HINT: &str = "coordinator";
/// The version that this program writes.
pub const HINT_VERSION: u32 = 1;
/// A longer file is none, in bytes.
const LONGEST: usize = 64 << 10;

/// Its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// [`HINT_VERSION`] of the writer.
    pub v: u32,
    /// The id of the run directory that the coordinator writes to.
    pub store: StoreId,
    /// The launch that it leads.
    pub launch: String,
    /// Its term.
    pub term: Term,
    /// Its node.
    pub node: NodeName,
    /// Where it listens, `address:port`, best first.
    pub addresses: Vec<String>,
    /// Random: who knows it reads this very file.
    pub proof: u64,
}

impl Hint {
    /// As it is written.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Numbers and strings have no way to fail.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The hint in these bytes; none in anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|hint: &Self| hint.v == HINT_VERSION)
    }
}

/// The hint in a run directory; none where there is no directory, no file, or nothing readable.
pub fn read(hands: &mut Hands, dir: &Path) -> Option<Hint> {
    let bytes = posix::read_bytes(hands, &dir.join(HINT), LONGEST).ok()??;
    Hint::from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_hint_is_none() {
        let hint = Hint {
            v: HINT_VERSION,
            store: StoreId::new("5e"),
            launch: "7.0.0".into(),
            term: Term(0),
            node: NodeName::new("n01"),
            addresses: vec!["10.0.0.1:29400".into()],
            proof: 11,
        };
        assert_eq!(Hint::from_bytes(&hint.to_bytes()), Some(hint.clone()));
        let whole = hint.to_bytes();
        for cut in 0..whole.len() - 2 {
            assert_eq!(Hint::from_bytes(&whole[..cut]), None);
        }
        let newer = Hint { v: HINT_VERSION + 1, ..hint };
        assert_eq!(Hint::from_bytes(&newer.to_bytes()), None);
        assert_eq!(read(&mut Hands::default(), Path::new("/nowhere")), None);
    }
}
