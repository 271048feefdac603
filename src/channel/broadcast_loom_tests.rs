//! Loom models of broadcast channels.

use super::super::broadcast;
use super::*;
use crate::loom::models::{self, thread};

/// Two receivers get both messages, one of them by waiting, and the end.
#[test]
fn loom_broadcast_to_all() {
    models::run(|| {
        let (tx, one) = broadcast::<u32>(2);
        let two = one.resubscribe();
        let receiver = thread::spawn(move || {
            assert_eq!(two.recv(), Ok(1));
            assert_eq!(two.recv(), Err(RecvError::Disconnected));
        });
        assert_eq!(tx.send(1), Ok(2));
        drop(tx);
        assert_eq!(one.recv(), Ok(1));
        receiver.join().unwrap();
    });
}

/// A receiver that lags knows what it missed, however sends and receives interleave.
#[test]
fn loom_broadcast_lag() {
    models::run(|| {
        let (tx, rx) = broadcast::<u64>(1);
        let sender = thread::spawn(move || {
            tx.send(0).unwrap();
            tx.send(1).unwrap();
        });
        let mut next = 0;
        loop {
            match rx.recv() {
                Ok(n) => {
                    assert_eq!(n, next);
                    next += 1;
                }
                Err(RecvError::Lagged(n)) => next += n,
                Err(RecvError::Disconnected) => break,
            }
        }
        assert_eq!(next, 2);
        sender.join().unwrap();
    });
}

/// A receiver goes while a message is sent: the counts stay right.
#[test]
fn loom_broadcast_receiver_goes() {
    models::run(|| {
        let (tx, one) = broadcast::<u32>(1);
        let two = one.resubscribe();
        let leaver = thread::spawn(move || drop(two));
        assert!(tx.send(7).is_ok());
        assert_eq!(one.recv(), Ok(7));
        leaver.join().unwrap();
        assert!(tx.is_empty());
        assert_eq!(tx.receiver_count(), 1);
    });
}

/// The channel for selects is not late: what is sent after it was seen empty makes it ready.
#[test]
fn loom_broadcast_ready() {
    models::run(|| {
        let (tx, rx) = broadcast::<u32>(1);
        let _ = rx.ready();
        let sender = thread::spawn(move || tx.send(7).unwrap());
        assert!(rx.ready().recv().is_err());
        assert_eq!(rx.try_recv(), Ok(7));
        sender.join().unwrap();
    });
}
