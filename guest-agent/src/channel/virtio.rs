//! The channel on the two virtio-serial ports of a machine.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use super::connection;
use super::port::{OnHangUp, Port};
use super::reset::ResetReader;
use crate::agent::Agent;
use crate::handover::{self, State};
use crate::log;

/// The driver registers ports some milliseconds after its module is there.
const PORT_WAIT: Duration = Duration::from_secs(10);
const PORT_POLL: Duration = Duration::from_millis(5);

/// Longest that a starting child may keep the old port open.
const BUSY_WAIT: Duration = Duration::from_secs(10);
const BUSY_POLL: Duration = Duration::from_millis(1);

/// Serves for ever. Returns only when the ports cannot be used at all.
pub async fn run(agent: Rc<Agent>) -> io::Result<()> {
    let ctl_path = find_port("ctl").await?;
    let data_path = find_port("data").await?;
    let ctl = Port::open(&ctl_path, OnHangUp::Wait)?;
    let (newest_nonce, nonces) = watch::channel(String::new());
    tokio::task::spawn_local(serve_data(agent.clone(), data_path, nonces));
    // The host waits for this line before it connects to a fresh machine.
    log!("sandlot-agent ready");
    read_resets(agent, ctl, newest_nonce).await
}

/// The same for the agent beside an init: the control port is open, and a RESET waits for its answer.
pub async fn go_on(agent: Rc<Agent>, ctl: OwnedFd, nonce: String) -> io::Result<()> {
    let data_path = find_port("data").await?;
    let ctl = Port::new(ctl, OnHangUp::Wait)?;
    let (newest_nonce, nonces) = watch::channel(String::new());
    tokio::task::spawn_local(serve_data(agent.clone(), data_path, nonces));
    newest_nonce.send_replace(nonce);
    read_resets(agent, ctl, newest_nonce).await
}

async fn read_resets(agent: Rc<Agent>, mut ctl: Port, newest_nonce: watch::Sender<String>) -> io::Result<()> {
    let mut reader = ResetReader::default();
    let mut buffer = [0u8; 512];
    loop {
        let count = ctl.read(&mut buffer).await?;
        if let Some(nonce) = reader.push(&buffer[..count]) {
            if let Some(init) = agent.next_init.take() {
                let sandbox = (*agent.sandbox()).clone();
                return Err(handover::perform(&init, &State { ctl_fd: ctl.raw_fd(), nonce, sandbox }));
            }
            newest_nonce.send_replace(nonce);
        }
    }
}

/// One connection after the other; a new nonce ends the current one.
async fn serve_data(agent: Rc<Agent>, path: PathBuf, mut nonces: watch::Receiver<String>) {
    while nonces.changed().await.is_ok() {
        loop {
            let nonce = nonces.borrow_and_update().clone();
            let connection = async {
                // Opened anew for each connection: closing it was the barrier that threw away what an
                // earlier host had still in flight.
                let mut port = open_when_free(&path).await?;
                port.connected().await?;
                connection::serve(agent.clone(), port, &nonce).await
            };
            tokio::select! {
                biased;
                changed = nonces.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                ended = connection => {
                    if let Err(error) = ended {
                        log!("connection ended: {error}");
                    }
                    break;
                }
            }
        }
    }
}

/// A child that is just executing its program still holds a copy of the old descriptor for a moment after
/// we go on (the kernel wakes us before it closes them): until that is gone the port is busy, and the
/// barrier has not taken place.
async fn open_when_free(path: &Path) -> io::Result<Port> {
    let give_up = tokio::time::Instant::now() + BUSY_WAIT;
    loop {
        match Port::open(path, OnHangUp::End) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && tokio::time::Instant::now() < give_up =>
            {
                tokio::time::sleep(BUSY_POLL).await;
            }
            other => return other,
        }
    }
}

/// Device of the port with this name.
async fn find_port(name: &str) -> io::Result<PathBuf> {
    let give_up = tokio::time::Instant::now() + PORT_WAIT;
    loop {
        if let Ok(entries) = std::fs::read_dir("/sys/class/virtio-ports") {
            for entry in entries.flatten() {
                let label = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
                if label.trim() == name {
                    return Ok(PathBuf::from("/dev").join(entry.file_name()));
                }
            }
        }
        if tokio::time::Instant::now() > give_up {
            return Err(io::Error::other(format!("the machine has no virtio-serial port named {name}")));
        }
        tokio::time::sleep(PORT_POLL).await;
    }
}
