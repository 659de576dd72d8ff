//! Reaps every child of the agent, which as process 1 includes every orphan of the machine, and hands the
//! status of those somebody waits for to them. The only place that calls `waitpid` for running children.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use tokio::io::Interest;
use tokio::sync::{Notify, oneshot};

use crate::os;
use crate::runtime::watch_fd;
use crate::signals::SignalSet;

/// Status word of `waitpid`.
pub type WaitStatus = i32;

/// Who waits for which child. Spawning and reaping happen on one thread, so a child is always entered
/// here before its end can be read.
#[derive(Default)]
pub struct Reaper {
    waiting: RefCell<HashMap<i32, oneshot::Sender<WaitStatus>>>,
    reaped: Notify,
}

/// Blocks SIGCHLD for this thread and all that it starts later. Call before any thread is made.
pub fn block_sigchld() {
    sigchld().block();
}

fn sigchld() -> SignalSet {
    SignalSet::of([libc::SIGCHLD])
}

impl Reaper {
    /// Registers interest in a child's end.
    pub fn wait_for(&self, pid: i32) -> oneshot::Receiver<WaitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Resolves after the next round of reaping in which something ended.
    pub async fn next_round(&self) {
        self.reaped.notified().await;
    }

    /// Runs for ever.
    pub async fn run(&self) -> io::Result<()> {
        let signals = watch_fd(sigchld().open()?, Interest::READABLE)?;
        let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>() * 4];
        loop {
            // One signal can stand for many children, and some may have ended before we listened.
            self.reap_all();
            let mut guard = signals.readable().await?;
            while os::read(guard.get_inner(), &mut buffer).is_ok() {}
            guard.clear_ready();
        }
    }

    fn reap_all(&self) {
        let mut some = false;
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                break;
            }
            some = true;
            let sender = self.waiting.borrow_mut().remove(&pid);
            if let Some(sender) = sender {
                // The waiter may have given up.
                let _ = sender.send(status);
            }
        }
        if some {
            self.reaped.notify_waiters();
        }
    }
}

/// Exit code and signal of a status word: 128 + n after signal n.
pub fn decode(status: WaitStatus) -> (i32, i32) {
    if libc::WIFEXITED(status) {
        (libc::WEXITSTATUS(status), 0)
    } else {
        let signal = libc::WTERMSIG(status);
        (128 + signal, signal)
    }
}
