//! File systems of the kernel, as a plain machine with systemd has them. They move into the sandbox's root
//! later, so mounting them here keeps it out of every start.

use std::io;
use std::path::Path;

use super::OWN_FILES;
use crate::os;

const QUIET: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// `/proc`, `/sys`, `/dev`: without these nothing else can be done.
pub fn mount_kernel_views() -> io::Result<()> {
    mount_in("/proc", "proc", "proc", QUIET, None)?;
    mount_in("/sys", "sysfs", "sysfs", QUIET, None)?;
    mount_in("/dev", "devtmpfs", "devtmpfs", libc::MS_NOSUID, Some("mode=755"))
}

/// Everything else. The last ones depend on how the kernel was built.
pub fn mount_rest() -> io::Result<()> {
    let terminals = Some("gid=5,mode=620,ptmxmode=000");
    mount_in("/dev/pts", "devpts", "devpts", libc::MS_NOSUID | libc::MS_NOEXEC, terminals)?;
    let memory = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_STRICTATIME;
    mount_in("/dev/shm", "tmpfs", "tmpfs", memory, Some("mode=1777"))?;
    mount_in("/dev/mqueue", "mqueue", "mqueue", QUIET, None)?;
    let delegation = Some("nsdelegate,memory_recursiveprot");
    mount_in("/sys/fs/cgroup", "cgroup2", "cgroup2", QUIET, delegation)?;
    // Moved into the sandbox's root by init, as /proc, /sys and /dev are.
    // Not noexec as Debian's initrd makes it: images made for containers execute what they put there.
    mount_in("/run", "tmpfs", "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, Some("mode=755,size=20%"))?;
    mount_in("/run/lock", "tmpfs", "tmpfs", QUIET, Some("mode=1777,size=5m"))?;
    // A kernel without huge pages has no such file system.
    let _ = mount_in("/dev/hugepages", "hugetlbfs", "hugetlbfs", 0, None);
    mount_in(OWN_FILES, "tmpfs", "tmpfs", QUIET, Some("mode=755,size=1m"))?;
    std::fs::create_dir_all("/mnt")?;
    for (path, kind) in [
        ("/sys/kernel/debug", "debugfs"),
        ("/sys/kernel/tracing", "tracefs"),
        ("/sys/kernel/config", "configfs"),
        ("/sys/fs/bpf", "bpf"),
        ("/sys/fs/fuse/connections", "fusectl"),
        ("/sys/fs/pstore", "pstore"),
    ] {
        // The kernel makes these folders itself when it has the file system.
        if Path::new(path).is_dir() {
            let data = (kind == "bpf").then_some("mode=700");
            let _ = os::mount(kind, Path::new(path), kind, QUIET, data);
        }
    }
    Ok(())
}

/// What systemd mounts when it is looked at: shown at once in a machine that has no init of its own. One that has
/// wants to do it itself.
pub fn mount_binfmt() -> io::Result<()> {
    os::mount("binfmt_misc", Path::new("/proc/sys/fs/binfmt_misc"), "binfmt_misc", QUIET, None)
}

/// In the sandbox's root: shows the security modules to images that bring AppArmor's tools. Where they are missing,
/// Docker takes the sight of AppArmor for an order to load its profile, and then starts no container at all.
pub fn offer_security() -> io::Result<()> {
    let path = Path::new("/sys/kernel/security");
    if !Path::new("/sbin/apparmor_parser").exists() || !path.is_dir() {
        return Ok(());
    }
    os::mount("securityfs", path, "securityfs", QUIET, None)
}

fn mount_in(
    path: &str,
    source: &str,
    kind: &str,
    flags: libc::c_ulong,
    data: Option<&str>,
) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    match os::mount(source, Path::new(path), kind, flags, data) {
        // The kernel may have mounted it before starting us (CONFIG_DEVTMPFS_MOUNT).
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        other => other,
    }
}
