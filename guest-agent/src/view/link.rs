//! The network of a sealed view: a pair of linked cards, one in the machine, one in the view as `eth0`. In every
//! view the machine is [`MACHINE`]; the view's own address is of the same net. What the view sends further
//! goes out under the machine's address, so the host's egress rules hold for it too.

use std::ffi::CString;
use std::io;
use std::net::Ipv4Addr;

use super::netlink::{Message, Netlink};
use crate::os;

/// The machine, as seen from every view with a network of its own.
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
/// Bits of the net that all views' addresses are of.
const NET_BITS: u8 = 24;
/// Name of the card inside.
const INSIDE: &str = "eth0";
/// The machine's own card to the host.
const UPLINK: &str = "eth0";
const LOOPBACK: &str = "lo";

// linux/if_link.h, linux/veth.h, linux/if_addr.h, linux/rtnetlink.h
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const CREATE: u16 = libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16;

// linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink.h
const NFT_SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = NFT_SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (NFT_SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (NFT_SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (NFT_SUBSYSTEM << 8) | 6;
const TABLE: &str = "sandlot_views";
const CHAIN: &str = "leave";
const HOOK_POSTROUTING: u32 = 4;
const PRIORITY_SOURCE_NAT: u32 = 100;
const NETWORK_HEADER: u32 = 1;
const SOURCE_ADDRESS_OFFSET: u32 = 12;

/// Address of the view with this place among the machine's views.
pub fn address_of(slot: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 3, 2 + slot)
}

/// In the machine's namespace: makes the pair and puts one end into the namespace of `pid`.
pub fn connect(card: &str, stale: Option<&str>, slot: u8, pid: i32) -> io::Result<()> {
    let route = Netlink::open(libc::NETLINK_ROUTE)?;
    if let Some(stale) = stale {
        // Of a view that has ended; the kernel may have removed it itself by now.
        let mut remove = Message::new(libc::RTM_DELLINK, 0, &link_header(0, 0));
        let _ = route.ask(&[remove.add_text(IFLA_IFNAME, stale)]);
    }
    let mut make = Message::new(libc::RTM_NEWLINK, CREATE, &link_header(0, 0));
    make.add_text(IFLA_IFNAME, card).add_nested(IFLA_LINKINFO, |info| {
        info.add_text(IFLA_INFO_KIND, "veth").add_nested(IFLA_INFO_DATA, |data| {
            data.add_nested(VETH_INFO_PEER, |peer| {
                peer.add_fixed(&link_header(0, 0))
                    .add_text(IFLA_IFNAME, INSIDE)
                    .add(IFLA_NET_NS_PID, &pid.to_ne_bytes());
            });
        });
    });
    route.ask(&[&make])?;
    let index = index_of(card)?;
    // The same address on the machine's end of every pair: each leads to one address only.
    let mut address = Message::new(libc::RTM_NEWADDR, CREATE, &address_header(32, index));
    address.add(IFA_LOCAL, &MACHINE.octets()).add(IFA_ADDRESS, &address_of(slot).octets());
    route.ask(&[&address])?;
    bring_up(&route, index)?;
    // Only these two forward, not the whole machine: programs look at `ip_forward`.
    for card in [card, UPLINK] {
        let path = format!("/proc/sys/net/ipv4/conf/{card}/forwarding");
        match std::fs::write(path, "1") {
            Err(error) if card == UPLINK && error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// In the view's namespace: loopback, and the card if there is one.
pub fn configure_inside(slot: Option<u8>) -> io::Result<()> {
    let route = Netlink::open(libc::NETLINK_ROUTE)?;
    bring_up(&route, index_of(LOOPBACK)?)?;
    let Some(slot) = slot else { return Ok(()) };
    let index = index_of(INSIDE)?;
    let own = address_of(slot).octets();
    let mut address = Message::new(libc::RTM_NEWADDR, CREATE, &address_header(NET_BITS, index));
    route.ask(&[address.add(IFA_LOCAL, &own).add(IFA_ADDRESS, &own)])?;
    bring_up(&route, index)?;
    let mut default = Message::new(libc::RTM_NEWROUTE, CREATE, &route_header());
    route.ask(&[default.add(RTA_GATEWAY, &MACHINE.octets())])
}

/// In the machine's namespace: what comes from views leaves under the machine's address. Made anew each time:
/// somebody may have flushed the rules since.
pub fn masquerade() -> io::Result<()> {
    let mut table = Message::new(NEW_TABLE, libc::NLM_F_CREATE as u16, &filter_header(0));
    table.add_text(1, TABLE);
    let mut remove = Message::new(DELETE_TABLE, 0, &filter_header(0));
    remove.add_text(1, TABLE);
    let mut chain = Message::new(NEW_CHAIN, libc::NLM_F_CREATE as u16, &filter_header(0));
    chain.add_text(1, TABLE).add_text(3, CHAIN).add_text(7, "nat").add_nested(4, |hook| {
        hook.add(1, &HOOK_POSTROUTING.to_be_bytes()).add(2, &PRIORITY_SOURCE_NAT.to_be_bytes());
    });
    let append = libc::NLM_F_CREATE as u16 | libc::NLM_F_APPEND as u16;
    let mut rule = Message::new(NEW_RULE, append, &filter_header(0));
    let net = &MACHINE.octets()[..usize::from(NET_BITS / 8)];
    rule.add_text(1, TABLE).add_text(2, CHAIN).add_nested(4, |expressions| {
        add_expression(expressions, "payload", |data| {
            data.add(1, &1u32.to_be_bytes())
                .add(2, &NETWORK_HEADER.to_be_bytes())
                .add(3, &SOURCE_ADDRESS_OFFSET.to_be_bytes())
                .add(4, &(net.len() as u32).to_be_bytes());
        });
        add_expression(expressions, "cmp", |data| {
            data.add(1, &1u32.to_be_bytes()).add(2, &0u32.to_be_bytes()).add_nested(3, |value| {
                value.add(1, net);
            });
        });
        add_expression(expressions, "masq", |_| {});
    });
    let begin = Message::unanswered(BATCH_BEGIN, &filter_header(NFT_SUBSYSTEM));
    let end = Message::unanswered(BATCH_END, &filter_header(NFT_SUBSYSTEM));
    // Made first, so that the removal always has something to remove.
    Netlink::open(libc::NETLINK_NETFILTER)?.ask(&[&begin, &table, &remove, &table, &chain, &rule, &end])
}

fn add_expression(list: &mut Message, name: &str, fill: impl FnOnce(&mut Message)) {
    list.add_nested(1, |element| {
        element.add_text(1, name).add_nested(2, fill);
    });
}

fn bring_up(route: &Netlink, index: u32) -> io::Result<()> {
    route.ask(&[&Message::new(libc::RTM_NEWLINK, 0, &link_header(index, libc::IFF_UP as u32))])
}

fn index_of(card: &str) -> io::Result<u32> {
    let name: CString = os::c_string(card)?;
    // SAFETY: NUL-terminated name.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// `struct ifinfomsg`: flags and the mask of those that change.
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// `struct ifaddrmsg`.
fn address_header(bits: u8, index: u32) -> [u8; 8] {
    let mut bytes = [libc::AF_INET as u8, bits, 0, 0, 0, 0, 0, 0];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

/// `struct rtmsg` of a default route, by hand: main table, protocol boot, everywhere, unicast.
fn route_header() -> [u8; 12] {
    [libc::AF_INET as u8, 0, 0, 0, libc::RT_TABLE_MAIN, 3, 0, 1, 0, 0, 0, 0]
}

/// `struct nfgenmsg`.
fn filter_header(subsystem: u16) -> [u8; 4] {
    let family = if subsystem == 0 { libc::AF_INET as u8 } else { 0 };
    let [high, low] = subsystem.to_be_bytes();
    [family, 0, high, low]
}
