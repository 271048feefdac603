//! The properties of links between simulated hosts.

use std::time::Duration;

use crate::bubble::net::dice::MILLION;
use crate::bubble::net::links::Quality;

/// Converts a probability to millionths.
///
/// # Panics
///
/// If it is not between 0 and 1.
#[track_caller]
pub(super) fn millionths(probability: f64) -> u32 {
    assert!(
        (0.0..=1.0).contains(&probability),
        "windlass: {probability} is no probability: pass a number from 0 to 1"
    );
    (probability * f64::from(MILLION)).round() as u32
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The properties of a link from one simulated host to another. A new one takes no time, has no
/// limit and loses nothing.
///
/// A host's link to itself is always like that.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use std::time::Duration;
/// use windlass::sim::{Link, Sim};
///
/// let radio = Link::new()
///     .latency_between(Duration::from_millis(5), Duration::from_millis(80))
///     .bandwidth(125_000)
///     .loss(0.02);
/// Sim::new(PROMISE).seeds(1).link(radio).run(|| ())?;
/// # Ok::<(), windlass::sim::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a link does nothing until it is set"]
pub struct Link(Quality);

impl Link {
    /// A link that takes no time, has no limit and loses nothing.
    pub fn new() -> Link {
        Link::default()
    }

    pub(super) fn quality(self) -> Quality {
        self.0
    }

    /// Sets how long each packet takes from one host to the other.
    pub fn latency(self, time: Duration) -> Link {
        self.latency_between(time, time)
    }

    /// Sets the least and the most time that a packet takes. Each packet draws its own. Packets of
    /// one TCP connection do not overtake one another; datagrams do.
    ///
    /// # Panics
    ///
    /// If the least is more than the most.
    #[track_caller]
    pub fn latency_between(mut self, least: Duration, most: Duration) -> Link {
        assert!(
            least <= most,
            "windlass: a latency from {least:?} to {most:?}: pass the lesser first"
        );
        self.0.latency_ns = (nanoseconds(least), nanoseconds(most));
        self
    }

    /// Sets how many bytes can be sent in a second. Headers are not counted.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[track_caller]
    pub fn bandwidth(mut self, bytes_per_second: u64) -> Link {
        assert!(
            bytes_per_second > 0,
            "windlass: a link without bandwidth: cut it with Network::partition"
        );
        self.0.bandwidth = Some(bytes_per_second);
        self
    }

    /// Sets the probability that a UDP datagram is lost.
    ///
    /// # Panics
    ///
    /// If it is not between 0 and 1.
    #[track_caller]
    pub fn loss(mut self, probability: f64) -> Link {
        self.0.loss = millionths(probability);
        self
    }

    /// Sets the probability that a UDP datagram arrives twice.
    ///
    /// # Panics
    ///
    /// As [`Link::loss`].
    #[track_caller]
    pub fn duplication(mut self, probability: f64) -> Link {
        self.0.duplication = millionths(probability);
        self
    }

    /// Sets the probability that a UDP datagram is delayed, by up to the most time of the latency
    /// (or a millisecond, if that is 0), so that later ones overtake it.
    ///
    /// # Panics
    ///
    /// As [`Link::loss`].
    #[track_caller]
    pub fn reordering(mut self, probability: f64) -> Link {
        self.0.reordering = millionths(probability);
        self
    }

    /// Sets the probability that a segment of a TCP connection makes something on the way reset the
    /// connection. Both ends get `ConnectionReset`.
    ///
    /// # Panics
    ///
    /// As [`Link::loss`].
    #[track_caller]
    pub fn resets(mut self, probability: f64) -> Link {
        self.0.resets = millionths(probability);
        self
    }
}
