//! What a rank leaves as its error.

use relight::domain::error_file::MAX_FILE;
use relight::domain::last_words::MAX_TEXT;
use relight::health::error_files::note;

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "error_file",
    seeds: || {
        vec![
            br#"{"message": {"message": "E: x", "extraInfo": {"py_callstack": "at f", "timestamp": "1"}}}"#
                .to_vec(),
        ]
    },
    run,
    longest: MAX_FILE,
    // Arrays of nothing are what takes the most memory for its bytes.
    heap: |length| 128 * length + (256 << 10),
    words: &[br#""message""#, br#""extraInfo""#, br#""py_callstack""#, br#""timestamp""#, br#""errorCode""#],
};

fn run(input: &[u8]) -> u64 {
    let Some(note) = note(input) else { return 0 };
    let clean = |text: &str| text.chars().all(|c| !c.is_control());
    assert!(!note.headline.is_empty() && clean(&note.headline) && clean(&note.place), "{note:?}");
    assert!(note.headline.chars().count() <= 501, "{note:?}");
    assert!(note.text.len() <= MAX_TEXT && note.text.lines().all(clean), "{note:?}");
    behaviour((
        note.place.is_empty(),
        note.at_s.and_then(u64::checked_ilog2),
        note.text.len().checked_ilog2(),
        note.headline.len() / 16,
    ))
}
