//! Standard input of a command: frames of its stream and `/input` calls, one after the other.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify};

use super::{pty, recent::RecentIds};
use crate::os;
use crate::runtime::watch_fd;

/// The writing end, shared by all who feed it.
pub struct Input {
    writer: Mutex<Option<Writer>>,
    is_open: Cell<bool>,
    closing: Notify,
    applied: RecentIds,
}

struct Writer {
    fd: AsyncFd<OwnedFd>,
    is_terminal: bool,
}

/// Why input was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum InputRefused {
    /// Standard input was not asked for, or has ended.
    NotOpen,
}

impl Input {
    /// Input that is not open.
    pub fn closed() -> Input {
        Input {
            writer: Mutex::new(None),
            is_open: Cell::new(false),
            closing: Notify::new(),
            applied: RecentIds::default(),
        }
    }

    /// The write end of a pipe, or the master of a terminal.
    pub fn open(fd: OwnedFd, is_terminal: bool) -> io::Result<Input> {
        os::set_nonblocking(&fd)?;
        let fd = watch_fd(fd, Interest::WRITABLE)?;
        Ok(Input {
            writer: Mutex::new(Some(Writer { fd, is_terminal })),
            is_open: Cell::new(true),
            closing: Notify::new(),
            applied: RecentIds::default(),
        })
    }

    /// It can still be fed.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Writes all bytes, waiting for the command to read, then ends the input if asked. An id that was
    /// applied before is acknowledged and nothing is written.
    pub async fn feed(&self, bytes: &[u8], end: bool, id: Option<&str>) -> Result<(), InputRefused> {
        let mut slot = self.writer.lock().await;
        // A repeated one may come after the input has ended by it.
        if self.applied.has(id) {
            return Ok(());
        }
        if !self.is_open.get() || slot.is_none() {
            return Err(InputRefused::NotOpen);
        }
        self.applied.note(id);
        let Some(writer) = slot.as_ref() else {
            return Err(InputRefused::NotOpen);
        };
        let written = tokio::select! {
            written = writer.write_all(bytes) => written,
            // A background process may hold the other end for ever without reading.
            () = self.closing.notified() => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_ok() && end {
            written_end(writer).await;
        }
        let ended_pipe = end && !writer.is_terminal;
        if written.is_err() || ended_pipe {
            *slot = None;
            self.is_open.set(false);
        }
        // EPIPE: the command has closed its input, which is its right.
        written.map_err(|_| InputRefused::NotOpen)
    }

    /// The command has ended: nobody will read this any more.
    pub fn close(&self) {
        self.is_open.set(false);
        self.closing.notify_one();
        if let Ok(mut slot) = self.writer.try_lock() {
            *slot = None;
        }
    }
}

/// A pipe ends by being closed, a terminal by its end-of-input character.
async fn written_end(writer: &Writer) {
    if writer.is_terminal {
        if let Some(byte) = pty::end_of_input(writer.fd.get_ref()) {
            let _ = writer.write_all(&[byte]).await;
        }
    }
}

impl Writer {
    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut guard = self.fd.writable().await?;
            match guard.try_io(|fd| os::write(&fd.as_raw_fd(), bytes)) {
                Ok(Ok(written)) => bytes = &bytes[written..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}
