//! Shared-memory files that a killed process leaves behind.
//!
//! POSIX shared memory and named semaphores are plain files in `/dev/shm`: nobody removes them when their owner is
//! killed. Which of them are ours is not written anywhere, so only those are touched for which all of this holds:
//!
//! * the file lies in `/dev/shm` itself, is regular, belongs to our user, and was not there when the first rank was
//!   started;
//! * a process of ours was seen holding it open shortly before it was killed;
//! * now nobody at all has it open or mapped, in whatever container: the kernel grants a write lease on it.
//!
//! What a process only maps (its descriptor closed), or held when it died by itself, is not seen and stays: the list
//! of mappings blocks on a process that is stuck in the kernel, and a name proves nothing. Nothing here blocks: other
//! processes' descriptors are read as links, and only files of a tmpfs are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::{clock, files};

/// A directory with more entries than this is left alone altogether.
const MOST: usize = 8192;
/// One look at the processes takes no longer than this; who was not reached keeps his files.
const BUDGET: Duration = Duration::from_millis(20);

/// The same on every architecture; libc does not name it.
const F_SETSIG: libc::c_int = 10;

/// Device and inode: what a name means.
type Identity = (u64, u64);

/// The files of our ranks in one directory.
#[derive(Debug)]
pub struct SharedFiles {
    dir: PathBuf,
    /// What was there before any rank.
    before: BTreeSet<u64>,
    held: BTreeMap<OsString, Identity>,
}

impl SharedFiles {
    /// A picture of `/dev/shm` before the first rank; `None` where it is no tmpfs, or cannot be listed in short.
    #[must_use]
    pub fn before_the_first() -> Option<Self> {
        Self::of(Path::new("/dev/shm"))
    }

    fn of(dir: &Path) -> Option<Self> {
        if statfs(dir).ok()?.filesystem_type() != TMPFS_MAGIC {
            return None;
        }
        let before = entries(dir)?.into_iter().map(|(_, inode)| inode).collect();
        Some(Self { dir: dir.to_owned(), before, held: BTreeMap::new() })
    }

    /// Whether there is a file that one of ours may have made; else nobody needs to be looked at.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news().is_empty()
    }

    /// Notes which new files these processes hold open.
    pub fn note(&mut self, pids: &[i32]) {
        let news = self.news();
        if news.is_empty() {
            return;
        }
        let end = clock::boot().after(BUDGET);
        for pid in pids {
            if clock::boot() >= end {
                return;
            }
            let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
            for descriptor in descriptors.flatten() {
                let path = descriptor.path();
                let Some(name) = fs::read_link(&path).ok().and_then(|to| self.name_in(&to)) else { continue };
                let Some(identity) = news.get(&name) else { continue };
                // Through the link: the very file, whatever the name means to that process.
                if fs::metadata(&path).is_ok_and(|found| identity_of(&found) == *identity) {
                    self.held.insert(name, *identity);
                }
            }
        }
    }

    /// Removes what was noted and what nobody holds any more; the rest is asked after again next time. How many.
    pub fn remove_unheld(&mut self) -> usize {
        let dir = &self.dir;
        let before = self.held.len();
        self.held.retain(|name, identity| !is_gone_or_removed(&dir.join(name), *identity));
        before - self.held.len()
    }

    fn name_in(&self, target: &Path) -> Option<OsString> {
        (target.parent()? == self.dir).then(|| target.file_name().map(OsStr::to_owned))?
    }

    /// Files of our user that were not there before.
    fn news(&self) -> BTreeMap<OsString, Identity> {
        let mine = files::my_uid();
        let entries = entries(&self.dir).unwrap_or_default().into_iter();
        let new = entries.filter(|(_, inode)| !self.before.contains(inode));
        let look = |(name, _): (OsString, u64)| {
            let found = fs::symlink_metadata(self.dir.join(&name)).ok()?;
            (found.is_file() && found.uid() == mine).then(|| (name, identity_of(&found)))
        };
        new.filter_map(look).collect()
    }
}

fn identity_of(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

fn entries(dir: &Path) -> Option<Vec<(OsString, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        if found.len() == MOST {
            return None;
        }
        found.push((entry.file_name(), entry.ino()));
    }
    Some(found)
}

/// Whether there is nothing left to do about a file.
fn is_gone_or_removed(path: &Path, identity: Identity) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    match file.metadata() {
        // Somebody made another one under that name.
        Ok(found) if identity_of(&found) != identity => true,
        Ok(_) => is_ours_alone(&file) && fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
}

/// Whether this descriptor is the only way in which anybody has the file open or mapped. Who opens it while the
/// lease is held waits until `file` is closed.
fn is_ours_alone(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: both calls take the descriptor, which is open, and an integer. The signal is set first: without it an
    // opener would have us sent SIGIO, which kills; SIGURG is ignored by default.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        PathBuf::from(format!("/dev/shm/relight-test-{}-{name}", std::process::id()))
    }

    fn create(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
    }

    struct Removed(Vec<PathBuf>);

    impl Drop for Removed {
        fn drop(&mut self) {
            for path in &self.0 {
                let _ = fs::remove_file(path);
            }
        }
    }

    #[test]
    fn only_what_is_new_and_held_by_ours_and_by_nobody_else_goes() {
        let names = ["old", "held", "closed", "shared", "mapped", "renewed"].map(place);
        let _removed = Removed(names.to_vec());
        let [old, held, closed, shared, mapped, renewed] = &names;
        let mut open = vec![create(old)];
        let mut files = SharedFiles::before_the_first().unwrap();
        open.extend([create(held), create(shared), create(mapped), create(renewed)]);
        drop(create(closed));
        assert!(files.has_news());
        files.note(&[i32::try_from(std::process::id()).unwrap()]);
        let noted: Vec<_> = files.held.keys().cloned().collect();
        for path in [held, shared, mapped, renewed] {
            assert!(noted.contains(&path.file_name().unwrap().to_owned()), "{path:?} is not in {noted:?}");
        }
        for path in [old, closed] {
            assert!(!noted.contains(&path.file_name().unwrap().to_owned()), "{path:?} is in {noted:?}");
        }

        // Nobody has let go of anything yet.
        assert_eq!(files.remove_unheld(), 0);
        let other = File::open(shared).unwrap();
        let length = std::num::NonZeroUsize::new(4096).unwrap();
        let mapping = File::options().read(true).write(true).open(mapped).unwrap();
        mapping.set_len(4096).unwrap();
        let (prot, flags) = (nix::sys::mman::ProtFlags::PROT_READ, nix::sys::mman::MapFlags::MAP_SHARED);
        // SAFETY: a new mapping that nothing reads; unmapped below.
        let map = unsafe { nix::sys::mman::mmap(None, length, prot, flags, &mapping, 0) }.unwrap();
        drop((mapping, open));
        fs::remove_file(renewed).unwrap();
        drop(create(renewed));

        files.remove_unheld();
        let left = names.iter().filter(|path| path.exists()).collect::<Vec<_>>();
        assert_eq!(left, [old, closed, shared, mapped, renewed]);

        drop(other);
        // SAFETY: mapped above with this length, nothing refers to it.
        unsafe { nix::sys::mman::munmap(map, length.get()) }.unwrap();
        assert_eq!(files.remove_unheld(), 2);
        let left = names.iter().filter(|path| path.exists()).collect::<Vec<_>>();
        assert_eq!(left, [old, closed, renewed]);
    }

    #[test]
    fn a_directory_that_is_no_tmpfs_is_left_alone() {
        assert!(SharedFiles::of(Path::new("/proc")).is_none());
        assert!(SharedFiles::of(Path::new("/no/such/directory")).is_none());
    }
}
