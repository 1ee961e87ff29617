//! The binary that agents and workers are started from. Opened once, so that an upgrade under a running job
//! changes nothing; copied into sealed memory where it lies on a network file system, so that no page of code
//! ever waits for a file server.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::statfs::fstatfs;

use super::memfd;

/// `f_type` of file systems whose server may not answer, and the name for people.
const NETWORK: [(u32, &str); 21] = [
    (0x6969, "nfs"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x1983_0330, "beegfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x00c3_6400, "ceph"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "afs"),
    (0x5346_4f41, "openafs"),
    (0x7375_7245, "coda"),
    (0x2003_0528, "orangefs"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x0bd0_0bd1, "lustre"),
    (0xaad7_aaea, "panfs"),
    (0x0187, "autofs"),
    (0x564c, "ncp"),
];

/// The network file system that a file lies on, if any: `nfs`, `lustre`, `fuse`, …
pub fn network_file_system(fd: impl AsFd) -> io::Result<Option<&'static str>> {
    let kind = fstatfs(fd)?.filesystem_type().0;
    // The kernel's magics have 32 bits; libc's type is wider and sign-extends some.
    let kind = u32::try_from(kind & 0xffff_ffff).unwrap_or(0);
    Ok(name_of(kind))
}

fn name_of(kind: u32) -> Option<&'static str> {
    NETWORK.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
}

/// Why the binary runs from disk although it lies on a network file system, or cannot be found at all.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The running binary cannot be opened.
    #[error("the running binary cannot be opened ({})", path.display())]
    Open {
        /// What was opened.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// No executable memory file; `vm.memfd_noexec` may forbid it.
    #[error(
        "this node refuses executable memory files: running from {file_system}, whose stalls can now stall the agent"
    )]
    Memory {
        /// What the binary lies on.
        file_system: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The copy failed.
    #[error(
        "the binary cannot be copied into memory: running from {file_system}, whose stalls can now stall the agent"
    )]
    Copy {
        /// What the binary lies on.
        file_system: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// An open binary that can be executed by [`path`](Self::path).
#[derive(Debug)]
pub struct Image {
    fd: OwnedFd,
    in_memory: bool,
    refused: Option<ImageError>,
}

impl Image {
    /// The binary of this process. From a network file system a copy in sealed memory, unless the node refuses
    /// that: then the binary where it lies, and [`refused`](Self::refused) says why.
    pub fn of_self() -> Result<Self, ImageError> {
        Self::of(Path::new("/proc/self/exe"))
    }

    /// As [`of_self`](Self::of_self), of any binary.
    pub fn of(path: &Path) -> Result<Self, ImageError> {
        let file = open(path)?;
        match network_file_system(&file) {
            Ok(Some(file_system)) => Ok(Self::in_memory_or_disk(file, file_system)),
            // An answer that cannot be had is no reason to copy.
            Ok(None) | Err(_) => Ok(Self { fd: file.into(), in_memory: false, refused: None }),
        }
    }

    /// A copy in sealed memory wherever the binary lies (tests; a local disk that is to be let go).
    pub fn in_memory(path: &Path) -> Result<Self, ImageError> {
        copy(open(path)?, "disk")
            .map(|fd| Self { fd, in_memory: true, refused: None })
            .map_err(|(_, error)| error)
    }

    /// The binary that a parent opened and left to us.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { in_memory: memfd::cannot_shrink(&fd), fd, refused: None }
    }

    fn in_memory_or_disk(file: File, file_system: &'static str) -> Self {
        match copy(file, file_system) {
            Ok(fd) => Self { fd, in_memory: true, refused: None },
            Err((file, error)) => Self { fd: file.into(), in_memory: false, refused: Some(error) },
        }
    }

    /// `/proc/self/fd/N`: valid in this process and in a forked child up to its exec, also though the
    /// descriptor is closed by that exec. What is executed so is named `N` until it names itself.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        memfd::path_of(&self.fd)
    }

    /// The descriptor itself.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it is a copy in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Why it is no copy in memory although it should be one: one sentence for people.
    #[must_use]
    pub fn refused(&self) -> Option<&ImageError> {
        self.refused.as_ref()
    }
}

fn open(path: &Path) -> Result<File, ImageError> {
    File::open(path).map_err(|source| ImageError::Open { path: path.into(), source })
}

/// The copy, or the file back.
fn copy(mut file: File, file_system: &'static str) -> Result<OwnedFd, (File, ImageError)> {
    let mut memory = match memfd::create("relight", true) {
        Ok(memory) => memory,
        Err(source) => return Err((file, ImageError::Memory { file_system, source })),
    };
    match io::copy(&mut file, &mut memory).and_then(|_| memfd::seal(&memory, true)) {
        Ok(()) => Ok(memory.into()),
        Err(source) => Err((file, ImageError::Copy { file_system, source })),
    }
}

/// Names this thread, and for the main one the process: what is executed from a descriptor is named by its
/// number. Cut to 15 bytes by the kernel.
pub fn name_thread(name: &std::ffi::CStr) {
    // Only for people who look at `ps`; nothing hangs on it.
    let _ = nix::sys::prctl::set_name(name);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn names_what_has_a_server() {
        assert_eq!(name_of(0x6969), Some("nfs"));
        assert_eq!(name_of(0xff53_4d42), Some("cifs"));
        assert_eq!(name_of(0xef53), None, "ext4");
        assert_eq!(name_of(0x0102_1994), None, "tmpfs");
        assert_eq!(network_file_system(File::open("/proc/self/stat").unwrap()).unwrap(), None);
    }

    #[test]
    fn runs_from_sealed_memory() {
        let image = Image::in_memory(Path::new("/bin/sh")).unwrap();
        assert!(image.is_in_memory());
        let said = Command::new(image.path()).args(["-c", "echo $((6 * 7))"]).output().unwrap();
        assert_eq!(said.stdout, b"42\n");
        let mut file = File::from(image.fd().try_clone_to_owned().unwrap());
        assert!(file.write_all(b"x").is_err(), "sealed");
    }

    #[test]
    fn keeps_the_version_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::copy("/bin/echo", &path).unwrap();
        let image = Image::of(&path).unwrap();
        assert!(image.refused().is_none());
        std::fs::remove_file(&path).unwrap();
        std::fs::copy("/bin/false", &path).unwrap();
        let said = Command::new(image.path()).arg("old").output().unwrap();
        assert_eq!(said.stdout, b"old\n");
    }

    #[test]
    fn a_missing_binary_is_an_error_with_its_path() {
        let error = Image::of(Path::new("/nonexistent/relight")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/relight"));
    }
}
