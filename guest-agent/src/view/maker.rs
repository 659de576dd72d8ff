//! The process that makes one view and ends: the agent's own binary, called [`NAME`]. It is a process of its own
//! because the agent has threads, memory full of secrets, and other things to do meanwhile. Its order comes
//! on standard input, its answer goes to standard output; it then waits until its input ends, so that the
//! agent can open what it made.

use std::collections::HashSet;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::cover::Covered;
use super::holder::{self, Holder};
use super::mounts::place_below;
use super::pins::{self, NotPinned};
use super::spec::{Network, PRIVATE_TMP, ViewSpec};
use super::table::MountTable;
use super::{link, mounts, tree};
use crate::http::error::plain_reason;
use crate::{modprobe, os};

/// Argument zero of the maker.
pub const NAME: &str = "@agent-view";
/// Largest order and answer.
pub const MESSAGE_MAX_BYTES: usize = 1024 * 1024;
/// First id of the machine that belongs to views, and how many. Above 2^31 a terminal's group cannot be given.
pub const FIRST_ID: u32 = 1 << 30;
const IDS: u32 = 1 << 30;
/// Where the root of a sealed view is built: a folder that is in every machine, and that the maker has no use
/// for in its own copy of the mounts.
const STAGING: &str = "/sys";
/// What a link needs. The kernel would ask for them one by one, and each time the tables would be read anew.
const LINK_MODULES: [&str; 4] = ["veth", "nf_tables", "nft_chain_nat", "nft_masq"];
/// There when the last of them is loaded.
const LINK_RULES: &str = "/sys/module/nft_masq";
/// Longest table of mounts that is read.
const TABLE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What to make.
#[derive(Debug, Deserialize, Serialize)]
pub struct Order {
    /// The view in its one form.
    pub spec: ViewSpec,
    /// The agent, whose descriptors these are.
    pub agent: u32,
    /// Folder of pins.
    pub pins_fd: i32,
    /// For each path of the view, how many of its entries are pinned already, from the top.
    pub pinned: Vec<usize>,
    /// Of a sealed view only.
    pub sealed: Option<SealedOrder>,
}

/// What a sealed view needs further.
#[derive(Debug, Deserialize, Serialize)]
pub struct SealedOrder {
    /// Folder of the cgroup for the holder, inside the one that the maker runs in.
    pub main_cgroup_fd: i32,
    /// Place among the machine's views: gives the address.
    pub slot: u8,
    /// Name of the machine's end of its link.
    pub card: String,
    /// The same of a view that ended and had this place.
    pub stale_card: Option<String>,
}

/// What came of it.
#[derive(Debug, Deserialize, Serialize)]
pub enum Made {
    /// The view; pid of its process 1, if it has one.
    Done {
        /// Holder of a sealed view.
        holder: Option<i32>,
    },
    /// The wish cannot be fulfilled.
    Refused {
        /// Name of an errno.
        code: String,
        /// For a person.
        message: String,
    },
    /// Something failed that should not.
    Failed {
        /// For a person.
        message: String,
    },
}

/// Why nothing was made.
enum Trouble {
    Refused(&'static str, String),
    Failed(String),
}

type Step<T> = Result<T, Trouble>;

/// Names what was tried in an error.
fn doing<T>(action: impl std::fmt::Display, result: io::Result<T>) -> Step<T> {
    result.map_err(|error| Trouble::Failed(format!("{action}: {}", plain_reason(&error))))
}

/// Runs the maker.
pub fn main() -> ExitCode {
    let mut input = io::stdin().lock();
    let mut bytes = Vec::new();
    // One line; the end of the input is the agent's leave to end.
    let _ = input.by_ref().take(MESSAGE_MAX_BYTES as u64).read_until(b'\n', &mut bytes);
    let made = match serde_json::from_slice::<Order>(&bytes) {
        Ok(order) => match make(&order) {
            Ok(holder) => Made::Done { holder },
            Err(Trouble::Refused(code, message)) => Made::Refused { code: code.to_string(), message },
            Err(Trouble::Failed(message)) => Made::Failed { message },
        },
        Err(error) => Made::Failed { message: format!("the order is not valid: {error}") },
    };
    let mut answer = serde_json::to_vec(&made).unwrap_or_default();
    answer.push(b'\n');
    let _ = io::stdout().write_all(&answer);
    let _ = io::stdout().flush();
    let _ = input.read(&mut [0u8; 1]);
    ExitCode::SUCCESS
}

fn make(order: &Order) -> Step<Option<i32>> {
    // SAFETY: plain system calls. Nobody in a view may look into a process that comes from here.
    unsafe {
        libc::umask(0);
        doing("shut its memory", os::check(libc::prctl(libc::PR_SET_DUMPABLE, 0)))?;
    }
    let pins = doing("open the place for pins", open_of_agent(order.agent, order.pins_fd))?;
    pin_all(order, &pins)?;
    if order.sealed.is_some() && order.spec.network == Some(Network::Own) && !Path::new(LINK_RULES).exists() {
        modprobe::load_all(&LINK_MODULES);
    }
    doing("leave the machine's mounts", leave_namespace(&pins, order.spec.is_sealed()))?;
    let machine = doing("open the root", os::open(Path::new("/"), libc::O_PATH | libc::O_DIRECTORY, 0))?;
    let text =
        doing("read the mounts", os::read_bounded(Path::new("/proc/self/mountinfo"), TABLE_MAX_BYTES))?;
    let table = MountTable::parse(&String::from_utf8_lossy(&text))
        .ok_or_else(|| Trouble::Failed("the machine has too many mounts for a view".to_string()))?;
    match &order.sealed {
        Some(sealed) => seal(order, sealed, &machine, &table).map(Some),
        None => mask(&order.spec, &machine, &table).map(|()| None),
    }
}

/// A descriptor of the agent, opened anew.
fn open_of_agent(agent: u32, fd: i32) -> io::Result<OwnedFd> {
    os::open(Path::new(&format!("/proc/{agent}/fd/{fd}")), libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

fn pin_all(order: &Order, pins: &OwnedFd) -> Step<()> {
    let machine = doing("open the root", os::open(Path::new("/"), libc::O_PATH | libc::O_DIRECTORY, 0))?;
    // All are looked at before anything is done.
    for path in order.spec.paths() {
        pins::check(&machine, path).map_err(|reason| refuse(path, reason))?;
    }
    let mut done = HashSet::new();
    for (path, pinned) in order.spec.paths().zip(order.pinned.iter().chain(std::iter::repeat(&0))) {
        for entry in pins::entries_of(path).into_iter().skip(*pinned) {
            if !done.contains(&entry) {
                pins::pin(&machine, pins, &entry).map_err(|reason| refuse(path, reason))?;
                done.insert(entry);
            }
        }
    }
    Ok(())
}

fn refuse(path: &str, reason: NotPinned) -> Trouble {
    match reason {
        NotPinned::Missing => {
            let message =
                format!("{path} does not exist: a view can only cover what is there when it is made");
            Trouble::Refused("ENOENT", message)
        }
        NotPinned::Link => {
            let real = std::fs::canonicalize(path).map(|real| format!(": name {}", real.display()));
            let message = format!("{path} is a symbolic link or lies behind one{}", real.unwrap_or_default());
            Trouble::Refused("ELOOP", message)
        }
        NotPinned::Failed(error) => Trouble::Failed(format!("pin {path}: {}", plain_reason(&error))),
    }
}

/// A mount namespace of its own, without the pins, which show everything.
fn leave_namespace(pins: &OwnedFd, forever: bool) -> io::Result<()> {
    // SAFETY: plain system calls. The working directory is what leads to the copy of the pins.
    unsafe {
        os::check(libc::fchdir(pins.as_raw_fd()))?;
        os::check(libc::unshare(libc::CLONE_NEWNS))?;
        os::mount("", Path::new("."), "", libc::MS_PRIVATE | libc::MS_REC, None)?;
        os::check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
    }
    std::env::set_current_dir("/")?;
    // A mask goes on to see what the machine mounts later.
    let propagation = if forever { libc::MS_PRIVATE } else { libc::MS_SLAVE };
    os::mount("", Path::new("/"), "", propagation | libc::MS_REC, None)
}

fn mask(spec: &ViewSpec, machine: &OwnedFd, table: &MountTable) -> Step<()> {
    let covered = Covered { root: machine, ids: None, spare_folder: "/sys" };
    doing("make paths read-only", covered.make_readonly(&spec.readonly, table))?;
    doing("hide paths", covered.hide(&spec.hide, table))?;
    for folder in PRIVATE_TMP.iter().filter(|_| spec.private_tmp) {
        let Ok(place) = place_below(machine, folder, false) else { continue };
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        doing(
            "make a private /tmp",
            mounts::Tree::in_memory(&[("mode", "1777")], attributes).and_then(|tree| tree.attach(&place)),
        )?;
    }
    Ok(())
}

fn seal(order: &Order, sealed: &SealedOrder, machine: &OwnedFd, table: &MountTable) -> Step<i32> {
    // As the agent has it: without its process 1 all of the view ends.
    doing("protect it from the OOM killer", std::fs::write("/proc/self/oom_score_adj", "-1000"))?;
    let cgroup = doing("open its cgroup", open_of_agent(order.agent, sealed.main_cgroup_fd))?;
    let holder = doing("make its process 1", Holder::start(&cgroup))?;
    for file in ["uid_map", "gid_map"] {
        let map = format!("0 {FIRST_ID} {IDS}\n");
        doing("map its ids", std::fs::write(format!("/proc/{}/{file}", holder.pid), map))?;
    }
    let ids = format!("/proc/{}/ns/user", holder.pid);
    let ids = doing("open its id map", os::open(Path::new(&ids), libc::O_RDONLY, 0))?;
    let staging = doing("open the staging folder", place_below(machine, STAGING, false))?;
    let root = doing("build its root", tree::build(&order.spec, machine, &staging, &ids, table))?;
    let has_link = order.spec.network == Some(Network::Own);
    if has_link {
        doing("let it out of the machine", link::masquerade())?;
        let stale = sealed.stale_card.as_deref();
        doing("link it to the machine", link::connect(&sealed.card, stale, sealed.slot, holder.pid))?;
    }
    // SAFETY: plain system call on an open folder.
    doing("enter its root", os::check(unsafe { libc::fchdir(root.as_raw_fd()) }))?;
    doing("mount its kernel file systems", holder::mount_kernel_views(&holder))?;
    // From here on the namespaces are the view's, but for the mounts.
    doing("configure its network", link::configure_inside(has_link.then_some(sealed.slot)))?;
    doing("change its root", pivot())?;
    let pid = holder.pid;
    doing("give it its mounts", holder.take_tree())?;
    Ok(pid)
}

/// The working directory becomes the root, and the old root goes.
fn pivot() -> io::Result<()> {
    // SAFETY: NUL-terminated paths.
    unsafe {
        os::check_long(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()))?;
        os::check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
    }
    std::env::set_current_dir("/")
}

const _: () = assert!(FIRST_ID as u64 + IDS as u64 <= 1 << 31);
