//! The run queue under every interleaving, with four slots.

use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

/// Stand-ins for Gs: the queue uses only the address and, on overflow, the link.
fn gs(n: usize) -> Vec<GRef> {
    (0..n)
        .map(|_| {
            let memory = Box::leak(Box::new([0u128; 64]));
            // SAFETY: zeroed memory larger than a header, never freed; its status is not used.
            unsafe { GRef::from_raw(NonNull::from(memory).cast()) }
        })
        .collect()
}

fn address(g: GRef) -> usize {
    g.as_ptr().addr()
}

fn assert_each_once(mut seen: Vec<GRef>, all: &[GRef]) {
    let mut seen: Vec<_> = seen.drain(..).map(address).collect();
    let mut all: Vec<_> = all.iter().map(|&g| address(g)).collect();
    seen.sort_unstable();
    all.sort_unstable();
    assert_eq!(seen, all);
}

/// A goroutine that is pushed, at either end, while a thief is there: the thief sees what was written to it before.
#[test]
fn loom_a_thief_sees_what_was_pushed() {
    for push_first in [false, true] {
        models::run(move || {
            let all = gs(2);
            let q = Arc::new(RunQueue::new());
            assert!(q.push(all[0]).is_ok());
            let written = Arc::new(UnsafeCell::new(0));
            let thief = {
                let (q, written) = (Arc::clone(&q), Arc::clone(&written));
                let pushed = address(all[1]);
                thread::spawn(move || {
                    let mut list = q.steal_list(2);
                    let got: Vec<_> = std::iter::from_fn(|| list.pop()).collect();
                    if got.iter().any(|&g| address(g) == pushed) {
                        // SAFETY: loom reports a read that is concurrent with the write.
                        assert_eq!(written.with(|n| unsafe { *n }), 7);
                    }
                    got
                })
            };
            let mut seen: Vec<_> = q.pop().into_iter().collect();
            // SAFETY: as above.
            written.with_mut(|n| unsafe { *n = 7 });
            if push_first {
                seen.extend(q.push_first(all[1]).err());
            } else {
                assert!(q.push(all[1]).is_ok());
            }
            seen.extend(thief.join().unwrap());
            drain(&q, &mut seen);
            assert_each_once(seen, &all);
        });
    }
}

fn drain(q: &RunQueue, into: &mut Vec<GRef>) {
    into.extend(std::iter::from_fn(|| q.pop()));
    into.extend(q.take_runnext());
}

#[test]
fn loom_pop_against_steal() {
    models::run(|| {
        let all = gs(3);
        let q = Arc::new(RunQueue::new());
        for &g in &all[..2] {
            assert!(q.push(g).is_ok());
        }
        let thief = {
            let q = Arc::clone(&q);
            thread::spawn(move || {
                let own = RunQueue::new();
                let mut got = Vec::new();
                if let Some((g, _)) = q.steal_into(&own, u32::MAX) {
                    got.push(g);
                }
                drain(&own, &mut got);
                got
            })
        };
        let mut seen = Vec::new();
        seen.extend(q.pop());
        assert!(q.push(all[2]).is_ok());
        seen.extend(q.pop());
        seen.extend(thief.join().unwrap());
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}

#[test]
fn loom_push_first_against_steal() {
    models::run(|| {
        let all = gs(4);
        let q = Arc::new(RunQueue::new());
        for &g in &all[..2] {
            assert!(q.push(g).is_ok());
        }
        let thief = {
            let q = Arc::clone(&q);
            thread::spawn(move || {
                let own = RunQueue::new();
                let mut got = Vec::new();
                if let Some((g, _)) = q.steal_into(&own, u32::MAX) {
                    got.push(g);
                }
                drain(&own, &mut got);
                got
            })
        };
        let mut seen = Vec::new();
        // The head moves on and comes back to a value that a thief may have read.
        seen.extend(q.pop());
        for &g in &all[2..] {
            seen.extend(q.push_first(g).err());
        }
        seen.extend(thief.join().unwrap());
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}

#[test]
fn loom_two_thieves() {
    models::run(|| {
        let all = gs(3);
        let q = Arc::new(RunQueue::new());
        for &g in &all {
            assert!(q.push(g).is_ok());
        }
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let q = Arc::clone(&q);
                thread::spawn(move || {
                    let own = RunQueue::new();
                    let mut got = Vec::new();
                    if let Some((g, _)) = q.steal_into(&own, 1) {
                        got.push(g);
                    }
                    drain(&own, &mut got);
                    got
                })
            })
            .collect();
        let mut seen: Vec<_> = thieves
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}

/// A thief frees the slots that it has claimed while another one may be at it: the owner fills them then. It pushes
/// after the first thief has ended, so that both preemptions that loom tries are there for the thieves.
#[test]
fn loom_a_thief_frees_only_its_own_slots() {
    models::run(|| {
        let all = gs(CAPACITY as usize + 2);
        let q = Arc::new(RunQueue::new());
        let (first, more) = all.split_at(CAPACITY as usize);
        for &g in first {
            assert!(q.push(g).is_ok());
        }
        let [one, other] = [(); 2].map(|()| {
            let q = Arc::clone(&q);
            thread::spawn(move || {
                let mut list = q.steal_list(1);
                std::iter::from_fn(|| list.pop()).collect::<Vec<_>>()
            })
        });
        let mut seen = one.join().unwrap();
        for &g in more {
            if let Err(mut over) = q.push(g) {
                seen.extend(std::iter::from_fn(|| over.pop()));
            }
        }
        seen.extend(other.join().unwrap());
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}

#[test]
fn loom_overflow_against_steal() {
    models::run(|| {
        let all = gs(CAPACITY as usize + 1);
        let q = Arc::new(RunQueue::new());
        let (&last, first) = all.split_last().expect("not empty");
        for &g in first {
            assert!(q.push(g).is_ok());
        }
        let thief = {
            let q = Arc::clone(&q);
            thread::spawn(move || {
                let own = RunQueue::new();
                let mut got = Vec::new();
                if let Some((g, _)) = q.steal_into(&own, u32::MAX) {
                    got.push(g);
                }
                drain(&own, &mut got);
                got
            })
        };
        let mut seen = Vec::new();
        if let Err(mut over) = q.push(last) {
            seen.extend(std::iter::from_fn(|| over.pop()));
        }
        seen.extend(thief.join().unwrap());
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}

#[test]
fn loom_runnext_is_taken_once() {
    models::run(|| {
        let all = gs(2);
        let q = Arc::new(RunQueue::new());
        assert!(q.set_runnext(all[0]).is_none());
        let thief = {
            let q = Arc::clone(&q);
            thread::spawn(move || q.steal_runnext())
        };
        let mut seen = Vec::new();
        seen.extend(q.set_runnext(all[1]));
        seen.extend(q.take_runnext());
        seen.extend(thief.join().unwrap());
        assert_each_once(seen, &all);
    });
}

#[test]
fn loom_pop_and_push_against_a_thief_that_makes_a_list() {
    models::run(|| {
        let all = gs(3);
        let q = Arc::new(RunQueue::new());
        for &g in &all[..2] {
            assert!(q.push(g).is_ok());
        }
        let thief = {
            let q = Arc::clone(&q);
            thread::spawn(move || {
                // These are hints, whatever the slots hold.
                assert!(q.peek_oldest(8).count() <= CAPACITY as usize);
                let mut list = q.steal_list(2);
                std::iter::from_fn(|| list.pop()).collect::<Vec<_>>()
            })
        };
        let mut seen = Vec::new();
        seen.extend(q.pop());
        assert!(q.push(all[2]).is_ok());
        seen.extend(thief.join().unwrap());
        drain(&q, &mut seen);
        assert_each_once(seen, &all);
    });
}
