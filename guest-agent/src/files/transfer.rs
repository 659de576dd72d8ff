//! Blocking file work beside the streams: a thread of the pool reads or writes files, the main thread
//! carries the bytes. Both queues are short, so that a slow side holds the other back.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::StatusCode;
use tokio::sync::mpsc;

use crate::http::body::{self, StreamGone};
use crate::http::error::CallError;

/// Received bytes are handed to the disk's thread in batches of at least this: each handing over costs two
/// changes between threads, which an emulated processor pays for dearly (28,000 of them in 256 MiB by single
/// frames). With what is written meanwhile it must be less than a stream's window.
const RECEIVE_BATCH_BYTES: usize = 256 * 1024;
/// Pieces to send that may wait for the host.
const SEND_QUEUE: usize = 2;
/// Bytes of one piece to send.
const SEND_PIECE_BYTES: usize = 128 * 1024;

enum Batch {
    Pieces(Vec<Bytes>),
    End,
}

/// A request body for blocking code. A body that broke off is an error, never a short file.
pub struct BodyReader {
    batches: mpsc::Receiver<Batch>,
    batch: std::vec::IntoIter<Bytes>,
    current: Bytes,
    ended: bool,
}

impl BodyReader {
    fn new(batches: mpsc::Receiver<Batch>) -> BodyReader {
        BodyReader { batches, batch: Vec::new().into_iter(), current: Bytes::new(), ended: false }
    }

    /// The next piece as it came; `None` at the end.
    pub fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        if !self.current.is_empty() {
            return Ok(Some(std::mem::take(&mut self.current)));
        }
        loop {
            if let Some(piece) = self.batch.next() {
                return Ok(Some(piece));
            }
            if self.ended {
                return Ok(None);
            }
            match self.batches.blocking_recv() {
                Some(Batch::Pieces(pieces)) => self.batch = pieces.into_iter(),
                Some(Batch::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the upload was broken off"));
                }
            }
        }
    }
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.next_piece()? {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Runs blocking work on a request body. The work may end before the body does, with an error or without.
pub async fn receive<T: Send + 'static>(
    request: &mut RecvStream,
    work: impl FnOnce(BodyReader) -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    let (sender, receiver) = mpsc::channel(1);
    let mut worker = tokio::task::spawn_blocking(move || work(BodyReader::new(receiver)));
    let feeding = async {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while let Some(chunk) = request.data().await {
            let Ok(chunk) = chunk else { return };
            bytes += chunk.len();
            pieces.push(chunk);
            if bytes < RECEIVE_BATCH_BYTES {
                continue;
            }
            if sender.send(Batch::Pieces(std::mem::take(&mut pieces))).await.is_err() {
                return;
            }
            // Only now: what waits for the disk keeps its part of the window.
            let _ = request.flow_control().release_capacity(std::mem::take(&mut bytes));
        }
        let _ = sender.send(Batch::Pieces(pieces)).await;
        let _ = sender.send(Batch::End).await;
        drop(sender);
    };
    let early = tokio::select! {
        result = &mut worker => Some(result),
        () = feeding => None,
    };
    let result = match early {
        Some(result) => result,
        None => worker.await,
    };
    result.unwrap_or_else(|error| Err(worker_failed(&error)))
}

/// Runs blocking work without a body.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(worker_failed(&error)))
}

fn worker_failed(error: &tokio::task::JoinError) -> CallError {
    let message = format!("the file worker failed: {error}");
    CallError::new(StatusCode::INTERNAL_SERVER_ERROR, "EIO", message)
}

/// Where blocking code writes an answer body.
pub struct BodyWriter {
    pieces: mpsc::Sender<Bytes>,
    buffer: BytesMut,
}

impl BodyWriter {
    /// Sends a piece as it is, after what was written before it.
    pub fn send_piece(&mut self, piece: Bytes) -> io::Result<()> {
        self.send()?;
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = self.buffer.split().freeze();
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= SEND_PIECE_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// Runs blocking work whose output is the answer body. If it fails, the stream is reset: a cut body must
/// not look complete.
pub async fn send(
    mut stream: SendStream<Bytes>,
    work: impl FnOnce(&mut BodyWriter) -> io::Result<()> + Send + 'static,
) {
    let (sender, mut receiver) = mpsc::channel(SEND_QUEUE);
    let worker = tokio::task::spawn_blocking(move || {
        let mut writer = BodyWriter { pieces: sender, buffer: BytesMut::new() };
        work(&mut writer)?;
        writer.flush()
    });
    loop {
        let piece = tokio::select! {
            piece = receiver.recv() => piece,
            () = body::cancelled(&mut stream) => return,
        };
        let Some(piece) = piece else { break };
        if let Err(StreamGone) = body::send_all(&mut stream, piece).await {
            return;
        }
    }
    match worker.await {
        Ok(Ok(())) => body::finish(&mut stream),
        Ok(Err(_)) | Err(_) => stream.send_reset(Reason::INTERNAL_ERROR),
    }
}
