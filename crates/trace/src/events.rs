//! The events of execution traces.

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// `g` runs now; the goroutine that ran before has yielded.
    Start = 0,
    /// The goroutine on the P parks, for `reason`.
    Park,
    /// The goroutine on the P has ended.
    End,
    /// The P has no goroutine in its queue; the goroutine that ran before has yielded.
    Dry,
    /// `g` was made runnable, or spawned, here.
    Ready,
    /// The P's M goes to sleep.
    Sleep,
    /// The P's M wakes up.
    Awake,
    /// `n` goroutines were stolen; `g` is the index of the victim P, or a node.
    Steal,
    /// `n` completions were reaped.
    Ring,
    /// The goroutine on the P begins a blocking section.
    Block,
    /// The goroutine on the P ends a blocking section.
    Unblock,
    /// The P was retaken from a blocking section.
    RetakeSection,
    /// The P was retaken from a hog.
    RetakeHog,
    /// The P was given to another M.
    HandOff,
    /// `g` found that its P was retaken, and is queued.
    Lost,
    /// `g` was woken here and is sent home, to node `n`.
    SendHome,
    /// `g` has been away for long, and this P's node becomes its home.
    Rehome,
    /// `n` goroutines stolen from another node go to the other Ps of this one.
    Surplus,
    /// `g` begins a region whose name has the number `n`.
    RegionBegin,
    /// `g` ends a region.
    RegionEnd,
}

impl EventKind {
    const ALL: [EventKind; 20] = [
        EventKind::Start,
        EventKind::Park,
        EventKind::End,
        EventKind::Dry,
        EventKind::Ready,
        EventKind::Sleep,
        EventKind::Awake,
        EventKind::Steal,
        EventKind::Ring,
        EventKind::Block,
        EventKind::Unblock,
        EventKind::RetakeSection,
        EventKind::RetakeHog,
        EventKind::HandOff,
        EventKind::Lost,
        EventKind::SendHome,
        EventKind::Rehome,
        EventKind::Surplus,
        EventKind::RegionBegin,
        EventKind::RegionEnd,
    ];
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The time, by the clock of the runtime or of the simulated run.
    pub at_ns: u64,
    /// What has happened.
    pub kind: EventKind,
    /// The number of the reason for which a goroutine parks.
    pub reason: u8,
    /// The P that it concerns; [`NO_P`] for none.
    pub p: usize,
    /// A number: see [`EventKind`].
    pub n: u32,
    /// The number of a goroutine, or what [`EventKind`] says.
    pub g: u64,
}

/// Added to the `g` of a [`EventKind::Steal`] that names a node (by its kernel number) instead of a
/// P.
pub const FROM_NODE: u64 = 1 << 32;

/// In [`Event::p`]: the event concerns no P.
pub const NO_P: usize = 0xffff;

impl Event {
    /// An event without further data.
    #[inline]
    #[must_use]
    pub fn new(at_ns: u64, kind: EventKind) -> Event {
        Event {
            at_ns,
            kind,
            reason: 0,
            p: NO_P,
            n: 0,
            g: 0,
        }
    }

    /// The event as the words of a log.
    #[inline]
    #[must_use]
    pub fn pack(self) -> [u64; 3] {
        let p = self.p.min(NO_P) as u64;
        let head =
            self.kind as u64 | u64::from(self.reason) << 8 | p << 16 | u64::from(self.n) << 32;
        [self.at_ns, head, self.g]
    }

    /// The event in the words of a log. `None` if they are none.
    #[inline]
    #[must_use]
    pub fn unpack([at_ns, head, g]: [u64; 3]) -> Option<Event> {
        Some(Event {
            at_ns,
            kind: *EventKind::ALL.get((head & 0xff) as usize)?,
            reason: (head >> 8) as u8,
            p: (head >> 16) as usize & 0xffff,
            n: (head >> 32) as u32,
            g,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_packing() {
        for (i, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
            let event = Event {
                at_ns: u64::MAX - 1,
                kind,
                reason: 17,
                p: 4095,
                n: u32::MAX,
                g: 1 << 60,
            };
            assert_eq!(
                format!("{:?}", Event::unpack(event.pack())),
                format!("{:?}", Some(event))
            );
        }
        assert_eq!(
            Event::unpack(Event::new(0, EventKind::Dry).pack())
                .unwrap()
                .p,
            NO_P
        );
        assert!(Event::unpack([0, 0xff, 0]).is_none());
    }
}
