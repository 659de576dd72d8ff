//! Owner, group and mode of device nodes, as udev's default rules have them. Read by `devices` for the nodes that are
//! there at the start, and by `uevents` for those that drivers make later.

/// What a node gets. Without a mode of its own a node of a group is 0660, as with udev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRule {
    /// Group, by the name that the image's `/etc/group` may have.
    pub group: &'static str,
    /// Permissions.
    pub mode: u32,
}

/// Group ids that Debian gives out for good (base-passwd), used until the image's own are known.
pub const STATIC_GROUPS: [(&str, u32); 8] = [
    ("root", 0),
    ("tty", 5),
    ("disk", 6),
    ("lp", 7),
    ("kmem", 15),
    ("dialout", 20),
    ("cdrom", 24),
    ("video", 44),
];

/// The rule for a path below /dev; none for a node that stays as its driver makes it.
pub fn rule_for(path: &str, is_block: bool) -> Option<NodeRule> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let rule = |group, mode| Some(NodeRule { group, mode });
    if is_block {
        return rule(if numbered(name, "sr") { "cdrom" } else { "disk" }, 0o660);
    }
    match name {
        "ptmx" | "tty" => rule("tty", 0o666),
        "mem" | "kmem" | "port" => rule("kmem", 0o640),
        "loop-control" | "btrfs-control" => rule("disk", 0o660),
        "fuse" | "tun" | "vsock" => rule("root", 0o666),
        "vfio" => rule("root", 0o666),
        "rfkill" => rule("root", 0o664),
        "kvm" | "vhost-net" | "vhost-vsock" | "udmabuf" => rule("kvm", 0o660),
        _ if numbered(name, "tty") => rule("tty", 0o620),
        _ if name.starts_with("vcs") => rule("tty", 0o660),
        _ if is_serial(name) => rule("dialout", 0o660),
        _ if numbered(name, "lp") => rule("lp", 0o660),
        _ if path.starts_with("input/") => rule("input", if numbered(name, "js") { 0o664 } else { 0o660 }),
        _ if path.starts_with("snd/") => rule("audio", 0o660),
        _ if numbered(name, "renderD") => rule("render", 0o660),
        _ if path.starts_with("dri/") || numbered(name, "fb") => rule("video", 0o660),
        _ => None,
    }
}

/// `PREFIX` and then a digit.
fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// `tty[A-Z]*[0-9]`.
fn is_serial(name: &str) -> bool {
    name.strip_prefix("tty").is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_uppercase())
            && rest.ends_with(|last: char| last.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_each_kind() {
        for (path, is_block, group, mode) in [
            ("loop0", true, "disk", 0o660),
            ("sr0", true, "cdrom", 0o660),
            ("tty", false, "tty", 0o666),
            ("tty12", false, "tty", 0o620),
            ("ttyS0", false, "dialout", 0o660),
            ("vcsa1", false, "tty", 0o660),
            ("net/tun", false, "root", 0o666),
            ("vhost-net", false, "kvm", 0o660),
            ("input/event0", false, "input", 0o660),
            ("mem", false, "kmem", 0o640),
        ] {
            assert_eq!(rule_for(path, is_block), Some(NodeRule { group, mode }), "{path}");
        }
        for path in ["null", "zero", "random", "console", "hwrng", "rtc0", "vport0p1", "ttyprintk", "kmsg"] {
            assert_eq!(rule_for(path, false), None, "{path}");
        }
    }
}
