//! Loom models of channels between threads: no message is lost or duplicated, and no thread waits
//! forever. Selects are biased here, because a random choice would make a model irreproducible.

use std::time::Instant;

use super::super::{Receiver, Select, Sender, bounded};
use super::*;
use crate::loom::models::{self, thread};

type Ends = (Sender<u32>, Receiver<u32>);

fn chan(ends: &Sender<u32>) -> &Chan<u32> {
    ends.chan()
}

/// Selects between two receivers, and receives.
fn select_recv(one: &Receiver<u32>, two: &Receiver<u32>) -> u32 {
    let mut select = Select::new_biased();
    select.recv(one);
    select.recv(two);
    let chosen = select.select();
    let received = match chosen.index() {
        0 => chosen.recv(one),
        _ => chosen.recv(two),
    };
    received.unwrap()
}

#[test]
fn loom_channel_meets() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let sender = thread::spawn(move || s.send(1).unwrap());
        assert_eq!(r.recv(), Ok(1));
        sender.join().unwrap();
        assert!(r.recv().is_err());
    });
}

#[test]
fn loom_channel_two_senders_one_place() {
    models::run(|| {
        let (s, r): Ends = bounded(1);
        let senders = [1, 2].map(|n| {
            let s = s.clone();
            thread::spawn(move || s.send(n).unwrap())
        });
        assert_eq!(r.recv().unwrap() + r.recv().unwrap(), 3);
        for sender in senders {
            sender.join().unwrap();
        }
        assert_eq!(r.len(), 0);
    });
}

/// A sender that gives up gets its message back, or the message was received.
#[test]
fn loom_channel_deadline() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let sender = thread::spawn(move || chan(&s).send(1, 0).is_ok());
        let received = r.recv_deadline(Instant::now()).is_ok();
        assert_eq!(sender.join().unwrap(), received);
    });
}

#[test]
fn loom_channel_disconnect_ends_waits() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let receiver = thread::spawn(move || r.recv().is_err());
        drop(s);
        assert!(receiver.join().unwrap());

        let (s, r): Ends = bounded(0);
        let sender = thread::spawn(move || s.send(1).is_err());
        drop(r);
        assert!(sender.join().unwrap());
    });
}

/// Both channels get a message: one is received by the select, the other stays in its channel.
#[test]
fn loom_channel_select_chooses_one() {
    models::run(|| {
        let (s1, r1): Ends = bounded(1);
        let (s2, r2): Ends = bounded(1);
        let sender = thread::spawn(move || {
            s1.send(1).unwrap();
            s2.send(2).unwrap();
        });
        let first = select_recv(&r1, &r2);
        sender.join().unwrap();
        let left = r1.try_recv().ok().or(r2.try_recv().ok());
        assert_eq!(first + left.unwrap(), 3);
    });
}

/// A select that sends meets one that receives.
#[test]
fn loom_channel_two_selects_meet() {
    models::run(|| {
        let (s, r1): Ends = bounded(0);
        let (_s2, r2): Ends = bounded(0);
        let sender = thread::spawn(move || {
            let mut select = Select::new_biased();
            select.send(&s);
            select.select().send(&s, 1).unwrap();
        });
        assert_eq!(select_recv(&r1, &r2), 1);
        sender.join().unwrap();
    });
}

/// A receiver that was promised a message gives up: the next one gets the message.
#[test]
fn loom_channel_gives_up_a_promise() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let sender = thread::spawn(move || {
            let mut select = Select::new_biased();
            select.send(&s);
            select.select().send(&s, 1).unwrap();
        });
        let received = r.recv_deadline(Instant::now()).is_ok();
        assert_eq!(r.recv().is_ok(), !received);
        sender.join().unwrap();
    });
}

/// As above, where the promise is never kept: others meet as before.
#[test]
fn loom_channel_forgotten_promise() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let theirs = s.clone();
        let forgets = thread::spawn(move || {
            let mut select = Select::new_biased();
            select.send(&theirs);
            if let Ok(chosen) = select.select_deadline(Instant::now()) {
                std::mem::forget(chosen);
            }
        });
        assert!(r.recv_deadline(Instant::now()).is_err());
        forgets.join().unwrap();
        let sender = thread::spawn(move || s.send(1).unwrap());
        assert_eq!(r.recv(), Ok(1));
        sender.join().unwrap();
        assert!(r.recv().is_err());
    });
}

/// A select that times out takes no message with it. Nor does one that finds the sender gone, whose own time is up at once.
#[test]
fn loom_channel_select_deadline() {
    models::run(|| {
        let (s, r): Ends = bounded(0);
        let sender = thread::spawn(move || chan(&s).send(1, 0).is_ok());
        let mut select = Select::new_biased();
        select.recv(&r);
        let received = select
            .select_deadline(Instant::now())
            .map(|chosen| chosen.recv(&r));
        assert_eq!(sender.join().unwrap(), received == Ok(Ok(1)));
    });
}
