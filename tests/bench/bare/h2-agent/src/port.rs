//! A virtio-serial port for tokio. An epoll of its own, edge-triggered, stands between: tokio would keep
//! a hang-up for ever, which on a port only says that no host is connected at the moment.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// The driver sends at most this much in one buffer; smaller writes are collected.
const STAGE: usize = 32 * 1024;

pub struct Port {
    fd: OwnedFd,
    events: AsyncFd<OwnedFd>,
    staged: Vec<u8>,
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Port {
    #[allow(deprecated)] // `with_interest`: its replacement is newer than what Rust 1.85 may get
    pub fn open(path: &Path) -> io::Result<Port> {
        let name = std::ffi::CString::new(path.to_str().expect("a device name")).expect("no NUL");
        // SAFETY: new descriptors that are ours; the event is valid during the call.
        unsafe {
            let fd = OwnedFd::from_raw_fd(check(libc::open(
                name.as_ptr(),
                libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC,
            ))?);
            let epoll = OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            let interest = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
            let mut event = libc::epoll_event {
                events: interest,
                u64: 0,
            };
            check(libc::epoll_ctl(
                epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &mut event,
            ))?;
            Ok(Port {
                fd,
                events: AsyncFd::with_interest(epoll, Interest::READABLE)?,
                staged: Vec::new(),
            })
        }
    }

    /// Waits until a host is there.
    pub async fn connected(&mut self) -> io::Result<()> {
        loop {
            let mut poll = libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: 0,
                revents: 0,
            };
            // SAFETY: one valid pollfd, no waiting.
            unsafe { libc::poll(&mut poll, 1, 0) };
            if poll.revents & libc::POLLHUP == 0 {
                return Ok(());
            }
            std::future::poll_fn(|context| self.poll_event(context)).await?;
        }
    }

    /// Ready when the port's state changed since the last look.
    fn poll_event(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.events.poll_read_ready(context))?;
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event, no waiting.
            if unsafe { libc::epoll_wait(guard.get_inner().as_raw_fd(), &mut event, 1, 0) } > 0 {
                return Poll::Ready(Ok(()));
            }
            guard.clear_ready();
        }
    }

    /// Repeats a read or write until it can be done. Zero bytes read means that the host is away.
    fn poll_call(
        &self,
        context: &mut Context<'_>,
        mut call: impl FnMut(i32) -> isize,
    ) -> Poll<io::Result<usize>> {
        loop {
            let done = call(self.fd.as_raw_fd());
            if done > 0 {
                return Poll::Ready(Ok(done as usize));
            }
            if done < 0 {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EAGAIN) {
                    return Poll::Ready(Err(error));
                }
            }
            ready!(self.poll_event(context))?;
        }
    }
}

impl AsyncRead for Port {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let mut filled = 0;
        let result = self.poll_call(context, |fd| {
            // A read returns one page at most: go on while whole pages come.
            while room.len() - filled >= 4096 || filled == 0 {
                let rest = &mut room[filled..];
                // SAFETY: the rest of the buffer is ours.
                let got = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
                if got <= 0 {
                    return if filled > 0 { filled as isize } else { got };
                }
                filled += got as usize;
                if got < 4096 {
                    break;
                }
            }
            filled as isize
        });
        let read = ready!(result)?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Port {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.staged.len() >= STAGE {
            ready!(self.as_mut().poll_flush(context))?;
        }
        let taken = bytes.len().min(STAGE - self.staged.len());
        self.staged.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.staged.is_empty() {
            let staged = &self.staged;
            // SAFETY: the staged bytes are valid.
            let written = ready!(self.poll_call(context, |fd| unsafe {
                libc::write(fd, staged.as_ptr().cast(), staged.len())
            }))?;
            self.staged.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
