//! Sessions: commands that outlive their connection, and clients that go on where they stand. Against the real
//! binary without a machine.

mod support;

use std::time::Duration;

use serde_json::json;
use support::{send, with_agent};

#[test]
fn a_session_outlives_its_connection_and_replays() {
    with_agent("session", |agent| async move {
        let go_on = agent.root().join("go-on");
        let script = format!(
            "echo first; while [ ! -e {} ]; do sleep 0.05; done; echo second; exit 4",
            go_on.display()
        );
        let spec = json!({ "argv": ["sh", "-c", script], "sessionId": "s 1" });
        let host = agent.connect().await;
        let mut exec = host.exec(spec.clone()).await;
        let pid = exec.start["pid"].clone();
        exec.wait_for("first").await;
        drop((exec, host));
        let host = agent.connect().await;
        std::fs::write(&go_on, "").unwrap();
        // A second start of a known session attaches instead of starting.
        let exec = host.exec(spec).await;
        assert_eq!(exec.start["pid"], pid);
        let ended = exec.ended().await;
        assert_eq!((ended.stdout.as_str(), &ended.end["exitCode"]), ("second\n", &json!(4)));
        // The end is retained.
        assert_eq!(host.attach("s%201").await.ended().await.end["exitCode"], 4);
        let sessions = host.get("/exec").await.json();
        assert_eq!(sessions["sessions"][0]["id"], "s 1");
        assert_eq!(sessions["sessions"][0]["end"]["exitCode"], 4);
    });
}

#[test]
fn a_client_that_says_where_it_stands_gets_exactly_the_rest() {
    with_agent("resume", |agent| async move {
        let script = "i=0; while [ $i -lt 6000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
        let mut host = agent.connect().await;
        host.exec(json!({ "argv": ["sh", "-c", script], "sessionId": "r" })).await.cancel();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut end = json!(null);
        for turn in 1.. {
            let query = format!("reader=me&confirms=1&stdout={}&stderr={}&pty=0", stdout.len(), stderr.len());
            let mut exec = host.attach_as("r", &query).await;
            let expected = json!({ "stdout": stdout.len(), "stderr": stderr.len(), "pty": 0, "dropped": 0 });
            assert_eq!(exec.start["position"], expected);
            // What is on its way is lost with the connection, and so is half of the last frame.
            for left in (0..=turn % 4).rev() {
                let Some((kind, payload)) = exec.next().await else { break };
                let kept = if left == 0 { payload.len().div_ceil(2) } else { payload.len() };
                match kind {
                    1 => stdout.extend_from_slice(&payload[..kept]),
                    2 => stderr.extend_from_slice(&payload[..kept]),
                    _ => end = serde_json::from_slice(&payload).unwrap(),
                }
            }
            if end.is_object() {
                break;
            }
            if turn % 3 == 0 {
                host = agent.connect().await;
            }
        }
        let lines = |word: &str| (0..6000).map(|n| format!("{word} {n}\n")).collect::<String>();
        assert_eq!(String::from_utf8(stdout).unwrap(), lines("out"));
        assert_eq!(String::from_utf8(stderr).unwrap(), lines("err"));
        assert_eq!(end["droppedBytes"], 0);
    });
}

#[test]
fn a_client_that_confirms_gets_everything_and_is_sent_no_more_than_a_window() {
    with_agent("window", |agent| async move {
        let host = agent.connect().await;
        let size = 3_000_000;
        let spec = json!({ "argv": ["sh", "-c", format!("head -c {size} /dev/zero")], "sessionId": "w" });
        host.exec(spec).await.cancel();
        let mut exec = host.attach_as("w", "reader=me&confirms=1&stdout=0").await;
        let (mut got, mut confirmed) = (0, 0);
        while let Ok(next) = tokio::time::timeout(Duration::from_millis(300), exec.next()).await {
            if let (1, payload) = next.expect("held back, not ended") {
                got += payload.len();
            }
        }
        assert!(got < 512 * 1024, "{got} bytes without being confirmed");
        loop {
            if got - confirmed >= 100_000 {
                confirmed = got;
                let path = format!("/exec/w/received?reader=me&stdout={got}");
                assert_eq!(host.call("POST", &path, "").await.status, 200);
            }
            match exec.next().await.unwrap() {
                (1, payload) => got += payload.len(),
                (_, end) => {
                    assert_eq!(serde_json::from_slice::<serde_json::Value>(&end).unwrap()["droppedBytes"], 0);
                    break;
                }
            }
        }
        assert_eq!(got, size);
    });
}

#[test]
fn output_beyond_the_kept_part_is_counted() {
    with_agent("dropped", |agent| async move {
        let host = agent.connect().await;
        let script = "sleep 0.3; head -c 3000000 /dev/zero";
        let exec = host.exec(json!({ "argv": ["sh", "-c", script], "sessionId": "big" })).await;
        exec.cancel();
        for _ in 0..200 {
            if host.get("/exec").await.json()["sessions"][0]["end"].is_object() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let ended = host.attach("big").await.ended().await;
        let dropped = ended.end["droppedBytes"].as_u64().unwrap();
        assert!(ended.stdout.len() <= 1024 * 1024 && ended.stdout.len() > 900_000);
        assert_eq!(ended.stdout.len() as u64 + dropped, 3_000_000);
    });
}

#[test]
fn the_end_of_a_request_is_not_the_end_of_a_sessions_input() {
    with_agent("leaving", |agent| async move {
        let host = agent.connect().await;
        let spec = json!({ "argv": ["cat"], "stdin": true, "sessionId": "s" });
        let mut first = host.exec(spec.clone()).await;
        let mut second = host.exec(spec).await;
        send(&mut second.input, "".into(), true).await.unwrap();
        second.cancel();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(host.call("POST", "/exec/s/input?eof=1", "still here").await.status, 200);
        first.wait_for("still here").await;
        assert_eq!(first.ended().await.end["exitCode"], 0);
    });
}

#[test]
fn a_session_is_told_as_started_once_it_has_begun_its_own_work() {
    with_agent("settled", |agent| async move {
        let host = agent.connect().await;
        let busy = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        let script = format!("{busy}; trap 'exit 5' TERM; sleep 20");
        let exec = host.exec(json!({ "argv": ["sh", "-c", script], "sessionId": "s" })).await;
        assert_eq!(host.call("POST", "/exec/s/signal?signal=15&signalId=x", "").await.status, 200);
        assert_eq!(exec.ended().await.end["exitCode"], 5);
    });
}

#[test]
fn a_young_command_is_given_time_to_catch_a_signal() {
    with_agent("young", |agent| async move {
        let host = agent.connect().await;
        // Longer than its start is held back, shorter than a signal is.
        let script = "import signal, sys, time\nend = time.time() + 0.7\nwhile time.time() < end: pass\n\
            signal.signal(15, lambda *_: sys.exit(5))\ntime.sleep(20)";
        let exec = host.exec(json!({ "argv": ["/usr/bin/python3", "-c", script], "sessionId": "s" })).await;
        for _ in 0..2 {
            assert_eq!(host.call("POST", "/exec/s/signal?signal=15&signalId=x", "").await.status, 200);
        }
        assert_eq!(exec.ended().await.end["exitCode"], 5);
        // One that never catches it ends of it, and nothing waits for SIGKILL.
        for signal in [15, 9] {
            let id = format!("busy-{signal}");
            let spec = json!({ "argv": ["sh", "-c", "while :; do :; done"], "sessionId": id });
            let exec = host.exec(spec).await;
            assert_eq!(
                host.call("POST", &format!("/exec/{id}/signal?signal={signal}"), "").await.status,
                200
            );
            assert_eq!(exec.ended().await.end["signal"], signal);
        }
    });
}
