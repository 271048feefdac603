//! How much of a stack was used.
#![allow(unsafe_code)]

use std::io;

/// The stack of the goroutine that is measured.
const SIZE: usize = 8 << 20;
/// The part below the caller that is looked at, so as not to reach the stack below.
const LOOKED_AT: usize = 4 << 20;
/// The bytes that the functions here may use themselves.
const OWN: usize = 16 << 10;
const PAGE: usize = 4096;

/// How many KiB of its stack `f` used, on a goroutine with a stack that has room for all. Up to 16 KiB
/// may be left of another goroutine.
///
/// # Panics
///
/// If `f` panics, outside the runtime, and if there is no memory.
pub fn high_water_kib(f: impl FnOnce() + Send + 'static) -> usize {
    let measured = move || {
        let here = 0_u8;
        let here = (&raw const here).addr();
        forget_below(here / PAGE * PAGE - OWN);
        call(f);
        (here - lowest_resident(here / PAGE * PAGE)) / 1024
    };
    let builder = windlass::task::Builder::new().stack_size(SIZE);
    let measuring = builder.spawn(measured).expect("there is memory");
    measuring.join().expect("it does not panic")
}

/// Not inlined: the frame of `f` is to lie below that of the caller.
#[inline(never)]
fn call(f: impl FnOnce()) {
    f();
}

/// Gives back the pages that another goroutine has used before.
fn forget_below(top: usize) {
    let from = std::ptr::without_provenance_mut(top - LOOKED_AT);
    // SAFETY: the range is in the unused part of this goroutine's stack, in which nothing is kept.
    let r = unsafe { libc::madvise(from, LOOKED_AT, libc::MADV_DONTNEED) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
}

/// The address of the lowest page that has memory.
fn lowest_resident(top: usize) -> usize {
    let mut pages = vec![0_u8; LOOKED_AT / PAGE];
    let from = std::ptr::without_provenance_mut(top - LOOKED_AT);
    // SAFETY: the kernel writes a byte for each page, and reads no memory at the address.
    let r = unsafe { libc::mincore(from, LOOKED_AT, pages.as_mut_ptr()) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
    let unused = pages.iter().take_while(|&&page| page & 1 == 0).count();
    top - (pages.len() - unused) * PAGE
}
