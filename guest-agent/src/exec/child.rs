//! The few steps between clone and execve, in the child. It shares the agent's memory there: nothing may
//! allocate, lock or unwind, and libc's setuid family is not used because it signals the agent's threads.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;

/// Soft and hard limit of open files in a login on a plain machine.
const FILES_SOFT: u64 = 1_024;
const FILES_HARD: u64 = 1_048_576;
/// `linux/keyctl.h`.
const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Which step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None yet.
    None,
    /// Session, terminal or descriptors.
    Setup,
    /// Working directory.
    Cwd,
    /// User and groups.
    User,
    /// The program itself.
    Exec,
}

/// Everything the child needs, prepared by the parent; pointers stay valid until the child is gone or
/// has executed.
pub struct Orders {
    /// NULL-terminated list of programs to try.
    pub programs: *const *const c_char,
    /// With it, this open file is executed instead.
    pub program_fd: RawFd,
    /// NULL-terminated.
    pub argv: *const *const c_char,
    /// NULL-terminated.
    pub envp: *const *const c_char,
    /// Working directory.
    pub cwd: *const c_char,
    /// Becomes descriptor 0.
    pub stdin: RawFd,
    /// Becomes descriptor 1.
    pub stdout: RawFd,
    /// Becomes descriptor 2.
    pub stderr: RawFd,
    /// Descriptor 0 is a terminal and becomes the controlling one.
    pub terminal: bool,
    /// Change to these ids.
    pub change_user: bool,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: *const u32,
    /// How many.
    pub groups_count: usize,
    /// Descriptor of /proc, to give up the agent's protection from the OOM killer; -1 to leave it.
    pub proc_fd: RawFd,
    /// Set the usual limits, and a session keyring of its own.
    pub set_limits: bool,
    /// Die when the agent dies (agents without a machine around them).
    pub die_with_agent: bool,
    /// Answer: the step that failed.
    pub failed: Step,
    /// Answer: errno of it.
    pub errno: c_int,
}

/// Entry point for [`super::clone::ChildStack::spawn`]; `argument` is a `*mut Orders`.
///
/// # Safety
/// Only in a fresh child, with orders that outlive it.
pub unsafe extern "C" fn run(argument: *mut c_void) -> ! {
    // SAFETY: the parent passes its own orders and sleeps meanwhile.
    unsafe {
        let orders = &mut *argument.cast::<Orders>();
        orders.failed = prepare(orders);
        orders.errno = *libc::__errno_location();
        if orders.failed == Step::None {
            // Written only after the attempt: the parent sees this memory when it has succeeded too.
            let errno = execute(orders);
            orders.failed = Step::Exec;
            orders.errno = errno;
        }
        libc::_exit(127)
    }
}

unsafe fn prepare(orders: &Orders) -> Step {
    // SAFETY: plain system calls on prepared data.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        if orders.die_with_agent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        if libc::setsid() < 0
            || libc::dup2(orders.stdin, 0) < 0
            || libc::dup2(orders.stdout, 1) < 0
            || libc::dup2(orders.stderr, 2) < 0
            || (orders.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0)
        {
            return Step::Setup;
        }
        if orders.proc_fd >= 0 {
            let file = libc::openat(orders.proc_fd, c"self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            if file < 0 || libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                return Step::Setup;
            }
            libc::close(file);
        }
        if orders.set_limits {
            let files = libc::rlimit { rlim_cur: FILES_SOFT, rlim_max: FILES_HARD };
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
        if libc::chdir(orders.cwd) < 0 {
            return Step::Cwd;
        }
        if orders.change_user
            && (libc::syscall(libc::SYS_setgroups, orders.groups_count, orders.groups) < 0
                || libc::syscall(libc::SYS_setresgid, orders.gid, orders.gid, orders.gid) < 0
                || libc::syscall(libc::SYS_setresuid, orders.uid, orders.uid, orders.uid) < 0)
        {
            return Step::User;
        }
        if orders.set_limits {
            // As a login has it: keys of one command are not those of another. A kernel without keys has none.
            libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<c_char>());
        }
        // Everything of ours is close-on-exec already; this also covers what a library forgot.
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        Step::None
    }
}

/// Tries the programs in order, as `execvp` does: what cannot be executed for want of permission is passed
/// over but remembered.
unsafe fn execute(orders: &Orders) -> c_int {
    // SAFETY: the lists are NULL-terminated.
    unsafe {
        if orders.program_fd >= 0 {
            libc::syscall(
                libc::SYS_execveat,
                orders.program_fd,
                c"".as_ptr(),
                orders.argv,
                orders.envp,
                libc::AT_EMPTY_PATH,
            );
            return *libc::__errno_location();
        }
        let mut result = libc::ENOENT;
        let mut next = orders.programs;
        while !(*next).is_null() {
            libc::execve(*next, orders.argv, orders.envp);
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => result = libc::EACCES,
                other => return other,
            }
            next = next.add(1);
        }
        result
    }
}
