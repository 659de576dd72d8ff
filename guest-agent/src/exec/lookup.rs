//! Where a program lies: PATH lookup in the command's own environment, as `execvp` does it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// PATH where the image sets none: Docker's.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a shell usually is.
pub const BASH: &str = "/bin/bash";
/// Where every other one is.
pub const SH: &str = "/bin/sh";

/// Files to try in this order. A name with a slash is taken as it is. Others are searched in `path`;
/// only existing files are returned, so that an empty list means "command not found".
pub fn candidates(program: &str, path: &str, exists: impl Fn(&Path) -> bool) -> Vec<Vec<u8>> {
    if program.contains('/') {
        return vec![program.as_bytes().to_vec()];
    }
    if program.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for folder in path.split(':') {
        // An empty element means the working directory.
        let folder = if folder.is_empty() { "." } else { folder };
        let file = Path::new(folder).join(program);
        // Relative to a working directory that only the child will be in: let the kernel look.
        if file.is_relative() || exists(&file) {
            found.push(file.as_os_str().as_bytes().to_vec());
        }
    }
    found
}

/// The shell of an image: bash or sh in `/bin`, else on its PATH (images of Nix have them only there).
pub fn shell(path: &str, exists: impl Fn(&Path) -> bool) -> Option<String> {
    let usual = [BASH, SH].into_iter().find(|shell| exists(Path::new(shell))).map(str::to_string);
    usual.or_else(|| {
        let found = ["bash", "sh"].into_iter().flat_map(|name| candidates(name, path, &exists));
        // A name that is relative to some working directory is no shell of the image.
        found.filter_map(|file| String::from_utf8(file).ok()).find(|file| file.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(existing: &[&str], program: &str, path: &str) -> Vec<String> {
        candidates(program, path, |file| existing.iter().any(|known| Path::new(known) == file))
            .into_iter()
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect()
    }

    #[test]
    fn keeps_the_order_of_path() {
        let existing = ["/usr/bin/python3", "/custom/bin/python3"];
        assert_eq!(
            among(&existing, "python3", "/custom/bin:/usr/bin:/bin"),
            ["/custom/bin/python3", "/usr/bin/python3"]
        );
    }

    #[test]
    fn a_slash_needs_no_lookup() {
        assert_eq!(among(&[], "./run", "/bin"), ["./run"]);
        assert_eq!(among(&[], "/nix/store/x/sh", ""), ["/nix/store/x/sh"]);
    }

    #[test]
    fn nothing_found_is_empty() {
        assert!(among(&["/bin/ls"], "cat", "/bin:/usr/bin").is_empty());
        assert!(among(&["/bin/"], "", "/bin").is_empty());
    }

    #[test]
    fn empty_elements_mean_the_working_directory() {
        assert_eq!(among(&["/bin/x"], "x", ":/bin"), ["./x", "/bin/x"]);
    }

    #[test]
    fn a_shell_is_found_where_the_image_has_it() {
        let shell = |existing: &[&str], path: &str| {
            super::shell(path, |file| existing.iter().any(|known| Path::new(known) == file))
        };
        assert_eq!(shell(&["/bin/sh", "/bin/bash"], "").as_deref(), Some(BASH));
        assert_eq!(shell(&["/bin/sh", "/nix/bin/bash"], "/nix/bin").as_deref(), Some(SH));
        assert_eq!(shell(&["/nix/x/sh", "/nix/y/bash"], ":/nix/x:/nix/y").as_deref(), Some("/nix/y/bash"));
        assert_eq!(shell(&[], ":/bin"), None);
    }
}
