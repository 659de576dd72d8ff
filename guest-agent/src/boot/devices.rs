//! What udev adds to devtmpfs: links, permissions, and the nodes whose modules load when they are opened.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use super::modules;
use super::node_rules::{STATIC_GROUPS, rule_for};
use crate::exec::users::Accounts;
use crate::os;

const DEV: &str = "/dev";
const MAPPED: &str = "/dev/mapper";
/// Names are 127 bytes at most (DM_NAME_LEN).
const MAPPED_NAME_MAX_BYTES: u64 = 256;
/// Below /dev, other file systems.
const OTHER_MOUNTS: [&str; 4] = ["pts", "shm", "mqueue", "hugepages"];

/// Links of `/dev`.
const LINKS: [(&str, &str); 6] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/core", "/proc/kcore"),
    ("/dev/rtc", "rtc0"),
];
/// Stays root's until its module is there: udev's rule has no static_node for it.
const UNTIL_LOADED: &str = "btrfs-control";
/// Nodes made at most.
const NODES_MAX: usize = 256;
/// Entries of /dev looked at, at most.
const ENTRIES_MAX: usize = 8_192;
/// Groups that rules name.
const GROUPS: [&str; 11] =
    ["tty", "disk", "lp", "kmem", "dialout", "cdrom", "video", "kvm", "input", "audio", "render"];

/// Makes links and nodes.
pub fn make_nodes() -> io::Result<()> {
    for (link, target) in LINKS {
        match std::os::unix::fs::symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let listed = modules::read_table("modules.devname").unwrap_or_default();
    for node in listed.lines().filter_map(parse_devname).take(NODES_MAX) {
        make_node(&node)?;
    }
    apply_rules(&Groups::of_debian());
    Ok(())
}

/// Ids of the groups that nodes are given to.
#[derive(Debug, PartialEq, Eq)]
pub struct Groups(BTreeMap<&'static str, u32>);

impl Groups {
    /// Those that hold before there is an image.
    fn of_debian() -> Groups {
        Groups(STATIC_GROUPS.into())
    }

    /// Those of the image in the root, and of Debian where it has none.
    pub fn of_image() -> Groups {
        let mut groups = Groups::of_debian();
        if let Ok(accounts) = Accounts::read(Path::new("/")) {
            groups
                .0
                .extend(GROUPS.into_iter().filter_map(|name| accounts.group_id(name).map(|gid| (name, gid))));
        }
        groups
    }
}

/// The image's own groups get their nodes. The common ones have the same ids in nearly every image, and then
/// nothing is left to do.
pub fn take_groups_of_image() {
    let groups = Groups::of_image();
    if groups != Groups::of_debian() {
        apply_rules(&groups);
    }
}

/// Applies the rules to every node that is there.
pub fn apply_rules(groups: &Groups) {
    let mut waiting = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(Path::new(DEV).join(&folder)) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > ENTRIES_MAX {
                return;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = folder.join(entry.file_name());
            if kind.is_dir() {
                if !OTHER_MOUNTS.iter().any(|name| path == Path::new(name)) {
                    waiting.push(path);
                }
            } else if kind.is_block_device() || kind.is_char_device() {
                if path == Path::new(UNTIL_LOADED) && !Path::new("/sys/class/misc/btrfs-control").exists() {
                    continue;
                }
                // A node that is gone needs nothing.
                let _ = apply_rule(&path.to_string_lossy(), kind.is_block_device(), groups);
            }
        }
    }
}

/// Gives one node, by its path below /dev, what its rule says.
pub fn apply_rule(name: &str, is_block: bool, groups: &Groups) -> io::Result<()> {
    let Some(rule) = rule_for(name, is_block) else { return Ok(()) };
    // As udev: a group that the image does not know changes nothing.
    let Some(&gid) = groups.0.get(rule.group) else { return Ok(()) };
    let path = Path::new(DEV).join(name);
    let found = std::fs::symlink_metadata(&path)?;
    if !found.file_type().is_block_device() && !found.file_type().is_char_device() {
        return Ok(());
    }
    if found.gid() != gid {
        lchown(&path, None, Some(gid))?;
    }
    if found.mode() & 0o7777 != rule.mode {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(rule.mode))?;
    }
    Ok(())
}

/// `/dev/mapper/NAME` of a device-mapper device, `dm-N`.
pub fn link_mapped(node: &str) -> io::Result<()> {
    let file = Path::new("/sys/block").join(node).join("dm/name");
    let name =
        String::from_utf8_lossy(&os::read_bounded(&file, MAPPED_NAME_MAX_BYTES)?).trim_end().to_string();
    if name.is_empty() || name.contains('/') || name == "." || name == ".." || name == "control" {
        return Ok(());
    }
    unlink_mapped(node)?;
    let link = Path::new(MAPPED).join(name);
    match std::os::unix::fs::symlink(Path::new("..").join(node), &link) {
        // The library has made a node of its own.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Takes away what `link_mapped` has made for this device; also under a name that it had before.
pub fn unlink_mapped(node: &str) -> io::Result<()> {
    let target = Path::new("..").join(node);
    for entry in std::fs::read_dir(MAPPED)?.take(ENTRIES_MAX) {
        let path = entry?.path();
        if std::fs::read_link(&path).is_ok_and(|found| found == target) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Node<'a> {
    path: &'a str,
    is_block: bool,
    major: u32,
    minor: u32,
}

/// Lines are `module name c10:229`.
fn parse_devname(line: &str) -> Option<Node<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let (_module, path, number) = (words.next()?, words.next()?, words.next()?);
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return None;
    }
    let (kind, number) = number.split_at_checked(1)?;
    let (major, minor) = number.split_once(':')?;
    Some(Node {
        path,
        is_block: match kind {
            "b" => true,
            "c" => false,
            _ => return None,
        },
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn make_node(node: &Node<'_>) -> io::Result<()> {
    let path = Path::new("/dev").join(node.path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let kind = if node.is_block { libc::S_IFBLK } else { libc::S_IFCHR };
    let name = os::c_path(&path)?;
    // SAFETY: NUL-terminated path.
    match os::check(unsafe {
        libc::mknod(name.as_ptr(), kind | 0o600, libc::makedev(node.major, node.minor))
    }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_modules_devname() {
        assert_eq!(
            parse_devname("tun net/tun c10:200"),
            Some(Node { path: "net/tun", is_block: false, major: 10, minor: 200 })
        );
        assert!(parse_devname("loop loop0 b7:0").unwrap().is_block);
        for bad in ["# comment", "x", "x y", "x y q1:2", "x y c12", "x ../y c1:2", "x /y c1:2", ""] {
            assert_eq!(parse_devname(bad), None, "{bad}");
        }
    }
}
