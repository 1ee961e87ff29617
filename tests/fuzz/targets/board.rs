//! What a process below a rank writes into its heartbeat page.

use relight::domain::board::{PAGE_BYTES, Request, blank, read};
use relight::domain::ids::Attempt;

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "board",
    seeds,
    run,
    longest: PAGE_BYTES + 64,
    heap: |_| 16 << 10,
    words: &[b"rlboard1", &[1, 0, 0, 0, 0, 0, 0, 0], &[0xff; 8]],
};

fn seeds() -> Vec<Vec<u8>> {
    let mut page = blank(Attempt(2)).to_vec();
    let unclaimed = page.clone();
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &4711_u64.to_le_bytes());
    put(24, &(17_u64 << 24 | 4 << 16 | 3).to_le_bytes());
    put(32, &0x0123_4567_89ab_u64.to_le_bytes());
    put(40, &((0x4567_89ab_u64 ^ 17) << 32 | 60_000).to_le_bytes());
    put(48, &600_000_u64.to_le_bytes());
    put(56, &[44]);
    // A section `load`, 90 s, and a request `ECC`, with their checks.
    put(128, &3_u64.to_le_bytes());
    put(136, &90_000_u64.to_le_bytes());
    put(144, b"load");
    put(176, &u64::to_le_bytes(SECTION));
    put(640, &1_u64.to_le_bytes());
    put(648, b"ECC");
    put(888, &u64::to_le_bytes(REQUEST));
    let sample = read(&page).unwrap();
    assert!(sample.sections.len() == 1 && sample.request.is_some() && sample.extend_ms == 60_000, "{sample:?}");
    vec![page.clone(), unclaimed, page[..900].to_vec()]
}

/// CRC-32 of that section, and of that request.
const SECTION: u64 = 0x69a3_93de;
const REQUEST: u64 = 0x49b7_34bb;

fn run(input: &[u8]) -> u64 {
    let Some(sample) = read(input) else { return 0 };
    let clean = |text: &str, most: usize| text.len() <= most && !text.contains(char::is_control);
    assert!(input.len() >= PAGE_BYTES && sample.pid > 0 && i32::try_from(sample.pid).is_ok(), "{sample:?}");
    assert!(sample.step.is_none_or(|step| step < 1 << 40), "{sample:?}");
    assert!(sample.sections.len() <= 8, "{sample:?}");
    assert!(sample.sections.iter().all(|section| section.entry != 0 && clean(&section.name, 32)), "{sample:?}");
    assert!(sample.stack_signal.is_none_or(|no| (34..=64).contains(&no)), "{sample:?}");
    if let Some(Request::Evict { reason } | Request::Stop { reason }) = &sample.request {
        assert!(clean(reason, 240), "{sample:?}");
    }
    behaviour((
        sample.feeder == relight::domain::board::Feeder::Hook,
        sample.phase,
        sample.step.is_some(),
        sample.sections.len(),
        sample.extend_ms.checked_ilog2(),
        sample.stack_signal.is_some(),
        sample.request.is_some(),
    ))
}
