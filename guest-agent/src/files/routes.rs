//! The file calls.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use h2::RecvStream;
use serde::Serialize;

use super::confined::Links;
use super::owner::Owner;
use super::stat::{self, FileList, FileStat};
use super::tar_in::{self, UnpackRequest};
use super::write::{self, WriteRequest};
use super::{read, tar_out, transfer};
use crate::agent::Agent;
use crate::http::answer::Answer;
use crate::http::error::CallError;
use crate::http::query::Query;

/// Bits of a mode.
const MODE_MAX: u32 = 0o7777;

/// Answer of a write (`FileWritten` in the contract).
#[derive(Serialize)]
pub struct FileWritten {
    bytes: u64,
}

/// The path as the caller names it, and as it is found.
fn paths(agent: &Agent, query: &Query) -> Result<(PathBuf, PathBuf), CallError> {
    agent.require_initialised()?;
    let shown = query.path()?;
    let path = agent.place.path(&shown);
    Ok((shown, path))
}

/// `PUT /files`.
pub async fn put_file(agent: &Agent, query: &Query, body: &mut RecvStream) -> Result<FileWritten, CallError> {
    let (shown, mut path) = paths(agent, query)?;
    if shown.as_os_str().as_encoded_bytes().ends_with(b"/") {
        // Kept, so that it is refused as a folder's name.
        path.push("");
    }
    let request = WriteRequest { shown, path, mode: mode(query)?, owner: Owner(agent.file_owner()) };
    let bytes = transfer::receive(body, move |body| write::write_file(&request, body)).await?;
    Ok(FileWritten { bytes })
}

fn mode(query: &Query) -> Result<Option<u32>, CallError> {
    let Some(text) = query.text("mode")? else {
        return Ok(None);
    };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= MODE_MAX => Ok(Some(mode)),
        _ => Err(CallError::invalid(format!("mode {text:?} is not an octal file mode"))),
    }
}

/// `GET /files`.
pub async fn get_file(agent: Rc<Agent>, query: &Query, answer: Answer) {
    let opened = async {
        let (shown, path) = paths(&agent, query)?;
        let offset = query.parsed("offset")?.unwrap_or(0);
        let length = query.parsed("length")?;
        transfer::blocking(move || read::open(&path, &shown, offset, length)).await
    };
    let window = match opened.await {
        Ok(window) => window,
        Err(error) => return answer.refuse(&error),
    };
    let headers =
        [("sandlot-file-size", window.size.to_string()), ("sandlot-file-offset", window.offset.to_string())];
    if let Ok(stream) = answer.stream(&headers) {
        transfer::send(stream, move |out| window.send_to(|piece| out.send_piece(piece))).await;
    }
}

/// `GET /stat`.
pub async fn get_stat(agent: &Agent, query: &Query) -> Result<FileStat, CallError> {
    let (shown, path) = paths(agent, query)?;
    transfer::blocking(move || stat::stat(&path, &shown)).await
}

/// `GET /list`.
pub async fn get_list(agent: &Agent, query: &Query) -> Result<FileList, CallError> {
    let (shown, path) = paths(agent, query)?;
    transfer::blocking(move || stat::list(&path, &shown)).await
}

/// `GET /tar`.
pub async fn get_tar(agent: Rc<Agent>, query: &Query, answer: Answer) {
    let opened = async {
        let (shown, path) = paths(&agent, query)?;
        transfer::blocking(move || {
            // What cannot be read at all is refused; later failures reset the stream.
            let found = std::fs::metadata(&path);
            found.map_err(|error| CallError::from_io(format!("read {}", shown.display()), &error))?;
            Ok(path)
        })
        .await
    };
    let path = match opened.await {
        Ok(path) => path,
        Err(error) => return answer.refuse(&error),
    };
    if let Ok(stream) = answer.stream(&[]) {
        transfer::send(stream, move |out| tar_out::pack(&path, out)).await;
    }
}

/// `PUT /tar`.
pub async fn put_tar(agent: &Agent, query: &Query, body: &mut RecvStream) -> Result<FileWritten, CallError> {
    let (shown, path) = paths(agent, query)?;
    let links = if agent.place.path(&shown) == agent.place.path(Path::new("/")) {
        Links::InRoot
    } else {
        Links::Beneath
    };
    let request = UnpackRequest { shown, path, links, owner: Owner(agent.file_owner()) };
    let bytes = transfer::receive(body, move |body| tar_in::unpack(&request, body)).await?;
    Ok(FileWritten { bytes })
}
