//! A directory of ours on this node, for locks and sockets: 0700, owned by us, no symlink, no file server.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access, geteuid};

use super::memexec::network_file_system;

/// Why one directory will not do.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It does not begin at the root.
    #[error("not an absolute path")]
    Relative,
    /// It is not there and cannot be made, or not be looked at.
    #[error("cannot be {what}: {source}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A symlink, file or socket has its name.
    #[error("not a directory")]
    NotADirectory,
    /// Somebody else's.
    #[error("owned by user {uid}")]
    Owner {
        /// Whose.
        uid: u32,
    },
    /// Others may enter.
    #[error("its mode is {mode:o}, not 700")]
    Mode {
        /// Its permission bits.
        mode: u32,
    },
    /// Not on this node.
    #[error("on a network file system ({0})")]
    Network(&'static str),
}

/// No candidate will do.
#[derive(Debug)]
pub struct NoPrivateDir {
    /// Each one, in order, and what is wrong with it.
    pub tried: Vec<(PathBuf, Unfit)>,
}

impl fmt::Display for NoPrivateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no private directory on this node")?;
        for (i, (path, unfit)) in self.tried.iter().enumerate() {
            write!(f, "{} {}: {unfit}", if i == 0 { ":" } else { ";" }, path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for NoPrivateDir {}

/// The places to try, in order: `$XDG_RUNTIME_DIR/relight` if the caller's environment has one, then
/// `/dev/shm/relight-<uid>`, then `/tmp/relight-<uid>`.
#[must_use]
pub fn candidates(xdg_runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    let name = format!("relight-{}", geteuid());
    let mut all: Vec<PathBuf> = xdg_runtime_dir.iter().map(|dir| dir.join("relight")).collect();
    all.extend(["/dev/shm", "/tmp"].map(|dir| Path::new(dir).join(&name)));
    all
}

/// The first of these that is, or can be made, a directory of ours alone on this node.
pub fn private_dir(candidates: &[PathBuf]) -> Result<PathBuf, NoPrivateDir> {
    let mut tried = Vec::new();
    for path in candidates {
        match make_private(path) {
            Ok(()) => return Ok(path.clone()),
            Err(unfit) => tried.push((path.clone(), unfit)),
        }
    }
    Err(NoPrivateDir { tried })
}

/// Makes this directory, or proves that the one that is there is ours alone.
pub fn make_private(path: &Path) -> Result<(), Unfit> {
    if !path.is_absolute() {
        return Err(Unfit::Relative);
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(source) => return Err(Unfit::Call { what: "made", source }),
    }
    // Looked at through one descriptor, so that nothing can be exchanged between two looks.
    let dir = open_dir(path)?;
    let meta = dir.metadata().map_err(|source| Unfit::Call { what: "examined", source })?;
    if meta.uid() != geteuid().as_raw() {
        return Err(Unfit::Owner { uid: meta.uid() });
    }
    if meta.mode() & 0o7777 != 0o700 {
        return Err(Unfit::Mode { mode: meta.mode() & 0o7777 });
    }
    if let Ok(Some(name)) = network_file_system(&dir) {
        return Err(Unfit::Network(name));
    }
    access(path, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|errno| Unfit::Call { what: "written to", source: errno.into() })
}

fn open_dir(path: &Path) -> Result<File, Unfit> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(|source| {
        match fs::symlink_metadata(path) {
            Ok(meta) if !meta.is_dir() => Unfit::NotADirectory,
            Ok(meta) if meta.uid() != geteuid().as_raw() => Unfit::Owner { uid: meta.uid() },
            _ => Unfit::Call { what: "opened", source },
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn takes_the_first_that_will_do_and_names_what_is_wrong_with_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let [wide, link, file, good] = ["wide", "link", "file", "good"].map(|name| dir.path().join(name));
        fs::create_dir(&wide).unwrap();
        fs::set_permissions(&wide, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        fs::set_permissions(dir.path().join("target"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(dir.path().join("target"), &link).unwrap();
        fs::write(&file, "").unwrap();
        let missing = dir.path().join("no/such/parent");
        let bad = [PathBuf::from("relative"), missing, wide, link, file];

        let error = private_dir(&bad).unwrap_err();
        assert!(matches!(error.tried[0].1, Unfit::Relative));
        assert!(matches!(error.tried[1].1, Unfit::Call { what: "made", .. }));
        assert!(matches!(error.tried[2].1, Unfit::Mode { mode: 0o755 }));
        assert!(matches!(error.tried[3].1, Unfit::NotADirectory));
        assert!(matches!(error.tried[4].1, Unfit::NotADirectory));
        assert!(error.to_string().contains("wide: its mode is 755, not 700; "), "{error}");

        let all: Vec<PathBuf> = bad.into_iter().chain([good.clone()]).collect();
        assert_eq!(private_dir(&all).unwrap(), good);
        assert_eq!(private_dir(&all).unwrap(), good, "again");
        assert_eq!(fs::metadata(&good).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn candidates_come_in_order() {
        let all = candidates(Some(Path::new("/run/user/7")));
        assert_eq!(all[0], Path::new("/run/user/7/relight"));
        assert!(all[1].starts_with("/dev/shm") && all[2].starts_with("/tmp"));
        assert_eq!(candidates(None).len(), 2);
    }
}
