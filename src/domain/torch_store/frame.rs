//! Requests in bytes: where one ends, and what it says. Every length is checked before a byte of what it announces is
//! waited for.

use super::{MAGIC, MOST_FRAME, MOST_KEY, MOST_KEYS, MOST_VALUE};

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It was not taken in, or is closed already.
    #[error("is no client of this store")]
    Stranger,
    /// There is no such request, or not any more: `VALIDATE` comes once.
    #[error("sent request {0}, which there is not")]
    Unknown(u8),
    /// It begins as HTTP, gRPC or TLS does: it takes this for a server of the program's own.
    #[error("speaks another protocol than the store's (HTTP, gRPC or TLS)")]
    Other,
    /// Longer than [`MOST_KEY`].
    #[error("sent a key of {0} bytes")]
    KeyTooLong(u64),
    /// Longer than [`MOST_VALUE`].
    #[error("sent a value of {0} bytes")]
    ValueTooLong(u64),
    /// More than [`MOST_KEYS`].
    #[error("named {0} keys at once")]
    TooManyKeys(u64),
    /// The whole request is longer than [`MOST_FRAME`].
    #[error("sent a request of more than 64 MiB")]
    RequestTooLong,
    /// The reply would be longer than [`MOST_FRAME`].
    #[error("asked for a reply of more than 64 MiB")]
    ReplyTooLong,
    /// `ADD` or `BARRIER` to a value that is no decimal number.
    #[error("added to a value that is no number")]
    NotANumber,
    /// It waits already.
    #[error("waits twice at once")]
    WaitsTwice,
    /// There is no room for what it sent.
    #[error("sent more than the store has room for")]
    Full,
    /// All connections together are over their bound, and this one holds most.
    #[error("held most of the 1 GiB that may be on its way to and from all connections")]
    Holds,
}

impl Fault {
    /// There is no request with this number. Letters are the beginning of `PRI * HTTP/2.0`, `GET` and the like, 22 of TLS.
    pub(super) fn unknown(first: u8) -> Self {
        const TLS: u8 = 22;
        if first.is_ascii_uppercase() || first == TLS { Self::Other } else { Self::Unknown(first) }
    }
}

/// The first bytes of a number.
pub(super) mod code {
    pub(crate) const VALIDATE: u8 = 0;
    pub(crate) const SET: u8 = 1;
    pub(crate) const COMPARE_SET: u8 = 2;
    pub(crate) const GET: u8 = 3;
    pub(crate) const ADD: u8 = 4;
    pub(crate) const CHECK: u8 = 5;
    pub(crate) const WAIT: u8 = 6;
    pub(crate) const GETNUMKEYS: u8 = 7;
    pub(crate) const DELETE_KEY: u8 = 8;
    pub(crate) const APPEND: u8 = 9;
    pub(crate) const MULTI_GET: u8 = 10;
    pub(crate) const MULTI_SET: u8 = 11;
    pub(crate) const CANCEL_WAIT: u8 = 12;
    pub(crate) const PING: u8 = 13;
    pub(crate) const QUEUE_PUSH: u8 = 14;
    pub(crate) const QUEUE_POP: u8 = 15;
    pub(crate) const QUEUE_LEN: u8 = 16;
    pub(crate) const LIST_KEYS: u8 = 17;
    pub(crate) const BARRIER: u8 = 18;
}

/// How a client numbers its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// It says `VALIDATE` first.
    Validated,
    /// As torch 2.1: it says nothing first, and its numbers are one less, up to `CANCEL_WAIT`. It has none of those behind.
    Plain,
}

impl Dialect {
    /// What the first bytes of a connection tell; `None`: there are too few of them. There is no doubt: with the magic number
    /// as the beginning of its length, no key of a `SET` in the other dialect is short enough.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut hello = [code::VALIDATE; 5];
        hello[1..].copy_from_slice(&MAGIC.to_le_bytes());
        let known = bytes.len().min(hello.len());
        if bytes[..known] != hello[..known] {
            Some(Self::Plain)
        } else {
            (known == hello.len()).then_some(Self::Validated)
        }
    }

    /// The code of the request whose first byte this is.
    fn code(self, first: u8) -> Result<u8, Fault> {
        let code = match self {
            Self::Validated => Some(first),
            Self::Plain => first.checked_add(1).filter(|code| *code <= code::CANCEL_WAIT),
        };
        code.ok_or(Fault::unknown(first))
    }
}

/// What follows the request's code.
#[derive(Clone, Copy)]
enum Strings {
    /// A key, then so many values.
    Values(u32),
    /// A count and so many keys.
    Keys,
    /// A count and so many pairs of key and value.
    Pairs,
    /// None.
    None,
}

/// Strings, then a tail of fixed length.
fn shape(opcode: u8) -> Option<(Strings, usize)> {
    Some(match opcode {
        code::VALIDATE | code::PING => (Strings::None, 4),
        code::SET | code::APPEND | code::QUEUE_PUSH => (Strings::Values(1), 0),
        code::COMPARE_SET => (Strings::Values(2), 0),
        code::GET | code::DELETE_KEY | code::QUEUE_POP | code::QUEUE_LEN => (Strings::Values(0), 0),
        code::ADD | code::BARRIER => (Strings::Values(0), 8),
        code::CHECK | code::WAIT | code::MULTI_GET => (Strings::Keys, 0),
        code::MULTI_SET => (Strings::Pairs, 0),
        code::GETNUMKEYS | code::CANCEL_WAIT | code::LIST_KEYS => (Strings::None, 0),
        _ => return None,
    })
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Finds the end of the first request in bytes that come in pieces. Remembers how far it came, so that a request that
/// comes byte by byte is read once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanner {
    /// Everything before is checked; 0: nothing is.
    at: u32,
    /// Strings that are still to come.
    left: u32,
    /// Known with the first request.
    dialect: Option<Dialect>,
}

impl Scanner {
    /// One of a connection of which it is known how it speaks.
    #[must_use]
    pub fn of(dialect: Dialect) -> Self {
        Self { dialect: Some(dialect), ..Self::default() }
    }

    /// The length of the first request, once all of it is there. `bytes` begins where it begins, and is what the last
    /// call had, maybe with more behind it.
    ///
    /// # Errors
    /// The request cannot be one, whatever follows.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let Some(dialect) = self.dialect.or_else(|| Dialect::of(bytes)) else { return Ok(None) };
        self.dialect = Some(dialect);
        let (strings, tail) = shape(dialect.code(first)?).ok_or(Fault::unknown(first))?;
        if self.at == 0 {
            (self.at, self.left) = match strings {
                Strings::None => (1, 0),
                Strings::Values(values) => (1, values + 1),
                Strings::Keys | Strings::Pairs => {
                    let Some(count) = u64_at(bytes, 1) else { return Ok(None) };
                    if count > MOST_KEYS {
                        return Err(Fault::TooManyKeys(count));
                    }
                    let count = u32::try_from(count).unwrap_or(0);
                    (9, if matches!(strings, Strings::Pairs) { count * 2 } else { count })
                }
            };
        }
        while self.left > 0 {
            let at = self.at as usize;
            let Some(length) = u64_at(bytes, at) else { return Ok(None) };
            let is_key = match strings {
                Strings::Values(values) => self.left > values,
                Strings::Keys | Strings::None => true,
                Strings::Pairs => self.left.is_multiple_of(2),
            };
            if is_key && length > MOST_KEY {
                return Err(Fault::KeyTooLong(length));
            }
            if length > MOST_VALUE {
                return Err(Fault::ValueTooLong(length));
            }
            let end = at + 8 + usize::try_from(length).unwrap_or(MOST_FRAME);
            if end > MOST_FRAME {
                return Err(Fault::RequestTooLong);
            }
            if end > bytes.len() {
                return Ok(None);
            }
            self.at = u32::try_from(end).unwrap_or(u32::MAX);
            self.left -= 1;
        }
        let end = self.at as usize + tail;
        if end > bytes.len() {
            return Ok(None);
        }
        *self = Self::of(dialect);
        Ok(Some(end))
    }
}

/// Strings one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for List<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(u64_at(self.bytes, 0)?).ok()?;
        let (string, rest) = self.bytes.get(8..)?.split_at_checked(length)?;
        self.bytes = rest;
        Some(string)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request<'a> {
    Validate {
        magic: u32,
    },
    Set {
        key: &'a [u8],
        value: &'a [u8],
    },
    CompareSet {
        key: &'a [u8],
        expected: &'a [u8],
        desired: &'a [u8],
    },
    Get {
        key: &'a [u8],
    },
    Add {
        key: &'a [u8],
        delta: i64,
    },
    Check {
        keys: List<'a>,
    },
    Wait {
        keys: List<'a>,
    },
    NumKeys,
    Delete {
        key: &'a [u8],
    },
    Append {
        key: &'a [u8],
        value: &'a [u8],
    },
    MultiGet {
        keys: List<'a>,
    },
    /// Key and value in turn.
    MultiSet {
        pairs: List<'a>,
    },
    CancelWait,
    Ping {
        nonce: [u8; 4],
    },
    QueuePush {
        key: &'a [u8],
        value: &'a [u8],
    },
    QueuePop {
        key: &'a [u8],
    },
    QueueLen {
        key: &'a [u8],
    },
    ListKeys,
    Barrier {
        key: &'a [u8],
        world: i64,
    },
}

impl<'a> Request<'a> {
    /// What these bytes say: exactly one request, as [`Scanner`] found it. `None` for anything else.
    #[must_use]
    pub fn read(bytes: &'a [u8], dialect: Dialect) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        let opcode = dialect.code(first).ok()?;
        let mut strings = List { bytes: rest };
        let counted = || rest.get(8..).map(|bytes| List { bytes });
        let four = || rest.get(..4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        Some(match opcode {
            code::VALIDATE => Self::Validate { magic: u32::from_le_bytes(four()?) },
            code::SET => Self::Set { key: strings.next()?, value: strings.next()? },
            code::COMPARE_SET => {
                Self::CompareSet { key: strings.next()?, expected: strings.next()?, desired: strings.next()? }
            }
            code::GET => Self::Get { key: strings.next()? },
            code::ADD => Self::Add { key: strings.next()?, delta: number(strings)? },
            code::CHECK => Self::Check { keys: counted()? },
            code::WAIT => Self::Wait { keys: counted()? },
            code::GETNUMKEYS => Self::NumKeys,
            code::DELETE_KEY => Self::Delete { key: strings.next()? },
            code::APPEND => Self::Append { key: strings.next()?, value: strings.next()? },
            code::MULTI_GET => Self::MultiGet { keys: counted()? },
            code::MULTI_SET => Self::MultiSet { pairs: counted()? },
            code::CANCEL_WAIT => Self::CancelWait,
            code::PING => Self::Ping { nonce: four()? },
            code::QUEUE_PUSH => Self::QueuePush { key: strings.next()?, value: strings.next()? },
            code::QUEUE_POP => Self::QueuePop { key: strings.next()? },
            code::QUEUE_LEN => Self::QueueLen { key: strings.next()? },
            code::LIST_KEYS => Self::ListKeys,
            code::BARRIER => Self::Barrier { key: strings.next()?, world: number(strings)? },
            _ => return None,
        })
    }
}

/// The number behind the strings.
fn number(strings: List<'_>) -> Option<i64> {
    u64_at(strings.bytes, 0).map(u64::cast_signed)
}
