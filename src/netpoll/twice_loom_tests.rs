//! The notice against a goroutine that waits for it, gives up once, and waits again.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::Notice;
use crate::g::status::{Kind, Reason, Status};

/// Each wait ends, and is ended once; the second ends because the notice has come.
#[test]
fn loom_a_notice_ends_the_wait_that_is_named() {
    loom::model(|| {
        let s = Arc::new((Status::new(), Notice::new(), AtomicU32::new(0)));
        s.0.set_new();
        s.0.set_runnable();
        s.0.set_running();
        let reaper = {
            let s = Arc::clone(&s);
            thread::spawn(move || {
                if let Some(wait) = s.1.end()
                    && s.0.wake(wait)
                {
                    s.2.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let mut waits = 0;
        for is_cut in [true, false] {
            if s.1.is_over() {
                break;
            }
            waits += 1;
            let wait = s.0.set_waiting(Reason::Sleep, 0);
            // A deadline, as it may be.
            if (!s.1.expect(wait) || is_cut) && s.0.wake(wait) {
                s.2.fetch_add(1, Ordering::SeqCst);
            }
            while s.0.load().kind() != Kind::Runnable {
                thread::yield_now();
            }
            s.1.withdraw();
            s.0.set_running();
        }
        assert!(waits < 2 || s.1.is_over(), "woken by nobody");
        reaper.join().unwrap();
        assert!(s.1.is_over());
        assert_eq!(s.2.load(Ordering::SeqCst), waits, "each wait ends once");
    });
}
