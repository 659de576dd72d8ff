//! The tables that depmod makes: which file a module is, what it needs, what names it goes by.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::glob;
use crate::os;

/// Tables are a few megabytes at most.
const TABLE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The tables of one kernel version.
pub struct Tables {
    folder: PathBuf,
    dependencies: String,
    aliases: String,
    soft: String,
    builtin: String,
}

impl Tables {
    /// Reads them; only `modules.dep` has to exist.
    pub fn read(folder: &Path) -> io::Result<Tables> {
        let read = |name: &str| -> io::Result<String> {
            let bytes = os::read_bounded(&folder.join(name), TABLE_MAX_BYTES)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Tables {
            dependencies: read("modules.dep")?,
            aliases: read("modules.alias").unwrap_or_default(),
            soft: read("modules.softdep").unwrap_or_default(),
            builtin: read("modules.builtin").unwrap_or_default(),
            folder: folder.to_path_buf(),
        })
    }

    /// Where the module files lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernel has it without a module.
    pub fn is_builtin(&self, name: &str) -> bool {
        let name = normalise(name);
        self.builtin.lines().any(|path| module_name(path) == name)
    }

    /// Names of the modules behind a name: itself, or all that an alias stands for.
    pub fn find(&self, name: &str) -> Vec<String> {
        let wanted = normalise(name);
        if self.line_of(&wanted).is_some() {
            return vec![wanted];
        }
        let mut found = Vec::new();
        for line in self.aliases.lines() {
            let mut words = line.split_whitespace();
            let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let module = normalise(module);
            if alias_matches(pattern, &wanted) && !found.contains(&module) {
                found.push(module);
            }
        }
        found
    }

    /// Files to load for a module, in this order: what should be before it, what it needs, itself, what
    /// should be after it.
    pub fn load_order(&self, module: &str) -> Vec<PathBuf> {
        let mut order = Vec::new();
        self.add(module, &mut HashSet::new(), &mut order);
        order
    }

    fn add(&self, module: &str, seen: &mut HashSet<String>, order: &mut Vec<PathBuf>) {
        // The tables of a broken disk may name each other in a circle.
        if !seen.insert(module.to_string()) {
            return;
        }
        let Some(line) = self.line_of(module) else { return };
        let (pre, post) = self.soft_dependencies(module);
        for name in pre {
            self.add_optional(name, seen, order);
        }
        let (path, needed) = line.split_once(':').unwrap_or((line, ""));
        let needed: Vec<&str> = needed.split_whitespace().collect();
        for file in needed.into_iter().rev().chain([path]) {
            let file = PathBuf::from(file);
            if !order.contains(&file) {
                order.push(file);
            }
        }
        for name in post {
            self.add_optional(name, seen, order);
        }
    }

    fn add_optional(&self, name: &str, seen: &mut HashSet<String>, order: &mut Vec<PathBuf>) {
        for module in self.find(name) {
            self.add(&module, seen, order);
        }
    }

    /// Lines are `softdep module pre: a b post: c`.
    fn soft_dependencies(&self, module: &str) -> (Vec<&str>, Vec<&str>) {
        let (mut pre, mut post) = (Vec::new(), Vec::new());
        for line in self.soft.lines() {
            let mut words = line.split_whitespace();
            if words.next() != Some("softdep") || words.next().map(normalise).as_deref() != Some(module) {
                continue;
            }
            let mut before = true;
            for word in words {
                match word {
                    "pre:" => before = true,
                    "post:" => before = false,
                    name if before => pre.push(name),
                    name => post.push(name),
                }
            }
        }
        (pre, post)
    }

    fn line_of(&self, module: &str) -> Option<&str> {
        self.dependencies
            .lines()
            .find(|line| line.split_once(':').is_some_and(|(path, _)| module_name(path) == module))
    }
}

/// Most patterns differ before their first wildcard, which is cheap to see.
fn alias_matches(pattern: &str, wanted: &str) -> bool {
    let literal = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let same_start = wanted.len() >= literal
        && pattern
            .bytes()
            .zip(wanted.bytes())
            .take(literal)
            .all(|(one, two)| one == two || (one == b'-' && two == b'_'));
    same_start && glob::matches(&normalise_pattern(pattern), wanted)
}

/// Dashes and underscores are the same in names of modules.
pub fn normalise(name: &str) -> String {
    name.replace('-', "_")
}

/// The same in patterns, except inside sets, where a dash means a range.
fn normalise_pattern(pattern: &str) -> String {
    let mut in_set = false;
    pattern
        .chars()
        .map(|letter| {
            match letter {
                '[' => in_set = true,
                ']' => in_set = false,
                '-' if !in_set => return '_',
                _ => {}
            }
            letter
        })
        .collect()
}

/// Name of the module in a file: `kernel/net/foo-bar.ko.xz` is `foo_bar`.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    normalise(file.split(".ko").next().unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Tables {
        Tables {
            folder: PathBuf::from("/m"),
            dependencies: "kernel/a/top.ko.xz: kernel/a/mid-dle.ko.xz kernel/a/base.ko.xz\nkernel/a/mid-dle.ko.xz: kernel/a/base.ko.xz\nkernel/a/base.ko.xz:\nkernel/s/soft.ko.xz:\nkernel/s/after.ko.xz: kernel/s/soft.ko.xz\n".to_string(),
            aliases: "# comment\nalias net-pf-16-proto-12 top\nalias pci:v0000[0-9]d* mid_dle\nalias pci:v00001d* base\nalias fs-over-* after\n".to_string(),
            soft: "softdep top pre: soft post: after\n".to_string(),
            builtin: "kernel/fs/ext4/ext4.ko\nkernel/drivers/virtio-console.ko\n".to_string(),
        }
    }

    fn order(module: &str) -> Vec<String> {
        tables().load_order(module).iter().map(|path| module_name(&path.to_string_lossy())).collect()
    }

    #[test]
    fn names_with_dashes_and_underscores_are_the_same() {
        assert_eq!(tables().find("mid-dle"), ["mid_dle"]);
        assert_eq!(tables().find("mid_dle"), ["mid_dle"]);
        assert!(tables().is_builtin("virtio_console"));
        assert!(!tables().is_builtin("top"));
    }

    #[test]
    fn aliases_find_all_that_match() {
        assert_eq!(tables().find("net-pf-16-proto-12"), ["top"]);
        assert_eq!(tables().find("net_pf_16_proto_12"), ["top"]);
        assert_eq!(tables().find("pci:v00001d7"), ["mid_dle", "base"]);
        assert_eq!(tables().find("fs-over-lay"), ["after"]);
        assert!(tables().find("nothing").is_empty());
    }

    #[test]
    fn dependencies_come_first_and_only_once() {
        assert_eq!(order("mid_dle"), ["base", "mid_dle"]);
        assert_eq!(order("top"), ["soft", "base", "mid_dle", "top", "after"]);
    }

    #[test]
    fn circles_end() {
        let mut tables = tables();
        tables.soft = "softdep top pre: after\nsoftdep after pre: top\n".to_string();
        assert_eq!(tables.load_order("top").len(), 5);
    }
}
