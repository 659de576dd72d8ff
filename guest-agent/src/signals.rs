//! Sets of signals that are waited for by a descriptor instead of being delivered. Used by the reaper and by what
//! an init does about power.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::os;

/// A set of signals.
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Of these numbers.
    pub fn of(signals: impl IntoIterator<Item = libc::c_int>) -> SignalSet {
        // SAFETY: sigset_t is plain data, initialised by sigemptyset.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            SignalSet(set)
        }
    }

    /// Blocks them for this thread and all that it starts later: call before any thread is made.
    pub fn block(&self) {
        // SAFETY: a valid set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &self.0, std::ptr::null_mut()) };
    }

    /// A descriptor that can be read when one of them is pending: `signalfd_siginfo`s.
    pub fn open(&self) -> io::Result<OwnedFd> {
        // SAFETY: a new descriptor that is ours.
        unsafe {
            let fd = libc::signalfd(-1, &self.0, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            Ok(OwnedFd::from_raw_fd(os::check(fd)?))
        }
    }
}
