//! The store proof: who reads back what another node has just written reads the same directory.

use std::path::Path;

use super::error::IoTrouble;
use super::faults::Hands;
use super::posix::{self, Created};
use crate::sys::{files, random};

/// The longest nonce that is read, in bytes.
const MAX_NONCE: usize = 128;

/// `N` fresh random bytes as hexadecimal text.
#[must_use]
pub fn random_hex<const N: usize>() -> String {
    random::bytes::<N>().iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes a fresh nonce file into `dir` (`<run directory>/nonce`) and returns its name, which is its content
/// too: a directory that only lists names does not prove that the bytes arrived.
pub fn write(hands: &mut Hands, dir: &Path) -> Result<String, IoTrouble> {
    let word = random_hex::<16>();
    match posix::create(hands, dir, &word, word.as_bytes())? {
        Created::Clean | Created::Exists => Ok(word),
    }
}

/// Leaves `word` in `dir`; false where it lay there before, or is no plain name.
pub fn claim(hands: &mut Hands, dir: &Path, word: &str) -> Result<bool, IoTrouble> {
    if !files::is_plain_name(word) || word.len() > MAX_NONCE {
        return Ok(false);
    }
    Ok(posix::create(hands, dir, word, word.as_bytes())? == Created::Clean)
}

/// Whether the nonce `word` can be read in `dir`.
pub fn proves(hands: &mut Hands, dir: &Path, word: &str) -> Result<bool, IoTrouble> {
    if !files::is_plain_name(word) || word.len() > MAX_NONCE {
        return Ok(false);
    }
    let read = posix::read_bytes(hands, &dir.join(word), MAX_NONCE)?;
    Ok(read.is_some_and(|bytes| bytes == word.as_bytes()))
}
