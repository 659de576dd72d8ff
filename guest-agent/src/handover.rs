//! Process 1 becomes the image's init, and the agent goes on beside it as an ordinary process. `virtio` calls
//! `perform` with the first RESET after an `/init` that asked for it; `resume` is the other end.
//!
//! We fork. The parent, process 1, executes the init with what a kernel would give it. The child executes our
//! own program anew, because a fork of a program with threads is fit for nothing else, and finds in a file in
//! memory what it has to know. The control port stays open all the time, so that the host sees nothing.
//!
//! systemd leaves the child alone: its cgroup is not below systemd's own, and a name that begins with `@`
//! spares it from the last killing of a shutdown.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::ExitCode;
use std::ptr;

use serde::{Deserialize, Serialize};

use crate::boot::{self, modules};
use crate::sandbox::Sandbox;
use crate::view::pins;
use crate::{log, os};

/// Argument zero of the agent beside an init.
pub const NAME: &str = "@sandlot-agent";
/// What a kernel gives its first process.
const INIT_ENVIRONMENT: [&str; 2] = ["HOME=/", "TERM=linux"];
const INIT_FILES_SOFT: u64 = 1_024;
const INIT_FILES_HARD: u64 = 4_096;
/// Processes of the root cgroup: systemd takes the group of process 1 for the top of its tree.
const ROOT_PROCESSES: &str = "/sys/fs/cgroup/cgroup.procs";
/// Units and changes of units that last until the machine ends, without a change to the image.
const RUNTIME_UNITS: &str = "/run/systemd/system";
/// These mounts are the machine's, not the image's: a shutdown must not wait for them.
const KEPT_MOUNT: &str = "[Unit]\nDefaultDependencies=no\n";

/// What the agent after the handover has to know.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The open control port.
    pub ctl_fd: RawFd,
    /// Of the RESET that has not been answered yet.
    pub nonce: String,
    /// Whose machine it is.
    pub sandbox: Sandbox,
}

/// Everything that the two processes need after the fork, when nothing may be allocated any more.
struct Orders {
    init: Vec<CString>,
    init_environment: Vec<CString>,
    own_argv: Vec<CString>,
    own_environment: Vec<CString>,
    root_processes: OwnedFd,
    /// Stay open in the child's next program.
    kept: [RawFd; 4],
}

/// Makes `init` (program and arguments) process 1. Returns only in the case of an error, as what we are.
pub fn perform(init: &[String], state: &State) -> io::Error {
    log!("process 1 becomes {}", init.join(" "));
    if let Err(error) = keep_mounts() {
        log!("cannot prepare units: {error}");
    }
    match prepare(init, state) {
        Ok((orders, _memory)) => fork(&orders),
        Err(error) => error,
    }
}

fn prepare(init: &[String], state: &State) -> io::Result<(Orders, File)> {
    let memory = memory_file(&serde_json::to_vec(state)?)?;
    let strings = |texts: &[&str]| texts.iter().map(os::c_string).collect::<io::Result<Vec<_>>>();
    let orders = Orders {
        init: init.iter().map(os::c_string).collect::<io::Result<_>>()?,
        init_environment: strings(&INIT_ENVIRONMENT)?,
        own_argv: strings(&[NAME, &memory.as_raw_fd().to_string()])?,
        own_environment: strings(&[])?,
        root_processes: os::open(Path::new(ROOT_PROCESSES), libc::O_WRONLY, 0)?,
        kept: [state.ctl_fd, memory.as_raw_fd(), modules::HELPER_FD, pins::PINS_FD],
    };
    Ok((orders, memory))
}

fn memory_file(content: &[u8]) -> io::Result<File> {
    // SAFETY: a NUL-terminated name; the new descriptor is ours alone.
    let fd = unsafe { os::check(libc::memfd_create(c"sandlot-agent".as_ptr(), libc::MFD_CLOEXEC))? };
    // SAFETY: as above.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

fn fork(orders: &Orders) -> io::Error {
    let lists = [&orders.init, &orders.init_environment, &orders.own_argv, &orders.own_environment]
        .map(|strings| strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>());
    let [init, init_environment, own_argv, own_environment] = &lists;
    // SAFETY: between the fork and the exec both sides make plain system calls on what was prepared above.
    unsafe {
        match libc::fork() {
            -1 => io::Error::last_os_error(),
            0 => {
                libc::setsid();
                // Orphans of commands are ours to reap, as they were while we were process 1.
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
                for fd in orders.kept {
                    libc::fcntl(fd, libc::F_SETFD, 0);
                }
                libc::execve(c"/proc/self/exe".as_ptr(), own_argv.as_ptr(), own_environment.as_ptr());
                libc::_exit(127)
            }
            _ => {
                be_as_the_kernel_starts_it(orders.root_processes.as_raw_fd());
                libc::execve(init[0], init.as_ptr(), init_environment.as_ptr());
                let error = io::Error::last_os_error();
                log!("cannot execute {}: {error}", orders.init[0].to_string_lossy());
                // The kernel panics, and the host finds this line in front of that.
                libc::_exit(127)
            }
        }
    }
}

/// Takes back what the agent changed about its process.
///
/// # Safety
/// Only in process 1, right before it executes the init.
unsafe fn be_as_the_kernel_starts_it(root_processes: RawFd) {
    // SAFETY: plain system calls on valid data.
    unsafe {
        libc::write(root_processes, c"0".as_ptr().cast(), 1);
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(file, c"0".as_ptr().cast(), 1);
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        let files = libc::rlimit { rlim_cur: INIT_FILES_SOFT, rlim_max: INIT_FILES_HARD };
        libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        libc::umask(0o022);
        libc::chdir(c"/".as_ptr());
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// systemd knows every mount and would undo that of the modules at a shutdown, while the agent still uses it.
fn keep_mounts() -> io::Result<()> {
    if let Ok(mount) = modules::shown_at() {
        let folder = Path::new(RUNTIME_UNITS).join(format!("{}.d", mount_unit(&mount.to_string_lossy())));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("sandlot.conf"), KEPT_MOUNT)?;
    }
    Ok(())
}

/// Name of the unit of a mount point, as systemd.unit(5) says under "string escaping".
fn mount_unit(path: &str) -> String {
    let mut name = String::new();
    for (at, byte) in path.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(byte as char),
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    format!("{name}.mount")
}

/// The agent after the handover. Never returns while the machine can be used; the host sees its end, because
/// the control port closes then.
pub fn resume() -> ExitCode {
    match read_state().and_then(boot::go_on) {
        Ok(()) => log!("nothing more to do"),
        Err(error) => log!("cannot go on beside the init: {error}"),
    }
    ExitCode::FAILURE
}

fn read_state() -> io::Result<State> {
    let argument = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let fd: RawFd = argument.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the number of a descriptor that was passed to us alone.
    let mut memory = unsafe { File::from_raw_fd(fd) };
    let mut text = Vec::new();
    memory.read_to_end(&mut text)?;
    let state: State = serde_json::from_slice(&text)?;
    for fd in [state.ctl_fd, modules::HELPER_FD, pins::PINS_FD] {
        // SAFETY: plain fcntl. A machine without a module disk has no such descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_are_escaped_as_systemd_does() {
        assert_eq!(mount_unit("/srv/my.data"), "srv-my.data.mount");
        assert_eq!(
            mount_unit("/usr/lib/modules/6.12.95+deb12-cloud-amd64"),
            "usr-lib-modules-6.12.95\\x2bdeb12\\x2dcloud\\x2damd64.mount"
        );
        assert_eq!(mount_unit("/.hidden/a"), "\\x2ehidden-a.mount");
    }

    #[test]
    fn the_state_arrives_whole() {
        let mut sandbox = Sandbox { id: "s".to_string(), user: "1000".to_string(), ..Sandbox::default() };
        sandbox.environment.set("A", "b=\nc");
        let state = State { ctl_fd: 7, nonce: "00".to_string(), sandbox };
        let mut file = memory_file(&serde_json::to_vec(&state).unwrap()).unwrap();
        let mut text = Vec::new();
        file.read_to_end(&mut text).unwrap();
        assert_eq!(serde_json::from_slice::<State>(&text).unwrap(), state);
    }
}
