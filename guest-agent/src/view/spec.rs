//! What a view was asked to be: the JSON form of the contract, brought to one form so that equal wishes are
//! the same view, and refused where they make no sense.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

/// Paths of each list, and bytes and folders of each path.
const PATHS_MAX: usize = 64;
const PATH_MAX_BYTES: usize = 4_095;
const PATH_MAX_DEPTH: usize = 64;
/// What a sealed view has of its own.
const OWN_IN_SEALED: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];
/// What a view with private temporary files has of its own.
pub const PRIVATE_TMP: [&str; 2] = ["/tmp", "/var/tmp"];

/// How much a view holds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Strength {
    /// A mount namespace: root inside can undo it.
    Mask,
    /// Everything of its own, ids included: root inside has no way back.
    Sealed,
}

/// What network a view has.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Network {
    /// A namespace with a link to the machine.
    Own,
    /// A namespace with loopback alone.
    None,
    /// The machine's.
    Machine,
}

/// A view as it is asked for (`GuestView` in the contract).
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ViewSpec {
    /// How much it holds.
    pub strength: Strength,
    /// Paths that look empty.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Paths that cannot be written.
    #[serde(default)]
    pub readonly: Vec<String>,
    /// Temporary folders of its own.
    #[serde(default)]
    pub private_tmp: bool,
    /// Its network; absent: the strength's default.
    pub network: Option<Network>,
}

impl ViewSpec {
    /// It is sealed.
    pub fn is_sealed(&self) -> bool {
        self.strength == Strength::Sealed
    }

    /// All its paths: first those to hide.
    pub fn paths(&self) -> impl Iterator<Item = &String> {
        self.hide.iter().chain(&self.readonly)
    }

    /// Its one form; the error says what makes no sense.
    pub fn canonical(&self) -> Result<ViewSpec, String> {
        let mut canonical = self.clone();
        for list in [&mut canonical.hide, &mut canonical.readonly] {
            list.sort();
            list.dedup();
        }
        let network = match (self.strength, self.network) {
            (Strength::Sealed, None) => Network::Own,
            (Strength::Mask, None) => Network::Machine,
            (Strength::Sealed, Some(Network::Machine)) => {
                return Err("a sealed view cannot have the machine's network: it would hold nothing. Take own or none".to_string());
            }
            (Strength::Mask, Some(Network::Own | Network::None)) => {
                return Err("a mask has the machine's network: take a sealed view for another".to_string());
            }
            (_, Some(network)) => network,
        };
        canonical.network = Some(network);
        canonical.check_paths()?;
        Ok(canonical)
    }

    fn check_paths(&self) -> Result<(), String> {
        if self.hide.len() > PATHS_MAX || self.readonly.len() > PATHS_MAX {
            return Err(format!("a view takes {PATHS_MAX} paths of each kind: name folders above them"));
        }
        for path in self.paths() {
            if path.len() > PATH_MAX_BYTES || Path::new(path).components().count() > PATH_MAX_DEPTH {
                return Err(format!(
                    "a path of a view has at most {PATH_MAX_BYTES} bytes and {PATH_MAX_DEPTH} folders"
                ));
            }
            if !is_normal(path) {
                return Err(format!(
                    "{path:?} must be an absolute path without \".\", \"..\", double or trailing slashes"
                ));
            }
            if self.is_sealed() && OWN_IN_SEALED.iter().any(|own| is_at_or_below(path, own)) {
                return Err(format!("{path}: a sealed view has {} of its own", OWN_IN_SEALED.join(", ")));
            }
            if self.private_tmp && PRIVATE_TMP.iter().any(|own| is_at_or_below(path, own)) {
                return Err(format!("{path}: a view with a private /tmp has it of its own"));
            }
        }
        if self.hide.iter().any(|path| path == "/") {
            return Err("a view without any file runs nothing: name folders to hide".to_string());
        }
        if !self.is_sealed() && self.readonly.iter().any(|path| path == "/") {
            return Err("a mask cannot make / read-only: name folders, or take a sealed view".to_string());
        }
        Ok(())
    }
}

/// `path` is `folder` or lies in it.
pub fn is_at_or_below(path: &str, folder: &str) -> bool {
    Path::new(path).starts_with(folder)
}

fn is_normal(path: &str) -> bool {
    let clean: std::path::PathBuf = Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        .collect();
    path.starts_with('/') && clean.as_os_str() == path && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ViewSpec, String> {
        serde_json::from_str::<ViewSpec>(json).map_err(|error| error.to_string())?.canonical()
    }

    #[test]
    fn order_and_repetition_do_not_matter() {
        let one = parse(r#"{"strength":"sealed","hide":["/b","/a","/b"],"network":"own"}"#).unwrap();
        let two = parse(r#"{"strength":"sealed","hide":["/a","/b"],"privateTmp":false}"#).unwrap();
        assert_eq!(one, two);
        assert_ne!(one, parse(r#"{"strength":"mask","hide":["/a","/b"]}"#).unwrap());
    }

    #[test]
    fn paths_must_be_normal() {
        for path in ["a", "/a/", "//a", "/a/./b", "/a/../b", "", "/.."] {
            let json = format!(r#"{{"strength":"mask","hide":["{path}"]}}"#);
            assert!(parse(&json).unwrap_err().contains("absolute"), "{path}");
        }
        assert!(parse(r#"{"strength":"mask","hide":["/a\u0000b"]}"#).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for json in [
            r#"{"strength":"sealed","hide":["/run/x"]}"#,
            r#"{"strength":"sealed","hide":["/"]}"#,
            r#"{"strength":"mask","readonly":["/"]}"#,
            r#"{"strength":"sealed","network":"machine"}"#,
            r#"{"strength":"mask","network":"none"}"#,
            r#"{"strength":"sealed","privateTmp":true,"hide":["/tmp/x"]}"#,
            r#"{"strength":"glass"}"#,
            r#"{"strength":"mask","hid":["/a"]}"#,
        ] {
            assert!(parse(json).is_err(), "{json}");
        }
        assert!(parse(r#"{"strength":"sealed","readonly":["/"],"hide":["/runner"]}"#).is_ok());
    }
}
