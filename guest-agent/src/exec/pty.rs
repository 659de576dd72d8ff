//! Pseudo-terminals: made, sized, and given to the user who will use them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::contract::PtySize;
use crate::os;

/// Both ends of a new terminal.
pub struct Pty {
    /// Ours, non-blocking.
    pub master: OwnedFd,
    /// The command's.
    pub slave: OwnedFd,
}

impl Pty {
    /// Makes one of this size, owned by `owner` if given: a program may open its terminal again by name, so
    /// it must be one of the terminals that the program sees: those of `devpts`, absent: the machine's.
    pub fn open(size: PtySize, owner: Option<u32>, devpts: Option<&OwnedFd>) -> io::Result<Pty> {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
        let master = match devpts {
            Some(folder) => os::open_at(folder.as_raw_fd(), Path::new("ptmx"), flags, 0)?,
            None => os::open(Path::new("/dev/ptmx"), flags, 0)?,
        };
        let unlocked: libc::c_int = 0;
        // SAFETY: ioctls on our own terminal with valid arguments; the peer's descriptor is new and ours.
        let slave = unsafe {
            os::check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlocked))?;
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            OwnedFd::from_raw_fd(os::check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?)
        };
        resize(&master, size)?;
        edit_by_characters(&slave)?;
        if let Some(uid) = owner {
            // SAFETY: plain system call; the group stays the tty group of devpts.
            os::check(unsafe { libc::fchown(slave.as_raw_fd(), uid, u32::MAX) })?;
        }
        Ok(Pty { master, slave })
    }
}

/// In line mode the erase key takes a whole UTF-8 character away, as on every terminal of today.
fn edit_by_characters(terminal: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: termios is plain data, filled by the first call and read by the second.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        os::check(libc::tcgetattr(terminal.as_raw_fd(), &mut settings))?;
        settings.c_iflag |= libc::IUTF8;
        os::check(libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &settings))?;
    }
    Ok(())
}

/// Changes the size; the kernel tells the foreground programs by SIGWINCH.
pub fn resize(master: &impl AsRawFd, size: PtySize) -> io::Result<()> {
    let window = libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: a valid winsize.
    os::check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &window) })?;
    Ok(())
}

/// The byte that means "end of input" on this terminal, if it is in line mode.
pub fn end_of_input(master: &impl AsRawFd) -> Option<u8> {
    // SAFETY: termios is plain data and filled by the call.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        os::check(libc::tcgetattr(master.as_raw_fd(), &mut settings)).ok()?;
        (settings.c_lflag & libc::ICANON != 0).then_some(settings.c_cc[libc::VEOF])
    }
}
