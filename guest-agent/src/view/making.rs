//! The agent's side of making a view: starts the maker, gives it its order, opens what it made.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::maker::{self, Made, Order, SealedOrder};
use super::{Inside, Sealed, View, ViewSpec, kernel_programs, pins};
use crate::agent::Agent;
use crate::exec::cgroup::ViewCgroups;
use crate::exec::spawn::{Plan, Program, Stdio, Streams};
use crate::http::error::{CallError, plain_reason};
use crate::runtime::watch_fd;
use crate::{log, os};

/// Longest wait for the maker: the first view of a machine may load modules, under emulation and load.
const MAKING_MAX: Duration = Duration::from_secs(60);
/// Time for the maker to end when it has been given leave.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// Modules that a view's root cannot load itself; what they need comes with them.
const MODULES: [&str; 4] = ["iptable_filter", "iptable_nat", "ip6table_filter", "br_netfilter"];
/// Lines of a maker's complaints that are passed on.
const COMPLAINTS_MAX_BYTES: usize = 16 * 1024;

/// One view to make.
pub struct Wish {
    /// In its one form.
    pub spec: ViewSpec,
    /// Counts the views of the machine.
    pub number: u32,
    /// Place among the living sealed ones.
    pub slot: u8,
    /// The machine's end of the link of a view that had this place.
    pub stale_card: Option<String>,
    /// For each of its paths, how many entries are pinned, from the top.
    pub pinned: Vec<usize>,
    /// No sealed one was made before.
    pub first_sealed: bool,
}

/// Makes it.
pub async fn make(agent: &Rc<Agent>, wish: Wish) -> Result<View, CallError> {
    let begun = Instant::now();
    let card = format!("view{}", wish.number);
    if wish.spec.is_sealed() {
        kernel_programs::put_out_of_reach().map_err(|error| {
            failed(format!("put the kernel's helpers out of reach: {}", plain_reason(&error)))
        })?;
    }
    let cgroups = match (&agent.cgroups, wish.spec.is_sealed()) {
        (Some(cgroups), true) => Some(
            cgroups
                .make_view(wish.number, maker::FIRST_ID)
                .map_err(|error| failed(format!("make its cgroups: {}", plain_reason(&error))))?,
        ),
        _ => None,
    };
    let order = Order {
        agent: std::process::id(),
        pins_fd: pins::PINS_FD,
        pinned: wish.pinned,
        sealed: cgroups.as_ref().map(|cgroups| SealedOrder {
            main_cgroup_fd: cgroups.main.as_raw_fd(),
            slot: wish.slot,
            card: card.clone(),
            stale_card: wish.stale_card,
        }),
        spec: wish.spec,
    };
    let made = run(agent, &order, cgroups.as_ref()).await;
    let inside = match (made, cgroups) {
        (Ok(Opened::Mask(namespace)), _) => Inside::Mask { namespace },
        (Ok(Opened::Sealed { holder, terminals }), Some(cgroups)) => {
            // Without it an exec of the view is only not known to have been killed for want of memory.
            if let Err(error) = cgroups.open_for_execs() {
                log!("view: its cgroups: {error}");
            }
            Inside::Sealed(Sealed { holder, terminals, cgroups, slot: wish.slot, card })
        }
        (Ok(Opened::Sealed { .. }), None) => return Err(failed("it has no cgroups".to_string())),
        (Err(error), cgroups) => {
            if let Some(cgroups) = cgroups {
                cgroups.remove();
            }
            return Err(error);
        }
    };
    if wish.first_sealed && order.spec.is_sealed() {
        load_modules(agent);
    }
    let made_ms = (begun.elapsed().as_secs_f64() * 100_000.0).round() / 100.0;
    Ok(View { id: format!("view-{}", wish.number), spec: order.spec, made_ms, inside })
}

/// A view's root may use iptables' old interface and bridges, whose modules it cannot load itself. They come while
/// the first commands run: on an emulated processor they take seconds.
fn load_modules(agent: &Agent) {
    let argv = ["modprobe", "-q", "-a"].into_iter().chain(MODULES);
    let plan = own_program(argv.filter_map(|word| CString::new(word).ok()).collect());
    if let Err(failed) = agent.spawner.spawn(&plan, None) {
        log!("view: load modules: {}", failed.error);
    }
}

/// The agent's binary, as one of its other faces.
fn own_program(argv: Vec<CString>) -> Plan {
    Plan {
        program: Program::Own,
        argv,
        envp: Vec::new(),
        cwd: CString::new("/").unwrap_or_default(),
        identity: None,
        stdio: Stdio::Pipes { stdin: true },
        view: None,
    }
}

enum Opened {
    Mask(OwnedFd),
    Sealed { holder: AsyncFd<OwnedFd>, terminals: OwnedFd },
}

fn failed(reason: String) -> CallError {
    CallError::new(StatusCode::INTERNAL_SERVER_ERROR, "EIO", format!("the view cannot be made: {reason}"))
}

/// Runs the maker to its end.
async fn run(agent: &Rc<Agent>, order: &Order, cgroups: Option<&ViewCgroups>) -> Result<Opened, CallError> {
    let plan = own_program(vec![CString::new(maker::NAME).unwrap_or_default()]);
    let spawned = agent
        .spawner
        .spawn(&plan, cgroups.map(ViewCgroups::fd))
        .map_err(|error| failed(format!("start its maker: {}", plain_reason(&error.error))))?;
    let exit = agent.reaper.wait_for(spawned.pid);
    let Streams::Pipes { stdin: Some(stdin), stdout, stderr } = spawned.streams else {
        return Err(failed("its maker has no input".to_string()));
    };
    let opened = tokio::time::timeout(MAKING_MAX, converse(order, spawned.pid, &stdin, stdout)).await;
    let opened = opened.unwrap_or_else(|_| Err(failed("its maker did not answer".to_string())));
    if opened.is_err() {
        let _ = os::kill(spawned.pid, libc::SIGKILL);
    }
    // Its leave.
    drop(stdin);
    if tokio::time::timeout(LEAVE_MAX, exit).await.is_err() {
        log!("view: its maker does not end");
        let _ = os::kill(spawned.pid, libc::SIGKILL);
    }
    let mut complaints = vec![0u8; COMPLAINTS_MAX_BYTES];
    if let Ok(length @ 1..) = os::read(&stderr, &mut complaints) {
        log!("view: its maker says:\r\n{}", String::from_utf8_lossy(&complaints[..length]).trim_end());
    }
    opened
}

async fn converse(order: &Order, pid: i32, stdin: &OwnedFd, stdout: OwnedFd) -> Result<Opened, CallError> {
    let mut text = serde_json::to_vec(order).map_err(|error| failed(error.to_string()))?;
    text.push(b'\n');
    if text.len() > maker::MESSAGE_MAX_BYTES {
        return Err(failed("its paths are too long".to_string()));
    }
    let ask = |error: io::Error| failed(format!("ask its maker: {}", plain_reason(&error)));
    // The pipe takes all of it, so that nobody waits.
    // SAFETY: plain fcntl on our own pipe.
    unsafe { libc::fcntl(stdin.as_raw_fd(), libc::F_SETPIPE_SZ, maker::MESSAGE_MAX_BYTES as libc::c_int) };
    os::set_nonblocking(stdin).map_err(ask)?;
    if os::write(stdin, &text).map_err(ask)? < text.len() {
        return Err(failed("its order is longer than a pipe".to_string()));
    }
    let answer = read_line(stdout).await.map_err(ask)?;
    match serde_json::from_slice(&answer) {
        Ok(Made::Done { holder }) => {
            open(pid, holder).map_err(|error| failed(format!("open what was made: {}", plain_reason(&error))))
        }
        Ok(Made::Refused { code, message }) => {
            Err(CallError { status: StatusCode::BAD_REQUEST, code: code.into(), message })
        }
        Ok(Made::Failed { message }) => Err(failed(message)),
        Err(error) => Err(failed(format!("its maker ended without an answer ({error})"))),
    }
}

/// Nobody but the maker and its view's process 1 has run in the view yet: what its root could put in the
/// way of these paths is not there.
fn open(maker: i32, holder: Option<i32>) -> io::Result<Opened> {
    let Some(holder) = holder else {
        return os::open(Path::new(&format!("/proc/{maker}/ns/mnt")), libc::O_RDONLY, 0).map(Opened::Mask);
    };
    let terminals = Path::new("/proc").join(holder.to_string()).join("root/dev/pts");
    let terminals = os::open(&terminals, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    // SAFETY: the new descriptor is ours.
    let holder = unsafe {
        let fd = os::check_long(libc::syscall(libc::SYS_pidfd_open, holder, libc::PIDFD_NONBLOCK))?;
        OwnedFd::from_raw_fd(fd as i32)
    };
    Ok(Opened::Sealed { holder: watch_fd(holder, Interest::READABLE)?, terminals })
}

async fn read_line(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    let pipe = watch_fd(pipe, Interest::READABLE)?;
    let mut line = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let mut guard = pipe.readable().await?;
        match guard.try_io(|pipe| os::read(pipe.get_ref(), &mut buffer)) {
            Ok(Ok(0)) => return Ok(line),
            Ok(Ok(length)) => line.extend_from_slice(&buffer[..length]),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => continue,
        }
        if line.last() == Some(&b'\n') || line.len() > maker::MESSAGE_MAX_BYTES {
            return Ok(line);
        }
    }
}

/// A process, open as a pidfd, has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, no waiting.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}
