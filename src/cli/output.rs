//! Writing to the two streams. A reader that went away is no error.

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

/// `relight: error: …`, and `relight: hint: …` when there is one.
pub fn failure(failure: &Failure) {
    let mut text = format!("relight: error: {failure}");
    let mut cause = failure.source();
    while let Some(error) = cause {
        // Some sentences name their cause already.
        let said = error.to_string();
        let words = said.split(" (os error").next().unwrap_or_default();
        if !text.contains(words) {
            text.push_str(&format!(": {said}"));
        }
        cause = error.source();
    }
    text.push('\n');
    if let Some(hint) = failure.hint() {
        text.push_str(&format!("relight: hint: {hint}\n"));
    }
    complain(&text);
}
