//! The run queue against an oracle (crossbeam-deque), and under real threads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windlass_ground::random::Random;

use super::*;
use crate::g::slab;

fn gs(n: usize) -> Vec<GRef> {
    let mut gs = Vec::new();
    slab::take(slab::DepotId::ANY, 0, n, |g| gs.push(g));
    gs
}

fn drain(mut list: GList) -> Vec<GRef> {
    std::iter::from_fn(|| list.pop()).collect()
}

#[test]
fn full_queue_overflows_its_older_half_in_order() {
    let q = RunQueue::new();
    let gs = gs(CAPACITY as usize + 1);
    for &g in &gs[..CAPACITY as usize] {
        assert!(q.push(g).is_ok());
    }
    let out = drain(q.push(gs[CAPACITY as usize]).unwrap_err());
    assert_eq!(out.len(), CAPACITY as usize / 2 + 1);
    assert_eq!(out[..CAPACITY as usize / 2], gs[..CAPACITY as usize / 2]);
    assert_eq!(out.last(), gs.last());
    assert_eq!(q.len(), CAPACITY as usize / 2);
    assert_eq!(q.pop(), Some(gs[CAPACITY as usize / 2]));
}

#[test]
fn room_is_made_by_the_older_half() {
    let q = RunQueue::new();
    let gs = gs(CAPACITY as usize - 1);
    for &g in &gs[1..] {
        assert!(q.push(g).is_ok());
    }
    assert!(q.make_room(2).is_empty());
    let out = drain(q.make_room(3));
    assert_eq!(out, gs[1..CAPACITY as usize / 2]);
    assert_eq!(q.push_first(gs[0]), Ok(()));
    assert_eq!(q.pop(), Some(gs[0]));
    assert_eq!(q.pop(), Some(gs[CAPACITY as usize / 2]));
}

#[test]
fn a_thief_takes_half_rounded_up() {
    for len in [1, 2, 3, 7, 255, 256] {
        let (victim, thief) = (RunQueue::new(), RunQueue::new());
        let gs = gs(len);
        for &g in &gs {
            assert!(victim.push(g).is_ok());
        }
        let (g, n) = victim.steal_into(&thief, u32::MAX).unwrap();
        assert_eq!(n as usize, len.div_ceil(2));
        assert_eq!(g, gs[n as usize - 1]);
        assert_eq!(thief.len(), n as usize - 1);
        assert_eq!(victim.len(), len - n as usize);
    }
}

/// A thief has claimed slots, and has not copied them yet.
#[test]
fn claimed_slots_are_not_free() {
    let q = RunQueue::new();
    let gs = gs(CAPACITY as usize + 2);
    for &g in &gs[..CAPACITY as usize] {
        assert!(q.push(g).is_ok());
    }
    let (first, n) = q.claim(u32::MAX).unwrap();
    assert_eq!((first, n), (0, CAPACITY / 2));
    assert!(q.claim(u32::MAX).is_none(), "one thief at a time");
    assert_eq!(q.push_first(gs[0]), Err(gs[0]));
    // Neither does the owner's pop free them.
    for g in [CAPACITY as usize, CAPACITY as usize + 1] {
        assert_eq!(drain(q.push(gs[g]).unwrap_err()), [gs[g]]);
        assert_eq!(q.pop(), Some(gs[g - CAPACITY as usize / 2]));
    }
    q.free_claimed();
    assert!(q.push(gs[0]).is_ok());
    assert_eq!(q.len(), CAPACITY as usize / 2 - 1);
    assert_eq!(q.steal_list(1).len(), 1);
}

#[test]
fn runnext_kicks_out_the_one_before() {
    let q = RunQueue::new();
    let gs = gs(2);
    assert_eq!(q.set_runnext(gs[0]), None);
    assert!(!q.is_empty());
    assert_eq!(q.set_runnext(gs[1]), Some(gs[0]));
    assert_eq!(q.take_runnext(), Some(gs[1]));
    assert_eq!(q.take_runnext(), None);
    assert!(q.is_empty());
}

#[test]
fn the_first_goes_before_the_oldest() {
    let q = RunQueue::new();
    let gs = gs(CAPACITY as usize + 1);
    // Wraps below position 0, too.
    assert!(q.push_first(gs[0]).is_ok());
    assert!(q.push(gs[1]).is_ok());
    assert!(q.push_first(gs[2]).is_ok());
    assert_eq!(
        [q.pop(), q.pop(), q.pop(), q.pop()],
        [Some(gs[2]), Some(gs[0]), Some(gs[1]), None]
    );
    for &g in &gs[..CAPACITY as usize] {
        assert!(q.push_first(g).is_ok());
    }
    assert_eq!(
        q.push_first(gs[CAPACITY as usize]),
        Err(gs[CAPACITY as usize])
    );
    let oldest_first = std::iter::from_fn(|| q.pop());
    assert!(oldest_first.eq(gs[..CAPACITY as usize].iter().rev().copied()));
}

/// Equal random steps on this queue and on crossbeam's give the same order.
#[test]
fn agrees_with_crossbeam() {
    const STEPS: usize = if cfg!(miri) { 1_000 } else { 100_000 };
    let (q, thief) = (RunQueue::new(), RunQueue::new());
    let oracle = crossbeam_deque::Worker::new_fifo();
    let random = Random::new(11);
    let pool = gs(200);
    let mut next = 0;
    for _ in 0..STEPS {
        if random.below(2) == 0 && oracle.len() < 200 {
            let g = pool[next % 200];
            next += 1;
            assert!(q.push(g).is_ok());
            oracle.push(g);
        } else if random.below(8) == 0 {
            if let Some((last, n)) = q.steal_into(&thief, u32::MAX) {
                for _ in 1..n {
                    assert_eq!(thief.pop(), oracle.pop());
                }
                assert_eq!(Some(last), oracle.pop());
            }
        } else {
            assert_eq!(q.pop(), oracle.pop());
        }
        assert_eq!(q.len(), oracle.len());
    }
}

/// One owner and three thieves: every G comes out exactly once.
#[test]
fn nothing_is_lost_or_doubled_under_thieves() {
    const N: usize = if cfg!(miri) { 300 } else { 200_000 };
    let pool = gs(N);
    let q = RunQueue::new();
    let done = AtomicBool::new(false);
    let n_out = AtomicUsize::new(0);
    let mut seen: Vec<Vec<GRef>> = Vec::new();
    std::thread::scope(|s| {
        let thieves: Vec<_> = (0..3)
            .map(|_| {
                s.spawn(|| {
                    let own = RunQueue::new();
                    let mut got = Vec::new();
                    while !done.load(Ordering::Acquire) || !q.is_empty() {
                        if let Some((g, _)) = q.steal_into(&own, u32::MAX) {
                            got.push(g);
                            got.extend(std::iter::from_fn(|| own.pop()));
                        }
                        got.add_one(q.steal_runnext());
                    }
                    got
                })
            })
            .collect();
        let mut own = Vec::new();
        for (i, &g) in pool.iter().enumerate() {
            let kicked = if i % 3 == 0 {
                q.set_runnext(g)
            } else {
                Some(g)
            };
            if let Some(Err(over)) = kicked.map(|g| q.push(g)) {
                own.extend(drain(over));
            }
            if i % 5 == 0
                && let Some(g) = q.pop()
                && (i % 10 == 0 || q.push_first(g).is_err())
            {
                own.push(g);
            }
        }
        own.extend(q.take_runnext());
        done.store(true, Ordering::Release);
        n_out.fetch_add(own.len(), Ordering::Relaxed);
        seen.push(own);
        for t in thieves {
            seen.push(t.join().unwrap());
        }
    });
    let all: Vec<_> = seen.concat();
    assert_eq!(all.len(), N);
    let distinct: HashSet<_> = all.iter().map(|g| g.as_ptr()).collect();
    assert_eq!(distinct.len(), N);
}

trait ExtendOne {
    fn add_one(&mut self, g: Option<GRef>);
}

impl ExtendOne for Vec<GRef> {
    fn add_one(&mut self, g: Option<GRef>) {
        self.extend(g);
    }
}
