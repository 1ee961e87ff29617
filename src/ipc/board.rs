//! The heartbeat pages of this node's ranks: small files in memory, by path, because any process below a rank may be the one
//! that writes.
//!
//! A page is read, never mapped: whatever a stranger does to the file, a look at it is one short `read` that fails or
//! gives bytes. Who owns a page is what the kernel says of its lock, not what stands in it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::client;
use crate::domain::board::{PAGE_BYTES, Sample, blank, read};
use crate::domain::ids::{Attempt, LocalRank};
use crate::sys::{dirs, files, lock, random};

/// Pages of so many ranks are kept open; of more, each is opened for each look.
const KEPT_OPEN: u32 = 64;
/// No more of what an interpreter wrote about its threads is read, in bytes.
const MOST_STACKS: usize = 256 << 10;
/// Begins the names of our folders.
const PREFIX: &str = "ranks-";

/// Why there is no place for pages.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// None of the folders is ours alone.
    #[error(transparent)]
    NoDirectory(#[from] dirs::NoPrivateDir),
    /// A call failed.
    #[error("{} cannot be written: {}", path.display(), files::error_text(source))]
    Call {
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// The folder of one life of an agent, on this node alone: the Python client, and the pages of each attempt. Its end
/// removes it; that of one who was killed is removed by the next.
#[derive(Debug)]
pub struct Home {
    paths: HomePaths,
    /// Locked as long as we live.
    _lock: File,
}

impl Home {
    /// A new one for this run, in the first of these folders that is, or can be made, ours alone on this node; best in
    /// memory.
    ///
    /// # Errors
    /// No folder will do, or it is full.
    pub fn make(candidates: &[PathBuf], run_dir: &Path) -> Result<Self, HomeError> {
        let parent = dirs::private_dir(candidates)?;
        sweep(&parent);
        let failed = |source| HomeError::Call { path: parent.clone(), source };
        // Who sweeps may take a new folder for a deserted one before it is locked.
        loop {
            let dir = parent.join(format!("{PREFIX}{:016x}", random::u64()));
            make_dir(&dir).map_err(failed)?;
            let locked = File::open(&dir).ok().filter(|file| file.try_lock().is_ok());
            if let Some(lock) = locked.filter(|_| dir.exists()) {
                let python = dir.join("python");
                let paths = HomePaths { start: python.join(client::START), python, dir };
                let home = Self { paths, _lock: lock };
                client::write(&home.paths.python).map_err(failed)?;
                // Whose it is, for people.
                fs::write(home.path().join("run"), run_dir.as_os_str().as_encoded_bytes()).map_err(failed)?;
                return Ok(home);
            }
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.paths.dir
    }

    /// The folder and what is in it.
    #[must_use]
    pub fn paths(&self) -> &HomePaths {
        &self.paths
    }
}

/// A [`Home`] by its paths.
#[derive(Clone, Debug)]
pub struct HomePaths {
    /// The folder.
    pub dir: PathBuf,
    start: PathBuf,
    python: PathBuf,
}

impl HomePaths {
    /// Where Python looks first for modules, and last: the start-up module, if it is wanted, and `relight`.
    #[must_use]
    pub fn python(&self, hooks: bool) -> [Option<&Path>; 2] {
        [hooks.then_some(self.start.as_path()), Some(&self.python)]
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next agent.
        let _ = fs::remove_dir_all(self.path());
    }
}

/// Where folders of agents are, best first: in memory, and where containers see it, too.
#[must_use]
pub fn places(private_dir: &Path) -> Vec<PathBuf> {
    let mut all = dirs::candidates(None);
    all.truncate(1);
    all.push(private_dir.to_owned());
    all
}

/// Removes what agents that are gone have left in these places: who was killed left its folder.
pub fn tidy(places: &[PathBuf]) {
    for place in places.iter().filter(|place| place.is_dir()) {
        if dirs::make_private(place).is_ok() {
            sweep(place);
        }
    }
}

/// Removes the folders of agents that are gone, in whatever container they were.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// The pages of one attempt; dropped, they are gone.
#[derive(Debug)]
pub struct Boards {
    dir: PathBuf,
    ranks: u32,
    open: Vec<File>,
}

impl Boards {
    /// Pages for this many ranks, claimed by nobody.
    ///
    /// # Errors
    /// The folder is full, or its limits do not allow for that many files; nothing is left then.
    pub fn new(home: &Path, attempt: Attempt, nproc: u32) -> Result<Self, HomeError> {
        let dir = home.join(format!("attempt-{attempt}"));
        let mut boards = Self { dir, ranks: nproc, open: Vec::new() };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| HomeError::Call { path, source }
        };
        match make_dir(&boards.dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_dir_all(&boards.dir)
                .and_then(|()| make_dir(&boards.dir))
                .map_err(failed(&boards.dir))?,
            made => made.map_err(failed(&boards.dir))?,
        }
        let page = blank(attempt);
        for rank in 0..nproc {
            let path = boards.path(LocalRank(rank));
            let mut options = OpenOptions::new();
            let made = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
            let mut file = made.map_err(failed(&path))?;
            // Written whole: a store into a page without memory behind it would kill the rank when memory is short.
            file.write_all(&page).map_err(failed(&path))?;
            if nproc <= KEPT_OPEN {
                boards.open.push(file);
            }
        }
        Ok(boards)
    }

    /// The page of a rank, for its environment.
    #[must_use]
    pub fn path(&self, rank: LocalRank) -> PathBuf {
        self.dir.join(rank.to_string())
    }

    /// One look at a page; `None`: nobody owns it, or it is none any more. Never waits.
    #[must_use]
    pub fn sample(&self, rank: LocalRank) -> Option<Sample> {
        match self.open.get(rank.0 as usize) {
            Some(file) => look(file),
            None if rank.0 < self.ranks => look(&files::open_stranger(&self.path(rank)).ok()?),
            None => None,
        }
    }

    /// What stands in the page of a rank that has ended, whoever owned it. Never waits.
    #[must_use]
    pub fn last(&self, rank: LocalRank) -> Option<Sample> {
        match self.open.get(rank.0 as usize) {
            Some(file) => page(file),
            None if rank.0 < self.ranks => page(&files::open_stranger(&self.path(rank)).ok()?),
            None => None,
        }
    }

    /// Where interpreters of this rank write about their threads.
    #[must_use]
    pub fn stacks_path(&self, rank: LocalRank) -> PathBuf {
        self.path(rank).with_extension("stacks")
    }

    /// What interpreters of this rank have written about their threads so far, when they were asked by
    /// [`Sample::stack_signal`]; the beginning of it. Never waits.
    #[must_use]
    pub fn stacks(&self, rank: LocalRank) -> Vec<u8> {
        let path = self.stacks_path(rank);
        let Ok(file) = files::open_stranger(&path) else { return Vec::new() };
        let mut bytes = vec![0; MOST_STACKS];
        let length = file.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(length);
        bytes
    }
}

fn look(file: &File) -> Option<Sample> {
    Some(Sample { pid: lock::posix_holder(file)?, ..page(file)? })
}

fn page(file: &File) -> Option<Sample> {
    let mut page = [0; PAGE_BYTES];
    let length = file.read_at(&mut page, 0).ok()?;
    read(page.get(..length)?)
}

impl Drop for Boards {
    fn drop(&mut self) {
        // The folder around it goes, too.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
