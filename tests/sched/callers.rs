//! A panic for a misuse names the line of the call, as `std`'s panics do.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use windlass::channel::{Select, bounded, broadcast};
use windlass::context::{self, Context};
use windlass::fs::AlignedBuf;
use windlass::net::{Graceful, TcpListener};
use windlass::sync::{Semaphore, WaitGroup};
use windlass::task::{self, Group, JoinSet};
use windlass::{Builder, Handle, par, spawn, thread, time};

use crate::util::run;

thread_local!(static PLACE: RefCell<Option<String>> = const { RefCell::new(None) });

/// Where `f` panics, by the panic hook.
fn place_of<R>(f: impl FnOnce() -> R) -> String {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|at| at.file().to_owned());
            PLACE.set(place);
            before(info);
        }));
    });
    PLACE.set(None);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err());
    PLACE.take().expect("the hook was called")
}

#[allow(unsafe_code)]
fn build_here() -> std::io::Result<windlass::Runtime> {
    // SAFETY: it is never built.
    unsafe { Builder::new().build() }
}

/// The calls that panicked elsewhere.
#[derive(Default)]
struct Misuses(Vec<String>);

impl Misuses {
    #[track_caller]
    fn of<R>(&mut self, f: impl FnOnce() -> R) {
        let line = Location::caller().line();
        let place = place_of(f);
        if place != file!() {
            self.0.push(format!("line {line}: {place}"));
        }
    }

    #[track_caller]
    fn end(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}

#[test]
fn outside_of_a_runtime() {
    let mut all = Misuses::default();
    let background = Context::background();
    all.of(|| spawn(|| ()));
    all.of(|| thread::spawn(|| ()));
    all.of(|| task::spawn_in(&background, || ()));
    all.of(|| task::Builder::new().spawn(|| ()));
    all.of(|| {
        task::Builder::new()
            .name("name")
            .context(&background)
            .spawn(|| ())
    });
    all.of(|| task::Builder::new().node(0).spawn(|| ()));
    all.of(|| task::Builder::new().label("label").spawn(|| ()));
    all.of(|| thread::Builder::new().spawn(|| ()));
    all.of(|| task::spawn_on_each_node(|_| ()));
    all.of(|| task::scope(|s| drop(s.spawn(|| ()))));
    all.of(|| thread::scope(|s| drop(s.spawn(|| ()))));
    all.of(|| task::scope(|s| task::Builder::new().spawn_scoped(s, || ()).map(drop)));
    all.of(|| JoinSet::new().spawn(|| ()));
    all.of(|| {
        JoinSet::new()
            .spawn_with(task::Builder::new(), || ())
            .map(drop)
    });
    all.of(|| Group::<()>::new().spawn(|| Ok(())));
    all.of(|| Group::<()>::new().try_spawn(|| Ok(())).is_ok());
    all.of(|| WaitGroup::new().go(|| ()));
    all.of(|| time::after_func(Duration::ZERO, || ()));
    all.of(|| context::after_func(&background, || ()));
    all.of(|| Handle::current().name().len());
    all.of(|| Graceful::new().serve(TcpListener::bind("127.0.0.1:0").unwrap(), |_, _| ()));
    all.end();
}

#[test]
fn in_a_goroutine() {
    run(1, || {
        let mut all = Misuses::default();
        all.of(|| build_here().map(drop));
        all.of(|| thread::Builder::new().name("a\0b".into()).spawn(|| ()));
        all.end();
    });
}

#[test]
fn of_arguments() {
    let mut all = Misuses::default();
    all.of(|| broadcast::<()>(0));
    all.of(|| time::interval(Duration::ZERO));
    all.of(|| time::Ticker::new(Duration::ZERO));
    all.of(|| time::Ticker::new(Duration::from_secs(1)).reset(Duration::ZERO));
    all.of(|| Semaphore::new(Semaphore::MAX_PERMITS + 1));
    all.of(|| Semaphore::new(1).add_permits(Semaphore::MAX_PERMITS));
    let semaphores = [1, 2].map(|n| Arc::new(Semaphore::new(n)));
    all.of(|| {
        let [mut one, other] = semaphores.each_ref().map(|s| s.acquire(1).unwrap());
        one.merge(other);
    });
    all.of(|| {
        let [mut one, other] = semaphores.each_ref().map(|s| s.acquire_owned(1).unwrap());
        one.merge(other);
    });
    all.of(|| WaitGroup::new().done());
    all.of(|| AlignedBuf::zeroed(1).set_len(1 << 20));
    all.of(|| par::chunks_mut(&mut [1, 2], 0, |_, _| ()));
    let (sender, receiver) = bounded::<()>(1);
    let (other_sender, other_receiver) = bounded::<()>(1);
    all.of(|| Select::new().remove(0));
    all.of(|| {
        let mut select = Select::new();
        select.send(&sender);
        let _ = select.select().send(&other_sender, ());
    });
    sender.send(()).unwrap();
    all.of(|| {
        let mut select = Select::new();
        select.recv(&receiver);
        let _ = select.select().recv(&other_receiver);
    });
    all.end();
}
