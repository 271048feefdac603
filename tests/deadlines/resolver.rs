//! A resolver that knows when a test wants an answer.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};

type Getaddrinfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const libc::addrinfo,
    *mut *mut libc::addrinfo,
) -> c_int;

/// The names that are looked up in vain until they are removed.
static SLOW: (Mutex<BTreeSet<String>>, Condvar) = (Mutex::new(BTreeSet::new()), Condvar::new());

/// A name whose lookup waits until this is dropped. It is 127.0.0.1.
pub(crate) struct SlowName(pub(crate) String);

impl SlowName {
    pub(crate) fn new() -> SlowName {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("slow-{}.test", MADE.fetch_add(1, Ordering::Relaxed));
        SLOW.0.lock().unwrap().insert(name.clone());
        SlowName(name)
    }
}

impl Drop for SlowName {
    fn drop(&mut self) {
        SLOW.0.lock().unwrap().remove(&self.0);
        SLOW.1.notify_all();
    }
}

/// Takes the place of libc's.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    // SAFETY: the name is a valid string, and the function has this type.
    let theirs: Getaddrinfo = unsafe {
        let theirs = libc::dlsym(libc::RTLD_NEXT, c"getaddrinfo".as_ptr());
        assert!(!theirs.is_null());
        std::mem::transmute(theirs)
    };
    let name = match node.is_null() {
        true => c"",
        // SAFETY: by the caller's contract it is a string.
        false => unsafe { CStr::from_ptr(node) },
    };
    let name = name.to_string_lossy();
    let mut slow = SLOW.0.lock().unwrap();
    while slow.contains(&*name) {
        slow = SLOW.1.wait(slow).unwrap();
    }
    drop(slow);
    let node = match name.ends_with(".test") {
        true => c"127.0.0.1".as_ptr(),
        false => node,
    };
    // SAFETY: by the caller's contract.
    unsafe { theirs(node, service, hints, found) }
}
