use proptest::prelude::*;

use super::*;

/// What a writer does, as the page describes it.
fn write(sample: &Sample, time: u64) -> Vec<u8> {
    let mut page = blank(Attempt(3)).to_vec();
    let mut put = |at: usize, value: u64| page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let flags = u64::from(sample.step.is_some()) | if sample.feeder == Feeder::Client { 2 } else { 0 };
    put(OWNER, u64::from(sample.pid));
    put(BEAT, sample.step.unwrap_or(0) << 24 | (sample.phase as u64) << 16 | flags);
    put(TIME, time);
    put(EXTEND, (time ^ sample.step.unwrap_or(0)) << 32 | sample.extend_ms);
    put(COLLECTIVE, sample.collective_timeout_ms.unwrap_or(0));
    put(STACKS, sample.stack_signal.map_or(0, u64::from));
    for (at, section) in sample.sections.iter().enumerate() {
        let slot = &mut page[SECTIONS + at * SECTION_BYTES..][..SECTION_BYTES];
        slot[..8].copy_from_slice(&section.entry.to_le_bytes());
        slot[8..16].copy_from_slice(&section.timeout_ms.unwrap_or(0).to_le_bytes());
        slot[16..16 + section.name.len()].copy_from_slice(section.name.as_bytes());
        seal(slot, SECTION_CHECK);
    }
    if let Some(request) = &sample.request {
        let (kind, reason) = match request {
            Request::Evict { reason } => (1, reason),
            Request::Stop { reason } => (2, reason),
        };
        let area = &mut page[REQUEST..][..REQUEST_BYTES];
        area[0] = kind;
        area[8..8 + reason.len()].copy_from_slice(reason.as_bytes());
        seal(area, REQUEST_CHECK);
    }
    page
}

fn seal(area: &mut [u8], check: usize) {
    let sum = u64::from(crc32(&area[..check]));
    area[check..check + 8].copy_from_slice(&sum.to_le_bytes());
}

fn phases() -> impl Strategy<Value = Phase> {
    (0_u64..8).prop_map(phase)
}

fn samples() -> impl Strategy<Value = Sample> {
    let section = ("[ -~]{0,32}", proptest::option::of(1_u64..), 1_u64..)
        .prop_map(|(name, timeout_ms, entry)| Section { name, timeout_ms, entry });
    let request = proptest::option::of((any::<bool>(), "[ -~]{0,240}").prop_map(|(evict, reason)| {
        if evict { Request::Evict { reason } } else { Request::Stop { reason } }
    }));
    let first = (1_u32..1 << 31, any::<bool>(), proptest::option::of(0_u64..1 << 40), phases());
    let second = (
        proptest::collection::vec(section, 0..=8),
        0_u64..1 << 32,
        proptest::option::of(1_u64..),
        proptest::option::of(34_u8..=64),
        request,
    );
    (first, second).prop_map(
        |((pid, client, step, phase), (sections, extend_ms, collective, signal, request))| Sample {
            pid,
            feeder: if client { Feeder::Client } else { Feeder::Hook },
            step,
            phase,
            beat: 0,
            sections,
            extend_ms,
            collective_timeout_ms: collective,
            stack_signal: signal,
            request,
        },
    )
}

proptest! {
    /// What is written is read.
    #[test]
    fn a_page_says_what_its_writer_wrote(sample in samples(), time in any::<u64>()) {
        let mut found = read(&write(&sample, time)).unwrap();
        found.beat = 0;
        prop_assert_eq!(found, sample);
    }

    /// Any bytes are read in some way, and texts are fit for a terminal.
    #[test]
    fn any_bytes_are_read(sample in samples(), noise in proptest::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..200)) {
        let mut page = write(&sample, 7);
        for (at, byte) in noise {
            page[at] = byte;
        }
        if let Some(found) = read(&page) {
            prop_assert!(found.sections.len() <= DEPTH);
            prop_assert!(found.sections.iter().all(|s| s.name.len() <= 32 && !s.name.contains(char::is_control)));
        }
        prop_assert_eq!(read(&page[..PAGE_BYTES - 1]), None);
    }

    /// Words of two versions in any mixture: a section is one of both, or left out.
    #[test]
    fn a_torn_section_is_left_out(a in samples(), b in samples(), mix in any::<u8>()) {
        let pages = [write(&a, 1), write(&b, 1)];
        let mut page = pages[0].clone();
        for at in (SECTIONS..SECTIONS + SECTION_BYTES).step_by(8) {
            let from = usize::from(mix >> ((at - SECTIONS) / 8) & 1);
            page[at..at + 8].copy_from_slice(&pages[from][at..at + 8]);
        }
        let first = read(&page).unwrap().sections.first().cloned();
        let whole = [a.sections.first(), b.sections.first(), a.sections.get(1)];
        prop_assert!(first.is_none() || whole.contains(&first.as_ref()), "{first:?}");
    }

    /// A beat is a change, whichever of its words it changes.
    #[test]
    fn every_beat_is_seen(sample in samples(), time in any::<u64>(), step in 0_u64..1 << 40) {
        let before = read(&write(&sample, time)).unwrap();
        let later = read(&write(&sample, time.wrapping_add(1_000))).unwrap();
        prop_assert_ne!(before.beat, later.beat);
        let next = Sample { step: Some(step), ..sample.clone() };
        if next != sample {
            prop_assert_ne!(before.beat, read(&write(&next, time)).unwrap().beat);
        }
    }
}

#[test]
fn what_is_no_claimed_page_is_none() {
    assert_eq!(read(&blank(Attempt(0))), None, "nobody has claimed it");
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[0; PAGE_BYTES]), None);
    assert_eq!(read(&[0xff; PAGE_BYTES]), None);
    let sample = Sample {
        pid: 7,
        feeder: Feeder::Hook,
        step: None,
        phase: Phase::Init,
        beat: 0,
        sections: vec![],
        extend_ms: 0,
        collective_timeout_ms: None,
        stack_signal: None,
        request: None,
    };
    let page = write(&sample, 5);
    assert!(read(&page).is_some());
    for (at, value) in [(OWNER, 0), (OWNER, 1 << 31), (OWNER, 1 << 32 | 7), (0, 0)] {
        let mut other = page.clone();
        other[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        assert_eq!(read(&other), None, "{at} {value}");
    }
}

#[test]
fn an_extension_ends_with_the_next_beat() {
    let mut page = blank(Attempt(0));
    page[OWNER] = 1;
    page[TIME..TIME + 8].copy_from_slice(&0x1_0000_0005_u64.to_le_bytes());
    page[EXTEND..EXTEND + 8].copy_from_slice(&(5 << 32 | 90_000_u64).to_le_bytes());
    assert_eq!(read(&page).unwrap().extend_ms, 90_000);
    for at in [TIME, BEAT + 3] {
        let mut later = page;
        later[at] += 1;
        assert_eq!(read(&later).unwrap().extend_ms, 0);
    }
    // Another phase of the same step is none.
    page[BEAT + 2] = 4;
    assert_eq!(read(&page).unwrap().extend_ms, 90_000);
}

#[test]
fn only_a_real_time_signal_is_believed() {
    let mut page = blank(Attempt(0));
    page[OWNER] = 1;
    for (signal, expected) in [(9, None), (33, None), (44, Some(44)), (64, Some(64)), (65, None), (255, None)]
    {
        page[STACKS] = signal;
        assert_eq!(read(&page).unwrap().stack_signal, expected);
    }
}

#[test]
fn the_check_is_zlibs() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32(b""), 0);
}
