//! All processes of one exec, to end them together. In a machine they are a cgroup. An agent without a
//! machine (tests) has none: there it is what descends from the command or shares its session, as far as
//! /proc can tell.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use super::cgroup::ExecCgroup;
use crate::os;

/// Time between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Time for KILL to have its effect before we go on regardless (a process in an uninterruptible wait).
const KILL_GRACE: Duration = Duration::from_secs(2);
/// First and longest pause between looks.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// The processes of one exec.
pub enum ProcessTree {
    /// A cgroup.
    Group(Rc<ExecCgroup>),
    /// Found by descent and session; remembers those seen with their start time, because a process whose
    /// parent has ended cannot be found by descent any more.
    Session {
        /// The command.
        leader: i32,
        /// Pid to start time.
        seen: RefCell<HashMap<i32, u64>>,
    },
}

impl ProcessTree {
    /// By cgroup if there is one.
    pub fn new(leader: i32, group: Option<Rc<ExecCgroup>>) -> ProcessTree {
        match group {
            Some(group) => ProcessTree::Group(group),
            None => ProcessTree::Session { leader, seen: RefCell::new(HashMap::new()) },
        }
    }

    /// Ends it: TERM, two seconds, KILL. Resolves when nothing of it runs.
    pub async fn terminate(&self) {
        self.signal(libc::SIGTERM);
        if self.wait_empty(TERM_GRACE).await {
            return;
        }
        self.signal(libc::SIGKILL);
        self.wait_empty(KILL_GRACE).await;
    }

    async fn wait_empty(&self, limit: Duration) -> bool {
        let give_up = tokio::time::Instant::now() + limit;
        let mut pause = LOOK_MIN;
        while !self.is_empty() {
            if tokio::time::Instant::now() >= give_up {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
        true
    }

    /// Sends a signal to every process of it.
    pub fn signal(&self, signal: i32) {
        if let ProcessTree::Group(group) = self {
            if signal == libc::SIGKILL && group.kill().is_ok() {
                return;
            }
        }
        for pid in self.pids() {
            // It may have ended since.
            let _ = os::kill(pid, signal);
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            ProcessTree::Group(group) => group.is_empty(),
            ProcessTree::Session { .. } => self.pids().is_empty(),
        }
    }

    fn pids(&self) -> Vec<i32> {
        match self {
            ProcessTree::Group(group) => group.pids(),
            ProcessTree::Session { leader, seen } => {
                let processes = list_processes();
                let mut seen = seen.borrow_mut();
                seen.retain(|pid, start| {
                    processes.iter().any(|process| process.pid == *pid && process.start == *start)
                });
                // A parent can be listed after its child: look until nothing new is found.
                loop {
                    let before = seen.len();
                    for process in &processes {
                        let belongs = process.pid == *leader
                            || process.session == *leader
                            || seen.contains_key(&process.parent);
                        if belongs {
                            seen.insert(process.pid, process.start);
                        }
                    }
                    if seen.len() == before {
                        break;
                    }
                }
                seen.keys().copied().collect()
            }
        }
    }
}

/// Kills everything that descends from this process, for the end of an agent without a machine.
pub fn kill_descendants() {
    let own = std::process::id() as i32;
    let tree = ProcessTree::Session { leader: own, seen: RefCell::new(HashMap::new()) };
    // A process that forks while we look is found in a later round.
    for _ in 0..20 {
        let others: Vec<i32> = tree.pids().into_iter().filter(|&pid| pid != own).collect();
        if others.is_empty() {
            return;
        }
        for pid in others {
            let _ = os::kill(pid, libc::SIGKILL);
        }
        // SAFETY: reaps without waiting; nobody else waits any more.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        std::thread::sleep(LOOK_MIN);
    }
}

struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    start: u64,
}

/// Living processes; zombies are left out.
fn list_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| parse_stat(&std::fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

/// `/proc/PID/stat`: the name in parentheses may itself contain anything, so what follows the last one counts.
fn parse_stat(text: &str) -> Option<Process> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let rest: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    if matches!(*rest.first()?, "Z" | "X") {
        return None;
    }
    Some(Process {
        pid,
        parent: rest.get(1)?.parse().ok()?,
        session: rest.get(3)?.parse().ok()?,
        start: rest.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_do_not_confuse() {
        let text = "42 (a) b (c)) S 7 42 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let process = parse_stat(text).unwrap();
        assert_eq!((process.pid, process.parent, process.session, process.start), (42, 7, 5, 12345));
    }

    #[test]
    fn zombies_are_not_alive() {
        assert!(parse_stat("42 (x) Z 7 42 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0").is_none());
    }

    #[test]
    fn finds_itself() {
        let own = std::process::id() as i32;
        assert!(list_processes().iter().any(|process| process.pid == own));
    }
}
