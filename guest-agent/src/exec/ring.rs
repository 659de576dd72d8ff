//! The newest output of a command, up to a limit, in order, whether somebody got it or not, with the count
//! of the bytes that went before anybody did.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};

use super::frame::{self, PAYLOAD_MAX_BYTES};
use super::position::Offsets;

/// Counted for each piece, so that a million one-byte writes do not cost a hundred times their size.
const PIECE_OVERHEAD_BYTES: usize = 64;

/// How far, in bytes of all kinds, output has been handed to somebody. Shared with the readers.
#[derive(Default)]
pub struct Handed {
    until: Cell<u64>,
    lost: Cell<u64>,
}

impl Handed {
    /// Somebody took the bytes `from..until`.
    pub fn note(&self, from: u64, until: u64) {
        let before = self.until.get();
        if until > before {
            self.lost.set(self.lost.get() + from.saturating_sub(before));
            self.until.set(until);
        }
    }
}

/// A frame of output for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// As it is sent.
    pub frame: Bytes,
    /// Bytes of all kinds before it.
    pub from: u64,
    /// The same at its end.
    pub until: u64,
}

/// Pieces of output by kind (stdout, stderr, pty).
pub struct Ring {
    pieces: VecDeque<(u8, BytesMut)>,
    bytes: usize,
    limit: usize,
    begin: Offsets,
    end: Offsets,
    handed: Rc<Handed>,
}

impl Ring {
    /// Keeps up to `limit` bytes.
    pub fn new(limit: usize) -> Ring {
        Ring {
            pieces: VecDeque::new(),
            bytes: 0,
            limit,
            begin: Offsets::default(),
            end: Offsets::default(),
            handed: Rc::default(),
        }
    }

    /// What has been handed out; readers note it here.
    pub fn handed(&self) -> Rc<Handed> {
        self.handed.clone()
    }

    /// Adds output at the end, dropping the oldest beyond the limit.
    pub fn push(&mut self, kind: u8, payload: &[u8]) {
        *self.end.of(kind) += payload.len() as u64;
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

    /// Counts output that need not be kept. What was kept before it goes too.
    pub fn pass(&mut self, kind: u8, payload: &[u8]) {
        *self.end.of(kind) += payload.len() as u64;
        self.discard();
    }

    fn trim(&mut self) {
        while self.bytes > self.limit && !self.pieces.is_empty() {
            self.drop_oldest(self.bytes - self.limit);
        }
    }

    /// Forgets up to so many bytes of the oldest piece; tells how many these were.
    fn drop_oldest(&mut self, bytes: usize) -> usize {
        let Some((kind, piece)) = self.pieces.front_mut() else {
            return 0;
        };
        let gone = bytes.min(piece.len());
        *self.begin.of(*kind) += gone as u64;
        self.bytes -= gone;
        piece.advance(gone);
        if piece.is_empty() {
            self.bytes -= PIECE_OVERHEAD_BYTES;
            self.pieces.pop_front();
        }
        gone
    }

    /// Where the kept output begins.
    pub fn begin(&self) -> Offsets {
        self.begin
    }

    /// Where the output ends, as yet.
    pub fn end(&self) -> Offsets {
        self.end
    }

    /// Where begins what nobody has got.
    pub fn unhanded(&self) -> Offsets {
        let mut at = self.begin;
        let mut left = self.handed.until.get().saturating_sub(at.total());
        for (kind, piece) in &self.pieces {
            let passed = left.min(piece.len() as u64);
            *at.of(*kind) += passed;
            left -= passed;
            if left == 0 {
                break;
            }
        }
        at
    }

    /// Kept output from there on.
    pub fn after(&self, from: &Offsets) -> Vec<Piece> {
        let (mut at, mut from) = (self.begin, *from);
        let mut pieces = Vec::new();
        for (kind, piece) in &self.pieces {
            let before = at.total();
            let begin = *at.of(*kind);
            *at.of(*kind) += piece.len() as u64;
            let skipped = from.of(*kind).saturating_sub(begin);
            if skipped < piece.len() as u64 {
                pieces.push(Piece {
                    frame: frame::encode(*kind, &piece[skipped as usize..]),
                    from: before + skipped,
                    until: at.total(),
                });
            }
        }
        pieces
    }

    /// Forgets what somebody has got.
    pub fn discard_handed(&mut self) {
        let mut left = (self.unhanded().total() - self.begin.total()) as usize;
        while left > 0 {
            left -= self.drop_oldest(left);
        }
    }

    /// Forgets all kept output.
    pub fn discard(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
        self.begin = self.end;
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

    /// Bytes of output that were not kept, and that nobody has got.
    pub fn dropped(&self) -> u64 {
        self.handed.lost.get() + self.begin.total().saturating_sub(self.handed.until.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::frame::kind::{STDERR, STDOUT};

    fn text(pieces: Vec<Piece>) -> Vec<(u8, Vec<u8>)> {
        let text = |piece: Piece| (piece.frame[0], piece.frame[frame::HEADER_BYTES..].to_vec());
        pieces.into_iter().map(text).collect()
    }

    fn all(ring: &Ring) -> Vec<(u8, Vec<u8>)> {
        text(ring.after(&ring.begin()))
    }

    #[test]
    fn keeps_order_and_joins_neighbours() {
        let mut ring = Ring::new(1000);
        ring.push(STDOUT, b"a");
        ring.push(STDOUT, b"b");
        ring.push(STDERR, b"c");
        ring.push(STDOUT, b"d");
        assert_eq!(all(&ring), [(STDOUT, b"ab".to_vec()), (STDERR, b"c".to_vec()), (STDOUT, b"d".to_vec())]);
        assert_eq!(ring.end(), Offsets { stdout: 3, stderr: 1, pty: 0 });
        assert_eq!(ring.dropped(), 0);
    }

    #[test]
    fn the_newest_bytes_stay_and_the_others_are_counted() {
        let mut ring = Ring::new(100 + PIECE_OVERHEAD_BYTES);
        for byte in 0..200u8 {
            ring.push(STDOUT, &[byte]);
        }
        assert_eq!(all(&ring)[0].1, (100..200u8).collect::<Vec<_>>());
        assert_eq!((ring.dropped(), ring.begin().stdout), (100, 100));
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
        let kept: usize = all(&ring).iter().map(|(_, piece)| piece.len()).sum();
        assert_eq!(kept as u64 + ring.dropped(), 200_000);
    }

    #[test]
    fn begins_for_each_kind_where_it_is_asked_to() {
        let mut ring = Ring::new(1000);
        ring.push(STDOUT, b"abc");
        ring.push(STDERR, b"xyz");
        ring.push(STDOUT, b"def");
        let from = Offsets { stdout: 4, stderr: 1, pty: 0 };
        assert_eq!(text(ring.after(&from)), [(STDERR, b"yz".to_vec()), (STDOUT, b"ef".to_vec())]);
        assert_eq!(text(ring.after(&ring.end())), []);
    }

    #[test]
    fn what_was_handed_out_is_not_dropped() {
        let mut ring = Ring::new(PIECE_OVERHEAD_BYTES + 4);
        ring.push(STDOUT, b"abcd");
        ring.handed().note(0, 3);
        assert_eq!(ring.unhanded().stdout, 3);
        ring.push(STDOUT, b"efgh");
        // a, b and c had gone to somebody, d to nobody.
        assert_eq!((all(&ring), ring.dropped()), (vec![(STDOUT, b"efgh".to_vec())], 1));
        ring.handed().note(4, 8);
        ring.push(STDOUT, b"ijkl");
        assert_eq!(ring.dropped(), 1);
    }

    #[test]
    fn what_was_handed_out_can_be_forgotten() {
        let mut ring = Ring::new(1000);
        ring.push(STDOUT, b"abc");
        ring.push(STDERR, b"de");
        ring.handed().note(0, 4);
        ring.discard_handed();
        assert_eq!((all(&ring), ring.bytes()), (vec![(STDERR, b"e".to_vec())], 1 + PIECE_OVERHEAD_BYTES));
        ring.discard();
        assert_eq!((ring.dropped(), ring.bytes()), (1, 0));
    }

    #[test]
    fn a_piece_larger_than_the_limit_keeps_its_end() {
        let mut ring = Ring::new(PIECE_OVERHEAD_BYTES + 3);
        ring.push(STDOUT, b"abcdef");
        assert_eq!((all(&ring), ring.dropped()), (vec![(STDOUT, b"def".to_vec())], 3));
    }
}
