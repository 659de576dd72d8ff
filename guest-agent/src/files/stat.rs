//! `GET /stat` and `GET /list`: what is there, as `lstat` sees it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use http::StatusCode;
use serde::Serialize;

use crate::http::error::CallError;

/// Entries of one folder that are listed; a JSON answer of this many is some ten megabytes.
const ENTRIES_MAX: usize = 50_000;

/// One file (`FileStat` in the contract).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStat {
    name: String,
    kind: &'static str,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// Entries of a folder.
#[derive(Debug, Serialize)]
pub struct FileList {
    entries: Vec<FileStat>,
}

/// One path.
pub fn stat(path: &Path, shown: &Path) -> Result<FileStat, CallError> {
    let failed = |error: io::Error| CallError::from_io(format!("stat {}", shown.display()), &error);
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    let name = shown.file_name().map_or_else(|| "/".to_string(), |name| name.to_string_lossy().into_owned());
    Ok(describe(name, path, &found))
}

/// All entries of a folder, by name.
pub fn list(path: &Path, shown: &Path) -> Result<FileList, CallError> {
    let failed = |error: io::Error| CallError::from_io(format!("list {}", shown.display()), &error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entries.len() >= ENTRIES_MAX {
            let message = format!(
                "list {}: more than {ENTRIES_MAX} entries; fetch it as tar or run find",
                shown.display()
            );
            return Err(CallError::new(StatusCode::PAYLOAD_TOO_LARGE, "EOVERFLOW", message));
        }
        match entry.metadata() {
            Ok(found) => {
                let name = entry.file_name().to_string_lossy().into_owned();
                entries.push(describe(name, &entry.path(), &found));
            }
            // Removed since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    entries.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(FileList { entries })
}

fn describe(name: String, path: &Path, found: &Metadata) -> FileStat {
    let kind = found.file_type();
    let kind = if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else {
        "other"
    };
    let target = if kind == "symlink" { std::fs::read_link(path).ok() } else { None };
    FileStat {
        name,
        kind,
        size: found.len(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        mtime_ms: found.mtime() * 1000 + found.mtime_nsec() / 1_000_000,
        target: target.map(|target| target.to_string_lossy().into_owned()),
    }
}
