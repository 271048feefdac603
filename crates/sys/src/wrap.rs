//! Wraps libc's functions that start threads, processes and programs, and the one that reads a thread's
//! affinity, for threads that the runtime has pinned.
//!
//! A new thread or process inherits the affinity and the timer slack of the thread that starts it, and
//! Linux has no flag to prevent that. A program that replaces this one (`exec`) inherits all. `fork` is wrapped by `pthread_atfork`. The other functions are replaced by
//! symbols in the program itself: a symbol in the executable takes precedence over one in a shared
//! library, for `std` and for every library. This is the feature `unpinned-children`, on by
//! default.
//!
//! - The symbols are weak. A program or crate that defines its own, as jemalloc defines
//!   `pthread_create`, links as before, and its symbol is used: then threads are not wrapped.
//! - The wrappers call the next symbol in search order, so a preloaded library still sees the
//!   calls. Under a sanitizer the next symbol is its interceptor, which is in the executable too.
//! - Until a runtime is built, and on threads that are not pinned, they only pass the call on.
//! - If a program has two versions of this crate, the linker uses the symbols of one of them: only
//!   threads of that version's runtimes are widened. The handler for `fork` works for both.
//! - `popen` and `system` call functions inside libc, so they are wrapped themselves. The thread
//!   keeps the wide mask until `system` returns, which is when the child has ended.
//! - `execl`, `execlp` and `execle` call a function inside libc, and take any number of arguments: they
//!   are not wrapped.
//! - `pidfd_spawn` exists since glibc 2.39. Before that the wrapper fails with ENOSYS, as the
//!   function does on kernels without pidfds.
//! - A program that is linked statically, or against musl, has no next symbol: only `fork` is
//!   wrapped there. The compiler must know about it (`crt-static`): an archive that was built for
//!   dynamic linking and is linked with `-static` cannot start threads, and prints the reason.
//!
//! Two alternatives were rejected. Sysmon could widen threads afterwards, but a mask of one CPU may
//! be what the thread itself wants. A start routine of our own would have to distinguish such a
//! mask in the attributes from an inherited one.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// The actions around a call of a thread that the runtime has pinned.
#[derive(Debug)]
pub struct Hooks {
    /// Gives the calling thread what a thread of the process has that the runtime did not start, for
    /// new threads and processes to inherit. `true` if that must be undone. Not nested.
    pub widen: fn() -> bool,
    /// Undoes [`Hooks::widen`].
    pub narrow: fn(),
    /// As [`Hooks::widen`], for a program that replaces this one: its first thread is the caller.
    pub become_usual: fn() -> bool,
    /// Undoes [`Hooks::become_usual`], after a failure.
    pub become_own: fn(),
    /// Called in each child of `fork`, on its thread. What it does is allowed in a signal handler.
    pub in_child: fn(),
    /// Writes the mask of the process, in the kernel's form, if the calling thread is pinned.
    /// `true` if it was.
    pub write_process_mask: fn(&mut [u8]) -> bool,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Wraps the calls of pinned threads from now on, until the process ends.
pub fn install(hooks: Hooks) {
    if HOOKS.set(hooks).is_ok() {
        symbols::link();
        // SAFETY: the handlers are functions of this program; their actions are allowed between any
        // two statements of the caller of `fork`. On failure (no memory) `fork` is not wrapped.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    }
}

/// The child inherits the mask that the caller has at this moment.
extern "C" fn before_fork() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.widen)();
    }
}

extern "C" fn after_fork() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.narrow)();
    }
}

extern "C" fn in_child() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.in_child)();
    }
}

/// Replaces the module below, on targets where functions cannot be wrapped.
#[cfg(not(all(
    feature = "unpinned-children",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, miri))
)))]
mod symbols {
    pub(super) fn link() {}
}

#[cfg(all(
    feature = "unpinned-children",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, miri))
))]
mod symbols {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::mem::transmute;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

    use crate::signal;
    use crate::wrap::HOOKS;

    #[cfg(target_arch = "x86_64")]
    macro_rules! jump {
        () => {
            "jmp "
        };
    }
    #[cfg(target_arch = "aarch64")]
    macro_rules! jump {
        () => {
            "b "
        };
    }

    /// Defines the weak symbols; each jumps to the function here.
    macro_rules! symbols {
        ($($name:ident => $here:ident;)*) => {
            std::arch::global_asm!(
                ".pushsection .text.windlass_wrap,\"ax\",%progbits",
                ".p2align 4",
                $(
                    concat!(".weak ", stringify!($name)),
                    concat!(".type ", stringify!($name), ",%function"),
                    concat!(stringify!($name), ":"),
                    concat!(jump!(), "{", stringify!($name), "}"),
                    concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
                )*
                ".popsection",
                // The interceptor, if a sanitizer is linked in; else zero. Weak, as a program may
                // have two versions of this crate: the linker uses one, and both are equal.
                ".weak __interceptor_pthread_create",
                ".pushsection .data.rel.ro.windlass_wrap,\"aw\",%progbits",
                ".p2align 3",
                ".hidden windlass_interceptor",
                ".weak windlass_interceptor",
                "windlass_interceptor: .quad __interceptor_pthread_create",
                ".popsection",
                $($name = sym $here,)*
            );
        };
    }

    symbols! {
        pthread_create => pthread_create_here;
        posix_spawn => posix_spawn_here;
        posix_spawnp => posix_spawnp_here;
        pidfd_spawn => pidfd_spawn_here;
        pidfd_spawnp => pidfd_spawnp_here;
        popen => popen_here;
        system => system_here;
        execve => execve_here;
        execv => execv_here;
        execvp => execvp_here;
        execvpe => execvpe_here;
        fexecve => fexecve_here;
        execveat => execveat_here;
        sched_getaffinity => sched_getaffinity_here;
    }

    unsafe extern "C" {
        safe static windlass_interceptor: usize;
    }

    /// Makes the linker include the symbols, even a linker that searches each library only once: if
    /// this library comes before `std`, nothing has referenced them yet.
    pub(super) fn link() {
        std::hint::black_box(windlass_interceptor);
        // Looked up now: it is not allowed in a signal handler or in a child of `fork`.
        for real in [
            &PTHREAD_CREATE,
            &POSIX_SPAWN,
            &POSIX_SPAWNP,
            &PIDFD_SPAWN,
            &PIDFD_SPAWNP,
            &POPEN,
            &SYSTEM,
            &SCHED_GETAFFINITY,
        ] {
            real.get();
        }
    }

    /// A function that is wrapped. Ordering: relaxed, an address that never changes; a thread that
    /// does not see it looks it up again.
    struct Real {
        name: &'static CStr,
        found: AtomicPtr<c_void>,
    }

    impl Real {
        const fn new(name: &'static CStr) -> Real {
            Real {
                name,
                found: AtomicPtr::new(ptr::null_mut()),
            }
        }

        /// The next symbol of this name; null if there is none.
        fn get(&self) -> *mut c_void {
            let found = self.found.load(Ordering::Relaxed);
            if !found.is_null() {
                return found;
            }
            let name = self.name.as_ptr();
            // SAFETY: all names are strings that end with a zero byte.
            let mut next = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
            for library in [c"libc.so.6", c"libpthread.so.0"] {
                if !next.is_null() {
                    break;
                }
                // If this library was loaded with dlopen, libc may come before it in the search
                // order.
                let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
                // SAFETY: as above. Nothing is loaded, only found.
                let handle = unsafe { libc::dlopen(library.as_ptr(), how) };
                if !handle.is_null() {
                    // SAFETY: the handle was returned just now.
                    next = unsafe { libc::dlsym(handle, name) };
                }
            }
            self.found.store(next, Ordering::Relaxed);
            next
        }
    }

    /// Prints, once, why there is no next symbol.
    #[cold]
    fn tell_of_static_link() {
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        // Ordering: relaxed, it chooses one caller.
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            signal::write_stderr(
                b"windlass: the program is linked statically, but windlass was compiled for \
                  dynamic linking, so libc's functions that start threads and processes cannot be \
                  found: compile with -C target-feature=+crt-static, or without the feature \
                  `unpinned-children`\n",
            );
        }
    }

    /// Makes a call while the thread has the mask and the timer slack of the process.
    fn widened<R>(call: impl FnOnce() -> R) -> R {
        let Some(hooks) = HOOKS.get() else {
            return call();
        };
        between(hooks.widen, call, hooks.narrow)
    }

    /// Calls `begin`, `call`, and `end` if `begin` says so. `errno` is what the call leaves.
    fn between<R>(begin: fn() -> bool, call: impl FnOnce() -> R, end: fn()) -> R {
        let is_begun = begin();
        let r = call();
        if is_begun {
            // SAFETY: the address is valid on this thread.
            let errno = unsafe { *libc::__errno_location() };
            end();
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
        }
        r
    }

    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    type PthreadCreate = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Start,
        *mut c_void,
    ) -> c_int;

    static PTHREAD_CREATE: Real = Real::new(c"pthread_create");

    unsafe extern "C" fn pthread_create_here(
        thread: *mut libc::pthread_t,
        attr: *const libc::pthread_attr_t,
        start: Start,
        arg: *mut c_void,
    ) -> c_int {
        let real = match windlass_interceptor {
            0 => PTHREAD_CREATE.get(),
            address => ptr::with_exposed_provenance_mut(address),
        };
        if real.is_null() {
            tell_of_static_link();
            return libc::EAGAIN;
        }
        // SAFETY: the symbol of that name has this type.
        let real: PthreadCreate = unsafe { transmute(real) };
        // SAFETY: by the caller's contract, which is that of the same function.
        widened(|| unsafe { real(thread, attr, start, arg) })
    }

    /// The type of `posix_spawn`, which writes a process id, and of `pidfd_spawn`, which writes a
    /// descriptor: both are an `int`.
    type PosixSpawn = unsafe extern "C" fn(
        *mut c_int,
        *const c_char,
        *const libc::posix_spawn_file_actions_t,
        *const libc::posix_spawnattr_t,
        *const *mut c_char,
        *const *mut c_char,
    ) -> c_int;

    static POSIX_SPAWN: Real = Real::new(c"posix_spawn");
    static POSIX_SPAWNP: Real = Real::new(c"posix_spawnp");

    static PIDFD_SPAWN: Real = Real::new(c"pidfd_spawn");
    static PIDFD_SPAWNP: Real = Real::new(c"pidfd_spawnp");

    macro_rules! spawn {
        ($here:ident, $real:ident $(, $tell:ident)?) => {
            unsafe extern "C" fn $here(
                child: *mut c_int,
                path: *const c_char,
                actions: *const libc::posix_spawn_file_actions_t,
                attr: *const libc::posix_spawnattr_t,
                argv: *const *mut c_char,
                envp: *const *mut c_char,
            ) -> c_int {
                let real = $real.get();
                if real.is_null() {
                    $($tell();)?
                    return libc::ENOSYS;
                }
                // SAFETY: the symbol of that name has this type.
                let real: PosixSpawn = unsafe { transmute(real) };
                // SAFETY: by the caller's contract, which is that of the same function.
                widened(|| unsafe { real(child, path, actions, attr, argv, envp) })
            }
        };
    }

    spawn!(posix_spawn_here, POSIX_SPAWN, tell_of_static_link);
    spawn!(posix_spawnp_here, POSIX_SPAWNP, tell_of_static_link);
    // Before glibc 2.39 these symbols do not exist.
    spawn!(pidfd_spawn_here, PIDFD_SPAWN);
    spawn!(pidfd_spawnp_here, PIDFD_SPAWNP);

    type Popen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;

    static POPEN: Real = Real::new(c"popen");

    unsafe extern "C" fn popen_here(
        command: *const c_char,
        mode: *const c_char,
    ) -> *mut libc::FILE {
        let real = POPEN.get();
        if real.is_null() {
            tell_of_static_link();
            return ptr::null_mut();
        }
        // SAFETY: the symbol of that name has this type.
        let real: Popen = unsafe { transmute(real) };
        // SAFETY: by the caller's contract, which is that of the same function.
        widened(|| unsafe { real(command, mode) })
    }

    type System = unsafe extern "C" fn(*const c_char) -> c_int;

    static SYSTEM: Real = Real::new(c"system");

    unsafe extern "C" fn system_here(command: *const c_char) -> c_int {
        let real = SYSTEM.get();
        if real.is_null() {
            tell_of_static_link();
            return -1;
        }
        // SAFETY: the symbol of that name has this type.
        let real: System = unsafe { transmute(real) };
        // SAFETY: by the caller's contract, which is that of the same function.
        widened(|| unsafe { real(command) })
    }

    /// Functions that replace the program, which return only if they fail.
    macro_rules! exec {
        ($($here:ident, $real:ident, $name:literal, ($($arg:ident: $type:ty),*);)*) => {
            $(
                static $real: Real = Real::new($name);

                unsafe extern "C" fn $here($($arg: $type),*) -> c_int {
                    type Exec = unsafe extern "C" fn($($type),*) -> c_int;
                    let real = $real.get();
                    if real.is_null() {
                        // SAFETY: the address is valid on this thread.
                        unsafe { *libc::__errno_location() = libc::ENOSYS };
                        return -1;
                    }
                    // SAFETY: the symbol of that name has this type.
                    let real: Exec = unsafe { transmute(real) };
                    // SAFETY: by the caller's contract, which is that of the same function.
                    let call = || unsafe { real($($arg),*) };
                    match HOOKS.get() {
                        Some(hooks) => between(hooks.become_usual, call, hooks.become_own),
                        None => call(),
                    }
                }
            )*

            /// They are looked up when the program begins: a child of `fork` calls them, where
            /// nothing may be looked up.
            extern "C" fn look_up_exec() {
                $($real.get();)*
            }
        };
    }

    type Strings = *const *const c_char;

    exec! {
        execve_here, EXECVE, c"execve", (path: *const c_char, argv: Strings, envp: Strings);
        execv_here, EXECV, c"execv", (path: *const c_char, argv: Strings);
        execvp_here, EXECVP, c"execvp", (file: *const c_char, argv: Strings);
        execvpe_here, EXECVPE, c"execvpe", (file: *const c_char, argv: Strings, envp: Strings);
        fexecve_here, FEXECVE, c"fexecve", (fd: c_int, argv: Strings, envp: Strings);
        execveat_here, EXECVEAT, c"execveat",
            (dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int);
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK_UP_EXEC: extern "C" fn() = look_up_exec;

    type GetAffinity = unsafe extern "C" fn(libc::pid_t, usize, *mut libc::cpu_set_t) -> c_int;

    static SCHED_GETAFFINITY: Real = Real::new(c"sched_getaffinity");

    /// As libc's function.
    ///
    /// # Safety
    ///
    /// `set` is valid for writes of `size` bytes.
    unsafe fn system_call(pid: libc::pid_t, size: usize, set: *mut libc::cpu_set_t) -> c_int {
        // SAFETY: by this function's contract.
        let n = unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, size, set) };
        let Ok(n) = usize::try_from(n) else {
            return -1;
        };
        // SAFETY: as above; the kernel has written the first `n` bytes.
        unsafe { ptr::write_bytes(set.cast::<u8>().add(n), 0, size - n) };
        0
    }

    /// On a pinned thread that reads its own mask, returns the mask of the process: the caller
    /// wants the number of CPUs for threads that it is about to start.
    unsafe extern "C" fn sched_getaffinity_here(
        pid: libc::pid_t,
        size: usize,
        set: *mut libc::cpu_set_t,
    ) -> c_int {
        let real = SCHED_GETAFFINITY.get();
        let r = if real.is_null() {
            // SAFETY: by the caller's contract, which is that of the same function.
            unsafe { system_call(pid, size, set) }
        } else {
            // SAFETY: the symbol of that name has this type.
            let real: GetAffinity = unsafe { transmute(real) };
            // SAFETY: by the caller's contract, which is that of the same function.
            unsafe { real(pid, size, set) }
        };
        // SAFETY: takes nothing.
        if r != 0 || (pid != 0 && pid != unsafe { libc::gettid() }) {
            return r;
        }
        if let Some(hooks) = HOOKS.get() {
            // SAFETY: the kernel has just written `size` bytes there.
            let bytes = unsafe { std::slice::from_raw_parts_mut(set.cast::<u8>(), size) };
            (hooks.write_process_mask)(bytes);
        }
        r
    }
}
