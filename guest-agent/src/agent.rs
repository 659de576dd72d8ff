//! The agent: owner of everything that lives as long as the machine.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use http::StatusCode;

use crate::exec::cgroup::Cgroups;
use crate::exec::environment::Environment;
use crate::exec::lookup;
use crate::exec::reaper::Reaper;
use crate::exec::registry::Registry;
use crate::exec::spawn::Spawner;
use crate::exec::users::{Accounts, Identity};
use crate::http::error::CallError;
use crate::place::Place;
use crate::sandbox::Sandbox;
use crate::view::Views;

/// How far `/init` has come.
enum Stage {
    /// A template: nothing is mounted.
    Waiting,
    /// `/init` is at work.
    Initialising,
    /// Somebody.
    Ready(Rc<Sandbox>),
}

/// State of the agent. Single-threaded: shared as `Rc`.
pub struct Agent {
    /// Machine or folder.
    pub place: Place,
    /// Knows when children end.
    pub reaper: Reaper,
    /// All commands.
    pub execs: Registry,
    /// Makes processes.
    pub spawner: Spawner,
    /// The machine's cgroups; none without a machine.
    pub cgroups: Option<Cgroups>,
    /// The views of the machine.
    pub views: Views,
    /// Pipes of ended commands that are being drained.
    pub abandoned_pipes: Cell<usize>,
    /// The root file system is frozen, by the `/freeze` with this number.
    pub freeze: Cell<Option<u64>>,
    /// Init of the image that is to become process 1 with the next RESET: program and arguments.
    pub next_init: RefCell<Option<Vec<String>>>,
    stage: RefCell<Stage>,
}

impl Agent {
    /// An agent in its place, not yet initialised.
    pub fn new(place: Place, cgroups: Option<Cgroups>) -> io::Result<Agent> {
        Ok(Agent {
            spawner: Spawner::new(place.is_machine())?,
            place,
            reaper: Reaper::default(),
            execs: Registry::default(),
            cgroups,
            views: Views::default(),
            abandoned_pipes: Cell::new(0),
            freeze: Cell::new(None),
            next_init: RefCell::default(),
            stage: RefCell::new(Stage::Waiting),
        })
    }

    /// `/init` has been done.
    pub fn is_initialised(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Ready(_))
    }

    /// Begins `/init`; it is done once.
    pub fn begin_init(&self) -> Result<(), CallError> {
        let mut stage = self.stage.borrow_mut();
        if !matches!(*stage, Stage::Waiting) {
            let message = "this machine has been initialised before: restore a new one from its template";
            return Err(CallError::new(StatusCode::CONFLICT, "EALREADY", message));
        }
        *stage = Stage::Initialising;
        Ok(())
    }

    /// Ends `/init` with what the machine has become. One that failed half-way stays unusable.
    pub fn end_init(&self, sandbox: Sandbox) {
        *self.stage.borrow_mut() = Stage::Ready(Rc::new(sandbox));
    }

    /// Changes settings of an initialised machine (fix-ups after a restore).
    pub fn change_sandbox(&self, change: impl FnOnce(&mut Sandbox)) {
        if let Stage::Ready(sandbox) = &mut *self.stage.borrow_mut() {
            change(Rc::make_mut(sandbox));
        }
    }

    /// The settings commands start from.
    pub fn sandbox(&self) -> Rc<Sandbox> {
        match &*self.stage.borrow() {
            Stage::Ready(sandbox) => sandbox.clone(),
            Stage::Waiting | Stage::Initialising => {
                Rc::new(Sandbox { environment: self.system_environment(), ..Sandbox::default() })
            }
        }
    }

    /// What every command has before the image says anything.
    pub fn system_environment(&self) -> Environment {
        let mut environment = Environment::default();
        let host_path = std::env::var("PATH").unwrap_or_default();
        let path =
            if self.place.is_machine() || host_path.is_empty() { lookup::DEFAULT_PATH } else { &host_path };
        environment.set("PATH", path);
        environment
    }

    /// Refuses calls that need a mounted root. Without a machine there is nothing to wait for.
    pub fn require_initialised(&self) -> Result<(), CallError> {
        if self.is_initialised() || !self.place.is_machine() {
            return Ok(());
        }
        let message = "this machine is still a template: POST /init comes first";
        Err(CallError::new(StatusCode::CONFLICT, "EAGAIN", message))
    }

    /// HOME of a user whose environment does not set it.
    pub fn home_of(&self, identity: &Identity) -> String {
        match &identity.home {
            Some(home) => home.clone(),
            None if identity.uid == 0 && Path::new("/root").is_dir() => "/root".to_string(),
            None => "/".to_string(),
        }
    }

    /// Owner of new files: the image's user. Without a machine, or if the image's USER does not exist,
    /// nobody in particular.
    pub fn file_owner(&self) -> Option<(u32, u32)> {
        if !self.place.is_machine() {
            return None;
        }
        let accounts = Accounts::read(Path::new("/")).ok()?;
        let identity = accounts.find(&self.sandbox().user).ok()?;
        Some((identity.uid, identity.gid))
    }
}
