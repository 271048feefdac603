//! `#[windlass::main]` as programs use it: each main function below is that of a process of its own.
#![expect(
    clippy::print_stdout,
    reason = "tells what it runs, as a harness would"
)]
#![allow(unsafe_code)]

#[path = "../../../tests/util/mod.rs"]
mod util;

use std::process::{ExitCode, Output};

/// A case: its name, the main function, and what comes of it.
type Case = (&'static str, fn() -> ExitCode, fn(&Output));

const CASES: &[Case] =
    &[
        ("returns_nothing", returns_nothing::main, |output| {
            ends(output, 0, "on goroutine 1 named main\n", "");
        }),
        ("returns_an_error", returns_an_error::main, |output| {
            ends(output, 1, "", "Error: \"no such file\"\n");
        }),
        (
            "returns_an_exit_code",
            returns_an_exit_code::main,
            |output| {
                ends(output, 7, "", "");
            },
        ),
        (
            "returns_a_type_with_braces",
            returns_a_type_with_braces::main,
            |output| {
                ends(output, 6, "", "");
            },
        ),
        ("never_returns", never_returns::main, |output| {
            ends(output, 3, "", "");
        }),
        ("panics", panics::main, |output| {
            assert_eq!(output.status.code(), Some(101));
            let stderr = text(&output.stderr);
            assert!(stderr.contains(
                "goroutine 1 [name \"main\"], spawned at crates/macros/tests/program.rs:"
            ));
            assert!(stderr.contains("the panic of main"), "{stderr}");
        }),
        ("has_options", has_options::main, |output| {
            ends(output, 0, "", "");
        }),
        ("has_another_path", has_another_path::main, |output| {
            ends(output, 0, "", "");
        }),
        ("cannot_be_built", cannot_be_built::main, |output| {
            let why = "processors(0): a runtime needs at least one P";
            ends(
                output,
                1,
                "",
                &format!("Error: the runtime cannot be built: {why}\n"),
            );
        }),
        ("installs_the_hook", installs_the_hook::main, |output| {
            ends(output, 0, "installed\n", "");
        }),
        ("keeps_attributes", keeps_attributes::main, |output| {
            ends(output, 0, "", "");
        }),
        (
            "comes_from_macro_rules",
            comes_from_macro_rules::main,
            |output| {
                ends(output, 5, "", "");
            },
        ),
    ];

fn main() -> ExitCode {
    if let Some(case) = util::child_case() {
        let (_, main, _) = CASES.iter().find(|(name, ..)| *name == case).unwrap();
        return main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let list = arguments.iter().any(|a| a == "--list");
    for (name, _, check) in CASES {
        if list {
            println!("{name}: test");
        } else if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            check(&util::child(name, name));
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

fn text(bytes: &[u8]) -> String {
    util::without_fallback(&String::from_utf8_lossy(bytes))
}

#[track_caller]
fn ends(output: &Output, status: i32, stdout: &str, stderr: &str) {
    assert_eq!(
        (
            output.status.code(),
            &*text(&output.stdout),
            &*text(&output.stderr)
        ),
        (Some(status), stdout, stderr)
    );
}

/// Waits until a runtime has a thread for each of `n` Ps, which is so from the start but for the main
/// thread.
fn has_processors(name: &str, n: usize) {
    let prefix = format!("{name}-m");
    util::wait_until(|| {
        let names = util::thread_names().into_iter();
        names.filter(|name| name.starts_with(&prefix)).count() + 1 == n
    });
}

mod returns_nothing {
    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() {
        // Only a goroutine can do this.
        windlass::yield_now();
        let current = windlass::task::current();
        let name = current.name().unwrap();
        println!("on goroutine {} named {name}", current.id());
    }
}

mod returns_an_error {
    use std::error::Error;

    /// The error is not `Send`.
    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        windlass::spawn(|| Err::<(), _>("no such file"))
            .join()
            .unwrap()?;
        Ok(())
    }
}

mod returns_an_exit_code {
    use std::process::ExitCode;

    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() -> ExitCode {
        if windlass::spawn(|| 1).join().unwrap() == 1 {
            return ExitCode::from(7);
        }
        ExitCode::SUCCESS
    }
}

mod never_returns {
    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() -> ! {
        std::process::exit(3)
    }
}

mod panics {
    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() {
        panic!("the panic of main");
    }
}

mod has_options {
    use std::time::Duration;

    use windlass::NumaPolicy;

    const KIB: usize = 1024;
    const N: usize = 3;

    const fn largest<const A: usize, const B: usize>() -> usize {
        if A > B { A } else { B }
    }

    #[windlass::main(
        name = String::from("app"),
        processors = [3, 1][0],
        unsafe(no_thread_local_across_waits),
        stack_size = 64 * KIB,
        pin = false,
        deadlock_detection,
        dump_on_sigquit = true,
        numa = NumaPolicy::Flat,
        max_threads = largest::<100, { N - 1 }>(),
        max_processors = [2, 3][usize::from(2 < N)],
        shutdown_timeout = Duration::from_secs(60),
    )]
    pub(super) fn main() {
        super::has_processors("app", 3);
    }
}

mod has_another_path {
    mod inner {
        pub(super) use windlass as renamed;
    }

    #[inner::renamed::main(
        unsafe(no_thread_local_across_waits),
        crate = inner::renamed,
        builder = inner::renamed::Builder::new().processors(5),
        processors = 2
    )]
    pub(super) fn main() {
        // The setter comes after the builder.
        super::has_processors("windlass", 2);
    }
}

mod cannot_be_built {
    #[windlass::main(unsafe(no_thread_local_across_waits), processors = 0)]
    pub(super) fn main() {
        unreachable!("there is no runtime");
    }
}

mod installs_the_hook {
    /// In place of windlass-hook.
    mod hook {
        use std::sync::atomic::{AtomicBool, Ordering};

        pub(super) static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

        /// # Safety
        ///
        /// None is needed.
        pub(super) unsafe fn install() {
            IS_INSTALLED.store(true, Ordering::SeqCst);
        }
    }

    #[windlass::main(unsafe(no_thread_local_across_waits), hook = hook)]
    pub(super) fn main() {
        if hook::IS_INSTALLED.load(std::sync::atomic::Ordering::SeqCst) {
            println!("installed");
        }
    }
}

mod keeps_attributes {
    /// The lint would be an error.
    #[deny(unused_variables)]
    #[windlass::main(unsafe(no_thread_local_across_waits))]
    #[allow(unused_variables, reason = "this is the test")]
    #[cfg(unix)]
    pub(super) fn main() {
        let unused = 1;
    }
}

mod returns_a_type_with_braces {
    use std::process::{ExitCode, Termination};

    pub(super) struct Code<const N: u8>;

    impl<const N: u8> Termination for Code<N> {
        fn report(self) -> ExitCode {
            ExitCode::from(N)
        }
    }

    #[windlass::main(unsafe(no_thread_local_across_waits))]
    pub(super) fn main() -> Code<{ 2 + 4 }> {
        Code
    }
}

mod comes_from_macro_rules {
    use std::process::ExitCode;

    macro_rules! program {
        ($visibility:vis $name:ident $result:ty, $body:block, $n:expr) => {
            #[windlass::main(unsafe(no_thread_local_across_waits), processors = $n)]
            $visibility fn $name() -> $result $body
        };
    }

    program!(pub(super) main ExitCode, { ExitCode::from(5) }, 1 + 1);
}
