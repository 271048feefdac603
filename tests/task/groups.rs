//! Goroutines that belong together: cancelled handles, sets, groups, scopes in a context, and
//! functions that are called later.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::util::{
    Census, child_case, child_passes, hang_guard, own_cpu, pair, panic_text, resident_bytes, run,
    runtime, wait_until,
};
use windlass::channel::{Receiver, Sender, bounded, unbounded};
use windlass::context::{self, Context, Error, after_func};
use windlass::sync::{Mutex, WaitGroup};
use windlass::task::{self, Builder, Cancelled, Group, JoinSet, TimedOut};
use windlass::time::{self, Duration, Elapsed, Instant};
use windlass::{Handle, offload, sleep, spawn, yield_now};

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_cancel_ends_the_waits_of_its_goroutine,
    a_cancel_before_the_start_ends_the_first_wait,
    a_cancel_races_with_the_end_and_with_join,
    a_plain_goroutine_is_not_cancelled,
    a_guard_cancels_when_it_is_dropped,
    the_parents_context_ends_the_child,
    a_builder_gives_a_context,
    handles_of_a_scope_cancel,
    handles_spawn_in_a_context: "builds runtimes",
    the_current_runtime: "builds runtimes",
    a_scope_passes_the_contexts_on,
    a_scope_notes_that_a_timeout_ended_its_goroutines,
    a_plain_scope_passes_nothing_on,
    a_shield_stops_what_a_scope_passes_on,
    sets_give_results_as_they_come,
    a_set_that_is_empty_gives_none,
    panics_come_out_of_the_set,
    a_set_waits_for_a_limited_time,
    contexts_end_the_waits_for_a_set,
    a_goroutine_has_not_ended_while_its_locals_wait,
    a_set_cancels_all_or_one,
    a_refused_goroutine_leaves_nothing_in_its_set: "it measures memory",
    a_large_set_cancels_each: "it measures time",
    a_set_that_is_dropped_cancels_and_does_not_wait,
    a_set_that_is_dropped_while_its_goroutines_spawn_into_it / 4,
    a_set_lets_its_goroutines_go,
    a_set_on_a_plain_thread: "threads of its own",
    a_set_at_the_end_of_the_run: "builds runtimes",
    the_first_error_ends_a_group,
    errors_after_the_first_are_dropped,
    a_panic_goes_through_the_group,
    a_panic_of_an_errors_destructor_goes_through_the_group,
    a_refused_goroutine_leaves_its_group_as_it_was: "threads of its own",
    a_limit_is_kept,
    a_limit_of_nothing_is_refused,
    try_spawn_gives_the_closure_back,
    a_group_that_is_dropped_cancels,
    members_spawn_into_their_group,
    a_group_at_the_end_of_the_run: "builds runtimes",
    a_context_that_ends_calls_its_functions,
    a_function_is_stopped_or_called_never_both,
    a_panic_in_a_function_harms_nobody,
    functions_are_dropped_at_the_end_of_the_run: "builds runtimes",
    a_cause_comes_with_its_deadline,
    functions_are_called_after_a_time,
    a_function_that_panics_is_not_called_again,
    a_function_is_set_again_while_it_runs,
    a_goroutine_can_ask,
}

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

/// Sleeps for ever, until a context ends that. Returns why.
fn sleep_in_context() -> Result<(), Error> {
    sleep(FOREVER);
    context::check()
}

// Cancelling a goroutine

#[test]
fn a_cancel_ends_the_waits_of_its_goroutine() {
    run(2, || {
        let (mut a, b) = pair();
        let reader = task::spawn_in(&Context::background(), move || a.read(&mut [0; 10]));
        let sleeper = task::spawn_in(&Context::background(), sleep_in_context);
        let (sender, receiver) = bounded::<u32>(1);
        let receives = task::spawn_in(&Context::background(), move || receiver.recv());
        for _ in 0..10 {
            yield_now();
        }
        assert!(reader.cancel() && sleeper.cancel() && receives.cancel());
        assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::Other);
        assert_eq!(sleeper.join().unwrap(), Err(Error::Cancelled));
        assert!(receives.join().unwrap().is_err());
        drop((b, sender));
    });
}

#[test]
fn a_cancel_before_the_start_ends_the_first_wait() {
    run(1, || {
        let all: Vec<_> = (0..20)
            .map(|_| task::spawn_in(&Context::background(), sleep_in_context))
            .collect();
        assert!(all.iter().all(task::JoinHandle::cancel));
        for task in all {
            assert_eq!(task.join().unwrap(), Err(Error::Cancelled));
        }
    });
}

#[test]
fn a_cancel_races_with_the_end_and_with_join() {
    run(2, || {
        for i in 0..300 {
            let task = task::spawn_in(&Context::background(), move || {
                if i % 3 == 0 {
                    yield_now();
                }
                let _ = context::check();
                i
            });
            if i % 2 == 0 {
                yield_now();
            }
            // Again and again, and after the end, too.
            assert!(task.cancel() && task.cancel());
            let finished = task.join_timeout(FOREVER).unwrap();
            assert_eq!(finished.unwrap(), i);
        }
    });
}

#[test]
fn a_plain_goroutine_is_not_cancelled() {
    run(2, || {
        let (sender, receiver) = bounded(1);
        let task = spawn(move || receiver.recv().unwrap());
        assert!(!task.cancel());
        let task = task.cancel_on_drop().unwrap_err();
        sender.send(7).unwrap();
        assert_eq!(task.join().unwrap(), 7);
    });
}

#[test]
fn a_guard_cancels_when_it_is_dropped() {
    run(2, || {
        let background = Context::background();
        let (sender, receiver) = unbounded();
        let told = sender.clone();
        let guard = task::spawn_in(&background, move || told.send(sleep_in_context()));
        drop(guard.cancel_on_drop().unwrap());
        assert_eq!(receiver.recv(), Ok(Err(Error::Cancelled)));
        // Neither a join nor a handle that was taken out cancels.
        let guard = task::spawn_in(&background, context::check);
        let guard = guard.cancel_on_drop().unwrap();
        assert!(guard.task().id() != 0);
        assert_eq!(guard.join().unwrap(), Ok(()));
        let gate = bounded::<()>(0);
        let guard = task::spawn_in(&background, move || gate.1.recv().is_ok());
        let handle = guard.cancel_on_drop().unwrap().into_inner();
        gate.0.send(()).unwrap();
        assert!(handle.join().unwrap());
        // A panic of the owner drops the guard.
        let task = task::spawn_in(&background, move || sender.send(sleep_in_context()));
        let owner = spawn(move || {
            let _guard = task.cancel_on_drop().unwrap();
            panic!("the owner ends");
        });
        assert!(owner.join().is_err());
        assert_eq!(receiver.recv(), Ok(Err(Error::Cancelled)));
    });
}

#[test]
fn the_parents_context_ends_the_child() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let first = task::spawn_in(&ctx, sleep_in_context);
        let second = task::spawn_in(&ctx, sleep_in_context);
        // The cancel of one leaves the other alone.
        assert!(first.cancel());
        assert_eq!(first.join().unwrap(), Err(Error::Cancelled));
        assert!(!second.is_finished() && !ctx.is_done());
        canceller.cancel();
        assert_eq!(second.join().unwrap(), Err(Error::Cancelled));
        let late = task::spawn_in(
            &Context::background().with_timeout(MOMENT),
            sleep_in_context,
        );
        assert_eq!(late.join().unwrap(), Err(Error::DeadlineExceeded));
    });
}

#[test]
fn a_builder_gives_a_context() {
    run(2, || {
        let background = Context::background();
        let builder = Builder::new().name("named").context(&background);
        let task = builder.spawn(sleep_in_context).unwrap();
        assert_eq!(task.task().name(), Some("named"));
        assert!(task.cancel());
        assert_eq!(task.join().unwrap(), Err(Error::Cancelled));
    });
}

#[test]
fn handles_of_a_scope_cancel() {
    run(2, || {
        let text = String::from("borrowed");
        task::scope(|s| {
            let builder = Builder::new().context(&Context::background());
            let sleeper = builder.spawn_scoped(s, || (sleep_in_context(), text.len()));
            let sleeper = sleeper.unwrap();
            let plain = s.spawn(|| text.len());
            assert!(sleeper.cancel());
            assert!(!plain.cancel());
            assert_eq!(sleeper.join().unwrap(), (Err(Error::Cancelled), 8));
        });
    });
}

#[test]
fn handles_spawn_in_a_context() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    // From a plain thread, before the run.
    let task = handle.spawn_in(&Context::background(), sleep_in_context);
    assert!(task.cancel());
    assert_eq!(rt.run(|| task.join().unwrap()), Err(Error::Cancelled));
    // After the run it is refused.
    let task = handle.spawn_in(&Context::background(), || ());
    assert!(task.cancel());
    assert!(task.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn the_current_runtime() {
    let _guard = hang_guard();
    assert!(Handle::try_current().is_none());
    assert!(catch_unwind(Handle::current).is_err());
    let rt = runtime(2);
    let kept = rt.run(|| {
        let handle = Handle::current();
        let thread = std::thread::spawn(move || {
            assert!(Handle::try_current().is_none());
            handle.spawn(|| 7).join().unwrap()
        });
        assert_eq!(windlass::blocking(|| thread.join().unwrap()), 7);
        Handle::try_current().unwrap()
    });
    drop(rt);
    // It is of a runtime that is gone.
    assert!(kept.spawn(|| ()).join().is_err());
}

// Scopes

#[test]
fn a_scope_passes_the_contexts_on() {
    run(2, || {
        for is_outer in [false, true] {
            let (outer, outer_canceller) = Context::background().with_cancel();
            let (inner, inner_canceller) = Context::background().with_cancel();
            let seen = outer.run(|| {
                task::scope_in(&inner, |s| {
                    // Goroutines that a goroutine of the scope spawns inherit them, too.
                    let parent = move || s.spawn(sleep_in_context).join().unwrap();
                    let children = [s.spawn(sleep_in_context), s.spawn(parent)];
                    match is_outer {
                        true => outer_canceller.cancel(),
                        false => inner_canceller.cancel(),
                    }
                    children.map(|child| child.join().unwrap())
                })
            });
            assert_eq!(seen, [Err(Error::Cancelled); 2]);
            assert_eq!((outer.is_done(), inner.is_done()), (is_outer, !is_outer));
        }
        // Without a context nothing is passed on.
        let plain = task::scope_in(&Context::background(), |s| s.spawn(context::check).join());
        assert_eq!(plain.unwrap(), Ok(()));
    });
}

#[test]
fn a_scope_notes_that_a_timeout_ended_its_goroutines() {
    run(2, || {
        let slow = time::timeout(MOMENT, || {
            task::scope_in(&Context::background(), |s| {
                s.spawn(|| sleep(FOREVER));
            });
        });
        assert_eq!(slow, Err(Elapsed::default()));
        let quick = time::timeout(FOREVER, || {
            task::scope_in(&Context::background(), |s| s.spawn(|| 7).join().unwrap())
        });
        assert_eq!(quick, Ok(7));
    });
}

#[test]
fn a_plain_scope_passes_nothing_on() {
    run(2, || {
        let ctx = Context::background().with_timeout(Duration::ZERO);
        let checked = ctx.run(|| task::scope(|s| s.spawn(context::check).join().unwrap()));
        assert_eq!(checked, Ok(()));
    });
}

#[test]
fn a_shield_stops_what_a_scope_passes_on() {
    run(2, || {
        let ctx = Context::background().with_timeout(Duration::ZERO);
        let (own, canceller) = Context::background().with_cancel();
        let checked = ctx.run(|| {
            context::shield(|| {
                task::scope_in(&own, |s| {
                    let before = s.spawn(context::check).join().unwrap();
                    canceller.cancel();
                    (before, s.spawn(context::check).join().unwrap())
                })
            })
        });
        assert_eq!(checked, (Ok(()), Err(Error::Cancelled)));
    });
}

// Sets

#[test]
fn sets_give_results_as_they_come() {
    run(2, || {
        let gates: Vec<_> = (0..10).map(|_| bounded::<()>(1)).collect();
        let mut set = JoinSet::new();
        for (i, (_, gate)) in gates.iter().enumerate() {
            let gate = gate.clone();
            set.spawn(move || {
                gate.recv().unwrap();
                i
            });
        }
        assert!(set.try_join_next().is_none());
        for i in [3, 9, 0, 1, 2, 8, 7, 6, 5, 4] {
            gates[i].0.send(()).unwrap();
            assert_eq!(set.join_next().unwrap().unwrap(), i);
        }
        assert!(set.is_empty());
    });
}

#[test]
fn a_set_that_is_empty_gives_none() {
    run(1, || {
        let mut set = JoinSet::<()>::default();
        assert!(set.join_next().is_none() && set.try_join_next().is_none());
        assert!(set.join_next_timeout(FOREVER).unwrap().is_none());
        set.cancel_all();
        set.shutdown();
        set.detach_all();
        // It can be used again.
        set.spawn(|| ());
        assert_eq!(set.len(), 1);
        set.join_next().unwrap().unwrap();
        assert_eq!(set.len(), 0);
    });
}

#[test]
fn panics_come_out_of_the_set() {
    run(2, || {
        let mut set = JoinSet::new();
        set.spawn(|| panic!("of a member"));
        let payload = set.join_next().unwrap().unwrap_err();
        assert_eq!(panic_text(&*payload), "of a member");
        let refused = set.spawn_with(Builder::new().stack_size(1), || ());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(set.join_next().is_none());
    });
}

#[test]
fn a_set_waits_for_a_limited_time() {
    run(2, || {
        let mut set = JoinSet::new();
        let task = set.spawn(|| {
            task::park();
            7
        });
        assert_eq!(
            set.join_next_timeout(Duration::ZERO).err(),
            Some(TimedOut::default())
        );
        assert!(set.join_next_timeout(MOMENT).is_err());
        task.unpark();
        assert_eq!(set.join_next_timeout(FOREVER).unwrap().unwrap().unwrap(), 7);
    });
}

#[test]
fn contexts_end_the_waits_for_a_set() {
    run(2, || {
        let mut set = JoinSet::new();
        let task = set.spawn(|| sleep(FOREVER));
        let ctx = Context::background().with_timeout(MOMENT);
        assert_eq!(
            set.join_next_context(&ctx).unwrap_err(),
            Error::DeadlineExceeded
        );
        assert!(ctx.run(|| set.join_next_timeout(FOREVER)).is_err());
        assert!(set.cancel(&task));
        // This one is not ended by a context.
        assert!(ctx.run(|| set.join_next()).unwrap().is_ok());
        assert!(!set.cancel(&task));
        assert!(set.join_next_context(&ctx).unwrap().is_none());
    });
}

/// A value that waits when it is dropped.
struct Leaves {
    begins: Sender<()>,
    gate: Receiver<()>,
    n_left: Arc<AtomicUsize>,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.begins.send(()).unwrap();
        let _ = self.gate.recv_timeout(Duration::from_secs(5));
        self.n_left.fetch_add(1, Ordering::SeqCst);
    }
}

windlass::task_local! {
    static LOCAL: Mutex<Option<Leaves>> = Mutex::new(None);
}

#[test]
fn a_goroutine_has_not_ended_while_its_locals_wait() {
    run(2, || {
        let n_left = Arc::new(AtomicUsize::new(0));
        let (begins, begun) = bounded(1);
        let leaving = || {
            let (open, gate) = bounded::<()>(0);
            let leaves = Leaves {
                begins: begins.clone(),
                gate,
                n_left: Arc::clone(&n_left),
            };
            let keep = move || LOCAL.with(|local| *local.lock().unwrap() = Some(leaves));
            (open, keep)
        };
        let mut set = JoinSet::new();
        let (open, keep) = leaving();
        set.spawn(move || {
            keep();
            1
        });
        begun.recv().unwrap();
        assert!(set.try_join_next().is_none());
        assert!(set.join_next_timeout(MOMENT).is_err());
        set.spawn(|| 2);
        assert_eq!(set.join_next().unwrap().unwrap(), 2);
        drop(open);
        assert_eq!(set.join_next().unwrap().unwrap(), 1);

        let group = Group::<String>::new().limit(1);
        let (open, keep) = leaving();
        group.spawn(move || {
            keep();
            Ok(())
        });
        begun.recv().unwrap();
        assert!(group.try_spawn(|| Ok(())).is_err());
        let opens = spawn(move || {
            sleep(MOMENT);
            drop(open);
        });
        assert_eq!(group.wait(), Ok(()));
        assert_eq!(n_left.load(Ordering::SeqCst), 2);
        opens.join().unwrap();

        let (open, keep) = leaving();
        let opens = spawn(move || {
            begun.recv().unwrap();
            sleep(MOMENT);
            drop(open);
        });
        windlass::scope(|s| _ = s.spawn(keep));
        assert_eq!(n_left.load(Ordering::SeqCst), 3);
        opens.join().unwrap();
    });
}

#[test]
fn a_set_cancels_all_or_one() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let mut set = JoinSet::with_context(&ctx);
        let first = set.spawn(sleep_in_context);
        let second = set.spawn(sleep_in_context);
        assert!(set.cancel(&first));
        assert_eq!(set.join_next().unwrap().unwrap(), Err(Error::Cancelled));
        assert_eq!(set.len(), 1);
        set.cancel_all();
        assert_eq!(set.join_next().unwrap().unwrap(), Err(Error::Cancelled));
        assert!(!set.cancel(&second));
        // Goroutines that come later are not affected, and end with the context of the set.
        set.spawn(context::check);
        assert_eq!(set.join_next().unwrap().unwrap(), Ok(()));
        set.spawn(sleep_in_context);
        canceller.cancel();
        assert_eq!(set.join_next().unwrap().unwrap(), Err(Error::Cancelled));
        for _ in 0..10 {
            set.spawn(sleep_in_context);
        }
        set.shutdown();
        assert!(set.is_empty());
    });
}

/// A goroutine that is refused leaves nothing in its set, and memory is all that could be left. In a
/// process of its own, because others use memory.
#[test]
fn a_refused_goroutine_leaves_nothing_in_its_set() {
    if child_case().is_none() {
        child_passes("a_refused_goroutine_leaves_nothing_in_its_set", "memory");
        return;
    }
    runtime(1).run(|| {
        let mut set = JoinSet::new();
        let mut refuse = |n: u32| {
            for _ in 0..n {
                let refused = set.spawn_with(Builder::new().stack_size(1), || ());
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            }
        };
        refuse(1000);
        let before = resident_bytes();
        // A number for each would be 3.2 MB.
        refuse(400_000);
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes are left");
        assert!(set.is_empty() && set.try_join_next().is_none());
    });
}

/// A cancel finds its goroutine however many there are.
#[test]
fn a_large_set_cancels_each() {
    const N: usize = 20_000;
    let _guard = hang_guard();
    runtime(2).run(|| {
        let mut set = JoinSet::new();
        let tasks: Vec<_> = (0..N).map(|_| set.spawn(sleep_in_context)).collect();
        let used = offload(|| {
            let before = own_cpu();
            for task in tasks.iter().rev() {
                assert!(set.cancel(task));
            }
            own_cpu() - before
        });
        // A search in the set costs minutes in a build without optimisation.
        assert!(used < Duration::from_secs(4), "{used:?} for {N}");
        while let Some(ended) = set.join_next() {
            assert_eq!(ended.unwrap(), Err(Error::Cancelled));
        }
    });
}

#[test]
fn a_set_that_is_dropped_cancels_and_does_not_wait() {
    run(2, || {
        let (sender, receiver) = unbounded();
        let (gate, closed) = bounded::<()>(0);
        let mut set = JoinSet::new();
        let told = sender.clone();
        set.spawn(move || told.send(sleep_in_context()).unwrap());
        // It ignores the cancel.
        set.spawn(move || {
            context::shield(|| closed.recv().unwrap());
            sender.send(context::check()).unwrap();
        });
        drop(set);
        assert_eq!(receiver.recv(), Ok(Err(Error::Cancelled)));
        gate.send(()).unwrap();
        assert_eq!(receiver.recv(), Ok(Err(Error::Cancelled)));
    });
}

#[test]
fn a_set_that_is_dropped_while_its_goroutines_spawn_into_it() {
    run(2, || {
        /// Goroutines that each spawn others.
        fn grow(set: &Arc<Mutex<Option<JoinSet<()>>>>, running: &WaitGroup) {
            running.add(1);
            let (again, counted) = (Arc::clone(set), running.clone());
            let grows = move || {
                while context::check().is_ok() && again.lock().unwrap().is_some() {
                    grow(&again, &counted);
                    sleep(Duration::from_micros(100));
                }
                counted.done();
            };
            match &mut *set.lock().unwrap() {
                Some(set) if set.len() < 100 => drop(set.spawn(grows)),
                _ => running.done(),
            }
        }
        let set = Arc::new(Mutex::new(Some(JoinSet::new())));
        let running = WaitGroup::new();
        grow(&set, &running);
        wait_until(|| set.lock().unwrap().as_ref().unwrap().len() > 20);
        // Its drop cancels them while they wait for the lock.
        let dropped = set.lock().unwrap().take();
        drop(dropped);
        running.wait();
    });
}

#[test]
fn a_set_lets_its_goroutines_go() {
    run(2, || {
        let (sender, receiver) = bounded::<()>(0);
        let mut set = JoinSet::new();
        let ended = WaitGroup::new();
        for _ in 0..5 {
            let (receiver, ended) = (receiver.clone(), ended.clone());
            ended.add(1);
            set.spawn(move || {
                receiver.recv().unwrap();
                assert_eq!(context::check(), Ok(()));
                ended.done();
            });
        }
        set.detach_all();
        assert!(set.is_empty());
        set.spawn(|| ());
        for _ in 0..5 {
            sender.send(()).unwrap();
        }
        ended.wait();
        // The reports of the others are not those of this one.
        assert!(set.join_next().unwrap().is_ok());
        assert!(set.join_next().is_none());
    });
}

#[test]
fn a_set_on_a_plain_thread() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let mut set = JoinSet::new();
        for i in 0..10 {
            set.spawn(move || {
                yield_now();
                i
            });
        }
        let thread = std::thread::spawn(move || {
            let mut sum = 0;
            while let Some(result) = set.join_next() {
                sum += result.unwrap();
            }
            let spawned = catch_unwind(AssertUnwindSafe(|| set.spawn(|| 0)));
            assert!(spawned.is_err() && set.join_next().is_none());
            sum
        });
        assert_eq!(windlass::blocking(|| thread.join().unwrap()), 45);
    });
}

#[test]
fn a_set_at_the_end_of_the_run() {
    let _guard = hang_guard();
    let census = Census::default();
    let mut set = runtime(2).run(|| {
        let mut set = JoinSet::new();
        for _ in 0..10 {
            let member = census.member();
            set.spawn(move || {
                let _member = member;
                context::shield(|| sleep(FOREVER));
            });
        }
        set
    });
    for _ in 0..10 {
        let payload = set.join_next().unwrap().unwrap_err();
        assert!(payload.is::<Cancelled>());
    }
    assert!(set.join_next().is_none());
    census.assert_all_dropped(10);
}

// Groups

#[test]
fn the_first_error_ends_a_group() {
    run(2, || {
        let group = Group::new();
        let n_ended = Arc::new(AtomicUsize::new(0));
        for i in 0..10 {
            let n_ended = Arc::clone(&n_ended);
            group.spawn(move || {
                if i == 5 {
                    return Err("of the fifth");
                }
                assert_eq!(sleep_in_context(), Err(Error::Cancelled));
                n_ended.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
        }
        let ctx = group.context().clone();
        assert_eq!(group.wait(), Err("of the fifth"));
        assert_eq!(n_ended.load(Ordering::SeqCst), 9);
        assert_eq!(ctx.err(), Some(Error::Cancelled));
        // Without an error, too, the context is done afterwards.
        let group = Group::<()>::default();
        let ctx = group.context().clone();
        group.spawn(|| Ok(()));
        assert_eq!(group.wait(), Ok(()));
        assert!(ctx.is_done());
    });
}

#[test]
fn errors_after_the_first_are_dropped() {
    run(2, || {
        let census = Census::default();
        let group = Group::new();
        let first = census.member();
        group.spawn(move || Err(first));
        group.context().wait();
        for _ in 0..10 {
            // They run, in a context that is done.
            let another = census.member();
            group.spawn(move || {
                assert!(sleep_in_context().is_err());
                Err(another)
            });
        }
        let kept = group.wait().unwrap_err();
        assert_eq!(census.dropped(), 10);
        drop(kept);
        census.assert_all_dropped(11);
    });
}

#[test]
fn a_panic_goes_through_the_group() {
    run(2, || {
        let group = Group::new();
        group.spawn(|| Err("an error before"));
        group.context().wait();
        group.spawn(|| panic!("of a member"));
        group.spawn(|| {
            assert!(sleep_in_context().is_err());
            Ok(())
        });
        let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
        assert_eq!(panic_text(&*payload), "of a member");
        // A panic cancels, as an error does.
        let group = Group::<()>::new();
        group.spawn(|| panic!("alone"));
        group.spawn(|| sleep_in_context().or(Ok(())));
        assert!(catch_unwind(AssertUnwindSafe(|| group.wait())).is_err());
    });
}

/// An error whose destructor panics.
#[derive(Debug)]
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("of an error's destructor");
    }
}

#[test]
fn a_panic_of_an_errors_destructor_goes_through_the_group() {
    run(2, || {
        let group = Group::new();
        group.spawn(|| Err(Some(PanicsWhenDropped)));
        group.context().wait();
        group.spawn(|| Err(Some(PanicsWhenDropped)));
        let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
        assert_eq!(panic_text(&*payload), "of an error's destructor");
    });
}

#[test]
fn a_refused_goroutine_leaves_its_group_as_it_was() {
    let _guard = hang_guard();
    runtime(2).run(|| {
        let group = Group::<()>::new().limit(1);
        let with_label = |n: usize| Builder::new().label(format!("label {n}"));
        // More labels than a runtime has.
        let refused = (0..5000).find_map(|n| group.spawn_with(with_label(n), || Ok(())).err());
        assert_eq!(refused.unwrap().kind(), ErrorKind::InvalidInput);
        // The caller is no goroutine.
        let other = group.clone();
        let panicked = std::thread::spawn(move || {
            let spawns: [&dyn Fn(); 3] = [
                &|| other.spawn(|| Ok(())),
                &|| _ = other.try_spawn(|| Ok(())),
                &|| _ = other.spawn_with(Builder::new(), || Ok(())),
            ];
            spawns.map(|spawn| catch_unwind(AssertUnwindSafe(spawn)).is_err())
        });
        assert_eq!(panicked.join().unwrap(), [true; 3]);
        assert_eq!(group.context().err(), None);
        // The slot is free.
        group.spawn(|| Ok(()));
        assert_eq!(group.wait(), Ok(()));
    });
}

#[test]
fn a_limit_is_kept() {
    run(2, || {
        let group = Group::new().limit(3);
        let (n_now, n_most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for i in 0..100 {
            let (n_now, n_most) = (Arc::clone(&n_now), Arc::clone(&n_most));
            let member = move || {
                let n = n_now.fetch_add(1, Ordering::SeqCst) + 1;
                n_most.fetch_max(n, Ordering::SeqCst);
                yield_now();
                n_now.fetch_sub(1, Ordering::SeqCst);
                if i == 50 { Err("the fiftieth") } else { Ok(()) }
            };
            match i % 2 {
                0 => group.spawn(member),
                _ => group.spawn_with(Builder::new(), member).unwrap(),
            }
        }
        let refused = group.spawn_with(Builder::new().stack_size(1), || Ok(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(group.wait(), Err("the fiftieth"));
        assert!(n_most.load(Ordering::SeqCst) <= 3);
    });
}

#[test]
fn a_limit_of_nothing_is_refused() {
    run(1, || {
        let refused = catch_unwind(|| Group::<()>::new().limit(0)).unwrap_err();
        assert!(panic_text(&*refused).contains("choose at least 1"));
        // More than there can be is no limit.
        let group = Group::<()>::new().limit(usize::MAX);
        group.spawn(|| Ok(()));
        assert_eq!(group.wait(), Ok(()));
    });
}

#[test]
fn try_spawn_gives_the_closure_back() {
    run(2, || {
        let group = Group::<&str>::new().limit(2);
        let (sender, receiver) = bounded::<()>(0);
        for _ in 0..2 {
            let receiver = receiver.clone();
            assert!(
                group
                    .try_spawn(move || receiver.recv().map_err(|_| "closed"))
                    .is_ok()
            );
        }
        let Err(refused) = group.try_spawn(|| Err("of the third")) else {
            panic!("it has room for two")
        };
        sender.send(()).unwrap();
        // This waits until one of the two has ended.
        group.spawn(refused);
        assert_eq!(group.wait(), Err("of the third"));
    });
}

#[test]
fn a_group_that_is_dropped_cancels() {
    run(2, || {
        let (sender, receiver) = bounded(1);
        let group = Group::<()>::new();
        let clone = group.clone();
        group.spawn(move || {
            sender.send(sleep_in_context()).unwrap();
            Ok(())
        });
        drop(group);
        assert!(!clone.context().is_done());
        drop(clone);
        assert_eq!(receiver.recv(), Ok(Err(Error::Cancelled)));
    });
}

#[test]
fn members_spawn_into_their_group() {
    run(2, || {
        let group = Group::new();
        let n = Arc::new(AtomicUsize::new(0));
        fn walk(group: &Group<()>, n: &Arc<AtomicUsize>, depth: u32) {
            let (again, count) = (group.clone(), Arc::clone(n));
            group.spawn(move || {
                count.fetch_add(1, Ordering::SeqCst);
                if depth > 0 {
                    walk(&again, &count, depth - 1);
                    walk(&again, &count, depth - 1);
                }
                Ok(())
            });
        }
        walk(&group, &n, 5);
        group.wait().unwrap();
        assert_eq!(n.load(Ordering::SeqCst), 63);
    });
}

#[test]
fn a_group_at_the_end_of_the_run() {
    let _guard = hang_guard();
    let census = Census::default();
    let group = runtime(2).run(|| {
        let group = Group::<()>::new();
        for _ in 0..10 {
            let member = census.member();
            group.spawn(move || {
                let _member = member;
                context::shield(|| sleep(FOREVER));
                Ok(())
            });
        }
        group
    });
    // It must not look as if their work was done.
    let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
    assert!(payload.is::<Cancelled>());
    census.assert_all_dropped(10);
}

// Functions that are called later

#[test]
fn a_context_that_ends_calls_its_functions() {
    run(2, || {
        let (sender, receiver) = unbounded();
        let (ctx, canceller) = Context::background().with_cancel();
        let late = ctx.with_timeout(FOREVER);
        let all: Vec<_> = [&ctx, &late]
            .map(|ctx| {
                let sender = sender.clone();
                after_func(ctx, move || sender.send(context::check()).unwrap())
            })
            .into();
        yield_now();
        assert!(receiver.is_empty());
        canceller.cancel();
        // They do not run in the context.
        assert_eq!([receiver.recv(), receiver.recv()], [Ok(Ok(())), Ok(Ok(()))]);
        assert!(!all.iter().any(context::AfterFunc::stop));
        // Now, as it is done; and at a deadline. Dropping the result does not stop it.
        let told = sender.clone();
        drop(after_func(&ctx, move || told.send(Ok(())).unwrap()));
        receiver.recv().unwrap().unwrap();
        let soon = Context::background().with_timeout(MOMENT);
        drop(after_func(&soon, move || sender.send(Ok(())).unwrap()));
        receiver.recv().unwrap().unwrap();
        assert!(soon.is_done());
    });
}

#[test]
fn a_function_is_stopped_or_called_never_both() {
    run(2, || {
        for i in 0..200 {
            let census = Census::default();
            let (ctx, canceller) = Context::background().with_cancel();
            let was_called = Arc::new(AtomicBool::new(false));
            let after = {
                let (member, was_called) = (census.member(), Arc::clone(&was_called));
                after_func(&ctx, move || {
                    was_called.store(true, Ordering::SeqCst);
                    drop(member);
                })
            };
            if i % 2 == 0 {
                yield_now();
            }
            let cancels = spawn(move || canceller.cancel());
            if i % 3 == 0 {
                yield_now();
            }
            let was_stopped = after.stop();
            assert!(!after.stop());
            cancels.join().unwrap();
            wait_until(|| census.dropped() == 1);
            assert_ne!(was_stopped, was_called.load(Ordering::SeqCst));
        }
    });
}

#[test]
fn a_panic_in_a_function_harms_nobody() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let (sender, receiver) = bounded(1);
        let census = Census::default();
        let member = census.member();
        let bad = after_func(&ctx, move || {
            let _member = member;
            panic!("in an after_func")
        });
        let good = after_func(&ctx, move || sender.send(()).unwrap());
        canceller.cancel();
        receiver.recv().unwrap();
        wait_until(|| census.dropped() == 1);
        assert!(!bad.stop() && !good.stop());
    });
}

#[test]
fn functions_are_dropped_at_the_end_of_the_run() {
    let _guard = hang_guard();
    let census = Census::default();
    let kept = runtime(2).run(|| {
        let (ctx, canceller) = Context::background().with_cancel();
        canceller.detach();
        let (first, second) = (census.member(), census.member());
        let after = time::after_func(FOREVER, move || {
            let _ = &first;
        });
        (after_func(&ctx, || drop(second)), after)
    });
    // Nothing is there to be called.
    census.assert_all_dropped(2);
    assert!(!kept.0.stop() && !kept.1.stop() && !kept.1.reset(Duration::ZERO));
}

#[test]
fn a_cause_comes_with_its_deadline() {
    run(1, || {
        let cause = |ctx: &Context| ctx.cause().map(ToString::to_string);
        let ctx = Context::background().with_timeout_cause(Duration::ZERO, "slow");
        let child = ctx.with_timeout_cause(FOREVER, "never");
        let other = ctx.with_cancel().0;
        assert_eq!(cause(&ctx).as_deref(), Some("slow"));
        // Whichever notices the deadline first.
        for child in [&child, &other, &child.with_value(7)] {
            assert_eq!(child.err(), Some(Error::DeadlineExceeded));
        }
        assert_eq!(cause(&child).as_deref(), Some("slow"));
        // A cancel before the deadline has its own cause, or none.
        let parent = Context::background().with_cancel();
        let child = parent
            .0
            .with_deadline_cause(Instant::now() + FOREVER, "late");
        assert_eq!(cause(&child), None);
        parent.1.cancel_because("stopped");
        assert_eq!(cause(&child).as_deref(), Some("stopped"));
        // An earlier deadline of its own.
        let parent = Context::background().with_timeout_cause(FOREVER, "of the parent");
        let child = parent.with_timeout_cause(Duration::ZERO, "of the child");
        assert_eq!(cause(&child).as_deref(), Some("of the child"));
        assert_eq!(child.err(), Some(Error::DeadlineExceeded));
        assert!(!parent.is_done());
        // Past the range of the clock.
        let never = Context::background().with_timeout_cause(Duration::MAX, "never");
        assert!(!never.is_done() && never.deadline().is_none());
    });
}

#[test]
fn functions_are_called_after_a_time() {
    run(2, || {
        let (sender, receiver) = unbounded();
        let start = Instant::now();
        let after = time::after_func(MOMENT, move || sender.send(Instant::now()).unwrap());
        assert!(receiver.recv().unwrap() >= start + MOMENT);
        // Again, later and earlier.
        assert!(!after.reset(FOREVER));
        assert!(after.reset(MOMENT));
        receiver.recv().unwrap();
        assert!(!after.reset(FOREVER));
        assert!(after.stop() && !after.stop());
        assert!(!after.reset(MOMENT));
        receiver.recv().unwrap();
        // Without a handle the goroutine ends after the call, and drops the function.
        assert!(!after.reset(MOMENT));
        drop(after);
        receiver.recv().unwrap();
        assert!(receiver.recv().is_err());
    });
}

#[test]
fn a_function_that_panics_is_not_called_again() {
    run(2, || {
        let census = Census::default();
        let member = census.member();
        let after = time::after_func(Duration::ZERO, move || {
            let _ = &member;
            panic!("in an after_func")
        });
        wait_until(|| census.dropped() == 1);
        assert!(!after.reset(Duration::ZERO) && !after.stop());
    });
}

#[test]
fn a_function_is_set_again_while_it_runs() {
    run(2, || {
        let (sender, receiver) = bounded::<()>(0);
        let n_running = Arc::new(AtomicUsize::new(0));
        let after = time::after_func(Duration::ZERO, move || {
            assert_eq!(n_running.fetch_add(1, Ordering::SeqCst), 0);
            sender.send(()).unwrap();
            n_running.fetch_sub(1, Ordering::SeqCst);
        });
        for _ in 0..10 {
            receiver.recv().unwrap();
            after.reset(Duration::ZERO);
        }
        receiver.recv().unwrap();
        after.stop();
    });
}

#[test]
fn a_goroutine_can_ask() {
    run(2, || {
        let (sender, receiver) = bounded(1);
        let (mut a, _b) = pair();
        let computes = task::spawn_in(&Context::background(), move || {
            sender.send(()).unwrap();
            while context::check().is_ok() {
                yield_now();
            }
            a.write_all(b"no").unwrap_err().kind()
        });
        receiver.recv().unwrap();
        assert!(computes.cancel());
        assert_eq!(computes.join().unwrap(), ErrorKind::Other);
    });
}
