//! The file that says who leads.

use relight::domain::ids::{NodeName, StoreId, Term};
use relight::store::hint::{HINT_VERSION, Hint};

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "hint",
    seeds: || {
        let hint = Hint {
            v: HINT_VERSION,
            store: StoreId::new("5e"),
            launch: "7.0.0".into(),
            term: Term(1),
            node: NodeName::new("n01"),
            addresses: vec!["10.0.0.1:29400".into(), "[fe80::1]:2".into()],
            proof: 11,
        };
        vec![hint.to_bytes()]
    },
    run,
    longest: 64 << 10,
    heap: |length| 128 * length + (64 << 10),
    words: &[br#""addresses""#, br#""term""#, br#""launch""#],
};

fn run(input: &[u8]) -> u64 {
    let Some(hint) = Hint::from_bytes(input) else { return 0 };
    assert_eq!(Hint::from_bytes(&hint.to_bytes()), Some(hint.clone()));
    behaviour((
        hint.addresses.len(),
        hint.term.0.checked_ilog2(),
        hint.launch.len(),
        hint.node.as_str().len(),
    ))
}
