//! Bodies: bytes into a stream with the peer's flow control, and small bodies out of one with a limit.

use std::future::poll_fn;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::StatusCode;

use super::error::CallError;

/// The stream was cancelled by the host, or its connection is gone.
#[derive(Debug)]
pub struct StreamGone;

/// Sends all bytes, waiting for the peer's window. Returns early when the stream is cancelled.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), StreamGone> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|context| {
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(Err(StreamGone));
            }
            match stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(capacity))) => Poll::Ready(Ok(capacity)),
                Poll::Ready(_) => Poll::Ready(Err(StreamGone)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        if capacity > 0 {
            let part = bytes.split_to(capacity.min(bytes.len()));
            stream.send_data(part, false).map_err(|_| StreamGone)?;
        }
    }
    Ok(())
}

/// Ends the stream in order.
pub fn finish(stream: &mut SendStream<Bytes>) {
    // If it is gone already there is nobody to tell.
    let _ = stream.send_data(Bytes::new(), true);
}

/// Resolves when the host cancels the stream or its connection goes away.
pub async fn cancelled(stream: &mut SendStream<Bytes>) {
    let _ = poll_fn(|context| stream.poll_reset(context)).await;
}

/// The next piece of a request body; its window is given back at once. `None` at the end.
pub async fn next_chunk(body: &mut RecvStream) -> Option<Result<Bytes, StreamGone>> {
    let chunk = match body.data().await? {
        Ok(chunk) => chunk,
        Err(_) => return Some(Err(StreamGone)),
    };
    let _ = body.flow_control().release_capacity(chunk.len());
    Some(Ok(chunk))
}

/// A whole request body of at most `limit` bytes.
pub async fn read_all(body: &mut RecvStream, limit: usize) -> Result<Bytes, CallError> {
    let mut all = BytesMut::new();
    while let Some(chunk) = next_chunk(body).await {
        let chunk = chunk.map_err(|_| CallError::invalid("the request ended before its body did"))?;
        if all.len() + chunk.len() > limit {
            let message = format!("the body is larger than {limit} bytes");
            return Err(CallError::new(StatusCode::PAYLOAD_TOO_LARGE, "EFBIG", message));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}
