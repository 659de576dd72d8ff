//! One HTTP/2 connection, from SYNC to its end. Used by both transports.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::agent::Agent;
use crate::http::routes;

/// Window of one stream. With 256 KiB the host waits for each confirmation, and a transfer takes twice as long
/// in an emulated machine; larger ones make other calls wait behind what is on its way.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Window of the connection, before what long-lived inputs may park in it.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Largest there is (RFC 9113, 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// A frame and its 9-byte header fit one buffer of the port.
const FRAME_MAX: u32 = 32_759;
/// Bytes h2 may hold per stream for sending.
const SEND_BUFFER: usize = 512 * 1024;
/// Calls at once; each long-lived exec is one.
const STREAMS_MAX: u32 = 2_048;

/// Counts the streams whose input may wait for a slow program in the guest (standard input, port
/// connections). Each may park one stream window; the connection's window is raised by as much, so that
/// programs that do not read can never stop everybody else's uploads.
#[derive(Default)]
pub struct InputWindow {
    open: Cell<u32>,
    changed: Notify,
}

impl InputWindow {
    /// Makes room for one more slow input until the guard is dropped.
    pub fn reserve(self: &Rc<Self>) -> InputRoom {
        self.open.set(self.open.get() + 1);
        self.changed.notify_one();
        InputRoom(self.clone())
    }

    fn target(&self) -> u32 {
        self.open.get().saturating_mul(STREAM_WINDOW).saturating_add(CONNECTION_WINDOW).min(WINDOW_MAX)
    }
}

/// Room for one slow input.
pub struct InputRoom(Rc<InputWindow>);

impl Drop for InputRoom {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.changed.notify_one();
    }
}

/// Answers SYNC and serves until the connection ends. Dropping the future ends it at once: every stream
/// of it is then cancelled, which its tasks see.
pub async fn serve<T>(agent: Rc<Agent>, mut io: T, nonce: &str) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(format!("SYNC {nonce}\n").as_bytes()).await?;
    io.flush().await?;
    let mut connection = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_MAX)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_streams(STREAMS_MAX)
        // A host that gives up on many calls at once is no attacker: do not answer with GOAWAY.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_concurrent_reset_streams(64)
        .handshake::<_, Bytes>(io)
        .await
        .map_err(io::Error::other)?;
    let window = Rc::new(InputWindow::default());
    loop {
        tokio::select! {
            request = connection.accept() => match request {
                Some(Ok((request, response))) => {
                    tokio::task::spawn_local(routes::handle(agent.clone(), window.clone(), request, response));
                }
                Some(Err(error)) => return Err(io::Error::other(error)),
                None => return Ok(()),
            },
            () = window.changed.notified() => connection.set_target_window_size(window.target()),
        }
    }
}
