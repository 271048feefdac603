//! Labels and CPU times: who inherits a label, and to whom time is charged.
#![expect(
    clippy::disallowed_methods,
    reason = "a blocking section that blocks is what is measured"
)]

use crate::util;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::debug::Goroutine;
use windlass::metrics::RuntimeMetrics;
use windlass::{Builder, Runtime, blocking, sleep, spawn, task, yield_now};

fn timed(n: usize) -> Runtime {
    util::build(Builder::new().processors(n).cpu_accounting(true)).unwrap()
}

fn my_label() -> Option<String> {
    task::current().label().map(str::to_owned)
}

fn label_time(metrics: &RuntimeMetrics, name: &str) -> Duration {
    let label = metrics.labels.iter().find(|l| l.name == name);
    label.map_or(Duration::ZERO, |l| l.cpu_time)
}

fn own(all: Vec<Goroutine>, id: u64) -> Goroutine {
    all.into_iter().find(|g| g.id == id).unwrap()
}

#[test]
fn children_inherit_a_label() {
    util::run(2, || {
        assert_eq!(my_label(), None);
        assert_eq!(spawn(my_label).join().unwrap(), None);
        let outer = task::Builder::new().label("outer").spawn(|| {
            let plain = spawn(|| spawn(my_label).join().unwrap());
            let named = task::Builder::new().name("named").spawn(my_label).unwrap();
            let other = task::Builder::new().label("other").spawn(my_label).unwrap();
            let on_node = task::Builder::new()
                .bound(true)
                .spawn(|| (my_label(), task::current().name().map(str::to_owned)))
                .unwrap();
            // Without a P the goroutine is spawned as from outside.
            let in_section = blocking(|| spawn(my_label));
            let in_scope = task::scope(|s| s.spawn(my_label).join().unwrap());
            assert_eq!(on_node.join().unwrap(), (Some("outer".to_owned()), None));
            let all = [plain, named, other, in_section];
            let mut all: Vec<_> = all.map(|task| task.join().unwrap()).into();
            all.push(in_scope);
            all
        });
        let expected = ["outer", "outer", "other", "outer", "outer"];
        let labels = outer.unwrap().join().unwrap();
        assert_eq!(labels, expected.map(|l| Some(l.to_owned())));
        // The parent of these has none.
        assert_eq!(spawn(my_label).join().unwrap(), None);
        assert_eq!(my_label(), None);
    });
}

#[test]
fn labels_are_counted() {
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    rt.run(|| {
        let spawn_labelled = |label: &str, f: fn()| {
            let task = task::Builder::new().label(label).spawn(f);
            task.unwrap().join().unwrap();
        };
        spawn_labelled("a", || (0..3).for_each(|_| spawn(|| ()).join().unwrap()));
        spawn_labelled("b", || ());
        spawn_labelled("a", || ());
    });
    let metrics = rt.metrics();
    let labels: Vec<_> = metrics
        .labels
        .iter()
        .map(|l| (&*l.name, l.spawned))
        .collect();
    assert_eq!(labels, [("a", 5), ("b", 1)]);
    // Nobody asked for times.
    assert!(!metrics.cpu_accounting);
    assert!(metrics.labels.iter().all(|l| l.cpu_time.is_zero()));
    assert_eq!(metrics.total().run_slices.count(), 0);
}

#[test]
fn there_are_not_many_labels() {
    util::run(1, || {
        let labelled = |i: usize| task::Builder::new().label(i.to_string()).spawn(|| ());
        for i in 0..1024 {
            labelled(i).unwrap().join().unwrap();
        }
        let one_more = labelled(1024).unwrap_err();
        assert_eq!(one_more.kind(), std::io::ErrorKind::InvalidInput);
        assert!(one_more.to_string().contains("1024 others"), "{one_more}");
        // Labels that exist can be used.
        labelled(7).unwrap().join().unwrap();
    });
}

#[test]
fn time_is_charged_to_goroutine_label_and_p() {
    const TIME: Duration = Duration::from_millis(20);
    let _guard = util::hang_guard();
    let rt = timed(1);
    let handle = rt.handle();
    let (worker, sleeper) = rt.run(|| {
        let sleeper = task::Builder::new().label("sleep").spawn(|| {
            sleep(TIME);
            task::park();
        });
        let sleeper = sleeper.unwrap();
        let worker = task::Builder::new().label("work").spawn(|| {
            for _ in 0..4 {
                util::compute(TIME / 4);
                yield_now();
            }
            task::park();
        });
        let worker = worker.unwrap();
        let is_parked = |id| {
            let g = own(handle.goroutines(), id);
            g.wait_reason == Some("park")
        };
        let ids = [worker.task().id(), sleeper.task().id()];
        util::wait_until(|| ids.iter().all(|&id| is_parked(id)));
        let [a, b] = ids.map(|id| own(handle.goroutines(), id));
        worker.task().unpark();
        sleeper.task().unpark();
        worker.join().unwrap();
        sleeper.join().unwrap();
        (a, b)
    });
    let metrics = rt.metrics();
    assert!(metrics.cpu_accounting);
    let used = worker.cpu_time.unwrap();
    assert!(used >= TIME, "{used:?}");
    assert_eq!(worker.label.as_deref(), Some("work"));
    let line = worker.to_string();
    assert!(line.contains(", label \"work\", cpu "), "{line}");
    // The sleeper did next to nothing: whatever the machine does, less than the worker.
    assert!(sleeper.cpu_time.unwrap() < used, "{sleeper:?}");
    assert!(label_time(&metrics, "work") >= used);
    let total = metrics.total();
    let of_labels: Duration = metrics.labels.iter().map(|l| l.cpu_time).sum();
    assert!(total.cpu_time + metrics.cpu_time_without_p >= of_labels);
    assert!(total.run_slices.count() >= 6, "{:?}", total.run_slices);
}

/// The time so far is there before the goroutine switches out.
#[test]
fn a_goroutine_that_computes_is_charged_at_once() {
    let _guard = util::hang_guard();
    let rt = timed(2);
    let handle = rt.handle();
    rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let hog = spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let id = hog.task().id();
        let time = || own(handle.goroutines(), id).cpu_time.unwrap();
        util::wait_until(|| time() > Duration::from_millis(2));
        is_over.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    });
}

/// One P, so the hog loses it to the main goroutine.
#[test]
fn time_without_a_p_counts() {
    let _guard = util::hang_guard();
    let rt = timed(1);
    rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let hog = task::Builder::new().label("hog").spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let hog = hog.unwrap();
        sleep(Duration::from_millis(30));
        is_over.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    });
    let metrics = rt.metrics();
    if metrics.retakes == 0 {
        eprintln!("skipped: without membarrier(2) no P is retaken");
        return;
    }
    assert!(metrics.cpu_time_without_p > Duration::ZERO);
    assert!(label_time(&metrics, "hog") >= metrics.cpu_time_without_p);
}

/// The section is entered and left with the P, and once without.
#[test]
fn a_blocking_section_is_not_charged() {
    const LONG: Duration = Duration::from_millis(300);
    let _guard = util::hang_guard();
    let rt = timed(1);
    rt.run(|| {
        let section = task::Builder::new().label("section").spawn(|| {
            blocking(|| ());
            blocking(|| std::thread::sleep(LONG));
            util::compute(Duration::from_millis(1));
        });
        let section = section.unwrap();
        while !section.is_finished() {
            sleep(Duration::from_millis(5));
        }
        section.join().unwrap();
    });
    let charged = label_time(&rt.metrics(), "section");
    assert!(charged >= Duration::from_millis(1), "{charged:?}");
    // On a machine that is kept busy the goroutine may have been off its CPU for a while.
    assert!(charged < LONG, "{charged:?}");
}

#[test]
fn a_slot_that_is_used_again_begins_at_zero() {
    let _guard = util::hang_guard();
    let rt = timed(1);
    let handle = rt.handle();
    rt.run(|| {
        spawn(|| util::compute(Duration::from_millis(50)))
            .join()
            .unwrap();
        // It gets the slot of the one that has ended.
        let next = spawn(task::park);
        let fresh = own(handle.goroutines(), next.task().id());
        assert_eq!(fresh.cpu_time, Some(Duration::ZERO));
        yield_now();
        let run = own(handle.goroutines(), next.task().id()).cpu_time.unwrap();
        assert!(run < Duration::from_millis(50), "{run:?}");
        next.task().unpark();
        next.join().unwrap();
    });
}
