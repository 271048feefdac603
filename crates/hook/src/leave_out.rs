//! Callers that are left out: for a while ([`paused`]), and shared libraries for good ([`leave_out`]).
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, CString, c_int, c_void};
use std::hint::spin_loop;
use std::io;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windlass::task;

/// Runs `f`, in which no function of libc parks the calling goroutine: each makes the system call and nothing
/// else, as on a plain thread. For crates that wait in a runtime of their own, such as those with tokio inside.
/// windlass's own calls park as always, and goroutines that `f` spawns are not left out.
///
/// A call that waits holds the thread and the P, until sysmon gives the P to another thread after 10 ms. Where the
/// calls in `f` wait for long, [`windlass::blocking`] is the better choice: it leaves them out, too, and hands the P
/// over at once.
///
/// On a plain thread it calls `f` and nothing else.
///
/// # Panics
///
/// With the panic of `f`.
///
/// # Blocking
///
/// As `f`.
///
/// # Examples
///
/// ```
/// use std::io::Read;
///
/// // SAFETY: what runs on goroutines here keeps no thread-local across a call that waits.
/// unsafe { windlass_hook::install() };
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (mut reader, writer) = std::io::pipe()?;
///     drop(writer);
///     windlass_hook::paused(|| reader.read(&mut [0; 8]))
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn paused<T>(f: impl FnOnce() -> T) -> T {
    let id = task::current().id();
    if id == OF_THREADS {
        return f();
    }
    let frame = Frame {
        id,
        next: Cell::new(null()),
    };
    let _pause = Pause::begin(&frame);
    f()
}

/// The id of what is no goroutine.
const OF_THREADS: u64 = 0;

/// The number of pauses. A call looks no further where there is none.
///
/// Ordering: relaxed. A goroutine asks about itself, after its own write; the scheduler orders the two where it has
/// moved in between.
static PAUSES: AtomicUsize = AtomicUsize::new(0);

/// A pause, on the stack of its goroutine.
struct Frame {
    id: u64,
    /// The next in the bucket, whose lock guards it.
    next: Cell<*const Frame>,
}

/// The pauses of the goroutines with one remainder. Nothing is allocated, since allocators call libc.
struct Bucket {
    /// Ordering: acquire when taken, release when given back; it guards the list.
    is_locked: AtomicBool,
    head: UnsafeCell<*const Frame>,
}

// SAFETY: the list is read and written with the lock held only.
unsafe impl Sync for Bucket {}

const N_BUCKETS: usize = 256;

static BUCKETS: [Bucket; N_BUCKETS] = [const {
    Bucket {
        is_locked: AtomicBool::new(false),
        head: UnsafeCell::new(null()),
    }
}; N_BUCKETS];

impl Bucket {
    fn of(id: u64) -> &'static Bucket {
        &BUCKETS[(id % N_BUCKETS as u64) as usize]
    }

    /// Calls `f` with the head of the list. `f` makes no call that might come here.
    fn with<T>(&self, f: impl FnOnce(&mut *const Frame) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the lock is held.
        let done = f(unsafe { &mut *self.head.get() });
        self.is_locked.store(false, Ordering::Release);
        done
    }
}

/// Ends the pause when it is dropped.
struct Pause<'a>(&'a Frame);

impl Pause<'_> {
    fn begin(frame: &Frame) -> Pause<'_> {
        Bucket::of(frame.id).with(|head| {
            frame.next.set(*head);
            *head = frame;
        });
        PAUSES.fetch_add(1, Ordering::Relaxed);
        Pause(frame)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        PAUSES.fetch_sub(1, Ordering::Relaxed);
        Bucket::of(self.0.id).with(|head| {
            if std::ptr::eq(*head, self.0) {
                *head = self.0.next.get();
                return;
            }
            let mut at = *head;
            // SAFETY: frames in the list are alive, since each takes itself out.
            while let Some(frame) = unsafe { at.as_ref() } {
                if std::ptr::eq(frame.next.get(), self.0) {
                    frame.next.set(self.0.next.get());
                    return;
                }
                at = frame.next.get();
            }
        });
    }
}

/// Whether the calling goroutine is in [`paused`].
#[inline]
pub(crate) fn is_paused() -> bool {
    PAUSES.load(Ordering::Relaxed) != 0 && has_pause(task::current().id())
}

#[cold]
fn has_pause(id: u64) -> bool {
    Bucket::of(id).with(|head| {
        let mut at = *head;
        // SAFETY: frames in the list are alive, since each takes itself out.
        while let Some(frame) = unsafe { at.as_ref() } {
            if frame.id == id {
                return true;
            }
            at = frame.next.get();
        }
        false
    })
}

/// Leaves a shared library out for good: its calls reach libc's own functions again, as if this crate were not
/// there. `library` is a path or the name of a file, without or with its version: `libcurl.so` stands for
/// `libcurl.so.4` as well. Returns the number of its references that were changed: 0 if it calls none of the functions.
///
/// It concerns the library alone, and not the libraries that it calls. Libraries that are loaded later are hooked:
/// call it again then. Rust crates are part of the executable, and cannot be told apart: use [`paused`] for them.
///
/// # Errors
///
/// `NotFound` if no such library is loaded; those of `mprotect(2)`.
///
/// # Blocking
///
/// Blocks while another thread loads a library.
///
/// # Examples
///
/// ```
/// let error = windlass_hook::leave_out("libnone.so").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// ```
pub fn leave_out(library: &str) -> io::Result<usize> {
    let mut search = Search {
        library,
        functions: functions(),
        is_found: false,
        n_changed: 0,
        error: None,
    };
    // SAFETY: the function is called with the second argument, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    match (search.error, search.is_found) {
        (Some(error), _) => Err(error),
        (None, false) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no library {library} is loaded"),
        )),
        (None, true) => Ok(search.n_changed),
    }
}

/// The functions of libc that may park or wait in a section. Those that register handlers of signals stay this
/// crate's, which has to know the handlers.
const NAMES: &str = "read write readv writev recv send recvfrom sendto recvmsg sendmsg connect accept accept4 \
    poll ppoll select pselect nanosleep clock_nanosleep usleep sleep getaddrinfo sendfile sendfile64 splice \
    waitpid wait4 waitid pthread_join epoll_wait epoll_pwait epoll_pwait2 recvmmsg sendmmsg flock fsync fdatasync \
    sem_wait syscall __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk";

/// The names of the functions, and libc's own under each. They are looked up before the libraries are visited: the
/// loader's locks are taken in this order.
fn functions() -> Vec<(CString, usize)> {
    let names = NAMES.split_whitespace();
    let names = names.map(|name| CString::new(name).expect("a name has no null byte"));
    let found = names.map(|name| {
        // SAFETY: the name ends with a null byte.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        (name, address.expose_provenance())
    });
    found.filter(|(_, address)| *address != 0).collect()
}

struct Search<'a> {
    library: &'a str,
    functions: Vec<(CString, usize)>,
    is_found: bool,
    n_changed: usize,
    error: Option<io::Error>,
}

impl Search<'_> {
    fn is_meant(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let version = name.strip_prefix(self.library);
        path == self.library || version.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Called for each object of the process.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: `leave_out` passes its search, and the loader a description that is valid during the call.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: the name ends with a null byte, if there is one.
    let path = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    // The executable has no name here.
    let path = path.and_then(|path| path.to_str().ok());
    if path.is_some_and(|path| !path.is_empty() && search.is_meant(path)) {
        search.is_found = true;
        // SAFETY: the loader keeps the object while it calls.
        match unsafe { change(info, &search.functions) } {
            Ok(n) => search.n_changed += n,
            Err(error) => search.error = Some(error),
        }
    }
    0
}

#[cfg(target_arch = "x86_64")]
mod kinds {
    pub(super) const WITH_ADDEND: u32 = 1; // R_X86_64_64
    pub(super) const PLAIN: [u32; 2] = [6, 7]; // GLOB_DAT, JUMP_SLOT
}
#[cfg(target_arch = "aarch64")]
mod kinds {
    pub(super) const WITH_ADDEND: u32 = 257; // R_AARCH64_ABS64
    pub(super) const PLAIN: [u32; 2] = [1025, 1026]; // GLOB_DAT, JUMP_SLOT
}

/// Entries of a dynamic section, by which the loader finds its tables.
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

/// Writes libc's own addresses where the object has those of this crate's functions.
///
/// # Safety
///
/// The object is loaded and stays so.
unsafe fn change(info: &libc::dl_phdr_info, functions: &[(CString, usize)]) -> io::Result<usize> {
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader's description of the object.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let of_kind = |kind| headers.iter().find(|header| header.p_type == kind);
    let Some(dynamic) = of_kind(libc::PT_DYNAMIC) else {
        return Ok(0);
    };
    // Written by the loader once, and read-only from then on.
    let sealed = of_kind(libc::PT_GNU_RELRO).map_or(0..0, |header| {
        let begin = base + header.p_vaddr as usize;
        begin..begin + header.p_memsz as usize
    });
    let at = |address: usize| std::ptr::with_exposed_provenance::<u8>(address);
    let mut entry = at(base + dynamic.p_vaddr as usize).cast::<Dyn>();
    let (mut strings, mut symbols) = (0, 0);
    let (mut tables, mut lens) = ([0; 2], [0; 2]);
    // SAFETY: the section ends with an entry of tag 0. glibc has replaced the offsets in it by addresses.
    unsafe {
        while (*entry).tag != 0 {
            let value = (*entry).value;
            match (*entry).tag {
                DT_STRTAB => strings = value,
                DT_SYMTAB => symbols = value,
                DT_RELA => tables[0] = value,
                DT_RELASZ => lens[0] = value,
                DT_JMPREL => tables[1] = value,
                DT_PLTRELSZ => lens[1] = value,
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    let mut n = 0;
    for (table, len) in tables.into_iter().zip(lens) {
        let first = at(table).cast::<libc::Elf64_Rela>();
        for i in 0..len / size_of::<libc::Elf64_Rela>() {
            // SAFETY: the table has so many entries, and the symbols and strings that they name.
            let (relocation, symbol, name) = unsafe {
                let relocation = &*first.add(i);
                let index = (relocation.r_info >> 32) as usize;
                let symbol = &*at(symbols).cast::<libc::Elf64_Sym>().add(index);
                let name = CStr::from_ptr(at(strings + symbol.st_name as usize).cast());
                (relocation, symbol, name)
            };
            let kind = relocation.r_info as u32;
            let addend = match kind {
                kinds::WITH_ADDEND => relocation.r_addend as usize,
                kind if kinds::PLAIN.contains(&kind) => 0,
                _ => continue,
            };
            let is_own = symbol.st_shndx != 0;
            let found = functions.iter().find(|(known, _)| known.as_c_str() == name);
            let Some((_, function)) = found.filter(|_| !is_own) else {
                continue;
            };
            let slot = base + relocation.r_offset as usize;
            // SAFETY: the loader has written the address of a function there, and calls load it at once.
            unsafe { write(slot, function.wrapping_add(addend), sealed.contains(&slot)) }?;
            n += 1;
        }
    }
    Ok(n)
}

/// Writes an address into memory that is read-only, if it is sealed.
///
/// # Safety
///
/// `slot` is a word of an object's table of addresses.
unsafe fn write(slot: usize, address: usize, is_sealed: bool) -> io::Result<()> {
    // SAFETY: takes a plain number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = std::ptr::with_exposed_provenance_mut::<c_void>(slot & !(page_bytes - 1));
    let protect = |how| {
        // SAFETY: the page is the object's, and stays readable.
        match unsafe { libc::mprotect(page, page_bytes, how) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    if is_sealed {
        protect(libc::PROT_READ | libc::PROT_WRITE)?;
    }
    // Ordering: relaxed. Callers on other threads load one address or the other, and both functions are there.
    // SAFETY: by this function's contract the word is aligned and writable now.
    unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(slot)) }
        .store(address, Ordering::Relaxed);
    match is_sealed {
        true => protect(libc::PROT_READ),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name is a function of libc's, which this crate defines as well.
    #[test]
    fn the_names_are_those_of_functions_that_are_defined_here() {
        std::hint::black_box(&crate::calls::ALL);
        let functions = functions();
        assert_eq!(functions.len(), NAMES.split_whitespace().count());
        // The others register handlers of signals.
        assert_eq!(functions.len(), crate::calls::ALL.len() - 6);
        for (name, of_libc) in functions {
            // SAFETY: the name ends with a null byte.
            let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_ne!(first.expose_provenance(), of_libc, "{name:?}");
        }
    }
}
