//! What may stand where.

use crate::source::{Source, words};
use crate::{assert_none, files, root, shown};

/// A file longer than this is two.
const LINES: usize = 900;

fn program() -> Vec<Source> {
    files(&root().join("src"), ".rs").iter().map(|path| Source::read(path)).collect()
}

fn in_room(source: &Source, room: &str) -> bool {
    source.path.starts_with(root().join("src").join(room))
}

/// Every place of one of `needles` in the program outside `room`.
fn outside(room: &str, needles: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in program().iter().filter(|source| !in_room(source, room)) {
        for needle in needles {
            for at in words(source.program(), needle) {
                found.push(format!("{}:{} {needle}", shown(&source.path), source.line(at)));
            }
        }
    }
    found
}

#[test]
fn unsafe_code_and_system_calls_are_in_sys() {
    assert_none(&outside("sys", &["unsafe", "nix", "rustix", "libc"]), "only `sys` makes system calls:");
}

#[test]
fn arguments_environment_and_output_are_in_cli() {
    assert_none(&outside("cli", &["clap"]), "clap's types stop at `cli`:");
    let reads = ["env::var", "env::var_os", "env::vars", "env::vars_os", "env::args", "env::args_os"];
    assert_none(&outside("cli", &reads), "only `cli` reads arguments and environment:");
    let writes = ["env::set_var", "env::remove_var"];
    assert_none(&outside("sys", &writes), "the environment is never changed:");
    assert_none(&outside("cli", &["println", "eprintln", "print", "eprint", "dbg"]), "only `cli` prints:");
}

#[test]
fn nothing_is_left_to_do_and_no_process_ends_in_the_middle() {
    let unfinished = ["todo!", "unimplemented!", "FIXME", "XXX", "TODO"];
    let mut found = Vec::new();
    for source in program() {
        for word in unfinished {
            for (at, _) in source.text.match_indices(word) {
                found.push(format!("{}:{} {word}", shown(&source.path), source.line(at)));
            }
        }
    }
    assert_none(&found, "unfinished:");
    assert_none(&outside("sys", &["process::exit"]), "a process ends where `sys` says so:");
    assert_none(&outside("sys", &["anyhow"]), "errors are enums:");
}

#[test]
fn every_variable_of_ours_is_spelt_out_once() {
    let home = root().join("src/domain/env.rs");
    let mut found = Vec::new();
    for source in program().iter().filter(|source| source.path != home) {
        for prefix in ["\"RELIGHT_", "\"TORCHELASTIC_", "\"PET_", "\"SLURM"] {
            for (at, _) in source.program_with_strings().match_indices(prefix) {
                let rest = &source.text[at + 1..];
                let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                // The whole text is one name; sentences may mention one.
                if rest[name.len()..].starts_with('"') {
                    found.push(format!("{}:{} {name}", shown(&source.path), source.line(at)));
                }
            }
        }
    }
    assert_none(&found, "names of variables are constants of src/domain/env.rs:");
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for folder in ["src", "tests", "examples", "scripts", "benches", "python"] {
        for path in files(&root().join(folder), "") {
            let lines = std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
            if lines > LINES && !shown(&path).contains("snapshots") {
                found.push(format!("{}: {lines} lines", shown(&path)));
            }
        }
    }
    assert_none(&found, "a file has at most 900 lines:");
}

#[test]
fn nothing_names_the_machine_on_which_it_was_written() {
    // Where this checkout lies, what it lies in, and the hidden folders of whoever builds it.
    let mut places: Vec<String> = root().ancestors().map(|path| path.display().to_string()).collect();
    places.retain(|place| place.matches('/').count() > 1);
    let home = std::env::var("HOME").unwrap_or_default();
    places
        .extend([home, String::from("/root")].iter().filter(|h| h.len() > 1).map(|home| format!("{home}/.")));
    let mut found = Vec::new();
    for path in files(&root(), "") {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let whole = |place: &String| {
                line.match_indices(place.as_str()).any(|(at, _)| {
                    !line[at + place.len()..]
                        .starts_with(|c: char| c.is_alphanumeric() && !place.ends_with('.'))
                })
            };
            if places.iter().any(whole) {
                found.push(format!("{}:{} {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    assert_none(&found, "machine paths:");
}

#[test]
fn the_top_level_is_what_was_agreed() {
    for name in [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "CHANGELOG.md",
        "deny.toml",
        "src",
        "slurm",
        "scripts",
        "tests",
        "examples",
        "python",
        "docs",
        "benches",
        ".ci/run",
        "scripts/test",
        "scripts/demo",
        "scripts/build",
    ] {
        assert!(root().join(name).exists(), "{name} is missing");
    }
    use std::os::unix::fs::PermissionsExt as _;
    for name in [
        ".ci/run",
        "scripts/test",
        "scripts/demo",
        "scripts/build",
        "scripts/bench",
        "scripts/torch-env",
        "scripts/slurm-sandbox",
        "tests/sandbox/selftest",
    ] {
        let mode = std::fs::metadata(root().join(name)).unwrap().permissions().mode();
        assert!(mode & 0o111 == 0o111, "{name} is not executable");
    }
}
