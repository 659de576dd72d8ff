//! Output kept while nobody is attached: the newest bytes up to a limit, in order, with the count of
//! those that had to go.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::frame::{self, PAYLOAD_MAX_BYTES};

/// Counted for each piece, so that a million one-byte writes do not cost a hundred times their size.
const PIECE_OVERHEAD_BYTES: usize = 64;

/// Pieces of output by kind (stdout, stderr, pty).
pub struct Ring {
    pieces: VecDeque<(u8, BytesMut)>,
    bytes: usize,
    limit: usize,
    dropped: u64,
}

impl Ring {
    /// Keeps up to `limit` bytes.
    pub fn new(limit: usize) -> Ring {
        Ring { pieces: VecDeque::new(), bytes: 0, limit, dropped: 0 }
    }

    /// Adds output at the end, dropping the oldest beyond the limit.
    pub fn push(&mut self, kind: u8, payload: &[u8]) {
        match self.pieces.back_mut() {
            Some((last, piece)) if *last == kind && piece.len() + payload.len() <= PAYLOAD_MAX_BYTES => {
                piece.extend_from_slice(payload);
                self.bytes += payload.len();
            }
            _ => {
                self.pieces.push_back((kind, BytesMut::from(payload)));
                self.bytes += payload.len() + PIECE_OVERHEAD_BYTES;
            }
        }
        self.trim();
    }

    /// Puts back output that was taken but not delivered, before everything else.
    pub fn push_front(&mut self, kind: u8, payload: &[u8]) {
        self.pieces.push_front((kind, BytesMut::from(payload)));
        self.bytes += payload.len() + PIECE_OVERHEAD_BYTES;
        self.trim();
    }

    fn trim(&mut self) {
        while self.bytes > self.limit {
            let Some((_, piece)) = self.pieces.front_mut() else {
                return;
            };
            let excess = self.bytes - self.limit;
            if piece.len() > excess {
                let _ = piece.split_to(excess);
                self.bytes -= excess;
                self.dropped += excess as u64;
            } else {
                let gone = piece.len();
                self.bytes -= gone + PIECE_OVERHEAD_BYTES;
                self.dropped += gone as u64;
                self.pieces.pop_front();
            }
        }
    }

    /// Takes all kept output out, as frames.
    pub fn take(&mut self) -> Vec<Bytes> {
        let frames = self.frames();
        self.pieces.clear();
        self.bytes = 0;
        frames
    }

    /// All kept output as frames; it stays.
    pub fn frames(&self) -> Vec<Bytes> {
        self.pieces.iter().map(|(kind, piece)| frame::encode(*kind, piece)).collect()
    }

    /// Forgets all kept output, counting it as dropped.
    pub fn discard(&mut self) {
        self.dropped += self.pieces.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>();
        self.pieces.clear();
        self.bytes = 0;
    }

    /// Changes the limit; what is above it goes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.trim();
    }

    /// Bytes kept, overhead included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of output that were not kept.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::frame::kind::{STDERR, STDOUT};

    fn text(ring: &mut Ring) -> Vec<(u8, Vec<u8>)> {
        ring.take().into_iter().map(|frame| (frame[0], frame[frame::HEADER_BYTES..].to_vec())).collect()
    }

    #[test]
    fn keeps_order_and_joins_neighbours() {
        let mut ring = Ring::new(1000);
        ring.push(STDOUT, b"a");
        ring.push(STDOUT, b"b");
        ring.push(STDERR, b"c");
        ring.push(STDOUT, b"d");
        assert_eq!(
            text(&mut ring),
            [(STDOUT, b"ab".to_vec()), (STDERR, b"c".to_vec()), (STDOUT, b"d".to_vec())]
        );
        assert_eq!((ring.bytes(), ring.dropped()), (0, 0));
    }

    #[test]
    fn the_newest_bytes_stay_and_the_others_are_counted() {
        let mut ring = Ring::new(100 + PIECE_OVERHEAD_BYTES);
        for byte in 0..200u8 {
            ring.push(STDOUT, &[byte]);
        }
        let kept = text(&mut ring);
        assert_eq!(kept[0].1, (100..200u8).collect::<Vec<_>>());
        assert_eq!(ring.dropped(), 100);
    }

    #[test]
    fn many_small_pieces_stay_within_the_limit() {
        let mut ring = Ring::new(10_000);
        for _ in 0..100_000 {
            ring.push(STDOUT, b"x");
            ring.push(STDERR, b"y");
        }
        assert!(ring.bytes() <= 10_000);
        assert!(ring.pieces.len() <= 10_000 / PIECE_OVERHEAD_BYTES);
        let kept: usize = text(&mut ring).iter().map(|(_, piece)| piece.len()).sum();
        assert_eq!(kept as u64 + ring.dropped(), 200_000);
    }

    #[test]
    fn undelivered_output_goes_back_to_the_front() {
        let mut ring = Ring::new(1000);
        ring.push(STDOUT, b"later");
        ring.push_front(STDERR, b"first");
        assert_eq!(text(&mut ring)[0], (STDERR, b"first".to_vec()));
    }

    #[test]
    fn a_piece_larger_than_the_limit_keeps_its_end() {
        let mut ring = Ring::new(PIECE_OVERHEAD_BYTES + 3);
        ring.push(STDOUT, b"abcdef");
        assert_eq!(text(&mut ring), [(STDOUT, b"def".to_vec())]);
        assert_eq!(ring.dropped(), 3);
    }
}
