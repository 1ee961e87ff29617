//! How programs in Rust, Go and Java say that they end.

use super::{Found, Kind, LINES, MESSAGE};

/// The latest of them, if there is one.
pub(super) fn other<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    [rust(lines), go(lines), java(lines)].into_iter().flatten().max_by_key(|found| found.start)
}

/// `thread 'main' panicked at src/a.rs:4:9:` and the message behind it, or before 2023 in the same line.
fn rust<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let (start, rest) = latest(lines, |line| {
        let (_, rest) = line.split_once("thread '")?;
        rest.split_once("panicked at ").map(|(_, rest)| rest)
    })?;
    let old = rest.strip_prefix('\'').and_then(|rest| rest.rsplit_once("', "));
    let (message, at) = match old {
        Some((message, at)) => (message, at),
        None => (lines.get(start + 1).copied().unwrap_or_default().trim(), rest),
    };
    let end = (start + 1..lines.len())
        .take(LINES)
        .take_while(|at| !lines[*at].is_empty())
        .last()
        .map_or(start + 1, |at| at + 1);
    let mut at = at.trim_end_matches(':').split(':');
    let file = base(at.next().unwrap_or_default());
    let place = at.next().map(|line| format!("{file}:{line}")).unwrap_or_default();
    let headline = format!("panic: {message}");
    Some(Found {
        kind: Kind::Panic,
        start,
        end,
        headline,
        text: lines[start..end].to_vec(),
        place,
        frame: file.to_owned(),
    })
}

/// `panic: …` or `fatal error: …`, then `goroutine 1 [running]:` with pairs of a function and its place.
fn go<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let is_head = |line: &&'a str| line.starts_with("panic: ") || line.starts_with("fatal error: ");
    let (start, headline) = latest(lines, |line| Some(line).filter(is_head))?;
    let stack = (start + 1..lines.len())
        .take(MESSAGE)
        .find(|at| lines[*at].starts_with("goroutine ") && lines[*at].ends_with("]:"))?;
    let end = (stack..lines.len()).take(LINES).take_while(|at| !lines[*at].is_empty()).last()? + 1;
    let pairs = (stack + 1..end).filter_map(|at| Some((lines[at], lines.get(at + 1)?.trim())));
    let own = pairs
        .filter(|(function, place)| !function.starts_with(' ') && place.contains(".go:"))
        .find(|(function, _)| !function.starts_with("runtime.") && !function.starts_with("panic("));
    let (place, frame) = own.map_or_else(Default::default, |(function, place)| {
        let place = base(place.split(' ').next().unwrap_or_default());
        let file = place.split(':').next().unwrap_or_default();
        let name = function.split('(').next().unwrap_or_default();
        (place.to_owned(), format!("{file}:{name}"))
    });
    Some(Found {
        kind: Kind::Panic,
        start,
        end,
        headline: headline.trim().to_owned(),
        text: lines[start..end].to_vec(),
        place,
        frame,
    })
}

/// `Exception in thread "main" a.b.C: …`, then `at a.b.C.f(C.java:4)` and what it was caused by.
fn java<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let (start, mut headline) = latest(lines, |line| {
        let (_, rest) = line.split_once("Exception in thread \"")?;
        rest.split_once("\" ").map(|(_, rest)| rest)
    })?;
    let is_frame = |line: &str| line.trim_start().starts_with("at ") && line.ends_with(')');
    let goes_on = |line: &str| {
        is_frame(line) || line.starts_with("Caused by: ") || line.trim_start().starts_with("... ")
    };
    let end = (start + 1..lines.len())
        .take(4 * LINES)
        .take_while(|at| goes_on(lines[*at]))
        .last()
        .map_or(start + 1, |at| at + 1);
    if end == start + 1 {
        return None;
    }
    let mut from = start + 1;
    for (at, line) in lines.iter().enumerate().take(end).skip(start + 1) {
        if let Some(cause) = line.strip_prefix("Caused by: ") {
            (headline, from) = (cause, at + 1);
        }
    }
    let calls = lines[from..end].iter().filter_map(|line| line.trim_start().strip_prefix("at "));
    let foreign = ["java.", "javax.", "jdk.", "sun.", "scala."];
    let mut calls = calls.filter(|call| !foreign.iter().any(|start| call.starts_with(start)));
    let (place, frame) = calls.next().map_or_else(Default::default, |call| {
        let (name, place) = call.split_once('(').unwrap_or((call, ""));
        let place = place.trim_end_matches(')');
        let file = place.split(':').next().unwrap_or_default();
        (place.to_owned(), format!("{file}:{}", name.rsplit('.').next().unwrap_or(name)))
    });
    Some(Found {
        kind: Kind::Panic,
        start,
        end,
        headline: headline.trim().to_owned(),
        text: lines[start..end].to_vec(),
        place,
        frame,
    })
}

fn latest<'a, T>(lines: &[&'a str], read: impl Fn(&'a str) -> Option<T>) -> Option<(usize, T)> {
    lines.iter().enumerate().rev().find_map(|(at, line)| Some((at, read(line)?)))
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, last_words};

    #[test]
    fn each_language_has_its_words() {
        let table = [
            (
                "step 3\nthread 'main' panicked at src/loader.rs:41:9:\nindex out of bounds: the len is 3\nnote: run with `RUST_BACKTRACE=1`\n",
                "panic: index out of bounds: the len is 3",
                "loader.rs:41",
                "loader.rs",
            ),
            (
                "thread '<unnamed>' (712) panicked at src/loader.rs:41:9:\nno\n",
                "panic: no",
                "loader.rs:41",
                "loader.rs",
            ),
            (
                "thread 'main' panicked at 'no, it's \\'so\\'', src/a/b.rs:7:1\n",
                "panic: no, it's \\'so\\'",
                "b.rs:7",
                "b.rs",
            ),
            (
                "panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\npanic({0x1})\n\t/usr/local/go/src/runtime/panic.go:7\nmain.load(0x5)\n\t/w/load.go:12 +0x1d\nmain.main()\n\t/w/main.go:3\nexit status 2\n",
                "panic: runtime error: index out of range [5]",
                "load.go:12",
                "load.go:main.load",
            ),
            (
                "Exception in thread \"main\" java.lang.RuntimeException: outer\n\tat java.base/x.Y.z(Y.java:1)\n\tat com.me.Train.run(Train.java:9)\nCaused by: java.io.IOException: no room\n\tat java.io.File.w(File.java:2)\n\tat com.me.Load.read(Load.java:77)\n\t... 1 more\n",
                "java.io.IOException: no room",
                "Load.java:77",
                "Load.java:read",
            ),
        ];
        for (text, headline, place, frame) in table {
            let words = last_words(text.as_bytes());
            assert_eq!(words.kind, Kind::Panic, "{text}");
            assert_eq!((&*words.headline, &*words.place, &*words.frame), (headline, place, frame), "{text}");
        }
    }

    #[test]
    fn others_are_not_taken_for_them() {
        for text in [
            "panic: at the disco\nnothing more\n",
            "Exception in thread \"x\" said somebody\nand went on\n",
            "a thread 'x' of talk\n",
        ] {
            assert_eq!(last_words(text.as_bytes()).kind, Kind::Lines, "{text}");
        }
    }

    #[test]
    fn the_latest_counts() {
        let panic = "thread 'main' panicked at src/a.rs:1:1:\nno\n\n";
        let python = "Traceback (most recent call last):\n  File \"/w/t.py\", line 1, in f\npyo3_runtime.PanicException: no\n";
        assert_eq!(last_words(format!("{panic}{python}").as_bytes()).kind, Kind::Traceback);
        assert_eq!(last_words(format!("{python}\n{panic}").as_bytes()).kind, Kind::Panic);
    }
}
