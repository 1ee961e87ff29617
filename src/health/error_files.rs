//! Reading the error files of ranks: whatever lies there, nothing waits and nothing breaks.

use std::path::Path;

use crate::domain::error_file::{ErrorNote, MAX_FILE, Raw};
use crate::domain::last_words::{Kind, last_words};
use crate::domain::record::FirstFailure;
use crate::sys::files;

/// How far the clock of a file server may be behind ours, in milliseconds.
const SKEW_MS: u64 = 120_000;

/// What this file says; nothing if there is none, if it is no error file, or if it is of an earlier run.
pub(super) fn read(path: &Path, not_before_ms: u64) -> Option<ErrorNote> {
    let (bytes, changed_ms) = files::read_small(path, MAX_FILE).ok()?;
    if changed_ms.saturating_add(SKEW_MS) < not_before_ms {
        return None;
    }
    note(&bytes)
}

/// What these bytes of a stranger say.
#[must_use]
pub fn note(bytes: &[u8]) -> Option<ErrorNote> {
    let parsed = serde_json::from_slice::<Raw>(bytes);
    parsed.or_else(|_| serde_json::from_str::<Raw>(&mended(&String::from_utf8_lossy(bytes)))).ok()?.note()
}

/// What Python's `json` writes by default and no other reader takes: half a surrogate pair (a file name that is no UTF-8),
/// and numbers that are none.
fn mended(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut quoted) = (text, false);
    while let Some(first) = rest.chars().next() {
        let (taken, put) = match first {
            '"' => {
                quoted = !quoted;
                (1, None)
            }
            '\\' if quoted => match surrogate(rest) {
                Some(high) if (0xd800..0xdc00).contains(&high) => match rest.get(6..).and_then(surrogate) {
                    Some(low) if (0xdc00..0xe000).contains(&low) => (12, None),
                    _ => (6, Some("\\ufffd")),
                },
                Some(_) => (6, Some("\\ufffd")),
                None => (1 + rest.chars().nth(1).map_or(0, char::len_utf8), None),
            },
            _ if quoted => (first.len_utf8(), None),
            _ => match ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| rest.starts_with(word)) {
                Some(word) => (word.len(), Some("null")),
                None => (first.len_utf8(), None),
            },
        };
        out.push_str(put.unwrap_or(&rest[..taken]));
        rest = &rest[taken..];
    }
    out
}

/// The surrogate that a text begins with as an escape.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    (0xd800..0xe000).contains(&code).then_some(code)
}

/// A first failure in the form that torch's `@record` writes, for whoever started the launcher.
#[must_use]
pub fn text(first: &FirstFailure) -> String {
    let said = last_words(first.words.as_bytes());
    let message = if said.kind == Kind::Traceback { said.headline } else { first.sentence() };
    let at = first.recorded_s.unwrap_or(first.wall_ms / 1_000);
    let whole = serde_json::json!({"message": {
        "message": message,
        "extraInfo": {"py_callstack": first.words, "timestamp": at.to_string()},
        "errorCode": first.exit.torch_code(),
    }});
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::domain::last_words::MAX_TEXT;

    const STACK: &str = "Traceback (most recent call last):\\n  File \\\"/w/train.py\\\", line 9, in main\\n    f()\\nValueError: boom\\n";

    #[test]
    fn what_python_writes_by_default_is_read() {
        let said = |text: &str| note(text.as_bytes()).map(|note| note.headline);
        let odd = r#"{"message": {"message": "OSError: caf\udce9.txt \ud83d\ude00 \ud83d\"", "errorCode": NaN, "x": [Infinity, -Infinity]}}"#;
        assert_eq!(said(odd).as_deref(), Some("OSError: caf\u{fffd}.txt \u{1f600} \u{fffd}\""));
        assert_eq!(mended(r#"{"NaN": "NaN \\\"Infinity"}"#), r#"{"NaN": "NaN \\\"Infinity"}"#);
        for cut in [r#""\u"#, r#""\ud8"#, r#""\"#, r#""\ud83d\"#, "-Infinit", "\"é"] {
            let _ = mended(cut);
        }
    }

    #[test]
    fn both_forms_and_what_lies_between() {
        let whole = format!(
            r#"{{"message": {{"message": "ValueError: boom", "extraInfo": {{"py_callstack": "{STACK}", "timestamp": "1700000000"}}}}}}"#
        );
        let said = note(whole.as_bytes()).unwrap();
        assert_eq!((said.headline.as_str(), said.place.as_str()), ("ValueError: boom", "train.py:9"));
        assert!(said.text.starts_with("Traceback") && said.text.ends_with("boom"), "{}", said.text);
        assert_eq!(said.at_s, Some(1_700_000_000));
        let table = [
            (r#"{"message": "out of shards\nmore", "timestamp": 7}"#, "out of shards", Some(7)),
            (r#"{"message": "x", "timestamp": 7.9}"#, "x", Some(7)),
            (r#"{"message": "x", "timestamp": "7.9"}"#, "x", Some(7)),
            (r#"{"message": "x", "timestamp": -7}"#, "x", None),
            (r#"{"message": "x", "timestamp": 1e300}"#, "x", None),
            (r#"{"message": "x", "timestamp": 18446744073709551615}"#, "x", None),
            (r#"{"message": "x", "timestamp": {"a": []}}"#, "x", None),
            (r#"{"message": {"message": "x"}, "timestamp": 8}"#, "x", Some(8)),
            (r#"{"message": {"message": "x", "extraInfo": 3, "errorCode": 1}}"#, "x", None),
            (
                r#"{"message": {"message": "x", "extraInfo": {"py_callstack": 3, "timestamp": null}}}"#,
                "x",
                None,
            ),
            (r#"{"message": {"message": 5, "extraInfo": {"py_callstack": "at f\nat g"}}}"#, "at g", None),
            (r#"{"message": "a\u001b[31mb\u0000\u202ec"}"#, "abc", None),
        ];
        for (text, headline, at_s) in table {
            let said = note(text.as_bytes()).unwrap_or_default();
            assert_eq!((said.headline.as_str(), said.at_s), (headline, at_s), "{text}");
        }
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"message": 3}"#,
            r#"{"message": ""}"#,
            r#"{"message": {}}"#,
            r#"{"message": {"message": " \n"}}"#,
            r#"{"msg": "x"}"#,
            &whole[..whole.len() - 1],
            &"[".repeat(100_000),
        ] {
            assert_eq!(note(text.as_bytes()), None, "{text:.40}");
        }
    }

    #[test]
    fn texts_are_bounded() {
        let long = "€".repeat(300_000);
        let said = note(format!(r#"{{"message": "{long}"}}"#).as_bytes()).unwrap();
        assert!(said.headline.chars().count() <= 501 && said.text.len() <= MAX_TEXT, "{}", said.text.len());
        let many = "line\\n".repeat(100_000);
        let said = note(format!(r#"{{"message": "{many}"}}"#).as_bytes()).unwrap();
        assert!(said.text.len() <= MAX_TEXT && said.headline == "line");
    }

    const GOOD: &str = r#"{"message": "boom", "timestamp": 1700000000}"#;

    #[test]
    fn only_a_plain_small_whole_file_of_this_run_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, bytes: &[u8]| {
            fs::write(at(name), bytes).unwrap();
            at(name)
        };
        let good = write("good", GOOD.as_bytes());
        assert_eq!(read(&good, 0).unwrap().headline, "boom");
        let changed = files::read_small(&good, MAX_FILE).unwrap().1;
        assert!(read(&good, changed + SKEW_MS).is_some() && read(&good, changed + SKEW_MS + 1).is_none());
        std::os::unix::fs::symlink(&good, at("link")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mut long = format!("{GOOD}{}", " ".repeat(MAX_FILE - GOOD.len()));
        assert!(read(&write("longest", long.as_bytes()), 0).is_some());
        long.push(' ');
        write("long", long.as_bytes());
        write("half", &GOOD.as_bytes()[..30]);
        write("binary", &[0, 159, 146, 150, 255]);
        write("latin", b"{\"message\": \"caf\xe9\"}");
        write("empty", b"");
        let sparse = fs::File::create(at("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let others = [
            "link", "dangling", "folder", "fifo", "socket", "long", "half", "binary", "latin", "empty",
            "sparse", "none",
        ];
        for name in others {
            assert_eq!(read(&at(name), 0), None, "{name}");
        }
        assert_eq!(read(Path::new("/dev/zero"), 0), None);
        assert_eq!(read(Path::new(OsStr::new("")), 0), None);
    }

    #[test]
    fn what_is_left_replaces_a_plain_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("error.json");
        fs::write(&file, "something longer than what comes").unwrap();
        files::write_small(&file, b"{}").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(files::write_small(&link, b"x").is_err());
        assert!(files::write_small(Path::new("/dev/null"), b"x").is_err());
        assert!(files::write_small(dir.path(), b"x").is_err());
        assert!(files::write_small(&dir.path().join("no/such"), b"x").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
    }
}
