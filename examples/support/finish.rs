//! The end of hyper's connections when their server stops.

use std::pin::{Pin, pin};

use windlass::context::{self, Context};
use windlass::future::block_on;

/// Runs a connection to its end, and calls `finish` when the server is asked to stop.
pub(crate) fn run_until<C: Future>(
    stopping: &Context,
    connection: C,
    finish: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    let mut wakes_us = None;
    let mut is_finishing = false;
    let output = block_on(std::future::poll_fn(|cx| {
        // All polls of a `block_on` have the same waker. It is registered before the question below,
        // so no stop is missed.
        wakes_us.get_or_insert_with(|| {
            let waker = cx.waker().clone();
            context::after_func(stopping, move || waker.wake())
        });
        // First, so that it has read what arrived before the stop.
        let polled = connection.as_mut().poll(cx);
        if polled.is_ready() || is_finishing || !stopping.is_done() {
            return polled;
        }
        is_finishing = true;
        finish(connection.as_mut());
        connection.as_mut().poll(cx)
    }));
    if let Some(wakes_us) = wakes_us {
        wakes_us.stop();
    }
    output
}
