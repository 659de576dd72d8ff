//! Frames of an exec stream: `[kind u8][length u32 big-endian][payload]`. Kinds and limits are those of
//! `packages/protocol/src/guest-api.ts`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Kinds of frames.
pub mod kind {
    /// Host to guest, first frame: the command as JSON.
    pub const SPEC: u8 = 0;
    /// Guest to host: standard output.
    pub const STDOUT: u8 = 1;
    /// Guest to host: standard error.
    pub const STDERR: u8 = 2;
    /// Guest to host: the terminal.
    pub const PTY: u8 = 3;
    /// Guest to host, first frame: id and pid as JSON.
    pub const START: u8 = 4;
    /// Guest to host, last frame: the result as JSON.
    pub const END: u8 = 5;
    /// Host to guest: standard input.
    pub const STDIN: u8 = 16;
    /// Host to guest: standard input ends here.
    pub const STDIN_EOF: u8 = 17;
}

/// Bytes of kind and length.
pub const HEADER_BYTES: usize = 5;
/// Largest payload of a data frame.
pub const PAYLOAD_MAX_BYTES: usize = 64 * 1024;
/// Largest command: the kernel takes no more than 2 MiB of arguments, JSON may double that.
pub const SPEC_MAX_BYTES: usize = 6 * 1024 * 1024;

/// One received frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of [`kind`].
    pub kind: u8,
    /// Its content.
    pub payload: Bytes,
}

/// A frame as it is sent.
pub fn encode(kind: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    frame.put_u8(kind);
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

/// A frame announced more than it may carry.
#[derive(Debug, PartialEq, Eq)]
pub struct FrameTooLarge {
    /// Kind of the frame.
    pub kind: u8,
    /// Length it announced.
    pub length: usize,
}

/// Collects bytes as they come and cuts frames out of them.
#[derive(Default)]
pub struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame.
    pub fn next(&mut self) -> Result<Option<Frame>, FrameTooLarge> {
        if self.buffer.len() < HEADER_BYTES {
            return Ok(None);
        }
        let kind = self.buffer[0];
        let length =
            u32::from_be_bytes([self.buffer[1], self.buffer[2], self.buffer[3], self.buffer[4]]) as usize;
        let limit = if kind == kind::SPEC { SPEC_MAX_BYTES } else { PAYLOAD_MAX_BYTES };
        if length > limit {
            return Err(FrameTooLarge { kind, length });
        }
        if self.buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(Frame { kind, payload: self.buffer.split_to(length).freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let mut bytes = encode(kind::STDIN, b"hello").to_vec();
        bytes.extend_from_slice(&encode(kind::STDIN_EOF, b""));
        bytes.extend_from_slice(&encode(kind::STDIN, &[0xff; 1000]));
        for cut in 1..bytes.len() {
            let mut reader = FrameReader::default();
            let mut frames = Vec::new();
            for part in bytes.chunks(cut) {
                reader.push(part);
                while let Some(frame) = reader.next().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 3, "cut at {cut}");
            assert_eq!(&frames[0].payload[..], b"hello");
            assert_eq!(frames[1], Frame { kind: kind::STDIN_EOF, payload: Bytes::new() });
            assert_eq!(frames[2].payload.len(), 1000);
        }
    }

    #[test]
    fn refuses_what_is_too_large_before_it_arrives() {
        let mut reader = FrameReader::default();
        reader.push(&[kind::STDIN, 0x7f, 0, 0, 0]);
        assert_eq!(reader.next(), Err(FrameTooLarge { kind: kind::STDIN, length: 0x7f00_0000 }));
    }

    #[test]
    fn a_command_may_be_larger_than_a_data_frame() {
        let mut reader = FrameReader::default();
        reader.push(&encode(kind::SPEC, &vec![b'x'; 200_000]));
        assert_eq!(reader.next().unwrap().unwrap().payload.len(), 200_000);
    }
}
