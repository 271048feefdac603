//! Blocking sections as another thread sees them.
#![allow(unsafe_code)]

use super::*;
use crate::Builder;
use crate::loom::native::Arc;
use crate::loom::native::atomic::AtomicBool;
use crate::sched::types::state::Sched;

const SECTIONS: usize = 200_000;

/// Looks at the one P until its goroutine has ended.
fn watch(sched: &Sched, is_over: &AtomicBool) {
    let p = &sched.ps[0];
    let mut known: Option<&Carrier> = None;
    while !is_over.load(Ordering::SeqCst) {
        let number = p.syscalltick.load(Ordering::SeqCst);
        let id = p.syscall.load(Ordering::SeqCst);
        if id == 0 {
            continue;
        }
        if known.is_none_or(|m| m.id() != id) {
            let ms = sched.ms.lock();
            let m = ms.all.iter().find(|m| m.id() == id);
            // SAFETY: Ms stay in their boxes until the run ends, and the run waits for this thread.
            known = m.map(|m| unsafe { &*std::ptr::from_ref::<Carrier>(m) });
            continue;
        }
        let access = known.map(|m| m.access.load(Ordering::SeqCst));
        let is_same = p.syscall.load(Ordering::SeqCst) == id;
        if is_same && p.syscalltick.load(Ordering::SeqCst) == number {
            assert_eq!(access, Some(BLOCKING), "sysmon may take the P already");
        }
    }
}

/// Only x86 shows the stores of a thread in their order to one that does not acquire them.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_m_blocks_as_long_as_its_section_can_be_seen() {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    let runtime = unsafe { Builder::new().processors(1).pin(false).build() }.unwrap();
    let sched = std::ptr::from_ref::<Sched>(runtime.sched()).expose_provenance();
    runtime.run(move || {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let watcher = std::thread::spawn(move || {
            // SAFETY: the runtime is borrowed until the run ends, which waits for this thread.
            let sched = unsafe { &*std::ptr::with_exposed_provenance::<Sched>(sched) };
            watch(sched, &seen)
        });
        (0..SECTIONS).for_each(|_| blocking(std::hint::spin_loop));
        is_over.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
    });
}
