use super::*;

/// `threading.py:320 wait`, the innermost first.
fn places(stack: &Stack) -> Vec<String> {
    let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
    stack.frames.iter().map(|f| format!("{}:{} {}", name(&f.file), f.line, f.function)).collect()
}

const OLD: &str = "Thread 0x00007fac352856c0 (most recent call first):
  File \"/usr/lib/python3.8/threading.py\", line 302 in wait
  File \"/w/load.py\", line 5 in fetch

Current thread 0x00007fac35c53b80 (most recent call first):
  File \"/w/train.py\", line 9 in step
  File \"/w/train.py\", line 30 in <module>
";

const NEW: &str = "Thread 0x00007f18aca716c0 [pt_data_0] (most recent call first):
  File \"/usr/lib/python3.14/threading.py\", line 359 in wait

Current thread 0x00007f18ad6a1b80 [python3] (most recent call first):
  Garbage-collecting
  File \"/w/train.py\", line 9 in step
  File \"/w/train.py\", line 30 in <module>
";

#[test]
fn the_main_thread_of_what_every_python_writes() {
    let table: &[(&str, &[&str])] = &[
        (OLD, &["train.py:9 step", "train.py:30 <module>"]),
        (NEW, &["train.py:9 step", "train.py:30 <module>"]),
        // Of one thread alone; without the GIL there is no other way.
        ("Stack (most recent call first):\n  File \"a.py\", line 1 in f\n", &["a.py:1 f"]),
        (
            "<Cannot show all threads while the GIL is disabled>\nStack (most recent call first):\n  File \"a.py\", line 1 in f\n",
            &["a.py:1 f"],
        ),
        // No thread is marked: the first one that was made stands last.
        (
            "Thread 0x1 (most recent call first):\n  File \"b.py\", line 2 in g\n\nThread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n",
            &["a.py:1 f"],
        ),
        // The main thread has left Python.
        (
            "Thread 0x1 (most recent call first):\n  File \"b.py\", line 2 in g\n\nCurrent thread 0x2 (most recent call first):\n  <no Python frame>\n",
            &["b.py:2 g"],
        ),
        // Names with quotes, and what is not known.
        (
            "Current thread 0x2 (most recent call first):\n  File \"\\xe4 \"q\", line 3 in x.py\", line 7 in f\\xe9\n  File ???, line ??? in ???\n  File \"???\", line ??? in g\n",
            &["\\xe4 \"q\", line 3 in x.py:7 f\\xe9", "???:0 g"],
        ),
        // More than it writes.
        (
            "Current thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n  ...\n",
            &["a.py:1 f"],
        ),
        (
            "Current thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n  <truncated rest of calls>\n",
            &["a.py:1 f"],
        ),
        // After words of a fatal error.
        (
            "Fatal Python error: Aborted\n\nCurrent thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n\nExtension modules: numpy.core (total: 1)\n",
            &["a.py:1 f"],
        ),
    ];
    for (text, wanted) in table {
        let stack = inside(text.as_bytes()).unwrap();
        assert_eq!(places(&stack), *wanted, "{text}");
        assert_eq!(stack.seen, Seen::Inside);
        assert!(stack.text.starts_with(text.lines().next().unwrap()), "{}", stack.text);
    }
    for none in
        ["", "\n", "ready\n", "Thread 0x1 (most recent call first):\n", "  File \"a.py\", line 1 in f\n"]
    {
        assert_eq!(inside(none.as_bytes()), None, "{none}");
    }
    assert_eq!(inside(&[0xff, 0, 0x1b, b'\n']), None);
}

#[test]
fn a_dump_that_is_being_written_is_not_whole() {
    for text in [OLD, NEW] {
        let current = text.find("Current").unwrap();
        let first = current + text[current..].find("\n  ").unwrap() + 1;
        let least = first + text[first..].find('\n').unwrap() + 1;
        for end in 0..=text.len() {
            let part = &text[..end];
            assert_eq!(is_whole(part.as_bytes()), end >= least && part.ends_with('\n'), "{part}");
        }
    }
    assert!(is_whole(b"Thread 0x1 (most recent call first):\n  File \"b.py\", line 2 in g\n\n...\n"));
}

#[test]
fn what_py_spy_prints() {
    let text = "Process 77: python3 train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 90 (idle): \"pin
memory\"
    wait (/usr/lib/python3.11/threading.py:320)
Thread 77 (active+gil): \"MainThread\"
    step (/w/train (old).py:9)
    __call__ (torch/_ops.py)
    <module> (/w/train.py:30)
Thread 91 (idle)
    g (b.py:1)
";
    let stack = outside(text.as_bytes(), 77).unwrap();
    assert_eq!(places(&stack), ["train (old).py:9 step", "_ops.py:0 __call__", "train.py:30 <module>"]);
    assert_eq!(stack.seen, Seen::Outside);
    // In a namespace of its own its number is another one.
    assert_eq!(outside(text.as_bytes(), 1).unwrap().frames, stack.frames);
    assert_eq!(outside(b"Error: Failed to find python version from target process\n", 77), None);
    assert_eq!(outside(b"", 77), None);
}

#[test]
fn what_the_kernel_says() {
    let text = "[<0>] folio_wait_bit_common+0x13d/0x350\n[<0>] nfs_wait_on_request [nfs]\n[<0>] entry_SYSCALL_64_after_hwframe+0x77/0x7f\nodd\n";
    let stack = kernel(text.as_bytes()).unwrap();
    let names: Vec<&str> = stack.frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(names, ["folio_wait_bit_common", "nfs_wait_on_request", "entry_SYSCALL_64_after_hwframe"]);
    assert_eq!(kernel(b""), None);
}

#[test]
fn everything_is_bounded_and_plain() {
    let frame = format!("  File \"/{}\u{202e}\x1b[31m.py\", line 99999999999 in f\n", "d".repeat(500));
    let text = format!("Current thread 0x1 (most recent call first):\n{}", frame.repeat(200));
    let stack = inside(text.as_bytes()).unwrap();
    let size: usize = stack.frames.iter().map(|f| f.file.len() + f.function.len()).sum();
    assert!(stack.frames.len() <= MAX_FRAMES && size <= MAX_BYTES && stack.text.len() <= MAX_BYTES);
    assert!(
        stack.frames.iter().all(|f| f.file.ends_with("[31m.py") && !f.file.contains(['\x1b', '\u{202e}']))
    );
    assert_eq!(stack.frames[0].line, 0);
    let many = format!(
        "Current thread 0x1 (most recent call first):\n{}",
        "  File \"a\", line 1 in f\n".repeat(200)
    );
    assert_eq!(inside(many.as_bytes()).unwrap().frames.len(), MAX_FRAMES);
}
