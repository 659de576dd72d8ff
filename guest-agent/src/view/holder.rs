//! Process 1 of a sealed view. It keeps the view's namespaces alive, takes the view's copy of the mounts, reaps
//! what commands leave behind, and ends the view when the machine shuts down. Made by the maker, whose image it
//! shares; a child of the agent.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::mounts;
use crate::os;

/// Namespaces that the holder begins with. Its mount namespace comes later: the copy of the maker's finished
/// tree is what locks the mounts.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// Longest time between TERM and KILL for the processes of a view. Below ten seconds: our children are not those of process 1, so
/// systemd-shutdown hears of no end of theirs. It looks once after ten seconds, and then only after a minute and a half.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Between two looks at whether they have ended: those that are the agent's children do not wake us.
const STOP_POLL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A holder that waits for its maker.
pub struct Holder {
    /// Its pid in the machine.
    pub pid: i32,
    /// The same as a descriptor.
    pub pidfd: OwnedFd,
    go: OwnedFd,
    done: OwnedFd,
}

impl Holder {
    /// Makes it: with the cgroup of the caller as root of its cgroup namespace, then moved into `cgroup` below. To
    /// begin there would be faster, but then the kernel takes that one as the root.
    pub fn start(cgroup: &OwnedFd) -> io::Result<Holder> {
        let (wait, go) = os::pipe()?;
        let (done, tell) = os::pipe()?;
        let mut pidfd: RawFd = -1;
        // SAFETY: plain data for which zero means "not used".
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        // A child of the agent, not of the maker, which ends. The signal at its end is then the maker's own.
        arguments.flags = (NAMESPACES | libc::CLONE_PARENT | libc::CLONE_PIDFD) as u64;
        arguments.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
        // SAFETY: without shared memory this is a fork; the caller has one thread only.
        let pid = os::check_long(unsafe {
            libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>())
        })? as i32;
        if pid == 0 {
            drop((go, done));
            be(&wait, &tell);
        }
        // SAFETY: filled by the call, and ours.
        let pidfd = unsafe { std::os::fd::FromRawFd::from_raw_fd(pidfd) };
        let members = os::open_at(cgroup.as_raw_fd(), Path::new("cgroup.procs"), libc::O_WRONLY, 0)?;
        os::write(&members, pid.to_string().as_bytes())?;
        Ok(Holder { pid, pidfd, go, done })
    }

    /// The tree is finished: the holder takes it. Answers when commands may enter.
    pub fn take_tree(self) -> io::Result<()> {
        let Holder { go, done, .. } = self;
        os::write(&go, b"g")?;
        drop(go);
        let mut errno = [0u8; 4];
        match os::read(&done, &mut errno)? {
            4 if errno == [0; 4] => Ok(()),
            4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            _ => Err(io::Error::other("process 1 of the view ended")),
        }
    }
}

fn be(wait: &OwnedFd, tell: &OwnedFd) -> ! {
    let mut byte = [0u8; 1];
    // Nothing comes when the maker has failed.
    if os::read(wait, &mut byte).unwrap_or(0) == 1 {
        let settled = settle();
        let errno = settled.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        let _ = os::write(tell, &errno.to_ne_bytes());
        if errno == 0 {
            // SAFETY: plain system call; nothing that is open is used again.
            unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
            reap_until_the_end();
        }
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(1) }
}

fn settle() -> io::Result<()> {
    // SAFETY: plain system calls of a process with one thread.
    unsafe {
        os::check(libc::unshare(libc::CLONE_NEWNS))?;
        os::check_long(libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<u32>()))?;
        os::check_long(libc::syscall(libc::SYS_setresgid, 0, 0, 0))?;
        os::check_long(libc::syscall(libc::SYS_setresuid, 0, 0, 0))?;
        // The change of ids has set it to the machine's default.
        os::check(libc::prctl(libc::PR_SET_DUMPABLE, 0))?;
        os::check(libc::prctl(libc::PR_SET_NAME, c"sandlot-view".as_ptr()))?;
        libc::umask(0o022);
    }
    std::env::set_current_dir("/")?;
    // Ordinary mounts of the view, made by its own root.
    let terminals = Some("newinstance,ptmxmode=0666,mode=620,gid=5");
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    os::mount("devpts", Path::new("/dev/pts"), "devpts", flags, terminals)?;
    let shared = libc::MS_NOSUID | libc::MS_NODEV;
    os::mount("tmpfs", Path::new("/dev/shm"), "tmpfs", shared, Some("mode=1777"))
}

/// Until somebody outside asks for the end, as the machine's init does of every process at a shutdown: systemd
/// spares nobody whose user is not root, and waits a minute and a half for who does not answer.
fn reap_until_the_end() -> ! {
    // SAFETY: signal calls on local data; zero is a valid `siginfo_t`.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        loop {
            reap();
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigwaitinfo(&all, &mut info);
            // Who has no number here is outside: TERM from within the view means nothing, as ever.
            if signal == libc::SIGTERM && info.si_code == libc::SI_USER && info.si_pid() == 0 {
                break;
            }
        }
        // As an init does. What is left after that goes with us, by KILL.
        libc::kill(-1, libc::SIGTERM);
        let give_up = Instant::now() + STOP_GRACE;
        while libc::kill(-1, 0) == 0 && Instant::now() < give_up {
            libc::sigtimedwait(&all, std::ptr::null_mut(), &STOP_POLL);
            reap();
        }
        libc::_exit(0)
    }
}

fn reap() {
    // SAFETY: reaping without waiting.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Mounts the kernel's file systems below the working directory, from inside the holder's namespaces but with
/// the mounts of the maker: they belong to the view then, and nothing of it is too revealing to be allowed.
pub fn mount_kernel_views(holder: &Holder) -> io::Result<()> {
    let inner = libc::CLONE_NEWIPC | libc::CLONE_NEWNET | libc::CLONE_NEWCGROUP | libc::CLONE_NEWPID;
    // SAFETY: plain system calls; one thread, so fork copies everything.
    let child = unsafe {
        os::check(libc::setns(holder.pidfd.as_raw_fd(), inner))?;
        os::check(libc::fork())?
    };
    if child == 0 {
        let mounted = mounts::mount_kernel("proc", "proc", None)
            .and_then(|()| mounts::mount_kernel("sysfs", "sys", None))
            .and_then(|()| mounts::mount_kernel("cgroup2", "sys/fs/cgroup", None))
            .and_then(|()| mounts::mount_kernel("mqueue", "dev/mqueue", None));
        let code = mounted.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid.
    os::check(unsafe { libc::waitpid(child, &mut status, 0) })?;
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the helper process was killed")),
    }
}
