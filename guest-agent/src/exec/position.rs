//! Where a client stands in the output of a session: how many bytes of each kind lie before, and how many
//! of these it never got. A client that says this when it comes back gets exactly what follows.

use serde::Serialize;

use super::frame::kind;
use crate::http::error::CallError;
use crate::http::query::Query;

/// Longest name of a reader.
const READER_MAX_BYTES: usize = 128;

/// Bytes of each kind, from the command's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offsets {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
    /// Of the terminal.
    pub pty: u64,
}

impl Offsets {
    /// The one of a frame kind that carries output.
    pub fn of(&mut self, frame_kind: u8) -> &mut u64 {
        match frame_kind {
            kind::STDERR => &mut self.stderr,
            kind::PTY => &mut self.pty,
            _ => &mut self.stdout,
        }
    }

    /// Bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.stdout + self.stderr + self.pty
    }

    /// Moved, kind by kind, to where there is output.
    pub fn within(&self, begin: &Offsets, end: &Offsets) -> Offsets {
        Offsets {
            stdout: self.stdout.clamp(begin.stdout, end.stdout),
            stderr: self.stderr.clamp(begin.stderr, end.stderr),
            pty: self.pty.clamp(begin.pty, end.pty),
        }
    }

    /// Bytes that lie after `earlier` and before this.
    pub fn since(&self, earlier: &Offsets) -> u64 {
        self.stdout.saturating_sub(earlier.stdout)
            + self.stderr.saturating_sub(earlier.stderr)
            + self.pty.saturating_sub(earlier.pty)
    }
}

/// A place in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Bytes before it.
    #[serde(flatten)]
    pub offsets: Offsets,
    /// Bytes before it that the client did not get.
    pub dropped: u64,
}

/// What a client that attaches says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// Its name: a repeated request is known by it, and takes the place of the first.
    pub reader: Option<String>,
    /// Where it stands; `None` when it has got nothing yet.
    pub received: Option<Position>,
    /// It confirms what it has got, and is sent no more than a window beyond that.
    pub confirms: bool,
}

impl Attachment {
    /// From the query of a call.
    pub fn from_query(query: &Query) -> Result<Attachment, CallError> {
        let reader = query.text("reader")?;
        if reader.is_some_and(|reader| reader.is_empty() || reader.len() > READER_MAX_BYTES) {
            return Err(CallError::invalid("reader must be 1 to 128 bytes"));
        }
        Ok(Attachment {
            reader: reader.map(str::to_string),
            received: position_of(query)?,
            confirms: query.text("confirms")? == Some("1"),
        })
    }
}

/// The position that a query names.
pub fn position_of(query: &Query) -> Result<Option<Position>, CallError> {
    let (stdout, stderr, pty) = (query.parsed("stdout")?, query.parsed("stderr")?, query.parsed("pty")?);
    if stdout.is_none() && stderr.is_none() && pty.is_none() {
        return Ok(None);
    }
    let number = |value: Option<u64>| match value.unwrap_or(0) {
        // JavaScript counts no further, and sums of these must not overflow.
        value if value < 1 << 53 => Ok(value),
        value => Err(CallError::invalid(format!("{value} bytes cannot be"))),
    };
    Ok(Some(Position {
        offsets: Offsets { stdout: number(stdout)?, stderr: number(stderr)?, pty: number(pty)? },
        dropped: number(query.parsed("dropped")?)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(query: &str) -> Result<Attachment, CallError> {
        Attachment::from_query(&Query::parse(Some(query))?)
    }

    #[test]
    fn a_client_may_say_nothing() {
        assert_eq!(attachment("").ok(), Some(Attachment::default()));
    }

    #[test]
    fn what_is_not_named_is_zero() {
        let attachment = attachment("reader=a&stderr=7&confirms=1").ok().unwrap();
        let offsets = Offsets { stderr: 7, ..Offsets::default() };
        assert_eq!(attachment.received, Some(Position { offsets, dropped: 0 }));
        assert_eq!((attachment.reader.as_deref(), attachment.confirms), (Some("a"), true));
    }

    #[test]
    fn nonsense_is_refused() {
        for query in ["stdout=-1", "stdout=x", "stdout=18446744073709551615", "reader=", "pty=1&dropped=z"] {
            assert!(attachment(query).is_err(), "{query}");
        }
    }
}
