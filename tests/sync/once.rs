//! Once, OnceLock and LazyLock, on threads, in goroutines, and across the two.

use crate::both::{on_each, panic_of, settle};
use crate::util::{Census, panic_text, wait_until};
use crate::{both, util};
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{Arc, LazyLock, Once, OnceLock};
use windlass::yield_now;

#[test]
fn it_runs_once() {
    on_each(|kind| {
        let shared = Arc::new((Once::new(), AtomicUsize::new(0)));
        let all = kind.spawn_all(10, {
            let shared = Arc::clone(&shared);
            move |_| {
                for _ in 0..100 {
                    shared.0.call_once(|| {
                        // Others come and wait meanwhile.
                        settle();
                        shared.1.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(shared.1.load(Ordering::Relaxed), 1);
                }
            }
        });
        all.into_iter().for_each(both::Handle::join);
        assert!(shared.0.is_completed());
    });
}

#[test]
fn a_panic_poisons() {
    on_each(|kind| {
        let once = Arc::new(Once::new());
        let other = Arc::clone(&once);
        let panics = kind.spawn(move || other.call_once(|| panic!("the first")));
        assert!(panics.outcome().is_err());
        assert!(!once.is_completed());
        let again = panic_of(|| once.call_once(|| unreachable!("it is poisoned")));
        assert!(panic_text(&*again).contains("poisoned"));
        assert!(panic_text(&*panic_of(|| once.wait())).contains("poisoned"));
        // A forced one that panics is no better.
        panic_of(|| once.call_once_force(|_| panic!("the second")));
        let mut seen = None;
        once.call_once_force(|state| seen = Some(state.is_poisoned()));
        assert_eq!(seen, Some(true));
        once.call_once(|| unreachable!("it has run"));
        once.call_once_force(|_| unreachable!("it has run"));
        once.wait();
        once.wait_force();
        let fresh = Once::new();
        fresh.call_once_force(|state| assert!(!state.is_poisoned()));
        assert!(fresh.is_completed());
    });
}

/// Callers that wait when it panics: plain calls panic, forced ones run in turn.
#[test]
fn waiters_hear_of_the_panic() {
    on_each(|kind| {
        let shared = Arc::new((Once::new(), AtomicBool::new(false), AtomicUsize::new(0)));
        let panics = kind.spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.call_once(|| {
                    shared.1.store(true, Ordering::SeqCst);
                    settle();
                    panic!("while others wait");
                });
            }
        });
        wait_until(|| shared.1.load(Ordering::SeqCst));
        let forced = kind.spawn_all(4, {
            let shared = Arc::clone(&shared);
            move |_| {
                shared
                    .0
                    .call_once_force(|_| _ = shared.2.fetch_add(1, Ordering::SeqCst));
                assert!(shared.0.is_completed());
            }
        });
        let waits = kind.spawn({
            let shared = Arc::clone(&shared);
            move || shared.0.wait_force()
        });
        assert!(panics.outcome().is_err());
        forced.into_iter().for_each(both::Handle::join);
        waits.join();
        assert_eq!(shared.2.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn waiting_begins_nothing() {
    on_each(|kind| {
        let once = Arc::new(Once::new());
        let waiters = kind.spawn_all(3, {
            let once = Arc::clone(&once);
            move |i| {
                if i == 0 {
                    once.wait_force()
                } else {
                    once.wait()
                }
            }
        });
        settle();
        assert!(!once.is_completed());
        once.call_once(yield_now);
        waiters.into_iter().for_each(both::Handle::join);
    });
}

/// An initializer may lock, spawn, wait, and run other initializers.
#[test]
fn an_initializer_may_park() {
    on_each(|kind| {
        let inner = Arc::new(OnceLock::new());
        let outer = Arc::new(OnceLock::new());
        let all = kind.spawn_all(6, {
            let (inner, outer) = (Arc::clone(&inner), Arc::clone(&outer));
            move |_| {
                *outer.get_or_init(|| {
                    yield_now();
                    1 + *inner.get_or_init(|| {
                        settle();
                        41
                    })
                })
            }
        });
        assert!(all.into_iter().all(|h| h.join() == 42));
    });
}

#[test]
fn a_cell_is_written_once() {
    on_each(|kind| {
        let cell = Arc::new(OnceLock::new());
        assert_eq!(cell.get(), None);
        let setters = kind.spawn_all(8, {
            let cell = Arc::clone(&cell);
            move |i| {
                if i % 3 == 0 {
                    yield_now();
                }
                cell.set(i)
            }
        });
        let waits = kind.spawn({
            let cell = Arc::clone(&cell);
            move || *cell.wait()
        });
        let outcomes: Vec<_> = setters.into_iter().map(both::Handle::join).collect();
        let refused = outcomes.iter().filter(|o| o.is_err()).count();
        assert_eq!(refused, 7);
        let value = *cell.get().unwrap();
        assert!(outcomes[value].is_ok());
        assert_eq!(waits.join(), value);
        assert_eq!(*cell.get_or_init(|| unreachable!("it is there")), value);
    });
}

#[test]
fn a_panicking_initializer_leaves_the_cell_empty() {
    on_each(|kind| {
        let cell: Arc<OnceLock<u32>> = Arc::default();
        let other = Arc::clone(&cell);
        let panics = kind.spawn(move || _ = other.get_or_init(|| panic!("no value")));
        assert!(panics.outcome().is_err());
        assert_eq!(cell.get(), None);
        assert_eq!(*cell.get_or_init(|| 5), 5);
    });
}

#[test]
fn a_cell_gives_its_value_back() {
    let census = Census::default();
    let mut cell = OnceLock::new();
    assert!(cell.take().is_none());
    assert!(cell.get_mut().is_none());
    cell.set(census.member()).unwrap();
    assert!(cell.set(census.member()).is_err());
    drop(cell.take().unwrap());
    assert!(cell.get().is_none());
    cell.set(census.member()).unwrap();
    assert!(cell.get_mut().is_some());
    drop(cell.into_inner().unwrap());
    let full = OnceLock::from(census.member());
    drop(full);
    drop(OnceLock::<util::Member>::new());
    census.assert_all_dropped(4);

    let mut cell = OnceLock::from(3);
    *cell.get_mut().unwrap() += 1;
    assert_eq!(cell, cell.clone());
    assert_ne!(cell, OnceLock::new());
    assert_eq!(OnceLock::<u8>::new(), OnceLock::default().clone());
    for (ours, theirs) in [
        (OnceLock::new(), std::sync::OnceLock::new()),
        (OnceLock::from(1), std::sync::OnceLock::from(1)),
    ] {
        assert_eq!(
            format!("{ours:?} {ours:#?}"),
            format!("{theirs:?} {theirs:#?}")
        );
    }
    assert_eq!(
        format!("{:?}", Once::new()),
        format!("{:?}", std::sync::Once::new())
    );
}

/// The value of a cell may borrow, and be dropped after what it borrows... never: checked
/// by the compiler as `std`'s is.
#[test]
fn what_may_go_where() {
    fn sends<T: Send>() {}
    fn shares<T: Sync>() {}
    fn unwinds<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    sends::<OnceLock<std::cell::Cell<u8>>>();
    shares::<OnceLock<u8>>();
    shares::<LazyLock<u8, fn() -> u8>>();
    sends::<LazyLock<std::cell::Cell<u8>>>();
    unwinds::<Once>();
    unwinds::<OnceLock<u8>>();
    unwinds::<LazyLock<u8>>();
}

#[test]
fn a_lazy_value_is_made_once() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<usize> = LazyLock::new(|| {
        settle();
        MADE.fetch_add(1, Ordering::SeqCst) + 10
    });
    on_each(|kind| {
        let all = kind.spawn_all(8, |_| *LAZY);
        assert!(all.into_iter().all(|h| h.join() == 10));
        assert_eq!(MADE.load(Ordering::SeqCst), 1);
        assert_eq!(LazyLock::get(&LAZY), Some(&10));

        let fresh = Arc::new(LazyLock::new(|| vec![1_u8]));
        assert!(LazyLock::get(&fresh).is_none());
        let all = kind.spawn_all(4, {
            let fresh = Arc::clone(&fresh);
            move |_| LazyLock::force(&fresh).as_ptr().addr()
        });
        let mut addresses: Vec<_> = all.into_iter().map(both::Handle::join).collect();
        addresses.dedup();
        assert_eq!(addresses.len(), 1);
    });
}

#[test]
fn a_lazy_value_may_be_changed() {
    let mut lazy = LazyLock::new(|| 3);
    assert!(LazyLock::get_mut(&mut lazy).is_none());
    *LazyLock::force_mut(&mut lazy) += 1;
    *lazy += 1;
    assert_eq!(LazyLock::get_mut(&mut lazy), Some(&mut 5));
    assert_eq!(*LazyLock::<String>::default(), "");
    let theirs = std::sync::LazyLock::new(|| 5);
    let ours = LazyLock::new(|| 5);
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(*ours, *theirs);
    assert_eq!(
        format!("{ours:?} {ours:#?}"),
        format!("{theirs:?} {theirs:#?}")
    );
}

#[test]
fn a_lazy_value_that_panicked_panics() {
    on_each(|kind| {
        let lazy: Arc<LazyLock<u32>> = Arc::new(LazyLock::new(|| panic!("no value")));
        let all = kind.spawn_all(4, {
            let lazy = Arc::clone(&lazy);
            move |_| *LazyLock::force(&lazy)
        });
        let texts: Vec<_> = all
            .into_iter()
            .map(|h| panic_text(&*h.outcome().unwrap_err()).to_owned())
            .collect();
        assert_eq!(texts.iter().filter(|t| *t == "no value").count(), 1);
        assert_eq!(texts.iter().filter(|t| t.contains("poisoned")).count(), 3);
        assert!(LazyLock::get(&lazy).is_none());
        panic_of(|| **lazy);
    });
}

/// Values that an initializer captured are dropped with it, made or not.
#[test]
fn initializers_are_dropped() {
    let census = Census::default();
    let captured = census.member();
    let lazy = LazyLock::new(move || drop(captured));
    LazyLock::force(&lazy);
    assert_eq!(census.dropped(), 1);
    let captured = census.member();
    drop(LazyLock::new(move || drop(captured)));
    census.assert_all_dropped(2);
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    it_runs_once,
    a_panic_poisons,
    waiters_hear_of_the_panic,
    waiting_begins_nothing,
    an_initializer_may_park,
    a_cell_is_written_once,
    a_panicking_initializer_leaves_the_cell_empty,
    a_cell_gives_its_value_back,
    what_may_go_where,
    a_lazy_value_is_made_once: "its static is made in the first run only",
    a_lazy_value_may_be_changed,
    a_lazy_value_that_panicked_panics,
    initializers_are_dropped,
}
