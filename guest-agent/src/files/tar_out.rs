//! `GET /tar`: what a path names, as a tar stream. Links are stored as links and never followed; sockets,
//! pipes and devices are left out; other file systems are entered only where they hold files.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::transfer::BodyWriter;
use crate::os;

/// Hard links remembered, to store further names of a file as links.
const HARD_LINKS_MAX: usize = 200_000;
/// File systems that hold no files but views of the kernel.
const VIEWS: [i64; 9] = [
    libc::PROC_SUPER_MAGIC,
    0x6265_6572, // sysfs
    libc::CGROUP_SUPER_MAGIC,
    libc::CGROUP2_SUPER_MAGIC,
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
    libc::BPF_FS_MAGIC,
];

/// Writes the archive of `root`: names relative to it; a single file under its own name.
pub fn pack(root: &Path, out: &mut BodyWriter) -> io::Result<()> {
    let mut packer = Packer { archive: Builder::new(out), links: HashMap::new() };
    let found = std::fs::metadata(root)?;
    if found.is_dir() {
        packer.pack_folder(root, found.dev())?;
    } else {
        let name = root.file_name().map(PathBuf::from).unwrap_or_else(|| PathBuf::from("file"));
        packer.pack_entry(root, &name, &found)?;
    }
    packer.archive.finish()
}

struct Packer<'a> {
    archive: Builder<&'a mut BodyWriter>,
    links: HashMap<(u64, u64), PathBuf>,
}

impl Packer<'_> {
    /// Depth first without recursion: a tree may be deeper than a stack.
    fn pack_folder(&mut self, root: &Path, root_device: u64) -> io::Result<()> {
        let mut waiting = vec![(PathBuf::new(), root_device)];
        while let Some((folder, device)) = waiting.pop() {
            let mut names: Vec<_> = match std::fs::read_dir(root.join(&folder)) {
                Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            names.sort();
            let mut folders = Vec::new();
            for name in names {
                let relative = folder.join(name);
                let path = root.join(&relative);
                let found = match std::fs::symlink_metadata(&path) {
                    Ok(found) => found,
                    // Removed since the folder was read.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                self.pack_entry(&path, &relative, &found)?;
                if found.is_dir() && (found.dev() == device || !is_view(&path)) {
                    folders.push((relative, found.dev()));
                }
            }
            waiting.extend(folders.into_iter().rev());
        }
        Ok(())
    }

    fn pack_entry(&mut self, path: &Path, name: &Path, found: &Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(found.mode() & 0o7777);
        header.set_uid(found.uid().into());
        header.set_gid(found.gid().into());
        header.set_mtime(found.mtime().max(0) as u64);
        header.set_size(0);
        if found.is_dir() {
            header.set_entry_type(EntryType::Directory);
            self.archive.append_data(&mut header, name, io::empty())
        } else if found.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            self.archive.append_link(&mut header, name, std::fs::read_link(path)?)
        } else if found.is_file() {
            self.pack_file(path, name, found, header)
        } else {
            Ok(())
        }
    }

    fn pack_file(
        &mut self,
        path: &Path,
        name: &Path,
        found: &Metadata,
        mut header: Header,
    ) -> io::Result<()> {
        if found.nlink() > 1 {
            if let Some(first) = self.links.get(&(found.dev(), found.ino())) {
                header.set_entry_type(EntryType::Link);
                return self.archive.append_link(&mut header, name, first);
            }
        }
        let file = match os::open(path, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0) {
            Ok(file) => File::from(file),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The size is fixed now: what is appended meanwhile is left out, what is cut away reads as zeros.
        let size = file.metadata()?.len();
        header.set_entry_type(EntryType::Regular);
        header.set_size(size);
        self.archive.append_data(&mut header, name, file.chain(io::repeat(0)).take(size))?;
        if found.nlink() > 1 && self.links.len() < HARD_LINKS_MAX {
            self.links.insert((found.dev(), found.ino()), name.to_path_buf());
        }
        Ok(())
    }
}

/// A mount point of a file system that holds no files.
fn is_view(path: &Path) -> bool {
    let Ok(path) = os::c_path(path) else { return true };
    // SAFETY: plain data filled by the call; NUL-terminated path.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut found) < 0 || VIEWS.contains(&found.f_type)
    }
}
