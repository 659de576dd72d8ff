//! Files, archives and ports, and the channel itself, against the real binary without a machine.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::json;
use support::{connect_when_there, eventually, send, with_agent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn a_file_comes_back_as_it_was_written() {
    with_agent("file", |agent| async move {
        let host = agent.connect().await;
        let content: Vec<u8> = (0..12_000_000u32).map(|at| (at % 251) as u8).collect();
        let answer = host.call("PUT", "/files?path=/new/folder/a%20b&mode=0750", content.clone()).await;
        assert_eq!(answer.json()["bytes"], content.len());
        let back = host.get("/files?path=/new/folder/a%20b").await;
        assert!(back.body == content);
        assert_eq!(back.headers["sandlot-file-size"], content.len().to_string());
        let window = host.get("/files?path=/new/folder/a%20b&offset=-100&length=10").await;
        assert_eq!(&window.body[..], &content[content.len() - 100..content.len() - 90]);
        let mode = agent.root().join("new/folder/a b").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);
    });
}

#[test]
fn an_existing_file_keeps_its_mode_and_a_link_is_followed() {
    with_agent("existing", |agent| async move {
        let host = agent.connect().await;
        let target = agent.root().join("target");
        std::fs::write(&target, "old").unwrap();
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("target", agent.root().join("link")).unwrap();
        std::os::unix::fs::symlink("made", agent.root().join("dangling")).unwrap();
        assert_eq!(host.call("PUT", "/files?path=/link&mode=0644", "new").await.status, 200);
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(agent.root().join("link").is_symlink());
        assert_eq!(host.call("PUT", "/files?path=/dangling", "x").await.status, 200);
        assert_eq!(std::fs::read(agent.root().join("made")).unwrap(), b"x");
    });
}

#[test]
fn what_cannot_be_written_says_why() {
    with_agent("refused", |agent| async move {
        let host = agent.connect().await;
        std::fs::create_dir(agent.root().join("folder")).unwrap();
        std::fs::write(agent.root().join("file"), "").unwrap();
        for (path, code) in [
            ("/folder", "EISDIR"),
            ("/folder/", "EISDIR"),
            ("/file/below", "ENOTDIR"),
            ("relative", "EINVAL"),
            ("/x&mode=9", "EINVAL"),
        ] {
            let answer = host.call("PUT", &format!("/files?path={path}"), "x").await;
            assert_eq!(answer.json()["code"], code, "{path}");
            assert!(answer.status >= 400);
        }
        for (path, code) in [("/none", "ENOENT"), ("/folder", "EISDIR")] {
            assert_eq!(host.get(&format!("/files?path={path}")).await.json()["code"], code);
        }
    });
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    // A file system of its own needs root; without it there is no small disk to fill.
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    }
    with_agent("full", |agent| async move {
        let small = agent.root().join("small");
        std::fs::create_dir(&small).unwrap();
        let _mounted = SmallMount::new(&small);
        let host = agent.connect().await;
        let answer = host.call("PUT", "/files?path=/small/a/b/big", vec![0u8; 4_000_000]).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (507, Some("ENOSPC")));
        assert_eq!(std::fs::read_dir(&small).unwrap().count(), 0, "no part and no folder is left");
    });
}

struct SmallMount(std::ffi::CString);

impl SmallMount {
    fn new(path: &std::path::Path) -> SmallMount {
        let target = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: NUL-terminated strings.
        let result = unsafe {
            let (kind, data) = (c"tmpfs".as_ptr(), c"size=1m".as_ptr());
            libc::mount(kind, target.as_ptr(), kind, 0, data.cast())
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        SmallMount(target)
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        // SAFETY: NUL-terminated string.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_broken_upload_leaves_nothing() {
    with_agent("broken", |agent| async move {
        let host = agent.connect().await;
        std::fs::write(agent.root().join("kept"), "old").unwrap();
        let (_response, mut stream) = host.begin("PUT", "/files?path=/kept").await;
        send(&mut stream, vec![7u8; 100_000].into(), false).await.unwrap();
        let entries = || std::fs::read_dir(agent.root()).unwrap().count();
        eventually("the upload has begun", || entries() == 2).await;
        stream.send_reset(h2::Reason::CANCEL);
        eventually("its part is removed", || entries() == 1).await;
        assert_eq!(std::fs::read(agent.root().join("kept")).unwrap(), b"old");
    });
}

#[test]
fn stat_and_list() {
    with_agent("stat", |agent| async move {
        let host = agent.connect().await;
        std::fs::create_dir(agent.root().join("d")).unwrap();
        std::fs::write(agent.root().join("d/b"), "12345").unwrap();
        std::os::unix::fs::symlink("/nowhere", agent.root().join("d/a")).unwrap();
        let stat = host.get("/stat?path=/d/b").await.json();
        assert_eq!((&stat["kind"], &stat["size"], &stat["name"]), (&json!("file"), &json!(5), &json!("b")));
        assert!(stat["mtimeMs"].as_i64() > Some(1_600_000_000_000));
        let list = host.get("/list?path=/d").await.json();
        assert_eq!(list["entries"][0]["target"], "/nowhere");
        assert_eq!(list["entries"][1]["name"], "b");
        assert_eq!(host.get("/stat?path=/none").await.status, 404);
    });
}

fn archive(build: impl FnOnce(&mut tar::Builder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = tar::Builder::new(&mut bytes);
    build(&mut builder);
    builder.finish().unwrap();
    drop(builder);
    bytes
}

/// A header with a name that the tar crate itself would refuse to write.
fn entry(kind: tar::EntryType, name: &str, link: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_mtime(1_000_000_000);
    header.set_size(size);
    header.set_cksum();
    header
}

#[test]
fn a_folder_goes_in_and_comes_out() {
    with_agent("tar", |agent| async move {
        let host = agent.connect().await;
        let long = "long-".repeat(40);
        let bytes = archive(|tar| {
            tar.append(&entry(tar::EntryType::Directory, "d/", "", 0), std::io::empty()).unwrap();
            tar.append(&entry(tar::EntryType::Regular, "d/f", "", 5), &b"hello"[..]).unwrap();
            tar.append(&entry(tar::EntryType::Symlink, "l", "d/f", 0), std::io::empty()).unwrap();
            tar.append(&entry(tar::EntryType::Link, "h", "d/f", 0), std::io::empty()).unwrap();
            tar.append_data(&mut entry(tar::EntryType::Regular, "x", "", 3), &long, &b"abc"[..]).unwrap();
        });
        assert_eq!(host.call("PUT", "/tar?path=/in/it", bytes).await.json()["bytes"], 8);
        let root = agent.root().join("in/it");
        assert_eq!(std::fs::read(root.join("l")).unwrap(), b"hello");
        assert_eq!(std::fs::read(root.join(&long)).unwrap(), b"abc");
        assert_eq!(root.join("d/f").metadata().unwrap().permissions().mode() & 0o777, 0o640);

        let back = host.get("/tar?path=/in/it").await.body;
        let names: Vec<_> = tar::Archive::new(&back[..])
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.path().unwrap().display().to_string(), entry.header().entry_type())
            })
            .collect();
        let expected = [
            ("d", tar::EntryType::Directory),
            ("d/f", tar::EntryType::Regular),
            ("h", tar::EntryType::Link),
            ("l", tar::EntryType::Symlink),
            (long.as_str(), tar::EntryType::Regular),
        ];
        let names: Vec<_> = names.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        for (name, kind) in expected {
            // Which of two hard links comes first is the order of the walk.
            let same_file = |other: tar::EntryType| other.is_hard_link() || other.is_file();
            assert!(
                names.iter().any(|(other, found)| *other == name
                    && (*found == kind || same_file(*found) && same_file(kind))),
                "{name} in {names:?}"
            );
        }
    });
}

#[test]
fn an_archive_cannot_leave_its_folder() {
    with_agent("confined", |agent| async move {
        let host = agent.connect().await;
        let outside = agent.folder.join("outside");
        std::fs::create_dir(&outside).unwrap();
        let link = outside.display().to_string();
        let file = |name: &str| (tar::EntryType::Regular, name.to_string(), String::new());
        let symlink = |name: &str, to: &str| (tar::EntryType::Symlink, name.to_string(), to.to_string());
        let hard = |name: &str, to: &str| (tar::EntryType::Link, name.to_string(), to.to_string());
        let attacks = [
            vec![file("../evil")],
            vec![file("a/../../evil")],
            vec![symlink("s", &link), file("s/evil")],
            vec![symlink("s", ".."), file("s/evil")],
            vec![symlink("s", "t"), symlink("t", "../.."), file("s/evil")],
            vec![hard("h", "../secret")],
            vec![symlink("s", ".."), hard("h", "s/secret")],
        ];
        std::fs::write(agent.root().join("secret"), "secret").unwrap();
        for (number, attack) in attacks.iter().enumerate() {
            let bytes = archive(|tar| {
                for (kind, name, link) in attack {
                    let size = if kind.is_file() { 4 } else { 0 };
                    tar.append(&entry(*kind, name, link, size), &b"evil"[..size as usize]).unwrap();
                }
            });
            let answer = host.call("PUT", &format!("/tar?path=/box{number}"), bytes).await;
            assert_eq!(answer.json()["code"], "EXDEV", "attack {number}: {}", answer.text());
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!agent.root().join("evil").exists() && !agent.folder.join("evil").exists());
        // A link that stays inside is an ordinary thing.
        let bytes = archive(|tar| {
            tar.append(&entry(tar::EntryType::Directory, "real/", "", 0), std::io::empty()).unwrap();
            tar.append(&entry(tar::EntryType::Symlink, "s", "real", 0), std::io::empty()).unwrap();
            tar.append(&entry(tar::EntryType::Regular, "s/f", "", 2), &b"ok"[..]).unwrap();
        });
        assert_eq!(host.call("PUT", "/tar?path=/inside", bytes).await.status, 200);
        assert_eq!(std::fs::read(agent.root().join("inside/real/f")).unwrap(), b"ok");
    });
}

#[test]
fn a_cut_archive_is_an_error() {
    with_agent("cut", |agent| async move {
        let host = agent.connect().await;
        let mut bytes = archive(|tar| {
            tar.append(&entry(tar::EntryType::Regular, "f", "", 4), &b"data"[..]).unwrap();
        });
        bytes.truncate(514);
        assert!(host.call("PUT", "/tar?path=/cut", bytes).await.status >= 400);
        assert!(!agent.root().join("cut/f").exists());
    });
}

#[test]
fn a_port_is_reached_with_both_directions_ended_apart() {
    with_agent("port", |agent| async move {
        let host = agent.connect().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            all.reverse();
            stream.write_all(&all).await.unwrap();
        });
        let answer = host.call("POST", &format!("/connect?port={port}"), "abc").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "cba"));
        server.await.unwrap();
        let refused = host.call("POST", &format!("/connect?port={port}"), "").await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (502, Some("ECONNREFUSED")));
    });
}

#[test]
fn a_half_line_and_junk_on_ctl_do_no_harm() {
    with_agent("junk", |agent| async move {
        let mut dead = connect_when_there(&agent.folder.join("ctl.sock")).await;
        dead.write_all(b"RESET 0123").await.unwrap();
        drop(dead);
        let mut junk = connect_when_there(&agent.folder.join("ctl.sock")).await;
        junk.write_all(&[b'x'; 10_000]).await.unwrap();
        let host = agent.connect().await;
        assert_eq!(host.get("/health").await.json()["initialised"], false);
        // A connection to data without a RESET changes nothing.
        let mut idle = connect_when_there(&agent.folder.join("data.sock")).await;
        idle.write_all(b"PRI * HTTP/2.0").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(host.get("/health").await.status, 200);
    });
}

#[test]
fn fixups_give_a_new_name() {
    with_agent("fixups", |agent| async move {
        let host = agent.initialised(json!({})).await;
        let identity = json!({ "hostname": "other", "machineId": "0".repeat(32), "sandboxId": "sb2",
                               "env": { "OF": "copy" } });
        let fixups = json!({ "timeUnixMs": 1, "entropyBase64": "A".repeat(44), "identity": identity });
        let answer = host.call("POST", "/fixups", fixups.to_string()).await;
        assert_eq!(answer.status, 200);
        assert!(answer.json()["timeUnixMs"].as_f64().unwrap() > 1e12);
        assert_eq!(host.run(&["sh", "-c", "echo $HOSTNAME $OF"]).await.stdout, "other copy\n");
        // Without an identity it stays who it is.
        let same = json!({ "timeUnixMs": 1, "entropyBase64": "A".repeat(44) });
        assert_eq!(host.call("POST", "/fixups", same.to_string()).await.status, 200);
        assert_eq!(host.run(&["sh", "-c", "echo $HOSTNAME"]).await.stdout, "other\n");
        let weak = json!({ "timeUnixMs": 1, "entropyBase64": "AAAA" });
        assert_eq!(host.call("POST", "/fixups", weak.to_string()).await.status, 400);
        assert_eq!(host.call("POST", "/warm", "").await.status, 200);
        for call in ["/freeze", "/thaw"] {
            assert_eq!(host.call("POST", call, "").await.status, 200);
        }
    });
}
