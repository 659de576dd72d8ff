//! Makes the process of one command from a finished plan.

use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;

use super::child::{self, Orders, Step};
use super::clone::ChildStack;
use super::contract::PtySize;
use super::pty::Pty;
use super::users::Identity;
use crate::os;

/// What a command's standard streams are.
#[derive(Clone, Copy, Debug)]
pub enum Stdio {
    /// Output by pipes; input by a pipe or from /dev/null.
    Pipes {
        /// Input is a pipe.
        stdin: bool,
    },
    /// All on a new terminal.
    Terminal(PtySize),
}

/// What is executed.
pub enum Program {
    /// The first of these that can be.
    Files(Vec<CString>),
    /// The agent's own binary, which then does nothing: proves that commands can run in an image that
    /// has no program at all.
    Probe,
}

/// One command, ready to be started.
pub struct Plan {
    /// What is executed.
    pub program: Program,
    /// Its arguments.
    pub argv: Vec<CString>,
    /// Its environment.
    pub envp: Vec<CString>,
    /// Its working directory.
    pub cwd: CString,
    /// As whom; absent: as the agent.
    pub identity: Option<Identity>,
    /// Its standard streams.
    pub stdio: Stdio,
}

/// A started command, with our ends of its streams.
pub struct Spawned {
    /// Its pid: also its session and process group.
    pub pid: i32,
    /// Our ends.
    pub streams: Streams,
}

/// Our ends of a command's standard streams.
pub enum Streams {
    /// Pipes.
    Pipes {
        /// If it was asked for.
        stdin: Option<OwnedFd>,
        /// Its standard output.
        stdout: OwnedFd,
        /// Its standard error.
        stderr: OwnedFd,
    },
    /// Master of its terminal.
    Terminal(OwnedFd),
}

/// The step of starting that failed.
#[derive(Debug)]
pub struct SpawnFailed {
    /// Which.
    pub step: Step,
    /// Why.
    pub error: io::Error,
}

/// How this agent starts processes.
pub struct Spawner {
    stack: RefCell<ChildStack>,
    null: OwnedFd,
    own_program: OwnedFd,
    proc: Option<OwnedFd>,
    in_machine: bool,
}

impl Spawner {
    /// `in_machine`: the agent is process 1, protected from the OOM killer, with limits of its own that
    /// its children must not inherit. Needs /proc and /dev.
    pub fn new(in_machine: bool) -> io::Result<Spawner> {
        let proc = if in_machine { Some(os::open(Path::new("/proc"), libc::O_PATH, 0)?) } else { None };
        Ok(Spawner {
            stack: RefCell::default(),
            null: os::open(Path::new("/dev/null"), libc::O_RDWR, 0)?,
            own_program: os::open(Path::new("/proc/self/exe"), libc::O_PATH, 0)?,
            proc,
            in_machine,
        })
    }

    /// Starts a command, in a cgroup if one is given. Blocks for the 1-2 ms that this takes.
    pub fn spawn(&self, plan: &Plan, cgroup: Option<RawFd>) -> Result<Spawned, SpawnFailed> {
        let setup_failed = |error| SpawnFailed { step: Step::Setup, error };
        let owner = plan.identity.as_ref().map(|identity| identity.uid).filter(|&uid| uid != 0);
        let (ends, streams) = self.open_streams(plan.stdio, owner).map_err(setup_failed)?;
        let (programs, program_fd) = match &plan.program {
            Program::Files(files) => (pointers(files), -1),
            Program::Probe => (pointers(&[]), self.own_program.as_raw_fd()),
        };
        let (argv, envp) = (pointers(&plan.argv), pointers(&plan.envp));
        let groups = plan.identity.as_ref().map_or(&[][..], |identity| &identity.groups);
        let mut orders = Orders {
            programs: programs.as_ptr(),
            program_fd,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            cwd: plan.cwd.as_ptr(),
            stdin: ends.stdin(self),
            stdout: ends.stdout(),
            stderr: ends.stderr(),
            terminal: matches!(plan.stdio, Stdio::Terminal(_)),
            change_user: plan.identity.is_some(),
            uid: plan.identity.as_ref().map_or(0, |identity| identity.uid),
            gid: plan.identity.as_ref().map_or(0, |identity| identity.gid),
            groups: groups.as_ptr(),
            groups_count: groups.len(),
            proc_fd: self.proc.as_ref().map_or(-1, |proc| proc.as_raw_fd()),
            set_limits: self.in_machine,
            die_with_agent: !self.in_machine,
            failed: Step::None,
            errno: 0,
        };
        // SAFETY: `child::run` keeps the rules of a child in shared memory, and the orders with all they
        // point to live until the call returns, when the child no longer uses our memory.
        let spawned = unsafe {
            let orders = ptr::from_mut(&mut orders);
            self.stack.borrow_mut().spawn(child::run, orders.cast(), cgroup)
        };
        let pid = spawned.map_err(setup_failed)?;
        if orders.failed != Step::None {
            // SAFETY: it has ended or is about to; nobody else waits for it.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            return Err(SpawnFailed {
                step: orders.failed,
                error: io::Error::from_raw_os_error(orders.errno),
            });
        }
        Ok(Spawned { pid, streams })
    }

    fn open_streams(&self, stdio: Stdio, owner: Option<u32>) -> io::Result<(ChildEnds, Streams)> {
        match stdio {
            Stdio::Terminal(size) => {
                let pty = Pty::open(size, owner)?;
                Ok((ChildEnds::Terminal(pty.slave), Streams::Terminal(pty.master)))
            }
            Stdio::Pipes { stdin } => {
                let (input, feed) =
                    if stdin { os::pipe().map(|(r, w)| (Some(r), Some(w)))? } else { (None, None) };
                let (stdout, out) = os::pipe()?;
                let (stderr, err) = os::pipe()?;
                if let Some(uid) = owner {
                    // So that the user can open /dev/stdout and the like, which lead to these pipes.
                    for fd in [Some(&out), Some(&err), input.as_ref()].into_iter().flatten() {
                        // SAFETY: plain system call on our own pipe.
                        os::check(unsafe { libc::fchown(fd.as_raw_fd(), uid, u32::MAX) })?;
                    }
                }
                os::set_nonblocking(&stdout)?;
                os::set_nonblocking(&stderr)?;
                Ok((ChildEnds::Pipes { input, out, err }, Streams::Pipes { stdin: feed, stdout, stderr }))
            }
        }
    }
}

/// The ends that the child gets; closed in the agent when the child has been made.
enum ChildEnds {
    Terminal(OwnedFd),
    Pipes { input: Option<OwnedFd>, out: OwnedFd, err: OwnedFd },
}

impl ChildEnds {
    fn stdin(&self, spawner: &Spawner) -> RawFd {
        match self {
            ChildEnds::Terminal(slave) => slave.as_raw_fd(),
            ChildEnds::Pipes { input, .. } => input.as_ref().unwrap_or(&spawner.null).as_raw_fd(),
        }
    }

    fn stdout(&self) -> RawFd {
        match self {
            ChildEnds::Terminal(slave) => slave.as_raw_fd(),
            ChildEnds::Pipes { out, .. } => out.as_raw_fd(),
        }
    }

    fn stderr(&self) -> RawFd {
        match self {
            ChildEnds::Terminal(slave) => slave.as_raw_fd(),
            ChildEnds::Pipes { err, .. } => err.as_raw_fd(),
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}
