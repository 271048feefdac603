//! Messages that were sent and not received, counted for each channel of a run on request. A channel whose
//! handles are forgotten keeps its count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

/// A channel of the run.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) site: &'static Location<'static>,
    /// The goroutine that made it.
    pub(super) by: u64,
    /// Messages that wait to be received.
    pub(super) n_waiting: u64,
    /// Messages that were there when the last receiver was dropped.
    pub(super) n_lost: u64,
}

/// The channels of a run that have messages, or may get some.
#[derive(Debug, Default)]
pub struct Messages {
    pub(super) channels: RefCell<BTreeMap<u64, Channel>>,
}

impl Messages {
    /// A line for each channel with messages that nobody has received.
    pub fn left(&self) -> Vec<String> {
        let channels = self.channels.borrow();
        channels.values().filter_map(Channel::line).collect()
    }
}

impl Channel {
    fn line(&self) -> Option<String> {
        let what = match (self.n_waiting, self.n_lost) {
            (0, 0) => return None,
            (0, lost) => format!("{} dropped with the last receiver", Count(lost)),
            (waiting, _) => format!("{} not received", Count(waiting)),
        };
        let Channel { site, by, .. } = self;
        Some(format!("channel made at {site} by goroutine {by}: {what}"))
    }
}

struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 message"),
            n => write!(f, "{n} messages"),
        }
    }
}
