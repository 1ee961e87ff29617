//! The kernel's randomness.

/// So many random bytes, fit for secrets.
///
/// # Panics
/// If the kernel gives none: neither `getrandom` (Linux 3.17) nor `/dev/urandom`; nothing safe can be done then.
#[must_use]
#[allow(clippy::expect_used)]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    getrandom::fill(&mut out).expect("invariant: Linux has a random source");
    out
}

/// A random number.
///
/// # Panics
/// As [`bytes`].
#[must_use]
pub fn u64() -> u64 {
    u64::from_le_bytes(bytes())
}
