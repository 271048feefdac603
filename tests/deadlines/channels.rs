//! Waits for channels.

use windlass::channel::{self, RecvError, RecvTimeoutError, Select, select};
use windlass::sync::mpsc;
use windlass::time::{Instant, Timer};

use super::{FOREVER, Row, ended, not_ended, until, wait};

pub(crate) const ROWS: &[Row] = &[
    ended("recv, unbounded", || {
        let (tx, rx) = channel::unbounded::<u8>();
        wait(tx, move |_| assert_eq!(rx.recv(), Err(RecvError)))
    }),
    ended("recv, bounded", || {
        let (tx, rx) = channel::bounded::<u8>(3);
        wait(tx, move |_| assert_eq!(rx.recv(), Err(RecvError)))
    }),
    ended("recv, rendezvous", || {
        let (tx, rx) = channel::bounded::<u8>(0);
        wait(tx, move |_| assert_eq!(rx.recv(), Err(RecvError)))
    }),
    ended("recv_timeout", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let call = move |_| assert_eq!(rx.recv_timeout(FOREVER), Err(RecvTimeoutError::Timeout));
        wait(tx, call)
    }),
    ended("recv_deadline", || {
        let (tx, rx) = channel::bounded::<u8>(0);
        let call = move |_| {
            let never = rx.recv_deadline(Instant::now() + FOREVER);
            assert_eq!(never, Err(RecvTimeoutError::Timeout));
        };
        wait(tx, call)
    }),
    ended("iter of a receiver", || {
        let (tx, rx) = channel::unbounded::<u8>();
        wait(tx, move |_| assert_eq!(rx.iter().next(), None))
    }),
    ended("send, bounded", || {
        let (tx, rx) = channel::bounded(1);
        tx.send(1).unwrap();
        wait(rx, move |_| {
            assert_eq!(tx.send(2).unwrap_err().into_inner(), 2)
        })
    }),
    ended("send, rendezvous", || {
        let (tx, rx) = channel::bounded(0);
        wait(rx, move |_| {
            assert_eq!(tx.send(2).unwrap_err().into_inner(), 2)
        })
    }),
    ended("send_timeout", || {
        let (tx, rx) = channel::bounded(0);
        wait(rx, move |_| {
            assert!(tx.send_timeout(2, FOREVER).unwrap_err().is_timeout())
        })
    }),
    ended("send_deadline", || {
        let (tx, rx) = channel::bounded(1);
        tx.send(1).unwrap();
        let at = Instant::now() + FOREVER;
        wait(rx, move |_| {
            assert!(tx.send_deadline(2, at).unwrap_err().is_timeout())
        })
    }),
    ended("recv of never", || {
        let rx = channel::never::<u8>();
        wait((), move |_| assert_eq!(rx.recv(), Err(RecvError)))
    }),
    ended("recv of after", || {
        let rx = channel::after(FOREVER);
        wait((), move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv of at", || {
        let rx = channel::at(Instant::now() + FOREVER);
        wait((), move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv of tick", || {
        let rx = channel::tick(FOREVER);
        wait((), move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv of a timer", || {
        let timer = Timer::new(FOREVER);
        wait((), move |_| assert!(timer.channel().recv().is_err()))
    }),
    ended("recv, oneshot", || {
        let (tx, rx) = channel::oneshot::<u8>();
        wait(tx, move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv_timeout, oneshot", || {
        let (tx, rx) = channel::oneshot::<u8>();
        wait(tx, move |_| {
            assert!(rx.recv_timeout(FOREVER).unwrap_err().is_timeout())
        })
    }),
    ended("recv, broadcast", || {
        let (tx, rx) = channel::broadcast::<u8>(4);
        wait(tx, move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv_timeout, broadcast", || {
        let (tx, rx) = channel::broadcast::<u8>(4);
        wait(tx, move |_| assert!(rx.recv_timeout(FOREVER).is_err()))
    }),
    ended("changed", || {
        let (tx, rx) = channel::watch(0);
        wait(tx, move |_| assert!(rx.changed().is_err()))
    }),
    ended("changed_timeout", || {
        let (tx, rx) = channel::watch(0);
        wait(tx, move |_| {
            assert!(rx.changed_timeout(FOREVER).unwrap_err().is_timeout())
        })
    }),
    ended("wait_for", || {
        let (tx, rx) = channel::watch(0);
        wait(tx, move |_| assert!(rx.wait_for(|n| *n > 0).is_err()))
    }),
    ended("wait_for_timeout", || {
        let (tx, rx) = channel::watch(0);
        wait(tx, move |_| {
            assert!(rx.wait_for_timeout(FOREVER, |n| *n > 0).is_err())
        })
    }),
    ended("closed_timeout, oneshot", || {
        let (tx, rx) = channel::oneshot::<u8>();
        wait(rx, move |_| assert!(!tx.closed_timeout(FOREVER)))
    }),
    ended("closed_timeout, broadcast", || {
        let (tx, rx) = channel::broadcast::<u8>(4);
        wait(rx, move |_| assert!(!tx.closed_timeout(FOREVER)))
    }),
    ended("closed_timeout, watch", || {
        let (tx, rx) = channel::watch(0);
        wait(rx, move |_| assert!(!tx.closed_timeout(FOREVER)))
    }),
    ended("closed_context, watch", || {
        let (tx, rx) = channel::watch(0);
        let ctx = windlass::context::Context::background();
        wait(rx, move |why| assert_eq!(tx.closed_context(&ctx), Err(why)))
    }),
    ended("recv, mpsc", || {
        let (tx, rx) = mpsc::channel::<u8>();
        wait(tx, move |_| assert!(rx.recv().is_err()))
    }),
    ended("recv_timeout, mpsc", || {
        let (tx, rx) = mpsc::channel::<u8>();
        wait(tx, move |_| {
            assert_eq!(
                rx.recv_timeout(FOREVER),
                Err(mpsc::RecvTimeoutError::Timeout)
            );
        })
    }),
    ended("send, mpsc", || {
        let (tx, rx) = mpsc::sync_channel(1);
        tx.send(1).unwrap();
        wait(rx, move |_| assert_eq!(tx.send(2).unwrap_err().0, 2))
    }),
    not_ended("closed, oneshot", || {
        let (tx, rx) = channel::oneshot::<u8>();
        wait(rx, move |_| tx.closed())
    }),
    not_ended("closed, broadcast", || {
        let (tx, rx) = channel::broadcast::<u8>(4);
        wait(rx, move |_| tx.closed())
    }),
    not_ended("closed, watch", || {
        let (tx, rx) = channel::watch(0);
        wait(rx, move |_| tx.closed())
    }),
    not_ended("select!", || {
        let (tx, rx) = channel::unbounded();
        let call = move |_| {
            select! {
                recv(rx) -> message => assert_eq!(message, Ok(1)),
            }
        };
        until(move || tx.send(1).unwrap(), call)
    }),
    not_ended("select of a receiver and a sender", || {
        let (tx, rx) = channel::unbounded();
        let (full, other) = channel::bounded(0);
        let call = move |_| {
            let mut select = Select::new();
            let at = select.recv(&rx);
            select.send(&full);
            let chosen = select.select_timeout(FOREVER).unwrap();
            assert_eq!(chosen.index(), at);
            assert_eq!(chosen.recv(&rx), Ok(1));
            full.try_send(2).unwrap_err();
            drop(other);
        };
        until(move || tx.send(1).unwrap(), call)
    }),
    not_ended("ready of a select", || {
        let (tx, rx) = channel::unbounded();
        let call = move |_| {
            let mut select = Select::new();
            select.recv(&rx);
            assert_eq!(select.ready(), 0);
        };
        until(move || tx.send(1).unwrap(), call)
    }),
];
