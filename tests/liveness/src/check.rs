//! A checker of liveness: all states that can be reached, and among them those in which work may wait for ever.
//!
//! Threads are weakly fair: one that can take a step takes one at some time. Pushes and runs never come back, so a run in which work
//! waits for ever stays at last in a set of states that reach one another (found by Tarjan's algorithm), or ends in
//! a state without a step. It is fair if each thread takes a step inside the set, or cannot in one of its states.

use std::collections::HashMap;
use std::fmt::Write;

use crate::model::{Fault, State, THREADS};

/// All states, as numbers in the order in which they were found.
struct Graph {
    states: Vec<State>,
    /// The steps out of each state: a thread, and the state after it.
    steps: Vec<Vec<(usize, usize)>>,
    /// The state from which each was found first, and the thread that took the step.
    from: Vec<Option<(usize, usize)>>,
}

impl Graph {
    fn explore(first: State, fault: Fault) -> Graph {
        let mut graph = Graph {
            states: vec![first],
            steps: Vec::new(),
            from: vec![None],
        };
        let mut numbers = HashMap::from([(first, 0)]);
        while graph.steps.len() < graph.states.len() {
            let at = graph.steps.len();
            let mut steps = Vec::new();
            for thread in 0..THREADS {
                for state in { graph.states[at] }.after(thread, fault) {
                    let number = *numbers.entry(state).or_insert_with(|| {
                        graph.states.push(state);
                        graph.from.push(Some((at, thread)));
                        graph.states.len() - 1
                    });
                    steps.push((thread, number));
                }
            }
            graph.steps.push(steps);
            if graph.end_with_work().is_some() {
                break;
            }
        }
        graph
    }

    /// The state looked at last, if nothing happens in it though work waits.
    fn end_with_work(&self) -> Option<usize> {
        let at = self.steps.len() - 1;
        (self.steps[at].is_empty() && self.states[at].has_work()).then_some(at)
    }

    /// The first state of a set in which work may wait for ever.
    fn stuck_set(&self) -> Option<usize> {
        let (sets, set_of) = self.sets();
        let stuck = sets.iter().filter(|set| self.is_stuck(set, &set_of));
        stuck.flatten().min().copied()
    }

    /// Whether work may wait for ever in these states, which reach one another.
    fn is_stuck(&self, set: &[usize], set_of: &[usize]) -> bool {
        let at = set[0];
        let stays = |&(_, to): &(usize, usize)| set_of[to] == set_of[at];
        let is_fair = |thread: usize| {
            set.iter().any(|&state| {
                let mut own = self.steps[state].iter().filter(|(who, _)| *who == thread);
                own.clone().next().is_none() || own.any(stays)
            })
        };
        let has_cycle = set.iter().any(|&state| self.steps[state].iter().any(stays));
        self.states[at].has_work() && has_cycle && (0..THREADS).all(is_fair)
    }

    /// The sets of states that reach one another, and the number of the set of each state.
    fn sets(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        const NONE: usize = usize::MAX;
        let n = self.states.len();
        let (mut order, mut low, mut set_of) = (vec![NONE; n], vec![NONE; n], vec![NONE; n]);
        let (mut open, mut sets, mut n_seen) = (Vec::new(), Vec::new(), 0);
        // Every state is reached from the first. A call is a state, and how many of its steps were followed.
        let mut calls = vec![(0, 0)];
        while let Some((at, followed)) = calls.pop() {
            if followed == 0 {
                (order[at], low[at]) = (n_seen, n_seen);
                n_seen += 1;
                open.push(at);
            } else {
                let (_, to) = self.steps[at][followed - 1];
                if set_of[to] == NONE {
                    low[at] = low[at].min(low[to]);
                }
            }
            match self.steps[at].get(followed) {
                Some(&(_, to)) => {
                    calls.push((at, followed + 1));
                    if order[to] == NONE {
                        calls.push((to, 0));
                    }
                }
                None if low[at] == order[at] => {
                    let begins = open.iter().rposition(|&s| s == at).expect("it is open");
                    let set = open.split_off(begins);
                    set.iter().for_each(|&s| set_of[s] = sets.len());
                    sets.push(set);
                }
                None => {}
            }
        }
        (sets, set_of)
    }

    /// The steps that lead to a state.
    fn way_to(&self, state: usize) -> String {
        let mut way = Vec::new();
        let mut at = state;
        while let Some((before, thread)) = self.from[at] {
            way.push(self.states[before].step_of(thread));
            at = before;
        }
        way.iter().rev().fold(String::new(), |mut text, step| {
            let _ = writeln!(text, "{step}");
            text
        })
    }
}

/// The steps to a state from which work may wait for ever, if there is one.
pub(crate) fn check(first: State, fault: Fault) -> Option<String> {
    let graph = Graph::explore(first, fault);
    let stuck = graph.end_with_work().or_else(|| graph.stuck_set());
    stuck.map(|state| graph.way_to(state))
}
