//! Watches one command from its start to its end: hands its output on, keeps its time limit, ends its
//! process tree when asked, and records how it ended.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::cgroup::ExecCgroup;
use super::command::Exec;
use super::contract::ExecEnd;
use super::frame::{PAYLOAD_MAX_BYTES, kind::PTY};
use super::reaper::{self, WaitStatus};
use super::tree::ProcessTree;
use crate::agent::Agent;
use crate::os;

/// First size of a buffer for output.
const BUFFER_MIN_BYTES: usize = 4096;
/// After the command's exit, how long its pipes must be quiet before they are given up while background
/// children hold them open.
const QUIET: Duration = Duration::from_millis(50);
/// The same in all, for children that go on writing.
const QUIET_TOTAL: Duration = Duration::from_millis(250);
/// Pipes of ended commands that background children still hold, drained to nowhere so that these
/// children are not killed by SIGPIPE.
const ABANDONED_MAX: usize = 256;

/// Process 1 of a view is seen to be gone only after all others of the view.
const VIEW_END_MAX: Duration = Duration::from_millis(200);
const VIEW_ENDED: &str =
    "the sealed view of this command was ended from inside, as by reboot: the next command makes it anew";

/// What is needed to watch a command.
pub struct Watch {
    /// Its status, from the reaper.
    pub exit: oneshot::Receiver<WaitStatus>,
    /// Our ends of its output, with the frame kind of each.
    pub outputs: Vec<(u8, AsyncFd<OwnedFd>)>,
    /// Its time limit.
    pub timeout: Option<Duration>,
    /// Its cgroup.
    pub group: Option<Rc<ExecCgroup>>,
}

/// Set once the command itself has exited.
#[derive(Default)]
struct Exited {
    flag: Cell<bool>,
    set: Notify,
}

/// Runs until the command has ended and what it wrote has been handed on.
pub async fn supervise(agent: Rc<Agent>, exec: Rc<Exec>, watch: Watch) {
    let Watch { mut exit, outputs, timeout, group } = watch;
    let tree = ProcessTree::new(exec.pid, group.clone());
    let exited = Exited::default();
    let mut status: Option<WaitStatus> = None;
    let mut timed_out = false;
    let mut pumped = false;
    let mut terminated = true;
    let mut termination: Pin<Box<dyn Future<Output = ()>>> = Box::pin(std::future::pending());
    let deadline = async {
        match timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    {
        let pumps = pump_all(&exec, &outputs, &exited);
        tokio::pin!(pumps);
        while status.is_none() || !pumped || !terminated {
            tokio::select! {
                result = &mut exit, if status.is_none() => {
                    status = Some(result.unwrap_or(0));
                    exec.reaped.set(true);
                    exited.flag.set(true);
                    exited.set.notify_waiters();
                }
                () = &mut pumps, if !pumped => pumped = true,
                () = &mut deadline, if status.is_none() && !timed_out => {
                    timed_out = true;
                    if terminated {
                        terminated = false;
                        termination = Box::pin(tree.terminate());
                    }
                }
                () = exec.cancel.notified(), if status.is_none() && terminated => {
                    terminated = false;
                    termination = Box::pin(tree.terminate());
                }
                () = &mut termination, if !terminated => terminated = true,
            }
        }
    }
    let (exit_code, signal) = reaper::decode(status.unwrap_or(0));
    // A shell reports a child killed by signal 9 as 137.
    let killed = signal == libc::SIGKILL || exit_code == 128 + libc::SIGKILL;
    let view_ended = signal == libc::SIGKILL && !timed_out && view_has_ended(&exec).await;
    exec.finish(ExecEnd {
        exit_code,
        signal,
        oom_killed: killed && group.as_ref().is_some_and(|group| group.oom_kills() > 0),
        timed_out,
        view_ended,
        error: view_ended.then(|| VIEW_ENDED.to_string()),
        ..ExecEnd::default()
    });
    agent.execs.ended(&exec);
    if let (Some(cgroups), Some(group)) = (&agent.cgroups, group) {
        cgroups.release(group);
    }
    for (kind, output) in outputs {
        // A terminal is hung up when its session leader has gone.
        if kind != PTY && !at_end(&output) {
            drain_abandoned(&agent, output);
        }
    }
}

/// A killed command may have gone with all of its view.
async fn view_has_ended(exec: &Exec) -> bool {
    match &exec.view {
        Some(view) => tokio::time::timeout(VIEW_END_MAX, view.until_ended()).await.is_ok(),
        None => false,
    }
}

async fn pump_all(exec: &Exec, outputs: &[(u8, AsyncFd<OwnedFd>)], exited: &Exited) {
    match outputs {
        [(kind, one)] => pump(exec, *kind, one, exited).await,
        [(kind_one, one), (kind_two, two)] => {
            tokio::join!(pump(exec, *kind_one, one, exited), pump(exec, *kind_two, two, exited));
        }
        _ => {}
    }
}

/// Hands on what comes, until the end of the pipe; after the command's exit until the pipe is quiet.
async fn pump(exec: &Exec, kind: u8, fd: &AsyncFd<OwnedFd>, exited: &Exited) {
    let mut buffer = vec![0u8; BUFFER_MIN_BYTES];
    while !exited.flag.get() {
        let read = tokio::select! {
            biased;
            read = read_some(fd, &mut buffer) => read,
            () = exited.set.notified() => break,
        };
        match read {
            // EIO: the last holder of the terminal has closed it.
            Ok(0) | Err(_) => return,
            Ok(count) => {
                exec.output.deliver(kind, &buffer[..count]).await;
                grow_if_filled(&mut buffer, count);
            }
        }
    }
    // What the pipe holds now was written before the exit, and is owed however slow the reader is.
    let mut owed = readable_bytes(fd);
    let give_up = Instant::now() + QUIET_TOTAL;
    loop {
        let read = match os::read(fd.get_ref(), &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let quiet_until = give_up.min(Instant::now() + QUIET);
                match tokio::time::timeout_at(quiet_until, read_some(fd, &mut buffer)).await {
                    Ok(read) => read,
                    Err(_) => return,
                }
            }
            other => other,
        };
        let count = match read {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        exec.output.deliver(kind, &buffer[..count]).await;
        grow_if_filled(&mut buffer, count);
        owed = owed.saturating_sub(count);
        if owed == 0 && Instant::now() >= give_up {
            return;
        }
    }
}

/// Most commands write little: a machine with thousands of them should not hold large buffers.
fn grow_if_filled(buffer: &mut Vec<u8>, count: usize) {
    if count == buffer.len() && count < PAYLOAD_MAX_BYTES {
        buffer.resize((count * 4).min(PAYLOAD_MAX_BYTES), 0);
    }
}

fn readable_bytes(fd: &AsyncFd<OwnedFd>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    unsafe { libc::ioctl(fd.get_ref().as_raw_fd(), libc::FIONREAD, &mut count) };
    count.max(0) as usize
}

async fn read_some(fd: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut guard = fd.readable().await?;
        match guard.try_io(|fd| os::read(fd.get_ref(), buffer)) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}

/// The pipe has no writer left.
fn at_end(fd: &AsyncFd<OwnedFd>) -> bool {
    let mut poll = libc::pollfd { fd: fd.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, no waiting.
    unsafe { libc::poll(&mut poll, 1, 0) };
    poll.revents & libc::POLLHUP != 0
}

/// Reads and throws away what background children of an ended command still write.
fn drain_abandoned(agent: &Rc<Agent>, pipe: AsyncFd<OwnedFd>) {
    if agent.abandoned_pipes.get() >= ABANDONED_MAX {
        return;
    }
    agent.abandoned_pipes.set(agent.abandoned_pipes.get() + 1);
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        let mut buffer = vec![0u8; 4096];
        while let Ok(1..) = read_some(&pipe, &mut buffer).await {}
        agent.abandoned_pipes.set(agent.abandoned_pipes.get() - 1);
    });
}
