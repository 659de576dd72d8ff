//! Covers: what hides paths of a tree, and what makes them read-only. The mounts become locked when the view's
//! own namespace copies them, flags included.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::mounts::{Tree, is_folder, place_below};
use super::spec::is_at_or_below;
use super::table::MountTable;
use crate::os;

const SHUT: u64 =
    libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
/// The one file in the small file system that hidden files are copies of.
const EMPTY_FILE: &str = "empty";

/// A tree to cover: its root, and the map that shifts owners in it (none in a mask).
pub struct Covered<'a> {
    /// Root of the tree.
    pub root: &'a OwnedFd,
    /// Id map.
    pub ids: Option<&'a OwnedFd>,
    /// A folder of the tree that is covered later anyway, for what has to be mounted for a moment.
    pub spare_folder: &'a str,
}

impl Covered<'_> {
    /// Makes paths read-only, with all that is mounted below them.
    pub fn make_readonly(&self, paths: &[String], table: &MountTable) -> io::Result<()> {
        for path in outermost(paths).iter().flat_map(|path| table.places_of(path)) {
            let Some(place) = self.place(&path)? else { continue };
            let tree = Tree::copy(&place, true)?;
            tree.set_attributes(libc::MOUNT_ATTR_RDONLY, true)?;
            tree.attach(&place)?;
        }
        Ok(())
    }

    /// Hides paths: folders become empty ones, anything else an empty file.
    pub fn hide(&self, paths: &[String], table: &MountTable) -> io::Result<()> {
        let mut empty_files: Option<Tree> = None;
        for path in outermost(paths).iter().flat_map(|path| table.places_of(path)) {
            let Some(place) = self.place(&path)? else { continue };
            if is_folder(&place)? {
                let empty = Tree::in_memory(&[("mode", "555"), ("size", "4k"), ("nr_inodes", "2")], SHUT)?;
                self.shift(&empty, SHUT)?;
                empty.attach(&place)?;
                continue;
            }
            if empty_files.is_none() {
                empty_files = Some(self.make_empty_file()?);
            }
            let Some(files) = &empty_files else { continue };
            let empty = Tree::copy(&place_below(files, EMPTY_FILE, false)?, false)?;
            self.shift(&empty, SHUT)?;
            empty.attach(&place)?;
        }
        if let Some(files) = empty_files {
            unmount(&files)?;
        }
        Ok(())
    }

    /// What is not there in the tree (a mount that it does not have) cannot be seen in it either.
    fn place(&self, path: &str) -> io::Result<Option<OwnedFd>> {
        match place_below(self.root, path, false) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
            other => other.map(Some),
        }
    }

    fn shift(&self, tree: &Tree, attributes: u64) -> io::Result<()> {
        match self.ids {
            Some(ids) => tree.map_ids(ids, attributes),
            None => tree.set_attributes(attributes, false),
        }
    }

    /// Copies can be made only of what is attached somewhere.
    fn make_empty_file(&self) -> io::Result<Tree> {
        let files = Tree::in_memory(&[("mode", "755"), ("size", "4k"), ("nr_inodes", "4")], 0)?;
        drop(os::open_at(
            files.as_raw_fd(),
            Path::new(EMPTY_FILE),
            libc::O_CREAT | libc::O_EXCL | libc::O_RDONLY,
            0o444,
        )?);
        files.attach(&place_below(self.root, self.spare_folder, false)?)?;
        Ok(files)
    }
}

/// Takes a mount out of the tree; what uses it keeps it.
pub fn unmount(place: &impl AsRawFd) -> io::Result<()> {
    let path = os::c_string(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    // SAFETY: NUL-terminated path.
    os::check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Without those that lie in others.
fn outermost(paths: &[String]) -> Vec<&String> {
    let is_inside = |path: &String| paths.iter().any(|other| other != path && is_at_or_below(path, other));
    paths.iter().filter(|path| !is_inside(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_others_need_no_cover() {
        let paths: Vec<String> = ["/a", "/a/b", "/ab", "/c/d"].map(String::from).to_vec();
        assert_eq!(outermost(&paths), ["/a", "/ab", "/c/d"]);
    }
}
