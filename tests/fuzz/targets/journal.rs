//! Records as they lie on disk, several of them, each behind a byte 30: read, replayed, told to people.

use std::path::PathBuf;

use relight::domain::ids::{RunId, Seq, StoreId};
use relight::domain::ledger::Ledger;
use relight::domain::record::{Body, Record};
use relight::inspect::{Clock, events, replay, status, why};
use relight::store::codec;
use relight::store::layout::RunJson;
use relight::store::look::RunView;

use super::coordinator_machine::{Bed, fails};
use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "journal",
    seeds: || {
        let whole = |times| {
            let mut bed = Bed::new();
            fails(times).into_iter().for_each(|step| bed.step(step));
            join(&bed.journal)
        };
        vec![whole(1), whole(2)]
    },
    run,
    longest: 48 << 10,
    heap: |length| 160 * length + (1 << 20),
    words: &[
        b"\x1e",
        br#""v": 1"#,
        br#""kind": "snapshot""#,
        br#""seq": 1,"#,
        br#""incident""#,
        br#""replace""#,
        br#""signal""#,
        b"18446744073709551615",
        b"4294967295",
    ],
};

/// Records as an input.
pub fn join(records: &[Record]) -> Vec<u8> {
    records.iter().map(|record| codec::encode(record).unwrap()).collect::<Vec<_>>().join(&30)
}

/// A run directory with these records.
pub fn view(records: Vec<Record>) -> RunView {
    let (store, run) = (StoreId::new("5e"), RunId::new("r"));
    RunView {
        dir: PathBuf::from("/runs/r"),
        run: RunJson { v: 1, store, run, created_ms: 1, command: vec!["relight".into()] },
        records,
        damage: None,
        events: vec![],
        events_left_out: 0,
        status: None,
        incident_dirs: vec![0],
        agents: vec![],
    }
}

fn run(input: &[u8]) -> u64 {
    let mut records: Vec<Record> = Vec::new();
    let mut behaved = Vec::new();
    for (seq, bytes) in (0..).zip(input.split(|byte| *byte == 30)) {
        match codec::decode(Seq(seq), bytes) {
            Ok(record) => {
                behaved.push(behaviour(record.kind as u8));
                if let Ok(again) = codec::encode(&record)
                    && !matches!(record.body, Body::Unknown)
                {
                    assert_eq!(codec::decode(Seq(seq), &again).as_ref(), Ok(&record));
                }
                records.push(record);
            }
            Err(error) => {
                behaved.push(shape(error));
                break;
            }
        }
    }
    let ledger = Ledger::replay(&records);
    behaved.push(behaviour(ledger.is_ok()));
    if let Ok(ledger) = &ledger {
        assert_eq!(Ledger::resume(&records).as_ref(), Ok(ledger));
    }
    let (view, clock) = (view(records), Clock::utc());
    for number in why::incidents(&view).into_iter().take(4) {
        behaved.push(behaviour(why::render(&view, Some(number), &clock).text.lines().count()));
    }
    behaved.push(behaviour(why::render(&view, None, &clock).code));
    behaved.push(behaviour(events::render(&view, false, &clock).text.lines().count()));
    behaved.push(behaviour(replay::render(&view).code));
    behaved.push(behaviour(
        status::render(&view, "r", status::Alive::Unknown, 5, false, &clock).text.lines().count(),
    ));
    behaviour(behaved)
}
