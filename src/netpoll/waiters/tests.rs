//! Tests of the lists by themselves. The operations belong to free slots: nothing here wakes a G.

use super::*;
use crate::g::slab;
use crate::sys::request::Request;

fn op() -> Box<Op> {
    let mut g = None;
    slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
    let op = Box::new(Op::new(g.unwrap()));
    let request = Request::PollAdd { fd: 0, events: 0 };
    // SAFETY: it is a poll.
    unsafe { op.set_request(&request) };
    op
}

fn wait(waiters: &mut Waiters, fd: i32, direction: Interest, op: &Op) {
    // SAFETY: the tests keep their operations until they end.
    unsafe { waiters.push_back(fd, direction, op) };
}

fn pop(waiters: &mut Waiters, fd: i32, direction: Interest) -> *const Op {
    waiters.pop(fd, direction).unwrap_or(std::ptr::null())
}

#[test]
fn first_come_first_served_in_each_direction() {
    let mut waiters = Waiters::default();
    let ops: Vec<_> = (0..6).map(|_| op()).collect();
    for (i, op) in ops.iter().enumerate() {
        let direction = [Interest::Read, Interest::Write][i % 2];
        wait(&mut waiters, 7, direction, op);
    }
    assert_eq!(waiters.len(7, Interest::Read), 3);
    for i in [0, 2, 4] {
        assert_eq!(pop(&mut waiters, 7, Interest::Read), &raw const *ops[i]);
    }
    assert!(waiters.pop(7, Interest::Read).is_none());
    for i in [1, 3, 5] {
        assert_eq!(pop(&mut waiters, 7, Interest::Write), &raw const *ops[i]);
    }
    assert!(waiters.fds.is_empty(), "nothing is kept of a descriptor");
}

#[test]
fn one_that_was_put_back_is_the_first_again() {
    let mut waiters = Waiters::default();
    let (a, b) = (op(), op());
    wait(&mut waiters, 3, Interest::Read, &a);
    wait(&mut waiters, 3, Interest::Read, &b);
    for _ in 0..3 {
        let first = waiters.pop(3, Interest::Read).unwrap();
        assert_eq!(first, &raw const *a);
        // SAFETY: it was taken out just now.
        unsafe { waiters.push_front(3, Interest::Read, first) };
    }
    waiters.pop(3, Interest::Read);
    assert_eq!(pop(&mut waiters, 3, Interest::Read), &raw const *b);
    // It can also be put back as the only one.
    // SAFETY: it was taken out just now.
    unsafe { waiters.push_front(3, Interest::Read, &raw const *b) };
    wait(&mut waiters, 3, Interest::Read, &a);
    assert_eq!(waiters.len(3, Interest::Read), 2);
}

#[test]
fn any_one_can_be_taken_out() {
    for taken in 0..3 {
        let mut waiters = Waiters::default();
        let ops: Vec<_> = (0..3).map(|_| op()).collect();
        for op in &ops {
            wait(&mut waiters, 5, Interest::Write, op);
        }
        let op: &Op = &ops[taken];
        // SAFETY: the operations stay until the test ends.
        unsafe {
            assert!(waiters.remove(op));
            assert!(!waiters.remove(op), "it is in no list now");
        }
        // Later operations still go to the end.
        let late = self::op();
        wait(&mut waiters, 5, Interest::Write, &late);
        for i in (0..3).filter(|&i| i != taken) {
            assert_eq!(pop(&mut waiters, 5, Interest::Write), &raw const *ops[i]);
        }
        assert_eq!(pop(&mut waiters, 5, Interest::Write), &raw const *late);
        assert!(waiters.fds.is_empty());
    }
}

#[test]
fn epoll_is_asked_once_for_each_thing_wanted() {
    let mut waiters = Waiters::default();
    let (a, b, c) = (op(), op(), op());
    assert_eq!(waiters.arm(9), None, "nobody waits");
    wait(&mut waiters, 9, Interest::Read, &a);
    let read = waiters.arm(9).unwrap();
    assert!(Interest::Read.is_in(read) && !Interest::Write.is_in(read));
    wait(&mut waiters, 9, Interest::Read, &b);
    assert_eq!(waiters.arm(9), None);
    wait(&mut waiters, 9, Interest::Write, &c);
    let both = waiters.arm(9).unwrap();
    assert!(Interest::Read.is_in(both) && Interest::Write.is_in(both));
    waiters.note_event(9);
    assert_eq!(waiters.arm(9), Some(both));
    // A reused number starts with nothing armed.
    for direction in [Interest::Read, Interest::Read, Interest::Write] {
        waiters.pop(9, direction);
    }
    wait(&mut waiters, 9, Interest::Read, &a);
    assert_eq!(waiters.arm(9), Some(read));
}
