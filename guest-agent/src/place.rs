//! Where the agent works: as process 1 of a machine, or below a folder of the host for tests.

use std::path::{Component, Path, PathBuf};

/// The two kinds of places.
#[derive(Clone, Debug)]
pub enum Place {
    /// Process 1: paths are what they say, users and mounts are real.
    Machine,
    /// An ordinary process: paths lie below this folder, users are ignored, nothing is mounted.
    Folder(PathBuf),
}

impl Place {
    /// The agent is process 1 of a machine.
    pub fn is_machine(&self) -> bool {
        matches!(self, Place::Machine)
    }

    /// The real path of an absolute path of the sandbox.
    pub fn path(&self, path: &Path) -> PathBuf {
        match self {
            Place::Machine => path.to_path_buf(),
            Place::Folder(root) => root.join(normalise(path)),
        }
    }

    /// Working directory of a command. Below a folder, one that exists only on the host is taken from there.
    pub fn working_dir(&self, path: &Path) -> PathBuf {
        let mapped = self.path(path);
        if !self.is_machine() && !mapped.exists() && path.is_dir() {
            return path.to_path_buf();
        }
        mapped
    }
}

/// Relative form without `.` and `..`: `..` at the top stays at the top, as in a real root.
fn normalise(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_cannot_be_left_by_dots() {
        let place = Place::Folder(PathBuf::from("/tmp/root"));
        assert_eq!(place.path(Path::new("/a/../../../etc/passwd")), Path::new("/tmp/root/etc/passwd"));
        assert_eq!(place.path(Path::new("/")), Path::new("/tmp/root/"));
        assert_eq!(Place::Machine.path(Path::new("/a/../b")), Path::new("/a/../b"));
    }
}
