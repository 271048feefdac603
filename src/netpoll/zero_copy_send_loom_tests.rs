//! The notice against a goroutine that waits for it, and a canceller that ends the goroutine's
//! first wait.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::Notice;

/// Stand-ins for the operations of two waits: addresses that are no mark.
const WAITERS: [*const (); 2] = [
    std::ptr::without_provenance(8),
    std::ptr::without_provenance(16),
];

/// Each wait is ended exactly once; the second ends because the notice has come.
#[test]
fn loom_a_notice_ends_the_wait_that_is_named() {
    loom::model(|| {
        let n_ended = || [AtomicU32::new(0), AtomicU32::new(0)];
        let s = Arc::new((Notice::new(), n_ended()));
        let end = |s: &(Notice, [AtomicU32; 2]), waiter: *const ()| {
            if let Some(at) = WAITERS.iter().position(|&named| named == waiter) {
                s.1[at].fetch_add(1, Ordering::SeqCst);
            }
        };
        let reaper = {
            let s = Arc::clone(&s);
            thread::spawn(move || end(&s, s.0.end()))
        };
        let canceller = {
            let s = Arc::clone(&s);
            thread::spawn(move || {
                if s.0.withdraw(WAITERS[0]) {
                    end(&s, WAITERS[0]);
                }
            })
        };
        for (at, &waiter) in WAITERS.iter().enumerate() {
            if !s.0.expect(waiter) {
                assert!(s.0.is_over());
                break;
            }
            while s.1[at].load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            assert!(at == 0 || s.0.is_over(), "woken by nobody");
        }
        reaper.join().unwrap();
        canceller.join().unwrap();
        assert!(s.0.is_over());
        for ended in &s.1 {
            assert!(ended.load(Ordering::SeqCst) <= 1, "each wait ends once");
        }
    });
}
