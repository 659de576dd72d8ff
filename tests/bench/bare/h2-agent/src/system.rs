//! What the bare agent does as process 1: mounts, modules, one command at a time.

use std::ffi::CString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Mounts what the agent needs and loads the modules that lead to virtio.
pub fn prepare() {
    for folder in ["/proc", "/sys", "/dev", "/mnt"] {
        let _ = std::fs::create_dir(folder);
    }
    mount("proc", "/proc", "proc");
    mount("sys", "/sys", "sysfs");
    mount("dev", "/dev", "devtmpfs");
    for module in std::fs::read_to_string("/modules.list")
        .unwrap_or_default()
        .lines()
    {
        let file = std::fs::File::open(module).expect("a listed module is in the initramfs");
        // SAFETY: a valid descriptor and an empty, terminated option string.
        unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                c"".as_ptr(),
                0,
            )
        };
    }
}

fn mount(source: &str, target: &str, kind: &str) -> i64 {
    let [source, target, kind] = [source, target, kind].map(|text| CString::new(text).expect("no NUL"));
    // SAFETY: three terminated strings and no data.
    unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
        .into()
    }
}

/// Mounts the machine's disk and what a shell needs below it, and moves this process into it: the
/// standard library then spawns without a copy of our memory (vfork).
pub fn mount_root() -> &'static str {
    if mount("/dev/vda", "/mnt", "ext4") != 0 {
        return "failed";
    }
    mount("proc", "/mnt/proc", "proc");
    mount("sys", "/mnt/sys", "sysfs");
    mount("dev", "/mnt/dev", "devtmpfs");
    // SAFETY: terminated strings.
    let entered = unsafe { libc::chroot(c"/mnt".as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 };
    if entered { "ok" } else { "failed" }
}

/// Runs a bash line (the gateway runs its commands by bash) in the mounted root. Its output, and its exit code.
pub fn run(line: &str) -> (Vec<u8>, i32) {
    let mut output = Vec::new();
    let spawned = Command::new("/bin/bash")
        .args(["-c", line])
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        // As the image says; without it bash loads no locale.
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        return (output, 126);
    };
    let _ = child
        .stdout
        .take()
        .expect("stdout is piped")
        .read_to_end(&mut output);
    let status = child.wait().expect("the child is ours");
    (
        output,
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
    )
}

/// The device of the port of this name; waits two seconds for it to appear.
pub fn find_port(name: &str) -> PathBuf {
    for _ in 0..400 {
        for entry in std::fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            let found = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if found.trim() == name {
                return PathBuf::from("/dev").join(entry.file_name());
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no virtio port is named {name}");
}
