//! The list of modules in `docs/architecture.md` is the first sentence of each module. To renew it:
//! `RELIGHT_UPDATE_DOCS=1 cargo nextest run -E 'binary(house)'`.

use std::fmt::Write as _;
use std::path::Path;

use crate::layering::ROOMS;
use crate::source::Source;
use crate::{files, root, shown};

const BEGIN: &str = "<!-- made from the first sentence of each module -->\n";
const END: &str = "<!-- end -->";

/// The module's name below `src`: `store/posix`.
fn name(path: &Path) -> String {
    let name = shown(path);
    let name = name.trim_start_matches("src/").trim_end_matches(".rs");
    name.trim_end_matches("/mod").to_owned()
}

/// The first sentence of the module's documentation, links taken off.
fn sentence(source: &Source) -> String {
    let lines = source.text.lines().skip_while(|line| !line.starts_with("//!"));
    let paragraph: Vec<&str> = lines
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with("```"))
        .collect();
    let text = paragraph.join(" ").replace("[`", "`").replace("`]", "`").replace("crate::", "");
    let end = text.match_indices(['.', '?']).map(|(at, _)| at + 1);
    let end = end.filter(|at| text[*at..].is_empty() || text[*at..].starts_with(' ')).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

fn table() -> String {
    let src = root().join("src");
    let mut out = String::new();
    for (room, _) in ROOMS {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n| `{room}` | |\n|---|---|\n");
        for path in files(&src.join(room), ".rs") {
            let source = Source::read(&path);
            if !source.is_test {
                let _ = writeln!(out, "| `{}` | {} |", name(&path), sentence(&source).replace('|', "\\|"));
            }
        }
    }
    out.push('\n');
    out
}

#[test]
fn every_module_says_what_it_is_for() {
    let mut found = Vec::new();
    for path in files(&root().join("src"), ".rs") {
        let source = Source::read(&path);
        if !source.is_test && sentence(&source).len() < 10 {
            found.push(shown(&path));
        }
    }
    crate::assert_none(&found, "a module begins with a sentence (`//!`) that says what it is for:");
}

#[test]
fn the_list_of_modules_is_up_to_date() {
    let path = root().join("docs/architecture.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the marker of the beginning");
    let (_, after) = rest.split_once(END).expect("the marker of the end");
    let renewed = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("RELIGHT_UPDATE_DOCS").is_some() {
        std::fs::write(&path, renewed).unwrap();
    } else {
        assert!(
            page == renewed,
            "docs/architecture.md lists other modules: run again with RELIGHT_UPDATE_DOCS=1"
        );
    }
}
