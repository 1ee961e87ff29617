//! Slurm's lists of nodes.

use relight::domain::hostlist::{compress, expand, expand_within};

use crate::engine::{Target, behaviour, shape};

const LIMIT: usize = 1_000;

pub const TARGET: Target = Target {
    name: "hostlist",
    seeds: || {
        let lists = ["n[1-4,7],gpu[001-003]", "a", "r[0-3]c[00-15]n[1-2]-ib", "x,y z\tn[9-11]"];
        lists.iter().map(|list| list.as_bytes().to_vec()).collect()
    },
    run,
    longest: 8 << 10,
    // A thousand names of 255 bytes, written down twice, and how they are looked for.
    heap: |length| 16 * length + 6 * LIMIT * 400,
    words: &[b"[", b"]", b"-", b"[1-999999999999999999]", b"[01-10]", b"*", b"{"],
};

fn run(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let nodes = match expand_within(&text, LIMIT) {
        Ok(nodes) => nodes,
        Err(error) => return shape(error),
    };
    assert!(nodes.len() <= LIMIT && nodes.iter().all(|node| node.as_str().len() <= 255));
    let written = compress(&nodes);
    assert_eq!(expand(&written).as_ref(), Ok(&nodes), "{written}");
    behaviour((nodes.len(), written.len() / 4))
}
