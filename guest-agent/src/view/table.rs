//! The mounts of the machine, and where else in it a path can be seen: a folder that is bound to a second
//! place must be hidden there too.

use std::path::{Path, PathBuf};

use super::spec::is_at_or_below;

/// Lines read at most; more is no machine that a view can be made of.
const LINES_MAX: usize = 4_096;
/// File systems that are windows into the kernel: a view has its own, or none.
const OF_THE_KERNEL: [&str; 23] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// One line of `/proc/self/mountinfo` (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Number of the file system.
    pub device: String,
    /// What of the file system is shown.
    pub root: String,
    /// Where.
    pub point: String,
    /// Kind of the file system.
    pub kind: String,
}

/// All mounts that can be reached, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct MountTable(Vec<Mounted>);

impl MountTable {
    /// Reads the text of `mountinfo`; `None` if it is too long.
    pub fn parse(text: &str) -> Option<MountTable> {
        if text.lines().count() > LINES_MAX {
            return None;
        }
        Some(MountTable(text.lines().filter_map(parse_line).collect()))
    }

    /// What a sealed view brings in beside its root: file systems of files, once for each place.
    pub fn of_files(&self, own: &[&str]) -> Vec<&Mounted> {
        let mut found: Vec<&Mounted> = Vec::new();
        for mounted in &self.0 {
            let is_own = own.iter().any(|folder| is_at_or_below(&mounted.point, folder));
            if mounted.point == "/" || is_own || OF_THE_KERNEL.contains(&mounted.kind.as_str()) {
                continue;
            }
            // A later mount at the same place covers the earlier.
            found.retain(|earlier| earlier.point != mounted.point);
            found.push(mounted);
        }
        found
    }

    /// A path and all other places that show the same: (places, mount points that lie inside it).
    pub fn places_of(&self, path: &str) -> Vec<String> {
        let mut places = vec![path.to_string()];
        let Some(inside) = self.inside_of(path) else { return places };
        let device = self.mount_of(path).map(|mounted| mounted.device.clone()).unwrap_or_default();
        for mounted in self.0.iter().filter(|mounted| mounted.device == device) {
            let place = if let Ok(rest) = inside.strip_prefix(&mounted.root) {
                join(&mounted.point, rest)
            } else if Path::new(&mounted.root).starts_with(&inside) {
                // It shows a part of what is to be hidden.
                mounted.point.clone()
            } else {
                continue;
            };
            if place != "/" && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// The path within its file system.
    fn inside_of(&self, path: &str) -> Option<PathBuf> {
        let mounted = self.mount_of(path)?;
        let rest = Path::new(path).strip_prefix(&mounted.point).ok()?;
        Some(PathBuf::from(join(&mounted.root, rest)))
    }

    /// The mount that shows a path: the last one made of those at the longest mount point.
    fn mount_of(&self, path: &str) -> Option<&Mounted> {
        self.0
            .iter()
            .filter(|mounted| is_at_or_below(path, &mounted.point))
            .max_by_key(|mounted| mounted.point.len())
    }
}

fn join(folder: &str, rest: &Path) -> String {
    let joined =
        if rest.as_os_str().is_empty() { PathBuf::from(folder) } else { Path::new(folder).join(rest) };
    joined.to_string_lossy().into_owned()
}

fn parse_line(line: &str) -> Option<Mounted> {
    let (before, after) = line.split_once(" - ")?;
    let words: Vec<&str> = before.split(' ').collect();
    let [_, _, device, root, point, ..] = words[..] else { return None };
    Some(Mounted {
        device: device.to_string(),
        root: unescape(root),
        point: unescape(point),
        kind: after.split(' ').next()?.to_string(),
    })
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                plain.push(byte);
                at += 4;
            }
            _ => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / /proc rw - proc proc rw
23 21 254:16 / /usr/lib/modules/6 ro - ext4 /dev/vdb ro
24 21 0:30 /resolv.conf /etc/resolv.conf rw - tmpfs files rw
25 21 254:0 /srv/shop /mnt/a\\040b rw - ext4 /dev/vda rw
26 21 254:0 /srv/shop/data/deep /deep rw - ext4 /dev/vda rw
27 21 0:40 / /srv/disk rw - xfs /dev/vdc rw
28 21 0:40 /in /other rw - xfs /dev/vdc rw
29 21 0:41 / /run/x rw - tmpfs t rw
";

    #[test]
    fn a_bound_folder_is_found_at_all_its_places() {
        let table = MountTable::parse(TEXT).unwrap();
        assert_eq!(table.places_of("/srv/shop/data"), ["/srv/shop/data", "/mnt/a b/data", "/deep"]);
        assert_eq!(table.places_of("/srv/shop"), ["/srv/shop", "/mnt/a b", "/deep"]);
        assert_eq!(table.places_of("/deep/x"), ["/deep/x", "/srv/shop/data/deep/x", "/mnt/a b/data/deep/x"]);
        assert_eq!(table.places_of("/srv/disk/in/f"), ["/srv/disk/in/f", "/other/f"]);
        assert_eq!(table.places_of("/home"), ["/home"]);
        assert_eq!(table.places_of("/etc/resolv.conf"), ["/etc/resolv.conf"]);
    }

    #[test]
    fn only_file_systems_of_files_are_brought_in() {
        let table = MountTable::parse(TEXT).unwrap();
        let points: Vec<&str> =
            table.of_files(&["/run", "/proc"]).iter().map(|mounted| mounted.point.as_str()).collect();
        assert_eq!(
            points,
            ["/usr/lib/modules/6", "/etc/resolv.conf", "/mnt/a b", "/deep", "/srv/disk", "/other"]
        );
    }

    #[test]
    fn a_table_without_end_is_refused() {
        assert!(MountTable::parse(&"x\n".repeat(LINES_MAX + 1)).is_none());
    }
}
