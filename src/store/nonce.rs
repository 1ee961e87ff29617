//! The store proof: who reads back what another node has just written reads the same directory.

use std::path::Path;

use super::error::IoTrouble;
use super::faults::Hands;
use super::posix::{self, Created};
use crate::sys::files;

/// The longest nonce that is read, in bytes.
const MAX_NONCE: usize = 128;

/// A fresh random number as hexadecimal text of so many bytes.
#[must_use]
pub fn random_hex(bytes: usize) -> Option<String> {
    let mut random = vec![0_u8; bytes];
    getrandom::fill(&mut random).ok()?;
    Some(random.iter().map(|b| format!("{b:02x}")).collect())
}

/// Writes a fresh nonce file into `dir` (`<run directory>/nonce`) and returns its name, which is its content
/// too: a directory that only lists names does not prove that the bytes arrived.
pub fn write(hands: &mut Hands, dir: &Path) -> Result<String, IoTrouble> {
    let failed = || IoTrouble::new("random number for", dir, std::io::Error::other("the kernel has none"));
    let word = random_hex(16).ok_or_else(failed)?;
    match posix::create(hands, dir, &word, word.as_bytes())? {
        Created::Clean | Created::Exists => Ok(word),
    }
}

/// Whether the nonce `word` can be read in `dir`.
pub fn proves(hands: &mut Hands, dir: &Path, word: &str) -> Result<bool, IoTrouble> {
    if !files::is_plain_name(word) || word.len() > MAX_NONCE {
        return Ok(false);
    }
    let read = posix::read_bytes(hands, &dir.join(word), MAX_NONCE)?;
    Ok(read.is_some_and(|bytes| bytes == word.as_bytes()))
}
