//! The rules of the house that no compiler checks: rings, sizes, where unsafe code, the environment and printing
//! may live. `docs/architecture.md` says why.
#![allow(unreachable_pub, clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod layering;
mod modules;
mod rooms;
mod source;

use std::path::{Path, PathBuf};

/// The package's folder.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` whose name ends in `ending`, sorted; build outputs and hidden folders left out.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    todo.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The path as it is written in messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Fails with all that was found.
fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}\n  {}", found.join("\n  "));
}
