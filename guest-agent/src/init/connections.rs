//! TCP connections that a copy of a machine has from its source: the other side speaks with the source. What the copy
//! sends is refused by its network on the host, but a program that only reads would wait for ever: it is told that its
//! connection is aborted (`SOCK_DESTROY` of sock_diag(7), as `ss -K` does). Connections within the machine stay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::view::netlink::{Message, Netlink};
use crate::{log, modprobe, os};

/// Type of the message, `linux/sock_diag.h`.
const SOCK_DESTROY: u16 = 21;
const NETLINK_SOCK_DIAG: i32 = 4;
/// Any socket with these addresses, `linux/inet_diag.h`.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Whose driver answers the message for TCP.
const MODULE: &str = "tcp_diag";
/// Interfaces without which no other namespace reaches out.
const USUAL_LINKS: [&str; 2] = ["lo", "eth0"];
/// Of one namespace; half a million connections.
const TABLE_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// States of `net/tcp_states.h` in which there is no connection, or none that anybody reads: SYN_RECV, TIME_WAIT, CLOSE, LISTEN,
/// NEW_SYN_RECV.
const IDLE_STATES: [&str; 5] = ["03", "06", "07", "0A", "0C"];

/// One connection, as its namespace lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
}

/// Aborts all that lead out of the machine. Resolves with how many there were.
pub fn abort_all() -> io::Result<usize> {
    let mut aborted = 0;
    for (namespace, lists) in namespaces() {
        let stale: Vec<Connection> = lists
            .iter()
            .flat_map(|list| os::read_bounded(list, TABLE_MAX_BYTES))
            .flat_map(|bytes| parse(&String::from_utf8_lossy(&bytes)))
            .filter(|connection| leads_out(connection.remote.ip()))
            .collect();
        if stale.is_empty() {
            continue;
        }
        if aborted == 0 {
            modprobe::load_all(&[MODULE]);
        }
        aborted += stale.len();
        // A thread, because the namespace is one's that a thread is in.
        std::thread::spawn(move || destroy(&namespace, &stale))
            .join()
            .map_err(|_| io::Error::other("a thread that aborts connections failed"))??;
    }
    Ok(aborted)
}

/// The network namespaces of the machine, each with its lists of connections.
fn namespaces() -> Vec<(PathBuf, [PathBuf; 2])> {
    let lists = |process: &Path| ["net/tcp", "net/tcp6"].map(|list| process.join(list));
    let own = Path::new("/proc/self");
    let is_alone = std::fs::read_dir("/sys/class/net").is_ok_and(|links| {
        links.flatten().all(|link| USUAL_LINKS.iter().any(|usual| link.file_name() == *usual))
    });
    if is_alone {
        return vec![(own.join("ns/net"), lists(own))];
    }
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        // The name says which: `net:[4026531840]`. What is no process has none, and one may end meanwhile.
        if let Ok(name) = std::fs::read_link(process.join("ns/net")) {
            found.entry(name).or_insert(process);
        }
    }
    found.into_values().map(|process| (process.join("ns/net"), lists(&process))).collect()
}

/// Whether packets to this address leave by the card, seen from the machine's own namespace.
fn leads_out(remote: IpAddr) -> bool {
    let IpAddr::V4(address) = remote.to_canonical() else {
        // The card has no IPv6.
        return false;
    };
    // The source address that the route gives; nothing is sent.
    let source = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == crate::boot::network::ADDRESS && source.ip() != address)
}

fn destroy(namespace: &Path, connections: &[Connection]) -> io::Result<()> {
    let namespace = File::open(namespace)?;
    // SAFETY: plain system call; this thread does nothing else and ends.
    os::check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
    let socket = Netlink::open(NETLINK_SOCK_DIAG)?;
    for connection in connections {
        match socket.ask(&[&request(connection)]) {
            // It has ended by itself.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => log!("cannot abort {connection:?}: {error}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// `struct inet_diag_req_v2`.
fn request(Connection { local, remote }: &Connection) -> Message {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut fixed = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    fixed.extend(u32::MAX.to_ne_bytes());
    fixed.extend(local.port().to_be_bytes());
    fixed.extend(remote.port().to_be_bytes());
    for side in [local, remote] {
        let mut address = match side.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        address.resize(16, 0);
        fixed.extend(address);
    }
    fixed.extend(0u32.to_ne_bytes());
    fixed.extend(NO_COOKIE);
    Message::new(SOCK_DESTROY, 0, &fixed)
}

/// The connections in `/proc/net/tcp` or `tcp6` (proc_pid_net(5)).
fn parse(table: &str) -> Vec<Connection> {
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        if IDLE_STATES.contains(&state) {
            return None;
        }
        Some(Connection { local: parse_end(local)?, remote: parse_end(remote)? })
    };
    table.lines().skip(1).filter_map(parse_line).collect()
}

/// `0F02000A:0016`: words of the address as the processor reads them, and the port.
fn parse_end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut octets = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(octets.as_slice()) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reads_what_the_kernel_lists() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let wanted = Connection { local: client.local_addr().unwrap(), remote: client.peer_addr().unwrap() };
        let listed = |path: &str| parse(&std::fs::read_to_string(path).unwrap());
        assert!(listed("/proc/self/net/tcp").contains(&wanted));
        let mapped = "  sl  local remote st\n   0: 0000000000000000FFFF00000F02000A:1F90 0000000000000000FFFF000001020304:01BB 01 x\n";
        let [found] = parse(mapped)[..] else { panic!("one line is one connection") };
        assert_eq!(found.remote.ip().to_canonical(), "4.3.2.1".parse::<IpAddr>().unwrap());
        assert!(parse(&mapped.replace(" 01 x", " 0A x")).is_empty());
    }

    #[test]
    fn aborts_one_connection_and_no_other() {
        // SAFETY: plain system call.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root may abort connections");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let ((mut gone, _other), (mut kept, mut far)) = (pair(), pair());
        let connection = Connection { local: gone.local_addr().unwrap(), remote: gone.peer_addr().unwrap() };
        let reader = std::thread::spawn(move || gone.read(&mut [0]).map_err(|error| error.kind()));
        let own = PathBuf::from("/proc/self/ns/net");
        let outcome = std::thread::spawn(move || {
            let namespace = File::open(own)?;
            os::check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
            Netlink::open(NETLINK_SOCK_DIAG)?.ask(&[&request(&connection)])
        });
        match outcome.join().unwrap() {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EPERM)) =>
            {
                eprintln!("skipped: this host's kernel cannot abort connections: {error}");
                kept.write_all(b"x").unwrap();
                return;
            }
            outcome => outcome.unwrap(),
        }
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::ConnectionAborted));
        kept.write_all(b"x").unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 1);
    }
}
