//! Lookups of host names, with a resolver that is as slow as the test wants.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass::context::Context;
use windlass::net::{TcpListener, TcpOptions, TcpStream, UdpSocket, lookup_host};
use windlass::{sleep, spawn};

use crate::util::{self, run};

type Getaddrinfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const libc::addrinfo,
    *mut *mut libc::addrinfo,
) -> c_int;

/// The number of lookups of `slow.test` that have begun, and of those that may go on.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static ALLOWED: AtomicU32 = AtomicU32::new(0);

/// Takes the place of libc's. `fast.test` and `slow.test` are 127.0.0.1; every other name is libc's.
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
    let node = match name.to_bytes() {
        b"fast.test" => c"127.0.0.1".as_ptr(),
        b"slow.test" => {
            let number = BEGUN.fetch_add(1, Ordering::SeqCst);
            while ALLOWED.load(Ordering::SeqCst) <= number {
                std::thread::sleep(Duration::from_millis(1));
            }
            c"127.0.0.1".as_ptr()
        }
        _ => node,
    };
    // SAFETY: by the caller's contract.
    unsafe { theirs(node, service, hints, found) }
}

fn addr() -> SocketAddr {
    ([127, 0, 0, 1], 80).into()
}

#[test]
fn names_have_addresses() {
    let check = || {
        assert!(lookup_host("fast.test:80").unwrap().eq([addr()]));
        assert!(
            lookup_host(String::from("127.0.0.1:80"))
                .unwrap()
                .eq([addr()])
        );
        let e = lookup_host("fast.test").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
    };
    check();
    run(1, check);
}

#[track_caller]
fn assert_is_of_context(e: &io::Error) {
    let is_of_context = e
        .get_ref()
        .is_some_and(|e| e.is::<windlass::context::Error>());
    assert!(is_of_context, "{e:?}");
}

/// One test, as the slow lookups have an order.
#[test]
fn a_wait_for_a_lookup_ends_before_it() {
    run(1, || {
        let begun = |n| util::wait_until(|| BEGUN.load(Ordering::SeqCst) == n);
        let found = spawn(|| lookup_host("slow.test:80"));
        begun(1);
        // A lookup waits as long as it takes, and holds nobody up.
        for _ in 0..5 {
            sleep(Duration::from_millis(1));
        }
        assert!(!found.is_finished());
        ALLOWED.store(1, Ordering::SeqCst);
        assert!(found.join().unwrap().unwrap().eq([addr()]));

        let (context, canceller) = Context::background().with_cancel();
        let ended = spawn(move || context.run(|| lookup_host("slow.test:80")));
        begun(2);
        canceller.cancel();
        let e = ended.join().unwrap().unwrap_err();
        assert_is_of_context(&e);
        // So it is in every call that takes a name.
        let udp = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let udp = || Arc::clone(&udp);
        let (sends, connects) = (udp(), udp());
        let name = String::from("slow.test");
        let (pair, text) = ((name.clone(), 80), "slow.test:80".to_owned());
        let calls: [Box<dyn FnOnce() -> io::Result<()> + Send>; 8] = [
            Box::new(|| TcpStream::connect("slow.test:80").map(drop)),
            Box::new(|| TcpStream::connect(("slow.test", 80)).map(drop)),
            Box::new(move || TcpStream::connect(&pair).map(drop)),
            Box::new(|| TcpOptions::new().connect("slow.test:80").map(drop)),
            Box::new(|| TcpListener::bind("slow.test:0").map(drop)),
            Box::new(|| UdpSocket::bind((name, 0)).map(drop)),
            Box::new(move || sends.send_to(b"!", "slow.test:80").map(drop)),
            Box::new(move || connects.connect(&text)),
        ];
        let mut n = 2;
        for call in calls {
            let (context, canceller) = Context::background().with_cancel();
            let ended = spawn(move || context.run(call));
            n += 1;
            begun(n);
            canceller.cancel();
            let e = ended.join().unwrap().unwrap_err();
            assert_is_of_context(&e);
        }
        // No lookup begins for a context that is done.
        let (context, canceller) = Context::background().with_cancel();
        canceller.cancel();
        context.run(|| lookup_host("slow.test:80")).unwrap_err();
        context
            .run(|| TcpStream::connect("slow.test:80"))
            .unwrap_err();
        assert_eq!(BEGUN.load(Ordering::SeqCst), n);
        // The end of the run waits for those that have begun.
        ALLOWED.store(u32::MAX, Ordering::SeqCst);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    names_have_addresses: "it puts a resolver of its own into the process",
    a_wait_for_a_lookup_ends_before_it: "it puts a resolver of its own into the process",
}
