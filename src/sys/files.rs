//! What the standard library does not say about files: owners, access, and what an error number means.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{self, AccessFlags};

/// What an error of a file call means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// ENOSPC, EDQUOT.
    Full,
    /// EROFS.
    ReadOnly,
    /// EACCES, EPERM.
    Denied,
    /// ENOENT, ENOTDIR, ESTALE.
    Gone,
    /// EEXIST.
    Exists,
    /// EIO and the like.
    Io,
    /// The file system cannot do this.
    Unsupported,
    /// Anything else.
    Other,
}

/// Sorts an error by what can be done about it.
#[must_use]
pub fn meaning(error: &io::Error) -> Meaning {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT) => Meaning::Full,
        Some(Errno::EROFS) => Meaning::ReadOnly,
        Some(Errno::EACCES | Errno::EPERM) => Meaning::Denied,
        Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE) => Meaning::Gone,
        Some(Errno::EEXIST) => Meaning::Exists,
        Some(Errno::EIO | Errno::EREMOTEIO | Errno::ETIMEDOUT | Errno::ESHUTDOWN) => Meaning::Io,
        Some(Errno::ENOTSUP | Errno::ENOSYS | Errno::EMLINK | Errno::EXDEV) => Meaning::Unsupported,
        _ => Meaning::Other,
    }
}

/// `ENOSPC, No space left on device` for an operating-system error, else the error's own words.
#[must_use]
pub fn error_text(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(errno) => format!("{errno:?}, {}", errno.desc()),
        None => error.to_string(),
    }
}

/// The effective user id of this process.
#[must_use]
pub fn my_uid() -> u32 {
    unistd::geteuid().as_raw()
}

/// What a directory looks like from outside, without following a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// It is a symbolic link.
    pub symlink: bool,
    /// It is a directory.
    pub dir: bool,
    /// Its owner.
    pub uid: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// Looks at a path without following a link.
pub fn look(path: &Path) -> io::Result<Look> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok(Look {
        symlink: meta.file_type().is_symlink(),
        dir: meta.file_type().is_dir(),
        uid: meta.uid(),
        mode: meta.mode() & 0o7777,
    })
}

/// Whether this process may list, enter and change the directory.
pub fn may_change(dir: &Path) -> io::Result<()> {
    Ok(unistd::access(dir, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK)?)
}

/// Makes one directory that only we may use. An existing one is an error.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Takes everybody else's permissions away.
pub fn make_private(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

/// Creates a file that must not exist, 0600, for writing.
pub fn create_exclusive(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

/// Opens a file for appending, 0600 if it is new.
pub fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

/// Opens a directory so that [`sync_dir`] can be asked of it.
pub fn open_dir(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW).open(path)
}

/// Makes the names in a directory durable. File systems that cannot sync a directory say EINVAL: there a
/// name is as durable as it gets, and the answer is success.
pub fn sync_dir(dir: &File) -> io::Result<()> {
    match dir.sync_all() {
        Err(e) if e.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
        other => other,
    }
}

/// How many names the open file has.
pub fn link_count(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.nlink())
}

/// Opens a plain file for reading. Anything else (a pipe would block) is refused.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok(file) } else { Err(not_plain(&meta)) }
}

fn not_plain(meta: &Metadata) -> io::Error {
    let kind = meta.file_type();
    io::Error::other(match () {
        () if kind.is_fifo() => "it is a pipe, not a plain file",
        () if kind.is_dir() => "it is a directory, not a plain file",
        () => "it is not a plain file",
    })
}

/// As [`open_plain`], of a file that a stranger may have made: a link is refused, too.
pub fn open_stranger(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok(file) } else { Err(not_plain(&meta)) }
}

/// Reads a small plain file that a stranger may have made, at most `limit` bytes: a link, a pipe, a device, a
/// directory and a longer file are errors, and none of them can make this wait. Also when it was changed last, in unix
/// milliseconds.
pub fn read_small(path: &Path, limit: usize) -> io::Result<(Vec<u8>, u64)> {
    let file = open_stranger(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let changed = meta.mtime().saturating_mul(1_000).saturating_add(meta.mtime_nsec() / 1_000_000);
    Ok((bytes, u64::try_from(changed).unwrap_or(0)))
}

/// Writes a plain file in the place of what it held; makes it, not its directory. A link, a pipe or a device is left
/// alone and an error.
pub fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(false).custom_flags(flags.bits()).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(not_plain(&meta));
    }
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Writes into a named pipe that somebody reads from, without waiting for anything; anything but a pipe, and one that
/// nobody reads from, is an error.
pub fn poke_pipe(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let mut pipe = File::options().write(true).custom_flags(flags.bits()).open(path)?;
    if !std::os::unix::fs::FileTypeExt::is_fifo(&pipe.metadata()?.file_type()) {
        return Err(io::Error::other("not a pipe"));
    }
    pipe.write_all(bytes)
}

/// Free bytes for an ordinary user on the file system of this path, or of the nearest directory above it that
/// is there.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let stat = path.ancestors().find_map(|p| nix::sys::statvfs::statvfs(p).ok())?;
    Some(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// Free bytes for an ordinary user on the file system that is mounted at this path, and its size in bytes.
#[must_use]
pub fn room(path: &Path) -> Option<(u64, u64)> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    Some((bytes(stat.blocks_available()), bytes(stat.blocks())))
}

/// Ends this process at once, as `kill -9` from outside would.
pub fn die_now() -> ! {
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    std::process::abort()
}

/// An error for an error number (fault plans).
#[must_use]
pub fn error_of(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A name that is one plain path component: no slash, not `.` or `..`, not empty, no NUL.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    let path = Path::new(name);
    !name.is_empty()
        && !name.contains(['/', '\0'])
        && path.file_name() == Some(OsStr::new(name))
        && name != "."
        && name != ".."
}
