//! Changes to an input: of bits, bytes, numbers, words, blocks, and with parts of another one.

/// splitmix64: the same seed gives the same inputs.
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Below `limit`; 0 for 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }

    /// A length: mostly short.
    fn short(&mut self) -> usize {
        let bits = self.below(11);
        1 + self.below(1 << bits)
    }
}

/// Numbers at which something turns.
const EDGES: [u64; 22] = [
    0,
    1,
    2,
    15,
    16,
    63,
    64,
    127,
    128,
    255,
    256,
    4_095,
    4_096,
    65_535,
    65_536,
    1 << 20,
    (1 << 20) + 1,
    8 << 20,
    (8 << 20) + 1,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];

/// Words of JSON, of Slurm's lists and of tracebacks.
const WORDS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "null",
    "-1",
    "1e309",
    "18446744073709551616",
    "0.1",
    "true",
    "\n",
    "\0",
    "\u{fffd}",
    "\u{202e}",
    "\x1b[",
    "=",
    "-",
    "[0-",
    "n[1-99999]",
    "001",
    "(x2)",
    "..",
    "/",
    "Traceback (most recent call last):\n",
    "  File \"a\", line 1, in f\n",
    "  | ",
    "During handling of",
    "Error: x\n",
    "%",
];

/// Changes `input` a few times; it gets no longer than `longest`.
pub fn mutate(dice: &mut Dice, input: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]], longest: usize) {
    let bits = dice.below(5);
    let times = 1 + dice.below(1 << bits);
    for _ in 0..times {
        once(dice, input, others, words);
        input.truncate(longest);
    }
}

fn once(dice: &mut Dice, input: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]]) {
    let length = input.len();
    let at = dice.below(length + 1);
    match dice.below(13) {
        0 if length > 0 => input[at % length] ^= 1 << dice.below(8),
        1 if length > 0 => input[at % length] = dice.next() as u8,
        2 if length > 0 => {
            input[at % length] = input[at % length].wrapping_add(if dice.below(2) == 0 { 1 } else { 255 })
        }
        3 => put(input, at, &number(dice), false),
        4 => put(input, at, &number(dice), true),
        5 => {
            let end = (at + dice.short()).min(length);
            input.drain(at..end);
        }
        6 => {
            let end = (at + dice.short()).min(length);
            let part = input[at..end].to_vec();
            let to = dice.below(length + 1);
            put(input, to, &part, true);
        }
        7 => {
            let end = (at + dice.short()).min(length);
            let part = input[at..end].repeat(1 + dice.short() / (1 + (end - at)));
            put(input, at, &part, true);
        }
        8 if !others.is_empty() => {
            let other = &others[dice.below(others.len())];
            let from = dice.below(other.len() + 1);
            let end = (from + dice.short()).min(other.len());
            let insert = dice.below(2) == 0;
            put(input, at, &other[from..end], insert);
        }
        9 if !others.is_empty() => {
            let other = &others[dice.below(others.len())];
            input.truncate(at);
            input.extend_from_slice(&other[dice.below(other.len() + 1)..]);
        }
        10 => {
            let insert = dice.below(2) == 0;
            if words.is_empty() || dice.below(2) == 0 {
                put(input, at, WORDS[dice.below(WORDS.len())].as_bytes(), insert);
            } else {
                put(input, at, words[dice.below(words.len())], insert);
            }
        }
        11 => {
            // A number in digits is another one.
            let digit = input[at..].iter().position(u8::is_ascii_digit).map(|n| at + n);
            if let Some(from) = digit {
                let end = input[from..].iter().position(|b| !b.is_ascii_digit()).map_or(length, |n| from + n);
                let edge = EDGES[dice.below(EDGES.len())].to_string();
                input.splice(from..end, edge.into_bytes());
            }
        }
        _ => input.truncate(at),
    }
}

/// An edge in one of the ways to write a number.
fn number(dice: &mut Dice) -> Vec<u8> {
    let mut edge = EDGES[dice.below(EDGES.len())];
    match dice.below(5) {
        0 => (edge as u16).to_le_bytes().to_vec(),
        1 => (edge as u32).to_le_bytes().to_vec(),
        2 => edge.to_le_bytes().to_vec(),
        3 => edge.to_be_bytes().to_vec(),
        _ => {
            // As postcard writes it.
            let mut bytes = Vec::new();
            while edge > 127 {
                bytes.push(edge as u8 | 128);
                edge >>= 7;
            }
            bytes.push(edge as u8);
            bytes
        }
    }
}

fn put(input: &mut Vec<u8>, at: usize, part: &[u8], insert: bool) {
    let end = if insert { at } else { (at + part.len()).min(input.len()) };
    input.splice(at..end, part.iter().copied());
}
