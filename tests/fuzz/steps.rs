//! Inputs that are a list of steps: `length (2, little-endian) | postcard`, one after the other. A step that cannot be
//! read is left out, so a change to one does not cost the others.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// So many steps of one input are taken.
pub const MOST: usize = 96;

/// The input of these steps.
pub fn write<T: Serialize>(steps: &[T]) -> Vec<u8> {
    let one = |step| {
        let bytes = postcard::to_stdvec(step).unwrap();
        [(bytes.len() as u16).to_le_bytes().to_vec(), bytes].concat()
    };
    steps.iter().flat_map(one).collect()
}

/// The steps of an input.
pub fn read<T: DeserializeOwned>(mut input: &[u8]) -> Vec<T> {
    let mut steps = Vec::new();
    while let Some((header, rest)) = input.split_first_chunk::<2>() {
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes(*header)).min(rest.len()));
        steps.extend(postcard::from_bytes(bytes).ok());
        input = rest;
        if steps.len() == MOST {
            break;
        }
    }
    steps
}
