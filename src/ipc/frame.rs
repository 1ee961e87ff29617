//! One frame: a 4-byte little-endian length, then that many bytes of postcard. The length is checked before
//! anything is allocated.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// The largest frame either side accepts, in bytes.
pub const MAX_FRAME: usize = 8 << 20;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side closed between two frames.
    #[error("the other side closed the connection")]
    Closed,
    /// Longer than [`MAX_FRAME`].
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME}")]
    TooLong(usize),
    /// The bytes are no message of this type.
    #[error("a frame is not readable")]
    Codec(#[from] postcard::Error),
    /// The socket failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// The bytes of one frame, header included.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(message, vec![0_u8; 4])?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    let header = u32::try_from(length).map_err(|_| FrameError::TooLong(length))?.to_le_bytes();
    bytes[..4].copy_from_slice(&header);
    Ok(bytes)
}

/// Writes one frame; blocks as the socket does.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), FrameError> {
    to.write_all(&encode(message)?)?;
    Ok(to.flush()?)
}

/// Answers one frame with one, until the other side closes: the body of a worker. Gives the exit code of its process.
pub fn serve<Q: DeserializeOwned, A: Serialize>(
    mut socket: impl Read + Write,
    mut answer: impl FnMut(Q) -> A,
) -> i32 {
    loop {
        let answered = read(&mut socket).and_then(|question| write(&mut socket, &answer(question)));
        match answered {
            Ok(()) => {}
            Err(FrameError::Closed) => return 0,
            Err(_) => return 1,
        }
    }
}

/// Reads one frame; blocks as the socket does. A close between frames is [`FrameError::Closed`].
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, FrameError> {
    let mut header = [0_u8; 4];
    let mut have = 0;
    while have < 4 {
        match from.read(&mut header[have..]) {
            Ok(0) if have == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let length = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    let mut body = vec![0_u8; length];
    from.read_exact(&mut body)?;
    Ok(postcard::from_bytes(&body)?)
}
