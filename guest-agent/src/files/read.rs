//! `GET /files`: a file or a window of it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::transfer::BodyWriter;
use crate::http::error::CallError;
use crate::os;

/// Bytes read at a time.
const PIECE_BYTES: usize = 256 * 1024;

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
    pub fn send_to(self, out: &mut BodyWriter) -> io::Result<()> {
        let mut left = self.length.unwrap_or(u64::MAX);
        while left > 0 {
            let want = PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES));
            let mut piece = vec![0u8; want];
            let count = match os::read(&self.file, &mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            piece.truncate(count);
            out.send_piece(piece.into())?;
            left -= count as u64;
        }
        Ok(())
    }
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
}
