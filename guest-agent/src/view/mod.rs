//! Views: what a command can see of its machine. A mask is a mount namespace with covers; a sealed view has
//! everything of its own, ids included, so that root in it has no way back. The way of one view, file by
//! file: `spec` is the wish; this file finds or makes the view; `maker` is the process that makes it, with
//! `pins` (hold its paths in place outside), `tree` (its root), `cover` (what hides), `table` (the machine's
//! mounts), `mounts` (calls), `kernel_programs` (what the kernel runs), `link` and `netlink` (its network), and `holder` (its process 1). The steps
//! of a command into it are in `exec/child.rs`. docs/views.md says what holds and what does not.

pub mod cover;
pub mod holder;
mod kernel_programs;
pub mod link;
pub mod maker;
mod making;
pub mod mounts;
pub mod netlink;
pub mod pins;
pub mod spec;
pub mod table;
pub mod tree;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use h2::RecvStream;
use http::StatusCode;
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

pub use self::spec::ViewSpec;
use crate::agent::Agent;
use crate::exec::cgroup::{ExecCgroup, ViewCgroups};
use crate::exec::child::Room;
use crate::http::body;
use crate::http::error::CallError;

/// Views of a machine. Each holds processes and mounts for as long as the machine lives.
const VIEWS_MAX: usize = 16;
/// Largest request: all paths, as JSON may write them.
const REQUEST_MAX_BYTES: usize = 256 * 1024;

/// A view that commands can run in.
pub struct View {
    /// Its name in this machine.
    pub id: String,
    spec: ViewSpec,
    made_ms: f64,
    inside: Inside,
}

enum Inside {
    Mask { namespace: OwnedFd },
    Sealed(Sealed),
}

/// What a sealed view is entered by.
struct Sealed {
    /// Its process 1; readable when that has ended.
    holder: AsyncFd<OwnedFd>,
    /// The folder of its terminals.
    terminals: OwnedFd,
    cgroups: ViewCgroups,
    slot: u8,
    card: String,
}

/// The views of a machine.
#[derive(Default)]
pub struct Views {
    ready: RefCell<Vec<Rc<View>>>,
    /// One is made at a time.
    making: Mutex<()>,
    next: Cell<u32>,
    pinned: RefCell<HashSet<String>>,
    sealed_before: Cell<bool>,
}

/// Answer of `POST /views`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewMade {
    id: String,
    made_ms: f64,
}

/// `POST /views`.
pub async fn post_views(agent: &Rc<Agent>, request: &mut RecvStream) -> Result<ViewMade, CallError> {
    let bytes = body::read_all(request, REQUEST_MAX_BYTES).await?;
    let spec: ViewSpec = serde_json::from_slice(&bytes)
        .map_err(|error| CallError::invalid(format!("the view is not valid: {error}")))?;
    agent.require_initialised()?;
    let view = agent.views.find(agent, &spec).await?;
    Ok(ViewMade { id: view.id.clone(), made_ms: view.made_ms })
}

impl Views {
    /// The view of this wish; made if there is none, or none any more.
    pub async fn find(&self, agent: &Rc<Agent>, wish: &ViewSpec) -> Result<Rc<View>, CallError> {
        if !agent.place.is_machine() {
            return Err(CallError::invalid("views need a machine: this agent has none"));
        }
        let spec = wish.canonical().map_err(CallError::invalid)?;
        if let Some(view) = self.ready(&spec) {
            return Ok(view);
        }
        let _one = self.making.lock().await;
        if let Some(view) = self.ready(&spec) {
            return Ok(view);
        }
        let slot = self.free_slot()?;
        let stale = self.stale_card(slot);
        let pinned = spec.paths().map(|path| self.count_pinned(path)).collect();
        let number = self.next.get() + 1;
        self.next.set(number);
        let made = making::make(
            agent,
            making::Wish {
                spec,
                number,
                slot,
                stale_card: stale,
                pinned,
                first_sealed: !self.sealed_before.get(),
            },
        )
        .await?;
        self.sealed_before.set(self.sealed_before.get() || made.spec.is_sealed());
        self.pinned.borrow_mut().extend(made.spec.paths().flat_map(|path| pins::entries_of(path)));
        let made = Rc::new(made);
        let mut ready = self.ready.borrow_mut();
        ready.retain(|view| {
            let goes = view.has_ended() && view.slot() == Some(slot);
            if goes {
                view.forget();
            }
            !goes
        });
        ready.push(made.clone());
        Ok(made)
    }

    fn count_pinned(&self, path: &str) -> usize {
        let pinned = self.pinned.borrow();
        pins::entries_of(path).iter().take_while(|entry| pinned.contains(*entry)).count()
    }

    fn ready(&self, spec: &ViewSpec) -> Option<Rc<View>> {
        self.ready.borrow().iter().find(|view| view.spec == *spec && !view.has_ended()).cloned()
    }

    fn free_slot(&self) -> Result<u8, CallError> {
        let ready = self.ready.borrow();
        let living: Vec<&Rc<View>> = ready.iter().filter(|view| !view.has_ended()).collect();
        let free = (0..VIEWS_MAX as u8).find(|slot| living.iter().all(|view| view.slot() != Some(*slot)));
        match free {
            Some(slot) if living.len() < VIEWS_MAX => Ok(slot),
            _ => {
                let message = format!(
                    "this machine has {VIEWS_MAX} views already, and views stay until it ends: use one of them again"
                );
                Err(CallError::new(StatusCode::CONFLICT, "ENOSPC", message))
            }
        }
    }

    fn stale_card(&self, slot: u8) -> Option<String> {
        let ready = self.ready.borrow();
        let stale = ready.iter().find(|view| view.slot() == Some(slot));
        stale.and_then(|view| match &view.inside {
            Inside::Sealed(sealed) => Some(sealed.card.clone()),
            Inside::Mask { .. } => None,
        })
    }
}

impl View {
    /// How a command gets into it.
    pub fn room(&self) -> Room {
        match &self.inside {
            Inside::Mask { namespace } => Room::Mask(namespace.as_raw_fd()),
            Inside::Sealed(sealed) => Room::Sealed(sealed.holder.get_ref().as_raw_fd()),
        }
    }

    /// It has ids of its own: the machine's id of its root.
    pub fn first_id(&self) -> Option<u32> {
        self.is_sealed().then_some(maker::FIRST_ID)
    }

    /// It is sealed.
    pub fn is_sealed(&self) -> bool {
        self.spec.is_sealed()
    }

    /// Its terminals, if they are not the machine's.
    pub fn terminals(&self) -> Option<&OwnedFd> {
        self.sealed().map(|sealed| &sealed.terminals)
    }

    /// A cgroup of its own for a command; none if its commands are among the machine's.
    pub fn take_cgroup(&self) -> Option<io::Result<Rc<ExecCgroup>>> {
        self.sealed().map(|sealed| sealed.cgroups.execs.take())
    }

    /// A path cannot be seen in it.
    pub fn hides(&self, path: &str) -> bool {
        self.spec.hide.iter().any(|hidden| spec::is_at_or_below(path, hidden))
    }

    /// Waits until it is gone; a mask never is.
    pub async fn until_ended(&self) {
        match self.sealed().map(|sealed| &sealed.holder) {
            Some(holder) => drop(holder.readable().await),
            None => std::future::pending().await,
        }
    }

    fn has_ended(&self) -> bool {
        self.sealed().is_some_and(|sealed| making::has_ended(sealed.holder.get_ref()))
    }

    fn slot(&self) -> Option<u8> {
        self.sealed().map(|sealed| sealed.slot)
    }

    fn forget(&self) {
        if let Some(sealed) = self.sealed() {
            sealed.cgroups.remove();
        }
    }

    fn sealed(&self) -> Option<&Sealed> {
        match &self.inside {
            Inside::Sealed(sealed) => Some(sealed),
            Inside::Mask { .. } => None,
        }
    }
}
