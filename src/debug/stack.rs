//! The functions on the copy of a stack, and which of them are shown. The crate windlass-unwind finds them;
//! it is used only with the feature `backtrace`.

use std::fmt;
use std::sync::Arc;

use crate::loom::native::OnceLock;

/// A function on a stack. A function that was inlined into another has an entry of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The return address in the function.
    pub address: usize,
    /// The function's name, if the debug information or the symbol table has it. If it was inlined into
    /// another, its last part only, where `debug = "line-tables-only"` leaves its path out.
    pub function: Option<Arc<str>>,
    /// The source file, if the debug information has it.
    pub file: Option<Arc<str>>,
    /// The line in that file, if the debug information has it.
    pub line: Option<u32>,
}

impl fmt::Display for Frame {
    /// Two lines, as in Go's dumps: the function, then file and line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(name) => f.write_str(without_types(name))?,
            None => write!(f, "{:#x}", self.address)?,
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, "\n\t{file}:{line}")?;
        }
        Ok(())
    }
}

/// The source directory at build time. The debug information of an inlined function has only the
/// last part of its name, so its file identifies the crate better.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");

impl Frame {
    fn is_of(&self, functions: &[&str], files: &[&str]) -> bool {
        let name = self.function.as_deref().unwrap_or("");
        let name = name.trim_start_matches('<');
        let file = self.file.as_deref().unwrap_or("");
        functions.iter().any(|f| name.starts_with(f)) || files.iter().any(|f| file.contains(f))
    }

    /// Whether the function is in one of these files of this crate.
    fn is_in(&self, files: &[&str]) -> bool {
        let file = self.file.as_deref().and_then(|f| f.strip_prefix(SOURCES));
        file.is_some_and(|file| files.iter().any(|f| file.starts_with(f)))
    }

    /// Adds the module to the name of one of this crate's functions that has no path, as it was inlined.
    #[cfg(feature = "backtrace")]
    fn with_module(mut self) -> Frame {
        let file = self.file.as_deref().and_then(|f| f.strip_prefix(SOURCES));
        if let (Some(file), Some(name)) = (file, self.function.as_deref())
            && !name.starts_with('<')
            && !without_types(name).contains("::")
        {
            let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
            self.function = Some(format!("windlass::{}::{name}", module.replace('/', "::")).into());
        }
        self
    }

    /// Whether it is one of the runtime's functions above the call that the goroutine made.
    fn is_above(&self) -> bool {
        self.is_of(
            &[
                "corosensei::",
                "windlass::sched::",
                "windlass::g::",
                "windlass::poll::op::",
            ],
            &["/corosensei-"],
        ) || self.is_in(&["sched/", "g/", "poll/op.rs"])
    }

    /// Whether it is one of this crate's functions.
    fn is_ours(&self) -> bool {
        self.is_of(&["windlass::", "&windlass::", "&mut windlass::"], &[]) || self.is_in(&[""])
    }

    /// Whether it is one of the runtime's functions below the goroutine's own closure.
    fn is_root(&self) -> bool {
        let is_closure = |name: &str| name.contains("{closure");
        let of_main =
            self.is_in(&["runtime.rs"]) && self.function.as_deref().is_some_and(is_closure);
        self.is_of(&["windlass::g::header::"], &[]) || self.is_in(&["g/header.rs"]) || of_main
    }

    /// Whether it only catches panics or calls a closure. Such frames are never shown.
    fn is_plumbing(&self) -> bool {
        self.is_of(
            &[
                "stack_init_trampoline",
                "std::panic",
                "core::panic::",
                "core::ops::function::",
                "__rust_try",
            ],
            &[
                "/library/std/src/panic",
                "/library/core/src/panic/",
                "/library/core/src/ops/function.rs",
            ],
        )
    }
}

/// The frames of the program: from the function that called this crate down to the goroutine's
/// closure. If the goroutine has none of them, because it was spawned with a function of this crate,
/// that function.
pub(crate) fn own_frames(frames: &[Frame]) -> &[Frame] {
    let frames = without_runtime(frames);
    let own = frames.iter().position(|f| !f.is_ours() && !f.is_plumbing());
    let begin = own.or_else(|| frames.iter().rposition(Frame::is_ours));
    &frames[begin.unwrap_or(0)..]
}

/// The frames without the scheduler's at both ends: from the goroutine's last call down to its
/// closure.
pub(super) fn without_runtime(frames: &[Frame]) -> &[Frame] {
    let begin = frames
        .iter()
        .position(|f| !f.is_above())
        .unwrap_or(frames.len());
    without_root(&frames[begin..])
}

/// The frames down to the goroutine's closure.
pub(super) fn without_root(frames: &[Frame]) -> &[Frame] {
    let Some(root) = frames.iter().position(Frame::is_root) else {
        return frames;
    };
    let end = frames[..root]
        .iter()
        .rposition(|f| !f.is_plumbing())
        .map_or(root, |last| last + 1);
    &frames[..end]
}

/// The part of the runtime that a scheduler's stack is in: that of its innermost function which has a row here.
#[cfg(feature = "backtrace")]
pub(super) fn work_of(frames: &[Frame]) -> &'static str {
    const WORK: [(&str, &str); 9] = [
        ("netpoll::ring::Ring::enter", "ring enter"),
        ("netpoll::ring::enter", "ring enter"),
        ("netpoll::", "completions"),
        ("sched::proc::sleep::sleep", "sleep"),
        ("sched::proc::spare::wait_for_p", "sleep"),
        ("timer", "timers"),
        ("sched::proc::due_timers::", "timers"),
        ("sched::wait::wake::", "wake"),
        ("sched::proc::find::", "search"),
    ];
    let of = |frame: &Frame| {
        let name = frame.function.as_deref()?.trim_start_matches('<');
        let name = name.strip_prefix("windlass::")?;
        let row = WORK.iter().find(|(path, _)| name.starts_with(path))?;
        Some(row.1)
    };
    frames.iter().find_map(of).unwrap_or("switch")
}

/// Whether people want to see all frames: `RUST_BACKTRACE=full`, as in backtraces of `std`.
pub(crate) fn shows_all() -> bool {
    static SHOWS: OnceLock<bool> = OnceLock::new();
    *SHOWS.get_or_init(|| std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value == "full"))
}

/// The frames of a stack that are shown: [`own_frames`] without plumbing, or all.
pub(crate) fn shown_frames(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    let all = shows_all();
    let shown = if all { frames } else { own_frames(frames) };
    shown.iter().filter(move |f| all || !f.is_plumbing())
}

/// The innermost frame of the program's own code: neither windlass's nor `std`'s.
#[cfg(feature = "sim")]
pub(crate) fn program_frame(frames: &[Frame]) -> Option<&Frame> {
    let is_library = |f: &Frame| f.is_in(&[""]) || f.is_of(&[], &["/rustc/", "/library/"]);
    let mut own = own_frames(frames).iter();
    own.find(|f| !f.is_plumbing() && f.line.is_some() && !is_library(f))
}

/// A function's name without its generic arguments.
pub(super) fn without_types(name: &str) -> &str {
    if !name.ends_with('>') {
        return name;
    }
    let mut depth = 0;
    for (at, c) in name.char_indices().rev() {
        match c {
            // The `>` of an arrow `->` closes nothing.
            '>' if !name[..at].ends_with('-') => depth += 1,
            '<' => depth -= 1,
            _ => {}
        }
        if depth == 0 && c == '<' {
            return if at == 0 { name } else { &name[..at] };
        }
    }
    name
}

#[cfg(feature = "backtrace")]
pub(crate) use walk::Walker;

#[cfg(feature = "backtrace")]
mod walk {
    use windlass_unwind::{Function, Registers};

    use crate::debug::stack::Frame;
    use crate::g::snapshot::StackCopy;

    /// Walks stacks, and caches the names of their functions.
    #[derive(Debug)]
    pub(crate) struct Walker(windlass_unwind::Walker);

    impl Walker {
        pub(crate) fn new() -> Walker {
            Walker(windlass_unwind::Walker::new())
        }

        /// The frames of a stack, the innermost first.
        pub(crate) fn frames(&mut self, stack: &StackCopy) -> Vec<Frame> {
            let addresses = self.addresses(stack);
            self.named(&addresses)
        }

        /// The frames at these addresses.
        pub(crate) fn named(&mut self, addresses: &[usize]) -> Vec<Frame> {
            let frame = |function: &Function| {
                let frame = Frame {
                    address: function.address,
                    function: function.name.clone(),
                    file: function.file.clone(),
                    line: function.line,
                };
                frame.with_module()
            };
            let mut frames = Vec::new();
            for &address in addresses {
                frames.extend(self.0.functions(address).iter().map(frame));
            }
            frames
        }

        /// The addresses of the functions on a stack, the innermost first.
        pub(crate) fn addresses(&mut self, stack: &StackCopy) -> Vec<usize> {
            let Some(r) = stack.registers() else {
                return Vec::new();
            };
            let registers = Registers {
                ip: r.ip,
                sp: r.sp,
                fp: r.fp,
                link: r.link,
            };
            self.0.addresses(registers, |at| stack.read(at))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame {
            address: 1,
            function: Some((*name).into()),
            file: None,
            line: None,
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn the_runtimes_own_frames_are_cut_off() {
        let all = frames(&[
            "corosensei::coroutine::Yielder<Input,Yield>::suspend",
            "windlass::sched::park::park",
            "windlass::task::sleep",
            "app::work",
            "app::main::{{closure}}",
            "core::ops::function::FnOnce::call_once",
            "std::panic::catch_unwind",
            "windlass::g::header::Typed<F,T>::run",
            "windlass::sched::run::entry",
        ]);
        let own: Vec<_> = own_frames(&all)
            .iter()
            .map(|f| f.function.as_deref().unwrap())
            .collect();
        assert_eq!(own, ["app::work", "app::main::{{closure}}"]);
    }

    #[test]
    fn functions_of_this_crate_are_shown_only_below_the_programs() {
        let all = frames(&[
            "windlass::sched::wait::park::park",
            "windlass::poll::fd::Fd::read",
            "<&windlass::net::tcp::TcpStream as std::io::Read>::read",
            "std::io::default_read_exact",
            "app::work",
            "windlass::task::goroutine::scope",
            "app::main::{{closure}}",
            "windlass::g::header::Typed<F,T>::run",
        ]);
        assert_eq!(own_frames(&all), &all[3..7]);
        // A goroutine that was spawned with a function of this crate.
        let all = frames(&[
            "windlass::sched::wait::park::park",
            "windlass::task::goroutine::park_until",
            "windlass::task::goroutine::park",
            "core::ops::function::FnOnce::call_once",
            "windlass::g::header::Typed<F,T>::run",
        ]);
        assert_eq!(own_frames(&all), &all[2..3]);
    }

    #[test]
    fn a_stack_without_a_root_stays_as_it_is() {
        let all = frames(&["windlass::sched::park::park", "app::work"]);
        assert_eq!(own_frames(&all), &all[1..]);
        assert_eq!(own_frames(&[]), &[]);
    }

    #[test]
    fn inlined_functions_are_known_by_their_files() {
        let mut all = frames(&[
            "switch_out",
            "sleep",
            "{closure#0}",
            "catch_unwind<T>",
            "run",
        ]);
        let files = [
            format!("{SOURCES}sched/wait/handoff.rs"),
            format!("{SOURCES}task.rs"),
            "/app/src/main.rs".to_owned(),
            "/rustc/1/library/std/src/panic.rs".to_owned(),
            format!("{SOURCES}g/header.rs"),
        ];
        for (frame, file) in all.iter_mut().zip(&files) {
            frame.file = Some(file.as_str().into());
        }
        assert_eq!(own_frames(&all), &all[2..3]);
    }

    /// The main goroutine was spawned with a closure of `Runtime::run`, which calls the program's.
    #[test]
    fn the_main_goroutines_stack_ends_with_its_closure() {
        let mut all = frames(&[
            "windlass::runtime::Handle::profile",
            "app::main::{{closure}}",
            "windlass::runtime::Runtime::run::{{closure}}",
            "windlass::runtime::run_to_end::{{closure}}",
            "windlass::g::header::Typed<F,T>::run",
        ]);
        for at in [0, 2, 3] {
            all[at].file = Some(format!("{SOURCES}runtime.rs").into());
        }
        assert_eq!(own_frames(&all), &all[1..2]);
    }

    #[test]
    fn plumbing_is_not_shown() {
        let all = frames(&["app::inner", "std::panicking::catch_unwind", "app::outer"]);
        let shown: Vec<_> = shown_frames(&all)
            .map(|f| f.function.as_deref().unwrap())
            .collect();
        assert_eq!(shown, ["app::inner", "app::outer"]);
    }

    #[test]
    fn names_are_short() {
        for (name, short) in [
            ("app::work", "app::work"),
            (
                "scope<app::load::{closure#0}, core::result::Result<A, B>>",
                "scope",
            ),
            ("call<fn(usize) -> bool>", "call"),
            (
                "<T as core::fmt::Debug>::fmt",
                "<T as core::fmt::Debug>::fmt",
            ),
            ("<T>", "<T>"),
            ("a>", "a>"),
        ] {
            assert_eq!(without_types(name), short);
        }
    }
}
