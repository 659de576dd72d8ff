//! One virtio-serial port as an asynchronous byte stream.
//!
//! The port is watched through an epoll of its own, edge-triggered, and that epoll is what tokio watches:
//! tokio remembers a hang-up for ever, but on a port it only means that no host is connected now, and a
//! level-triggered hang-up would spin. Small writes (HTTP/2 frame headers) are collected into one of
//! 32 KiB, which is what the kernel sends at once; reads return at most one page and are repeated.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::os;
use crate::runtime::watch_fd;

/// Bytes the kernel's virtio_console driver sends in one buffer.
const STAGE_BYTES: usize = 32 * 1024;
/// Bytes one read of the driver can return.
const PAGE_BYTES: usize = 4096;

/// What a port does when no host is connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnHangUp {
    /// Reads end and writes fail: the connection is over (`data`).
    End,
    /// Wait for the next host (`ctl`).
    Wait,
}

/// An open port.
pub struct Port {
    fd: OwnedFd,
    events: AsyncFd<OwnedFd>,
    on_hang_up: OnHangUp,
    readable: bool,
    writable: bool,
    read_waker: Option<Waker>,
    write_waker: Option<Waker>,
    staged: Vec<u8>,
    staged_from: usize,
}

impl Port {
    /// Opens the device. EBUSY when it is open already: a port has one owner.
    pub fn open(path: &Path, on_hang_up: OnHangUp) -> io::Result<Port> {
        Port::new(os::open(path, libc::O_RDWR | libc::O_NONBLOCK, 0)?, on_hang_up)
    }

    /// Of a port that is open already.
    pub fn new(fd: OwnedFd, on_hang_up: OnHangUp) -> io::Result<Port> {
        // SAFETY: a new descriptor that is ours; `event` is valid during the call.
        let epoll = unsafe {
            let epoll = OwnedFd::from_raw_fd(os::check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            let interest = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
            let mut event = libc::epoll_event { events: interest, u64: 0 };
            os::check(libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event))?;
            epoll
        };
        Ok(Port {
            fd,
            events: watch_fd(epoll, Interest::READABLE)?,
            on_hang_up,
            readable: true,
            writable: true,
            read_waker: None,
            write_waker: None,
            staged: Vec::new(),
            staged_from: 0,
        })
    }

    /// Its descriptor, for one who takes over.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// No host is connected right now.
    fn hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid pollfd, no waiting.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLHUP != 0
    }

    /// Waits until a host is connected.
    pub async fn connected(&mut self) -> io::Result<()> {
        while self.hung_up() {
            std::future::poll_fn(|context| self.poll_edge(context)).await?;
        }
        Ok(())
    }

    /// Takes one edge from the port's epoll and marks what it says.
    fn poll_edge(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.events.poll_read_ready(context))?;
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for the one event asked for, no waiting.
            let count = unsafe { libc::epoll_wait(guard.get_inner().as_raw_fd(), &mut event, 1, 0) };
            if count <= 0 {
                guard.clear_ready();
                continue;
            }
            drop(guard);
            let events = event.events as i32;
            let closed = libc::EPOLLHUP | libc::EPOLLERR;
            if events & (libc::EPOLLIN | closed) != 0 {
                self.readable = true;
                if let Some(waker) = self.read_waker.take() {
                    waker.wake();
                }
            }
            if events & (libc::EPOLLOUT | closed) != 0 {
                self.writable = true;
                if let Some(waker) = self.write_waker.take() {
                    waker.wake();
                }
            }
            return Poll::Ready(Ok(()));
        }
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.staged_from < self.staged.len() {
            let written = ready!(self.poll_write_staged(context))?;
            self.staged_from += written;
        }
        self.staged.clear();
        self.staged_from = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_write_staged(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            if self.writable {
                match os::write(&self.fd, &self.staged[self.staged_from..]) {
                    Ok(written) => return Poll::Ready(Ok(written)),
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EAGAIN) => {
                            // A port without a host also answers EAGAIN, never EPIPE.
                            if self.on_hang_up == OnHangUp::End && self.hung_up() {
                                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                            }
                            self.writable = false;
                        }
                        Some(libc::EINTR) => continue,
                        _ => return Poll::Ready(Err(error)),
                    },
                }
            }
            self.write_waker = Some(context.waker().clone());
            ready!(self.poll_edge(context))?;
        }
    }
}

/// Reads once behind what is in the buffer. Not into zeroed memory: zeroing it takes as long as reading.
fn read_into(fd: &OwnedFd, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: the kernel writes into the unfilled part only, and what it has written is then initialised.
    unsafe {
        let room = buffer.unfilled_mut();
        let got = libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len());
        let count = os::check_long(got as libc::c_long)? as usize;
        buffer.assume_init(count);
        buffer.advance(count);
        Ok(count)
    }
}

impl AsyncRead for Port {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let port = &mut *self;
        let mut got_some = false;
        loop {
            if port.readable {
                match read_into(&port.fd, buffer) {
                    Ok(0) => {
                        // No host and nothing buffered.
                        if got_some || port.on_hang_up == OnHangUp::End {
                            return Poll::Ready(Ok(()));
                        }
                        port.readable = false;
                    }
                    Ok(count) => {
                        if count >= PAGE_BYTES && buffer.remaining() >= PAGE_BYTES {
                            got_some = true;
                            continue;
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EAGAIN) => {
                            port.readable = false;
                            if got_some {
                                return Poll::Ready(Ok(()));
                            }
                        }
                        Some(libc::EINTR) => continue,
                        _ => return Poll::Ready(Err(error)),
                    },
                }
            }
            port.read_waker = Some(context.waker().clone());
            ready!(port.poll_edge(context))?;
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let port = &mut *self;
        if port.staged.len() >= STAGE_BYTES {
            ready!(port.poll_drain(context))?;
        }
        let count = bytes.len().min(STAGE_BYTES - port.staged.len());
        port.staged.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }
}
