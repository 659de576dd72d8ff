//! What udev adds to devtmpfs: links, permissions, and the nodes whose modules load when they are opened.

use std::io;
use std::path::Path;

use super::modules;
use crate::os;

/// Links of `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/core", "/proc/kcore"),
];
/// Nodes that every user may open, as udev's rules have it.
const OPEN_TO_ALL: [&str; 2] = ["/dev/fuse", "/dev/net/tun"];
/// Nodes made at most.
const NODES_MAX: usize = 256;

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
    for path in OPEN_TO_ALL {
        let name = os::c_string(path)?;
        // SAFETY: NUL-terminated path. Without the device there is nothing to open.
        unsafe { libc::chmod(name.as_ptr(), 0o666) };
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
