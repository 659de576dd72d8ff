//! The root of a sealed view: the machine's files with shifted owners, and a `/dev`, `/run` and, if asked
//! for, `/tmp` of its own. Everything here is locked for the view's root later, except what `holder` mounts.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::cover::Covered;
use super::mounts::{Tree, is_folder, make_folder, make_link, place_below};
use super::spec::{PRIVATE_TMP, ViewSpec, is_at_or_below};
use super::table::MountTable;
use crate::boot::modules::kernel_version;
use crate::init::root as machine_root;
use crate::{log, os};

/// What the view gets anew.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Devices of a container: name below `/dev`, major, minor.
const NODES: [(&str, u32, u32); 8] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("fuse", 10, 229),
    ("net/tun", 10, 200),
];
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
const RESOLV_CONF: &str = "/etc/resolv.conf";
const RESOLV_CONF_MAX_BYTES: u64 = 64 * 1024;

/// Builds it over `target`, with owners shifted by `ids`. The namespace must be the maker's own.
pub fn build(
    spec: &ViewSpec,
    machine: &OwnedFd,
    target: &OwnedFd,
    ids: &OwnedFd,
    table: &MountTable,
) -> io::Result<Tree> {
    let root = Tree::copy(machine, false)?;
    root.map_ids(ids, libc::MOUNT_ATTR_NODEV)?;
    root.attach(target)?;
    let root_place = place_below(&root, "/", false)?;
    bring_in_others(spec, machine, &root, ids, table);
    let covered = Covered { root: &root_place, ids: Some(ids), spare_folder: "/proc" };
    if spec.readonly.iter().any(|path| path == "/") {
        // Before anything of the view's own is there.
        root.set_attributes(libc::MOUNT_ATTR_RDONLY, true)?;
    } else {
        covered.make_readonly(&spec.readonly, table)?;
    }
    covered.hide(&spec.hide, table)?;
    let device_folder = make_dev()?;
    attach_own(device_folder, ids, &root, "/dev", libc::MOUNT_ATTR_NOSUID)?;
    attach_own(make_run(machine)?, ids, &root, "/run", libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
    if spec.private_tmp {
        for folder in PRIVATE_TMP {
            // An image may have one of them only, or a link from one to the other.
            let Ok(place) = place_below(&root, folder, false) else { continue };
            let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            let tree = Tree::in_memory(&[("mode", "1777")], attributes)?;
            tree.map_ids(ids, attributes)?;
            tree.attach(&place)?;
        }
    }
    Ok(root)
}

fn attach_own(tree: Tree, ids: &OwnedFd, root: &Tree, folder: &str, attributes: u64) -> io::Result<()> {
    // Last: the maker's own ids do not exist in the shifted tree, so it could write nothing into it.
    tree.map_ids(ids, attributes)?;
    tree.attach(&place_below(root, folder, false)?)
}

/// Other file systems of the machine, as far as the kernel can shift their owners; the module disk, which is
/// read-only and no secret, in any case.
fn bring_in_others(spec: &ViewSpec, machine: &OwnedFd, root: &Tree, ids: &OwnedFd, table: &MountTable) {
    let modules = kernel_version().map(|version| format!("/modules/{version}")).unwrap_or_default();
    for mounted in table.of_files(&OWN) {
        let is_hidden = spec.hide.iter().any(|path| is_at_or_below(&mounted.point, path));
        if is_hidden || (spec.private_tmp && PRIVATE_TMP.contains(&mounted.point.as_str())) {
            continue;
        }
        let bring = || -> io::Result<()> {
            // A mount below one that is not brought in has no place, and is not missed.
            let Ok(target) = place_below(root, &mounted.point, true) else { return Ok(()) };
            let source = place_below(machine, &mounted.point, true)?;
            let tree = Tree::copy(&source, false)?;
            if is_folder(&source)? != is_folder(&target)? {
                return Ok(());
            }
            match tree.map_ids(ids, libc::MOUNT_ATTR_NODEV) {
                Err(_) if mounted.point.ends_with(&modules) => {
                    tree.set_attributes(libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY, false)?;
                }
                other => other?,
            }
            tree.attach(&target)
        };
        if let Err(error) = bring() {
            log!("view: {} ({}) is not in it: {error}", mounted.point, mounted.kind);
        }
    }
}

/// Nodes are made, not bound: their owners are shifted like all else. Only the maker can make any.
fn make_dev() -> io::Result<Tree> {
    let dev =
        Tree::in_memory(&[("mode", "755"), ("size", "64k"), ("nr_inodes", "1024")], libc::MOUNT_ATTR_NOSUID)?;
    for folder in ["net", "pts"] {
        make_folder(&dev, folder, 0o755)?;
    }
    for folder in ["shm", "mqueue"] {
        make_folder(&dev, folder, 0o1777)?;
    }
    for (name, major, minor) in NODES {
        if !Path::new("/dev").join(name).exists() {
            continue;
        }
        let name = os::c_string(name)?;
        // SAFETY: a NUL-terminated name in an open folder.
        os::check(unsafe {
            let number = libc::makedev(major, minor);
            libc::mknodat(dev.as_raw_fd(), name.as_ptr(), libc::S_IFCHR | 0o666, number)
        })?;
    }
    for (name, target) in LINKS {
        make_link(&dev, name, target)?;
    }
    Ok(dev)
}

/// Folders that the image has in its `/run` on disk (for sockets, with their owners), nothing that is in
/// the machine's: a socket there would be a way out.
fn make_run(machine: &OwnedFd) -> io::Result<Tree> {
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let run = Tree::in_memory(&[("mode", "755"), ("size", "20%")], attributes)?;
    let disk = Tree::copy(machine, false)?;
    let by_fd = |tree: &Tree| PathBuf::from(format!("/proc/self/fd/{}", tree.as_raw_fd()));
    let (from, to) = (by_fd(&disk).join("run"), by_fd(&run));
    if let Err(error) = machine_root::copy_small(&from, &to) {
        log!("view: the image's /run is not in its own: {error}");
    }
    make_folder(&run, "lock", 0o1777)?;
    // A link to a file in the machine's /run, as systemd-resolved has it, must lead to something here too.
    if let Ok(real) = std::fs::canonicalize(RESOLV_CONF) {
        if let Ok(relative) = real.strip_prefix("/run") {
            let text = os::read_bounded(&real, RESOLV_CONF_MAX_BYTES)?;
            let copy = to.join(relative);
            if let Some(folder) = copy.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(copy, text)?;
        }
    }
    Ok(run)
}
