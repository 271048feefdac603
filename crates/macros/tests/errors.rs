//! Errors of the compiler for programs that must not compile. The messages are for people, so they
//! are compared by their words.

use std::cmp::Reverse;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The promise, for programs in which something else is wrong.
const PROMISED: &str = "unsafe(no_thread_local_across_waits)";

/// The errors that the compiler reports for a source.
fn errors_of(source: &str) -> String {
    let mut rustc = Command::new("rustc")
        .args([
            "-",
            "--edition",
            "2024",
            "--crate-name",
            "program",
            "--color",
            "never",
        ])
        .args([
            "--test",
            "--emit",
            "metadata",
            "-o",
            "/dev/null",
            "--extern",
        ])
        .arg(format!("windlass={}", THE_MACROS.display()))
        .env_remove("RUSTFLAGS")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    rustc
        .stdin
        .take()
        .unwrap()
        .write_all(source.as_bytes())
        .unwrap();
    let output = rustc.wait_with_output().unwrap();
    assert!(!output.status.success(), "this compiles:\n{source}");
    String::from_utf8(output.stderr).unwrap()
}

/// The newest library of this crate that the compiler at hand has built: another compiler may share the
/// folder, and its libraries cannot be used. Cargo builds it before this program, for the host. So
/// with `--target` it is not beside the program, but in the folder of the same profile two levels up.
static THE_MACROS: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = std::env::current_exe().unwrap();
    let beside = program.parent().unwrap();
    let profile = beside.parent().unwrap();
    let of_host = profile.parent().and_then(|target| target.parent());
    let of_host = of_host.map(|target| target.join(profile.file_name().unwrap()).join("deps"));
    let folders = [Some(beside.to_owned()), of_host].into_iter().flatten();
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
    let libraries = entries.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libwindlass_macros-") && name.ends_with(".so")
    });
    let mut libraries: Vec<_> = libraries.collect();
    libraries.sort_by_key(|path| Reverse(std::fs::metadata(path).unwrap().modified().unwrap()));
    let compiler = Command::new("rustc").arg("--version").output().unwrap();
    // "rustc 1.95.0 (59807616e 2026-04-14)": a library has the version after its name among its bytes.
    let version = compiler.stdout.trim_ascii().strip_prefix(b"rustc ");
    let version = version.expect("rustc says its version");
    let of_this_compiler = libraries.into_iter().find(|path| {
        let library = std::fs::read(path).unwrap();
        library.windows(version.len()).any(|bytes| bytes == version)
    });
    of_this_compiler.expect("the crate is built")
});

/// The error of a source, which must be the only one, has all the words, and names the place.
#[track_caller]
fn says(source: &str, place: &str, words: &[&str]) {
    let errors = errors_of(source);
    assert_eq!(
        errors.matches("error:").count(),
        2,
        "one and a summary: {errors}"
    );
    for word in words {
        assert!(errors.contains(word), "no {word:?} in\n{errors}");
    }
    assert!(
        errors.contains(&format!("<anon>:{place}\n")),
        "not at {place}:\n{errors}"
    );
}

fn main_of(attribute: &str, function: &str) -> String {
    format!("#![allow(dead_code)]\n#[windlass::main({attribute})]\n{function}\n")
}

#[test]
fn the_promise_is_missing() {
    let meaning = [
        "`#[windlass::main]` needs a promise",
        "write `#[windlass::main(unsafe(no_thread_local_across_waits))]`",
        "const PROMISE: windlass::Promise =",
        "a borrow of a thread-local",
        "docs/SAFETY.md",
    ];
    let of_test = ["`#[windlass::test]` needs a promise"];
    for (attribute, words) in [
        ("main(crate = crate::stand_in)", &meaning[..]),
        ("main(crate = crate::stand_in, processors = 2)", &meaning),
        ("test(crate = crate::stand_in)", &of_test),
        ("test(sim, crate = crate::stand_in)", &of_test),
    ] {
        let source =
            format!("#![allow(dead_code)]\n#[windlass::{attribute}]\nfn main() {{}}\n{STAND_IN}");
        let errors = errors_of(&source);
        assert_eq!(errors.matches("error[").count(), 1, "{errors}");
        for word in words {
            assert!(errors.contains(word), "no {word:?} in\n{errors}");
        }
        assert!(errors.contains("<anon>:2:1\n"), "{errors}");
    }
}

#[test]
fn the_promise_is_no_promise() {
    let errors = errors_of(&format!(
        "#![allow(dead_code)]\nconst PROMISE: u8 = 1;\n\
         #[windlass::main(crate = crate::stand_in)]\nfn main() {{}}\n{STAND_IN}"
    ));
    assert!(
        errors.contains("`#[windlass::main]` needs a promise"),
        "{errors}"
    );
}

#[test]
fn the_promise_is_another() {
    let without = "no_thread_local_across_waits";
    for other in [
        "unsafe",
        "unsafe()",
        "unsafe(build)",
        "unsafe = true",
        without,
    ] {
        let words = [
            "write `unsafe(no_thread_local_across_waits)`",
            "You promise that",
        ];
        says(&main_of(other, "fn main() {}"), "2:18", &words);
    }
    let twice = format!("{PROMISED}, {PROMISED}");
    says(&main_of(&twice, "fn main() {}"), "2:56", &["twice"]);
}

#[test]
fn the_function_cannot_be_called() {
    for (function, place, words) in [
        (
            "async fn main() {}",
            "3:1",
            "remove it together with each `.await`",
        ),
        ("fn main(n: u32) {}", "3:8", "called without arguments"),
        ("fn main<T>() {}", "3:8", "remove the generics"),
        (
            "fn main() -> u8 where u8: Copy { 0 }",
            "3:17",
            "remove the `where` clause",
        ),
        ("unsafe fn main() {}", "3:1", "remove `unsafe`"),
        ("const fn main() {}", "3:1", "remove `const`"),
        ("extern \"C\" fn main() {}", "3:1", "remove `extern`"),
        ("struct Main;", "3:1", "belongs in front of a function"),
        ("fn start() {}", "3:4", "belongs in front of `fn main`"),
    ] {
        let errors = errors_of(&main_of(PROMISED, function));
        assert!(errors.contains(words), "{function}: {errors}");
        assert!(
            errors.contains(&format!("<anon>:{place}\n")),
            "{function}: {errors}"
        );
    }
}

#[test]
fn an_option_is_wrong() {
    for (options, words) in [
        (
            "worker_threads = 2",
            "unknown option `worker_threads`: tokio's number of threads is `processors` here; there are",
        ),
        (
            "processors",
            "`processors` needs a value: `processors = ..`",
        ),
        ("processors =", "a value is missing after `processors =`"),
        (
            "processors(2)",
            "written as `processors` or `processors = value`",
        ),
        (
            "processors = 1, processors = 2",
            "the option `processors` is here twice",
        ),
        ("crate", "`crate` needs a path"),
        ("leaks", "unknown option `leaks`"),
        ("sim", "unknown option `sim`"),
        ("\"processors\"", "the name of an option is expected here"),
    ] {
        let attribute = format!("{PROMISED}, {options}");
        says(
            &main_of(&attribute, "fn main() {}"),
            &place_of(options),
            &[words],
        );
    }
}

/// Where the compiler points to in the attribute: at the option's name, or what follows it.
fn place_of(options: &str) -> String {
    let behind = match options {
        "processors =" => "processors ".len(),
        "processors(2)" => "processors".len(),
        "processors = 1, processors = 2" => "processors = 1, ".len(),
        _ => 0,
    };
    let begin = "#[windlass::main(".len() + PROMISED.len() + ", ".len();
    format!("2:{}", begin + behind + 1)
}

#[test]
fn options_of_tests_do_not_go_together() {
    for (options, words) in [
        (
            "sim, processors = 2",
            "`processors` is a setting of a runtime",
        ),
        ("leaks = true", "`leaks` takes no value"),
        ("sim, hook = a", "`builder` and `hook` are for runtimes"),
        ("hook = a", "covers the functions of windlass-hook as well"),
        // The package of these tests.
        (
            "hook",
            "`hook` needs the crate windlass-hook: `cargo add windlass-hook`",
        ),
        ("sim = true", "`sim` takes no value"),
        (
            "unsafe(no_thread_local_across_waits), seeds = 3",
            "`seeds` is a setting of simulations: add `sim`",
        ),
    ] {
        let source = format!("#[windlass::test({options})]\nfn a_test() {{}}\n");
        let errors = errors_of(&source);
        assert!(errors.contains(words), "{options}: {errors}");
    }
    let twice = "#[windlass::test(sim)]\n#[test]\nfn a_test() {}\n";
    says(
        twice,
        "2:2",
        &["makes the function a test: remove this attribute"],
    );
}

/// In place of windlass, as only the attributes are at hand here.
const STAND_IN: &str = "#[allow(unused_imports)]\nmod stand_in {
    pub(super) use windlass::{main, test};
    pub(super) struct Promise;
    impl Promise {
        pub(super) const unsafe fn no_thread_local_across_waits() -> Promise { Promise }
    }
    pub(super) struct Builder;
    impl Builder {
        pub(super) fn new() -> Builder { Builder }
        pub(super) fn processors(self, _: usize) -> Builder { self }
    }
    pub(super) mod entry {
        pub(crate) fn build(_: super::Builder, _: super::Promise) {}
        pub(crate) fn test_builder() -> super::Builder { super::Builder }
        pub(crate) fn main(_: (), _: fn()) -> std::process::ExitCode { std::process::ExitCode::SUCCESS }
        pub(crate) fn unit_test(_: (), _: fn()) {}
        pub(crate) fn sim_unit_test(_: super::sim::Sim, _: fn()) {}
    }
    pub(super) mod sim {
        pub(crate) struct Sim;
        impl Sim {
            pub(crate) fn new(_: super::Promise) -> Sim { Sim }
        }
    }
    pub(super) unsafe fn install() {}
    pub(super) unsafe fn two() -> usize { 2 }
    pub(super) unsafe fn builder() -> Builder { Builder }
    pub(super) struct Another;
}";

/// The lint points to the word in the attribute: nobody forbids unsafe code and makes the promise.
#[test]
fn the_lint_for_unsafe_code_sees_the_promise() {
    let attribute = format!("{PROMISED}, crate = stand_in");
    let source = main_of(&attribute, "fn main() {}");
    let errors = errors_of(&format!("#![forbid(unsafe_code)]\n{source}{STAND_IN}"));
    assert!(errors.contains("usage of an `unsafe` block"), "{errors}");
    assert!(errors.contains("<anon>:3:18\n"), "{errors}");
}

#[test]
fn the_promise_is_for_nothing_else_that_is_unsafe() {
    for (option, words) in [
        (
            "processors = stand_in::two()",
            "call to unsafe function `two`",
        ),
        (
            "builder = stand_in::builder()",
            "call to unsafe function `builder`",
        ),
        ("builder = stand_in::Another", "mismatched types"),
        (
            "hook = stand_in::install(); stand_in",
            "expected fn pointer, found `()`",
        ),
    ] {
        let attribute = format!("{PROMISED}, crate = stand_in, {option}");
        let source = main_of(&attribute, "fn main() {}");
        let errors = errors_of(&format!("#![allow(unused)]\n{source}{STAND_IN}"));
        assert!(errors.contains(words), "{option}: {errors}");
    }
}

/// A setter that the attributes do not know cannot be used with them.
#[test]
fn the_options_are_the_setters() {
    let setters = |file: &str| -> Vec<String> {
        let file = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(file).unwrap();
        let documented = source
            .split("#[doc(hidden)]\n    pub fn ")
            .collect::<Vec<_>>();
        let lines = documented.into_iter().enumerate().flat_map(|(i, part)| {
            // The first line after the split is hidden.
            part.lines().skip(usize::from(i > 0)).collect::<Vec<_>>()
        });
        let names = lines.filter_map(|line| {
            let rest = line.strip_prefix("    pub fn ")?;
            let (name, arguments) = rest.split_once('(')?;
            arguments.starts_with("mut self, ").then(|| name.to_owned())
        });
        names.collect()
    };
    for (file, attribute) in [
        (
            "src/runtime.rs",
            "main(unsafe(no_thread_local_across_waits), nothing)",
        ),
        ("src/sim/build.rs", "test(sim, nothing)"),
    ] {
        let source = format!("#[windlass::{attribute}]\nfn main() {{}}\n");
        let known = errors_of(&source);
        let setters = setters(file);
        assert!(setters.len() >= 9, "{setters:?}");
        for setter in setters {
            assert!(
                known.contains(&format!("`{setter}`")),
                "{setter} is not in {known}"
            );
        }
    }
}
