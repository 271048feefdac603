//! The goroutines of a run that can run, in the order in which they became runnable.
//!
//! Each has a place in a list, and a place that is left stays empty: a tree over the places counts the
//! goroutines below each of its nodes, and knows the one of them that goes before the others by its
//! priority. So a step takes time that grows with the logarithm of their number. When the list comes to
//! its end, it is made anew without its empty places.

/// A part of the list.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// How many goroutines it has.
    n: u32,
    /// The place of the one with the highest priority; of equal ones the last. Only if there is one.
    best: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    id: u64,
    priority: i64,
}

/// No smaller list is made.
const FEWEST_PLACES: usize = 8;

/// Goroutines that can run, by their numbers.
#[derive(Debug, Default)]
pub struct Runnable {
    /// A goroutine for each place. Those that have left are still there.
    entries: Vec<Entry>,
    /// The root is at 1, the two parts of `nodes[i]` at 2 i and 2 i + 1, and the places are its second half.
    nodes: Vec<Node>,
    /// By number: the place and one, 0 for none.
    place_of: Vec<u32>,
}

impl Runnable {
    fn n_places(&self) -> usize {
        self.nodes.len() / 2
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.nodes.get(1).map_or(0, |root| root.n as usize)
    }

    /// Whether none can run.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a goroutine is among them.
    pub fn contains(&self, id: u64) -> bool {
        self.place_of(id).is_some()
    }

    fn place_of(&self, id: u64) -> Option<usize> {
        let place = *self.place_of.get(id as usize)?;
        (place as usize).checked_sub(1)
    }

    /// Adds a goroutine behind the others. It is not among them.
    pub fn push(&mut self, id: u64, priority: i64) {
        if self.is_empty() {
            self.entries.clear();
        }
        if self.entries.len() == self.n_places() {
            self.renew();
        }
        let place = self.entries.len();
        self.entries.push(Entry { id, priority });
        if self.place_of.len() <= id as usize {
            self.place_of.resize(id as usize + 1, 0);
        }
        self.place_of[id as usize] = place as u32 + 1;
        self.set_node(place, 1);
    }

    /// Makes the list anew, without empty places and with as many free ones as goroutines, or more.
    #[cold]
    fn renew(&mut self) {
        let Runnable {
            entries, place_of, ..
        } = self;
        let mut place = 0;
        let mut n_left = 0;
        entries.retain(|entry| {
            place += 1;
            // A goroutine that has left may have come again since.
            let is_there = place_of[entry.id as usize] == place;
            if is_there {
                n_left += 1;
                place_of[entry.id as usize] = n_left;
            }
            is_there
        });
        let n_places = (2 * entries.len()).next_power_of_two().max(FEWEST_PLACES);
        self.nodes.clear();
        self.nodes.resize(2 * n_places, Node::default());
        for place in 0..self.entries.len() {
            self.nodes[n_places + place] = Node {
                n: 1,
                best: place as u32,
            };
        }
        for at in (1..n_places).rev() {
            self.nodes[at] = self.joined(at);
        }
    }

    /// The sum of the two parts of a node.
    fn joined(&self, at: usize) -> Node {
        let (left, right) = (self.nodes[2 * at], self.nodes[2 * at + 1]);
        let is_right = left.n == 0
            || right.n > 0
                && self.entries[right.best as usize].priority
                    >= self.entries[left.best as usize].priority;
        Node {
            n: left.n + right.n,
            best: if is_right { right.best } else { left.best },
        }
    }

    /// Sets how many are at a place.
    fn set_node(&mut self, place: usize, n: u32) {
        let mut at = self.n_places() + place;
        let best = place as u32;
        self.nodes[at] = Node { n, best };
        while at > 1 {
            at /= 2;
            self.nodes[at] = self.joined(at);
        }
    }

    /// The place of the goroutine before which there are `nth` others.
    fn place_at(&self, mut nth: usize) -> usize {
        let mut at = 1;
        while at < self.n_places() {
            at *= 2;
            let n_left = self.nodes[at].n as usize;
            if nth >= n_left {
                nth -= n_left;
                at += 1;
            }
        }
        at - self.n_places()
    }

    /// How many come before the one at a place.
    fn n_before(&self, place: usize) -> usize {
        let mut at = self.n_places() + place;
        let mut n = 0;
        while at > 1 {
            if at % 2 == 1 {
                n += self.nodes[at - 1].n as usize;
            }
            at /= 2;
        }
        n
    }

    /// The goroutine before which there are `nth` others.
    ///
    /// # Panics
    ///
    /// If there are no more than `nth`.
    pub fn at(&self, nth: usize) -> u64 {
        assert!(nth < self.len(), "only {} can run", self.len());
        self.entries[self.place_at(nth)].id
    }

    /// The one that became runnable last.
    pub fn last(&self) -> Option<u64> {
        Some(self.at(self.len().checked_sub(1)?))
    }

    /// Takes out the goroutine before which there are `nth` others.
    ///
    /// # Panics
    ///
    /// If there are no more than `nth`.
    pub fn remove(&mut self, nth: usize) -> u64 {
        assert!(nth < self.len(), "only {} can run", self.len());
        let place = self.place_at(nth);
        let id = self.entries[place].id;
        self.place_of[id as usize] = 0;
        self.set_node(place, 0);
        id
    }

    /// The goroutine with the highest priority, of equal ones the one that became runnable last: how many come
    /// before it, its number and its priority.
    pub fn best(&self) -> Option<(usize, u64, i64)> {
        let root = self.nodes.get(1).filter(|root| root.n > 0)?;
        let place = root.best as usize;
        let Entry { id, priority } = self.entries[place];
        Some((self.n_before(place), id, priority))
    }

    /// Changes the priority of a goroutine, if it is among them.
    pub fn set_priority(&mut self, id: u64, priority: i64) {
        if let Some(place) = self.place_of(id) {
            self.entries[place].priority = priority;
            self.set_node(place, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Rng;

    /// The same, by looking at all.
    #[derive(Default)]
    struct Plain(Vec<Entry>);

    impl Plain {
        fn best(&self) -> Option<(usize, u64, i64)> {
            let all = self.0.iter().enumerate();
            all.max_by_key(|(_, entry)| entry.priority)
                .map(|(at, entry)| (at, entry.id, entry.priority))
        }
    }

    #[test]
    fn it_is_a_list() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut list, mut plain) = (Runnable::default(), Plain::default());
            // From few to many, and to none.
            let most = 1 << rng.below(9);
            let mut next_id = 1;
            for step in 0..2_000 {
                let is_full = plain.0.len() as u64 > rng.below(most);
                match rng.below(4) {
                    0 if !plain.0.is_empty() => {
                        let nth = rng.below(plain.0.len() as u64) as usize;
                        let priority = rng.below(5).cast_signed();
                        plain.0[nth].priority = priority;
                        list.set_priority(plain.0[nth].id, priority);
                    }
                    1..4 if is_full => {
                        let nth = rng.below(plain.0.len() as u64) as usize;
                        let entry = plain.0.remove(nth);
                        assert_eq!(list.remove(nth), entry.id);
                        // It yields.
                        if rng.below(2) == 0 {
                            plain.0.push(entry);
                            list.push(entry.id, entry.priority);
                        }
                    }
                    _ => {
                        let priority = rng.below(5).cast_signed();
                        plain.0.push(Entry {
                            id: next_id,
                            priority,
                        });
                        list.push(next_id, priority);
                        next_id += 1;
                    }
                }
                assert_eq!(list.len(), plain.0.len());
                assert_eq!(list.best(), plain.best(), "seed {seed}, step {step}");
                assert_eq!(list.last(), plain.0.last().map(|entry| entry.id));
                let id = 1 + rng.below(next_id);
                assert_eq!(list.contains(id), plain.0.iter().any(|e| e.id == id));
            }
            for (nth, entry) in plain.0.iter().enumerate() {
                assert_eq!(list.at(nth), entry.id);
            }
        }
    }
}
