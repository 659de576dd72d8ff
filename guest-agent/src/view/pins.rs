//! Pins: what keeps the machine from renaming or replacing what a view hides. A cover of a view hangs on the
//! entry of a folder, not on its path: if somebody outside renamed the hidden folder or a folder above it, or
//! put another in its place, the view would show what comes there. The kernel refuses that for an entry that
//! anything is mounted on in the caller's namespace. So each such entry gets a mount, but not in the tree that
//! the machine uses, where it would split the file system for `mv` and be in the way of `umount`: in copies
//! of the folders, which lie in a place that no path leads to.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::mounts::{Tree, is_link, make_folder, place_below};
use crate::os;

/// Where the copies are mounted, in the initramfs.
const PLACE: &str = "/pins";
/// Descriptor by which the place is found when the root has moved.
pub const PINS_FD: i32 = 101;

/// Makes the place, once, before there is a sandbox: every mount namespace that is made in the machine has it
/// then, and as it is shared, what is pinned later is pinned in all of them.
pub fn make_place() -> io::Result<()> {
    std::fs::create_dir_all(PLACE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    os::mount("pins", Path::new(PLACE), "tmpfs", flags, Some("mode=700,size=1m"))?;
    os::mount("", Path::new(PLACE), "", libc::MS_SHARED, None)?;
    let folder = os::open(Path::new(PLACE), libc::O_PATH | libc::O_DIRECTORY, 0)?;
    // SAFETY: nothing else uses the number; the copy stays open for ever on purpose.
    unsafe {
        let copy = os::check(libc::dup3(folder.as_raw_fd(), PINS_FD, libc::O_CLOEXEC))?;
        std::mem::forget(OwnedFd::from_raw_fd(copy));
    }
    Ok(())
}

/// The entries to pin for a path: itself and all folders above it, the highest first.
pub fn entries_of(path: &str) -> Vec<String> {
    let mut entries: Vec<String> = Path::new(path)
        .ancestors()
        .filter(|entry| entry.parent().is_some())
        .map(|entry| entry.to_string_lossy().into_owned())
        .collect();
    entries.reverse();
    entries
}

/// Why an entry was not pinned.
#[derive(Debug)]
pub enum NotPinned {
    /// It does not exist, or it is no folder and something should lie in it.
    Missing,
    /// It is a symbolic link.
    Link,
    /// Something else.
    Failed(io::Error),
}

impl From<io::Error> for NotPinned {
    fn from(error: io::Error) -> NotPinned {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => NotPinned::Missing,
            Some(libc::ELOOP) => NotPinned::Link,
            _ => NotPinned::Failed(error),
        }
    }
}

/// Pins one entry of the tree that begins at `root`, in the namespace of the caller.
pub fn pin(root: &OwnedFd, place: &OwnedFd, entry: &str) -> Result<(), NotPinned> {
    let path = Path::new(entry);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = place_below(root, &parent.to_string_lossy(), false)?;
    let copy = Tree::copy(&parent, false)?;
    copy.make_private()?;
    let folder = os::random_hex::<8>();
    make_folder(place, &folder, 0o700)?;
    copy.attach(&place_below(place, &folder, false)?)?;
    let target = place_below(&copy, &name.to_string_lossy(), true)?;
    if is_link(&target)? {
        return Err(NotPinned::Link);
    }
    let itself = Tree::copy(&target, false)?;
    itself.make_private()?;
    itself.attach(&target)?;
    Ok(())
}

/// Checks that a path exists and that no link is on the way.
pub fn check(root: &OwnedFd, path: &str) -> Result<(), NotPinned> {
    let place = place_below(root, path, true)?;
    if is_link(&place)? { Err(NotPinned::Link) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_pinned_from_the_top() {
        assert_eq!(entries_of("/srv/shop/data"), ["/srv", "/srv/shop", "/srv/shop/data"]);
        assert!(entries_of("/").is_empty());
    }

    #[test]
    fn links_and_missing_paths_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("sandlot-pins-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.join("link")).unwrap();
        let root = os::open(&folder, libc::O_PATH | libc::O_DIRECTORY, 0).unwrap();
        assert!(check(&root, "/real").is_ok());
        assert!(matches!(check(&root, "/link"), Err(NotPinned::Link)));
        assert!(matches!(check(&root, "/link/x"), Err(NotPinned::Link)));
        assert!(matches!(check(&root, "/absent"), Err(NotPinned::Missing)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
