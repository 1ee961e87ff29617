//! The Python client, which the binary carries: written beside the pages, where the ranks' interpreters find it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// By their names below the folder that Python looks into last; that of `START` is looked into first.
const FILES: [(&str, &str); 4] = [
    ("relight/__init__.py", include_str!("../../python/relight/__init__.py")),
    ("relight/_board.py", include_str!("../../python/relight/_board.py")),
    ("relight/_hooks.py", include_str!("../../python/relight/_hooks.py")),
    ("start/sitecustomize.py", include_str!("../../python/start/sitecustomize.py")),
];

/// Where the start-up module lies below the folder.
pub(super) const START: &str = "start";

/// Writes the client into this folder, which is made.
pub(super) fn write(folder: &Path) -> io::Result<()> {
    for (name, text) in FILES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().mode(0o700).recursive(true).create(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}
