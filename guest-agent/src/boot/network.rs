//! The guest's network: the same addresses in every machine, so that it is configured before the template
//! is saved and a restore has nothing to do. No tools of an image are used: there is none yet.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::os;

const INTERFACE: &str = "eth0";
/// Address of every machine.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Gateway of every sandbox.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Its MAC, one constant on all hosts: another one would not be found after a restore.
const GATEWAY_MAC: [u8; 6] = [0x52, 0x55, 0x0a, 0x00, 0x02, 0x02];
/// The card's driver has just been loaded.
const INTERFACE_WAIT: Duration = Duration::from_secs(5);
const INTERFACE_POLL: Duration = Duration::from_millis(5);

/// Brings up `lo`.
pub fn bring_up_loopback() -> io::Result<()> {
    let mut request = interface_request("lo");
    bring_up(&control_socket()?, &mut request)
}

/// Configures the network card: address, route, the gateway as permanent neighbour.
pub fn configure() -> io::Result<()> {
    wait_for_interface()?;
    // Before it comes up, or it would announce itself and ask for routers after every restore. Only this
    // interface: ::1 stays.
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6"), "1")?;
    let socket = control_socket()?;
    let mut request = interface_request(INTERFACE);
    request.ifr_ifru.ifru_addr = socket_address(ADDRESS);
    control(&socket, libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = socket_address(MASK);
    control(&socket, libc::SIOCSIFNETMASK, &mut request)?;
    bring_up(&socket, &mut request)?;
    add_default_route(&socket)?;
    set_permanent_neighbour(&socket)
}

/// The guest has its address.
pub fn is_configured() -> bool {
    let read = || -> io::Result<Ipv4Addr> {
        let socket = control_socket()?;
        let mut request = interface_request(INTERFACE);
        control(&socket, libc::SIOCGIFADDR, &mut request)?;
        // SAFETY: the call filled in an IPv4 address.
        let address = unsafe { *std::ptr::from_ref(&request.ifr_ifru.ifru_addr).cast::<libc::sockaddr_in>() };
        Ok(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
    };
    read().is_ok_and(|address| address == ADDRESS)
}

fn wait_for_interface() -> io::Result<()> {
    let begun = Instant::now();
    while !Path::new("/sys/class/net").join(INTERFACE).exists() {
        if begun.elapsed() > INTERFACE_WAIT {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        std::thread::sleep(INTERFACE_POLL);
    }
    Ok(())
}

fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that is ours.
    unsafe {
        let fd = os::check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let ipv4 = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: both are plain data of the same size.
    unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(ipv4) }
}

fn control<T>(socket: &OwnedFd, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: each caller passes the struct that its request takes.
    os::check(unsafe { libc::ioctl(socket.as_raw_fd(), request, std::ptr::from_mut(argument)) })?;
    Ok(())
}

fn bring_up(socket: &OwnedFd, request: &mut libc::ifreq) -> io::Result<()> {
    control(socket, libc::SIOCGIFFLAGS, request)?;
    // SAFETY: the call filled in the flags.
    unsafe { request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short };
    control(socket, libc::SIOCSIFFLAGS, request)
}

fn add_default_route(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain data for which zero is valid.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(GATEWAY);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    control(socket, libc::SIOCADDRT, &mut route)
}

fn set_permanent_neighbour(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain data for which zero is valid.
    let mut neighbour: libc::arpreq = unsafe { std::mem::zeroed() };
    neighbour.arp_pa = socket_address(GATEWAY);
    neighbour.arp_ha.sa_family = libc::ARPHRD_ETHER;
    for (place, byte) in neighbour.arp_ha.sa_data.iter_mut().zip(GATEWAY_MAC) {
        *place = byte as libc::c_char;
    }
    neighbour.arp_flags = libc::ATF_PERM | libc::ATF_COM;
    for (place, byte) in neighbour.arp_dev.iter_mut().zip(INTERFACE.bytes()) {
        *place = byte as libc::c_char;
    }
    control(socket, libc::SIOCSARP, &mut neighbour)
}
