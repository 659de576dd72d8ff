//! The kernel's newer mount calls, which work on descriptors: what is attached where cannot change between
//! a look and the act, whatever links somebody lays. Used by the maker of views.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::os;

/// Another process renamed something on the way: the kernel asks to try again.
const RETRIES: usize = 32;

/// Mounts that are not attached anywhere yet.
pub struct Tree(OwnedFd);

impl Tree {
    /// A copy of the mount that shows `place`, beginning there; with those below it if `recursive`.
    pub fn copy(place: &impl AsRawFd, recursive: bool) -> io::Result<Tree> {
        let mut flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH as u32;
        if recursive {
            flags |= libc::AT_RECURSIVE as u32;
        }
        // SAFETY: NUL-terminated path; the new descriptor is ours.
        unsafe {
            new_fd(libc::syscall(libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags)).map(Tree)
        }
    }

    /// A new file system in memory with these options and attributes (`MOUNT_ATTR_*`).
    pub fn in_memory(options: &[(&str, &str)], attributes: u64) -> io::Result<Tree> {
        // SAFETY: NUL-terminated strings that outlive the calls; the new descriptors are ours.
        unsafe {
            let context = new_fd(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), libc::FSOPEN_CLOEXEC))?;
            for (name, value) in options {
                let (name, value) = (os::c_string(name)?, os::c_string(value)?);
                configure(&context, libc::FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr())?;
            }
            configure(&context, libc::FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
            new_fd(libc::syscall(
                libc::SYS_fsmount,
                context.as_raw_fd(),
                libc::FSMOUNT_CLOEXEC,
                attributes as u32,
            ))
            .map(Tree)
        }
    }

    /// Sets attributes; `recursive`: of all mounts of the tree.
    pub fn set_attributes(&self, attributes: u64, recursive: bool) -> io::Result<()> {
        self.set(attributes, 0, None, recursive)
    }

    /// Nothing that is mounted in it later is seen elsewhere, nor the other way.
    pub fn make_private(&self) -> io::Result<()> {
        self.set(0, libc::MS_PRIVATE, None, true)
    }

    /// Shows its owners shifted by the map of a user namespace.
    pub fn map_ids(&self, user_namespace: &OwnedFd, attributes: u64) -> io::Result<()> {
        self.set(libc::MOUNT_ATTR_IDMAP | attributes, 0, Some(user_namespace), false)
    }

    fn set(
        &self,
        attributes: u64,
        propagation: u64,
        user_namespace: Option<&OwnedFd>,
        recursive: bool,
    ) -> io::Result<()> {
        // SAFETY: plain data for which zero means "leave".
        let mut wanted: libc::mount_attr = unsafe { std::mem::zeroed() };
        wanted.attr_set = attributes;
        wanted.propagation = propagation;
        wanted.userns_fd = user_namespace.map_or(0, |fd| fd.as_raw_fd() as u64);
        let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
        // SAFETY: valid pointers for the length given.
        os::check_long(unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.as_raw_fd(),
                c"".as_ptr(),
                flags,
                &wanted,
                size_of::<libc::mount_attr>(),
            )
        })?;
        Ok(())
    }

    /// Attaches it over what is open as `target`.
    pub fn attach(&self, target: &impl AsRawFd) -> io::Result<()> {
        let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
        // SAFETY: NUL-terminated paths.
        os::check_long(unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.as_raw_fd(),
                c"".as_ptr(),
                target.as_raw_fd(),
                c"".as_ptr(),
                flags,
            )
        })?;
        Ok(())
    }
}

impl AsRawFd for Tree {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Opens a path below a folder as a place, following no link at all, not even the last: ELOOP. With
/// `last_link` the last part may be one, and is opened itself.
pub fn place_below(folder: &impl AsRawFd, path: &str, last_link: bool) -> io::Result<OwnedFd> {
    let relative = path.trim_start_matches('/');
    let name = os::c_string(if relative.is_empty() { "." } else { relative })?;
    // SAFETY: open_how is plain data for which zero means "not used".
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    if last_link {
        how.flags |= libc::O_NOFOLLOW as u64;
    }
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    for _ in 0..RETRIES {
        // SAFETY: all arguments are valid during the call; the new descriptor is ours.
        let result = unsafe {
            let size = size_of::<libc::open_how>();
            new_fd(libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), name.as_ptr(), &how, size))
        };
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

/// Makes a folder in an open one; it may exist.
pub fn make_folder(parent: &impl AsRawFd, name: &str, mode: u32) -> io::Result<()> {
    let name = os::c_string(name)?;
    // SAFETY: a NUL-terminated name in an open folder.
    match os::check(unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), mode) }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // The mask of the process does not count.
        _ => os::check(unsafe { libc::fchmodat(parent.as_raw_fd(), name.as_ptr(), mode, 0) }).map(drop),
    }
}

/// Makes a link in an open folder.
pub fn make_link(parent: &impl AsRawFd, name: &str, target: &str) -> io::Result<()> {
    let (name, target): (CString, CString) = (os::c_string(name)?, os::c_string(target)?);
    // SAFETY: NUL-terminated names, an open folder.
    os::check(unsafe { libc::symlinkat(target.as_ptr(), parent.as_raw_fd(), name.as_ptr()) }).map(drop)
}

/// Whether what is open is a folder.
pub fn is_folder(place: &impl AsRawFd) -> io::Result<bool> {
    Ok(kind_of(place)? == libc::S_IFDIR)
}

/// Whether what is open is a symbolic link.
pub fn is_link(place: &impl AsRawFd) -> io::Result<bool> {
    Ok(kind_of(place)? == libc::S_IFLNK)
}

fn kind_of(place: &impl AsRawFd) -> io::Result<libc::mode_t> {
    // SAFETY: `found` is plain data, filled by the call.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        os::check(libc::fstat(place.as_raw_fd(), &mut found))?;
        Ok(found.st_mode & libc::S_IFMT)
    }
}

/// Mounts a kernel file system at a path below the working directory.
pub fn mount_kernel(kind: &str, target: &str, options: Option<&str>) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    os::mount(kind, Path::new(target), kind, flags, options)
}

unsafe fn new_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    // SAFETY: the caller passes what a call answered that makes a descriptor.
    os::check_long(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

unsafe fn configure(
    context: &OwnedFd,
    command: libc::fsconfig_command,
    name: *const libc::c_char,
    value: *const libc::c_char,
) -> io::Result<()> {
    // SAFETY: as promised by the caller: both are NULL or NUL-terminated.
    os::check_long(unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, name, value, 0) })
        .map(drop)
}
