//! The messages of a channel, first in, first out.
//!
//! A bounded channel has one ring, which is allocated with the channel. An unbounded channel has a
//! list of rings of a limited size. So growing moves at most one ring's messages while the
//! channel's lock is held, and memory is freed as a backlog drains.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::bubble::tally::Tally;

/// Maximum size of a ring of an unbounded channel.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNK_MIN: usize = 32;

#[derive(Debug)]
pub(super) struct Buffer<T> {
    /// The oldest messages.
    front: VecDeque<T>,
    /// Later messages. Each ring except the last is full.
    rest: VecDeque<VecDeque<T>>,
    n_in_rest: usize,
    /// Maximum number of messages in a ring.
    chunk: usize,
    /// Counts the messages in a simulation that asks for it.
    tally: Option<Tally>,
}

impl<T> Buffer<T> {
    pub(super) fn bounded(cap: usize) -> Buffer<T> {
        Buffer::with_chunk(VecDeque::with_capacity(cap), usize::MAX)
    }

    pub(super) fn unbounded() -> Buffer<T> {
        let chunk = (CHUNK_BYTES / size_of::<T>().max(1)).max(CHUNK_MIN);
        Buffer::with_chunk(VecDeque::new(), chunk)
    }

    fn with_chunk(front: VecDeque<T>, chunk: usize) -> Buffer<T> {
        Buffer {
            front,
            rest: VecDeque::new(),
            n_in_rest: 0,
            chunk,
            tally: None,
        }
    }

    /// Counts the messages, if the caller is in a simulation that asks for it.
    #[track_caller]
    pub(super) fn count(&mut self) {
        self.tally = Tally::new();
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.front.len() + self.n_in_rest
    }

    #[inline]
    pub(super) fn push(&mut self, msg: T) {
        if let Some(tally) = &self.tally {
            tally.sent();
        }
        if self.n_in_rest == 0 && self.front.len() < self.chunk {
            self.front.push_back(msg);
        } else {
            self.push_rest(msg);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_rest(&mut self, msg: T) {
        self.n_in_rest += 1;
        match self.rest.back_mut() {
            Some(last) if last.len() < self.chunk => last.push_back(msg),
            _ => {
                let mut ring = VecDeque::with_capacity(self.chunk);
                ring.push_back(msg);
                self.rest.push_back(ring);
            }
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let msg = self.front.pop_front();
        if let Some(tally) = self.tally.as_ref().filter(|_| msg.is_some()) {
            tally.received();
        }
        if self.front.is_empty() && self.n_in_rest != 0 {
            self.next_ring();
        }
        msg
    }

    #[cold]
    #[inline(never)]
    fn next_ring(&mut self) {
        self.front = self.rest.pop_front().unwrap_or_default();
        self.n_in_rest -= self.front.len();
    }

    /// Takes all messages out, for the caller to drop without holding a lock.
    pub(super) fn take(&mut self) -> Buffer<T> {
        let empty = Buffer::with_chunk(VecDeque::new(), self.chunk);
        if let Some(tally) = self.tally.take() {
            tally.lost();
        }
        std::mem::replace(self, empty)
    }

    /// As [`drop_all`].
    pub(super) fn clear(self) {
        drop_all(self, Buffer::pop);
    }
}

/// Drops all messages of a queue. If the drop of one panics, the rest are leaked: a second panic would abort the
/// process.
pub(super) fn drop_all<Q, T>(mut queue: Q, pop: impl Fn(&mut Q) -> Option<T>) {
    while let Some(msg) = pop(&mut queue) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(msg))) {
            std::mem::forget(queue);
            resume_unwind(panic);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use windlass_ground::random::Random;

    /// Performs the same random steps on a buffer and on a plain queue.
    fn agrees(mut buffer: Buffer<Box<u32>>, limit: usize) {
        const STEPS: u32 = if cfg!(miri) { 2_000 } else { 200_000 };
        let random = Random::new(5);
        let mut oracle = VecDeque::new();
        for i in 0..STEPS {
            let growing = (i / (STEPS / 4)).is_multiple_of(2);
            if oracle.len() < limit && random.below(8) < if growing { 5 } else { 3 } {
                buffer.push(Box::new(i));
                oracle.push_back(i);
            } else {
                assert_eq!(buffer.pop().map(|b| *b), oracle.pop_front());
            }
            assert_eq!(buffer.len(), oracle.len());
        }
        assert_eq!(buffer.take().len(), oracle.len());
        assert_eq!(buffer.len(), 0);
        assert!(buffer.pop().is_none());
    }

    #[test]
    fn an_unbounded_buffer_keeps_the_order() {
        agrees(Buffer::unbounded(), usize::MAX);
    }

    #[test]
    fn a_bounded_buffer_keeps_the_order_and_its_memory() {
        let buffer = Buffer::bounded(7);
        let memory = buffer.front.capacity();
        agrees(buffer, 7);
        let mut buffer = Buffer::bounded(7);
        for i in 0..1000 {
            buffer.push(i);
            if buffer.len() == 7 {
                buffer.pop();
            }
        }
        assert_eq!(buffer.front.capacity(), memory);
    }

    #[test]
    fn messages_without_a_size_take_no_memory() {
        const MESSAGES: usize = if cfg!(miri) { 1_000 } else { 100_000 };
        let mut buffer = Buffer::unbounded();
        for _ in 0..MESSAGES {
            buffer.push(());
        }
        assert_eq!(buffer.len(), MESSAGES);
        while buffer.pop().is_some() {}
        assert_eq!(buffer.len(), 0);
    }
}
