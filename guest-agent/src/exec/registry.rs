//! All execs by id: those that run, and sessions that have ended, for ten minutes and at most a thousand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::command::Exec;
use super::contract::ExecList;
use super::output::{KEPT_MAX_BYTES, KEPT_MIN_BYTES};

/// How long the end of a session is kept.
const RETAINED: Duration = Duration::from_secs(600);
/// How many ended sessions are kept.
const RETAINED_MAX: usize = 1_000;
/// Output kept for all sessions together; beyond it ended ones lose theirs, oldest first.
const KEPT_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// Commands at once. Far above what a machine can run; below what would exhaust the agent.
pub const RUNNING_MAX: usize = 4_096;

/// The execs of a machine.
pub struct Registry {
    execs: RefCell<BTreeMap<String, Rc<Exec>>>,
    running: Cell<usize>,
    kept_limit: Cell<usize>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry { execs: RefCell::default(), running: Cell::new(0), kept_limit: Cell::new(KEPT_MAX_BYTES) }
    }
}

impl Registry {
    /// Finds an exec; what has been kept long enough is forgotten first.
    pub fn find(&self, id: &str) -> Option<Rc<Exec>> {
        self.prune();
        self.execs.borrow().get(id).cloned()
    }

    /// Enters a started exec.
    pub fn insert(&self, exec: Rc<Exec>) {
        if exec.is_running() {
            self.running.set(self.running.get() + 1);
        }
        exec.output.set_limit(self.kept_limit.get());
        self.execs.borrow_mut().insert(exec.id.clone(), exec);
        self.prune();
    }

    /// An exec has ended: sessions are kept, others forgotten.
    pub fn ended(&self, exec: &Rc<Exec>) {
        self.running.set(self.running.get().saturating_sub(1));
        if !exec.session && !exec.is_start_command {
            self.execs.borrow_mut().remove(&exec.id);
        }
        self.prune();
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running.get()
    }

    /// The list for `GET /exec`.
    pub fn list(&self) -> ExecList {
        self.prune();
        ExecList { sessions: self.execs.borrow().values().map(|exec| exec.info()).collect() }
    }

    /// Forgets ended sessions that are too old or too many and keeps the kept output within its limit.
    fn prune(&self) {
        let mut execs = self.execs.borrow_mut();
        let is_old = |exec: &Exec| exec.ended_at().is_some_and(|at| at.elapsed() > RETAINED);
        execs.retain(|_, exec| exec.is_start_command || !is_old(exec));
        let mut ended: Vec<Rc<Exec>> =
            execs.values().filter(|exec| exec.session && exec.ended_at().is_some()).cloned().collect();
        ended.sort_by_key(|exec| exec.ended_at());
        let mut kept: usize = execs.values().map(|exec| exec.output.kept_bytes()).sum();
        // First goes what somebody has got already, of ended ones before running ones.
        let running: Vec<Rc<Exec>> =
            execs.values().filter(|exec| exec.session && exec.is_running()).cloned().collect();
        for exec in ended.iter().chain(&running) {
            if kept <= KEPT_TOTAL_BYTES {
                break;
            }
            kept -= exec.output.kept_bytes();
            exec.output.discard_handed();
            kept += exec.output.kept_bytes();
        }
        let mut excess = ended.len().saturating_sub(RETAINED_MAX);
        for exec in ended {
            if excess > 0 {
                excess -= 1;
                execs.remove(&exec.id);
            } else if kept > KEPT_TOTAL_BYTES {
                exec.output.discard_kept();
            } else {
                break;
            }
            kept = execs.values().map(|exec| exec.output.kept_bytes()).sum();
        }
        // What is still too much belongs to running ones.
        let limit = if kept > KEPT_TOTAL_BYTES { KEPT_MIN_BYTES } else { KEPT_MAX_BYTES };
        if self.kept_limit.replace(limit) != limit {
            for exec in execs.values() {
                exec.output.set_limit(limit);
            }
        }
    }
}
