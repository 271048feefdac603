//! Finds who joins whom, and rings of goroutines each of which waits for the next.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Who joins whom. The word of a goroutine that is joined has an address on the stack of the joiner.
#[derive(Debug, Default)]
pub struct Joins {
    /// Each word, and the number of its goroutine.
    words: Vec<(usize, u64)>,
    /// The stacks of the joiners, and their numbers.
    stacks: Vec<(Range<usize>, u64)>,
}

impl Joins {
    /// Notes what the word of goroutine `id` has.
    pub fn add_word(&mut self, word: usize, id: u64) {
        self.words.push((word, id));
    }

    /// Notes the stack of goroutine `id`, which joins one.
    pub fn add_joiner(&mut self, stack: Range<usize>, id: u64) {
        self.stacks.push((stack, id));
    }

    /// The number of the goroutine that each joiner joins.
    #[must_use]
    pub fn joined(mut self) -> HashMap<u64, u64> {
        self.words.sort_unstable();
        let mut joined_by = HashMap::new();
        for (stack, id) in self.stacks {
            let at = self.words.partition_point(|&(word, _)| word < stack.start);
            if let Some(&(_, joined)) = self.words.get(at).filter(|(word, _)| stack.contains(word))
            {
                joined_by.insert(id, joined);
            }
        }
        joined_by
    }
}

/// The rings of goroutines each of which waits for the next. `waits` has the number of each goroutine, and of that for
/// which it waits.
#[must_use]
pub fn rings(waits: &[(u64, Option<u64>)]) -> Vec<Vec<u64>> {
    let waits_for: HashMap<u64, u64> = waits
        .iter()
        .filter_map(|&(id, other)| Some((id, other?)))
        .collect();
    let mut seen = HashSet::new();
    let mut rings = Vec::new();
    for &(id, _) in waits {
        let (mut path, mut at) = (Vec::new(), id);
        while seen.insert(at) {
            path.push(at);
            match waits_for.get(&at) {
                Some(&next) => at = next,
                None => break,
            }
        }
        // It has come back to this path, and not to one before.
        if waits_for.contains_key(&at)
            && let Some(begin) = path.iter().position(|&id| id == at)
        {
            rings.push(path.split_off(begin));
        }
    }
    rings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_on_a_stack_is_joined_by_its_owner() {
        let mut joins = Joins::default();
        for (word, id) in [(150, 1), (0, 2), (900, 3)] {
            joins.add_word(word, id);
        }
        joins.add_joiner(100..200, 7);
        joins.add_joiner(200..300, 8);
        assert_eq!(joins.joined(), HashMap::from([(7, 1)]));
    }

    #[test]
    fn a_ring_is_found_once_and_without_the_path_to_it() {
        let waits = [
            (1, Some(2)),
            (2, Some(3)),
            (3, Some(2)),
            (4, Some(4)),
            (5, None),
            (6, Some(5)),
            (7, Some(3)),
        ];
        assert_eq!(rings(&waits), [vec![2, 3], vec![4]]);
    }
}
