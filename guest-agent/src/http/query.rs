//! Query strings: percent-decoded to bytes, because paths in a guest need not be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::CallError;

/// The parameters of one request.
pub struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// Reads the part after `?`.
    pub fn parse(query: Option<&str>) -> Result<Query, CallError> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((percent_decode(name)?, percent_decode(value)?));
        }
        Ok(Query(pairs))
    }

    /// Bytes of a parameter, if it was given.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// A parameter as text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, CallError> {
        self.bytes(name)
            .map(|bytes| std::str::from_utf8(bytes))
            .transpose()
            .map_err(|_| CallError::invalid(format!("query parameter {name} is not UTF-8")))
    }

    /// A parameter as a number or whatever else can be parsed.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, CallError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| CallError::invalid(format!("query parameter {name}: {text:?} is not valid")))
    }

    /// The same, but it has to be there.
    pub fn required<T: FromStr>(&self, name: &str) -> Result<T, CallError> {
        self.parsed(name)?.ok_or_else(|| CallError::invalid(format!("query parameter {name} is missing")))
    }

    /// The absolute path in `path`.
    pub fn path(&self) -> Result<PathBuf, CallError> {
        let bytes =
            self.bytes("path").ok_or_else(|| CallError::invalid("query parameter path is missing"))?;
        if bytes.first() != Some(&b'/') {
            return Err(CallError::invalid("path must be absolute"));
        }
        if bytes.contains(&0) {
            return Err(CallError::invalid("path contains a NUL byte"));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }
}

/// The segments of a path: an exec's id may hold anything.
pub fn decode_path(path: &str) -> Result<Vec<String>, CallError> {
    path.split('/')
        .filter(|segment| !segment.is_empty())
        // In a path a plus is a plus.
        .map(|segment| percent_decode(&segment.replace('+', "%2B")))
        .map(|bytes| String::from_utf8(bytes?).map_err(|_| CallError::invalid("the path is not UTF-8")))
        .collect()
}

fn percent_decode(text: &str) -> Result<Vec<u8>, CallError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next().unwrap_or(b'x'), bytes.next().unwrap_or(b'x')];
                let value = std::str::from_utf8(&digits)
                    .ok()
                    .filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                    .ok_or_else(|| CallError::invalid("query has a broken percent escape"))?;
                out.push(value);
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_bytes_that_are_not_utf8() {
        let query = Query::parse(Some("path=%2Fa%20b%ff&mode=0644")).unwrap();
        assert_eq!(query.bytes("path").unwrap(), b"/a b\xff");
        assert_eq!(query.text("mode").unwrap(), Some("0644"));
        assert!(query.text("path").is_err());
    }

    #[test]
    fn a_plus_is_a_space_and_an_escaped_plus_is_a_plus() {
        let query = Query::parse(Some("a=x+y%2Bz")).unwrap();
        assert_eq!(query.bytes("a").unwrap(), b"x y+z");
    }

    #[test]
    fn refuses_broken_escapes_relative_paths_and_nul() {
        assert!(Query::parse(Some("a=%zz")).is_err());
        assert!(Query::parse(Some("a=%4")).is_err());
        assert!(Query::parse(Some("path=etc")).unwrap().path().is_err());
        assert!(Query::parse(Some("path=/a%00b")).unwrap().path().is_err());
    }

    #[test]
    fn path_segments_are_decoded_one_by_one() {
        assert_eq!(decode_path("/exec/a%20b+c/attach").unwrap(), ["exec", "a b+c", "attach"]);
        assert_eq!(decode_path("/exec/a%2Fb").unwrap(), ["exec", "a/b"]);
        assert!(decode_path("/exec/%ff").is_err());
    }

    #[test]
    fn numbers() {
        let query = Query::parse(Some("n=-5&bad=x")).unwrap();
        assert_eq!(query.parsed::<i64>("n").unwrap(), Some(-5));
        assert!(query.parsed::<i64>("bad").is_err());
        assert!(query.required::<i64>("absent").is_err());
    }
}
