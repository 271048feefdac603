//! What is explored.

use std::sync::OnceLock;
use std::time::Duration;

use windlass::explore::Scenario;
use windlass::topology::Topology;
use windlass::{Builder, Runtime};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "spawn_join",
        run: spawn_join,
    },
    Scenario {
        name: "park_unpark",
        run: park_unpark,
    },
];

static MACHINE: OnceLock<Topology> = OnceLock::new();

/// Looks at the machine, once for all schedules.
pub(crate) fn prepare() {
    MACHINE.get_or_init(|| Topology::detect().expect("this machine can be described"));
}

fn builder(ps: usize) -> Builder {
    Builder::new()
        .processors(ps)
        .pin(false)
        .topology(MACHINE.get().expect("prepared").clone())
}

#[expect(unsafe_code, reason = "the builder's contract")]
fn runtime(ps: usize) -> Runtime {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    unsafe { builder(ps).build() }.expect("a runtime")
}

fn spawn_join() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3).map(|i| windlass::spawn(move || i * 2)).collect();
        let sum: i32 = all.into_iter().map(|g| g.join().unwrap()).sum();
        assert_eq!(sum, 6);
    });
}

fn park_unpark() {
    let rt = runtime(2);
    rt.run(|| {
        let parked = windlass::spawn(|| windlass::task::park_timeout(Duration::from_millis(5)));
        parked.task().unpark();
        parked.join().unwrap();
    });
}
