//! Waits between goroutines: a dump names the holder of a lock, the goroutine that another one joins, and rings of waits.
#![cfg(feature = "lock-owners")]

#[path = "util/mod.rs"]
mod util;

use std::sync::Arc;

use windlass::debug::{Dump, Goroutine};
use windlass::sync::{Condvar, Mutex};
use windlass::{Handle, spawn, task};

fn find<'a>(dump: &'a Dump, task: &task::Task) -> &'a Goroutine {
    let found = dump.goroutines.iter().find(|g| g.id == task.id());
    found.unwrap_or_else(|| panic!("no {} in {dump}", task.id()))
}

/// A dump once `is_there` holds of it.
fn dump_with(is_there: impl Fn(&Dump) -> bool) -> Dump {
    let handle = Handle::current();
    let mut dump = handle.dump();
    util::wait_until(|| {
        dump = handle.dump();
        is_there(&dump)
    });
    dump
}

#[test]
fn a_waiter_names_the_goroutine_that_has_the_lock() {
    util::run(2, || {
        let lock = Arc::new((Mutex::new(0), Condvar::new()));
        let its = Arc::clone(&lock);
        let holder = spawn(move || {
            let mut n = its.0.lock().unwrap();
            task::park();
            // It lets go of the lock, and takes it again.
            while *n < 1 {
                n = its.1.wait(n).unwrap();
            }
            task::park();
        });
        util::wait_until(|| lock.0.try_lock().is_err());
        let its = Arc::clone(&lock);
        let waiter = spawn(move || {
            *its.0.lock().unwrap() += 1;
            its.1.notify_one();
            task::park();
        });
        let dump = dump_with(|dump| find(dump, &waiter.task()).waits_for.is_some());
        let found = find(&dump, &waiter.task());
        assert_eq!(found.waits_for, Some(holder.task().id()), "{dump}");
        assert_eq!(found.wait_reason, Some("sync.Mutex.lock"));
        let says = format!(" [sync.Mutex.lock, for goroutine {}, ", holder.task().id());
        assert!(found.to_string().contains(&says), "{found}");
        assert_eq!(find(&dump, &holder.task()).waits_for, None);
        assert!(dump.cycles().is_empty() && !dump.to_string().contains("cycle"));
        // Nobody waits once the lock is free, and the second holder is the first again.
        holder.task().unpark();
        let dump = dump_with(|dump| find(dump, &waiter.task()).wait_reason == Some("park"));
        assert_eq!(find(&dump, &waiter.task()).waits_for, None);
        util::wait_until(|| lock.0.try_lock().is_err());
        let its = Arc::clone(&lock);
        let second = spawn(move || drop(its.0.lock().unwrap()));
        let dump = dump_with(|dump| find(dump, &second.task()).waits_for.is_some());
        let found = find(&dump, &second.task());
        assert_eq!(found.waits_for, Some(holder.task().id()), "{dump}");
        holder.task().unpark();
        waiter.task().unpark();
        for handle in [holder, waiter, second] {
            handle.join().unwrap();
        }
        assert_eq!(*lock.0.lock().unwrap(), 1);
    });
}

#[test]
fn rings_of_locks_and_joins_are_named() {
    util::run(2, || {
        let locks = Arc::new([const { Mutex::new(()) }; 3]);
        let mut ring = Vec::new();
        for n in 0..2 {
            let locks = Arc::clone(&locks);
            ring.push(spawn(move || {
                let _own = locks[n].lock().unwrap();
                task::park();
                drop(locks[n + 1].lock());
            }));
        }
        let both = || locks[..2].iter().all(|lock| lock.try_lock().is_err());
        util::wait_until(both);
        let [first, second] = [0, 1].map(|n| ring[n].task());
        let joined = ring.remove(0);
        let others = Arc::clone(&locks);
        let last = spawn(move || {
            let _own = others[2].lock().unwrap();
            let _ = joined.join();
        });
        util::wait_until(|| locks[2].try_lock().is_err());
        first.unpark();
        second.unpark();
        let dump = dump_with(|dump| !dump.cycles().is_empty());
        let ids = [first.id(), second.id(), last.task().id()];
        assert_eq!(dump.cycles(), [ids], "{dump}");
        let [first, second, last] = ids;
        let says = format!(
            "cycle: goroutine {first} waits for goroutine {second}, which waits for goroutine {last}, \
             which waits for goroutine {first}\n"
        );
        assert!(dump.to_string().contains(&says), "{dump}");
    });
}
