//! `PUT /files`: a file is complete under its name or not there. Written beside its place, then renamed.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::owner::{self, Owner};
use super::sink::Sink;
use super::transfer::BodyReader;
use crate::http::error::CallError;
use crate::os;

/// Mode of new files when none is given.
const DEFAULT_MODE: u32 = 0o644;
/// Links followed at the end of a path, as the kernel's own limit.
const LINKS_MAX: usize = 40;

/// What to write where.
pub struct WriteRequest {
    /// Path as the caller named it, for messages.
    pub shown: PathBuf,
    /// Path to write.
    pub path: PathBuf,
    /// Mode of a new file.
    pub mode: Option<u32>,
    /// Owner of new files and folders.
    pub owner: Owner,
}

/// Writes a whole body to a file; returns its size.
pub fn write_file(request: &WriteRequest, mut body: BodyReader) -> Result<u64, CallError> {
    let failed = |error: io::Error| CallError::from_io(format!("write {}", request.shown.display()), &error);
    if request.path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(failed(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    let target = follow_links(&request.path).map_err(failed)?;
    let existing = existing(&target).map_err(failed)?;
    if existing.as_ref().is_some_and(Metadata::is_dir) {
        return Err(failed(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if existing.as_ref().is_some_and(|found| !found.is_file()) {
        // A device or a pipe: it is written to, not replaced.
        return write_through(&target, &mut body).map_err(failed);
    }
    let parent = target.parent().ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EISDIR)))?;
    let made = owner::make_folders(parent, request.owner).map_err(failed)?;
    replace(request, &target, existing.as_ref(), &mut body).map_err(|error| {
        owner::remove_folders(&made);
        failed(error)
    })
}

fn replace(
    request: &WriteRequest,
    target: &Path,
    existing: Option<&Metadata>,
    body: &mut BodyReader,
) -> io::Result<u64> {
    let temporary = Temporary::create(target.parent().unwrap_or(Path::new("/")))?;
    let bytes = copy(body, &temporary.file)?;
    let file = OwnedFd::from(temporary.file.try_clone()?);
    // Owner first: changing it clears the set-id bits.
    let mode = match existing {
        Some(found) => {
            if request.owner.0.is_some() {
                Owner(Some((found.uid(), found.gid()))).give(&file)?;
            }
            found.mode() & 0o7777
        }
        None => {
            request.owner.give(&file)?;
            request.mode.unwrap_or(DEFAULT_MODE)
        }
    };
    // SAFETY: plain system call on an open descriptor.
    os::check(unsafe { libc::fchmod(file.as_raw_fd(), mode as libc::mode_t) })?;
    match std::fs::rename(&temporary.path, target) {
        Ok(()) => {
            temporary.keep();
            Ok(bytes)
        }
        // A mount point, as a file bound over another one: its content is replaced instead.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let mut content = File::open(&temporary.path)?;
            let mut place = File::options().write(true).truncate(true).open(target)?;
            io::copy(&mut content, &mut place)
        }
        Err(error) => Err(error),
    }
}

/// A file under a name of its own, removed unless it is kept.
struct Temporary {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Temporary {
    fn create(folder: &Path) -> io::Result<Temporary> {
        let path = folder.join(format!(".sandlot-{}.tmp", os::random_hex::<8>()));
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let file = File::from(os::open(&path, flags, 0o600)?);
        Ok(Temporary { path, file, kept: false })
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn copy(body: &mut BodyReader, file: &File) -> io::Result<u64> {
    let mut sink = Sink::new(file);
    while let Some(piece) = body.next_piece()? {
        sink.write(&piece)?;
    }
    sink.finish()
}

fn write_through(target: &Path, body: &mut BodyReader) -> io::Result<u64> {
    let found = std::fs::metadata(target)?;
    if found.file_type().is_socket() {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    // A pipe without a reader is ENXIO at once instead of waiting for ever.
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = File::from(os::open(target, flags, 0)?);
    let mut bytes = 0;
    while let Some(piece) = body.next_piece()? {
        file.write_all(&piece)?;
        bytes += piece.len() as u64;
    }
    Ok(bytes)
}

fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where a path leads when its last part is a link, also a dangling one.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                let target = std::fs::read_link(&path)?;
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            _ => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}
