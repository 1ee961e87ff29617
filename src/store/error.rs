//! What goes wrong with files, with the path, the call and the error number.

use std::io;
use std::path::{Path, PathBuf};

use crate::domain::append::TroubleKind;
use crate::sys::files::{self, Meaning};

/// One file call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} {}: {source} ({})", path.display(), files::errno_name(source))]
pub struct IoTrouble {
    /// The call, for people: `fsync`, `link`.
    pub call: &'static str,
    /// On what.
    pub path: PathBuf,
    /// The error.
    pub source: io::Error,
}

impl IoTrouble {
    /// Adds call and path to an error.
    #[must_use]
    pub fn new(call: &'static str, path: &Path, source: io::Error) -> Self {
        Self { call, path: path.to_owned(), source }
    }

    /// What can be done about it.
    #[must_use]
    pub fn kind(&self) -> TroubleKind {
        match files::meaning(&self.source) {
            Meaning::Full => TroubleKind::Full,
            Meaning::ReadOnly => TroubleKind::ReadOnly,
            Meaning::Denied => TroubleKind::Denied,
            Meaning::Gone => TroubleKind::Gone,
            Meaning::Io => TroubleKind::Io,
            Meaning::Exists | Meaning::Unsupported | Meaning::Other => TroubleKind::Other,
        }
    }
}
