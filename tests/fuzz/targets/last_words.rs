//! The end of a rank's output.

use relight::domain::last_words::{MAX_TEXT, last_words};

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "last_words",
    seeds: || {
        vec![
            b"step 1\nTraceback (most recent call last):\n  File \"t.py\", line 2, in main\n    f()\nValueError: boom\n".to_vec(),
            b"terminate called after throwing an instance of 'E'\n  what():  no\nFatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File \"t.py\", line 3 in f\n".to_vec(),
            b"  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 3, in <module>\n  | ExceptionGroup: eg (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: 1\n    +------------------------------------\n".to_vec(),
        ]
    },
    run,
    longest: 64 << 10,
    heap: |length| 64 * length + (64 << 10),
    words: &[
        b"[rank0]: ",
        b"Original ",
        b"Exception ignored in: x\n",
        b"Process P-1:\n",
        b"Exception in thread T:\n",
    ],
};

fn run(input: &[u8]) -> u64 {
    let words = last_words(input);
    assert!(words.text.len() <= MAX_TEXT, "{}", words.text.len());
    assert!(words.text.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", words.text);
    assert!(!words.headline.contains('\n') && !words.place.contains('\n'), "{words:?}");
    behaviour((
        words.kind as u8,
        words.place.is_empty(),
        words.lines_after.min(3),
        words.text.lines().count(),
    ))
}
