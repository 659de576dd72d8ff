//! Kernel modules: the few in the initramfs that lead to the virtio devices, and the disk with all others,
//! from which the kernel loads what programs need, also in images without kmod.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::modprobe;
use crate::modprobe::load::{self, Outcome};
use crate::{log, os};

/// Paths of the initramfs's modules, one a line, dependencies first.
const LIST: &str = "/modules.list";
/// The module disk and where it is mounted, in the initramfs.
const DISK: &str = "/dev/vdb";
const DISK_MOUNT: &str = "/module-disk";
/// Descriptor by which the kernel finds its helper: `/proc/1/fd/100/modprobe`. Close-on-exec: a copy of it
/// in a command would lead out of every view.
pub const HELPER_FD: i32 = 100;
const HELPER_SETTING: &str = "/proc/sys/kernel/modprobe";
/// Where the image's own helper would be.
const IMAGE_HELPER: &str = "/sbin/modprobe";
/// What systemd and its first units load on a plain machine, as far as programs notice: file systems they look for
/// in /proc and /sys, legacy iptables, and the loop devices.
const USUAL: [&str; 5] = ["autofs4", "binfmt_misc", "configfs", "ip_tables", "loop"];
/// Tables of depmod are a few megabytes at most.
const TABLE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Loads what the initramfs lists.
pub fn load_listed() {
    for path in std::fs::read_to_string(LIST).unwrap_or_default().lines().filter(|line| !line.is_empty()) {
        match load::load_file(Path::new(path), "") {
            Ok(Outcome::Loaded | Outcome::WasLoaded) => {}
            Err(error) => log!("cannot load {path}: {error}"),
        }
    }
}

/// Mounts the module disk, once, and keeps it open under the number the kernel is told. A machine without
/// such a disk has no further modules.
pub fn mount_disk() -> io::Result<()> {
    if is_open(HELPER_FD) || !Path::new(DISK).exists() {
        return Ok(());
    }
    let target = Path::new(DISK_MOUNT);
    std::fs::create_dir_all(target)?;
    os::mount(DISK, target, "ext4", libc::MS_RDONLY | libc::MS_NODEV | libc::MS_NOSUID, None)?;
    let folder = os::open(target, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    // SAFETY: the number is free (checked above); the copy stays open for ever on purpose.
    unsafe {
        let copy = os::check(libc::dup3(folder.as_raw_fd(), HELPER_FD, libc::O_CLOEXEC))?;
        std::mem::forget(OwnedFd::from_raw_fd(copy));
    }
    Ok(())
}

/// Loads what a plain machine has at its first command; it is then part of the template and costs no start.
pub fn load_usual() {
    if is_open(HELPER_FD) {
        modprobe::load_from(Path::new(DISK_MOUNT), &USUAL);
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: plain fcntl; on a closed descriptor it fails.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// A table of the module disk, such as `modules.devname`.
pub fn read_table(name: &str) -> io::Result<String> {
    let bytes = os::read_bounded(&Path::new(DISK_MOUNT).join(name), TABLE_MAX_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// In the sandbox's root: shows the disk at `/lib/modules/<version>`, and tells the kernel to use our helper
/// where the image has none.
pub fn offer_in_root() -> io::Result<()> {
    if !is_open(HELPER_FD) {
        return Ok(());
    }
    if !Path::new(IMAGE_HELPER).exists() {
        point_to_helper()?;
    }
    let target = Path::new("/lib/modules").join(kernel_version()?);
    std::fs::create_dir_all(&target)?;
    os::mount(&format!("/proc/self/fd/{HELPER_FD}"), &target, "", libc::MS_BIND, None)
}

/// From now on the kernel uses our helper, whatever the image has: the image's lies where others than the
/// machine's root may write. Without our disk it uses none.
pub fn insist_on_helper() -> io::Result<()> {
    if is_open(HELPER_FD) { point_to_helper() } else { std::fs::write(HELPER_SETTING, "\n") }
}

fn point_to_helper() -> io::Result<()> {
    std::fs::write(HELPER_SETTING, format!("/proc/{}/fd/{HELPER_FD}/modprobe", std::process::id()))
}

/// The agent has become another process: where the kernel was told to use our helper, it finds it there.
pub fn follow_agent() -> io::Result<()> {
    if !std::fs::read_to_string(HELPER_SETTING)?.starts_with("/proc/1/") {
        return Ok(());
    }
    point_to_helper()
}

/// Where the module disk is shown in the sandbox's root, links resolved.
pub fn shown_at() -> io::Result<PathBuf> {
    std::fs::canonicalize(Path::new("/lib/modules").join(kernel_version()?))
}

/// `uname -r`.
pub fn kernel_version() -> io::Result<String> {
    // SAFETY: plain data filled by the call, which ends every field with a NUL.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        os::check(libc::uname(&mut names))?;
        Ok(CStr::from_ptr(names.release.as_ptr()).to_string_lossy().into_owned())
    }
}
