//! The lines in which a port differs from the original, and what the guide says of them.

/// The guide's page.
const PAGE: &str = include_str!("../../../../docs/guide/ports.md");

/// The lines that differ, with `-` and `+` before them, as `diff --unified=0` has them.
fn diff(before: &str, after: &str) -> Vec<String> {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    // The lengths of the longest common subsequences of what begins at a pair of lines.
    let mut common = vec![vec![0; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i][j] = match before[i] == after[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || i < before.len() && common[i + 1][j] >= common[i][j + 1] {
            lines.push(format!("-{}", before[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", after[j]));
            j += 1;
        }
    }
    lines
}

/// Only `use` lines change, and the attribute is put before `main`. The guide shows it all.
#[track_caller]
fn differs_as_the_guide_says(original: &str, port: &str) {
    let lines = diff(original, port);
    let (uses, others): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line[1..].starts_with("use "));
    assert!(!uses.is_empty());
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(others[0].starts_with("+#[windlass::main("), "{others:?}");
    let block = format!("```diff\n{}\n```\n", lines.join("\n"));
    assert!(PAGE.contains(&block), "not in the guide:\n{block}");
}

#[test]
fn the_key_value_server() {
    let port = include_str!("../../kv/main.rs");
    differs_as_the_guide_says(include_str!("../../kv/threads.rs"), port);
}

#[test]
fn the_md5_walk() {
    let port = include_str!("../../md5_walk/main.rs");
    differs_as_the_guide_says(include_str!("../../md5_walk/threads.rs"), port);
}

/// The lines of the chat server in the guide are in the programs.
#[test]
fn the_chat_server() {
    let go = include_str!("../../chat/chat.go");
    let rust = include_str!("../../chat/main.rs");
    for (language, source) in [("go", go), ("rust,ignore", rust)] {
        let begin = format!("```{language}\n");
        let blocks: Vec<_> = PAGE.split(&begin).skip(1).collect();
        assert!(!blocks.is_empty(), "no block of {language}");
        for block in blocks {
            let (code, _) = block.split_once("```\n").unwrap();
            assert!(source.contains(code), "not in the program:\n{code}");
        }
    }
}

#[test]
fn differences_are_found() {
    assert_eq!(diff("a\nb\nc\n", "a\nc\nd\n"), ["-b", "+d"]);
    assert_eq!(diff("a\n", "a\n"), <[String; 0]>::default());
    assert_eq!(diff("", "x\ny\n"), ["+x", "+y"]);
}
