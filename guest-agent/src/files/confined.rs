//! A folder that cannot be left: names of an archive are resolved below it by the kernel (`openat2`),
//! whatever links lie in it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use super::owner::Owner;
use crate::os;

/// The kernel answers EAGAIN when a rename elsewhere made the walk unsafe.
const RETRIES: usize = 32;

/// How links that point elsewhere are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// A way out is EXDEV.
    Beneath,
    /// The folder is the root: absolute links start there.
    InRoot,
}

/// The folder.
pub struct Confined {
    root: OwnedFd,
    links: Links,
    owner: Owner,
    /// Archives name many files of one folder in a row.
    last_parent: Option<(PathBuf, OwnedFd)>,
}

impl Confined {
    /// Opens an existing folder.
    pub fn open(path: &Path, links: Links, owner: Owner) -> io::Result<Confined> {
        let root = os::open(path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        Ok(Confined { root, links, owner, last_parent: None })
    }

    /// The open folder that holds `path`, made if missing, and the last part of it. `None` for the
    /// folder itself.
    pub fn parent_of(&mut self, path: &Path) -> io::Result<Option<(OwnedFd, CString)>> {
        let clean = clean(path)?;
        let Some(name) = clean.file_name() else {
            return Ok(None);
        };
        let name = os::c_string(name.as_encoded_bytes())?;
        let parent = clean.parent().unwrap_or(Path::new(""));
        if let Some((known, folder)) = &self.last_parent {
            if known == parent {
                return Ok(Some((folder.try_clone()?, name)));
            }
        }
        let folder = self.open_or_make(parent)?;
        self.last_parent = Some((parent.to_path_buf(), folder.try_clone()?));
        Ok(Some((folder, name)))
    }

    /// Something else may now lie where the last parent was.
    pub fn forget_parent(&mut self) {
        self.last_parent = None;
    }

    fn open_or_make(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.open_folder(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            other => return other,
        }
        let mut folder = self.root.try_clone()?;
        let mut walked = PathBuf::new();
        for component in path.components() {
            walked.push(component);
            folder = match self.open_folder(&walked) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    let name = os::c_string(component.as_os_str().as_encoded_bytes())?;
                    // SAFETY: a NUL-terminated name in an open folder.
                    os::check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o755) })?;
                    self.owner.give_at(&folder, &name)?;
                    self.open_folder(&walked)?
                }
                other => other?,
            };
        }
        Ok(folder)
    }

    /// An existing folder below.
    pub fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        if path.as_os_str().is_empty() {
            return self.root.try_clone();
        }
        let resolve = match self.links {
            Links::Beneath => libc::RESOLVE_BENEATH,
            Links::InRoot => libc::RESOLVE_IN_ROOT,
        } | libc::RESOLVE_NO_MAGICLINKS;
        let name = os::c_path(path)?;
        // SAFETY: open_how is plain data for which zero means "not used".
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
        how.resolve = resolve;
        for _ in 0..RETRIES {
            // SAFETY: all arguments are valid during the call; the new descriptor is ours.
            let result = unsafe {
                let size = size_of::<libc::open_how>();
                libc::syscall(libc::SYS_openat2, self.root.as_raw_fd(), name.as_ptr(), &how, size)
            };
            match os::check_long(result) {
                // SAFETY: the call succeeded.
                Ok(fd) => return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
}

/// The path without leading `/` and `.`; one with `..` leads outside and is EXDEV.
pub fn clean(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => return Err(io::Error::from_raw_os_error(libc::EXDEV)),
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_relative_and_dots_are_refused() {
        assert_eq!(clean(Path::new("./a//b/.")).unwrap(), Path::new("a/b"));
        assert_eq!(clean(Path::new("/etc/x")).unwrap(), Path::new("etc/x"));
        assert_eq!(clean(Path::new("a/../b")).unwrap_err().raw_os_error(), Some(libc::EXDEV));
    }
}
