//! Finds the functions on the copy of a stack.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use backtrace::SymbolName;
#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Native};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Native};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};

use super::modules::Modules;
use super::symbols::Symbols;

/// The maximum number of frames of one stack.
const MAX_FRAMES: usize = 100;

/// The registers at which a walk begins.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The address where the code will continue.
    pub ip: usize,
    /// The stack pointer.
    pub sp: usize,
    /// The frame pointer.
    pub fp: usize,
    /// The return address of the innermost function, if a register holds it (aarch64) and the
    /// function was interrupted; else 0.
    pub link: usize,
}

/// A function at an address. One that was inlined into another is one of several there.
#[derive(Clone, Debug)]
pub struct Function {
    /// The address in the function.
    pub address: usize,
    /// The function's name, if the debug information or the symbol table has it. That of a function that was
    /// inlined may have no path: `debug = "line-tables-only"` leaves it out.
    pub name: Option<Arc<str>>,
    /// The source file, if the debug information has it.
    pub file: Option<Arc<str>>,
    /// The line in that file, if the debug information has it.
    pub line: Option<u32>,
}

/// Walks stacks, and caches the names of their functions.
pub struct Walker {
    unwinder: Native<&'static [u8]>,
    cache: Cache,
    names: HashMap<usize, Arc<[Function]>>,
    /// By module, for those that were asked for.
    symbols: HashMap<usize, Option<Symbols>>,
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
    /// A walker of the modules that are loaded now.
    #[expect(
        clippy::new_without_default,
        reason = "it reads the tables of all modules"
    )]
    pub fn new() -> Walker {
        let modules = Modules::load();
        let mut unwinder = Native::new();
        for m in &modules.all {
            let bytes = |range: &Range<usize>| {
                let bytes: *const [u8] = modules.bytes(range);
                // SAFETY: the bytes are valid while `modules` lives, which is dropped after
                // the unwinder.
                unsafe { &*bytes }
            };
            let svma =
                |range: &Range<usize>| (range.start - m.bias) as u64..(range.end - m.bias) as u64;
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
            symbols: HashMap::new(),
            modules,
        }
    }

    /// The functions at an address, the innermost of inlined ones first.
    pub fn functions(&mut self, address: usize) -> &[Function] {
        if !self.names.contains_key(&address) {
            let mut functions = look_up(address);
            self.add_paths(&mut functions);
            self.names.insert(address, functions.into());
        }
        &self.names[&address]
    }

    /// Adds the paths that the line tables do not have.
    fn add_paths(&mut self, functions: &mut [Function]) {
        let Some(outer) = functions.last_mut() else {
            return;
        };
        // The others were inlined into this one, which has a symbol.
        if outer.name.as_deref().is_some_and(has_no_path)
            && let Some(name) = self.symbol(outer.address)
        {
            outer.name = Some(name);
        }
        for inner in 1..functions.len() {
            let [closure, caller] = &mut functions[inner - 1..=inner] else {
                continue;
            };
            if let (Some(name), Some(of)) = (&closure.name, &caller.name)
                && let Some(path) = path_of_closure(name, of)
            {
                closure.name = Some(path.into());
            }
        }
    }

    /// The name in the symbol table of the function that returns to an address.
    fn symbol(&mut self, address: usize) -> Option<Arc<str>> {
        let mut modules = self.modules.all.iter().enumerate();
        let (idx, module) = modules.find(|(_, m)| m.span.contains(&address))?;
        let load = || Symbols::load(&module.path);
        let symbols = self.symbols.entry(idx).or_insert_with(load).as_ref()?;
        // The call lies before the address, which may be that of the next function.
        let name = symbols.name((address - module.bias).checked_sub(1)? as u64)?;
        // `{:#}` omits the hash.
        Some(format!("{:#}", SymbolName::new(name)).into())
    }

    /// The addresses of the functions on a stack, the innermost first. `read` gives the word that is at an
    /// address of the stack.
    pub fn addresses(
        &mut self,
        r: Registers,
        mut read: impl FnMut(usize) -> Option<usize>,
    ) -> Vec<usize> {
        let (sp, fp) = (r.sp as u64, r.fp as u64);
        #[cfg(target_arch = "x86_64")]
        let registers = UnwindRegsX86_64::new(r.ip as u64, sp, fp);
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsAarch64::new(r.link as u64, sp, fp);
        let mut read = |at: u64| read(at as usize).map(|w| w as u64).ok_or(());
        let mut walk =
            self.unwinder
                .iter_frames(r.ip as u64, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        // Below the root is the stack of an M, which the copy does not include, so the walk
        // ends.
        while let Ok(Some(frame)) = walk.next()
            && addresses.len() < MAX_FRAMES
        {
            addresses.push(match frame {
                // Where the goroutine resumes: in the function, just after the switch.
                FrameAddress::InstructionPointer(at) => at as usize,
                FrameAddress::ReturnAddress(at) => at.get() as usize,
            });
        }
        addresses
    }
}

/// Whether a name has nothing before its last part.
fn has_no_path(name: &str) -> bool {
    !name
        .split('<')
        .next()
        .is_some_and(|n| n.is_empty() || n.contains("::"))
}

/// The path of the closure that is `{closure#N}` in the line tables, if its caller, which has a parameter of
/// its type, names that one.
fn path_of_closure(name: &str, caller: &str) -> Option<String> {
    let (begin, number) = name
        .split_once('#')
        .filter(|(begin, _)| *begin == "{closure")?;
    let kind = format!("{begin}_env#{number}");
    let mut paths = caller.match_indices(&kind).filter_map(|(at, kind)| {
        let rest = &caller[at + kind.len()..];
        // Another closure, with parameters of its own.
        let is_whole = rest.starts_with([',', '>', ')', ']', ' ']);
        let begin = caller[..at]
            .rfind(['<', ' ', '(', '[', '&', '>'])
            .map_or(0, |at| at + 1);
        is_whole.then_some(&caller[begin..at])
    });
    let path = paths.next()?;
    // If there are several, nobody knows which.
    (!path.is_empty() && paths.all(|other| other == path)).then(|| format!("{path}{name}"))
}

fn look_up(address: usize) -> Vec<Function> {
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
        frames.push(Function {
            address,
            // `{:#}` omits the hash.
            name: symbol.name().map(|name| format!("{name:#}").into()),
            file: symbol
                .filename()
                .map(|path| path.to_string_lossy().as_ref().into()),
            line: symbol.lineno(),
        });
    });
    if frames.is_empty() {
        frames.push(Function {
            address,
            name: None,
            file: None,
            line: None,
        });
    }
    frames
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As an optimiser does with functions that say nothing: the line tables of the outer one then have its name
    /// without its path.
    #[inline(always)]
    fn is_inlined() -> usize {
        let mut address = 0;
        backtrace::trace(|frame| {
            address = frame.ip().addr();
            // The innermost frames are those of the crate.
            let mut is_here = false;
            backtrace::resolve(frame.ip(), |symbol| {
                is_here |= symbol
                    .filename()
                    .is_some_and(|file| file.ends_with("unwind/src/walk.rs"));
            });
            !is_here
        });
        address
    }

    #[inline(never)]
    fn has_another_inlined() -> usize {
        std::hint::black_box(is_inlined())
    }

    #[test]
    fn a_function_with_others_inlined_has_its_path() {
        let functions = Walker::new().functions(has_another_inlined()).to_vec();
        let names: Vec<_> = functions.iter().filter_map(|f| f.name.as_deref()).collect();
        assert!(
            names.len() >= 2 && names[0].ends_with("is_inlined"),
            "{names:?}"
        );
        let path = "windlass_unwind::walk::tests::has_another_inlined";
        assert_eq!(names.last(), Some(&path), "{names:?}");
    }

    #[test]
    fn an_address_without_a_function_has_no_name() {
        let mut walker = Walker::new();
        for address in [0, 1, usize::MAX] {
            let functions = walker.functions(address);
            assert!(functions.len() == 1 && functions[0].name.is_none());
        }
    }

    #[test]
    fn a_closure_has_the_path_that_its_caller_names() {
        let path = |name, caller| path_of_closure(name, caller);
        let is = |name, caller, expected: &str| assert_eq!(path(name, caller).unwrap(), expected);
        let outer = "inner<u32, app::{impl#0}::outer::{closure_env#0}>";
        is("{closure#0}", outer, "app::{impl#0}::outer::{closure#0}");
        let twice = "call<fn(app::f::{closure_env#1}) -> u32, app::f::{closure_env#1}>";
        is("{closure#1}", twice, "app::f::{closure#1}");
        let generic = "call<app::f::{closure_env#0}<u32>, ()>";
        is("{closure#0}<u32>", generic, "app::f::{closure#0}<u32>");
        for (name, caller) in [
            ("get", outer),
            ("{closure#1}", outer),
            // Of another number, and of another function.
            ("{closure#1}", "call<app::f::{closure_env#11}>"),
            (
                "{closure#0}",
                "join<app::f::{closure_env#0}, app::g::{closure_env#0}>",
            ),
            // The caller's own, where the parameter is another one.
            (
                "{closure#0}<app::f::{closure_env#0}>",
                "call<app::f::{closure_env#0}>",
            ),
            ("{closure#0}", "call<app::f::{closure_env#0}<u32>>"),
            ("{closure#0}", "{closure_env#0} "),
            ("{closure#0}", ""),
        ] {
            assert_eq!(path(name, caller), None, "{name} in {caller}");
        }
    }
}
