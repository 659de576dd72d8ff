//! `PUT /tar`: unpacks an archive below a folder and nowhere else. Each file is complete or not there.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tar::{Archive, Entry, EntryType};

use super::confined::{self, Confined, Links};
use super::owner::{self, Owner};
use super::sink::Sink;
use super::transfer::BodyReader;
use crate::http::error::CallError;
use crate::os;

/// Folders whose mode is set at the end, when nothing more is written into them.
const FOLDERS_MAX: usize = 1_000_000;

/// Bytes of content read at a time.
const PIECE_BYTES: usize = 128 * 1024;

/// Where to unpack.
pub struct UnpackRequest {
    /// Path as the caller named it, for messages.
    pub shown: PathBuf,
    /// Folder, made if missing.
    pub path: PathBuf,
    /// How links are treated.
    pub links: Links,
    /// Owner of new files and folders.
    pub owner: Owner,
}

struct Unpacker {
    folder: Confined,
    owner: Owner,
    folder_modes: Vec<(PathBuf, u32)>,
    bytes: u64,
}

/// Unpacks a whole body; returns the bytes of content.
pub fn unpack(request: &UnpackRequest, body: BodyReader) -> Result<u64, CallError> {
    let failed = |error: io::Error| refusal(format!("unpack to {}", request.shown.display()), &error);
    owner::make_folders(&request.path, request.owner).map_err(failed)?;
    let folder = Confined::open(&request.path, request.links, request.owner).map_err(failed)?;
    let mut unpacker = Unpacker { folder, owner: request.owner, folder_modes: Vec::new(), bytes: 0 };
    let mut archive = Archive::new(body);
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let name = PathBuf::from(bytes_to_os(&entry.path_bytes()));
        unpacker.place(&name, &mut entry).map_err(|error| {
            refusal(format!("unpack {} to {}", name.display(), request.shown.display()), &error)
        })?;
    }
    unpacker.set_folder_modes().map_err(failed)?;
    Ok(unpacker.bytes)
}

/// An error without an errno is the archive's own.
fn refusal(action: String, error: &io::Error) -> CallError {
    match error.raw_os_error() {
        None => CallError::invalid(format!("{action}: not a valid archive: {error}")),
        Some(libc::EXDEV) => CallError::from_io(format!("{action} (it leads outside)"), error),
        Some(_) => CallError::from_io(action, error),
    }
}

fn bytes_to_os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

impl Unpacker {
    fn place(&mut self, path: &Path, entry: &mut Entry<'_, BodyReader>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader) {
            return Ok(());
        }
        let Some((parent, name)) = self.folder.parent_of(path)? else {
            // The folder itself, which exists.
            return Ok(());
        };
        match kind {
            EntryType::Directory => self.place_folder(path, &parent, &name, entry.header().mode()?),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.place_file(&parent, &name, entry)
            }
            EntryType::Symlink => self.place_symlink(&parent, &name, &link_name(entry)?),
            EntryType::Link => self.place_hard_link(&parent, &name, &link_name(entry)?),
            EntryType::Fifo => {
                let temporary = Temporary::name(&parent)?;
                let mode = entry.header().mode()? as libc::mode_t & 0o7777;
                // SAFETY: a NUL-terminated name in an open folder.
                os::check(unsafe { libc::mkfifoat(parent.as_raw_fd(), temporary.name.as_ptr(), mode) })?;
                self.owner.give_at(&parent, &temporary.name)?;
                temporary.rename(&name)
            }
            // Devices have no place in an upload.
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }

    fn place_folder(&mut self, path: &Path, parent: &OwnedFd, name: &CStr, mode: u32) -> io::Result<()> {
        // SAFETY: a NUL-terminated name in an open folder.
        match os::check(unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o755) }) {
            Ok(_) => {
                self.owner.give_at(parent, name)?;
                if self.folder_modes.len() < FOLDERS_MAX {
                    self.folder_modes.push((confined::clean(path)?, mode & 0o7777));
                }
                Ok(())
            }
            // An existing one keeps owner and mode; a link must lead to a folder that is not outside.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                self.folder.open_folder(&confined::clean(path)?).map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn place_file(
        &mut self,
        parent: &OwnedFd,
        name: &CStr,
        entry: &mut Entry<'_, BodyReader>,
    ) -> io::Result<()> {
        let existing = stat_at(parent, name)?;
        if existing.is_some_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFDIR) {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let kept = existing.filter(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG);
        let temporary = Temporary::name(parent)?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let path = Path::new(OsStr::from_bytes(temporary.name.to_bytes()));
        let file = os::open_at(parent.as_raw_fd(), path, flags, 0o600)?;
        let file = File::from(file);
        self.bytes += copy(entry, &file)?;
        let file = OwnedFd::from(file);
        match kept {
            Some(found) if self.owner.0.is_some() => Owner(Some((found.st_uid, found.st_gid))).give(&file)?,
            _ => self.owner.give(&file)?,
        }
        let mode = entry.header().mode()? as libc::mode_t & 0o7777;
        set_mode_and_time(&file, mode, entry.header().mtime().unwrap_or(0))?;
        temporary.rename(name)
    }

    fn place_symlink(&mut self, parent: &OwnedFd, name: &CStr, target: &Path) -> io::Result<()> {
        // Where it points does not matter here: nothing is written through it that leads outside.
        let temporary = Temporary::name(parent)?;
        let target = os::c_path(target)?;
        // SAFETY: NUL-terminated names, an open folder.
        os::check(unsafe { libc::symlinkat(target.as_ptr(), parent.as_raw_fd(), temporary.name.as_ptr()) })?;
        self.owner.give_at(parent, &temporary.name)?;
        temporary.rename(name)?;
        self.folder.forget_parent();
        Ok(())
    }

    fn place_hard_link(&mut self, parent: &OwnedFd, name: &CStr, target: &Path) -> io::Result<()> {
        let Some((target_folder, target_name)) = self.folder.parent_of(target)? else {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        };
        let temporary = Temporary::name(parent)?;
        // SAFETY: NUL-terminated names in open folders; a link is not followed.
        os::check(unsafe {
            libc::linkat(
                target_folder.as_raw_fd(),
                target_name.as_ptr(),
                parent.as_raw_fd(),
                temporary.name.as_ptr(),
                0,
            )
        })?;
        // If both names are the same file already, rename does nothing: the temporary one is then removed.
        temporary.rename_and_remove(name)
    }

    fn set_folder_modes(&mut self) -> io::Result<()> {
        for (path, mode) in std::mem::take(&mut self.folder_modes).into_iter().rev() {
            let Ok(folder) = self.folder.open_folder(&path) else {
                continue;
            };
            // Through /proc, because a descriptor opened as O_PATH cannot be changed directly.
            let link = os::c_string(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
            // SAFETY: NUL-terminated path.
            os::check(unsafe { libc::chmod(link.as_ptr(), mode as libc::mode_t) })?;
        }
        Ok(())
    }
}

/// In pieces that are large enough for one write each to be cheap.
fn copy(entry: &mut Entry<'_, BodyReader>, file: &File) -> io::Result<u64> {
    let mut sink = Sink::new(file);
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if entry.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)? == 0 {
            let bytes = sink.finish()?;
            if bytes != entry.size() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends within a file"));
            }
            return Ok(bytes);
        }
        sink.write(&piece.into())?;
    }
}

fn link_name(entry: &Entry<'_, BodyReader>) -> io::Result<PathBuf> {
    match entry.link_name_bytes() {
        Some(bytes) if !bytes.is_empty() => Ok(PathBuf::from(bytes_to_os(&bytes))),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

fn stat_at(folder: &OwnedFd, name: &CStr) -> io::Result<Option<libc::stat>> {
    // SAFETY: plain data filled by the call; a NUL-terminated name in an open folder.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: as above.
    match os::check(unsafe { libc::fstatat(folder.as_raw_fd(), name.as_ptr(), &mut found, flags) }) {
        Ok(_) => Ok(Some(found)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn set_mode_and_time(file: &OwnedFd, mode: libc::mode_t, mtime: u64) -> io::Result<()> {
    let mtime = libc::timespec { tv_sec: mtime as libc::time_t, tv_nsec: 0 };
    let times = [libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }, mtime];
    // SAFETY: an open descriptor and two timespecs.
    unsafe {
        os::check(libc::fchmod(file.as_raw_fd(), mode))?;
        os::check(libc::futimens(file.as_raw_fd(), times.as_ptr()))?;
    }
    Ok(())
}

/// A name of its own in a folder, removed unless renamed.
struct Temporary {
    folder: OwnedFd,
    name: CString,
    kept: bool,
}

impl Temporary {
    fn name(folder: &OwnedFd) -> io::Result<Temporary> {
        let name = os::c_string(format!(".sandlot-{}.tmp", os::random_hex::<8>()))?;
        Ok(Temporary { folder: folder.try_clone()?, name, kept: false })
    }

    fn rename(mut self, name: &CStr) -> io::Result<()> {
        self.rename_to(name)?;
        self.kept = true;
        Ok(())
    }

    fn rename_and_remove(self, name: &CStr) -> io::Result<()> {
        self.rename_to(name)
    }

    fn rename_to(&self, name: &CStr) -> io::Result<()> {
        let folder = self.folder.as_raw_fd();
        // SAFETY: NUL-terminated names in an open folder.
        os::check(unsafe { libc::renameat(folder, self.name.as_ptr(), folder, name.as_ptr()) })?;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: a NUL-terminated name in an open folder; that it may be gone is fine.
            unsafe { libc::unlinkat(self.folder.as_raw_fd(), self.name.as_ptr(), 0) };
        }
    }
}
