//! The run's secret: never in a command line, an event or a report.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// 32 random bytes that every process of a run knows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// A text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is 64 hexadecimal digits")]
pub struct NotASecret;

/// The system has no randomness to give.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness(#[from] getrandom::Error);

impl Secret {
    /// A secret of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A fresh one.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(Self(random()?))
    }

    /// The secret that follows from a text that people share.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Self {
        let digest = keyed(&[0; 32], &[b"relight text", text]).finalize().into_bytes();
        Self(digest.into())
    }

    /// Reads 64 hexadecimal digits; white space around them is allowed.
    pub fn from_hex(text: &str) -> Result<Self, NotASecret> {
        let text = text.trim().as_bytes();
        if text.len() != 64 {
            return Err(NotASecret);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            *byte = digit(pair[0]).zip(digit(pair[1])).map(|(h, l)| h << 4 | l).ok_or(NotASecret)?;
        }
        Ok(Self(bytes))
    }

    /// As [`Secret::from_hex`] reads it: for the file and the pipe that carry it.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// HMAC-SHA256 over the parts, each with its length before it.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        keyed(&self.0, parts)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// HMAC-SHA256 over the parts, each with its length before it: two lists of parts never read the same.
pub(super) fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut padded = [0; 64]; // the block of SHA-256: a shorter key is padded with zeros
    padded[..32].copy_from_slice(key);
    let mut mac = Hmac::new(&padded.into());
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_as_written_and_nothing_else_is() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&format!(" {}\n", secret.to_hex())), Ok(secret.clone()));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(bad), Err(NotASecret));
        }
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
