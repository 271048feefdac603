//! Puts all mutants into one text, so that one build has them all: a function that mutants change gets
//! a body for each of them, and the number of the mutant that a process runs chooses among these.
//!
//! ```text
//! fn f(&self) -> bool {
//!     if crate::mutants::is(7) {
//!         <the body with the seventh mutant>
//!     } else {
//!         <the body as it is>
//!     }
//! }
//! ```
//!
//! All other functions stay as they are. The text is as rustfmt leaves it: a function ends at the first line that has
//! only a brace, indented as its first line.

use std::collections::BTreeMap;
use std::ops::Range;

use super::patches::Mutant;

/// The module that knows which mutant runs. [`VARIABLE`] has its number; without the variable none does.
pub(crate) const MODULE: &str = r#"
mod mutants {
    pub(crate) fn is(mutant: u32) -> bool {
        static RUNS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let number = || std::env::var("WINDLASS_MUTANT").ok()?.parse().ok();
        *RUNS.get_or_init(|| number().unwrap_or(0)) == mutant
    }
}
"#;

/// The environment variable with the number of the mutant.
pub(crate) const VARIABLE: &str = "WINDLASS_MUTANT";

/// The number of the mutant at a place of the list. 0 is none.
pub(crate) fn number(at: usize) -> usize {
    at + 1
}

/// A file with all mutants in it.
///
/// # Errors
///
/// The mutant that does not apply, and why.
pub(crate) fn weave(file: &str, text: &str, all: &[Mutant]) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = BTreeMap::new();
    for (at, mutant) in all.iter().enumerate() {
        let explain = |why| format!("{}: {why} in {file}", mutant.name);
        let bodies = bodies(file, &lines, mutant).map_err(explain)?;
        for ((start, end), body) in bodies {
            let function: &mut Vec<_> = functions.entry((start, end)).or_default();
            function.push((number(at), body));
        }
    }
    Ok(woven(&lines, &functions))
}

/// The functions by their bodies' first lines and the lines behind these, with the bodies of mutants.
type Functions = BTreeMap<(usize, usize), Vec<(usize, String)>>;

fn woven(lines: &[&str], functions: &Functions) -> String {
    let mut out = Vec::new();
    let mut done = 0;
    for (&(start, end), mutants) in functions {
        out.extend(lines[done..start].iter().map(|line| (*line).to_owned()));
        for (number, body) in mutants {
            out.push(format!("if crate::mutants::is({number}) {{"));
            out.push(body.clone());
            out.push("} else".to_owned());
        }
        out.push("{".to_owned());
        out.extend(lines[start..end].iter().map(|line| (*line).to_owned()));
        out.push("}".to_owned());
        done = end;
    }
    out.extend(lines[done..].iter().map(|line| (*line).to_owned()));
    out.join("\n") + "\n"
}

/// The bodies that a mutant changes, with its changes.
fn bodies(
    file: &str,
    lines: &[&str],
    mutant: &Mutant,
) -> Result<BTreeMap<(usize, usize), String>, String> {
    let mut bodies = BTreeMap::new();
    for change in mutant.changes.iter().filter(|change| change.file == file) {
        let places = change.places(lines);
        let &[at] = &places[..] else {
            return Err(format!("its lines are {} times", places.len()));
        };
        let body = body_around(lines, change.changed(at)).ok_or("a change is in no function")?;
        let as_it_is = || lines[body.clone()].join("\n");
        let text = bodies
            .entry((body.start, body.end))
            .or_insert_with(as_it_is);
        *text = change
            .without_lines_outside(at, &body)
            .apply(text)
            .map_err(|n| format!("its lines are {n} times in one function"))?;
    }
    Ok(bodies)
}

/// The lines of the body of the innermost function around these lines.
fn body_around(lines: &[&str], changed: Range<usize>) -> Option<Range<usize>> {
    (0..=changed.start).rev().find_map(|start| {
        let end = end_of_function(lines, start)?;
        let opens = (start..end).find(|&at| lines[at].ends_with('{'))?;
        (opens < changed.start && changed.end <= end).then_some(opens + 1..end)
    })
}

/// The line that ends the function that begins here, if one does.
fn end_of_function(lines: &[&str], start: usize) -> Option<usize> {
    let line = lines[start];
    let code = line.trim_start();
    let is_function = code
        .split(' ')
        .take_while(|word| !word.contains(['=', ';', '"']))
        .any(|word| word == "fn");
    let last = line[..line.len() - code.len()].to_owned() + "}";
    let is_item = is_function && !code.starts_with("//") && !line.ends_with([';', '}']);
    is_item.then(|| (start..lines.len()).find(|&at| lines[at] == last))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patches::parse;

    const TEXT: &str = "impl A {\n    fn f(\n        &self,\n    ) -> u32 {\n        let a = 1;\n        a\n    }\n\n    fn g() {\n        two();\n    }\n}\n";

    fn weave_one(change: &str) -> Result<String, String> {
        let text = format!("Protocol: p\nCheckers: unit a\n\n== m\nWrong.\n--- f\n{change}\n");
        weave("f", TEXT, &parse("g", &text))
    }

    #[test]
    fn a_function_has_a_body_for_each_mutant() {
        let woven = weave_one("-let a = 1;\n+let a = 2;").expect("applies");
        let body = "    ) -> u32 {\nif crate::mutants::is(1) {\nlet a = 2;\n        a\n} else\n{\n        let a = 1;\n        a\n}\n    }\n";
        assert!(woven.contains(body), "{woven}");
    }

    #[test]
    fn a_change_may_show_what_stands_before_the_body() {
        let woven = weave_one(" fn g() {\n-two();").expect("applies");
        let body =
            "    fn g() {\nif crate::mutants::is(1) {\n\n} else\n{\n        two();\n}\n    }\n";
        assert!(woven.contains(body), "{woven}");
    }

    #[test]
    fn a_change_outside_of_functions_is_refused() {
        let why = weave_one("-impl A {\n+impl B {").expect_err("does not apply");
        assert_eq!(why, "m: a change is in no function in f");
    }
}
