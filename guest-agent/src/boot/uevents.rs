//! Device nodes that drivers make later: the kernel says so on a netlink socket, and the node gets what udev would
//! give it; device-mapper's get their names, for which its library relies on udev even where none runs. Only while the agent is process 1; an image's own init brings its udev.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tokio::io::Interest;

use super::devices::{self, Groups};
use crate::runtime::watch_fd;
use crate::{log, os};

/// Group of the kernel's own events, `linux/netlink.h`.
const KERNEL_EVENTS: u32 = 1;
/// Longer events do not exist (UEVENT_BUFFER_SIZE is 2 KiB).
const EVENT_MAX_BYTES: usize = 8 * 1024;
/// A burst, as of a driver with hundreds of devices, waits here.
const BUFFER_BYTES: libc::c_int = 1024 * 1024;

/// A socket that gets them; opened before the first node can appear.
pub fn open() -> io::Result<OwnedFd> {
    // SAFETY: plain calls with valid arguments; the descriptor is ours.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let socket = OwnedFd::from_raw_fd(os::check(libc::socket(
            libc::AF_NETLINK,
            kind,
            libc::NETLINK_KOBJECT_UEVENT,
        ))?);
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = KERNEL_EVENTS;
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        os::check(libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size))?;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let bytes = std::ptr::from_ref(&BUFFER_BYTES).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes, length);
        Ok(socket)
    }
}

/// Follows them for ever.
pub async fn follow(socket: OwnedFd) -> io::Result<()> {
    let socket = watch_fd(socket, Interest::READABLE)?;
    let mut buffer = vec![0; EVENT_MAX_BYTES];
    loop {
        let mut guard = socket.readable().await?;
        loop {
            match receive(guard.get_inner(), &mut buffer) {
                Ok(Some(length)) => handle(&buffer[..length]),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Some were lost: look at everything.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    devices::apply_rules(&Groups::of_image());
                }
                Err(error) => return Err(error),
            }
        }
        guard.clear_ready();
    }
}

/// Length of the next message; `None` for one that is not from the kernel: root of the sandbox can send here too.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: plain data for which zero is valid; buffer and address are valid for their lengths.
    let (length, sender) = unsafe {
        let mut sender: libc::sockaddr_nl = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        let address = std::ptr::from_mut(&mut sender).cast();
        let length = libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            address,
            &mut size,
        );
        (length, sender)
    };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((sender.nl_pid == 0).then_some(length as usize))
}

fn handle(event: &[u8]) {
    let Some(change) = parse(event) else { return };
    let result = match change.action {
        Action::Add => devices::apply_rule(change.node, change.is_block, &Groups::of_image()),
        // A device-mapper device has its name when its table is live, which is a change.
        Action::Change => devices::link_mapped(change.node),
        Action::Remove => devices::unlink_mapped(change.node),
    };
    match result {
        // It may be gone again.
        Err(error) if error.kind() != io::ErrorKind::NotFound => log!("device {}: {error}", change.node),
        _ => {}
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Action {
    Add,
    Change,
    Remove,
}

#[derive(Debug, PartialEq, Eq)]
struct NodeChange<'a> {
    action: Action,
    node: &'a str,
    is_block: bool,
}

/// `add@/devices/…` and then `KEY=value` words, each with a NUL at its end.
fn parse(event: &[u8]) -> Option<NodeChange<'_>> {
    let text = std::str::from_utf8(event).ok()?;
    let value = |key: &str| {
        text.split('\0')
            .skip(1)
            .find_map(|word| word.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')))
    };
    let node = value("DEVNAME")?;
    let is_plain = !node.starts_with('/') && node.split('/').all(|part| !part.is_empty() && part != "..");
    let action = match value("ACTION")? {
        "add" => Action::Add,
        "change" if node.starts_with("dm-") => Action::Change,
        "remove" if node.starts_with("dm-") => Action::Remove,
        _ => return None,
    };
    is_plain.then_some(NodeChange { action, node, is_block: value("SUBSYSTEM")? == "block" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_change_a_node() {
        let event =
            b"add@/devices/virtual/block/loop0\0ACTION=add\0SUBSYSTEM=block\0MAJOR=7\0DEVNAME=loop0\0";
        assert_eq!(parse(event), Some(NodeChange { action: Action::Add, node: "loop0", is_block: true }));
        let event = b"add@/devices/virtual/misc/tun\0ACTION=add\0SUBSYSTEM=misc\0DEVNAME=net/tun\0";
        assert_eq!(parse(event), Some(NodeChange { action: Action::Add, node: "net/tun", is_block: false }));
        let event = b"change@/devices/virtual/block/dm-0\0ACTION=change\0SUBSYSTEM=block\0DEVNAME=dm-0\0";
        assert_eq!(parse(event), Some(NodeChange { action: Action::Change, node: "dm-0", is_block: true }));
    }

    #[test]
    fn everything_else_is_passed_over() {
        for event in [
            &b"remove@/x\0ACTION=remove\0SUBSYSTEM=block\0DEVNAME=loop0\0"[..],
            b"change@/x\0ACTION=change\0SUBSYSTEM=block\0DEVNAME=vda\0",
            b"add@/module/loop\0ACTION=add\0SUBSYSTEM=module\0",
            b"add@/x\0ACTION=add\0SUBSYSTEM=x\0DEVNAME=../etc/passwd\0",
            b"add@/x\0ACTION=add\0SUBSYSTEM=x\0DEVNAME=/etc/passwd\0",
            b"\xff\0",
            b"",
        ] {
            assert_eq!(parse(event), None);
        }
    }
}
