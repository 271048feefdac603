//! Regions of goroutines: intervals that the program names.

use std::collections::BTreeMap;

use crate::events::{Event, EventKind};

/// The begin or the end of a region.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RegionEnd {
    pub(crate) at_ns: u64,
    pub(crate) g: u64,
    pub(crate) name: u32,
    pub(crate) is_begin: bool,
}

/// The ends of all regions whose begin is known, in the order of time. Regions that are open at the
/// end of the trace end there.
pub(crate) fn region_ends(events: &[Event], until_ns: u64) -> Vec<RegionEnd> {
    let mut ends = Vec::new();
    // The open regions of each goroutine, the innermost last.
    let mut open: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let end = |at_ns, g, name, is_begin| RegionEnd {
        at_ns,
        g,
        name,
        is_begin,
    };
    for e in events {
        match e.kind {
            EventKind::RegionBegin => {
                open.entry(e.g).or_default().push(e.n);
                ends.push(end(e.at_ns, e.g, e.n, true));
            }
            EventKind::RegionEnd => {
                let names = open.entry(e.g).or_default();
                if let Some(at) = names.iter().rposition(|&name| name == e.n) {
                    names.remove(at);
                    ends.push(end(e.at_ns, e.g, e.n, false));
                }
            }
            _ => {}
        }
    }
    for (g, names) in open {
        let still_open = names.into_iter().rev();
        ends.extend(still_open.map(|name| end(until_ns, g, name, false)));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ns: u64, kind: EventKind, g: u64) -> Event {
        Event {
            g,
            ..Event::new(at_ns, kind)
        }
    }

    #[test]
    fn regions_nest_and_end_with_the_trace() {
        let region = |at_ns, kind, g, n| Event {
            n,
            ..event(at_ns, kind, g)
        };
        let found = region_ends(
            &[
                // Its begin is lost.
                region(1, EventKind::RegionEnd, 7, 0),
                region(2, EventKind::RegionBegin, 7, 0),
                region(3, EventKind::RegionBegin, 8, 0),
                region(4, EventKind::RegionBegin, 7, 1),
                event(5, EventKind::Park, 0),
                region(6, EventKind::RegionEnd, 7, 1),
                region(7, EventKind::RegionBegin, 7, 2),
                region(8, EventKind::RegionEnd, 8, 0),
            ],
            9,
        );
        let found: Vec<_> = found
            .into_iter()
            .map(|e| (e.at_ns, e.g, e.name, e.is_begin))
            .collect();
        assert_eq!(
            found,
            [
                (2, 7, 0, true),
                (3, 8, 0, true),
                (4, 7, 1, true),
                (6, 7, 1, false),
                (7, 7, 2, true),
                (8, 8, 0, false),
                (9, 7, 2, false),
                (9, 7, 0, false),
            ]
        );
    }
}
