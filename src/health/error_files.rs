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
    serde_json::from_slice::<Raw>(bytes).ok()?.note()
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
