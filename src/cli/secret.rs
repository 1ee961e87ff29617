//! The secret that machines outside Slurm share, from a file of the user's.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::net::secret::Secret;
use crate::sys::files;

/// A secret that could be guessed is none, in bytes.
const LEAST: usize = 16;
/// A longer file is no secret, in bytes.
const MOST: u64 = 64 << 10;
/// Opening a pipe does not wait for its other end.
const NONBLOCK: i32 = 0o4000;

/// A file is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("the secret file {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others can read it.
    #[error("the secret file {} is no secret: others may read or write it, or it is somebody else's", .0.display())]
    Open(PathBuf),
    /// Nothing that could not be guessed.
    #[error("the secret file {} does not hold {LEAST} to {MOST} bytes", .0.display())]
    Length(PathBuf),
}

impl SecretError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } => "name a file that every machine has: --secret-file FILE".to_owned(),
            Self::Open(path) => format!("chmod 600 {}", path.display()),
            Self::Length(_) => "make one: (umask 077; head -c 32 /dev/urandom | base64 > secret)".to_owned(),
        }
    }
}

/// What all machines know. Without a file (`--insecure`) everybody knows it.
///
/// # Errors
/// The file is no secret.
pub fn of_machines(file: Option<&Path>, cwd: &Path) -> Result<Secret, SecretError> {
    let Some(file) = file else { return Ok(Secret::of_text(b"insecure")) };
    let path = cwd.join(file);
    let failed = |source| SecretError::Read { path: path.clone(), source };
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path).map_err(failed)?;
    let meta = opened.metadata().map_err(failed)?;
    if meta.mode() & 0o077 != 0 || (meta.uid() != files::my_uid() && meta.uid() != 0) {
        return Err(SecretError::Open(path));
    }
    let mut bytes = Vec::new();
    opened.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    // An editor may add an end of line on one machine.
    let text = bytes.trim_ascii();
    if !meta.is_file() || text.len() < LEAST || bytes.len() as u64 > MOST {
        return Err(SecretError::Length(path));
    }
    Ok(Secret::of_text(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_private_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        let write = |text: &[u8], mode: u32| {
            std::fs::write(cwd.join("secret"), text).unwrap();
            std::fs::set_permissions(cwd.join("secret"), std::fs::Permissions::from_mode(mode)).unwrap();
            of_machines(Some(Path::new("secret")), cwd)
        };
        let good = write(b"0123456789abcdef", 0o600).unwrap();
        assert!(write(b"0123456789abcdef\n", 0o400).unwrap() == good, "an end of line does not count");
        assert!(write(b"0123456789abcdeF", 0o600).unwrap() != good);
        assert!(matches!(write(b"0123456789abcdef", 0o640), Err(SecretError::Open(_))));
        assert!(matches!(write(b"short", 0o600), Err(SecretError::Length(_))));
        assert!(matches!(write(&vec![b'x'; 70_000], 0o600), Err(SecretError::Length(_))));
        assert!(matches!(of_machines(Some(Path::new("none")), cwd), Err(SecretError::Read { .. })));
        assert!(matches!(of_machines(Some(Path::new("/dev/zero")), cwd), Err(SecretError::Open(_))));
        assert!(of_machines(None, cwd).unwrap() != good);
    }
}
