//! The program and its shared libraries, as they are mapped.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A loaded module with its unwind tables. It stays loaded as long as the [`Modules`] that it came
/// from.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// Its file.
    pub(crate) path: PathBuf,
    /// The offset from an address in the file to the address in memory.
    pub(crate) bias: usize,
    /// Its lowest to its highest address.
    pub(crate) span: Range<usize>,
    /// The section `.eh_frame_hdr`.
    pub(crate) eh_frame_hdr: Range<usize>,
    /// From `.eh_frame` to the end of its segment: the section ends with a terminator.
    pub(crate) eh_frame: Range<usize>,
}

/// The modules of the process. None of them is unloaded while this value exists.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) all: Vec<Module>,
    pins: Vec<*mut c_void>,
}

impl Modules {
    /// The loaded modules that have unwind tables.
    pub(crate) fn load() -> Modules {
        let mut names = Vec::new();
        each(|info| names.push(name_of(info)));
        let mut pins = Vec::new();
        let mut pinned = Vec::new();
        for name in names.into_iter().filter(|n| !n.is_empty()) {
            // SAFETY: the name is a C string; RTLD_NOLOAD fails for a module that is no longer
            // loaded.
            let pin = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if !pin.is_null() {
                pins.push(pin);
                pinned.push(name);
            }
        }
        let mut all = Vec::new();
        each(|info| {
            let name = name_of(info);
            // The program itself has no name, and is never unloaded.
            if (name.is_empty() || pinned.contains(&name))
                && let Some(module) = describe(info)
            {
                all.push(module);
            }
        });
        Modules { all, pins }
    }

    /// The bytes of a range of one of the modules.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        let p = std::ptr::with_exposed_provenance(range.start);
        // SAFETY:
        // - the range lies in a read-only segment of a module, by `describe`.
        // - the module stays while `self` lives, by its pin.
        unsafe { std::slice::from_raw_parts(p, range.len()) }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        for pin in self.pins.drain(..) {
            // SAFETY: the handle is from dlopen and closed once.
            unsafe { libc::dlclose(pin) };
        }
    }
}

/// Calls `f` with every loaded module, while the loader's lock is held.
fn each<F: FnMut(&libc::dl_phdr_info)>(mut f: F) {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info)>(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        f: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid description, and the pointer given to dl_iterate_phdr.
        let (info, f) = unsafe { (&*info, &mut *f.cast::<F>()) };
        f(info);
        0
    }
    // SAFETY: the callback has the type for which the pointer is made, and does not unwind: `f`
    // only appends to a list.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut f).cast()) };
}

fn name_of(info: &libc::dl_phdr_info) -> CString {
    if info.dlpi_name.is_null() {
        return CString::default();
    }
    // SAFETY: the loader keeps the name valid while it describes the module.
    unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned()
}

fn describe(info: &libc::dl_phdr_info) -> Option<Module> {
    // SAFETY: the loader describes the headers of a loaded module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let bias = info.dlpi_addr as usize;
    let range = |h: &libc::Elf64_Phdr| {
        let start = bias + h.p_vaddr as usize;
        start..start + h.p_memsz as usize
    };
    let loaded = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let span = loaded()
        .map(range)
        .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
    let eh_frame_hdr = range(headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?);
    // Both must lie in read-only segments.
    let holder = |at: usize| {
        loaded()
            .filter(|h| h.p_flags & libc::PF_W == 0)
            .map(range)
            .find(|r| r.contains(&at))
    };
    let segment = holder(eh_frame_hdr.start)?;
    if eh_frame_hdr.end > segment.end || eh_frame_hdr.len() < 8 {
        return None;
    }
    // SAFETY: the header lies in a segment that is mapped, by the checks above.
    let head = unsafe {
        std::ptr::with_exposed_provenance::<[u8; 8]>(eh_frame_hdr.start).read_unaligned()
    };
    let at = eh_frame_at(head, eh_frame_hdr.start)?;
    let eh_frame = at..holder(at)?.end;
    let path = match name_of(info) {
        // The program itself, also if its file has been replaced.
        name if name.is_empty() => PathBuf::from("/proc/self/exe"),
        name => PathBuf::from(OsStr::from_bytes(name.as_bytes())),
    };
    Some(Module {
        path,
        bias,
        span,
        eh_frame_hdr,
        eh_frame,
    })
}

/// The address of `.eh_frame`, from the first bytes of `.eh_frame_hdr` at `at`: version 1, and the
/// encoding that every linker uses, a signed word relative to its own address.
fn eh_frame_at(head: [u8; 8], at: usize) -> Option<usize> {
    const PCREL_SDATA4: u8 = 0x1b;
    if head[0] != 1 || head[1] != PCREL_SDATA4 {
        return None;
    }
    let offset = i32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    Some((at + 4).wrapping_add_signed(offset as isize))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_among_the_modules() {
        let modules = Modules::load();
        let here = the_program_is_among_the_modules as *const () as usize;
        let program = modules.all.iter().find(|m| m.span.contains(&here)).unwrap();
        assert_eq!(modules.bytes(&program.eh_frame_hdr)[0], 1);
        assert!(program.span.contains(&program.eh_frame.start));
        // The C library, which contains the unwinder's callers, is another one.
        assert!(modules.all.len() >= 2);
    }

    #[test]
    fn an_unknown_encoding_is_refused() {
        assert_eq!(
            eh_frame_at([1, 0x1b, 3, 0x3b, 0xfc, 0xff, 0xff, 0xff], 100),
            Some(100)
        );
        assert_eq!(eh_frame_at([2, 0x1b, 3, 0x3b, 0, 0, 0, 0], 100), None);
        assert_eq!(eh_frame_at([1, 0, 3, 0x3b, 0, 0, 0, 0], 100), None);
    }
}
