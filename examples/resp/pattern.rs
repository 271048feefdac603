//! Patterns of keys: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before a character that means itself.

/// Whether the whole text matches. The time is at most the product of both lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The position behind the last star, and the first byte that the star does not cover yet.
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
        } else if let Some(n) = match_byte(&pattern[p..], text[t]) {
            p += n;
            t += 1;
        } else if let Some((behind, covered)) = star {
            star = Some((behind, covered + 1));
            (p, t) = (behind, covered + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The length of the first element of the pattern, if it matches the byte.
fn match_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => {
            let (n, matches) = match_class(pattern, byte);
            matches.then_some(n)
        }
        [b'\\', literal, ..] => (literal == byte).then_some(2),
        [literal, ..] => (literal == byte).then_some(1),
    }
}

/// As [`match_byte`] for a class, which ends at the latest with the pattern.
fn match_class(pattern: &[u8], byte: u8) -> (usize, bool) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    let mut matches = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b'\\', literal, ..] => {
                matches |= literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                matches |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                matches |= literal == byte;
                at += 1;
            }
        }
    }
    (at, matches != is_negated)
}
