//! The one thread that everything runs on. Blocking file work goes to tokio's small pool.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Threads for blocking file work: one for each transfer, since each may have to wait for its disk or its
/// host.
const BLOCKING_THREADS_MAX: usize = 256;
/// Nothing that runs on them goes deep.
const BLOCKING_STACK_BYTES: usize = 512 * 1024;
/// Idle ones end after this.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Runs a future and the local tasks it spawns.
pub fn run(future: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(BLOCKING_STACK_BYTES)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .build()?;
    let result = tokio::task::LocalSet::new().block_on(&runtime, future);
    // A blocked file operation must not keep a test's agent alive.
    runtime.shutdown_background();
    result
}

/// Watches a descriptor for readiness. It should be non-blocking.
pub fn watch_fd(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd stays open and the same for as long as the AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
