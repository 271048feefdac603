//! From the copy of a stack to the functions on it.
//!
//! framehop walks it by the unwind tables of the program, which lie in its memory anyway;
//! the backtrace crate reads the names from the debug information. Both are there only
//! with the feature `backtrace`: they and what they need are most of what a small program
//! would otherwise build.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

/// A function on a stack. Where the compiler put one into another, both have an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The address to which control returns there.
    pub address: usize,
    /// The function's name, if the program has it.
    pub function: Option<Arc<str>>,
    /// The source file and the line, if the program has them.
    pub file: Option<Arc<str>>,
    /// See `file`.
    pub line: Option<u32>,
}

impl fmt::Display for Frame {
    /// Two lines, as in Go's dumps: the function, and where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "{:#x}", self.address)?,
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, "\n\t{file}:{line}")?;
        }
        Ok(())
    }
}

/// Whose functions are the runtime's own: above what the goroutine called, and below
/// what it was spawned with.
fn is_above(name: &str) -> bool {
    [
        "corosensei::",
        "windlass::sched::",
        "windlass::g::",
        "windlass::io::op::",
    ]
    .iter()
    .any(|prefix| name.trim_start_matches('<').starts_with(prefix))
}

fn is_root(name: &str) -> bool {
    name.contains("windlass::g::header::")
}

/// What lies between the root and the goroutine's function: the catching of its panic.
fn is_below(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    [
        "std::panic",
        "core::panic::",
        "core::ops::function::",
        "__rust_try",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// The frames between the runtime's: what the goroutine called, down to its own function.
pub(crate) fn own_frames(frames: &[Frame]) -> &[Frame] {
    let named = |f: &Frame, what: fn(&str) -> bool| f.function.as_deref().is_some_and(what);
    let begin = frames
        .iter()
        .position(|f| !named(f, is_above))
        .unwrap_or(frames.len());
    let frames = &frames[begin..];
    let Some(root) = frames.iter().position(|f| named(f, is_root)) else {
        return frames;
    };
    let end = frames[..root]
        .iter()
        .rposition(|f| !named(f, is_below))
        .map_or(root, |last| last + 1);
    &frames[..end]
}

#[cfg(feature = "backtrace")]
pub(crate) use walk::Walker;

#[cfg(feature = "backtrace")]
mod walk {
    use std::collections::HashMap;
    use std::ops::Range;
    use std::sync::Arc;

    #[cfg(target_arch = "aarch64")]
    use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Native};
    #[cfg(target_arch = "x86_64")]
    use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Native};
    use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};

    use super::Frame;
    use crate::g::snapshot::StackCopy;
    use crate::sys::modules::Modules;

    /// The most frames that are shown of one stack.
    const MAX_FRAMES: usize = 100;

    /// Walks stacks, and remembers the names it has looked up.
    pub(crate) struct Walker {
        unwinder: Native<&'static [u8]>,
        cache: Cache,
        names: HashMap<usize, Arc<[Frame]>>,
        /// Dropped last: the unwinder reads their tables.
        modules: Modules,
    }

    impl std::fmt::Debug for Walker {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Walker")
                .field("modules", &self.modules.all.len())
                .finish_non_exhaustive()
        }
    }

    impl Walker {
        pub(crate) fn new() -> Walker {
            let modules = Modules::load();
            let mut unwinder = Native::new();
            for m in &modules.all {
                let bytes = |range: &Range<usize>| {
                    let bytes: *const [u8] = modules.bytes(range);
                    // SAFETY: the bytes stay while `modules` lives, and that is dropped after the unwinder.
                    unsafe { &*bytes }
                };
                let svma = |range: &Range<usize>| {
                    (range.start - m.bias) as u64..(range.end - m.bias) as u64
                };
                let sections = ExplicitModuleSectionInfo {
                    base_svma: 0,
                    eh_frame_svma: Some(svma(&m.eh_frame)),
                    eh_frame: Some(bytes(&m.eh_frame)),
                    eh_frame_hdr_svma: Some(svma(&m.eh_frame_hdr)),
                    eh_frame_hdr: Some(bytes(&m.eh_frame_hdr)),
                    ..Default::default()
                };
                let span = m.span.start as u64..m.span.end as u64;
                unwinder.add_module(framehop::Module::new(
                    String::new(),
                    span,
                    m.bias as u64,
                    sections,
                ));
            }
            Walker {
                unwinder,
                cache: Cache::new(),
                names: HashMap::new(),
                modules,
            }
        }

        /// The frames of a stack, the innermost first.
        pub(crate) fn frames(&mut self, stack: &StackCopy) -> Vec<Frame> {
            let mut frames = Vec::new();
            for address in self.addresses(stack) {
                let known = self
                    .names
                    .entry(address)
                    .or_insert_with(|| look_up(address));
                frames.extend(known.iter().cloned());
            }
            frames
        }

        fn addresses(&mut self, stack: &StackCopy) -> Vec<usize> {
            let Some(r) = stack.registers() else {
                return Vec::new();
            };
            let (sp, fp) = (r.sp as u64, r.fp as u64);
            #[cfg(target_arch = "x86_64")]
            let registers = UnwindRegsX86_64::new(r.ip as u64, sp, fp);
            #[cfg(target_arch = "aarch64")]
            let registers = UnwindRegsAarch64::new(0, sp, fp);
            let mut read = |at: u64| stack.read(at as usize).map(|w| w as u64).ok_or(());
            let mut walk =
                self.unwinder
                    .iter_frames(r.ip as u64, registers, &mut self.cache, &mut read);
            let mut addresses = Vec::new();
            // At the root the walk goes on to the stack of an M, which the copy does not hold.
            while let Ok(Some(frame)) = walk.next()
                && addresses.len() < MAX_FRAMES
            {
                addresses.push(match frame {
                    // Where it will go on: inside the function, just behind the switch.
                    FrameAddress::InstructionPointer(at) => at as usize,
                    FrameAddress::ReturnAddress(at) => at.get() as usize,
                });
            }
            addresses
        }
    }

    /// The names at an address, the innermost of inlined functions first.
    fn look_up(address: usize) -> Arc<[Frame]> {
        let mut frames = Vec::new();
        backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
            frames.push(Frame {
                address,
                // `{:#}` leaves the hash out.
                function: symbol.name().map(|name| format!("{name:#}").into()),
                file: symbol
                    .filename()
                    .map(|path| path.to_string_lossy().as_ref().into()),
                line: symbol.lineno(),
            });
        });
        if frames.is_empty() {
            frames.push(Frame {
                address,
                function: None,
                file: None,
                line: None,
            });
        }
        frames.into()
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
        assert_eq!(
            own,
            [
                "windlass::task::sleep",
                "app::work",
                "app::main::{{closure}}"
            ]
        );
    }

    #[test]
    fn a_stack_without_a_root_stays_as_it_is() {
        let all = frames(&["windlass::sched::park::park", "app::work"]);
        assert_eq!(own_frames(&all), &all[1..]);
        assert_eq!(own_frames(&[]), &[]);
    }
}
