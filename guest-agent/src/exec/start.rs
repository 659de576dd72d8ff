//! From a request to a running command. What cannot be run is a result, not an error: the exec is then
//! born ended, with a line on its standard error and 127 (not found) or 126 (cannot be run).

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::ExecCgroup;
use super::child::Step;
use super::command::{Exec, NewExec};
use super::contract::{ExecEnd, ExecStart};
use super::environment::Environment;
use super::frame::kind;
use super::input::Input;
use super::lookup;
use super::output::{Keeping, Output};
use super::spawn::{Plan, Program, SpawnFailed, Spawned, Stdio, Streams};
use super::supervise::{self, Watch};
use super::users::{Accounts, Identity};
use crate::agent::Agent;
use crate::http::error::plain_reason;
use crate::os;
use crate::runtime::watch_fd;
use crate::view::View;

/// As argv alone: run the agent's own binary, which does nothing.
pub const PROBE: &str = "@agent-probe";
/// TERM of a terminal when nobody set one.
const DEFAULT_TERM: &str = "xterm";
/// LANG of a terminal when nobody set a locale and the image has this one, as a login on Debian has it.
const DEFAULT_LANG: &str = "C.UTF-8";
const DEFAULT_LANG_FOLDERS: [&str; 2] = ["/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8"];
/// Largest delay tokio's clock takes without saturating in surprising ways: a year.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What becomes of an exec when its stream has gone.
pub enum Life {
    /// It is ended: nobody wants its result.
    Stream,
    /// It goes on and can be found by its id.
    Session(String),
    /// The sandbox's start command.
    StartCommand,
}

/// Why a command cannot be run.
#[derive(Debug, PartialEq, Eq)]
struct CannotRun {
    exit_code: i32,
    reason: String,
}

impl CannotRun {
    fn not_found(reason: String) -> CannotRun {
        CannotRun { exit_code: 127, reason }
    }

    fn refused(reason: String) -> CannotRun {
        CannotRun { exit_code: 126, reason }
    }
}

/// A command's view: none if it asked for none, or why there is none.
pub type Viewed = Result<Option<Rc<View>>, String>;

/// Starts a command in the machine itself. The exec is entered in the registry and watched until its end.
pub fn start(agent: &Rc<Agent>, spec: &ExecStart, life: Life) -> Rc<Exec> {
    start_in(agent, spec, life, Ok(None))
}

/// Starts a command, in a view if there is one.
pub fn start_in(agent: &Rc<Agent>, spec: &ExecStart, life: Life, view: Viewed) -> Rc<Exec> {
    let (id, keeping) = match &life {
        Life::Stream => (os::random_hex::<8>(), Keeping::Nothing),
        Life::Session(id) => (id.clone(), Keeping::Undelivered),
        Life::StartCommand => ("start-command".to_string(), Keeping::Always),
    };
    let mut birth = NewExec {
        id,
        session: matches!(life, Life::Session(_)),
        is_start_command: matches!(life, Life::StartCommand),
        argv: spec.argv.clone(),
        cwd: spec.cwd.clone(),
        pid: 0,
        view: None,
        output: Output::new(keeping),
        input: Input::closed(),
        terminal: None,
    };
    let running = view.map_err(CannotRun::refused).and_then(|view| {
        birth.view = view.clone();
        run(agent, spec, view)
    });
    match running {
        Ok(running) => adopt(agent, birth, running, spec.timeout_ms),
        Err(cannot) => born_ended(agent, birth, cannot),
    }
}

struct Running {
    spawned: Spawned,
    group: Option<Rc<ExecCgroup>>,
}

fn run(agent: &Rc<Agent>, spec: &ExecStart, view: Option<Rc<View>>) -> Result<Running, CannotRun> {
    let plan = make_plan(agent, spec, view)?;
    let group = match &agent.cgroups {
        Some(cgroups) => Some(
            plan.view
                .as_ref()
                .and_then(|view| view.take_cgroup())
                .unwrap_or_else(|| cgroups.take())
                .map_err(|error| {
                    CannotRun::refused(format!(
                        "cannot make a cgroup for the command: {}",
                        plain_reason(&error)
                    ))
                })?,
        ),
        None => None,
    };
    match agent.spawner.spawn(&plan, group.as_ref().map(|group| group.fd())) {
        Ok(spawned) => Ok(Running { spawned, group }),
        Err(failed) => {
            if let (Some(cgroups), Some(group)) = (&agent.cgroups, group) {
                cgroups.release(group);
            }
            Err(explain(spec, &plan, &failed))
        }
    }
}

fn make_plan(agent: &Rc<Agent>, spec: &ExecStart, view: Option<Rc<View>>) -> Result<Plan, CannotRun> {
    let sandbox = agent.sandbox();
    let mut argv = spec.argv.clone();
    let Some(program) = argv.first().cloned().filter(|program| !program.is_empty()) else {
        return Err(CannotRun::not_found("no command was given".to_string()));
    };
    let view_of = view.as_deref();
    let identity = find_identity(agent, view_of, spec.user.as_deref().unwrap_or(&sandbox.user))?;
    let mut environment = sandbox.environment.clone();
    environment.set_all(&spec.env);
    let home = match &identity {
        Some(identity) => agent.home_of(identity),
        None => agent.place.path(Path::new("/")).to_string_lossy().into_owned(),
    };
    environment.set_default("HOME", &home);
    if spec.pty.is_some() {
        environment.set_default("TERM", DEFAULT_TERM);
        set_terminal_locale(&mut environment, |folder| Path::new(folder).exists());
    }
    let program = if program == PROBE && argv.len() == 1 && view.is_none() {
        Program::Own
    } else {
        let path = environment.get("PATH").unwrap_or(lookup::DEFAULT_PATH);
        if spec.shell_fallback && program == lookup::BASH {
            argv[0] = lookup::shell(path, Path::exists).unwrap_or_else(|| lookup::SH.to_string());
        }
        // What is there in a view only the command itself can see.
        let files =
            lookup::candidates(&argv[0], path, |file| view.is_some() || std::fs::metadata(file).is_ok());
        if files.is_empty() {
            return Err(CannotRun::not_found(format!("{}: command not found", argv[0])));
        }
        Program::Files(c_strings(files)?)
    };
    let cwd = match spec.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => agent.place.working_dir(&Path::new(&sandbox.working_dir).join(cwd)),
        None => agent.place.working_dir(Path::new(&sandbox.working_dir)),
    };
    Ok(Plan {
        program,
        argv: c_strings(argv)?,
        envp: c_strings(environment.lines())?,
        cwd: os::c_path(&cwd)
            .map_err(|_| CannotRun::refused("the working directory contains a NUL".to_string()))?,
        identity,
        stdio: match spec.pty {
            Some(size) => Stdio::Terminal(size),
            None => Stdio::Pipes { stdin: spec.stdin },
        },
        view,
    })
}

/// Without it, programs on a terminal take every byte for a character of its own.
fn set_terminal_locale(environment: &mut Environment, exists: impl Fn(&str) -> bool) {
    let is_set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().any(|name| environment.get(name).is_some());
    if !is_set && DEFAULT_LANG_FOLDERS.into_iter().any(exists) {
        environment.set("LANG", DEFAULT_LANG);
    }
}

/// Outside a machine users are ignored: the agent may not be root there.
fn find_identity(agent: &Rc<Agent>, view: Option<&View>, user: &str) -> Result<Option<Identity>, CannotRun> {
    if !agent.place.is_machine() {
        return Ok(None);
    }
    // A view has the machine's files, as far as it sees them.
    let is_hidden =
        view.is_some_and(|view| ["/etc/passwd", "/etc/group"].iter().any(|file| view.hides(file)));
    let accounts = if is_hidden { Ok(Accounts::default()) } else { Accounts::read(Path::new("/")) };
    let accounts = accounts.map_err(|error| {
        CannotRun::refused(format!("cannot read the image's accounts: {}", plain_reason(&error)))
    })?;
    accounts.find(user).map(Some).map_err(CannotRun::refused)
}

fn c_strings<T: Into<Vec<u8>>>(strings: impl IntoIterator<Item = T>) -> Result<Vec<CString>, CannotRun> {
    strings
        .into_iter()
        .map(|string| CString::new(string))
        .collect::<Result<_, _>>()
        .map_err(|_| CannotRun::refused("an argument contains a NUL byte".to_string()))
}

/// The words and the exit status a shell would use.
fn explain(spec: &ExecStart, plan: &Plan, failed: &SpawnFailed) -> CannotRun {
    let reason = plain_reason(&failed.error);
    let errno = failed.error.raw_os_error().unwrap_or(0);
    let program = plan.argv.first().map_or("", |program| program.to_str().unwrap_or("?"));
    match failed.step {
        Step::Cwd => CannotRun::refused(format!(
            "cannot use {} as working directory: {reason}",
            plan.cwd.to_string_lossy()
        )),
        Step::View => CannotRun::refused(format!("cannot enter the view: {reason}")),
        Step::User => CannotRun::refused(format!("cannot become user {:?}: {reason}", spec.user)),
        // What the machine has says nothing about a view, and is none of its business.
        Step::Exec if plan.view.is_some() && matches!(errno, libc::ENOENT | libc::ENOTDIR) => {
            CannotRun::not_found(format!("{program}: command not found"))
        }
        Step::Exec if plan.view.is_some() => CannotRun::refused(format!("{program}: {reason}")),
        Step::Exec if errno == libc::ENOENT || errno == libc::ENOTDIR => {
            let exists = matches!(&plan.program, Program::Files(files) if files.iter().any(|file| {
                Path::new(&*file.to_string_lossy()).is_file()
            }));
            let hint = if exists { " (its interpreter or loader is missing in the image)" } else { "" };
            CannotRun::not_found(format!("{program}: {reason}{hint}"))
        }
        Step::Exec if errno == libc::EACCES && Path::new(program).is_dir() => {
            CannotRun::refused(format!("{program}: Is a directory"))
        }
        Step::Exec => CannotRun::refused(format!("{program}: {reason}")),
        Step::None | Step::Setup => {
            CannotRun::refused(format!("{program}: the process could not be set up: {reason}"))
        }
    }
}

fn born_ended(agent: &Rc<Agent>, birth: NewExec, cannot: CannotRun) -> Rc<Exec> {
    let exec = Rc::new(Exec::new(birth));
    exec.output.put(kind::STDERR, format!("sandlot: {}\n", cannot.reason).as_bytes());
    exec.finish(ExecEnd { exit_code: cannot.exit_code, error: Some(cannot.reason), ..ExecEnd::default() });
    if exec.session || exec.is_start_command {
        agent.execs.insert(exec.clone());
    }
    exec
}

fn adopt(agent: &Rc<Agent>, mut birth: NewExec, running: Running, timeout_ms: Option<u64>) -> Rc<Exec> {
    let Running { spawned, group } = running;
    birth.pid = spawned.pid;
    let exit = agent.reaper.wait_for(spawned.pid);
    let outputs = match open_streams(&mut birth, spawned.streams) {
        Ok(outputs) => outputs,
        Err(error) => {
            // Out of descriptors: the command cannot be heard, so it must not go on.
            crate::log!("cannot watch the output of a command: {error}");
            let _ = os::kill(-spawned.pid, libc::SIGKILL);
            Vec::new()
        }
    };
    let exec = Rc::new(Exec::new(birth));
    agent.execs.insert(exec.clone());
    let timeout = timeout_ms.map(|ms| Duration::from_millis(ms).min(TIMEOUT_MAX));
    let watch = Watch { exit, outputs, timeout, group };
    tokio::task::spawn_local(supervise::supervise(agent.clone(), exec.clone(), watch));
    exec
}

type Outputs = Vec<(u8, AsyncFd<OwnedFd>)>;

fn open_streams(birth: &mut NewExec, streams: Streams) -> io::Result<Outputs> {
    let readable = |fd| watch_fd(fd, Interest::READABLE);
    match streams {
        Streams::Pipes { stdin, stdout, stderr } => {
            if let Some(stdin) = stdin {
                birth.input = Input::open(stdin, false)?;
            }
            Ok(vec![(kind::STDOUT, readable(stdout)?), (kind::STDERR, readable(stderr)?)])
        }
        Streams::Terminal(master) => {
            birth.input = Input::open(master.try_clone()?, true)?;
            birth.terminal = Some(Rc::new(master.try_clone()?));
            Ok(vec![(kind::PTY, readable(master)?)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_a_locale_that_the_image_has() {
        let language = |variable: Option<&str>, has: bool| {
            let mut environment = Environment::default();
            if let Some(name) = variable {
                environment.set(name, "de_DE.UTF-8");
            }
            set_terminal_locale(&mut environment, |folder| has && folder.ends_with("C.utf8"));
            environment.get("LANG").map(str::to_string)
        };
        assert_eq!(language(None, true).as_deref(), Some(DEFAULT_LANG));
        assert_eq!(language(None, false), None);
        assert_eq!(language(Some("LC_ALL"), true), None);
        assert_eq!(language(Some("LANG"), true).as_deref(), Some("de_DE.UTF-8"));
    }
}
