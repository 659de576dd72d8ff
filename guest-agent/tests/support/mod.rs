//! An agent without a machine, and a host that talks to it: what the integration tests are written with.
//! Each test file uses a part of it. Everything is below one temporary folder, and both end when the test does.

#![allow(dead_code)]

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Nothing in these tests takes longer, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A running agent.
pub struct TestAgent {
    process: Child,
    pub folder: PathBuf,
}

/// Runs a test against an agent of its own.
pub fn with_agent<F: Future<Output = ()>>(name: &str, test: impl FnOnce(TestAgent) -> F) {
    let agent = TestAgent::start(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, test(agent)).await.expect("the test did not end in time");
    });
}

impl TestAgent {
    fn start(name: &str) -> TestAgent {
        let folder = std::env::temp_dir().join(format!("sandlot-agent-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("root")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_sandlot-agent"))
            .arg("--socket-dir")
            .arg(&folder)
            .arg("--root")
            .arg(folder.join("root"))
            .arg("--die-with-parent")
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        TestAgent { process, folder }
    }

    /// The folder that stands for `/`.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Connects as a new host.
    pub async fn connect(&self) -> Host {
        let ctl = connect_when_there(&self.folder.join("ctl.sock")).await;
        let data = connect_when_there(&self.folder.join("data.sock")).await;
        Host::open(ctl, data).await
    }

    /// Connects and runs `/init`.
    pub async fn initialised(&self, changes: Value) -> Host {
        let host = self.connect().await;
        let mut request = serde_json::json!({
            "sandboxId": "sb", "timeUnixMs": 1, "entropyBase64": "A".repeat(44), "hostname": "box",
            "machineId": "0".repeat(32), "resolvConf": "", "growRoot": false, "env": {}, "secrets": {},
            "image": { "env": [], "user": "", "workingDir": "", "entrypoint": [], "cmd": [] },
        });
        for (name, value) in changes.as_object().unwrap() {
            request[name] = value.clone();
        }
        let answer = host.call("POST", "/init", request.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        host
    }

    /// Asks it to end and waits for it.
    pub fn end(&mut self) -> std::process::ExitStatus {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "the agent does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            self.end();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub async fn connect_when_there(path: &Path) -> UnixStream {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return stream,
            Err(error) => {
                assert!(begun.elapsed() < Duration::from_secs(10), "{}: {error}", path.display());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// The host side of one connection.
pub struct Host {
    requests: SendRequest<Bytes>,
    _ctl: UnixStream,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A whole answer.
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }
}

impl Host {
    async fn open(mut ctl: UnixStream, mut data: UnixStream) -> Host {
        let nonce: String =
            (0..32).map(|at| char::from(b'a' + (std::process::id() as u8).wrapping_add(at) % 6)).collect();
        ctl.write_all(format!("\nRESET {nonce}\n").as_bytes()).await.unwrap();
        let mut sync = vec![0; "SYNC \n".len() + 32];
        data.read_exact(&mut sync).await.unwrap();
        assert_eq!(String::from_utf8(sync).unwrap(), format!("SYNC {nonce}\n"));
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(256 * 1024)
            .initial_connection_window_size(1024 * 1024)
            .handshake(data)
            .await
            .unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        Host { requests, _ctl: ctl, connection }
    }

    /// Begins a call.
    pub async fn begin(&self, method: &str, path: &str) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let request = Request::builder().method(method).uri(format!("http://guest{path}")).body(()).unwrap();
        self.requests.clone().ready().await.unwrap().send_request(request, false).unwrap()
    }

    /// A call with a whole body.
    pub async fn call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let (response, mut stream) = self.begin(method, path).await;
        let body = body.into();
        let (sent, answer) = tokio::join!(send(&mut stream, body, true), async {
            let (head, mut body) = response.await.unwrap().into_parts();
            let mut all = BytesMut::new();
            while let Some(chunk) = body.data().await {
                let chunk = chunk.unwrap();
                let _ = body.flow_control().release_capacity(chunk.len());
                all.extend_from_slice(&chunk);
            }
            Answer { status: head.status.as_u16(), headers: head.headers, body: all.freeze() }
        });
        // A refusal may come before the body was taken.
        assert!(sent.is_ok() || answer.status >= 400);
        answer
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "").await
    }

    /// Starts a command; its input stays open.
    pub async fn exec(&self, spec: Value) -> Exec {
        let (response, mut input) = self.begin("POST", "/exec").await;
        send(&mut input, frame(0, spec.to_string().as_bytes()), false).await.unwrap();
        Exec::new(response, input).await
    }

    /// Runs a command to its end.
    pub async fn run(&self, argv: &[&str]) -> Ended {
        self.exec(serde_json::json!({ "argv": argv })).await.ended().await
    }

    pub async fn attach(&self, id: &str) -> Exec {
        self.attach_as(id, "").await
    }

    /// Attaches as a client that says in the query who it is and what it has got.
    pub async fn attach_as(&self, id: &str, query: &str) -> Exec {
        let (response, mut input) = self.begin("POST", &format!("/exec/{id}/attach?{query}")).await;
        input.send_data(Bytes::new(), true).unwrap();
        Exec::new(response, input).await
    }
}

/// Sends with flow control.
pub async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(0)) => {}
            Some(Ok(count)) => stream.send_data(bytes.split_to(count.min(bytes.len())), false)?,
            Some(Err(error)) => return Err(error),
            None => return Err(h2::Reason::CANCEL.into()),
        }
    }
    if end {
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

pub fn frame(kind: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(kind);
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

/// A command and its streams.
pub struct Exec {
    pub input: SendStream<Bytes>,
    pub start: Value,
    body: RecvStream,
    buffer: BytesMut,
    seen: String,
}

/// What came of a command.
#[derive(Default, Debug)]
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub terminal: String,
    pub end: Value,
}

impl Exec {
    async fn new(response: h2::client::ResponseFuture, input: SendStream<Bytes>) -> Exec {
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        let mut exec = Exec {
            input,
            start: Value::Null,
            body: response.into_body(),
            buffer: BytesMut::new(),
            seen: String::new(),
        };
        let (kind, payload) = exec.next().await.unwrap();
        assert_eq!(kind, 4, "the first frame is start");
        exec.start = serde_json::from_slice(&payload).unwrap();
        exec
    }

    /// The next frame; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(u8, Bytes)> {
        loop {
            if self.buffer.len() >= 5 {
                let length = u32::from_be_bytes(self.buffer[1..5].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    let kind = self.buffer.get_u8();
                    self.buffer.advance(4);
                    return Some((kind, self.buffer.split_to(length).freeze()));
                }
            }
            let chunk = self.body.data().await?.unwrap();
            let _ = self.body.flow_control().release_capacity(chunk.len());
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// Reads until the output since the last such text contains this one.
    pub async fn wait_for(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let frame = self.next().await;
            let (_, payload) = frame.unwrap_or_else(|| panic!("{text:?} did not come: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&payload));
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        send(&mut self.input, frame(16, bytes), false).await.unwrap();
    }

    pub async fn end_input(&mut self) {
        send(&mut self.input, frame(17, b""), false).await.unwrap();
    }

    /// Goes away, as a host that lost interest.
    pub fn cancel(mut self) {
        self.input.send_reset(h2::Reason::CANCEL);
    }

    /// Reads to the end.
    pub async fn ended(mut self) -> Ended {
        let mut ended = Ended::default();
        while let Some((kind, payload)) = self.next().await {
            let text = String::from_utf8_lossy(&payload).into_owned();
            assert!(ended.end.is_null(), "nothing comes after the end");
            match kind {
                1 => ended.stdout.push_str(&text),
                2 => ended.stderr.push_str(&text),
                3 => ended.terminal.push_str(&text),
                5 => ended.end = serde_json::from_slice(&payload).unwrap(),
                other => panic!("frame of kind {other}"),
            }
        }
        assert!(ended.end.is_object(), "the stream ended without an end: {ended:?}");
        ended
    }
}

/// Waits for a condition that must come true.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A process of this pid runs.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['R', 'S', 'D', 'T']))
}

/// The number in a file, once it is there.
pub async fn pid_in(path: &Path) -> i32 {
    let read = || std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    eventually("a pid is written", || read().is_some()).await;
    read().unwrap()
}
