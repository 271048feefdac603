//! A histogram of durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Durations from 1 ns to 60 s, to three digits; longer ones count as 60 s.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

const LONGEST_NS: u64 = 60_000_000_000;

impl Latencies {
    /// An empty one.
    ///
    /// # Panics
    ///
    /// Never: the bounds are right.
    pub fn new() -> Self {
        Latencies(Histogram::new_with_max(LONGEST_NS, 3).expect("the bounds should be right"))
    }

    /// Counts `latency`.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(ns);
    }

    /// Counts all that `other` has counted.
    ///
    /// # Panics
    ///
    /// Never: all of them have the same bounds.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the bounds should be the same");
    }

    /// How many were counted.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latency that a share of `quantile` (0 to 1) do not exceed, in µs.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The mean, in µs.
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The longest one, in µs.
    pub fn longest_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies::new()
    }
}
