//! An entry of the queue.

/// A value and when it comes due.
#[derive(Clone, Copy, Debug)]
pub struct Entry<T> {
    /// By windlass-sys's clock.
    pub when_ns: u64,
    /// The value.
    pub value: T,
}
