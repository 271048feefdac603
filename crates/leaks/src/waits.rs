//! Finds the waits that nothing can end.

use std::collections::HashMap;

use crate::holders::Holders;

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
    /// Whether only members of a set may end it.
    fn is_within(&self, set: &HashMap<u64, End>, holders: &Holders) -> bool {
        match self {
            End::Nothing(_) => true,
            End::Join(other) => set.contains_key(other),
            End::Handles(wanted) => wanted
                .iter()
                .all(|&handle| holders.are_within(handle, |id| set.contains_key(&id))),
        }
    }

    /// Says why nothing ends the wait of goroutine `id`.
    fn reason(&self, id: u64, holders: &Holders) -> String {
        match self {
            End::Nothing(why) => (*why).to_owned(),
            End::Join(other) if *other == id => "it joins itself".to_owned(),
            End::Join(other) => format!("goroutine {other}, which it joins, is leaked"),
            End::Handles(wanted) => {
                let mut parts: Vec<_> = wanted.iter().map(|&h| holders.describe(h, id)).collect();
                parts.dedup();
                parts.join("; ")
            }
        }
    }
}

/// Waits, by the numbers of their goroutines.
#[derive(Clone, Debug)]
pub struct Waits(pub HashMap<u64, End>);

impl Waits {
    /// Removes waits that may be ended from outside, until there are none.
    pub fn shrink(&mut self, holders: &Holders) {
        let set = &mut self.0;
        loop {
            let is_free = |(_, end): &(&u64, &End)| !end.is_within(set, holders);
            let free: Vec<u64> = set.iter().filter(is_free).map(|(&id, _)| id).collect();
            if free.is_empty() {
                return;
            }
            for id in free {
                set.remove(&id);
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

    #[test]
    fn what_waits_for_handles_is_not_proved() {
        let set = waits([(1, End::Handles(vec![5])), (2, End::Join(1))]);
        let holders = Holders::not_searched();
        assert_eq!(set.handles().collect::<Vec<_>>(), [5]);
        assert!(set.proved(&holders).0.is_empty());
    }
}
