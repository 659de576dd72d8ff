//! The JSON forms of exec, as in `packages/protocol/src/guest-api.ts`: change both in one commit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::position::Position;
use crate::view::ViewSpec;

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct PtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// One command to run.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecStart {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Added to the sandbox's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; absent: the image's.
    pub cwd: Option<String>,
    /// `name`, `uid`, `name:group`, `uid:gid`; absent: the image's.
    pub user: Option<String>,
    /// Standard input is open.
    #[serde(default)]
    pub stdin: bool,
    /// Run on a new terminal.
    pub pty: Option<PtySize>,
    /// End the process tree after this long.
    pub timeout_ms: Option<u64>,
    /// Makes it a session, which outlives its stream.
    pub session_id: Option<String>,
    /// Replace a missing `/bin/bash` by `/bin/sh`.
    #[serde(default)]
    pub shell_fallback: bool,
    /// Run it in this view.
    pub view: Option<ViewSpec>,
}

/// First answer frame.
#[derive(Debug, Serialize)]
pub struct ExecStarted<'a> {
    /// By which it is found again.
    pub id: &'a str,
    /// 0 when it could not be run.
    pub pid: i32,
    /// Where the output of this stream begins.
    pub position: &'a Position,
}

/// Why a command ended: the last answer frame.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecEnd {
    /// Exit status; 128 + n after signal n; 127 not found, 126 cannot be run.
    pub exit_code: i32,
    /// Signal that ended it, or 0.
    pub signal: i32,
    /// The kernel killed it for want of memory.
    pub oom_killed: bool,
    /// Its time limit passed.
    pub timed_out: bool,
    /// Output that the client of this stream did not get.
    pub dropped_bytes: u64,
    /// Why it could not be run, or that its view was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sealed view that it ran in was ended under it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub view_ended: bool,
}

/// An exec in the list.
#[derive(Debug, Serialize)]
pub struct ExecInfo {
    /// Session id, or a random one.
    pub id: String,
    /// Process id.
    pub pid: i32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// It was given its id at its start.
    pub session: bool,
    /// It runs in a view.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub view: bool,
    /// Present once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<ExecEnd>,
}

/// Answer of `GET /exec`.
#[derive(Debug, Serialize)]
pub struct ExecList {
    /// Running and retained.
    pub sessions: Vec<ExecInfo>,
}

/// Answer of `POST /start-command`.
#[derive(Debug, Serialize)]
pub struct StartCommandAnswer {
    /// 0 when it could not be run.
    pub pid: i32,
}
