//! A file system that can stand still.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own that can be frozen: every write to it then waits in the kernel, beyond every signal.
pub struct Freezer {
    folder: tempfile::TempDir,
}

impl Freezer {
    /// `None`, and a line that says why, where none can be mounted.
    pub fn new() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("relight-freezer-").tempdir().unwrap();
        let (image, place) = (folder.path().join("image"), folder.path().join("fs"));
        fs::create_dir(&place).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let freezer = Self { folder };
        for line in [
            vec!["mkfs.ext4", "-q", "-F", image.to_str().unwrap()],
            vec!["mount", "-o", "loop", image.to_str().unwrap(), place.to_str().unwrap()],
        ] {
            match Command::new(line[0]).args(&line[1..]).output() {
                Ok(output) if output.status.success() => {}
                other => {
                    eprintln!("skipped: no file system can be mounted here: {line:?}: {other:?}");
                    return None;
                }
            }
        }
        Some(freezer)
    }

    /// Where it is mounted.
    pub fn place(&self) -> PathBuf {
        self.folder.path().join("fs")
    }

    /// Freezes it, or lets it go on.
    pub fn freeze(&self, yes: bool) {
        let option = if yes { "-f" } else { "-u" };
        let output = Command::new("fsfreeze").arg(option).arg(self.place()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let place = self.place();
        // Thawed already in a test that went well.
        let _ = Command::new("fsfreeze").arg("-u").arg(&place).output();
        let _ = Command::new("umount").arg("-l").arg(&place).output();
    }
}
