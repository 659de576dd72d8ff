//! `POST /connect`: a stream of the host becomes a TCP connection to the guest's own loopback, with each
//! direction ended on its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::agent::Agent;
use crate::channel::connection::InputWindow;
use crate::http::answer::Answer;
use crate::http::body::{self, StreamGone};
use crate::http::error::CallError;
use crate::http::query::Query;

/// Loopback answers at once; a full backlog may not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read at a time.
const PIECE_BYTES: usize = 32 * 1024;

/// One direction failed: the whole connection is over.
struct Broken;

/// `POST /connect`.
pub async fn post_connect(
    agent: Rc<Agent>,
    window: Rc<InputWindow>,
    query: &Query,
    body: RecvStream,
    answer: Answer,
) {
    let opened = async {
        agent.require_initialised()?;
        let port: u16 = query.required("port")?;
        connect(port).await
    };
    let connection = match opened.await {
        Ok(connection) => connection,
        Err(error) => return answer.refuse(&error),
    };
    let _room = window.reserve();
    // Small answers of interactive programs must not wait for each other.
    let _ = connection.set_nodelay(true);
    let Ok(mut stream) = answer.stream(&[]) else {
        return;
    };
    let (read_half, write_half) = connection.into_split();
    let result = {
        let outward = send_to_host(&mut stream, read_half);
        let inward = send_to_guest(body, write_half);
        tokio::try_join!(outward, inward)
    };
    if let Err(Broken) = result {
        stream.send_reset(Reason::CONNECT_ERROR);
    }
}

/// A program may listen on either loopback address.
async fn connect(port: u16) -> Result<TcpStream, CallError> {
    let mut refused = None;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(SocketAddr::new(address, port))).await
        {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => refused = refused.or(Some(error)),
            Err(_) => {
                let message = format!("port {port} did not accept within {} s", CONNECT_TIMEOUT.as_secs());
                return Err(CallError::new(StatusCode::BAD_GATEWAY, "ETIMEDOUT", message));
            }
        }
    }
    let reason = refused.map(|error| crate::http::error::plain_reason(&error)).unwrap_or_default();
    let message = format!("nothing in the sandbox accepts connections on port {port}: {reason}");
    Err(CallError::new(StatusCode::BAD_GATEWAY, "ECONNREFUSED", message))
}

async fn send_to_host(stream: &mut SendStream<Bytes>, mut from: OwnedReadHalf) -> Result<(), Broken> {
    let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
    loop {
        buffer.reserve(PIECE_BYTES);
        let count = tokio::select! {
            count = from.read_buf(&mut buffer) => count.map_err(|_| Broken)?,
            () = body::cancelled(stream) => return Err(Broken),
        };
        if count == 0 {
            body::finish(stream);
            return Ok(());
        }
        body::send_all(stream, buffer.split().freeze()).await.map_err(|StreamGone| Broken)?;
    }
}

async fn send_to_guest(mut from: RecvStream, mut to: OwnedWriteHalf) -> Result<(), Broken> {
    while let Some(chunk) = from.data().await {
        let chunk = chunk.map_err(|_| Broken)?;
        let length = chunk.len();
        to.write_all(&chunk).await.map_err(|_| Broken)?;
        let _ = from.flow_control().release_capacity(length);
    }
    to.shutdown().await.map_err(|_| Broken)
}
