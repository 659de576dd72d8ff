//! The agent's own place in the system: console, limits, protection; and the settings systemd makes on a
//! plain machine.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::{log, os};

/// Descriptors the agent may have; its children get the usual limits. `su` and others that ask PAM take the limits of
/// process 1 for the system's own, so that it is a plain machine's number.
const FILES_MAX: u64 = 1_048_576;

/// systemd's HIGH_RLIMIT_MEMLOCK.
const LOCKED_MIN_BYTES: u64 = 64 * 1024 * 1024;

/// Settings of systemd's and Debian's sysctl.d that programs notice. Value by path below /proc/sys.
const SYSCTLS: [(&str, &str); 9] = [
    // ping works without privileges, as on Debian 13 and in Docker; Debian 12 leaves this one out.
    ("net/ipv4/ping_group_range", "0 2147483647"),
    ("fs/protected_hardlinks", "1"),
    ("fs/protected_symlinks", "1"),
    ("fs/protected_fifos", "1"),
    ("fs/protected_regular", "2"),
    ("kernel/pid_max", "4194304"),
    // The kernel wants a whole line here.
    ("kernel/printk_devkmsg", "on\n"),
    ("kernel/ctrl-alt-del", "0"),
    ("net/unix/max_dgram_qlen", "512"),
];

/// Makes the console our standard streams: the kernel opens it only if the initramfs has its node.
pub fn open_console() {
    let Ok(console) = os::open(Path::new("/dev/console"), libc::O_RDWR | libc::O_NOCTTY, 0) else {
        return;
    };
    for stream in 0..=2 {
        // SAFETY: plain dup2 of an open descriptor.
        unsafe { libc::dup2(console.as_raw_fd(), stream) };
    }
    if console.as_raw_fd() <= 2 {
        // It is one of them.
        std::mem::forget(console);
    }
}

/// Many descriptors, a plain umask, and no death by the OOM killer. Commands inherit what may be locked in memory:
/// as much as systemd allows itself and so a login.
pub fn set_limits() -> io::Result<()> {
    // SAFETY: plain calls with valid arguments.
    unsafe {
        libc::umask(0o022);
        let files = libc::rlimit { rlim_cur: FILES_MAX, rlim_max: FILES_MAX };
        os::check(libc::setrlimit(libc::RLIMIT_NOFILE, &files))?;
        let memory = libc::sysconf(libc::_SC_PHYS_PAGES) as u64 * libc::sysconf(libc::_SC_PAGESIZE) as u64;
        let locked = LOCKED_MIN_BYTES.max(memory / 8);
        let locked = libc::rlimit { rlim_cur: locked, rlim_max: locked };
        os::check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &locked))?;
    }
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Best effort: a kernel without one of them has nothing to set.
pub fn set_sysctls() {
    for (name, value) in SYSCTLS {
        if let Err(error) = std::fs::write(Path::new("/proc/sys").join(name), value) {
            log!("sysctl {name}: {error}");
        }
    }
}
