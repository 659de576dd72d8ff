//! What an init does about power: `reboot`, `halt` and `poweroff` of an image without systemd ask process 1 by
//! a signal. Only while the agent is process 1.

use std::io;
use std::time::Duration;

use tokio::io::Interest;

use crate::runtime::watch_fd;
use crate::signals::SignalSet;
use crate::{log, os};

/// Between TERM and KILL for everything that runs.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// For KILL to have its effect.
const KILL_GRACE: Duration = Duration::from_millis(200);

/// What BusyBox and systemd send for each; Ctrl-Alt-Del is INT. A halted machine could do nothing but cost,
/// so it is powered off.
fn meaning(signal: i32) -> Option<libc::c_int> {
    let after_min = signal - libc::SIGRTMIN();
    match signal {
        libc::SIGTERM | libc::SIGINT => Some(libc::RB_AUTOBOOT),
        libc::SIGUSR1 | libc::SIGUSR2 => Some(libc::RB_POWER_OFF),
        _ if after_min == 3 || after_min == 4 => Some(libc::RB_POWER_OFF),
        _ if after_min == 5 => Some(libc::RB_AUTOBOOT),
        _ => None,
    }
}

/// Blocks these signals for this thread and all that it starts later: process 1 gets none that it does not wait for.
pub fn block_signals() {
    signals().block();
}

fn signals() -> SignalSet {
    SignalSet::of((1..=libc::SIGRTMAX()).filter(|&signal| meaning(signal).is_some()))
}

/// Waits for such a signal and does what it asks for. Returns only in the case of an error.
pub async fn run() -> io::Result<()> {
    let arrived = watch_fd(signals().open()?, Interest::READABLE)?;
    let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>()];
    loop {
        let mut guard = arrived.readable().await?;
        let read = os::read(guard.get_inner(), &mut buffer);
        guard.clear_ready();
        // The number comes first.
        let signal = i32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
        if let (Ok(_), Some(command)) = (read, meaning(signal)) {
            shut_down(command).await?;
        }
    }
}

async fn shut_down(command: libc::c_int) -> io::Result<()> {
    log!("asked to {}", if command == libc::RB_AUTOBOOT { "reboot" } else { "power off" });
    for (signal, grace) in [(libc::SIGTERM, TERM_GRACE), (libc::SIGKILL, KILL_GRACE)] {
        let _ = os::kill(-1, signal);
        let give_up = tokio::time::Instant::now() + grace;
        while somebody_is_left() && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // SAFETY: plain calls.
    unsafe {
        libc::sync();
        os::check(libc::reboot(command))?;
    }
    Ok(())
}

/// Threads of the kernel and zombies have no command line.
fn somebody_is_left() -> bool {
    let own = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return true;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes()[0].is_ascii_digit()
            && name != own.as_str()
            && std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| !line.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_both_families() {
        assert_eq!(meaning(libc::SIGTERM), Some(libc::RB_AUTOBOOT));
        assert_eq!(meaning(libc::SIGUSR2), Some(libc::RB_POWER_OFF));
        assert_eq!(meaning(libc::SIGRTMIN() + 4), Some(libc::RB_POWER_OFF));
        assert_eq!(meaning(libc::SIGRTMIN() + 5), Some(libc::RB_AUTOBOOT));
        for other in [libc::SIGHUP, libc::SIGCHLD, libc::SIGPIPE, libc::SIGRTMIN()] {
            assert_eq!(meaning(other), None);
        }
    }
}
