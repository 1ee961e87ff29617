//! Messages between the processes of one node: frames of workers, packets of the guardian, an agent's configuration. The
//! first byte says which.

use relight::domain::guardian::{ToAgent, ToGuardian};
use relight::domain::ids::Op;
use relight::domain::time::BootTime;
use relight::health::protocol as health;
use relight::ipc::{frame, guardian};
use relight::node::Boot;
use relight::store::protocol as store;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "ipc",
    seeds,
    run,
    longest: 64 << 10,
    // What a length may say is made in advance up to a MiB; a frame's own bytes up to 8 MiB.
    heap: |length| 64 * length + (12 << 20),
    words: &[],
};

fn seeds() -> Vec<Vec<u8>> {
    let framed = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let space = health::Request::Space { op: Op(1), paths: vec!["/".into(), "/tmp".into()] };
    let files =
        health::Request::ErrorFiles { op: Op(2), paths: vec!["/a/error.json".into()], not_before_ms: 7 };
    let rows = vec![health::SpaceRow { path: "/".into(), free_bytes: Some(1 << 40) }];
    vec![
        framed(0, frame::encode(&space).unwrap()),
        framed(0, frame::encode(&files).unwrap()),
        framed(1, frame::encode(&health::Response::Space { op: Op(1), rows }).unwrap()),
        framed(2, frame::encode(&store::Request::Hint { op: Op(3), dir: "/runs/r".into() }).unwrap()),
        framed(4, guardian::encode(&ToAgent::RanksKilled { grant: BootTime(1 << 40) }).unwrap()),
        framed(5, guardian::encode(&ToGuardian::Gone { code: 3 }).unwrap()),
        vec![3; 64],
        vec![6; 64],
    ]
}

fn run(input: &[u8]) -> u64 {
    let Some((kind, bytes)) = input.split_first() else { return 0 };
    match kind % 7 {
        0 => framed::<health::Request>(bytes),
        1 => framed::<health::Response>(bytes),
        2 => framed::<store::Request>(bytes),
        3 => framed::<store::Response>(bytes),
        4 => guardian::decode::<ToAgent>(bytes).map_or_else(shape, shape),
        5 => guardian::decode::<ToGuardian>(bytes).map_or_else(shape, shape),
        _ => behaviour(Boot::decode(bytes).is_ok()),
    }
}

/// All frames up to the first that is none.
fn framed<T: Serialize + DeserializeOwned + std::fmt::Debug>(mut bytes: &[u8]) -> u64 {
    let mut shapes = Vec::new();
    loop {
        match frame::read::<T>(&mut bytes) {
            Ok(message) => {
                shapes.push(shape(&message));
                frame::encode(&message).expect("what was read can be written");
            }
            Err(error) => return behaviour((shapes, shape(error))),
        }
    }
}
