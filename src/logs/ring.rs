//! The last bytes of a stream, in bounded memory.

/// Keeps the last `limit` bytes that were pushed.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Vec<u8>,
    /// Where the oldest byte lies once `bytes` is full.
    start: usize,
    limit: usize,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, limit }
    }

    pub(super) fn push(&mut self, new: &[u8]) {
        let new = &new[new.len().saturating_sub(self.limit)..];
        let grow = new.len().min(self.limit - self.bytes.len());
        let (fresh, over) = new.split_at(grow);
        if self.bytes.capacity() < self.bytes.len() + fresh.len() {
            // Doubling, but never beyond the limit: most ranks print little.
            let wanted =
                (self.bytes.len() + fresh.len()).next_power_of_two().clamp(1024, self.limit.max(1024));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(fresh);
        let mut over = over;
        while !over.is_empty() {
            let n = over.len().min(self.limit - self.start);
            self.bytes[self.start..self.start + n].copy_from_slice(&over[..n]);
            self.start = (self.start + n) % self.limit;
            over = &over[n..];
        }
    }

    /// The bytes, oldest first; the ring is empty afterwards.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.bytes.rotate_left(self.start);
        self.start = 0;
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ring_is_the_suffix(limit in 1_usize..40, parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut ring = Ring::new(limit);
            let all: Vec<u8> = parts.concat();
            for p in &parts {
                ring.push(p);
            }
            prop_assert_eq!(ring.take(), all[all.len().saturating_sub(limit)..].to_vec());
            prop_assert!(ring.take().is_empty());
        }
    }
}
