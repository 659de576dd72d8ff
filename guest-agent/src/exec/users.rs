//! Who a command runs as, by Docker's rules: `name`, `uid`, `name:group`, `uid:gid`, looked up in the image's
//! /etc/passwd and /etc/group. A number needs no entry. Without a group the user's own is taken and the
//! groups that list the user are added; with one, only that.

use std::io;
use std::path::Path;

use crate::os;

/// Larger account files are not read.
const FILE_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The kernel's own limit of supplementary groups.
const GROUPS_MAX: usize = 65_536;
/// Largest id accepted, as in Docker.
const ID_MAX: u32 = i32::MAX as u32;

/// Ids and home of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home, if the account file knows one.
    pub home: Option<String>,
    /// Login name, if the account file knows one.
    pub name: Option<String>,
}

/// The account files of an image.
#[derive(Default)]
pub struct Accounts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

struct PasswdEntry<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
}

struct GroupEntry<'a> {
    name: &'a [u8],
    gid: u32,
    members: &'a [u8],
}

impl Accounts {
    /// Reads them; an image may have neither.
    pub fn read(root: &Path) -> io::Result<Accounts> {
        let read = |name: &str| match os::read_bounded(&root.join(name), FILE_MAX_BYTES) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                Ok(Vec::new())
            }
            other => other,
        };
        Ok(Accounts { passwd: read("etc/passwd")?, group: read("etc/group")? })
    }

    #[cfg(test)]
    fn from_text(passwd: &str, group: &str) -> Accounts {
        Accounts { passwd: passwd.as_bytes().to_vec(), group: group.as_bytes().to_vec() }
    }

    /// Finds a user; the error says what is unknown.
    pub fn find(&self, wanted: &str) -> Result<Identity, String> {
        let (user, group) = match wanted.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (wanted, None),
        };
        let user = if user.is_empty() { "0" } else { user };
        let number = parse_id(user);
        let entry = self.passwd_entry(|entry| entry.name == user.as_bytes() || Some(entry.uid) == number);
        let mut identity = match (&entry, number) {
            (Some(entry), _) => Identity {
                uid: entry.uid,
                gid: entry.gid,
                groups: Vec::new(),
                home: Some(String::from_utf8_lossy(entry.home).into_owned()).filter(|home| !home.is_empty()),
                name: Some(String::from_utf8_lossy(entry.name).into_owned()),
            },
            (None, Some(uid)) => Identity { uid, gid: 0, groups: Vec::new(), home: None, name: None },
            (None, None) => {
                return Err(format!("unknown user {user:?}: it is not in the image's /etc/passwd"));
            }
        };
        match group.filter(|group| !group.is_empty()) {
            Some(group) => identity.gid = self.find_group(group)?,
            None => {
                if let Some(entry) = &entry {
                    identity.groups = self.groups_of(entry.name);
                }
            }
        }
        // The primary one too: else a process could drop it and so pass a file mode that refuses the group.
        if !identity.groups.contains(&identity.gid) {
            identity.groups.insert(0, identity.gid);
        }
        Ok(identity)
    }

    /// Id of a group that the image knows by this name.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        self.groups().find(|entry| entry.name == name.as_bytes()).map(|entry| entry.gid)
    }

    fn find_group(&self, wanted: &str) -> Result<u32, String> {
        let number = parse_id(wanted);
        self.groups()
            .find(|entry| entry.name == wanted.as_bytes() || Some(entry.gid) == number)
            .map(|entry| entry.gid)
            .or(number)
            .ok_or_else(|| format!("unknown group {wanted:?}: it is not in the image's /etc/group"))
    }

    fn groups_of(&self, name: &[u8]) -> Vec<u32> {
        let lists_user =
            |entry: &GroupEntry<'_>| entry.members.split(|&byte| byte == b',').any(|member| member == name);
        let mut groups: Vec<u32> = self.groups().filter(lists_user).map(|entry| entry.gid).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(GROUPS_MAX);
        groups
    }

    fn passwd_entry(&self, matches: impl Fn(&PasswdEntry<'_>) -> bool) -> Option<PasswdEntry<'_>> {
        self.passwd
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let fields: Vec<&[u8]> = fields(line);
                let [name, _, uid, gid, _, home, ..] = fields[..] else {
                    return None;
                };
                Some(PasswdEntry { name, uid: parse_id_bytes(uid)?, gid: parse_id_bytes(gid)?, home })
            })
            .find(matches)
    }

    fn groups(&self) -> impl Iterator<Item = GroupEntry<'_>> {
        self.group.split(|&byte| byte == b'\n').filter_map(|line| {
            let fields: Vec<&[u8]> = fields(line);
            let [name, _, gid, members, ..] = fields[..] else {
                return None;
            };
            Some(GroupEntry { name, gid: parse_id_bytes(gid)?, members })
        })
    }
}

/// Comments and short lines give too few fields and are skipped by the callers.
fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.trim_ascii().split(|&byte| byte == b':').collect()
}

fn parse_id(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&id| id <= ID_MAX)
}

fn parse_id_bytes(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok().and_then(parse_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n# comment\nbroken\napp:x:1000:1001:App,,,:/home/app:/bin/sh\nnohome:x:7:7:::\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\naudio:x:29:other,app\nvideo:x:44:app\nlonely:x:50:apple\n";

    fn find(wanted: &str) -> Result<Identity, String> {
        Accounts::from_text(PASSWD, GROUP).find(wanted)
    }

    #[test]
    fn a_name_brings_group_home_and_supplementary_groups() {
        let identity = find("app").unwrap();
        assert_eq!((identity.uid, identity.gid), (1000, 1001));
        assert_eq!(identity.groups, [1001, 29, 44]);
        assert_eq!(identity.home.as_deref(), Some("/home/app"));
    }

    #[test]
    fn a_known_number_is_the_same_as_its_name() {
        assert_eq!(find("1000"), find("app"));
    }

    #[test]
    fn an_unknown_number_runs_with_group_0_and_no_home() {
        let identity = find("4242").unwrap();
        assert_eq!((identity.uid, identity.gid, identity.home), (4242, 0, None));
    }

    #[test]
    fn an_explicit_group_replaces_all_others() {
        let identity = find("app:video").unwrap();
        assert_eq!((identity.gid, identity.groups), (44, vec![44]));
        assert_eq!(find("4242:77").unwrap().gid, 77);
    }

    #[test]
    fn unknown_names_are_named() {
        assert!(find("nobody").unwrap_err().contains("nobody"));
        assert!(find("app:nogroup").unwrap_err().contains("nogroup"));
        assert!(find("99999999999").is_err());
        assert!(find("-1").is_err());
    }

    #[test]
    fn an_image_without_accounts_still_has_root() {
        let identity = Accounts::from_text("", "").find("").unwrap();
        assert_eq!((identity.uid, identity.gid, identity.home), (0, 0, None));
        assert!(Accounts::from_text("", "").find("root").is_err());
    }

    #[test]
    fn an_empty_home_is_no_home() {
        assert_eq!(find("nohome").unwrap().home, None);
    }
}
