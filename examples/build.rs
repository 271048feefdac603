//! Takes the servers out of the documentation, so that the tests run them as their pages have them: each
//! whole program that listens becomes a module. Only its port is another one, a free one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The root of the repository.
const ROOT: &str = "..";
const FENCE: &str = "```";
const BIND: &str = "TcpListener::bind(\"127.0.0.1:";

fn main() {
    let (mut modules, mut names) = (String::new(), String::new());
    let mut pages = vec![Path::new(ROOT).join("README.md")];
    add_pages(&Path::new(ROOT).join("docs"), &mut pages);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ROOT}/docs");
    for page in pages {
        println!("cargo::rerun-if-changed={}", page.display());
        let text = fs::read_to_string(&page).expect("the page is text");
        for (line, program) in programs(&text) {
            let page = page.strip_prefix(ROOT).expect("it is below").display();
            let name = format!("{page}:{line}");
            let module = name
                .to_lowercase()
                .replace(|c: char| !c.is_alphanumeric(), "_");
            // Writing to a string cannot fail.
            let _ = writeln!(modules, "mod {module} {{\n{program}}}");
            let _ = writeln!(
                names,
                "(\"{name}\", || Termination::report({module}::main()), {}),",
                program.contains("windlass_hyper::")
            );
        }
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let text = format!(
        "{modules}\n/// The programs by page and line; whether each speaks HTTP.\n\
         const PROGRAMS: &[Page] = &[\n{names}];\n"
    );
    fs::write(out.join("pages.rs"), text).expect("the folder can be written to");
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder exists");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|e| e == "md") {
            pages.push(path);
        }
    }
}

/// The programs of a page that listen at a port, each with its line. Other whole programs are run as
/// doc tests, and those of other runtimes are not compiled.
fn programs(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix(FENCE) else {
            continue;
        };
        let block = lines.by_ref().map(|(_, line)| line);
        let block: Vec<_> = block.take_while(|line| *line != FENCE).collect();
        let program = block.join("\n") + "\n";
        let is_server = program.contains("fn main()") && program.contains(BIND);
        if language == "rust,no_run" && is_server {
            let program = program.replace("fn main()", "pub(super) fn main()");
            found.push((at + 1, with_free_port(&program)));
        }
    }
    found
}

fn with_free_port(program: &str) -> String {
    let (before, rest) = program.split_once(BIND).expect("it listens");
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{BIND}0{after}")
}
