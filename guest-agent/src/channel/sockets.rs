//! The same channel on unix sockets `ctl.sock` and `data.sock`, for tests on the host without a machine.
//! A RESET drops the connection and takes the newest connection made to `data.sock`.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::connection;
use super::reset::ResetReader;
use crate::agent::Agent;
use crate::log;

/// Listens in `folder` and serves for ever.
pub async fn run(agent: Rc<Agent>, folder: &Path) -> io::Result<()> {
    let ctl = listen(&folder.join("ctl.sock"))?;
    let data = listen(&folder.join("data.sock"))?;
    let (newest_nonce, nonces) = watch::channel(String::new());
    tokio::task::spawn_local(serve_data(agent, data, nonces));
    log!("sandlot-agent ready");
    loop {
        let (stream, _) = ctl.accept().await?;
        tokio::task::spawn_local(read_resets(stream, newest_nonce.clone()));
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // A socket left by an agent that was killed.
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(path)
}

async fn read_resets(mut stream: UnixStream, newest_nonce: watch::Sender<String>) {
    let mut reader = ResetReader::default();
    let mut buffer = [0u8; 512];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if let Some(nonce) = reader.push(&buffer[..count]) {
            newest_nonce.send_replace(nonce);
        }
    }
}

async fn serve_data(agent: Rc<Agent>, listener: UnixListener, mut nonces: watch::Receiver<String>) {
    let mut waiting: Option<UnixStream> = None;
    let mut nonce: Option<String> = None;
    let mut current: Pin<Box<dyn Future<Output = io::Result<()>>>> = Box::pin(std::future::pending());
    loop {
        // Accepting comes first: the host connects before it writes RESET, so when both are ready the
        // connection belongs to that RESET.
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => waiting = Some(stream),
                Err(error) => log!("accept on data.sock: {error}"),
            },
            changed = nonces.changed() => {
                if changed.is_err() {
                    return;
                }
                nonce = Some(nonces.borrow_and_update().clone());
                current = Box::pin(std::future::pending());
            }
            ended = &mut current => {
                if let Err(error) = ended {
                    log!("connection ended: {error}");
                }
                current = Box::pin(std::future::pending());
            }
        }
        if nonce.is_some() && waiting.is_some() {
            if let (Some(nonce), Some(stream)) = (nonce.take(), waiting.take()) {
                let agent = agent.clone();
                current = Box::pin(async move { connection::serve(agent, stream, &nonce).await });
            }
        }
    }
}
