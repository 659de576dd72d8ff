//! The agent without a machine, for tests of everything above it: an ordinary process that serves the same
//! calls on unix sockets. Commands are processes of the host, files lie below a folder.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::io::Interest;

use crate::agent::Agent;
use crate::channel::sockets;
use crate::exec::{reaper, tree};
use crate::place::Place;
use crate::runtime::{self, watch_fd};
use crate::{log, os};

/// Serves until a signal asks for the end.
pub fn run(socket_dir: &Path, root: PathBuf, die_with_parent: bool) -> io::Result<()> {
    if die_with_parent {
        // SAFETY: plain prctl calls.
        unsafe {
            os::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
            // The parent may have gone before the call.
            if libc::getppid() == 1 {
                return Ok(());
            }
        }
    }
    // SAFETY: plain prctl call. Orphans of commands come to us, as they do to process 1.
    os::check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })?;
    std::fs::create_dir_all(socket_dir)?;
    std::fs::create_dir_all(&root)?;
    let root = root.canonicalize()?;
    reaper::block_sigchld();
    let end_signals = block_end_signals()?;
    let result = runtime::run(async {
        let end_signals = watch_fd(end_signals, Interest::READABLE)?;
        let agent = Rc::new(Agent::new(Place::Folder(root), None)?);
        tokio::select! {
            result = agent.reaper.run() => result,
            result = sockets::run(agent.clone(), socket_dir) => result,
            guard = end_signals.readable() => guard.map(|_| ()),
        }
    });
    tree::kill_descendants();
    for name in ["ctl.sock", "data.sock"] {
        let _ = std::fs::remove_file(socket_dir.join(name));
    }
    log!("ended");
    result
}

fn block_end_signals() -> io::Result<OwnedFd> {
    // SAFETY: signal-set calls on a local set; the descriptor is new and ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let fd = os::check(libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
