//! The names of a machine: hostname, hosts, resolver, machine-id. All are ordinary files, as on a real machine.

use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::os;

/// Address of every guest (network facts); without a network the name means loopback.
const GUEST_ADDRESS: &str = "10.0.2.15";
const LOOPBACK_ADDRESS: &str = "127.0.1.1";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Larger files of the image are not edited.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// More than this is no name.
const HOSTNAME_FILE_MAX_BYTES: u64 = 4096;
/// Longest name the kernel takes.
const HOSTNAME_MAX_BYTES: usize = 64;

/// Sets the kernel's hostname.
pub fn set_hostname(name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() > HOSTNAME_MAX_BYTES || name.contains(['\n', '\0', ' ', '\t']) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a buffer and its length.
    os::check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    Ok(())
}

/// The name that the machine's own `/etc/hostname` has, as a boot takes it: the first line that is no comment.
pub fn read_hostname() -> Option<String> {
    let text = os::read_bounded(Path::new("/etc/hostname"), HOSTNAME_FILE_MAX_BYTES).ok()?;
    first_name(&String::from_utf8_lossy(&text))
}

fn first_name(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).map(String::from)
}

/// Writes `/etc/hostname` and `/etc/hosts` of a new machine.
pub fn write_host_files(name: &str, has_network: bool) -> io::Result<()> {
    make_etc()?;
    write_over(Path::new("/etc/hostname"), format!("{name}\n").as_bytes(), 0o644)?;
    write_over(Path::new("/etc/hosts"), hosts_text(name, has_network).as_bytes(), 0o644)
}

fn hosts_text(name: &str, has_network: bool) -> String {
    let address = if has_network { GUEST_ADDRESS } else { LOOPBACK_ADDRESS };
    format!(
        "127.0.0.1\tlocalhost\n{address}\t{name}\n\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         ff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"
    )
}

/// Replaces the old name of a machine in the files it may have edited since.
pub fn rename_host_files(old: &str, new: &str) -> io::Result<()> {
    write_over(Path::new("/etc/hostname"), format!("{new}\n").as_bytes(), 0o644)?;
    let hosts = Path::new("/etc/hosts");
    let text = String::from_utf8_lossy(&os::read_bounded(hosts, FILE_MAX_BYTES)?).into_owned();
    write_over(hosts, rename_in_hosts(&text, old, new).as_bytes(), 0o644)
}

fn rename_in_hosts(text: &str, old: &str, new: &str) -> String {
    let mut renamed = String::new();
    for line in text.lines() {
        let is_entry = !line.trim_start().starts_with('#');
        if is_entry && line.split_whitespace().skip(1).any(|word| word == old) {
            let words: Vec<&str> =
                line.split_whitespace().map(|word| if word == old { new } else { word }).collect();
            renamed.push_str(&words.join("\t"));
        } else {
            renamed.push_str(line);
        }
        renamed.push('\n');
    }
    renamed
}

/// Writes `/etc/machine-id` where the image has one or is a distribution, and keeps dbus's copy equal.
pub fn write_machine_id(id: &str) -> io::Result<()> {
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let text = format!("{id}\n");
    let exists = |path: &str| Path::new(path).symlink_metadata().is_ok();
    if exists("/etc/machine-id") || exists("/etc/os-release") || exists("/usr/lib/os-release") {
        make_etc()?;
        write_over(Path::new("/etc/machine-id"), text.as_bytes(), 0o444)?;
    }
    let dbus = Path::new("/var/lib/dbus/machine-id");
    // A link to /etc/machine-id follows by itself.
    if dbus.symlink_metadata().is_ok_and(|found| found.is_file()) {
        write_over(dbus, text.as_bytes(), 0o644)?;
    }
    Ok(())
}

/// Id of the machine, where it has one.
pub fn read_machine_id() -> Option<String> {
    let bytes = os::read_bounded(Path::new("/etc/machine-id"), HOSTNAME_FILE_MAX_BYTES).ok()?;
    let id = String::from_utf8(bytes).ok()?.trim().to_string();
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// The machine has another id from now on: journals are in a folder with its name, where readers look, while a journald that
/// runs goes on to write by the name of before (systemd-journald.service(8)).
pub fn move_journals(roots: &[&str], old: &str, new: &str) -> io::Result<()> {
    for root in roots {
        let from = Path::new(root).join(old);
        if old == new || !from.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        std::fs::rename(&from, Path::new(root).join(new))?;
        std::os::unix::fs::symlink(new, &from)?;
    }
    Ok(())
}

fn make_etc() -> io::Result<()> {
    match std::fs::create_dir("/etc") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file anew; a link in its place is replaced by one. In place, not by renaming: nobody else is
/// there yet, and each further kind of operation costs a restored machine milliseconds. So it is not emptied
/// first either: ext4 gives such a file its blocks when it is closed, any other one later.
fn write_over(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let found = path.symlink_metadata();
    if found.as_ref().is_ok_and(|found| found.is_symlink()) {
        std::fs::remove_file(path)?;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_NOFOLLOW;
    let mut file = std::fs::File::from(os::open(path, flags, mode)?);
    file.write_all(content)?;
    if found.is_ok_and(|found| found.len() > content.len() as u64) {
        file.set_len(content.len() as u64)?;
    }
    Ok(())
}

/// Writes `/etc/resolv.conf` of a new machine, an ordinary file that can be edited, replaced and removed. A link
/// to a file, or into the `/run` that is empty yet, stays and is followed; any other is replaced.
pub fn write_resolv_conf(text: &str) -> io::Result<()> {
    make_etc()?;
    let path = Path::new(RESOLV_CONF);
    let Ok(target) = std::fs::read_link(path) else {
        return write_over(path, text.as_bytes(), 0o644);
    };
    if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return std::fs::write(path, text);
    }
    match place_in_run(&target) {
        Some(place) => {
            std::fs::create_dir_all(place.parent().unwrap_or(Path::new("/run")))?;
            write_over(&place, text.as_bytes(), 0o644)
        }
        None => write_over(path, text.as_bytes(), 0o644),
    }
}

/// The machine has a resolver file.
pub fn can_resolve() -> bool {
    std::fs::metadata(RESOLV_CONF).is_ok_and(|found| found.is_file())
}

/// Where a link of /etc leads, if that is below /run; without looking at the disk.
fn place_in_run(target: &Path) -> Option<PathBuf> {
    let mut place = PathBuf::from("/etc");
    for part in target.components() {
        match part {
            Component::RootDir => place = PathBuf::from("/"),
            Component::ParentDir => {
                place.pop();
            }
            Component::Normal(name) => place.push(name),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    (place.starts_with("/run") && place != Path::new("/run")).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_machine_keeps_what_was_edited() {
        let text = "127.0.0.1\tlocalhost\n10.0.2.15\told\n# old stays in a comment\n1.2.3.4 db oldish\n";
        assert_eq!(
            rename_in_hosts(text, "old", "new"),
            "127.0.0.1\tlocalhost\n10.0.2.15\tnew\n# old stays in a comment\n1.2.3.4 db oldish\n"
        );
    }

    #[test]
    fn hosts_know_localhost_in_both_families_and_the_name() {
        let text = hosts_text("box", true);
        assert!(text.contains("127.0.0.1\tlocalhost\n"));
        assert!(text.contains("::1\tlocalhost"));
        assert!(text.contains("10.0.2.15\tbox\n"));
    }

    #[test]
    fn journals_are_found_by_the_new_id_and_written_by_that_of_before() {
        let root = std::env::temp_dir().join(format!("sandlot-journals-{}", std::process::id()));
        let (first, last) = (root.join("1"), root.join("3"));
        std::fs::create_dir_all(&first).unwrap();
        let roots = [root.to_str().unwrap(), "/nonexistent"];
        move_journals(&roots, "1", "1").unwrap();
        assert!(first.symlink_metadata().unwrap().is_dir());
        for (old, new) in [("1", "2"), ("2", "3"), ("2", "3")] {
            move_journals(&roots, old, new).unwrap();
        }
        std::fs::write(first.join("system.journal"), "kept").unwrap();
        assert_eq!(std::fs::read_to_string(last.join("system.journal")).unwrap(), "kept");
        assert!(last.symlink_metadata().unwrap().is_dir());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_file_written_over_has_the_new_content_only() {
        let path = std::env::temp_dir().join(format!("sandlot-names-{}", std::process::id()));
        for (content, mode) in [("first and long", 0o644), ("second", 0o600), ("third, the longest", 0o600)] {
            write_over(&path, content.as_bytes(), mode).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nonexistent/target", &path).unwrap();
        write_over(&path, b"no link", 0o644).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn links_of_resolv_conf_into_run() {
        for (target, place) in [
            ("../run/systemd/resolve/stub-resolv.conf", Some("/run/systemd/resolve/stub-resolv.conf")),
            ("/run/resolvconf/resolv.conf", Some("/run/resolvconf/resolv.conf")),
            ("/usr/../run/x/resolv.conf", Some("/run/x/resolv.conf")),
            ("../run/../etc/shadow", None),
            ("resolvconf/run/resolv.conf", None),
            ("../runner/resolv.conf", None),
            ("/run", None),
        ] {
            assert_eq!(place_in_run(Path::new(target)).as_deref(), place.map(Path::new), "{target}");
        }
    }

    #[test]
    fn a_rebooted_machine_takes_the_name_from_its_file() {
        assert_eq!(first_name("# comment\n\n box \nother\n").as_deref(), Some("box"));
        assert_eq!(first_name("\n# only\n"), None);
    }

    #[test]
    fn impossible_hostnames_are_refused_before_the_kernel_is_asked() {
        assert!(set_hostname("").is_err());
        assert!(set_hostname("a b").is_err());
        assert!(set_hostname(&"x".repeat(65)).is_err());
    }
}
