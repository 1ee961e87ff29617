//! The lock of one run on one node. Held by the guardian and, through the inherited descriptor, by the agent:
//! it is free only when both are gone, however they went.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::memfd;

/// Who holds a lock: the file's content, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its guardian.
    pub pid: u32,
    /// When it started, Unix milliseconds.
    pub started_ms: u64,
    /// Its command line, for people.
    pub command: String,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody holds it. `None`: but has not written its name yet.
    #[error("this run is already running on this node{}", holder.as_ref().map(|h| format!(" as pid {}", h.pid)).unwrap_or_default())]
    Held {
        /// Who.
        holder: Option<Holder>,
    },
    /// A call failed.
    #[error("the lock {} cannot be {what}", path.display())]
    Call {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A held lock. Dropping it (and every inherited copy) frees it.
#[derive(Debug)]
pub struct Lock {
    /// Closing it frees the lock only when no inherited copy is left (flock belongs to the open file).
    file: File,
    path: PathBuf,
}

/// The lock's file for a run, told apart by its store: the same run id in two directories is two runs.
#[must_use]
pub fn file_name(run: &str, store: &Path) -> String {
    let mut hash = Sha256::new();
    hash.update(run.as_bytes());
    hash.update([0]);
    hash.update(store.as_os_str().as_encoded_bytes());
    let digest = hash.finalize();
    let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("run-{hex}.lock")
}

impl Lock {
    /// Takes the lock of this run in a private directory of this node, or says who holds it. Does not wait.
    pub fn try_take(dir: &Path, run: &str, store: &Path, holder: &Holder) -> Result<Self, LockError> {
        let path = dir.join(file_name(run, store));
        // Its last holder may remove the file between our open and our lock: then ours is nobody's, once more.
        loop {
            let mut file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held { holder: read_holder(file) }),
                Err(TryLockError::Error(source)) => return Err(failed(&path, "taken")(source)),
            }
            if !is_still(&path, &file).map_err(failed(&path, "examined"))? {
                continue;
            }
            write_holder(&mut file, holder).map_err(failed(&path, "written"))?;
            return Ok(Self { file, path });
        }
    }

    /// Who holds the lock of this run, without taking or making anything: two that ask do not see each other.
    /// The inner `None`: somebody who has not written its name. A file that cannot be opened is nobody's.
    #[must_use]
    pub fn held_by(dir: &Path, run: &str, store: &Path) -> Option<Option<Holder>> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let path = dir.join(file_name(run, store));
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read_holder(file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// The descriptor, for passing it on.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The file, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file and frees the lock. Only when the agent is gone too.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// The agent's share of a lock: holds it until dropped, and never hands it on.
#[derive(Debug)]
pub struct LockShare(File);

impl LockShare {
    /// Takes over an inherited descriptor.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        memfd::close_on_exec(&fd)?;
        Ok(Self(fd.into()))
    }

    /// The same share once more, for another holder in this process.
    pub fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Removes the lock's file in place of a guardian that is gone, while the lock is still held: whoever opened the
    /// file before finds another one, or none, behind its name once it has the lock. False: there was nothing of
    /// ours to remove.
    pub fn remove(self) -> io::Result<bool> {
        // Ours already, unless the file was never locked; somebody else's lock is left alone.
        if self.0.try_lock().is_err() {
            return Ok(false);
        }
        let path = fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd()))?;
        if !is_still(&path, &self.0)? {
            return Ok(false);
        }
        fs::remove_file(&path).map(|()| true)
    }
}

/// The process that holds a POSIX lock on this file (`fcntl`, `lockf`), as this process counts processes; none: nobody.
/// Such a lock is its process's alone: no fork inherits it, and it ends with the process.
#[must_use]
pub fn posix_holder(file: &File) -> Option<u32> {
    let mut asked = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_GETLK(&mut asked)).ok()?;
    let held = asked.l_type != nix::libc::F_UNLCK as nix::libc::c_short;
    held.then(|| u32::try_from(asked.l_pid).ok().filter(|pid| *pid > 0)).flatten()
}

fn open(path: &Path) -> Result<File, LockError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits());
    options.open(path).map_err(failed(path, "opened"))
}

fn is_still(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_holder(file: &mut File, holder: &Holder) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(holder)?)
}

/// What the holder wrote, if it can be read: anybody may have written anything.
fn read_holder(file: File) -> Option<Holder> {
    let mut text = Vec::new();
    file.take(64 << 10).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> LockError {
    move |source| LockError::Call { path: path.into(), what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32) -> Holder {
        Holder { pid, started_ms: 1, command: "relight run train.py".into() }
    }

    fn take(dir: &Path, pid: u32) -> Result<Lock, LockError> {
        Lock::try_take(dir, "7.0", Path::new("/scratch/.relight"), &holder(pid))
    }

    #[test]
    fn a_second_one_learns_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path(), 41).unwrap();
        match take(dir.path(), 42).unwrap_err() {
            LockError::Held { holder: Some(found) } => assert_eq!(found, holder(41)),
            other => panic!("{other:?}"),
        }
        let held = |run| Lock::held_by(dir.path(), run, Path::new("/scratch/.relight"));
        assert_eq!((held("7.0"), held("7.1")), (Some(Some(holder(41))), None));
        // Another run, or the same id in another store, is free.
        Lock::try_take(dir.path(), "7.1", Path::new("/scratch/.relight"), &holder(1)).unwrap();
        Lock::try_take(dir.path(), "7.0", Path::new("/elsewhere"), &holder(1)).unwrap();
        drop(lock);
        assert_eq!(held("7.0"), None);
        take(dir.path(), 43).unwrap();
    }

    #[test]
    fn is_held_until_the_inherited_share_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path(), 41).unwrap();
        let share = LockShare::from_fd(lock.fd().try_clone_to_owned().unwrap()).unwrap();
        drop(lock); // as a guardian that is killed
        assert!(matches!(take(dir.path(), 42), Err(LockError::Held { .. })));
        drop(share);
        take(dir.path(), 43).unwrap();
    }

    #[test]
    fn the_share_removes_the_file_of_a_guardian_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let share = |lock: &Lock| LockShare::from_fd(lock.fd().try_clone_to_owned().unwrap()).unwrap();
        let lock = take(dir.path(), 41).unwrap();
        let (path, ours) = (lock.path().to_owned(), share(&lock));
        drop(lock);
        let held = ours.again().unwrap();
        assert!(ours.remove().unwrap());
        assert!(!path.exists());
        // The name is free at once, and the next one's file is not ours any more.
        let next = take(dir.path(), 42).unwrap();
        assert!(!held.remove().unwrap());
        assert!(path.exists());
        // Where the lock is somebody else's now, its file stays.
        let loose = LockShare::from_fd(File::open(&path).unwrap().into()).unwrap();
        assert!(!loose.remove().unwrap());
        next.remove().unwrap();
    }

    #[test]
    fn removed_files_and_garbage_are_no_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path(), 41).unwrap();
        fs::write(lock.path(), b"{garbage").unwrap();
        assert!(matches!(take(dir.path(), 42), Err(LockError::Held { holder: None })));
        let path = lock.path().to_owned();
        lock.remove().unwrap();
        assert!(!path.exists());
        take(dir.path(), 43).unwrap().remove().unwrap();
    }
}
