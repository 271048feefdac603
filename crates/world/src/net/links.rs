//! Links between hosts: latency, bandwidth, faults, and whether they are cut.

use std::collections::BTreeMap;

use super::dice::Dice;

/// The properties of a link in one direction. Probabilities are in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The least and the most time that a packet takes, besides its transmission.
    pub latency_ns: (u64, u64),
    /// Bytes of payload per second; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Of a datagram: it is lost.
    pub loss: u32,
    /// Of a datagram: it arrives twice.
    pub duplication: u32,
    /// Of a datagram: it is delayed, so that later ones overtake it.
    pub reordering: u32,
    /// Of a segment of a TCP connection: the connection is reset.
    pub resets: u32,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
struct Direction {
    quality: Quality,
    /// When the bytes that were sent so far have left.
    busy_until_ns: u64,
    /// The program has cut it.
    is_cut: bool,
    /// The number of drawn faults that cut it now.
    n_faults: u32,
}

/// All links, by the hosts from which and to which they lead.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) default: Quality,
    by_hosts: BTreeMap<(u32, u32), Direction>,
}

impl Links {
    fn direction(&mut self, from: u32, to: u32) -> &mut Direction {
        let quality = self.default;
        self.by_hosts.entry((from, to)).or_insert(Direction {
            quality,
            busy_until_ns: 0,
            is_cut: false,
            n_faults: 0,
        })
    }

    /// Sets the properties of all links that exist, and of later ones.
    pub(super) fn set_all(&mut self, quality: Quality) {
        self.default = quality;
        for direction in self.by_hosts.values_mut() {
            direction.quality = quality;
        }
    }

    pub(super) fn set(&mut self, from: u32, to: u32, quality: Quality) {
        self.direction(from, to).quality = quality;
    }

    pub(super) fn quality(&self, from: u32, to: u32) -> Quality {
        match self.by_hosts.get(&(from, to)) {
            _ if from == to => Quality::default(),
            Some(direction) => direction.quality,
            None => self.default,
        }
    }

    /// Cuts one direction, or ends all cuts of it.
    pub(super) fn set_cut(&mut self, from: u32, to: u32, cut: bool) {
        let direction = self.direction(from, to);
        direction.is_cut = cut;
        if !cut {
            direction.n_faults = 0;
        }
    }

    /// The directions that are cut.
    pub(super) fn cuts(&self) -> Vec<(u32, u32)> {
        let all = self.by_hosts.keys().copied();
        all.filter(|&(from, to)| self.is_cut(from, to)).collect()
    }

    pub(super) fn heal_all(&mut self) {
        for direction in self.by_hosts.values_mut() {
            direction.is_cut = false;
            direction.n_faults = 0;
        }
    }

    /// A drawn fault cuts one direction, or ends.
    pub(super) fn set_fault(&mut self, from: u32, to: u32, begins: bool) {
        let n = &mut self.direction(from, to).n_faults;
        *n = if begins { *n + 1 } else { n.saturating_sub(1) };
    }

    pub(super) fn is_cut(&self, from: u32, to: u32) -> bool {
        let direction = self.by_hosts.get(&(from, to));
        from != to && direction.is_some_and(|d| d.is_cut || d.n_faults > 0)
    }

    /// When a packet of `len` bytes arrives that is sent now; `None` if the link is cut. A host's
    /// packets to itself take no time.
    pub(super) fn depart(
        &mut self,
        dice: &dyn Dice,
        from: u32,
        to: u32,
        len: usize,
    ) -> Option<u64> {
        if from == to {
            return Some(dice.now_ns());
        }
        if self.is_cut(from, to) {
            return None;
        }
        let direction = self.direction(from, to);
        let mut left_ns = dice.now_ns();
        if let Some(bandwidth) = direction.quality.bandwidth {
            let takes_ns = len as u128 * 1_000_000_000 / u128::from(bandwidth.max(1));
            let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
            left_ns = left_ns
                .max(direction.busy_until_ns)
                .saturating_add(takes_ns);
            direction.busy_until_ns = left_ns;
        }
        let (least, most) = direction.quality.latency_ns;
        Some(left_ns.saturating_add(dice.between(least, most)))
    }
}
