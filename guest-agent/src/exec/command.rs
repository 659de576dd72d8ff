//! One exec: the command, from its start until it is forgotten.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::contract::{ExecEnd, ExecInfo, ExecStarted};
use super::frame::{self, kind};
use super::input::Input;
use super::output::Output;
use super::position::Position;
use super::recent::RecentIds;
use crate::view::View;

/// One command. It runs while `end` is empty; `supervise` alone fills that.
pub struct Exec {
    /// Session id, or a random one.
    pub id: String,
    /// It outlives its stream and is found by its id afterwards.
    pub session: bool,
    /// Kept until the machine ends.
    pub is_start_command: bool,
    /// Program and arguments, for lists.
    pub argv: Vec<String>,
    /// Working directory, if one was asked for.
    pub cwd: Option<String>,
    /// 0 when it could not be run.
    pub pid: i32,
    /// Where it runs, if not in the machine itself.
    pub view: Option<Rc<View>>,
    /// What it writes.
    pub output: Output,
    /// What it reads.
    pub input: Input,
    /// Its terminal, for resizing.
    pub terminal: RefCell<Option<Rc<OwnedFd>>>,
    /// Signals that were sent.
    pub signals: RecentIds,
    /// Somebody asked for the end of its process tree.
    pub cancel: Notify,
    /// The command itself has been reaped: its pid must not be signalled any more.
    pub reaped: Cell<bool>,
    /// When it was started.
    pub started_at: Instant,
    end: RefCell<Option<ExecEnd>>,
    ended_at: Cell<Option<Instant>>,
    ended: Notify,
}

/// What is known of a command at its birth.
pub struct NewExec {
    /// See [`Exec`].
    pub id: String,
    /// See [`Exec`].
    pub session: bool,
    /// See [`Exec`].
    pub is_start_command: bool,
    /// See [`Exec`].
    pub argv: Vec<String>,
    /// See [`Exec`].
    pub cwd: Option<String>,
    /// See [`Exec`].
    pub pid: i32,
    /// See [`Exec`].
    pub view: Option<Rc<View>>,
    /// See [`Exec`].
    pub output: Output,
    /// See [`Exec`].
    pub input: Input,
    /// See [`Exec`].
    pub terminal: Option<Rc<OwnedFd>>,
}

impl Exec {
    /// A command that has just been started, or could not be.
    pub fn new(new: NewExec) -> Exec {
        Exec {
            id: new.id,
            session: new.session,
            is_start_command: new.is_start_command,
            argv: new.argv,
            cwd: new.cwd,
            pid: new.pid,
            view: new.view,
            output: new.output,
            input: new.input,
            terminal: RefCell::new(new.terminal),
            signals: RecentIds::default(),
            cancel: Notify::new(),
            reaped: Cell::new(new.pid == 0),
            started_at: Instant::now(),
            end: RefCell::new(None),
            ended_at: Cell::new(None),
            ended: Notify::new(),
        }
    }

    /// The first answer frame.
    pub fn start_frame(&self, position: &Position) -> bytes::Bytes {
        let started = ExecStarted { id: &self.id, pid: self.pid, position };
        frame::encode(kind::START, &serde_json::to_vec(&started).unwrap_or_default())
    }

    /// Records the end and tells all who are attached.
    pub fn finish(&self, mut end: ExecEnd) {
        end.dropped_bytes = if self.session { self.output.dropped_bytes() } else { 0 };
        self.input.close();
        self.terminal.borrow_mut().take();
        self.output.finish(end.clone());
        *self.end.borrow_mut() = Some(end);
        self.ended_at.set(Some(Instant::now()));
        self.ended.notify_waiters();
    }

    /// Waits for the end.
    pub async fn until_ended(&self) {
        while self.is_running() {
            self.ended.notified().await;
        }
    }

    /// It still runs, or its output is still being handed on.
    pub fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Instant> {
        self.ended_at.get()
    }

    /// For the list.
    pub fn info(&self) -> ExecInfo {
        ExecInfo {
            id: self.id.clone(),
            pid: self.pid,
            argv: self.argv.clone(),
            cwd: self.cwd.clone(),
            session: self.session,
            view: self.view.is_some(),
            end: self.end.borrow().clone(),
        }
    }
}
