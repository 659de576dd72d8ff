//! `POST /warm`: runs once what the first calls of a restored machine will run, before the template is
//! saved. Its pages and caches are then in the template instead of being made anew in every machine.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::agent::Agent;
use crate::boot::network::{self, GATEWAY};
use crate::exec::contract::ExecStart;
use crate::exec::position::Attachment;
use crate::exec::start::{self, Life};
use crate::files::transfer;
use crate::health;
use crate::http::answer::Done;
use crate::http::error::CallError;
use crate::os;

/// Longest wait for one command or network attempt.
const STEP_MAX: Duration = Duration::from_secs(5);
const NETWORK_MAX: Duration = Duration::from_millis(500);
/// Discard: nothing listens there, and that is no matter.
const TCP_PORT: u16 = 9;

/// `POST /warm`. Whatever fails is not an error: it was only an exercise.
pub async fn post_warm(agent: &Rc<Agent>) -> Result<Done, CallError> {
    for argv in [start::PROBE, "/nonexistent/command", start::PROBE] {
        let spec = ExecStart { argv: vec![argv.to_string()], ..ExecStart::default() };
        let exec = start::start(agent, &spec, Life::Stream);
        let _reader = exec.output.attach(&Attachment::default());
        let _ = tokio::time::timeout(STEP_MAX, exec.until_ended()).await;
    }
    let _ = serde_json::to_vec(&health::health(agent));
    if agent.place.is_machine() {
        let _ = transfer::blocking(|| Ok(exercise_files())).await;
        if network::is_configured() {
            let _ = transfer::blocking(|| Ok(ping_gateway())).await;
            let connect = TcpStream::connect((GATEWAY, TCP_PORT));
            let _ = tokio::time::timeout(NETWORK_MAX, connect).await;
        }
    }
    Ok(Done {})
}

fn exercise_files() -> io::Result<()> {
    let folder = Path::new(crate::boot::OWN_FILES).join("warm");
    let (one, two) = (folder.join("one"), folder.join("two"));
    std::fs::create_dir_all(&folder)?;
    std::fs::File::create(&one)?.write_all(&[0u8; 16 * 1024])?;
    std::fs::rename(&one, &two)?;
    std::fs::read(&two)?;
    std::fs::remove_dir_all(&folder)
}

/// One ICMP echo.
fn ping_gateway() -> io::Result<()> {
    // Type 8, code 0, checksum, id 1, sequence 1: the checksum is the complement of the sum of the words.
    let checksum = !(0x0800u16 + 1 + 1);
    let [high, low] = checksum.to_be_bytes();
    let message = [8, 0, high, low, 0, 1, 0, 1];
    let socket = os::raw_socket(libc::AF_INET, libc::IPPROTO_ICMP, NETWORK_MAX)?;
    // SAFETY: all buffers are valid for the lengths given.
    unsafe {
        let mut gateway: libc::sockaddr_in = std::mem::zeroed();
        gateway.sin_family = libc::AF_INET as libc::sa_family_t;
        gateway.sin_addr.s_addr = u32::from(GATEWAY).to_be();
        let sent = libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
            std::ptr::from_ref(&gateway).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        );
        os::check_long(sent as libc::c_long)?;
        let mut answer = [0u8; 128];
        os::read(&socket, &mut answer).map(drop)
    }
}
