//! Owner and mode of what we make: new files and folders belong to the image's user, existing ones keep
//! theirs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::os;

/// Who gets new files; nobody in particular outside a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub Option<(u32, u32)>);

/// Mode of new folders.
const FOLDER_MODE: libc::mode_t = 0o755;
/// Deepest path that is made.
const DEPTH_MAX: usize = 4096;

impl Owner {
    /// Gives an open file to the owner.
    pub fn give(self, file: &OwnedFd) -> io::Result<()> {
        let Some((uid, gid)) = self.0 else { return Ok(()) };
        // SAFETY: plain system call on an open descriptor.
        os::check(unsafe { libc::fchown(file.as_raw_fd(), uid, gid) })?;
        Ok(())
    }

    /// Gives a name in an open folder to the owner, not following a link.
    pub fn give_at(self, folder: &OwnedFd, name: &std::ffi::CStr) -> io::Result<()> {
        let Some((uid, gid)) = self.0 else { return Ok(()) };
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: a NUL-terminated name in an open folder.
        os::check(unsafe { libc::fchownat(folder.as_raw_fd(), name.as_ptr(), uid, gid, flags) })?;
        Ok(())
    }
}

/// Makes a folder with all that is missing above it. Returns what was made, outermost first, for undoing.
pub fn make_folders(path: &Path, owner: Owner) -> io::Result<Vec<PathBuf>> {
    let mut missing: Vec<&Path> = Vec::new();
    let mut next = Some(path);
    while let Some(folder) = next {
        match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(folder),
            Err(error) => return Err(error),
        }
        if missing.len() > DEPTH_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        next = folder.parent();
    }
    let mut made = Vec::new();
    for folder in missing.into_iter().rev() {
        let result = make_folder(folder, owner);
        match result {
            Ok(()) => made.push(folder.to_path_buf()),
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => {
                remove_folders(&made);
                return Err(error);
            }
        }
    }
    Ok(made)
}

fn make_folder(path: &Path, owner: Owner) -> io::Result<()> {
    let name = os::c_path(path)?;
    // SAFETY: NUL-terminated path.
    os::check(unsafe { libc::mkdir(name.as_ptr(), FOLDER_MODE) })?;
    if let Some((uid, gid)) = owner.0 {
        // SAFETY: NUL-terminated path.
        os::check(unsafe { libc::lchown(name.as_ptr(), uid, gid) })?;
    }
    Ok(())
}

/// Undoes [`make_folders`]; a folder that something was put into meanwhile stays.
pub fn remove_folders(made: &[PathBuf]) {
    for folder in made.iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
}
