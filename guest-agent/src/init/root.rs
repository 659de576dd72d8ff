//! The machine's disk becomes its root: mounted, then moved over the initramfs (a chroot alone would make
//! the kernel refuse user namespaces to everybody), then grown to the size of its device.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{log, os};

/// The disk of the sandbox.
const DISK: &str = "/dev/vda";
/// Where it is mounted before it is moved.
const STAGING: &str = "/mnt";
/// What the initramfs has mounted and the new root takes over.
const MOVED: [&str; 3] = ["proc", "sys", "dev"];
/// The same, if the image's own `/run` can be shown in it.
const RUN: &str = "/run";
/// Entries and bytes of the image's `/run` that are copied.
const RUN_ENTRIES_MAX: usize = 500;
const RUN_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The new size of a disk that replaced the template's placeholder arrives by interrupt after the start.
const DISK_WAIT: Duration = Duration::from_secs(3);
const DISK_POLL: Duration = Duration::from_millis(2);
/// No background thread that zeroes inode tables: it would fill the overlay with zeros.
const MOUNT_DATA: &str = "noinit_itable";
/// `linux/fs.h`, `ext4.h`.
const BLKFLSBUF: libc::c_ulong = 0x1261;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const EXT4_IOC_RESIZE_FS: libc::c_ulong = 0x4008_6610;

/// Mounts the disk and makes it the root of process 1, and so of the kernel's helpers.
pub fn enter() -> io::Result<()> {
    mount_disk()?;
    for name in MOVED {
        let target = Path::new(STAGING).join(name);
        make_mount_point(&target)?;
        os::mount(&format!("/{name}"), &target, "", libc::MS_MOVE, None)?;
    }
    if let Err(error) = move_run() {
        log!("init: the image's /run stays on its disk: {error}");
    }
    std::env::set_current_dir(STAGING)?;
    os::mount(".", Path::new("/"), "", libc::MS_MOVE, None)?;
    // SAFETY: NUL-terminated path.
    os::check(unsafe { libc::chroot(c".".as_ptr()) })?;
    std::env::set_current_dir("/")?;
    // As systemd has it: mounts made later propagate into the namespaces of containers.
    os::mount("", Path::new("/"), "", libc::MS_SHARED | libc::MS_REC, None)
}

fn mount_disk() -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let disk = os::open(Path::new(DISK), libc::O_RDONLY, 0)?;
        // What was read of the placeholder must not be taken for the disk.
        // SAFETY: the request has no argument.
        unsafe { libc::ioctl(disk.as_raw_fd(), BLKFLSBUF, 0) };
        drop(disk);
        match os::mount(DISK, Path::new(STAGING), "ext4", 0, Some(MOUNT_DATA)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && begun.elapsed() < DISK_WAIT => {
                std::thread::sleep(DISK_POLL);
            }
            other => return other,
        }
    }
}

/// An image need not have these folders. One that has something else there is not usable.
fn make_mount_point(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::create_dir(path),
        Err(error) => Err(error),
    }
}

/// Grows the mounted root to the size of its device; one that fills it already is left as it is.
pub fn grow() -> io::Result<()> {
    let disk = os::open(Path::new(DISK), libc::O_RDONLY, 0)?;
    let root = os::open(Path::new("/"), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut size: u64 = 0;
    // SAFETY: each request reads or writes the one value given.
    unsafe {
        os::check(libc::ioctl(disk.as_raw_fd(), BLKGETSIZE64, &mut size))?;
        let mut found: libc::statfs = std::mem::zeroed();
        os::check(libc::fstatfs(root.as_raw_fd(), &mut found))?;
        let blocks: u64 = size / found.f_bsize as u64;
        os::check(libc::ioctl(root.as_raw_fd(), EXT4_IOC_RESIZE_FS, &blocks))?;
    }
    Ok(())
}

/// `/run` is in memory on a real machine. What the image has there (folders for sockets, with their
/// owners) is copied; an image with more than that, or with a link there, keeps its own.
fn move_run() -> io::Result<()> {
    let image_run = Path::new(STAGING).join("run");
    make_mount_point(&image_run)?;
    copy_small(&image_run, Path::new(RUN))?;
    os::mount(RUN, &image_run, "", libc::MS_MOVE, None)
}

/// Copies what is in a folder, if it is as little as the `/run` of an image should be.
pub fn copy_small(from: &Path, to: &Path) -> io::Result<()> {
    let Some(entries) = collect(from)? else {
        return Err(io::Error::other(format!("it has more than {RUN_ENTRIES_MAX} entries or 4 MiB")));
    };
    for entry in entries {
        copy(&from.join(&entry), &to.join(&entry))?;
    }
    Ok(())
}

/// Relative paths, parents first; `None` if it is too much.
fn collect(root: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let relative = folder.join(entry.file_name());
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                waiting.push(relative.clone());
            }
            bytes += metadata.len();
            found.push(relative);
            if found.len() > RUN_ENTRIES_MAX || bytes > RUN_BYTES_MAX {
                return Ok(None);
            }
        }
    }
    // A folder sorts before what is in it.
    found.sort();
    Ok(Some(found))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(from)?;
    if found.is_dir() {
        match std::fs::create_dir(to) {
            // A mount of ours, /run/lock, stays as it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            other => other?,
        }
    } else if found.is_symlink() {
        std::os::unix::fs::symlink(std::fs::read_link(from)?, to)?;
    } else if found.is_file() {
        std::fs::write(to, os::read_bounded(from, RUN_BYTES_MAX)?)?;
    } else {
        // Sockets and pipes mean nothing without who made them.
        return Ok(());
    }
    std::os::unix::fs::lchown(to, Some(found.uid()), Some(found.gid()))?;
    if !found.is_symlink() {
        std::fs::set_permissions(to, PermissionsExt::from_mode(found.mode() & 0o7777))?;
    }
    Ok(())
}
