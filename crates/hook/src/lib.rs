//! Lets `std`'s own blocking sockets, pipes and sleeps park the goroutine instead of blocking the
//! thread, and so also crates that open them.
//!
//! The crate defines the functions of libc that `std` and most C clients call to wait: `read`,
//! `write`, `readv`, `writev`, `recv`, `send`, `recvfrom`, `sendto`, `recvmsg`, `sendmsg`,
//! `connect`, `accept`, `accept4`, `poll`, `ppoll`, `select`, `nanosleep`, `clock_nanosleep`,
//! `usleep` and `sleep`. Others block the thread, but hand the P to another one: `getaddrinfo`,
//! `sendfile`, `splice`, `waitpid`, `wait4`, `waitid`, `pthread_join`, `epoll_wait`, `epoll_pwait`,
//! `epoll_pwait2`, `recvmmsg`, `sendmmsg`, `flock`, `fsync`, `fdatasync`, `sem_wait`, and `syscall`
//! for a futex, by which the locks of `std` and parking_lot wait. A symbol in the executable takes
//! precedence over libc's.
//! One line at the start of the final program turns them on: [`install`].
//!
//! `sigaction`, `signal` and their like are defined as well, to know when a signal handler runs.
//!
//! [`paused`] leaves a call out, [`leave_out`] a shared library.
//!
//! On plain threads, in blocking sections, in signal handlers, while unwinding, for descriptors in
//! non-blocking mode and for all but sockets and pipes, each function makes the system call and
//! nothing else. The
//! page `docs/decisions/hook.md` has the rules and the limits.
//!
//! # Examples
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//!
//! // SAFETY: what runs on goroutines here keeps no thread-local across a call that waits.
//! unsafe { windlass_hook::install() };
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
//! rt.run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     // Both wait on one P: each parks while the other runs.
//!     let client = windlass::spawn(move || {
//!         let mut client = TcpStream::connect(addr)?;
//!         client.write_all(b"hello")
//!     });
//!     let (mut server, _) = listener.accept()?;
//!     let mut text = String::new();
//!     server.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello");
//!     client.join().unwrap()
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!("windlass-hook needs Linux and glibc: docs/decisions/hook.md says why");

mod by_number;
mod calls;
mod handlers;
mod leave_out;
mod raw;
mod wait;

pub use leave_out::{leave_out, paused};

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the functions park goroutines.
///
/// Ordering: relaxed. It guards no data: a thread that reads the old value makes a system call.
static ON: AtomicBool = AtomicBool::new(false);

/// From now on, the functions of libc that wait park the goroutine that calls them. Until then they
/// make system calls. Later calls do nothing. It holds in children of `fork`, too, for the runtimes that
/// these build.
///
/// # Safety
///
/// The promise to `windlass::Builder::build` now covers more: no code on a goroutine keeps the
/// address of a thread-local, or a value that belongs to the thread, across a call of one of the
/// functions. Among such code are C libraries that read `errno` by an address that they got before
/// the call, and writers that hold a lock which knows its thread, as `std`'s `Stdout` does.
/// Therefore the descriptors 0, 1 and 2 never park.
///
/// # Examples
///
/// ```
/// // SAFETY: what runs on goroutines here keeps no thread-local across a call that waits.
/// unsafe { windlass_hook::install() };
/// ```
pub unsafe fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A reference to each function: the linker takes an object only if something needs it.
        std::hint::black_box(&calls::ALL);
        ON.store(true, Ordering::Relaxed);
    });
}

/// Whether the caller's waits park a goroutine. Not in a signal handler, and not while it is [`paused`].
fn parks() -> bool {
    ON.load(Ordering::Relaxed)
        && !handlers::is_inside()
        && windlass::foreign::parks()
        && !leave_out::is_paused()
}
