//! A refused call: HTTP status, the errno's name, and a sentence for a person (`GuestError` in the contract).

use std::borrow::Cow;
use std::io;

use http::StatusCode;
use serde::Serialize;

/// Why a call was refused.
#[derive(Debug)]
pub struct CallError {
    /// 4xx or 5xx.
    pub status: StatusCode,
    /// Name of an errno: what a program decides on.
    pub code: Cow<'static, str>,
    /// What failed and why.
    pub message: String,
}

/// Body of a refusal.
#[derive(Serialize)]
pub struct GuestError<'a> {
    code: &'a str,
    message: &'a str,
}

impl CallError {
    /// A refusal decided by the agent itself.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> CallError {
        CallError { status, code: Cow::Borrowed(code), message: message.into() }
    }

    /// The request itself is wrong.
    pub fn invalid(message: impl Into<String>) -> CallError {
        CallError::new(StatusCode::BAD_REQUEST, "EINVAL", message)
    }

    /// A system call failed while doing `action`.
    pub fn from_io(action: impl std::fmt::Display, error: &io::Error) -> CallError {
        let errno = error.raw_os_error().unwrap_or(0);
        let (name, status) = errno_table(errno);
        let reason = plain_reason(error);
        CallError { status, code: name, message: format!("{action}: {reason}") }
    }

    /// What is sent.
    pub fn body(&self) -> GuestError<'_> {
        GuestError { code: &self.code, message: &self.message }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for CallError {}

/// The kernel's words without Rust's " (os error N)".
pub fn plain_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

fn errno_table(errno: i32) -> (Cow<'static, str>, StatusCode) {
    let (name, status) = match errno {
        libc::ENOENT => ("ENOENT", StatusCode::NOT_FOUND),
        libc::ESRCH => ("ESRCH", StatusCode::NOT_FOUND),
        libc::EACCES => ("EACCES", StatusCode::FORBIDDEN),
        libc::EPERM => ("EPERM", StatusCode::FORBIDDEN),
        libc::EROFS => ("EROFS", StatusCode::FORBIDDEN),
        libc::EISDIR => ("EISDIR", StatusCode::CONFLICT),
        libc::ENOTDIR => ("ENOTDIR", StatusCode::CONFLICT),
        libc::EEXIST => ("EEXIST", StatusCode::CONFLICT),
        libc::ENOTEMPTY => ("ENOTEMPTY", StatusCode::CONFLICT),
        libc::EBUSY => ("EBUSY", StatusCode::CONFLICT),
        libc::ETXTBSY => ("ETXTBSY", StatusCode::CONFLICT),
        libc::EXDEV => ("EXDEV", StatusCode::CONFLICT),
        libc::EINVAL => ("EINVAL", StatusCode::BAD_REQUEST),
        libc::ELOOP => ("ELOOP", StatusCode::BAD_REQUEST),
        libc::ENAMETOOLONG => ("ENAMETOOLONG", StatusCode::BAD_REQUEST),
        libc::ENXIO => ("ENXIO", StatusCode::BAD_REQUEST),
        libc::EFBIG => ("EFBIG", StatusCode::PAYLOAD_TOO_LARGE),
        libc::ENOSPC => ("ENOSPC", StatusCode::INSUFFICIENT_STORAGE),
        libc::EDQUOT => ("EDQUOT", StatusCode::INSUFFICIENT_STORAGE),
        libc::EMFILE => ("EMFILE", StatusCode::SERVICE_UNAVAILABLE),
        libc::ENFILE => ("ENFILE", StatusCode::SERVICE_UNAVAILABLE),
        libc::ENOMEM => ("ENOMEM", StatusCode::SERVICE_UNAVAILABLE),
        libc::EAGAIN => ("EAGAIN", StatusCode::SERVICE_UNAVAILABLE),
        libc::ECONNREFUSED => ("ECONNREFUSED", StatusCode::BAD_GATEWAY),
        libc::EOPNOTSUPP => ("EOPNOTSUPP", StatusCode::BAD_REQUEST),
        libc::EIO => ("EIO", StatusCode::INTERNAL_SERVER_ERROR),
        0 => ("EIO", StatusCode::INTERNAL_SERVER_ERROR),
        other => return (Cow::Owned(format!("E{other}")), StatusCode::INTERNAL_SERVER_ERROR),
    };
    (Cow::Borrowed(name), status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_errnos_name_and_plain_words() {
        let error = CallError::from_io("write /a", &io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.code, "ENOSPC");
        assert_eq!(error.status, StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(error.message, "write /a: No space left on device");
    }

    #[test]
    fn unknown_errnos_keep_their_number() {
        assert_eq!(CallError::from_io("x", &io::Error::from_raw_os_error(libc::ENOTTY)).code, "E25");
    }
}
