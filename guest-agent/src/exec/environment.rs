//! The environment of commands: system < image < create < secrets < exec. HOME comes from the user's
//! account unless any of these set it.

use serde::{Deserialize, Serialize};

/// Variables in the order in which they were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// Sets or replaces a variable. Names that cannot be in an environment are ignored: empty ones, and
    /// those with `=` or NUL; a value with NUL likewise.
    pub fn set(&mut self, name: &str, value: &str) {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value.to_string(),
            None => self.0.push((name.to_string(), value.to_string())),
        }
    }

    /// Sets a variable that is not there yet.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }

    /// Sets all of `NAME=value`; an entry without `=` sets nothing.
    pub fn set_lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a String>) {
        for line in lines {
            if let Some((name, value)) = line.split_once('=') {
                self.set(name, value);
            }
        }
    }

    /// Sets all pairs.
    pub fn set_all<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a String, &'a String)>) {
        for (name, value) in pairs {
            self.set(name, value);
        }
    }

    /// Value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// As the kernel takes them.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_settings_win_and_keep_the_place() {
        let mut environment = Environment::default();
        environment.set("PATH", "/bin");
        environment.set_lines(&["A=1=2".to_string(), "PATH=/x".to_string(), "broken".to_string()]);
        let lines: Vec<String> = environment.lines().collect();
        assert_eq!(lines, ["PATH=/x", "A=1=2"]);
    }

    #[test]
    fn impossible_names_are_ignored() {
        let mut environment = Environment::default();
        environment.set("", "x");
        environment.set("A=B", "x");
        environment.set("N", "a\0b");
        assert_eq!(environment, Environment::default());
    }

    #[test]
    fn defaults_do_not_replace() {
        let mut environment = Environment::default();
        environment.set("HOME", "");
        environment.set_default("HOME", "/root");
        assert_eq!(environment.get("HOME"), Some(""));
    }
}
