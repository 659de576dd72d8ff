//! Command line of the agent. As process 1 it has none.

use std::path::PathBuf;

/// What the agent is asked to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the version.
    Version,
    /// Serve below a folder, without a machine.
    ServeFolder {
        /// Where `ctl.sock` and `data.sock` are made.
        socket_dir: PathBuf,
        /// The folder that stands for `/`.
        root: PathBuf,
        /// End when the parent process ends.
        die_with_parent: bool,
    },
}

/// Printed when the arguments make no sense.
pub const USAGE: &str = "usage: sandlot-agent --version
       sandlot-agent --socket-dir DIR --root DIR [--die-with-parent]
As process 1 of a guest it takes no arguments; named modprobe it loads kernel modules.";

/// Reads the arguments after the program's name.
pub fn parse(arguments: &[String]) -> Result<Command, String> {
    let (mut socket_dir, mut root, mut die_with_parent) = (None, None, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut folder =
            || rest.next().map(PathBuf::from).ok_or_else(|| format!("{argument} needs a folder"));
        match argument.as_str() {
            "--version" => return Ok(Command::Version),
            "--socket-dir" => socket_dir = Some(folder()?),
            "--root" => root = Some(folder()?),
            "--die-with-parent" => die_with_parent = true,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    match (socket_dir, root) {
        (Some(socket_dir), Some(root)) => Ok(Command::ServeFolder { socket_dir, root, die_with_parent }),
        _ => Err("--socket-dir and --root are both needed".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Command, String> {
        parse(&words.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_forms_of_the_usage_text() {
        assert_eq!(parse_words("--version"), Ok(Command::Version));
        assert_eq!(
            parse_words("--socket-dir /s --root /r --die-with-parent"),
            Ok(Command::ServeFolder { socket_dir: "/s".into(), root: "/r".into(), die_with_parent: true })
        );
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(parse_words("").is_err());
        assert!(parse_words("--root /r").is_err());
        assert!(parse_words("--root").is_err());
        assert!(parse_words("--frobnicate").is_err());
    }
}
