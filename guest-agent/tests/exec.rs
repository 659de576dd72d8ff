//! Commands, against the real binary without a machine.

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::{eventually, frame, is_alive, pid_in, send, with_agent};

#[test]
fn output_apart_and_exit_code() {
    with_agent("output", |agent| async move {
        let host = agent.connect().await;
        let ended = host.run(&["sh", "-c", "echo out; echo err >&2; exit 3"]).await;
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(ended.end["exitCode"], 3);
        assert_eq!(ended.end["timedOut"], false);
    });
}

#[test]
fn what_cannot_run_is_a_result() {
    with_agent("cannot", |agent| async move {
        let host = agent.connect().await;
        for (argv, cwd, code) in [
            (["nosuchcommand"], None, 127),
            (["/no/such/file"], None, 127),
            (["/etc/passwd"], None, 126),
            (["/etc"], None, 126),
            (["true"], Some("/no/such/folder"), 126),
        ] {
            let exec = host.exec(json!({ "argv": argv, "cwd": cwd })).await;
            assert_eq!(exec.start["pid"], 0, "{argv:?}");
            let ended = exec.ended().await;
            assert_eq!(ended.end["exitCode"], code, "{argv:?} {cwd:?}");
            assert!(ended.stderr.starts_with("sandlot: ") && ended.stderr.ends_with('\n'), "{ended:?}");
            assert!(ended.end["error"].is_string());
        }
    });
}

#[test]
fn a_signal_is_told_apart_from_an_exit() {
    with_agent("signal", |agent| async move {
        let ended = agent.connect().await.run(&["sh", "-c", "kill -9 $$"]).await;
        assert_eq!((&ended.end["exitCode"], &ended.end["signal"]), (&json!(137), &json!(9)));
    });
}

#[test]
fn every_byte_arrives_unchanged() {
    with_agent("bytes", |agent| async move {
        let host = agent.connect().await;
        let script = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done";
        let mut exec = host.exec(json!({ "argv": ["sh", "-c", script] })).await;
        let mut bytes = Vec::new();
        while let Some((kind, payload)) = exec.next().await {
            if kind == 1 {
                bytes.extend_from_slice(&payload);
            }
        }
        assert_eq!(bytes, (0..=255u8).collect::<Vec<_>>());
    });
}

#[test]
fn a_background_child_holding_the_pipes_does_not_hold_the_result() {
    with_agent("background", |agent| async move {
        let pid_file = agent.root().join("pid");
        let begun = Instant::now();
        let script = format!("sleep 30 & echo $! > {}; echo done", pid_file.display());
        let ended = agent.connect().await.run(&["sh", "-c", &script]).await;
        assert_eq!(ended.stdout, "done\n");
        assert!(begun.elapsed() < Duration::from_secs(5));
        // An exec that ended by itself leaves its background children alone.
        assert!(is_alive(pid_in(&pid_file).await));
    });
}

#[test]
fn a_background_child_that_goes_on_writing_is_not_killed_by_it() {
    with_agent("writer", |agent| async move {
        let done = agent.root().join("done");
        let script =
            format!("(sleep 0.5; echo one; sleep 0.2; echo two; echo ok > {}) & true", done.display());
        assert_eq!(agent.connect().await.run(&["sh", "-c", &script]).await.end["exitCode"], 0);
        eventually("the child survives writing", || done.exists()).await;
    });
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    with_agent("timeout", |agent| async move {
        let pid_file = agent.root().join("pid");
        let script = format!(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {}; sleep 60' & sleep 60",
            pid_file.display()
        );
        let host = agent.connect().await;
        let spec = json!({ "argv": ["sh", "-c", script], "timeoutMs": 500 });
        let begun = Instant::now();
        let ended = host.exec(spec).await.ended().await;
        assert_eq!(ended.end["timedOut"], true);
        assert!(begun.elapsed() >= Duration::from_millis(2400), "TERM gets two seconds");
        assert!(!is_alive(pid_in(&pid_file).await), "a child in a session of its own is ended too");
    });
}

#[test]
fn a_command_ends_with_its_stream() {
    with_agent("cancel", |agent| async move {
        let host = agent.connect().await;
        let exec = host.exec(json!({ "argv": ["sh", "-c", "sleep 60 & sleep 60"] })).await;
        let pid = exec.start["pid"].as_i64().unwrap() as i32;
        assert!(is_alive(pid));
        exec.cancel();
        eventually("the command ends", || !is_alive(pid)).await;
    });
}

#[test]
fn a_new_connection_ends_the_commands_of_the_old_one() {
    with_agent("reset", |agent| async move {
        let first = agent.connect().await;
        let exec = first.exec(json!({ "argv": ["sleep", "60"] })).await;
        let pid = exec.start["pid"].as_i64().unwrap() as i32;
        let second = agent.connect().await;
        eventually("the command ends", || !is_alive(pid)).await;
        assert_eq!(second.run(&["true"]).await.end["exitCode"], 0);
    });
}

#[test]
fn input_by_frames_and_by_calls() {
    with_agent("input", |agent| async move {
        let host = agent.connect().await;
        let mut exec = host.exec(json!({ "argv": ["cat"], "stdin": true })).await;
        exec.write(b"hello ").await;
        exec.write(b"there").await;
        exec.end_input().await;
        assert_eq!(exec.ended().await.stdout, "hello there");

        let exec = host.exec(json!({ "argv": ["cat"], "stdin": true, "sessionId": "in" })).await;
        for (path, text) in [
            ("inputId=a", "one "),
            ("inputId=a", "one "),
            ("inputId=b", "two "),
            ("inputId=c&eof=1", "three"),
        ] {
            let answer = host.call("POST", &format!("/exec/in/input?{path}"), text).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        assert_eq!(exec.ended().await.stdout, "one two three");
        assert_eq!(host.call("POST", "/exec/in/input", "x").await.status, 409);
        assert_eq!(host.call("POST", "/exec/nobody/input", "x").await.status, 404);
    });
}

#[test]
fn without_stdin_a_reader_sees_the_end_at_once() {
    with_agent("no-stdin", |agent| async move {
        let host = agent.connect().await;
        assert_eq!(host.run(&["cat"]).await.end["exitCode"], 0);
        let exec = host.exec(json!({ "argv": ["sleep", "5"], "sessionId": "s" })).await;
        assert_eq!(host.call("POST", "/exec/s/input", "x").await.status, 409);
        exec.cancel();
    });
}

#[test]
fn a_terminal_with_its_size() {
    with_agent("pty", |agent| async move {
        let host = agent.connect().await;
        let script = "trap 'stty size; exit' WINCH; stty size; test -t 0 && echo tty; read a; echo got $a; while :; do sleep 0.05; done";
        let spec =
            json!({ "argv": ["sh", "-c", script], "pty": { "cols": 91, "rows": 17 }, "sessionId": "t" });
        let mut exec = host.exec(spec).await;
        exec.wait_for("17 91").await;
        exec.wait_for("tty").await;
        exec.write(b"abc\n").await;
        exec.wait_for("got abc").await;
        assert_eq!(host.call("POST", "/exec/t/resize?cols=50&rows=10", "").await.status, 200);
        assert!(exec.ended().await.terminal.contains("10 50"));
        assert_eq!(host.call("POST", "/exec/t/resize?cols=50&rows=10", "").await.status, 409);
    });
}

#[test]
fn signals_reach_the_group_once_for_each_id() {
    with_agent("signals", |agent| async move {
        let host = agent.connect().await;
        let script = "n=0; trap 'n=$((n+1)); echo caught $n; [ $n = 2 ] && exit 9' USR1; echo ready; while :; do sleep 0.05; done";
        let mut exec = host.exec(json!({ "argv": ["sh", "-c", script], "sessionId": "sig" })).await;
        exec.wait_for("ready").await;
        for _ in 0..2 {
            assert_eq!(host.call("POST", "/exec/sig/signal?signal=10&signalId=x", "").await.status, 200);
        }
        exec.wait_for("caught 1").await;
        assert_eq!(host.call("POST", "/exec/sig/signal?signal=10&signalId=y", "").await.status, 200);
        assert_eq!(exec.ended().await.end["exitCode"], 9);
        assert_eq!(host.call("POST", "/exec/sig/signal?signal=10", "").await.status, 409);
        // Sent again by a client that got no answer the first time.
        assert_eq!(host.call("POST", "/exec/sig/signal?signal=10&signalId=y", "").await.status, 200);
        assert_eq!(host.call("POST", "/exec/sig/signal?signal=65", "").await.status, 400);
    });
}

#[test]
fn a_slow_reader_blocks_the_command_and_gets_everything() {
    with_agent("slow", |agent| async move {
        let done = agent.root().join("done");
        let host = agent.connect().await;
        let script = format!("head -c 20000000 /dev/zero; touch {}", done.display());
        let mut exec = host.exec(json!({ "argv": ["sh", "-c", script] })).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!done.exists(), "the command must wait for its reader");
        let begun = Instant::now();
        assert_eq!(host.run(&["true"]).await.end["exitCode"], 0);
        assert!(begun.elapsed() < Duration::from_secs(3), "others go on");
        let mut bytes = 0;
        while let Some((kind, payload)) = exec.next().await {
            if kind == 1 {
                bytes += payload.len();
            }
        }
        assert_eq!(bytes, 20_000_000);
        assert!(done.exists());
    });
}

#[test]
fn programs_that_do_not_read_do_not_stop_uploads() {
    with_agent("stuck", |agent| async move {
        let host = agent.connect().await;
        let mut stuck = Vec::new();
        for _ in 0..8 {
            let mut exec = host.exec(json!({ "argv": ["sleep", "60"], "stdin": true })).await;
            for _ in 0..5 {
                let filled = send(&mut exec.input, frame(16, &[0; 60_000]), false);
                if tokio::time::timeout(Duration::from_millis(100), filled).await.is_err() {
                    break;
                }
            }
            stuck.push(exec);
        }
        let answer = host.call("PUT", "/files?path=/beside", vec![1u8; 3_000_000]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    });
}

#[test]
fn the_start_command_keeps_its_log_and_its_end() {
    with_agent("start", |agent| async move {
        let host = agent.initialised(json!({})).await;
        let spec = json!({ "argv": ["sh", "-c", "echo log; exit 7"] }).to_string();
        assert!(host.call("POST", "/start-command", spec.clone()).await.json()["pid"].as_i64() > Some(0));
        for _ in 0..2 {
            let ended = host.attach("start-command").await.ended().await;
            assert_eq!((ended.stdout.as_str(), &ended.end["exitCode"]), ("log\n", &json!(7)));
        }
        assert_eq!(host.call("POST", "/start-command", spec).await.status, 409);
    });
}

#[test]
fn the_environment_comes_in_its_order() {
    with_agent("env", |agent| async move {
        let image =
            json!({ "env": ["A=image", "B=image", "C=image", "D=image"], "user": "", "workingDir": "/w/d" });
        let host = agent
            .initialised(json!({ "image": image, "env": { "B": "create", "C": "create", "D": "create" },
                                  "secrets": { "C": "secret", "D": "secret" } }))
            .await;
        let spec = json!({ "argv": ["sh", "-c", "echo $A $B $C $D $HOSTNAME; pwd"], "env": { "D": "exec" } });
        let ended = host.exec(spec).await.ended().await;
        assert_eq!(ended.stdout, format!("image create secret exec box\n{}/w/d\n", agent.root().display()));
        assert_eq!(host.call("POST", "/init", "{}").await.status, 400);
    });
}

#[test]
fn wrong_requests_are_refused() {
    with_agent("wrong", |agent| async move {
        let host = agent.connect().await;
        for body in [frame(0, b"{"), frame(16, b"x"), frame(0, b"{\"argv\":[]}")] {
            assert_eq!(host.call("POST", "/exec", body).await.status, 400);
        }
        assert_eq!(host.get("/nothing").await.status, 404);
        assert_eq!(host.call("POST", "/exec/none/attach", "").await.status, 404);
        assert_eq!(host.call("POST", "/exec/none/received?reader=x", "").await.status, 404);
        assert_eq!(host.call("POST", "/exec?stdout=-1", frame(0, b"{}")).await.status, 400);
    });
}

#[test]
fn nothing_is_left_when_the_agent_ends() {
    with_agent("end", |mut agent| async move {
        let pid_file = agent.root().join("pid");
        let host = agent.connect().await;
        let script = format!("setsid sh -c 'echo $$ > {}; sleep 60' & sleep 60", pid_file.display());
        let exec = host.exec(json!({ "argv": ["sh", "-c", script], "sessionId": "x" })).await;
        let orphan = pid_in(&pid_file).await;
        let pid = exec.start["pid"].as_i64().unwrap() as i32;
        assert!(agent.end().success());
        assert!(!is_alive(pid) && !is_alive(orphan));
        assert!(!agent.folder.join("ctl.sock").exists());
    });
}
