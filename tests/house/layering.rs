//! Rings: who may import whom.

use std::path::Path;

use crate::source::{Source, follow};
use crate::{assert_none, files, root, shown};

/// A room of `src`, and the rooms that it may import. `+` before a path allows that module of a room only,
/// `*` is all.
pub const ROOMS: &[(&str, &[&str])] = &[
    // Ring 0.
    ("domain", &[]),
    // Ring 1: one kind of IO each, never each other. The frames of worker processes are the one shared alphabet.
    ("sys", &["domain"]),
    ("ipc", &["domain", "sys"]),
    ("net", &["domain", "sys"]),
    ("store", &["domain", "sys", "+ipc::frame"]),
    ("logs", &["domain", "sys", "+ipc::frame"]),
    ("health", &["domain", "sys", "+ipc::frame"]),
    ("stacks", &["domain", "sys", "+ipc::frame"]),
    ("slurm", &["domain", "sys"]),
    ("torch_store", &["domain", "sys"]),
    // Ring 2. Agent, coordinator, guardian and supervisor never meet but in `node`.
    ("agent", &["domain", "sys", "ipc", "net", "store", "logs", "health", "stacks", "torch_store"]),
    ("coordinator", &["domain", "sys", "ipc", "net", "store", "logs", "health"]),
    ("guardian", &["domain", "sys", "ipc", "net", "store", "logs", "health"]),
    ("supervisor", &["domain", "sys", "ipc", "net", "store", "logs", "health", "slurm"]),
    ("inspect", &["domain", "sys", "ipc", "net", "store", "logs", "health"]),
    (
        "node",
        &[
            "domain",
            "sys",
            "ipc",
            "net",
            "store",
            "logs",
            "health",
            "stacks",
            "agent",
            "coordinator",
            "guardian",
        ],
    ),
    // Ring 3.
    ("cli", &["*"]),
];

/// Rooms of `src` with their files.
fn sources() -> Vec<(String, Source)> {
    let src = root().join("src");
    files(&src, ".rs").iter().map(|path| (room(&src, path), Source::read(path))).collect()
}

fn room(src: &Path, path: &Path) -> String {
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

fn may(room: &str, allowed: &[&str], source: &Source, at: usize, to: &str) -> bool {
    let module = |entry: &&str| {
        let Some((_, module)) = entry.strip_prefix('+').and_then(|path| path.split_once("::")) else {
            return false;
        };
        let rest = source.code[at + to.len()..].trim_start_matches("::").trim_start_matches('{');
        entry[1..].starts_with(to) && rest.starts_with(module)
    };
    to == room || allowed.contains(&"*") || allowed.contains(&to) || allowed.iter().any(module)
}

#[test]
fn every_room_imports_only_what_its_ring_allows() {
    let mut found = Vec::new();
    for (room, source) in sources() {
        if room == "lib" || room == "main" {
            continue;
        }
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            found.push(format!("{}: room `{room}` has no ring yet", shown(&source.path)));
            continue;
        };
        // Tests beside the code keep to the same rings.
        for (at, to) in follow(&source.code, "crate::") {
            if !may(&room, allowed, &source, at, &to) {
                found.push(format!("{}:{} imports {to}", shown(&source.path), source.line(at)));
            }
        }
        for (at, depth) in escapes(&source) {
            found.push(format!(
                "{}:{} leaves its room by {depth} supers",
                shown(&source.path),
                source.line(at)
            ));
        }
    }
    assert_none(&found, "a room imports only what its ring allows (`docs/architecture.md`):");
}

/// Chains of `super::` that end at the crate's root: they would hide a room from the check above.
fn escapes(source: &Source) -> Vec<(usize, usize)> {
    let src = root().join("src");
    let relative = source.path.strip_prefix(&src).unwrap_or(&source.path);
    let mut depth = relative.components().count();
    if relative.file_name().is_some_and(|name| name == "mod.rs") {
        depth -= 1;
    }
    let mut found = Vec::new();
    let code = &source.code;
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with("super::") {
            continue;
        }
        let mut chain = 0;
        while code[at + chain * "super::".len()..].starts_with("super::") {
            chain += 1;
        }
        // A file of tests is the module `tests` of the file that it belongs to.
        let inside = usize::from(source.is_test || at > source.tests_at);
        if chain >= depth + inside {
            found.push((at, chain));
        }
    }
    found
}

#[test]
fn every_room_is_declared() {
    let lib = Source::read(&root().join("src/lib.rs"));
    for (room, _) in ROOMS {
        assert!(lib.code.contains(&format!("pub mod {room};")), "src/lib.rs does not declare {room}");
    }
}

#[test]
fn the_check_itself_sees_what_is_forbidden() {
    let path = root().join("src/store/x.rs");
    let sample = |text: &str| Source::of(&path, text.to_owned());
    let allowed = ROOMS.iter().find(|(name, _)| *name == "store").unwrap().1;
    let verdict = |text: &str| {
        let source = sample(text);
        let named = follow(&source.code, "crate::");
        named.iter().all(|(at, to)| may("store", allowed, &source, *at, to)) && escapes(&source).is_empty()
    };
    assert!(verdict("use crate::domain::ids; use crate::ipc::frame::Frame; use super::error;"));
    assert!(verdict("use crate::{sys::clock, ipc::frame};"));
    assert!(!verdict("use crate::ipc::guardian;"));
    assert!(!verdict("use crate::{domain::ids, logs::pump};"));
    assert!(!verdict("fn f() { crate::node::agent_main(); }"));
    assert!(!verdict("use super::super::logs::pump;"));
}
