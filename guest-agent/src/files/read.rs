//! `GET /files`: a file or a window of it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::Path;

use bytes::Bytes;

use crate::http::error::CallError;
use crate::os;

/// Bytes read at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// So much of a file is read through the page cache; the rest of a large one past it, if its file system can:
/// filling the cache page by page takes three times as long in an emulated machine, and pushes out what the
/// sandbox works with. What is in the cache already comes as fast either way.
const CACHED_BYTES: u64 = 8 * 1024 * 1024;
/// Direct reads need memory and places aligned to the device's blocks, which are no larger than this.
const ALIGNMENT: usize = 4096;

/// An open file and the part of it that was asked for.
pub struct Window {
    file: File,
    /// Size of the whole file when it was opened; 0 also for files of /proc, which have none.
    pub size: u64,
    /// First byte.
    pub offset: u64,
    length: Option<u64>,
}

/// Opens a regular file. A negative offset counts from the end; a window may reach past the end.
pub fn open(path: &Path, shown: &Path, offset: i64, length: Option<u64>) -> Result<Window, CallError> {
    let failed = |error: io::Error| CallError::from_io(format!("read {}", shown.display()), &error);
    // Without O_NONBLOCK a pipe without a writer would hold this thread for ever.
    let file = os::open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0).map_err(failed)?;
    let mut file = File::from(file);
    let found = file.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(failed(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if !found.is_file() {
        return Err(CallError::invalid(format!("read {}: it is not a regular file", shown.display())));
    }
    let size = found.len();
    let (offset, length) = place_window(size, offset, length);
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    }
    Ok(Window { file, size, offset, length })
}

/// Start and length of a window. A file that grows meanwhile is not read beyond its size at the opening;
/// one without a size (in /proc) is read to its end.
fn place_window(size: u64, offset: i64, length: Option<u64>) -> (u64, Option<u64>) {
    let offset = if offset < 0 { size.saturating_sub(offset.unsigned_abs()) } else { offset as u64 };
    if size == 0 {
        return (offset, length);
    }
    let rest = size.saturating_sub(offset);
    (offset, Some(length.map_or(rest, |length| length.min(rest))))
}

impl Window {
    /// Sends the window.
    pub fn send_to(self, mut send: impl FnMut(Bytes) -> io::Result<()>) -> io::Result<()> {
        let mut sent = 0;
        let mut left = self.length.unwrap_or(u64::MAX);
        let mut is_direct = false;
        while left > 0 {
            if sent == CACHED_BYTES {
                is_direct = is_aligned(self.offset) && os::set_direct(&self.file, true).is_ok();
            }
            let want = PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES));
            let piece = match read_piece(&self.file, if is_direct { PIECE_BYTES } else { want }) {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Refused in the middle, as by a file system that cannot after all.
                Err(error) if is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                    os::set_direct(&self.file, false)?;
                    is_direct = false;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A direct read takes whole blocks, also where the file has grown beyond the window.
            let piece = piece.slice(..piece.len().min(want));
            sent += piece.len() as u64;
            left -= piece.len() as u64;
            if is_direct && !is_aligned(piece.len() as u64) {
                // The end of the file, or of what was in it; what may come after is not at a block's start.
                os::set_direct(&self.file, false)?;
                is_direct = false;
            }
            send(piece)?;
        }
        Ok(())
    }
}

fn is_aligned(number: u64) -> bool {
    number % ALIGNMENT as u64 == 0
}

/// Reads once into aligned memory; empty at the end.
fn read_piece(file: &File, size: usize) -> io::Result<Bytes> {
    let mut memory: Vec<u8> = Vec::with_capacity(size + ALIGNMENT);
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    // SAFETY: start + size is within the capacity, since aligning takes less than ALIGNMENT.
    let got = unsafe { libc::read(file.as_raw_fd(), memory.as_mut_ptr().add(start).cast(), size) };
    let got = os::check_long(got as libc::c_long)? as usize;
    // SAFETY: the kernel has filled `got` bytes after `start`; those before are set here.
    unsafe {
        memory.as_mut_ptr().write_bytes(0, start);
        memory.set_len(start + got);
    }
    Ok(Bytes::from(memory).slice(start..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        assert_eq!(place_window(100, 0, None), (0, Some(100)));
        assert_eq!(place_window(100, 10, Some(20)), (10, Some(20)));
        assert_eq!(place_window(100, -30, None), (70, Some(30)));
        assert_eq!(place_window(100, -30, Some(10)), (70, Some(10)));
        assert_eq!(place_window(100, -500, None), (0, Some(100)));
        assert_eq!(place_window(100, 90, Some(50)), (90, Some(10)));
        assert_eq!(place_window(100, 500, Some(50)), (500, Some(0)));
        assert_eq!(place_window(0, 0, None), (0, None));
    }

    #[test]
    fn a_large_file_comes_whole_from_every_place() {
        let path = std::env::temp_dir().join(format!("sandlot-read-{}", std::process::id()));
        let size = CACHED_BYTES as usize + 5 * PIECE_BYTES + 17;
        let content: Vec<u8> = (0..size).map(|at| (at / 7 % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        for (offset, length) in [(0, None), (4096, None), (5, None), (0, Some(size as u64 - 9)), (-3, None)] {
            let window = open(&path, &path, offset, length).unwrap();
            let start = usize::try_from(window.offset).unwrap();
            let mut read = Vec::new();
            window
                .send_to(|piece| {
                    read.extend_from_slice(&piece);
                    Ok(())
                })
                .unwrap();
            let end = length.map_or(size, |length| start + length as usize);
            assert!(read == content[start..end], "from {offset}, {length:?}: not what the file has");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
