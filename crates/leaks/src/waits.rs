//! Finds the waits that nothing can end.

use std::collections::HashMap;

use crate::holders::{Holders, SAID_AT_MOST};

/// What may end the wait of a goroutine that may be leaked.
#[derive(Clone, Debug)]
pub enum End {
    /// Nothing, and why.
    Nothing(&'static str),
    /// The end of a goroutine.
    Join(u64),
    /// One of these handles, each named by the complement of its word.
    Handles(Vec<usize>),
}

impl End {
    /// Says why nothing ends the wait of goroutine `id`.
    fn reason(&self, id: u64, holders: &Holders) -> String {
        match self {
            End::Nothing(why) => (*why).to_owned(),
            End::Join(other) if *other == id => "it joins itself".to_owned(),
            End::Join(other) => format!("goroutine {other}, which it joins, is leaked"),
            End::Handles(wanted) => {
                let said = wanted.iter().take(SAID_AT_MOST);
                let mut parts: Vec<_> = said.map(|&h| holders.describe(h, id)).collect();
                parts.dedup();
                match wanted.len().checked_sub(SAID_AT_MOST) {
                    None | Some(0) => parts.join("; "),
                    Some(n) => format!("{}; and {n} others", parts.join("; ")),
                }
            }
        }
    }
}

/// What may end the wait of a goroutine: another, or the holder of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Goroutine(u64),
    Handle(usize),
}

/// Waits, by the numbers of their goroutines.
#[derive(Clone, Debug)]
pub struct Waits(pub HashMap<u64, End>);

impl Waits {
    /// Removes waits that may be ended from outside, until there are none. Each goroutine and each handle is looked at
    /// once, so that long chains and handles with many holders take no longer than others.
    pub fn shrink(&mut self, holders: &Holders) {
        let set = &mut self.0;
        let mut ends: HashMap<Source, Vec<u64>> = HashMap::new();
        for (&id, end) in &*set {
            let sources = match end {
                End::Nothing(_) => Vec::new(),
                End::Join(other) => vec![Source::Goroutine(*other)],
                End::Handles(wanted) => wanted.iter().map(|&h| Source::Handle(h)).collect(),
            };
            for source in sources {
                ends.entry(source).or_default().push(id);
            }
        }
        let mut holds: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut free: Vec<Source> = Vec::new();
        for &source in ends.keys() {
            match source {
                Source::Goroutine(id) if !set.contains_key(&id) => free.push(source),
                Source::Goroutine(_) => {}
                Source::Handle(handle) => match holders.of(handle) {
                    Some(by) => by
                        .into_iter()
                        .for_each(|id| holds.entry(id).or_default().push(handle)),
                    None => free.push(source),
                },
            }
        }
        let outside = holds.keys().filter(|id| !set.contains_key(id));
        free.extend(outside.map(|&id| Source::Goroutine(id)));
        while let Some(source) = free.pop() {
            if let Source::Goroutine(id) = source {
                let handles = holds.remove(&id).into_iter().flatten();
                free.extend(handles.map(Source::Handle));
            }
            for id in ends.remove(&source).into_iter().flatten() {
                if set.remove(&id).is_some() {
                    free.push(Source::Goroutine(id));
                }
            }
        }
    }

    /// The handles that may end them.
    pub fn handles(&self) -> impl Iterator<Item = usize> {
        let handles = self.0.values().flat_map(|end| match end {
            End::Handles(wanted) => &wanted[..],
            End::Nothing(_) | End::Join(_) => &[],
        });
        handles.copied()
    }

    /// Of a set that was shrunk, the waits of which this is sure without a look at handles.
    #[must_use]
    pub fn proved(&self, holders: &Holders) -> Waits {
        let mut proved = self.clone();
        proved.0.retain(|_, end| !matches!(end, End::Handles(_)));
        proved.shrink(holders);
        proved
    }

    /// Says why nothing ends the wait of a goroutine. `None` if it is not in the set.
    #[must_use]
    pub fn reason(&self, id: u64, holders: &Holders) -> Option<String> {
        Some(self.0.get(&id)?.reason(id, holders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(ends: impl IntoIterator<Item = (u64, End)>) -> Waits {
        Waits(ends.into_iter().collect())
    }

    fn ids(waits: &Waits) -> Vec<u64> {
        let mut ids: Vec<u64> = waits.0.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn a_join_is_as_leaked_as_what_it_joins() {
        let mut set = waits([
            (1, End::Nothing("no")),
            (2, End::Join(1)),
            (3, End::Join(4)),
            (4, End::Join(9)),
            (5, End::Join(6)),
            (6, End::Join(5)),
            (7, End::Join(7)),
        ]);
        let holders = Holders::not_searched();
        set.shrink(&holders);
        assert_eq!(ids(&set), [1, 2, 5, 6, 7]);
        assert_eq!(ids(&set.proved(&holders)), [1, 2, 5, 6, 7]);
        let reason = |id| set.reason(id, &holders);
        assert_eq!(reason(1).unwrap(), "no");
        assert_eq!(reason(2).unwrap(), "goroutine 1, which it joins, is leaked");
        assert_eq!(reason(7).unwrap(), "it joins itself");
        assert_eq!(reason(3), None);
    }

    /// Of each of these another waits for the end, and the last for that of one that goes on. With a look at all for each
    /// that leaves, this takes longer than anybody waits.
    #[test]
    fn a_long_chain_of_joins_is_taken_apart() {
        const N: u64 = 300_000;
        let chain = |last: u64| {
            let joins = (1..N).map(|id| (id, End::Join(id + 1)));
            waits(joins.chain([(N, End::Join(last))]))
        };
        let mut free = chain(0);
        free.shrink(&Holders::not_searched());
        assert!(free.0.is_empty());
        let mut ring = chain(1);
        ring.shrink(&Holders::not_searched());
        assert_eq!(ring.0.len() as u64, N);
    }

    #[test]
    fn what_waits_for_handles_is_not_proved() {
        let set = waits([(1, End::Handles(vec![5])), (2, End::Join(1))]);
        let holders = Holders::not_searched();
        assert_eq!(set.handles().collect::<Vec<_>>(), [5]);
        assert!(set.proved(&holders).0.is_empty());
    }
}
