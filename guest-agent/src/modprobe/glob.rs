//! Shell patterns as in `modules.alias`: `*`, `?`, `[abc]`, `[a-z]`, `[!a]`.

/// The whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at_pattern, mut at_text) = (0, 0);
    // Where to go back to when a star must take one byte more.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at_pattern < pattern.len() && pattern[at_pattern] == b'*' {
            at_pattern += 1;
            star = Some((at_pattern, at_text));
            continue;
        }
        if at_pattern == pattern.len() && at_text == text.len() {
            return true;
        }
        let step = if at_text < text.len() { match_one(&pattern[at_pattern..], text[at_text]) } else { None };
        match (step, star) {
            (Some(length), _) => {
                at_pattern += length;
                at_text += 1;
            }
            (None, Some((after_star, taken))) if taken < text.len() => {
                star = Some((after_star, taken + 1));
                (at_pattern, at_text) = (after_star, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Length of the pattern element that matches the byte.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match_set(pattern, byte),
        literal => (literal == byte).then_some(1),
    }
}

fn match_set(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut found = false;
    while at < pattern.len() && (pattern[at] != b']' || at == first) {
        let low = pattern[at];
        let range = pattern.get(at + 1) == Some(&b'-') && !matches!(pattern.get(at + 2), None | Some(b']'));
        let high = if range { pattern[at + 2] } else { low };
        found |= (low..=high).contains(&byte);
        at += if range { 3 } else { 1 };
    }
    // A set that is never closed matches nothing.
    (at < pattern.len() && found != negated).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        assert!(matches("fs-ext4", "fs-ext4"));
        assert!(matches("pci:v00001AF4d*sv*", "pci:v00001AF4d00001000sv00001AF4"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "aXbYbZc"));
        assert!(matches("usb:v[0-9A-F]p?", "usb:vAp1"));
        assert!(matches("[!a]b", "xb"));
        assert!(!matches("[!a]b", "ab"));
        assert!(!matches("a*b", "abc"));
        assert!(!matches("a?", "a"));
        assert!(!matches("", "a"));
        assert!(!matches("[ab", "a"));
        assert!(matches("[]]", "]"));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(30) + "b";
        assert!(!matches(&pattern, &"a".repeat(2000)));
    }
}
