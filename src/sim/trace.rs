//! Traces of simulated runs: passes what a `Recording` has on to the crate windlass-trace, which draws it.

use windlass_trace::recording::{Known, Recording};
use windlass_trace::simulated;

use super::failure::FailureKind;
use super::report::Run;
use crate::bubble::inside::Bubble;
use crate::debug::trace::NAMES;

/// The result of a run.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) run: simulated::Run,
    /// It repeats another run, which was longer.
    pub(super) is_shorter: bool,
}

impl Taken {
    pub(super) fn of(
        bubble: &Bubble,
        recording: &Recording,
        run: &Run,
        strategy: &str,
        failure: Option<FailureKind>,
        is_shorter: bool,
    ) -> Taken {
        let (entries, n_lost) = recording.take_entries();
        let goroutines = recording.take_goroutines();
        let home = |(&g, known): (&u64, &Known)| (g, bubble.host_of(g, known.parent));
        let homes = goroutines.iter().map(home).collect();
        let (hosts, notes) = bubble.net(|net, _| {
            let hosts = (0..net.n_hosts()).map(|host| (net.name_of(host), net.ip_of(host)));
            let notes = net.notes(0).iter();
            let notes = notes.map(|&note| (note, net.describe(note.incident)));
            (hosts.collect(), notes.collect())
        });
        let elapsed_ns = u64::try_from(run.elapsed.as_nanos()).unwrap_or(u64::MAX);
        let run = simulated::Run {
            entries,
            n_lost,
            goroutines,
            homes,
            hosts,
            notes,
            panics: bubble.panics(),
            title: format!(
                "run with seed {} ({strategy}), schedule {:016x}",
                run.seed, run.schedule
            ),
            failure: failure.map(|kind| format!("{kind:?}")),
            began_ns: bubble.now_ns() - elapsed_ns,
            end: (run.steps, bubble.now_ns()),
            names: NAMES,
        };
        Taken { run, is_shorter }
    }
}
