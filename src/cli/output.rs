//! Writing to the two streams. A reader that went away is no error.

use std::borrow::Cow;
use std::error::Error as _;
use std::io::{self, Write as _};

use super::failure::Failure;

/// Writes a text to standard output.
///
/// # Errors
/// The stream cannot be written, except that nobody reads it any more.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print`], for what a rank wrote.
///
/// # Errors
/// As [`print`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a text to standard error, as well as that works.
pub fn complain(text: &str) {
    let mut out = io::stderr().lock();
    // There is nobody left to tell.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What was typed is said again, but nobody wants to read a megabyte of it: a longer word, or a longer sentence, loses
/// its middle.
fn shortened(sentence: &str) -> String {
    const WORD: usize = 300;
    const SENTENCE: usize = 3_000;
    let words = sentence.split_inclusive(char::is_whitespace).map(|word| without_middle(word, WORD));
    without_middle(&words.collect::<String>(), SENTENCE).into_owned()
}

/// At most about so many bytes of it.
fn without_middle(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let whole = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=most * 3 / 4).rev().find(whole).unwrap_or(0);
    let tail = (text.len() - most / 8..=text.len()).find(whole).unwrap_or(text.len());
    format!("{}…({} bytes)…{}", &text[..head], text.len(), &text[tail..]).into()
}

/// `relight: error: …`, and `relight: hint: …` when there is one.
pub fn failure(failure: &Failure) {
    let mut text = shortened(&format!("relight: error: {failure}"));
    let mut cause = failure.source();
    while let Some(error) = cause {
        // Some sentences name their cause already.
        let said = error.to_string();
        let words = said.split(" (os error").next().unwrap_or_default();
        if !text.contains(words) {
            text.push_str(&shortened(&format!(": {said}")));
        }
        cause = error.source();
    }
    text.push('\n');
    if let Some(hint) = failure.hint() {
        text.push_str(&shortened(&format!("relight: hint: {hint}\n")));
    }
    complain(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_huge_loses_its_middle() {
        let short = "relight: error: --nnodes '2:1' says more nodes at least than at most\n";
        assert_eq!(shortened(short), short);
        for huge in ["x".repeat(2_000_000), "é".repeat(700_001), "1 ".repeat(1_000_000)] {
            let said = shortened(&format!("relight: error: --nnodes '{huge}' is neither N nor MIN:MAX\n"));
            assert!(said.len() < 4_000, "{} bytes", said.len());
            assert!(said.starts_with("relight: error: --nnodes '") && said.ends_with("MIN:MAX\n"), "{said}");
            assert!(said.contains("bytes)"), "{said}");
        }
    }
}
