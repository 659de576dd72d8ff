//! Messages to the kernel's network configuration (netlink(7)): an image need not have `ip` or `nft`.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::os;

/// The kernel may have to load modules before it answers.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const HEADER_BYTES: usize = 16;
const ACKNOWLEDGE: u16 = libc::NLM_F_REQUEST as u16 | libc::NLM_F_ACK as u16;
/// Type of an answer that carries an error number, 0 for "done".
const NLMSG_ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;

/// One message. Attributes follow the fixed part.
pub struct Message(Vec<u8>);

impl Message {
    /// Begins one: its type, flags beside "request" and "acknowledge", and its fixed part.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Message {
        Message::with_flags(kind, flags | ACKNOWLEDGE, fixed)
    }

    /// Begins one that is not acknowledged.
    pub fn unanswered(kind: u16, fixed: &[u8]) -> Message {
        Message::with_flags(kind, libc::NLM_F_REQUEST as u16, fixed)
    }

    fn with_flags(kind: u16, flags: u16, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(fixed);
        let mut message = Message(bytes);
        message.pad();
        message
    }

    /// Adds an attribute.
    pub fn add(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.pad();
        self
    }

    /// Adds a text with its NUL.
    pub fn add_text(&mut self, kind: u16, text: &str) -> &mut Message {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.add(kind, &bytes)
    }

    /// Adds an attribute that holds attributes.
    pub fn add_nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) -> &mut Message {
        let begin = self.0.len();
        self.0.extend_from_slice(&[0, 0]);
        self.0.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length = (self.0.len() - begin) as u16;
        self.0[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Adds plain bytes, for a fixed part inside an attribute.
    pub fn add_fixed(&mut self, bytes: &[u8]) -> &mut Message {
        self.0.extend_from_slice(bytes);
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn is_answered(&self) -> bool {
        u16::from_ne_bytes([self.0[6], self.0[7]]) & libc::NLM_F_ACK as u16 != 0
    }

    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = self.0.clone();
        let length = bytes.len() as u32;
        bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

/// A socket in the network namespace where it was opened.
pub struct Netlink(OwnedFd);

impl Netlink {
    /// For `NETLINK_ROUTE`, `NETLINK_NETFILTER`.
    pub fn open(family: i32) -> io::Result<Netlink> {
        os::raw_socket(libc::AF_NETLINK, family, ANSWER_MAX).map(Netlink)
    }

    /// Sends messages as one, and waits for all answers; the first error counts.
    pub fn ask(&self, messages: &[&Message]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            bytes.extend(message.bytes(number as u32 + 1));
        }
        os::write(&self.0, &bytes)?;
        let mut missing = messages.iter().filter(|message| message.is_answered()).count();
        let mut buffer = vec![0u8; 32 * 1024];
        while missing > 0 {
            let length = os::read(&self.0, &mut buffer)?;
            for errno in answers(&buffer[..length]) {
                if errno != 0 {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                missing = missing.saturating_sub(1);
            }
        }
        Ok(())
    }
}

/// Error numbers of the answers in a datagram.
fn answers(mut bytes: &[u8]) -> Vec<i32> {
    let mut found = Vec::new();
    while bytes.len() >= HEADER_BYTES + 4 {
        let length = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if u16::from_ne_bytes([bytes[4], bytes[5]]) == NLMSG_ERROR {
            found.push(-i32::from_ne_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]));
        }
        bytes = bytes.get(length.next_multiple_of(4).max(HEADER_BYTES)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_content_and_places_are_aligned() {
        let mut message = Message::new(16, 0, &[1, 2, 3, 4]);
        message.add_text(3, "ab").add_nested(18, |inner| {
            inner.add_text(1, "veth");
        });
        let bytes = message.bytes(7);
        assert_eq!(bytes.len(), 16 + 4 + 8 + 4 + 12);
        assert_eq!(bytes[0..4], (bytes.len() as u32).to_ne_bytes());
        assert_eq!(bytes[8], 7);
        // "ab" and its NUL: 7 bytes of attribute in a place of 8.
        assert_eq!((bytes[20], bytes[28]), (7, 16));
        assert_eq!(bytes[32], 9);
    }

    #[test]
    fn the_kernel_answers_a_real_question() {
        let socket = Netlink::open(libc::NETLINK_ROUTE).unwrap();
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &[0u8; 16]);
        message.add_text(3, "no-such-link");
        assert!(socket.ask(&[&message]).is_err());
    }
}
