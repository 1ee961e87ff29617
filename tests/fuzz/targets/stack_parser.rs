//! Stacks as an interpreter, `py-spy` and the kernel write them.

use relight::domain::liveness::evidence::Stack;
use relight::domain::liveness::stack::{MAX_BYTES, MAX_FRAMES, inside, is_whole, kernel, outside};

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "stack_parser",
    seeds: || {
        vec![
            b"Thread 0x00007f (most recent call first):\n  File \"/a/b.py\", line 302 in wait\n\nCurrent thread 0x00007e [python3] (most recent call first):\n  Garbage-collecting\n  File \"t.py\", line 9 in step\n  ...\n".to_vec(),
            b"Stack (most recent call first):\n  File \"\\xe4 \"q\", line 3 in x.py\", line ??? in ???\n  <no Python frame>\n".to_vec(),
            b"Process 7: python3 t.py\nPython v3.11.2 (/usr/bin/python3.11)\n\nThread 7 (idle): \"MainThread\"\n    step (/w/t (1).py:9)\n    f (a.py)\n".to_vec(),
            b"[<0>] folio_wait_bit_common+0x13d/0x350\n[<0>] nfs_wait_on_request [nfs]\n".to_vec(),
        ]
    },
    run,
    longest: 64 << 10,
    heap: |length| 32 * length + (64 << 10),
    words: &[
        b"Current thread 0x1 (most recent call first):\n",
        b"Thread 0x2 (most recent call first):\n",
        b"Stack (most recent call first):\n",
        b"  File \"a.py\", line 1 in f\n",
        b"Thread 7 (active): \"MainThread\"\n",
        b"    f (a.py:1)\n",
        b"[<0>] f+0x1/0x2\n",
        b"\n...\n",
    ],
};

fn judged(stack: Option<Stack>) -> Option<(usize, u32, bool)> {
    let stack = stack?;
    let size: usize = stack.frames.iter().map(|frame| frame.file.len() + frame.function.len()).sum();
    assert!(!stack.frames.is_empty() && stack.frames.len() <= MAX_FRAMES && size <= MAX_BYTES, "{stack:?}");
    assert!(stack.text.len() <= MAX_BYTES, "{}", stack.text.len());
    assert!(stack.text.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", stack.text);
    let clean = |text: &str| !text.chars().any(char::is_control);
    assert!(stack.frames.iter().all(|frame| clean(&frame.file) && clean(&frame.function)), "{stack:?}");
    let lines = stack.frames.iter().filter(|frame| frame.line > 0).count();
    Some((stack.frames.len().min(8), u32::try_from(lines).unwrap_or(0).min(8), stack.frames[0].file.is_empty()))
}

fn run(input: &[u8]) -> u64 {
    // A dump that is whole has a frame, or says that it left some out.
    let whole = is_whole(input);
    behaviour((whole, judged(inside(input)), judged(outside(input, 7)), judged(kernel(input))))
}
