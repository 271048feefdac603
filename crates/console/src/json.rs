//! Strings in JSON.

use std::fmt::Write as _;

/// `text` in quotes. Safe in a script element of a page, too.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            // `<` would end a script; the two separators end a line of JavaScript.
            // Control characters also mean something to a terminal.
            c if c.is_control() || matches!(c, '<' | '\u{2028}' | '\u{2029}') => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `text` in quotes, or `null`.
pub(crate) fn quoted_or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), quoted)
}

/// The values, separated by commas, in brackets.
pub(crate) fn array(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    format!("[{}]", values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive() {
        for text in [
            "",
            "plain",
            "a\"b\\c\n\t\u{1}\u{7f}\u{9b}",
            "</script>",
            "\u{2028}ü\u{1f600}",
        ] {
            let read: String = serde_json::from_str(&quoted(text)).unwrap();
            assert_eq!(read, text);
        }
        assert!(!quoted("</script>").contains('<'));
        assert!(!quoted("\u{1b}\u{7f}\u{9b}").contains(char::is_control));
        assert_eq!(array(["1".to_owned(), quoted_or_null(None)]), "[1,null]");
    }
}
