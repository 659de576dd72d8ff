//! The bare HTTP/2 agent of the benchmarks: process 1 of a guest, an h2 server on the `data` port of the
//! virtio-serial device. No product code. It shows what HTTP/2 on this device gives when nothing is
//! around it. One connection for the life of a machine: no reset, no reconnection.
//!
//!   GET /ping            pong
//!   GET /zero?N          N zero bytes
//!   PUT /null            reads the body; answers its length
//!   POST /mount          /dev/vda on /mnt, proc, sys and dev below
//!   POST /exec           body: a shell line; answers its output, `exit` in the headers

mod port;
mod system;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

type Failure = Box<dyn std::error::Error>;

const WINDOW: u32 = 1 << 20;
static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];

fn main() -> Result<(), Failure> {
    system::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve())
}

async fn serve() -> Result<(), Failure> {
    let mut port = port::Port::open(&system::find_port("data"))?;
    println!("bare agent waits");
    port.connected().await?;
    let mut connection = h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_frame_size(32759)
        .handshake::<_, Bytes>(port)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, answer) = accepted?;
        tokio::task::spawn_local(async move {
            if let Err(failure) = handle(request, answer).await {
                println!("request failed: {failure}");
            }
        });
    }
    Ok(())
}

async fn handle(request: http::Request<RecvStream>, answer: SendResponse<Bytes>) -> Result<(), Failure> {
    let path = request.uri().path().to_owned();
    let count = request
        .uri()
        .query()
        .and_then(|query| query.parse().ok())
        .unwrap_or(0usize);
    match (request.method().as_str(), path.as_str()) {
        ("GET", "/ping") => reply(answer, 0, Bytes::from_static(b"pong")),
        ("GET", "/zero") => send_zeros(answer, count).await,
        ("PUT", "/null") => {
            let mut read = 0;
            receive(request.into_body(), |bytes| read += bytes.len()).await?;
            reply(answer, 0, Bytes::from(read.to_string()))
        }
        ("POST", "/mount") => reply(answer, 0, Bytes::from(system::mount_root())),
        ("POST", "/exec") => {
            let mut line = Vec::new();
            receive(request.into_body(), |bytes| line.extend_from_slice(&bytes)).await?;
            // Blocks the whole agent while the command runs: the figure is one exec at a time.
            let (output, exit) = system::run(&String::from_utf8(line)?);
            reply(answer, exit, Bytes::from(output))
        }
        _ => reply(answer, 404, Bytes::new()),
    }
}

fn reply(mut answer: SendResponse<Bytes>, exit: i32, body: Bytes) -> Result<(), Failure> {
    let head = http::Response::builder().header("exit", exit).body(())?;
    answer.send_response(head, false)?.send_data(body, true)?;
    Ok(())
}

async fn receive(mut body: RecvStream, mut take: impl FnMut(Bytes)) -> Result<(), Failure> {
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        take(bytes);
    }
    Ok(())
}

async fn send_zeros(mut answer: SendResponse<Bytes>, count: usize) -> Result<(), Failure> {
    let mut stream: SendStream<Bytes> = answer.send_response(http::Response::new(()), false)?;
    let mut left = count;
    while left > 0 {
        stream.reserve_capacity(left.min(ZEROS.len()));
        let granted = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let chunk = granted.ok_or("the stream is closed")??.min(left);
        stream.send_data(Bytes::from_static(&ZEROS[..chunk]), false)?;
        left -= chunk;
    }
    stream.send_data(Bytes::new(), true)?;
    Ok(())
}
