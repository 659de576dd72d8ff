//! The few steps between clone and execve, in the child. It shares the agent's memory there: nothing may
//! allocate, lock or unwind, and libc's setuid family is not used because it signals the agent's threads.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;

use super::{clone, filter};

/// Soft and hard limit of open files in a login on a plain machine.
const FILES_SOFT: u64 = 1_024;
const FILES_HARD: u64 = 1_048_576;
/// `linux/keyctl.h`.
const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
const KEYCTL_LINK: libc::c_int = 8;
const KEY_SPEC_SESSION_KEYRING: libc::c_int = -3;
const KEY_SPEC_USER_KEYRING: libc::c_int = -4;

/// Which step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None yet.
    None,
    /// Session, terminal or descriptors.
    Setup,
    /// The namespaces of the view.
    View,
    /// Working directory.
    Cwd,
    /// User and groups.
    User,
    /// The program itself.
    Exec,
}

/// All namespaces of a sealed view.
const SEALED: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;
/// How long the last steps in a sealed view may take. Its root can make them hang (a working directory or
/// a program on a FUSE file system of its own), and the agent waits meanwhile.
const SEALED_STEPS_MAX_SECONDS: i64 = 10;

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// In the machine.
    Machine,
    /// In a mask, whose mount namespace is open as this.
    Mask(RawFd),
    /// In a sealed view, whose process 1 is open as this.
    Sealed(RawFd),
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
    /// Becomes descriptor 0; -1: /dev/null, opened in the room.
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
    /// In which view.
    pub room: Room,
    /// Stack for the second child that a sealed view needs: lowest byte and length.
    pub inner_stack: (*mut u8, usize),
    /// Answer: pid of that child.
    pub inner_pid: i32,
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
        if let Room::Sealed(holder) = orders.room {
            enter_sealed(orders, holder);
        } else {
            become_command(orders);
        }
        libc::_exit(127)
    }
}

/// Goes into the namespaces of a view and makes the command there: only a child of this process is in the
/// view's pid namespace. It becomes the agent's own child, so that nobody has to stay between them.
unsafe fn enter_sealed(orders: &mut Orders, holder: RawFd) {
    // SAFETY: plain system calls; this process waits on its own part of the stack until the other has
    // executed or ended.
    unsafe {
        // What only the machine's root may do comes first.
        if !settle_limits(orders) {
            (orders.failed, orders.errno) = (Step::Setup, *libc::__errno_location());
            return;
        }
        // Our memory is the agent's: nobody in the view may look into it while the command is not there yet.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        if libc::setns(holder, SEALED) < 0 {
            (orders.failed, orders.errno) = (Step::View, *libc::__errno_location());
            return;
        }
        let (stack, bytes) = orders.inner_stack;
        let argument = std::ptr::from_mut(orders).cast();
        let pid = clone::spawn_sibling(stack, bytes, run_sealed, argument);
        if pid < 0 {
            (orders.failed, orders.errno) = (Step::View, -pid as c_int);
        } else {
            orders.inner_pid = pid as i32;
        }
    }
}

unsafe extern "C" fn run_sealed(argument: *mut c_void) -> ! {
    // SAFETY: as for `run`.
    unsafe {
        die_when_stuck();
        become_command(&mut *argument.cast::<Orders>());
        libc::_exit(127)
    }
}

/// A timer that kills this process; execve deletes it.
unsafe fn die_when_stuck() {
    // SAFETY: plain data for which zero is valid; raw calls, because those of libc allocate.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer: c_int = 0;
        if libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &event, &mut timer) == 0 {
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_sec = SEALED_STEPS_MAX_SECONDS;
            libc::syscall(libc::SYS_timer_settime, timer, 0, &when, std::ptr::null_mut::<libc::itimerspec>());
        }
    }
}

/// Executes the command, or says what failed.
unsafe fn become_command(orders: &mut Orders) {
    // SAFETY: the callers are fresh children.
    unsafe {
        orders.failed = prepare(orders);
        orders.errno = *libc::__errno_location();
        if orders.failed == Step::None {
            // Written only after the attempt: the parent sees this memory when it has succeeded too.
            let errno = execute(orders);
            orders.failed = Step::Exec;
            orders.errno = errno;
        }
    }
}

/// Gives up the agent's protection from the OOM killer, and takes the usual limits.
unsafe fn settle_limits(orders: &Orders) -> bool {
    // SAFETY: plain system calls on prepared data.
    unsafe {
        if orders.proc_fd >= 0 {
            let file = libc::openat(orders.proc_fd, c"self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            if file < 0 || libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                return false;
            }
            libc::close(file);
        }
        if orders.set_limits {
            let files = libc::rlimit { rlim_cur: FILES_SOFT, rlim_max: FILES_HARD };
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
        true
    }
}

unsafe fn prepare(orders: &Orders) -> Step {
    // SAFETY: plain system calls on prepared data.
    unsafe {
        let is_sealed = matches!(orders.room, Room::Sealed(_));
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        if orders.die_with_agent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let null = libc::O_RDWR | libc::O_NOFOLLOW;
        let stdin = if orders.stdin < 0 { libc::open(c"/dev/null".as_ptr(), null) } else { orders.stdin };
        if libc::setsid() < 0
            || libc::dup2(stdin, 0) < 0
            || libc::dup2(orders.stdout, 1) < 0
            || libc::dup2(orders.stderr, 2) < 0
            || (orders.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0)
        {
            return Step::Setup;
        }
        if !is_sealed && !settle_limits(orders) {
            return Step::Setup;
        }
        if let Room::Mask(namespace) = orders.room {
            if libc::setns(namespace, libc::CLONE_NEWNS) < 0 {
                return Step::View;
            }
        }
        if is_sealed && !become_root_of_view() {
            return Step::User;
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
            libc::syscall(libc::SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING);
        }
        // Everything of ours is close-on-exec already; this also covers what a library forgot. One descriptor
        // of a folder of the machine would be a way out of a sealed view: there they are closed here and now.
        let how = if is_sealed { 0 } else { libc::CLOSE_RANGE_CLOEXEC };
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, how);
        Step::None
    }
}

/// The machine's root is nobody in a sealed view.
unsafe fn become_root_of_view() -> bool {
    // SAFETY: plain system calls. A change of ids makes memory readable again where the machine's sysctl
    // says so.
    unsafe {
        libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<u32>()) == 0
            && libc::syscall(libc::SYS_setresgid, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_setresuid, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 0) == 0
            && filter::refuse_keys()
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
