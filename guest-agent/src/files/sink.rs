//! Where the bytes of an upload go. Small files through the page cache; the rest of a large one past it:
//! filling the cache page by page takes most of the time of a large upload in an emulated machine, and
//! pushes out what the sandbox works with.

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;

use crate::os;

/// Bytes that go through the page cache. A multiple of [`BLOCK_BYTES`].
const CACHED_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of one direct write.
const BLOCK_BYTES: usize = 1024 * 1024;
/// Direct writes need memory and places aligned to the device's blocks, which are no larger than this.
const ALIGNMENT: usize = 4096;

/// Writes a file from its start.
pub struct Sink<'a> {
    file: &'a File,
    written: u64,
    direct: Option<Block>,
    direct_refused: bool,
}

/// Aligned memory that is being filled.
struct Block {
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Block {
    fn new() -> Block {
        let memory = vec![0; BLOCK_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Block { memory, start, filled: 0 }
    }

    /// Takes what has room; returns how much.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(BLOCK_BYTES - self.filled);
        let at = self.start + self.filled;
        self.memory[at..at + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    fn content(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled]
    }
}

impl<'a> Sink<'a> {
    /// An empty file, open for writing.
    pub fn new(file: &'a File) -> Sink<'a> {
        Sink { file, written: 0, direct: None, direct_refused: false }
    }

    /// Writes a piece.
    pub fn write(&mut self, piece: &Bytes) -> io::Result<()> {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            if let Some(block) = &mut self.direct {
                let count = block.fill(rest);
                rest = &rest[count..];
                if block.filled == BLOCK_BYTES {
                    self.file.write_all(block.content())?;
                    block.filled = 0;
                    self.written += BLOCK_BYTES as u64;
                }
                continue;
            }
            let cached_left = CACHED_BYTES.saturating_sub(self.written);
            if cached_left == 0 && !self.direct_refused {
                // Not every file system can (EINVAL): then all of it goes through the cache.
                match os::set_direct(self.file, true) {
                    Ok(()) => self.direct = Some(Block::new()),
                    Err(_) => self.direct_refused = true,
                }
                continue;
            }
            let count = if self.direct_refused { rest.len() } else { rest.len().min(cached_left as usize) };
            self.file.write_all(&rest[..count])?;
            self.written += count as u64;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Writes what is left; returns the size of the file.
    pub fn finish(mut self) -> io::Result<u64> {
        if let Some(block) = self.direct.take() {
            // The last block is not a whole one.
            os::set_direct(self.file, false)?;
            self.file.write_all(block.content())?;
            self.written += block.filled as u64;
        }
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_in_pieces(size: usize, piece: usize) {
        let path = std::env::temp_dir().join(format!("sandlot-sink-{}-{size}-{piece}", std::process::id()));
        let content: Vec<u8> = (0..size).map(|at| (at / 7 % 251) as u8).collect();
        let file = File::create(&path).unwrap();
        let mut sink = Sink::new(&file);
        for part in content.chunks(piece) {
            sink.write(&Bytes::copy_from_slice(part)).unwrap();
        }
        assert_eq!(sink.finish().unwrap(), size as u64);
        let back = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(back == content, "{size} bytes in pieces of {piece} came back different");
    }

    #[test]
    fn every_size_comes_back_as_it_was() {
        let cached = CACHED_BYTES as usize;
        for size in [0, 1, cached - 1, cached, cached + 1, cached + BLOCK_BYTES, cached + BLOCK_BYTES + 5] {
            write_in_pieces(size, 32_759);
        }
        write_in_pieces(cached + 3 * BLOCK_BYTES + 17, 1_000_003);
    }
}
