//! The way to the host: `ctl` carries RESET lines, `data` one HTTP/2 connection at a time. A RESET drops
//! the connection, makes `data` anew and answers `SYNC <nonce>` on it; why it must be so is in
//! `docs` (guest channel): after a host crash or a fork no byte of one connection may enter the next.
//!
//! `virtio` runs it on the two ports of a machine, `sockets` on unix sockets for tests without one.

pub mod connection;
pub mod port;
pub mod reset;
pub mod sockets;
pub mod virtio;
