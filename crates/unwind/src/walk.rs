//! Finds the functions on the copy of a stack.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Native};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Native};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};

use super::modules::Modules;

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
    /// The function's name, if the debug information has it.
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
            modules,
        }
    }

    /// The functions at an address, the innermost of inlined ones first.
    pub fn functions(&mut self, address: usize) -> &[Function] {
        self.names
            .entry(address)
            .or_insert_with(|| look_up(address))
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

fn look_up(address: usize) -> Arc<[Function]> {
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
    frames.into()
}
