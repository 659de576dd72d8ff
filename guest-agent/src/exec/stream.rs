//! The exec calls: frames between a stream of the host and a command.

use std::rc::Rc;
use std::time::Duration;

use h2::{Reason, RecvStream};
use http::StatusCode;
use tokio::time::timeout;

use super::command::Exec;
use super::contract::{ExecStart, PtySize, StartCommandAnswer};
use super::frame::{Frame, FrameReader, SPEC_MAX_BYTES, kind};
use super::input::InputRefused;
use super::position::{self, Attachment};
use super::pty;
use super::reader::Reader;
use super::registry::RUNNING_MAX;
use super::start::{self, Life};
use crate::agent::Agent;
use crate::channel::connection::InputWindow;
use crate::http::answer::{Answer, Done};
use crate::http::body::{self, StreamGone};
use crate::http::error::CallError;
use crate::http::query::Query;
use crate::os;

/// How long a host may take to say what it wants to run.
const SPEC_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest `/input` body.
const INPUT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Longest session id.
const SESSION_ID_MAX_BYTES: usize = 128;
/// Longest that the start of a command is kept back for what follows it.
const START_HELD_MAX: Duration = Duration::from_millis(30);
/// Longest that the start of a session is kept back.
const SETTLE_MAX: Duration = Duration::from_millis(250);
/// How old a command must be to get a signal while it is still loading. Guests without KVM load slowly.
const LOADED_AFTER: Duration = Duration::from_secs(2);
const SETTLE_POLL: Duration = Duration::from_millis(5);
/// Highest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

/// Frames of a request body. Window is given back only for what was consumed.
struct FrameBody {
    body: RecvStream,
    frames: FrameReader,
    unreleased: usize,
}

impl FrameBody {
    fn new(body: RecvStream) -> FrameBody {
        FrameBody { body, frames: FrameReader::default(), unreleased: 0 }
    }

    /// The next frame, `None` at the end of the body.
    async fn next(&mut self) -> Result<Option<Frame>, StreamGone> {
        loop {
            if let Some(frame) = self.frames.next().map_err(|_| StreamGone)? {
                return Ok(Some(frame));
            }
            let _ = self.body.flow_control().release_capacity(std::mem::take(&mut self.unreleased));
            match self.body.data().await {
                Some(Ok(chunk)) => {
                    self.unreleased = chunk.len();
                    self.frames.push(&chunk);
                }
                Some(Err(_)) => return Err(StreamGone),
                None => return Ok(None),
            }
        }
    }
}

/// `POST /exec`.
pub async fn post_exec(
    agent: Rc<Agent>,
    window: Rc<InputWindow>,
    query: &Query,
    body: RecvStream,
    answer: Answer,
) {
    let attachment = match Attachment::from_query(query) {
        Ok(attachment) => attachment,
        Err(error) => return answer.refuse(&error),
    };
    let mut frames = FrameBody::new(body);
    let spec = match timeout(SPEC_TIMEOUT, read_spec(&mut frames)).await {
        Ok(Ok(spec)) => spec,
        Ok(Err(error)) => return answer.refuse(&error),
        Err(_) => return answer.refuse(&CallError::invalid("no command came within 30 seconds")),
    };
    let find_known = || spec.session_id.as_deref().and_then(|id| agent.execs.find(id));
    let mut known = find_known();
    let mut view = Ok(None);
    if let (None, Some(wish)) = (&known, &spec.view) {
        if let Err(error) = check_can_start(&agent, &spec) {
            return answer.refuse(&error);
        }
        view = agent.views.find(&agent, wish).await.map(Some).map_err(|error| error.message);
        // The same session may have been started while the view was made.
        known = find_known();
    }
    let is_new = known.is_none();
    let exec = match known {
        Some(exec) => exec,
        None => {
            if let Err(error) = check_can_start(&agent, &spec) {
                return answer.refuse(&error);
            }
            let life = spec.session_id.clone().map_or(Life::Stream, Life::Session);
            start::start_in(&agent, &spec, life, view)
        }
    };
    let _room = exec.input.is_open().then(|| window.reserve());
    // A host that only leaves ends its request first, and a session's input must not end with that.
    let end_is_eof = (spec.stdin || spec.pty.is_some()) && !exec.session;
    let carried = carry(&exec, answer, frames, Carry { attachment, end_is_eof, is_new }).await;
    if carried.is_err() && !exec.session && !exec.is_start_command {
        exec.cancel.notify_one();
    }
}

/// `POST /exec/{id}/attach`. The end of this request's body is not the end of the command's input.
pub async fn post_attach(
    agent: Rc<Agent>,
    window: Rc<InputWindow>,
    id: &str,
    query: &Query,
    body: RecvStream,
    answer: Answer,
) {
    let (exec, attachment) = match (find(&agent, id), Attachment::from_query(query)) {
        (Ok(exec), Ok(attachment)) => (exec, attachment),
        (Err(error), _) | (_, Err(error)) => return answer.refuse(&error),
    };
    let _room = exec.input.is_open().then(|| window.reserve());
    // When this reader leaves, the command goes on.
    let how = Carry { attachment, end_is_eof: false, is_new: false };
    let _ = carry(&exec, answer, FrameBody::new(body), how).await;
}

/// `POST /exec/{id}/received`.
pub fn post_received(agent: &Agent, id: &str, query: &Query) -> Result<Done, CallError> {
    let exec = find(agent, id)?;
    let reader = query.text("reader")?.ok_or_else(|| CallError::invalid("reader is missing"))?;
    if let Some(position) = position::position_of(query)? {
        exec.output.confirm(reader, &position.offsets);
    }
    Ok(Done {})
}

/// `POST /exec/{id}/input`.
pub async fn post_input(
    agent: &Agent,
    id: &str,
    query: &Query,
    body: &mut RecvStream,
) -> Result<Done, CallError> {
    let exec = find(agent, id)?;
    let input_id = query.text("inputId")?;
    let end = query.text("eof")? == Some("1");
    let bytes = body::read_all(body, INPUT_MAX_BYTES).await?;
    match exec.input.feed(&bytes, end, input_id).await {
        Ok(()) => Ok(Done {}),
        Err(InputRefused::NotOpen) => {
            let reason = if exec.is_running() { "its standard input is not open" } else { "it has ended" };
            Err(CallError::new(StatusCode::CONFLICT, "EPIPE", format!("exec {id} takes no input: {reason}")))
        }
    }
}

/// `POST /exec/{id}/signal`.
pub async fn post_signal(agent: &Agent, id: &str, query: &Query) -> Result<Done, CallError> {
    let exec = find(agent, id)?;
    let signal: i32 = query.required("signal")?;
    if !(1..=SIGNAL_MAX).contains(&signal) {
        return Err(CallError::invalid(format!("signal {signal} does not exist: 1 to {SIGNAL_MAX}")));
    }
    let signal_id = query.text("signalId")?;
    // A repeated one may come after the command has ended of it.
    if exec.signals.has(signal_id) {
        return Ok(Done {});
    }
    could_catch(&exec, signal).await;
    if exec.signals.has(signal_id) {
        return Ok(Done {});
    }
    if exec.reaped.get() {
        let message = format!("exec {id} has ended");
        return Err(CallError::new(StatusCode::CONFLICT, "ESRCH", message));
    }
    os::kill(-exec.pid, signal).map_err(|error| CallError::from_io(format!("signal exec {id}"), &error))?;
    exec.signals.note(signal_id);
    Ok(Done {})
}

/// `POST /exec/{id}/resize`.
pub fn post_resize(agent: &Agent, id: &str, query: &Query) -> Result<Done, CallError> {
    let exec = find(agent, id)?;
    let size = PtySize { cols: query.required("cols")?, rows: query.required("rows")? };
    let terminal = exec.terminal.borrow();
    let Some(terminal) = &*terminal else {
        let message = format!("exec {id} has no terminal, or has ended");
        return Err(CallError::new(StatusCode::CONFLICT, "ENOTTY", message));
    };
    pty::resize(terminal, size).map_err(|error| CallError::from_io(format!("resize exec {id}"), &error))?;
    Ok(Done {})
}

/// `POST /start-command`.
pub async fn post_start_command(
    agent: &Rc<Agent>,
    body: &mut RecvStream,
) -> Result<StartCommandAnswer, CallError> {
    let bytes = body::read_all(body, SPEC_MAX_BYTES).await?;
    let mut spec = parse_spec(&bytes)?;
    if agent.execs.find("start-command").is_some() {
        return Err(CallError::new(StatusCode::CONFLICT, "EEXIST", "the start command was started before"));
    }
    check_can_start(agent, &spec)?;
    (spec.stdin, spec.pty, spec.session_id) = (false, None, None);
    let view = match &spec.view {
        Some(wish) => agent.views.find(agent, wish).await.map(Some).map_err(|error| error.message),
        None => Ok(None),
    };
    Ok(StartCommandAnswer { pid: start::start_in(agent, &spec, Life::StartCommand, view).pid })
}

async fn read_spec(frames: &mut FrameBody) -> Result<ExecStart, CallError> {
    match frames.next().await {
        Ok(Some(Frame { kind: kind::SPEC, payload })) => parse_spec(&payload),
        Ok(_) => Err(CallError::invalid("the first frame must be the command")),
        Err(StreamGone) => Err(CallError::invalid("the request ended, or its first frame is too large")),
    }
}

fn parse_spec(bytes: &[u8]) -> Result<ExecStart, CallError> {
    let spec: ExecStart = serde_json::from_slice(bytes)
        .map_err(|error| CallError::invalid(format!("the command is not valid: {error}")))?;
    match spec.session_id.as_deref() {
        Some(id) if id.is_empty() || id.len() > SESSION_ID_MAX_BYTES || id.contains(['/', '?', '#']) => {
            Err(CallError::invalid("sessionId must be 1 to 128 bytes without / ? #"))
        }
        _ => Ok(spec),
    }
}

fn check_can_start(agent: &Agent, spec: &ExecStart) -> Result<(), CallError> {
    agent.require_initialised()?;
    if spec.argv.is_empty() {
        return Err(CallError::invalid("argv is empty"));
    }
    if agent.execs.running() >= RUNNING_MAX {
        let message = format!("{RUNNING_MAX} commands run already");
        return Err(CallError::new(StatusCode::SERVICE_UNAVAILABLE, "EAGAIN", message));
    }
    Ok(())
}

fn find(agent: &Agent, id: &str) -> Result<Rc<Exec>, CallError> {
    agent.execs.find(id).ok_or_else(|| {
        CallError::new(
            StatusCode::NOT_FOUND,
            "ESRCH",
            format!("there is no exec {id}: it ended, or never was"),
        )
    })
}

/// How one stream is carried.
struct Carry {
    /// What the client has got before.
    attachment: Attachment,
    /// The end of the request's body is the end of the command's input.
    end_is_eof: bool,
    /// The command has been started by this stream.
    is_new: bool,
}

/// Carries frames both ways until the command's end was sent. `Err` when the host went away before.
async fn carry(
    exec: &Rc<Exec>,
    answer: Answer,
    frames: FrameBody,
    Carry { attachment, end_is_eof, is_new }: Carry,
) -> Result<(), StreamGone> {
    let reader = exec.output.attach(&attachment);
    let sending = async {
        if is_new && exec.session {
            settled(exec, &reader).await;
        } else if is_new && !exec.input.is_open() {
            // Most commands are short: their start, output and end then leave as one. Who has input to
            // give waits for the start.
            let _ = timeout(START_HELD_MAX, reader.filled()).await;
        }
        let head = [("sandlot-exec-id", exec.id.clone())];
        let mut stream = answer.stream(&head).map_err(|_| StreamGone)?;
        body::send_all(&mut stream, exec.start_frame(reader.start())).await?;
        loop {
            let frame = tokio::select! {
                frame = reader.next() => frame,
                () = body::cancelled(&mut stream) => return Err(StreamGone),
            };
            let Some(frame) = frame else {
                if reader.was_dropped() {
                    stream.send_reset(Reason::CANCEL);
                    return Err(StreamGone);
                }
                body::finish(&mut stream);
                return Ok(());
            };
            body::send_all(&mut stream, frame).await?;
        }
    };
    let feeding = async {
        match feed(exec, frames, end_is_eof).await {
            Ok(()) => std::future::pending().await,
            // What is wrong with the request is also seen by the sending side, unless it is a bad frame.
            Err(BadInput) => BadInput,
        }
    };
    let carried = tokio::select! {
        result = sending => result,
        BadInput = feeding => Err(StreamGone),
    };
    exec.output.detach(&reader);
    carried
}

/// Waits until the program has begun its own work: it has written, waits for something, or has ended; a busy
/// one is given [`SETTLE_MAX`]. Clients signal a session as soon as they hear that it has started, and a shell
/// that is still loading its libraries would die of what it was about to catch. Holds up nothing but the news.
async fn settled(exec: &Exec, reader: &Reader) {
    let give_up = tokio::time::Instant::now() + SETTLE_MAX;
    while reader.is_empty() && is_loading(exec.pid) && tokio::time::Instant::now() < give_up {
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// Waits until a young program has had the time to say that it catches a signal which would end it: as
/// [`settled`], for those that load longer than the news is held. One that nothing can catch waits for nothing.
async fn could_catch(exec: &Exec, signal: i32) {
    if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGCONT) {
        return;
    }
    let give_up = exec.started_at + LOADED_AFTER;
    while !exec.reaped.get()
        && tokio::time::Instant::now() < give_up
        && is_loading(exec.pid)
        && !handles(exec.pid, signal)
    {
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// It ignores the signal or has set a handler (masks of `/proc/pid/status`, see proc(5)).
fn handles(pid: i32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:").or(line.strip_prefix("SigCgt:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| (mask >> (signal - 1)) & 1 == 1)
}

/// It is on a CPU or waits for the disk, and nothing else.
fn is_loading(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it, in parentheses, may contain anything.
    let state = stat.iter().rposition(|&byte| byte == b')').and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'R' | b'D'))
}

/// The host sent something that is no exec frame, or its stream broke.
struct BadInput;

async fn feed(exec: &Exec, mut frames: FrameBody, end_is_eof: bool) -> Result<(), BadInput> {
    loop {
        // Input that the command does not take is dropped, as a shell's pipe would.
        match frames.next().await {
            Ok(Some(Frame { kind: kind::STDIN, payload })) => {
                let _ = exec.input.feed(&payload, false, None).await;
            }
            Ok(Some(Frame { kind: kind::STDIN_EOF, .. })) => {
                let _ = exec.input.feed(b"", true, None).await;
            }
            Ok(Some(_)) | Err(StreamGone) => return Err(BadInput),
            Ok(None) => break,
        }
    }
    if end_is_eof && exec.input.is_open() {
        let _ = exec.input.feed(b"", true, None).await;
    }
    Ok(())
}
