//! Sealed memory files: what is written once and then read by an inheritor that need not trust the writer.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// `MFD_EXEC`, Linux 6.3.
const MFD_EXEC: nix::libc::c_uint = 0x10;
/// `MFD_NOEXEC_SEAL`, Linux 6.3.
const MFD_NOEXEC_SEAL: nix::libc::c_uint = 0x8;

/// A new, empty, unsealed memory file, closed on exec.
///
/// The kernel's `vm.memfd_noexec` may refuse an executable one (EACCES) and complains in its log about one
/// that does not say what it is; kernels before 6.3 know neither flag (EINVAL).
pub(super) fn create(name: &str, executable: bool) -> io::Result<File> {
    let base = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let said = MFdFlags::from_bits_retain(if executable { MFD_EXEC } else { MFD_NOEXEC_SEAL });
    let fd = match memfd_create(name, base | said) {
        Err(Errno::EINVAL) => memfd_create(name, base)?,
        other => other?,
    };
    Ok(File::from(fd))
}

/// Forbids growing and shrinking, and writing too if asked; no seal can be taken off again.
pub(super) fn seal(file: &File, writes_too: bool) -> io::Result<()> {
    let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    if writes_too {
        seals |= SealFlag::F_SEAL_WRITE;
    }
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Whether the file can no longer shrink below a mapping (which would be a SIGBUS).
pub(super) fn cannot_shrink(fd: &impl AsFd) -> bool {
    fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS)
        .is_ok_and(|seals| SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK))
}

/// Keeps an inherited descriptor from being inherited further.
pub(super) fn close_on_exec(fd: &impl AsFd) -> io::Result<()> {
    fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

/// A sealed memory file with these bytes, its offset at 0; closed on exec (a spawn that passes it on undoes
/// that for its child).
pub fn with_bytes(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = create(name, false)?;
    file.write_all(bytes)?;
    file.rewind()?;
    seal(&file, true)?;
    Ok(file.into())
}

/// Reads a whole inherited memory file, wherever its offset is (it is shared with every earlier reader).
pub fn read_bytes(fd: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(fd);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path by which this process, and a child before its exec, opens the file behind a descriptor.
pub(super) fn proc_path(fd: RawFd) -> std::path::PathBuf {
    format!("/proc/self/fd/{fd}").into()
}

/// As [`proc_path`], of a borrowed descriptor.
pub(super) fn path_of(fd: &impl AsFd) -> std::path::PathBuf {
    proc_path(fd.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_bytes_can_be_read_twice_and_never_written() {
        let fd = with_bytes("relight-test", b"secret").unwrap();
        let mut file = File::from(fd.try_clone().unwrap());
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(read_bytes(fd.try_clone().unwrap()).unwrap(), b"secret");
        assert_eq!(read_bytes(fd).unwrap(), b"secret");
    }
}
