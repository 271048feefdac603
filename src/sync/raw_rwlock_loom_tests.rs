//! Loom models of the reader-writer lock.
#![allow(unsafe_code)]

use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

struct Guarded {
    lock: RawRwLock,
    /// Loom reports a read that is concurrent with a write.
    value: UnsafeCell<u32>,
}

// SAFETY: the value is accessed only under the lock, which loom checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded {
            lock: RawRwLock::new(),
            value: UnsafeCell::new(0),
        })
    }

    fn read(&self) -> u32 {
        assert!(self.lock.lock(Mode::Read).is_ok());
        // SAFETY: the lock is held.
        let value = self.value.with(|n| unsafe { *n });
        self.lock.unlock(Mode::Read);
        value
    }

    fn write(&self) {
        assert!(self.lock.lock(Mode::Write).is_ok());
        // SAFETY: the lock is held.
        self.value.with_mut(|n| unsafe { *n += 1 });
        self.lock.unlock(Mode::Write);
    }
}

fn spawn(guarded: &Arc<Guarded>, f: impl Fn(&Guarded) + 'static) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || f(&guarded))
}

fn end(guarded: &Guarded, others: [thread::JoinHandle<()>; 2], writes: u32) {
    others.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(guarded.read(), writes);
    assert_eq!(guarded.lock.state.load(Ordering::Relaxed), 0);
}

#[test]
fn loom_rwlock_writers_and_a_reader() {
    models::run(|| {
        let guarded = Guarded::new();
        let others = [
            spawn(&guarded, Guarded::write),
            spawn(&guarded, Guarded::write),
        ];
        assert!(guarded.read() <= 2);
        end(&guarded, others, 2);
    });
}

#[test]
fn loom_rwlock_readers_and_a_writer() {
    models::run(|| {
        let guarded = Guarded::new();
        let others = [
            spawn(&guarded, |guarded| assert!(guarded.read() <= 1)),
            spawn(&guarded, |guarded| assert!(guarded.read() <= 1)),
        ];
        guarded.write();
        end(&guarded, others, 1);
    });
}

#[test]
fn loom_rwlock_downgrade() {
    models::run(|| {
        let guarded = Guarded::new();
        let others = [
            spawn(&guarded, |guarded| assert!(guarded.read() <= 2)),
            spawn(&guarded, Guarded::write),
        ];
        assert!(guarded.lock.lock(Mode::Write).is_ok());
        // SAFETY: the lock is held.
        let mine = guarded.value.with_mut(|n| unsafe {
            *n += 1;
            *n
        });
        guarded.lock.downgrade();
        // SAFETY: the lock is held for reading.
        let still = guarded.value.with(|n| unsafe { *n });
        assert_eq!(still, mine, "a writer came between");
        guarded.lock.unlock(Mode::Read);
        end(&guarded, others, 2);
    });
}

/// One that reads beside who was the writer sees what it wrote.
#[test]
fn loom_rwlock_reads_beside_a_downgraded_writer() {
    models::run(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.lock(Mode::Write).is_ok());
        let reader = spawn(&guarded, |guarded| {
            if guarded.lock.try_lock(Mode::Read) {
                // SAFETY: the lock is held.
                assert_eq!(guarded.value.with(|n| unsafe { *n }), 1);
                guarded.lock.unlock(Mode::Read);
            }
        });
        // SAFETY: the lock is held.
        guarded.value.with_mut(|n| unsafe { *n += 1 });
        guarded.lock.downgrade();
        reader.join().unwrap();
        assert!(guarded.lock.try_lock(Mode::Read), "it is held for reading");
    });
}

/// A writer gives up during a hand-over: it gets the lock, or the waiter behind it does.
#[test]
fn loom_rwlock_meets_one_that_gives_up() {
    models::run(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.lock(Mode::Read).is_ok());
        let hasty = spawn(&guarded, |guarded| {
            let options = WaitOptions::new(Reason::RwLock).until(0);
            if guarded.lock.lock_contended(Mode::Write, options).is_ok() {
                // SAFETY: the lock is held.
                guarded.value.with_mut(|n| unsafe { *n += 1 });
                guarded.lock.unlock(Mode::Write);
            }
        });
        let reader = spawn(&guarded, |guarded| assert!(guarded.read() <= 1));
        guarded.lock.unlock(Mode::Read);
        hasty.join().unwrap();
        reader.join().unwrap();
        assert!(guarded.read() <= 1);
        assert_eq!(guarded.lock.state.load(Ordering::Relaxed), 0);
    });
}
