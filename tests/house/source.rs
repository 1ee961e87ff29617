//! Just enough of Rust's grammar to read a source file: what is comment, what is text, what is code, what is test.

use std::path::{Path, PathBuf};

/// One source file.
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
    /// The same length and lines, but comments, strings and characters are blank.
    pub code: String,
    /// The same length and lines, but comments are blank.
    pub with_strings: String,
    /// It is compiled for tests only.
    pub is_test: bool,
    /// Where the unit tests at its end begin.
    pub tests_at: usize,
}

impl Source {
    /// Reads a file.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("source files can be read");
        Self::of(path, text)
    }

    /// Takes a file apart.
    pub fn of(path: &Path, text: String) -> Self {
        let (code, with_strings) = blank(&text);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = stem == "testing" || stem == "tests" || stem.ends_with("_tests");
        let tests_at = inline_tests(&code).unwrap_or(text.len());
        Self { path: path.to_owned(), text, code, with_strings, is_test, tests_at }
    }

    /// The code that is part of the program.
    pub fn program(&self) -> &str {
        if self.is_test { "" } else { &self.code[..self.tests_at] }
    }

    /// The same with its strings.
    pub fn program_with_strings(&self) -> &str {
        if self.is_test { "" } else { &self.with_strings[..self.tests_at] }
    }

    /// The line of a byte.
    pub fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

fn inline_tests(code: &str) -> Option<usize> {
    code.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|at| {
        let rest = code[*at..].trim_start_matches("#[cfg(test)]").trim_start();
        let head = rest.split(['{', ';']).next().unwrap_or_default();
        head.trim_end().ends_with("mod tests") && rest[head.len()..].starts_with('{')
    })
}

/// Positions of `word` in `code` where it stands alone.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(is_name) && !code[at + word.len()..].starts_with(is_name))
}

/// The names that directly follow `prefix` (`crate::`), braces taken apart: `crate::{a::b, c}` gives a and c.
pub fn follow(code: &str, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in words(code, prefix.trim_end_matches("::")) {
        let Some(rest) = code[at..].strip_prefix(prefix) else { continue };
        let start = at + prefix.len();
        if rest.starts_with('{') {
            let (mut depth, mut fresh) = (0, false);
            for (offset, c) in rest.char_indices() {
                match c {
                    '{' => (depth, fresh) = (depth + 1, depth == 0),
                    '}' => depth -= 1,
                    ',' => fresh = depth == 1,
                    c if c.is_whitespace() => {}
                    _ if fresh => {
                        found.push((start + offset, name_at(&rest[offset..])));
                        fresh = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            found.push((start, name_at(rest)));
        }
    }
    found
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Code without comments and literals, and code without comments only; bytes and lines keep their places.
fn blank(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut strings) = (bytes.to_vec(), bytes.to_vec());
    let wipe = |out: &mut Vec<u8>, from: usize, to: usize| {
        for byte in &mut out[from..to] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (end, is_comment) = match rest {
            [b'/', b'/', ..] => (at + line_length(rest), true),
            [b'/', b'*', ..] => (at + block_length(rest), true),
            [b'r', b'"' | b'#', ..] | [b'b', b'r', b'"' | b'#', ..] if !is_name_before(bytes, at) => {
                match raw_length(rest) {
                    Some(length) => (at + length, false),
                    None => (at, false),
                }
            }
            [b'"', ..] => (at + string_length(rest), false),
            [b'\'', ..] => (at + char_length(rest), false),
            _ => (at, false),
        };
        if end == at {
            at += 1;
            continue;
        }
        wipe(&mut code, at, end);
        if is_comment {
            wipe(&mut strings, at, end);
        }
        at = end;
    }
    let text = |bytes| String::from_utf8(bytes).expect("only whole characters were blanked");
    (text(code), text(strings))
}

fn is_name_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

fn block_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_length(rest: &[u8]) -> Option<usize> {
    let from = rest.iter().position(|b| *b == b'r')? + 1;
    let hashes = rest[from..].iter().take_while(|b| **b == b'#').count();
    if rest.get(from + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let body = from + hashes + 1;
    let length = rest[body..].windows(end.len()).position(|w| w == end)?;
    Some(body + length + end.len())
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character, or 0 for a lifetime.
fn char_length(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', ..] => rest.iter().skip(3).position(|b| *b == b'\'').map_or(0, |at| at + 4),
        _ => {
            let text = String::from_utf8_lossy(&rest[1..rest.len().min(8)]).into_owned();
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), Some('\'')) => c.len_utf8() + 2,
                _ => 0,
            }
        }
    }
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let text = "a('\"'); // crate::x\nlet s = \"crate::y\"; /* crate::z /* n */ */ let r = r#\"crate::\"w\"#; 'a: loop { b'\\'' }";
    let source = Source::of(Path::new("x.rs"), text.to_owned());
    assert_eq!(source.code.len(), text.len());
    assert!(!source.code.contains("crate::"), "{}", source.code);
    assert!(source.with_strings.contains("crate::y") && !source.with_strings.contains("crate::x"));
    assert!(source.code.contains("'a: loop"));
}

#[test]
fn paths_are_found_in_braces_and_alone() {
    let code = "use crate::{a::{b, c}, d}; use crate::e::f; mycrate::g; crate::h()";
    let names: Vec<String> = follow(code, "crate::").into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "d", "e", "h"]);
}

#[test]
fn tests_at_the_end_of_a_file_are_not_program() {
    let text = "use crate::a;\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod tests {\n use crate::c; }";
    let source = Source::of(Path::new("src/a/x.rs"), text.to_owned());
    assert!(source.program().contains("crate::a") && !source.program().contains("crate::c"));
    assert!(Source::of(Path::new("src/a/x_tests.rs"), text.to_owned()).program().is_empty());
}
