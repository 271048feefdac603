//! Calls of clients and their results, and whether one store could have answered so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::replicated::Command;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Call(Command),
    /// The answer to the call with this number, which is its place in the history.
    Return(usize, Option<String>),
}

/// The calls and answers of all clients, in the order in which they happened.
///
/// All goroutines of a simulation run on one thread, and none of them waits while it has the lock, which
/// can therefore be `std`'s.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Vec<Event>>);

impl History {
    /// A client begins a call. Returns the number of the call.
    pub(crate) fn call(&self, command: &Command) -> usize {
        let mut events = self.0.lock().unwrap();
        events.push(Event::Call(command.clone()));
        events.len() - 1
    }

    /// The call was answered. One that is not may have taken effect, at any time since.
    pub(crate) fn answer(&self, call: usize, value: Option<String>) {
        self.0.lock().unwrap().push(Event::Return(call, value));
    }

    /// How many calls there were, and how many of them were answered.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let events = self.0.lock().unwrap();
        let is_call = |event: &&Event| matches!(event, Event::Call(_));
        let n_calls = events.iter().filter(is_call).count();
        (n_calls, events.len() - n_calls)
    }

    /// Checks that the history is linearizable: that each call could have taken effect at one instant between
    /// its begin and its answer. Keys are independent of one another, so each is checked alone.
    ///
    /// # Errors
    ///
    /// Names the first answer that cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let events = self.0.lock().unwrap();
        let mut answers = BTreeMap::new();
        for event in events.iter() {
            if let Event::Return(call, value) = event {
                answers.insert(*call, value);
            }
        }
        let mut keys: BTreeMap<&str, Key<'_>> = BTreeMap::new();
        for (n, event) in events.iter().enumerate() {
            let call = match event {
                Event::Call(_) => n,
                Event::Return(call, _) => *call,
            };
            let Event::Call(command) = &events[call] else {
                return Err(format!("{call} is no call"));
            };
            let Some(name) = key_of(command) else {
                continue;
            };
            let key = keys.entry(name).or_default();
            match event {
                // A read without an answer says nothing.
                Event::Call(Command::Get { .. }) if !answers.contains_key(&n) => {}
                Event::Call(command) => key.begin(n, command, answers.get(&n).copied()),
                Event::Return(call, value) => {
                    if let Err(values) = key.end(*call) {
                        return Err(format!(
                            "not linearizable: event {n}: the answer to {command:?} of event {call} was \
                             {value:?}, and the value can only have been one of {values:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn key_of(command: &Command) -> Option<&str> {
    match command {
        Command::Nothing => None,
        Command::Get { key } | Command::Put { key, .. } | Command::Swap { key, .. } => Some(key),
    }
}

/// A state that one key may have at an instant of the history: its value, and which of the open calls have
/// taken effect.
type State<'a> = (Option<&'a str>, BTreeSet<usize>);

/// A key, and all that is possible after the events so far.
///
/// Lowe's "Testing for linearizability" (2017) calls this just-in-time linearization: a call takes effect
/// only when an answer needs it to have, and each state is looked at once (as in Wing and Gong, "Testing
/// and verifying concurrent objects", 1993, with Lowe's memory of states). The number of states is bounded by the
/// calls that are open at once, so histories may be as long as they like.
#[derive(Debug)]
struct Key<'a> {
    states: BTreeSet<State<'a>>,
    /// The open calls, with the answer that they will get.
    open: BTreeMap<usize, (&'a Command, Option<&'a Option<String>>)>,
}

impl Default for Key<'_> {
    fn default() -> Self {
        Key {
            states: [(None, BTreeSet::new())].into(),
            open: BTreeMap::new(),
        }
    }
}

impl<'a> Key<'a> {
    fn begin(&mut self, call: usize, command: &'a Command, answer: Option<&'a Option<String>>) {
        self.open.insert(call, (command, answer));
    }

    /// The call ends, so it has taken effect. The values that the key may have had, if that cannot be.
    fn end(&mut self, call: usize) -> Result<(), BTreeSet<Option<&'a str>>> {
        let mut to_visit: Vec<State<'a>> = self.states.iter().cloned().collect();
        let mut visited = BTreeSet::new();
        let mut left = BTreeSet::new();
        while let Some((value, effects)) = to_visit.pop() {
            if !visited.insert((value, effects.clone())) {
                continue;
            }
            if effects.contains(&call) {
                let mut effects = effects;
                effects.remove(&call);
                left.insert((value, effects));
                continue;
            }
            for (&other, &(command, answer)) in &self.open {
                let fits = answer.is_none_or(|answer| answer.as_deref() == value);
                if fits && !effects.contains(&other) {
                    let mut effects = effects.clone();
                    effects.insert(other);
                    to_visit.push((after(value, command), effects));
                }
            }
        }
        if left.is_empty() {
            return Err(visited.into_iter().map(|(value, _)| value).collect());
        }
        self.open.remove(&call);
        self.states = left;
        Ok(())
    }
}

/// The value after a command.
fn after<'a>(value: Option<&'a str>, command: &'a Command) -> Option<&'a str> {
    match command {
        Command::Nothing | Command::Get { .. } => value,
        Command::Put { value, .. } => Some(value),
        Command::Swap {
            expected,
            value: new,
            ..
        } => match value == expected.as_deref() {
            true => Some(new),
            false => value,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(key: &str) -> Command {
        Command::Get {
            key: key.to_owned(),
        }
    }

    fn put(key: &str, value: &str) -> Command {
        Command::Put {
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    fn swap(expected: Option<&str>, value: &str) -> Command {
        Command::Swap {
            key: "k".to_owned(),
            expected: expected.map(str::to_owned),
            value: value.to_owned(),
        }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn calls_one_after_the_other() {
        let history = History::default();
        let calls = [
            (get("k"), None),
            (put("k", "a"), None),
            (get("other"), None),
            (swap(Some("x"), "b"), text("a")),
            (swap(Some("a"), "c"), text("a")),
            (get("k"), text("c")),
        ];
        for (command, answer) in calls {
            let call = history.call(&command);
            history.answer(call, answer);
        }
        assert_eq!(history.check(), Ok(()));
        assert_eq!(history.counts(), (6, 6));
        let call = history.call(&get("k"));
        history.answer(call, text("a"));
        assert!(history.check().unwrap_err().contains("not linearizable"));
    }

    #[test]
    fn calls_at_the_same_time() {
        // The put may take effect before or after each of the reads, but not both ways.
        for (first, second, is_possible) in [
            (None, None, true),
            (None, text("a"), true),
            (text("a"), text("a"), true),
            (text("a"), None, false),
            (text("b"), text("b"), false),
        ] {
            let history = History::default();
            let written = history.call(&put("k", "a"));
            for value in [first, second] {
                let read = history.call(&get("k"));
                history.answer(read, value);
            }
            history.answer(written, None);
            assert_eq!(history.check().is_ok(), is_possible);
        }
    }

    #[test]
    fn calls_without_an_answer() {
        // It may have taken effect long after, or never, but once only.
        for (values, is_possible) in [
            (vec![None, None], true),
            (vec![None, text("a"), text("a")], true),
            (vec![text("a"), None], false),
        ] {
            let history = History::default();
            history.call(&put("k", "a"));
            history.call(&get("k"));
            for value in values {
                let read = history.call(&get("k"));
                history.answer(read, value);
            }
            assert_eq!(history.check().is_ok(), is_possible);
        }
    }

    #[test]
    fn a_command_that_is_carried_out_twice() {
        let history = History::default();
        let first = history.call(&swap(None, "a"));
        let second = history.call(&swap(Some("a"), "b"));
        history.answer(second, text("a"));
        // Its first time was answered "no value", and that answer was lost.
        history.answer(first, text("b"));
        assert!(history.check().is_err());
    }
}
