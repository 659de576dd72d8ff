//! Lines of the `ctl` port. Only `RESET <32 hex>` means something; everything else, such as the half
//! line of a host that died, is dropped at the next newline.

/// Longest line kept; longer ones are junk.
const LINE_MAX_BYTES: usize = 256;

/// Collects bytes and finds RESET lines in them.
#[derive(Default)]
pub struct ResetReader {
    line: Vec<u8>,
    overlong: bool,
}

impl ResetReader {
    /// Takes the next bytes; returns the nonce of the last complete RESET line among them, because
    /// only the newest host counts.
    pub fn push(&mut self, bytes: &[u8]) -> Option<String> {
        let mut newest = None;
        for &byte in bytes {
            if byte == b'\n' {
                if !self.overlong {
                    newest = parse_reset(&self.line).or(newest);
                }
                self.line.clear();
                self.overlong = false;
            } else if self.line.len() < LINE_MAX_BYTES {
                self.line.push(byte);
            } else {
                self.overlong = true;
            }
        }
        newest
    }
}

/// Words after the nonce are options of later versions and are ignored.
fn parse_reset(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.trim_end_matches('\r').split(' ');
    if words.next() != Some("RESET") {
        return None;
    }
    let nonce = words.next()?;
    let is_hex = nonce.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (nonce.len() == 32 && is_hex).then(|| nonce.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn finds_a_reset_cut_into_single_bytes() {
        let mut reader = ResetReader::default();
        let line = format!("\nRESET {NONCE}\n");
        let found: Vec<_> = line.bytes().filter_map(|byte| reader.push(&[byte])).collect();
        assert_eq!(found, [NONCE]);
    }

    #[test]
    fn half_a_line_of_a_dead_host_does_no_harm() {
        let mut reader = ResetReader::default();
        assert_eq!(reader.push(b"RESET 0123"), None);
        assert_eq!(reader.push(format!("\nRESET {NONCE}\n").as_bytes()).as_deref(), Some(NONCE));
    }

    #[test]
    fn refuses_wrong_nonces_and_overlong_lines() {
        let mut reader = ResetReader::default();
        assert_eq!(reader.push(b"RESET 123\nRESET\nSYNC x\n"), None);
        assert_eq!(reader.push(b"RESET 0123456789ABCDEF0123456789ABCDEF\n"), None);
        let mut long = vec![b'x'; 100_000];
        long.push(b'\n');
        assert_eq!(reader.push(&long), None);
        assert_eq!(reader.push(format!("RESET {NONCE} win=1\n").as_bytes()).as_deref(), Some(NONCE));
    }

    #[test]
    fn the_newest_of_several_wins() {
        let other = "f".repeat(32);
        let text = format!("RESET {NONCE}\nRESET {other}\njunk\n");
        assert_eq!(ResetReader::default().push(text.as_bytes()), Some(other));
    }
}
