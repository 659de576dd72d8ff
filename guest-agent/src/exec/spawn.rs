//! Makes the process of one command from a finished plan.

use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::rc::Rc;

use super::child::{self, Orders, Room, Step};
use super::clone::ChildStack;
use super::contract::PtySize;
use super::pty::Pty;
use super::users::Identity;
use crate::os;
use crate::view::View;

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
    /// The agent's own binary, which by its argument zero does nothing (proves that commands can run in an
    /// image that has no program at all) or makes a view.
    Own,
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
    /// Where it runs; absent: in the machine.
    pub view: Option<Rc<View>>,
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
        let (ends, streams) = self.open_streams(plan).map_err(setup_failed)?;
        let (programs, program_fd) = match &plan.program {
            Program::Files(files) => (pointers(files), -1),
            Program::Own => (pointers(&[]), self.own_program.as_raw_fd()),
        };
        let (argv, envp) = (pointers(&plan.argv), pointers(&plan.envp));
        let groups = plan.identity.as_ref().map_or(&[][..], |identity| &identity.groups);
        let mut stack = self.stack.borrow_mut();
        let mut orders = Orders {
            programs: programs.as_ptr(),
            program_fd,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            cwd: plan.cwd.as_ptr(),
            stdin: ends.stdin(),
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
            room: plan.view.as_ref().map_or(Room::Machine, |view| view.room()),
            inner_stack: stack.lower_half(),
            inner_pid: 0,
            failed: Step::None,
            errno: 0,
        };
        // SAFETY: `child::run` keeps the rules of a child in shared memory, and the orders with all they
        // point to live until the call returns, when the child no longer uses our memory.
        let spawned = unsafe {
            let orders = ptr::from_mut(&mut orders);
            stack.spawn(child::run, orders.cast(), cgroup)
        };
        let mut pid = spawned.map_err(setup_failed)?;
        // SAFETY: who is waited for has ended or is about to, and nobody else waits for it.
        let wait = |pid| unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if matches!(orders.room, Room::Sealed(_)) {
            // It has only made the command.
            wait(pid);
            pid = orders.inner_pid;
        }
        if orders.failed != Step::None {
            if pid > 0 {
                wait(pid);
            }
            return Err(SpawnFailed {
                step: orders.failed,
                error: io::Error::from_raw_os_error(orders.errno),
            });
        }
        Ok(Spawned { pid, streams })
    }

    fn open_streams(&self, plan: &Plan) -> io::Result<(ChildEnds, Streams)> {
        let (uid, gid) = plan.identity.as_ref().map_or((0, 0), |identity| (identity.uid, identity.gid));
        let view = plan.view.as_deref();
        // The agent makes them, so what is root's is right already, except in a view with ids of its own.
        let owner = match view.and_then(View::first_id) {
            Some(first) => Some((first.saturating_add(uid), first.saturating_add(gid))),
            None if uid != 0 => Some((uid, u32::MAX)),
            None => None,
        };
        match plan.stdio {
            Stdio::Terminal(size) => {
                let pty = Pty::open(size, owner.map(|(uid, _)| uid), view.and_then(View::terminals))?;
                Ok((ChildEnds::Terminal(pty.slave), Streams::Terminal(pty.master)))
            }
            Stdio::Pipes { stdin } => {
                let (input, feed) =
                    if stdin { os::pipe().map(|(r, w)| (Some(r), Some(w)))? } else { (None, None) };
                let (stdout, out) = os::pipe()?;
                let (stderr, err) = os::pipe()?;
                if let Some((uid, gid)) = owner {
                    // So that the user can open /dev/stdout and the like, which lead to these pipes.
                    for fd in [Some(&out), Some(&err), input.as_ref()].into_iter().flatten() {
                        // SAFETY: plain system call on our own pipe.
                        os::check(unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) })?;
                    }
                }
                os::set_nonblocking(&stdout)?;
                os::set_nonblocking(&stderr)?;
                // A device of the machine is not for a view to hold.
                let null = if view.is_some_and(View::is_sealed) { -1 } else { self.null.as_raw_fd() };
                let ends = ChildEnds::Pipes { input, null, out, err };
                Ok((ends, Streams::Pipes { stdin: feed, stdout, stderr }))
            }
        }
    }
}

/// The ends that the child gets; closed in the agent when the child has been made.
enum ChildEnds {
    Terminal(OwnedFd),
    Pipes { input: Option<OwnedFd>, null: RawFd, out: OwnedFd, err: OwnedFd },
}

impl ChildEnds {
    fn stdin(&self) -> RawFd {
        match self {
            ChildEnds::Terminal(slave) => slave.as_raw_fd(),
            ChildEnds::Pipes { input, null, .. } => input.as_ref().map_or(*null, |input| input.as_raw_fd()),
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
