//! JSON that is indented, with each list of numbers on one line.
//!
//! A steal order is little else than such lists: with one number a line, that of 2,048 Ps has
//! millions of lines.

use serde::Serialize;

/// The value as JSON that ends with a newline.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain values are JSON");
    let mut folded = fold_number_lists(&text);
    folded.push('\n');
    folded
}

/// Joins the lines of each list that holds only numbers and nulls. Strings cannot be mistaken for
/// lists: JSON has no newline in a string.
fn fold_number_lists(pretty: &str) -> String {
    let mut out = String::with_capacity(pretty.len() / 2);
    let mut lines = pretty.lines().peekable();
    while let Some(line) = lines.next() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(line);
        let opens_list = line.ends_with('[');
        if !opens_list || lines.peek().is_none_or(|item| !is_number(item)) {
            continue;
        }
        // The items of a list have one type, or are null.
        let mut separator = "";
        while let Some(item) = lines.next_if(|item| is_number(item)) {
            out.push_str(separator);
            out.push_str(item.trim().trim_end_matches(','));
            separator = ", ";
        }
        if let Some(end) = lines.next_if(|line| line.trim_start().starts_with(']')) {
            out.push_str(end.trim_start());
        } else {
            out.push(','); // another item follows on its own line
        }
    }
    out
}

fn is_number(line: &str) -> bool {
    let item = line.trim().trim_end_matches(',');
    item == "null" || item.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_one_line_and_mean_the_same() {
        let value = serde_json::json!({
            "empty": [], "one": [1], "rows": [[1, 2], [null, -3.5]], "text": "[",
            "names": ["1", "a"], "objects": [{"n": [1, 2]}, {"n": []}], "mixed": [1, "two", [3]],
        });
        let text = to_json(&value);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
        assert!(text.contains("\"one\": [1],\n"), "{text}");
        assert!(text.contains("[1, 2],\n    [null, -3.5]\n"), "{text}");
    }
}
