//! Spans of tracing follow a goroutine across threads, and stay away from others.

#[path = "../../../tests/util/mod.rs"]
mod util;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::span::{Attributes, Id};
use tracing::subscriber::with_default;
use tracing::{Dispatch, Event, Span, Subscriber, info, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use windlass_tracing::Goroutines;

/// A call that a layer got.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// The message of an event is not looked at: the spans it was in, from the outside in.
    Event(Vec<String>),
    New(Vec<String>),
    Enter(String),
    Exit(String),
    Closed(String),
}

/// Writes down what it is told, with the thread.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<(i32, Told)>>>);

impl Records {
    fn add(&self, told: Told) {
        self.0.lock().unwrap().push((util::gettid(), told));
    }

    fn all(&self) -> Vec<(i32, Told)> {
        self.0.lock().unwrap().clone()
    }

    fn told(&self) -> Vec<Told> {
        self.all().into_iter().map(|(_, told)| told).collect()
    }
}

/// The span's own name: its target, which tests can choose.
fn name_of<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, ctx: &Context<'_, S>) -> String {
    let span = ctx.span(id).expect("a span that is told of is there");
    let extensions = span.extensions();
    extensions.get::<Name>().expect("named when made").0.clone()
}

/// The field `n` of a span.
struct Name(String);

impl tracing::field::Visit for Name {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 = format!("{value:?}");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Records {
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut name = Name(String::new());
        attrs.record(&mut name);
        ctx.span(id).unwrap().extensions_mut().insert(name);
        let scope = ctx.span_scope(id).unwrap().from_root();
        self.add(Told::New(
            scope.map(|span| name_of(&span.id(), &ctx)).collect(),
        ));
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let scope = ctx
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root());
        self.add(Told::Event(
            scope.map(|span| name_of(&span.id(), &ctx)).collect(),
        ));
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        self.add(Told::Enter(name_of(id, &ctx)));
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        self.add(Told::Exit(name_of(id, &ctx)));
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        self.add(Told::Closed(name_of(&id, &ctx)));
    }
}

/// Runs `f` in a runtime all of whose threads trace into one place.
fn traced(n_ps: usize, name: &str, f: fn()) -> Option<Records> {
    // There is one default for a process, so each test is a process of its own.
    if util::child_case().is_none() {
        util::child_passes(name, "traced");
        return None;
    }
    let records = Records::default();
    let subscriber = tracing_subscriber::registry().with(records.clone());
    tracing::subscriber::set_global_default(Goroutines::new(subscriber)).unwrap();
    util::run(n_ps, f);
    Some(records)
}

fn span(n: usize) -> Span {
    info_span!("span", n)
}

#[test]
fn events_are_in_the_spans_of_their_goroutine() {
    fn one(n: usize) {
        let _outer = span(n).entered();
        for round in 0..20 {
            info!("outer");
            let inner = span(1000 + n);
            inner.in_scope(|| {
                windlass::yield_now();
                info!("inner");
                if round % 5 == 0 {
                    windlass::sleep(Duration::from_micros(100));
                }
                info!("inner");
            });
        }
    }
    let Some(records) = traced(4, "events_are_in_the_spans_of_their_goroutine", || {
        let all: Vec<_> = (0..50).map(|n| windlass::spawn(move || one(n))).collect();
        // A goroutine without spans sees none.
        for _ in 0..100 {
            info!("main");
            assert!(Span::current().is_none());
            windlass::yield_now();
        }
        all.into_iter().for_each(|one| one.join().unwrap());
    }) else {
        return;
    };
    let mut counts = std::collections::BTreeMap::new();
    for told in records.told() {
        match told {
            Told::Event(scope) => *counts.entry(scope).or_insert(0) += 1,
            // A span's parent is the one that its goroutine was in.
            Told::New(scope) if scope.len() == 2 => {
                let (outer, inner): (usize, usize) =
                    (scope[0].parse().unwrap(), scope[1].parse().unwrap());
                assert_eq!(inner, 1000 + outer);
            }
            Told::New(scope) => assert_eq!(scope.len(), 1),
            _ => {}
        }
    }
    for n in 0..50 {
        assert_eq!(counts.remove(&vec![n.to_string()]), Some(20), "outer {n}");
        let inner = vec![n.to_string(), (1000 + n).to_string()];
        assert_eq!(counts.remove(&inner), Some(40), "inner {n}");
    }
    assert_eq!(counts.remove(&Vec::new()), Some(100));
    assert!(counts.is_empty(), "{counts:?}");
}

#[test]
fn a_thread_is_told_of_spans_in_pairs() {
    let Some(records) = traced(4, "a_thread_is_told_of_spans_in_pairs", || {
        // Until one has gone on on another thread, inside of its span.
        let mut has_moved = false;
        while !has_moved {
            let all: Vec<_> = (0..20)
                .map(|n| {
                    windlass::spawn(move || {
                        let _entered = span(n).entered();
                        info!("before");
                        let before = util::gettid();
                        windlass::blocking(|| std::thread::sleep(Duration::from_millis(1)));
                        windlass::yield_now();
                        info!("behind");
                        before != util::gettid()
                    })
                })
                .collect();
            for one in all {
                has_moved |= one.join().unwrap();
            }
        }
    }) else {
        return;
    };
    let all = records.all();
    let threads: BTreeSet<_> = all.iter().map(|(thread, _)| *thread).collect();
    for thread in threads {
        let mut entered = Vec::new();
        for (_, told) in all.iter().filter(|(at, _)| *at == thread) {
            match told {
                Told::Enter(name) => entered.push(name.clone()),
                Told::Exit(name) => assert_eq!(entered.pop().as_ref(), Some(name)),
                Told::Event(scope) => assert_eq!(*scope, entered),
                _ => {}
            }
        }
    }
}

/// A thread on which a goroutine has left a span entered leaves it at its end: the next thread is not in
/// it, and the span is closed.
#[test]
fn a_thread_that_ends_leaves_the_spans_of_others() {
    let Some(records) = traced(1, "a_thread_that_ends_leaves_the_spans_of_others", || {
        let main = util::gettid();
        // Until one that began on a thread of the runtime has gone on on another thread.
        let moves = move || {
            let _entered = span(0).entered();
            let before = util::gettid();
            util::lose_p();
            windlass::yield_now();
            before != util::gettid() && before != main
        };
        while !windlass::spawn(moves).join().unwrap() {}
    }) else {
        return;
    };
    // The threads of the runtime have ended. This one leaves what it is in, too.
    info!("last");
    let new: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(|| info!("first")))
        .collect();
    new.into_iter().for_each(|new| new.join().unwrap());
    let told = records.told();
    let count = |is: fn(&Told) -> bool| told.iter().filter(|told| is(told)).count();
    assert_eq!(count(|told| *told == Told::Event(Vec::new())), 9);
    let n_spans = count(|told| matches!(told, Told::New(_)));
    assert_eq!(count(|told| matches!(told, Told::Closed(_))), n_spans);
    let entered = count(|told| matches!(told, Told::Enter(_)));
    assert_eq!(count(|told| matches!(told, Told::Exit(_))), entered);
}

#[test]
fn threads_trace_as_without() {
    let records = [Records::default(), Records::default()];
    let program = || {
        let (a, b) = (span(1), span(2));
        let a_entered = a.enter();
        info!("in a");
        let b_entered = b.enter();
        info!("in both");
        // Out of order.
        drop(a_entered);
        info!("in b");
        drop(b_entered);
        info!("in none");
    };
    let subscriber = |i: usize| tracing_subscriber::registry().with(records[i].clone());
    with_default(subscriber(0), program);
    with_default(Goroutines::new(subscriber(1)), program);
    let events = |i: usize| -> Vec<_> {
        let told = records[i].told().into_iter();
        told.filter(|told| matches!(told, Told::Event(_) | Told::New(_)))
            .collect()
    };
    assert_eq!(events(0), events(1));
    // Both are closed, and the subscriber has no more references to them.
    let closed = records[1]
        .told()
        .into_iter()
        .filter(|told| matches!(told, Told::Closed(_)));
    assert_eq!(closed.count(), 2);
}

#[test]
fn two_subscribers_do_not_mix() {
    let records = [Records::default(), Records::default()];
    let dispatch = |i: usize| {
        let subscriber = tracing_subscriber::registry().with(records[i].clone());
        Dispatch::new(Goroutines::new(subscriber))
    };
    tracing::dispatcher::with_default(&dispatch(0), || {
        let _outer = span(1).entered();
        tracing::dispatcher::with_default(&dispatch(1), || {
            let _inner = span(2).entered();
            info!("second");
        });
        info!("first");
    });
    assert!(
        records[0]
            .told()
            .contains(&Told::Event(vec!["1".to_owned()]))
    );
    assert!(
        records[1]
            .told()
            .contains(&Told::Event(vec!["2".to_owned()]))
    );
}

#[test]
fn the_subscriber_inside_can_be_found() {
    let dispatch = Dispatch::new(Goroutines::new(tracing_subscriber::registry()));
    assert!(
        dispatch
            .downcast_ref::<tracing_subscriber::Registry>()
            .is_some()
    );
    assert!(
        dispatch
            .downcast_ref::<Goroutines<tracing_subscriber::Registry>>()
            .is_some()
    );
    assert!(dispatch.downcast_ref::<String>().is_none());
}

/// Spans of goroutines are regions of traces, if that was asked for, and their names are forgotten
/// with them.
#[test]
fn spans_are_regions_of_traces() {
    let trace_of = |subscriber: Dispatch| {
        let runtime = util::runtime(2);
        let handle = runtime.handle();
        let mut json = Vec::new();
        runtime.run(|| {
            let trace = handle.start_trace();
            let span =
                tracing::dispatcher::with_default(&subscriber, || info_span!("a span", n = 1));
            let tasks: Vec<_> = (0..2)
                .map(|_| {
                    let span = span.clone();
                    windlass::spawn(move || {
                        let _entered = span.enter();
                        windlass::sleep(Duration::from_millis(1));
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join().unwrap());
            drop(span);
            trace.finish(&mut json).unwrap();
        });
        String::from_utf8(json).unwrap()
    };
    let goroutines = || Goroutines::new(tracing_subscriber::registry());
    assert_eq!(
        trace_of(Dispatch::new(goroutines()))
            .matches("\"a span\"")
            .count(),
        0
    );
    let subscriber = Dispatch::new(goroutines().with_regions());
    let json = trace_of(subscriber.clone());
    for end in ["b", "e"] {
        let of_end = json
            .lines()
            .filter(|line| line.contains(&format!("\"ph\":\"{end}\"")));
        assert_eq!(
            of_end.filter(|line| line.contains("\"a span\"")).count(),
            2,
            "{json}"
        );
    }
    // Spans that a goroutine has left entered on this thread are exited when the thread traces again.
    tracing::dispatcher::with_default(&subscriber, || info_span!("another").in_scope(|| ()));
    let goroutines = subscriber.downcast_ref::<Goroutines<tracing_subscriber::Registry>>();
    let debug = format!("{:?}", goroutines.unwrap());
    assert!(debug.contains("of: {}"), "{debug}");
}

/// A layer that fails at the end of a thread, with a value that fails, too, ends neither the thread nor the process.
#[test]
fn a_panic_at_the_end_of_a_thread_is_contained() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("the payload");
        }
    }
    struct Panics;
    impl<S: Subscriber> Layer<S> for Panics {
        fn on_exit(&self, _: &Id, _: Context<'_, S>) {
            std::panic::panic_any(Fails);
        }
    }
    let subscriber = Dispatch::new(Goroutines::new(tracing_subscriber::registry().with(Panics)));
    let of_thread = subscriber.clone();
    let thread = std::thread::spawn(move || {
        let leaves_a_span = || std::mem::forget(info_span!("left").entered());
        tracing::dispatcher::with_default(&of_thread, leaves_a_span);
    });
    thread.join().unwrap();
}
