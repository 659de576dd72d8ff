//! cgroup v2 of the guest: `/sandlot-agent` holds the agent alone, `/sandbox/<n>` one exec each, so that a
//! whole process tree can be found and killed however it has detached itself, and so that the kernel
//! counts its out-of-memory kills apart. Everything goes through open descriptors: it keeps working when a
//! user unmounts `/sys/fs/cgroup`.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::reaper::Reaper;
use crate::os;

/// What Docker and systemd expect to find enabled below the root.
const ROOT_CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "io", "memory", "pids"];
/// How deep a user's own cgroups below an exec are followed.
const DEPTH_MAX: usize = 16;
/// Control files are small; pids of one exec are cut here.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Folders waiting to become empty; the oldest is forgotten beyond that (the kernel keeps it).
const LINGERING_MAX: usize = 4_096;

/// How long ended groups and their processes are left before the next look.
const SWEEP_PAUSE: Duration = Duration::from_millis(500);

/// Groups made ahead: making one is a good part of what a first command costs, and those that the template
/// holds cost nothing at all. Each is used once, because a user may have set limits in it.
const SPARE_COUNT: usize = 8;
/// So few left are filled up, when no command waits.
const SPARE_LOW: usize = 3;

/// What a view's root needs beside memory for groups of its own, as Docker looks for it.
const VIEW_CONTROLLERS: [&str; 4] = ["cpuset", "cpu", "io", "pids"];
/// What is given to the owner of a delegated group (cgroups(7), "Delegation containment").
const DELEGATED: [&str; 3] = ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];

/// The mounted hierarchy.
pub struct Cgroups {
    execs: Rc<Pool>,
    views: RefCell<Vec<Weak<Pool>>>,
    lingering: RefCell<Vec<Rc<ExecCgroup>>>,
    released: Notify,
}

/// A folder whose groups are one exec each, some of them made ahead.
pub struct Pool {
    folder: Rc<OwnedFd>,
    /// Names of its groups begin so.
    prefix: &'static str,
    /// Its groups are given to this owner.
    owner: Option<u32>,
    next: Cell<u64>,
    spare: RefCell<Vec<Rc<ExecCgroup>>>,
}

/// The cgroup of one exec.
pub struct ExecCgroup {
    parent: Rc<OwnedFd>,
    name: CString,
    folder: OwnedFd,
}

/// The groups of a sealed view: what its root sees as `/`, one for its process 1, one for each exec.
pub struct ViewCgroups {
    parent: Rc<OwnedFd>,
    name: CString,
    folder: Rc<OwnedFd>,
    /// Of its process 1: a group that has others in it can have no process.
    pub main: OwnedFd,
    /// Of its execs.
    pub execs: Rc<Pool>,
}

impl Cgroups {
    /// Prepares a fresh cgroup2 mount and moves the agent into its own group.
    pub fn set_up(mount_point: &Path) -> io::Result<Cgroups> {
        let root = os::open(mount_point, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let agent = make_folder(&root, c"sandlot-agent")?;
        write_file(&agent, "cgroup.procs", "0")?;
        for controller in ROOT_CONTROLLERS {
            // A kernel without one of them is still a usable machine.
            let _ = write_file(&root, "cgroup.subtree_control", &format!("+{controller}"));
        }
        let sandbox = make_folder(&root, c"sandbox")?;
        // Memory alone: each more makes a new group, and so each exec, slower.
        let _ = write_file(&sandbox, "cgroup.subtree_control", "+memory");
        let cgroups = Cgroups {
            execs: Rc::new(Pool::new(Rc::new(sandbox), "", None)),
            views: RefCell::default(),
            lingering: RefCell::default(),
            released: Notify::new(),
        };
        cgroups.execs.fill_spare(SPARE_COUNT)?;
        Ok(cgroups)
    }

    /// Limits all execs together to a fraction of one CPU or more.
    pub fn set_cpu_limit(&self, cpus: f64) -> io::Result<()> {
        const PERIOD_US: f64 = 100_000.0;
        let quota = (cpus * PERIOD_US).round().max(1_000.0) as u64;
        write_file(&self.execs.folder, "cpu.max", &format!("{quota} {PERIOD_US}"))
    }

    /// A group that nothing has been in.
    pub fn take(&self) -> io::Result<Rc<ExecCgroup>> {
        self.execs.take()
    }

    /// The groups of a new view, among the execs so that one limit holds for all; its root may use them.
    pub fn make_view(&self, number: u32, owner: u32) -> io::Result<ViewCgroups> {
        for controller in VIEW_CONTROLLERS {
            let _ = write_file(&self.execs.folder, "cgroup.subtree_control", &format!("+{controller}"));
        }
        let parent = self.execs.folder.clone();
        let name = os::c_string(format!("view-{number}"))?;
        let folder = Rc::new(make_folder(&parent, &name)?);
        delegate(&folder, owner)?;
        let main = make_folder(&folder, c"main")?;
        delegate(&main, owner)?;
        let execs = Rc::new(Pool::new(folder.clone(), "exec-", Some(owner)));
        self.views.borrow_mut().push(Rc::downgrade(&execs));
        Ok(ViewCgroups { parent, name, folder, main, execs })
    }

    /// The group of an exec that has ended is removed by a later sweep, when it is empty: not now, while
    /// somebody waits for the exec's result.
    pub fn release(&self, group: Rc<ExecCgroup>) {
        self.lingering.borrow_mut().push(group);
        self.released.notify_one();
    }

    /// Removes groups that have become empty and makes new ones, for ever.
    pub async fn sweep(&self, reaper: &Reaper) {
        loop {
            tokio::select! {
                () = self.released.notified() => {}
                () = reaper.next_round() => {}
            }
            tokio::time::sleep(SWEEP_PAUSE).await;
            let mut waiting = std::mem::take(&mut *self.lingering.borrow_mut());
            waiting.retain(|group| !group.remove());
            // Beyond the limit the oldest are left to the kernel.
            waiting.drain(..waiting.len().saturating_sub(LINGERING_MAX));
            self.lingering.borrow_mut().splice(0..0, waiting);
            self.views.borrow_mut().retain(|pool| pool.strong_count() > 0);
            let pools: Vec<Rc<Pool>> = self.views.borrow().iter().filter_map(Weak::upgrade).collect();
            for pool in pools.iter().chain([&self.execs]) {
                if pool.spare.borrow().len() < SPARE_LOW {
                    // Without them the next command makes its own.
                    let _ = pool.fill_spare(SPARE_COUNT);
                }
            }
        }
    }
}

impl Pool {
    fn new(folder: Rc<OwnedFd>, prefix: &'static str, owner: Option<u32>) -> Pool {
        Pool { folder, prefix, owner, next: Cell::new(1), spare: RefCell::default() }
    }

    /// A group that nothing has been in.
    pub fn take(&self) -> io::Result<Rc<ExecCgroup>> {
        match self.spare.borrow_mut().pop() {
            Some(group) => Ok(group),
            None => self.create(),
        }
    }

    fn fill_spare(&self, count: usize) -> io::Result<()> {
        while self.spare.borrow().len() < count {
            let group = self.create()?;
            self.spare.borrow_mut().push(group);
        }
        Ok(())
    }

    fn create(&self) -> io::Result<Rc<ExecCgroup>> {
        let number = self.next.get();
        self.next.set(number + 1);
        let name = os::c_string(format!("{}{number}", self.prefix))?;
        let folder = make_folder(&self.folder, &name)?;
        if let Some(owner) = self.owner {
            delegate(&folder, owner)?;
        }
        Ok(Rc::new(ExecCgroup { parent: self.folder.clone(), name, folder }))
    }
}

impl ViewCgroups {
    /// The open folder, for CLONE_INTO_CGROUP of the view's maker.
    pub fn fd(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// When the maker has left it: kills for want of memory are counted for each exec from now on.
    pub fn open_for_execs(&self) -> io::Result<()> {
        write_file(&self.folder, "cgroup.subtree_control", "+memory")?;
        self.execs.fill_spare(SPARE_COUNT)
    }

    /// Ends all that is left of a view, and removes what is empty.
    pub fn remove(&self) {
        let _ = write_file(&self.folder, "cgroup.kill", "1");
        remove_children(&self.folder, DEPTH_MAX);
        // SAFETY: a NUL-terminated name in a folder that stays open.
        unsafe { libc::unlinkat(self.parent.as_raw_fd(), self.name.as_ptr(), libc::AT_REMOVEDIR) };
    }
}

/// Gives a group to an owner who may divide it further, but not change its limits.
fn delegate(folder: &OwnedFd, owner: u32) -> io::Result<()> {
    // SAFETY: plain system calls on an open folder and NUL-terminated names.
    unsafe {
        os::check(libc::fchown(folder.as_raw_fd(), owner, owner))?;
        for name in DELEGATED {
            let name = os::c_string(name)?;
            os::check(libc::fchownat(folder.as_raw_fd(), name.as_ptr(), owner, owner, 0))?;
        }
    }
    Ok(())
}

impl ExecCgroup {
    /// The open folder, for CLONE_INTO_CGROUP.
    pub fn fd(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// All processes in it and in groups a user made below it.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        collect_pids(&self.folder, DEPTH_MAX, &mut pids);
        pids
    }

    /// Nothing runs in it any more.
    pub fn is_empty(&self) -> bool {
        read_file(&self.folder, "cgroup.events").is_ok_and(|events| events.contains("populated 0"))
    }

    /// Kills everything in it at once.
    pub fn kill(&self) -> io::Result<()> {
        write_file(&self.folder, "cgroup.kill", "1")
    }

    /// Processes of it that the kernel killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let events = read_file(&self.folder, "memory.events").unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    fn remove(&self) -> bool {
        if !self.is_empty() {
            return false;
        }
        remove_children(&self.folder, DEPTH_MAX);
        // SAFETY: a NUL-terminated name in a folder that stays open.
        unsafe { libc::unlinkat(self.parent.as_raw_fd(), self.name.as_ptr(), libc::AT_REMOVEDIR) == 0 }
    }
}

fn make_folder(parent: &OwnedFd, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: a NUL-terminated name in an open folder.
    let made = unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o755) };
    if made < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
        return Err(io::Error::last_os_error());
    }
    open_folder(parent, name.to_str().unwrap_or_default())
}

fn open_folder(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    os::open_at(parent.as_raw_fd(), Path::new(name), libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

fn write_file(folder: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let file = os::open_at(folder.as_raw_fd(), Path::new(name), libc::O_WRONLY, 0)?;
    std::fs::File::from(file).write_all(text.as_bytes())
}

fn read_file(folder: &OwnedFd, name: &str) -> io::Result<String> {
    let file = os::open_at(folder.as_raw_fd(), Path::new(name), libc::O_RDONLY, 0)?;
    let mut text = String::new();
    std::fs::File::from(file).take(FILE_MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn child_folders(folder: &OwnedFd) -> Vec<String> {
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn collect_pids(folder: &OwnedFd, depth: usize, pids: &mut Vec<i32>) {
    let listed = read_file(folder, "cgroup.procs").unwrap_or_default();
    pids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|&pid| pid > 0));
    if depth == 0 {
        return;
    }
    for name in child_folders(folder) {
        if let Ok(child) = open_folder(folder, &name) {
            collect_pids(&child, depth - 1, pids);
        }
    }
}

fn remove_children(folder: &OwnedFd, depth: usize) {
    if depth == 0 {
        return;
    }
    for name in child_folders(folder) {
        if let Ok(child) = open_folder(folder, &name) {
            remove_children(&child, depth - 1);
        }
        if let Ok(name) = os::c_string(name) {
            // SAFETY: a NUL-terminated name in an open folder.
            unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) };
        }
    }
}
