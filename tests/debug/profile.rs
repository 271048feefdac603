//! CPU profiles: the functions, names and labels of what computes are in them.

use crate::util;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::debug::Profile;
use windlass::{sleep, spawn, task};

#[inline(never)]
fn grinds_in_the_profile(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn profile_of_a_grinder(n_ps: usize) -> Profile {
    let _guard = util::hang_guard();
    let rt = util::runtime(n_ps);
    let handle = rt.handle();
    rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let grinder = task::Builder::new().name("grinder").label("grind");
        let grinder = grinder.spawn(move || grinds_in_the_profile(&over)).unwrap();
        let sleeper = spawn(|| {
            sleep(Duration::from_millis(1));
        });
        // As long as it takes on a busy machine to see it.
        let profile = loop {
            let profile = match handle.profile(Duration::from_millis(200)) {
                Ok(profile) => profile,
                // Another test of this process takes one.
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::ResourceBusy, "{e}");
                    sleep(Duration::from_millis(5));
                    continue;
                }
            };
            if profile.samples.iter().any(|s| !s.stack.is_empty()) {
                break profile;
            }
        };
        is_over.store(true, Ordering::Relaxed);
        grinder.join().unwrap();
        sleeper.join().unwrap();
        profile
    })
}

#[test]
fn the_one_that_computes_is_there_with_name_label_and_stack() {
    let profile = profile_of_a_grinder(2);
    let of_grinder = |s: &&windlass::debug::Sample| s.label.as_deref() == Some("grind");
    let sample = profile.samples.iter().find(of_grinder).unwrap();
    assert!(sample.is_goroutine);
    assert_eq!(sample.name.as_deref(), Some("grinder"));
    assert!(sample.count > 0 && sample.cpu_time > Duration::ZERO);
    let names: Vec<_> = sample
        .stack
        .iter()
        .filter_map(|f| f.function.as_deref())
        .collect();
    assert!(
        names
            .iter()
            .any(|name| name.ends_with("grinds_in_the_profile")),
        "{names:?}"
    );
    assert!(profile.duration >= Duration::from_millis(200));
    // The times are those that the kernel has counted: no more than two threads at once.
    let sum: Duration = profile.samples.iter().map(|s| s.cpu_time).sum();
    assert!(
        sum <= 3 * profile.duration,
        "{sum:?} of {:?}",
        profile.duration
    );
}

#[test]
fn impossible_profiles_are_refused() {
    let _guard = util::hang_guard();
    let rt = util::runtime(1);
    let handle = rt.handle();
    for duration in [Duration::ZERO, Duration::MAX] {
        let refused = handle.profile(duration).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
    // Outside a run there is nothing to see.
    let empty = handle.profile(Duration::from_millis(1));
    // Another test of this process may be taking one.
    match empty {
        Ok(empty) => assert!(empty.samples.is_empty(), "{empty:?}"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ResourceBusy),
    }
}

/// A thread that waits for a CPU does not answer in time. Here none does, as it blocks the signal.
#[test]
#[allow(unsafe_code)]
fn time_of_a_goroutine_that_is_not_seen_is_not_the_runtimes() {
    let _guard = util::hang_guard();
    /// Blocks SIGURG on this thread, or lets it through.
    fn mask(how: i32) {
        // SAFETY: the set is initialised by `sigemptyset`; the call changes this thread's mask only.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGURG);
            assert_eq!(
                libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()),
                0
            );
        }
    }
    let rt = util::runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let grinder = spawn(move || {
            // It stays on this thread, as it does not enter the runtime before the end.
            mask(libc::SIG_BLOCK);
            grinds_in_the_profile(&over);
            mask(libc::SIG_UNBLOCK);
        });
        // As long as it takes on a busy machine to see it.
        let (goroutines, runtime) = loop {
            let profile = match handle.profile(Duration::from_millis(200)) {
                Ok(profile) => profile,
                // Another test of this process takes one.
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::ResourceBusy, "{e}");
                    sleep(Duration::from_millis(5));
                    continue;
                }
            };
            let sum = |is_goroutine| {
                let samples = profile.samples.iter();
                let of = samples.filter(|s| s.is_goroutine == is_goroutine && s.stack.is_empty());
                of.map(|s| s.cpu_time).sum::<Duration>()
            };
            let sums = (sum(true), sum(false));
            if sums.0 + sums.1 > Duration::from_millis(30) {
                break sums;
            }
        };
        is_over.store(true, Ordering::Relaxed);
        grinder.join().unwrap();
        assert!(goroutines > runtime, "{goroutines:?}, {runtime:?}");
    });
}

/// What is between goroutines has a stack and a name, too.
#[test]
fn the_runtimes_own_time_is_told_apart_by_its_work() {
    let _guard = util::hang_guard();
    let rt = util::runtime(1);
    let handle = rt.handle();
    let is_over = AtomicBool::new(false);
    let sees = |profile: &Profile, work: &[&str], function: &str| {
        let mut runtimes = profile.samples.iter().filter(|s| !s.is_goroutine);
        runtimes.any(|s| {
            let mut functions = s.stack.iter().filter_map(|f| f.function.as_deref());
            s.runtime.is_some_and(|w| work.contains(&w)) && functions.any(|f| f.contains(function))
        })
    };
    std::thread::scope(|s| {
        let looker = s.spawn(|| {
            let mut is_seen = (false, false);
            while is_seen != (true, true) {
                match handle.profile(Duration::from_millis(200)) {
                    Ok(profile) => {
                        is_seen.0 |= sees(&profile, &["switch", "search"], "windlass::sched::proc");
                        let kernel = ["ring enter", "completions"];
                        is_seen.1 |= sees(&profile, &kernel, "windlass::netpoll");
                    }
                    // Another test of this process takes one.
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::ResourceBusy, "{e}");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        rt.run(|| {
            windlass::scope(|s| {
                s.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        windlass::yield_now();
                    }
                });
                s.spawn(|| {
                    let (ours, theirs) = windlass::net::UnixStream::pair().unwrap();
                    let mut byte = [0];
                    while !is_over.load(Ordering::Relaxed) {
                        (&ours).write_all(&byte).unwrap();
                        (&theirs).read_exact(&mut byte).unwrap();
                    }
                });
            });
        });
        looker.join().unwrap();
    });
}
