//! Goroutines that begin when something has come: what begins them, with what, and that nothing is lost.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::util::{
    Census, child_case, child_passes, hang_guard, is_simulated, much, resident_bytes, run, runtime,
    wait_until,
};
use windlass::channel::{Receiver, after, bounded, tick, unbounded};
use windlass::context::{self, Context};
use windlass::debug::State;
use windlass::io::{PipeReader, pipe};
use windlass::net::UnixStream;
use windlass::task::{JoinHandle, When, spawn_when};
use windlass::time::Instant;
use windlass::{Handle, sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Reads a byte when one is there.
fn read_byte(mut from: impl Read, ready: io::Result<()>) -> io::Result<u8> {
    let mut byte = [0];
    ready?;
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Takes the message that has come; `None` if the channel is disconnected.
fn receive<T>(r: Receiver<T>, ready: io::Result<()>) -> Option<T> {
    ready.unwrap();
    r.recv().ok()
}

/// How many goroutines wait without a stack.
fn off_stack() -> usize {
    let dump = Handle::current().dump();
    let waits = |g: &&windlass::debug::Goroutine| {
        g.state == State::Waiting
            && g.wait_reason
                .is_some_and(|why| why.ends_with("without a stack"))
    };
    dump.goroutines.iter().filter(waits).count()
}

fn why(error: &io::Error) -> Option<&context::Error> {
    error.get_ref()?.downcast_ref()
}

#[test]
fn begins_when_the_descriptor_is_readable() {
    run(2, || {
        let (reader, mut writer) = pipe().unwrap();
        let late = spawn_when(When::readable(reader), read_byte);
        yield_now();
        assert!(!late.is_finished());
        writer.write_all(b"a").unwrap();
        assert_eq!(late.join().unwrap().unwrap(), b'a');
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"b").unwrap();
        let at_once = spawn_when(When::readable(reader), read_byte);
        assert_eq!(at_once.join().unwrap().unwrap(), b'b');
        let (reader, writer) = pipe().unwrap();
        let closed = spawn_when(When::readable(reader), read_byte);
        drop(writer);
        assert_eq!(
            closed.join().unwrap().unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
    });
}

#[test]
fn begins_when_the_descriptor_is_writable() {
    run(2, || {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let full = loop {
            match (&near).write(&[7; 4096]) {
                Ok(n) => sent += n,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let writer = spawn_when(When::writable(near), |mut near, ready| {
            ready.and_then(|()| near.write_all(b"!"))
        });
        yield_now();
        assert!(!writer.is_finished());
        let mut all = vec![0; sent + 1];
        far.read_exact(&mut all).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!((all[0], all[sent]), (7, b'!'));
    });
}

#[test]
fn begins_when_a_message_is_in_the_channel() {
    run(2, || {
        let (s, r) = unbounded();
        let late = spawn_when(When::receivable(r.clone()), receive);
        yield_now();
        assert!(!late.is_finished());
        s.send(1).unwrap();
        assert_eq!(late.join().unwrap(), Some(1));
        s.send(2).unwrap();
        let at_once = spawn_when(When::receivable(r.clone()), receive);
        assert_eq!(at_once.join().unwrap(), Some(2));
        let soon = When::receivable(r.clone()).or_after(Duration::from_millis(1));
        let error = spawn_when(soon, |_, ready| ready.unwrap_err());
        assert_eq!(error.join().unwrap().kind(), ErrorKind::TimedOut);
        s.send(3).unwrap();
        let had_come = When::receivable(r.clone()).or_after(Duration::ZERO);
        assert_eq!(spawn_when(had_come, receive).join().unwrap(), Some(3));
        let (ctx, canceller) = Context::background().with_cancel();
        let cut = When::receivable(r.clone()).or_done(&ctx);
        let cut = spawn_when(cut, |_, ready| ready.unwrap_err());
        yield_now();
        canceller.cancel();
        assert_eq!(why(&cut.join().unwrap()), Some(&context::Error::Cancelled));
        let closed = spawn_when(When::receivable(r), receive);
        yield_now();
        drop(s);
        assert_eq!(closed.join().unwrap(), None);
    });
}

#[test]
fn begins_when_a_sender_waits_or_the_clock_gives_a_message() {
    run(2, || {
        let (s, r) = bounded(0);
        let waiter = spawn_when(When::receivable(r), receive);
        yield_now();
        s.send(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
        let begun = Instant::now();
        for r in [
            after(Duration::from_millis(3)),
            tick(Duration::from_millis(3)),
        ] {
            let waiter = spawn_when(When::receivable(r), |r, ready| {
                ready.map(|()| r.try_recv().is_ok()).unwrap()
            });
            assert!(waiter.join().unwrap());
        }
        assert!(begun.elapsed() >= Duration::from_millis(3));
        let (ctx, canceller) = Context::background().with_cancel();
        let done = spawn_when(When::receivable(ctx.done().clone()), |_, ready| {
            ready.is_ok()
        });
        yield_now();
        canceller.cancel();
        assert!(done.join().unwrap());
    });
}

/// Senders, receivers with stacks and such goroutines share a channel, and all messages are received.
#[test]
fn no_message_is_missed_by_all() {
    run(2, || {
        const N: u32 = 200;
        let (s, r) = unbounded();
        let (out, all) = unbounded();
        let waiters: Vec<_> = (0..N)
            .map(|i| {
                if i % 7 == 0 {
                    yield_now();
                }
                s.send(i).unwrap();
                let out = out.clone();
                spawn_when(When::receivable(r.clone()), move |r, ready| {
                    ready.unwrap();
                    out.send(r.recv().unwrap()).unwrap();
                })
            })
            .collect();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        let mut all: Vec<u32> = all.try_iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..N));
    });
}

#[test]
fn has_no_stack_before() {
    let _guard = hang_guard();
    run(2, || {
        let (reader, mut writer) = pipe().unwrap();
        let waiter = spawn_when(When::readable(reader), read_byte);
        let (ctx, canceller) = Context::background().with_cancel();
        let sleeper = spawn_when(
            When::at(Instant::now() + FOREVER).or_done(&ctx),
            |(), why| why,
        );
        let (_s, r) = unbounded::<()>();
        let receiver = spawn_when(When::receivable(r).or_done(&ctx), |_, why| why);
        let handle = Handle::current();
        let reasons = || {
            let reason = |id| {
                let dump = handle.dump();
                let g = dump.goroutines.iter().find(|g| g.id == id);
                g.and_then(|g| g.wait_reason)
            };
            [&waiter.task(), &sleeper.task(), &receiver.task()].map(|task| reason(task.id()))
        };
        let expected =
            ["IO wait", "sleep", "chan receive"].map(|why| format!("{why} without a stack"));
        let expected = expected.each_ref().map(|why| Some(&**why));
        wait_until(|| reasons() == expected);
        writer.write_all(b"x").unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), b'x');
        canceller.cancel();
        sleeper.join().unwrap().unwrap_err();
        receiver.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_deadline_ends_the_wait_and_gives_the_descriptor_back() {
    run(2, || {
        for timeout in [Duration::ZERO, Duration::from_millis(2)] {
            let (reader, mut writer) = pipe().unwrap();
            let when = When::readable(reader).or_after(timeout).or_after(FOREVER);
            let late = spawn_when(when, |reader, ready| (reader, ready.unwrap_err().kind()));
            let (reader, kind) = late.join().unwrap();
            assert_eq!(kind, ErrorKind::TimedOut);
            writer.write_all(b"c").unwrap();
            assert_eq!(read_byte(reader, Ok(())).unwrap(), b'c');
        }
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"d").unwrap();
        // What is there counts, however late it is.
        let when = When::readable(reader).or_at(Instant::now());
        assert_eq!(spawn_when(when, read_byte).join().unwrap().unwrap(), b'd');
    });
}

#[test]
fn begins_at_its_time() {
    run(2, || {
        let begun = windlass::time::Instant::now();
        let after = |ms| {
            let time = begun + Duration::from_millis(ms);
            spawn_when(When::at(time), move |(), ready| {
                ready.unwrap();
                windlass::time::Instant::now() >= time
            })
        };
        let all: Vec<_> = [3, 1, 0, 2].map(after).into();
        assert!(all.into_iter().all(|g| g.join().unwrap()));
    });
}

#[test]
fn a_context_ends_the_wait() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let kept: Vec<_> = (0..20).map(|_| pipe().unwrap()).collect();
        let (readers, writers): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let waits = |reader: PipeReader| {
            spawn_when(When::readable(reader).or_done(&ctx), |_, ready| {
                ready.unwrap_err()
            })
        };
        let mut all: Vec<_> = readers.into_iter().map(waits).collect();
        let done = spawn_when(When::done(&ctx), |(), ready| ready.is_ok());
        let sleeper = spawn_when(
            When::at(Instant::now() + FOREVER).or_done(&ctx),
            |(), ready| ready.unwrap_err(),
        );
        if !is_simulated() {
            wait_until(|| off_stack() == 22);
        }
        canceller.cancel();
        // A context that is done already.
        let (reader, _writer) = pipe().unwrap();
        all.push(waits(reader));
        all.push(sleeper);
        for g in all {
            assert_eq!(why(&g.join().unwrap()), Some(&context::Error::Cancelled));
        }
        assert!(done.join().unwrap());
        drop(writers);

        let late = Context::background().with_timeout(Duration::from_millis(1));
        let (reader, _writer) = pipe().unwrap();
        let error = spawn_when(When::readable(reader).or_done(&late), |_, ready| {
            ready.unwrap_err()
        });
        let error = error.join().unwrap();
        assert_eq!(why(&error), Some(&context::Error::DeadlineExceeded));
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(
            spawn_when(When::done(&late), |(), ready| ready.is_ok())
                .join()
                .unwrap()
        );
    });
}

/// The function is not in the context that could end its wait.
#[test]
fn the_function_is_outside_of_the_context() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let cleaned = spawn_when(When::done(&ctx), |(), _| context::check().is_ok());
        canceller.cancel();
        assert!(cleaned.join().unwrap());
    });
}

#[test]
fn another_goroutine_shuts_the_descriptor_down() {
    run(2, || {
        let (near, _far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        let reader = spawn_when(When::readable(Arc::clone(&near)), |near, ready| {
            read_byte(&*near, ready)
        });
        yield_now();
        near.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(
            reader.join().unwrap().unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
    });
}

/// Each byte is read by one of those that wait for the same descriptor.
#[test]
fn many_wait_for_one_descriptor() {
    run(2, || {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = Arc::new(near);
        let n_read = Arc::new(AtomicUsize::new(0));
        let reads = |_| {
            let (near, n_read) = (Arc::clone(&near), Arc::clone(&n_read));
            spawn_when(When::readable(near), move |near, ready| {
                if read_byte(&*near, ready).is_ok() {
                    n_read.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let all: Vec<_> = (0..8).map(reads).collect();
        far.write_all(&[1; 8]).unwrap();
        all.into_iter().for_each(|g| g.join().unwrap());
        let mut rest = [0; 8];
        let n_left = (&*near).read(&mut rest).unwrap_or(0);
        assert_eq!(n_read.load(Ordering::SeqCst) + n_left, 8);
    });
}

#[test]
fn a_panic_is_the_goroutines() {
    run(2, || {
        let (first, mut to_first) = pipe().unwrap();
        let (second, mut to_second) = pipe().unwrap();
        let panics = spawn_when(When::readable(first), |_, _| -> () {
            panic!("of the function")
        });
        let goes_on = spawn_when(When::readable(second), read_byte);
        to_first.write_all(b"1").unwrap();
        let payload = panics.join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"of the function"));
        to_second.write_all(b"2").unwrap();
        assert_eq!(goes_on.join().unwrap().unwrap(), b'2');
    });
}

#[test]
fn begins_without_a_handle() {
    run(2, || {
        let (reader, mut writer) = pipe().unwrap();
        let (answer, mut answered) = pipe().map(|(reader, writer)| (writer, reader)).unwrap();
        drop(spawn_when(When::readable(reader), move |reader, ready| {
            let byte = read_byte(reader, ready).unwrap();
            (&answer).write_all(&[byte]).unwrap();
        }));
        writer.write_all(b"e").unwrap();
        assert_eq!(read_byte(&mut answered, Ok(())).unwrap(), b'e');
    });
}

#[test]
fn the_end_of_a_run_drops_those_that_wait() {
    let _guard = hang_guard();
    const N: usize = 1_000;
    let census = Census::default();
    let handles: Vec<JoinHandle<()>> = runtime(2).run(|| {
        let ctx = Context::background().with_timeout(FOREVER);
        let waits = |i: usize| {
            let member = census.member();
            let f = move || drop(member);
            match i % 5 {
                // A socket pair, so that no descriptor is left over.
                0 => {
                    let (near, far) = UnixStream::pair().unwrap();
                    spawn_when(When::readable(near), move |_, _| drop((far, f)))
                }
                1 => {
                    let (near, far) = UnixStream::pair().unwrap();
                    let when = When::readable(near).or_done(&ctx).or_after(FOREVER);
                    spawn_when(when, move |_, _| drop((far, f)))
                }
                2 => spawn_when(When::at(Instant::now() + FOREVER), move |(), _| f()),
                3 => {
                    let (s, r) = unbounded::<()>();
                    spawn_when(When::receivable(r), move |_, _| drop((s, f)))
                }
                _ => spawn_when(When::done(&ctx), move |(), _| f()),
            }
        };
        let handles = (0..N).map(waits).collect();
        wait_until(|| off_stack() == N);
        handles
    });
    census.assert_all_dropped(N);
    for handle in handles {
        assert!(handle.join().unwrap_err().is::<windlass::task::Cancelled>());
    }
}

/// Some that have just been spawned have not begun to wait.
#[test]
fn the_end_of_a_run_comes_at_any_time() {
    let _guard = hang_guard();
    for n in 0..much(20, 1) {
        let census = Census::default();
        runtime(2).run(|| {
            for i in 0..20 {
                let member = census.member();
                let (near, far) = UnixStream::pair().unwrap();
                drop(spawn_when(When::readable(near), move |_, _| {
                    drop((far, member))
                }));
                if i == n {
                    yield_now();
                }
            }
        });
        census.assert_all_dropped(20);
    }
}

/// A completion, a deadline and a context end the wait at about the same time: the function is called once, and what it is told
/// is true.
#[test]
fn all_ends_of_a_wait_race() {
    run(4, || {
        for i in 0..much(500, 20) {
            let (reader, mut writer) = pipe().unwrap();
            let (ctx, canceller) = Context::background().with_cancel();
            let soon = Duration::from_micros(i as u64 % 100);
            let when = When::readable(reader).or_done(&ctx).or_after(soon);
            let waiter = spawn_when(when, |reader, ready| match ready {
                Ok(()) => read_byte(reader, Ok(())).is_ok(),
                Err(e) => e.kind() == ErrorKind::TimedOut || why(&e).is_some(),
            });
            let writes = spawn(move || {
                // The reader may be gone.
                let _ = writer.write_all(b"f");
            });
            canceller.cancel();
            assert!(waiter.join().unwrap());
            writes.join().unwrap();
        }
    });
}

/// A wait in the ring of a P that goes begins again on another one.
#[test]
fn goes_on_when_its_p_leaves() {
    let _guard = hang_guard();
    let rt = runtime(4);
    rt.run(|| {
        let (readers, writers): (Vec<_>, Vec<_>) = (0..100).map(|_| pipe().unwrap()).unzip();
        let waits = |reader| spawn_when(When::readable(reader), read_byte);
        let all: Vec<_> = readers.into_iter().map(waits).collect();
        wait_until(|| off_stack() == 100);
        rt.set_processors(1).unwrap();
        writers
            .into_iter()
            .for_each(|mut writer| writer.write_all(b"g").unwrap());
        assert!(all.into_iter().all(|g| g.join().unwrap().unwrap() == b'g'));
    });
}

/// In a process of its own, because it looks at the memory of the process.
#[test]
fn has_little_memory_before() {
    const N: usize = 8_000;
    if child_case().is_none() {
        child_passes("has_little_memory_before", "memory");
        return;
    }
    run(2, || {
        let pipes = [(); 16].map(|()| pipe().unwrap());
        let (readers, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let readers: Vec<_> = readers.into_iter().map(Arc::new).collect();
        let parks = || Handle::current().metrics().total().parks;
        // A dump would take memory itself.
        let waiting = |n: usize| {
            let had_parked = parks();
            for i in 0..n {
                let when = When::readable(Arc::clone(&readers[i % readers.len()]));
                drop(spawn_when(when, |_, ready| ready.unwrap()));
            }
            wait_until(|| parks() - had_parked >= n as u64);
        };
        // What a runtime has once: rings, tables, stacks.
        waiting(N / 4);
        let before = resident_bytes();
        waiting(N);
        let each = (resident_bytes() - before) / N as u64;
        assert!(each <= 460, "{each} bytes");
        drop(writers);
        wait_until(|| off_stack() == 0);
    });
}

#[test]
fn waits_of_any_kind_in_turn() {
    run(2, || {
        for i in 0..much(200, 10) {
            let (reader, mut writer) = pipe().unwrap();
            let waiter = spawn_when(When::readable(reader), read_byte);
            if i % 3 == 0 {
                sleep(Duration::from_micros(50));
            }
            writer.write_all(&[i as u8]).unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), i as u8);
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    begins_when_the_descriptor_is_readable,
    begins_when_the_descriptor_is_writable,
    begins_when_a_message_is_in_the_channel,
    begins_when_a_sender_waits_or_the_clock_gives_a_message,
    no_message_is_missed_by_all,
    has_no_stack_before: "there a descriptor is waited for with a stack",
    a_deadline_ends_the_wait_and_gives_the_descriptor_back,
    begins_at_its_time,
    a_context_ends_the_wait,
    the_function_is_outside_of_the_context,
    another_goroutine_shuts_the_descriptor_down,
    many_wait_for_one_descriptor,
    a_panic_is_the_goroutines: "a panic fails a simulation",
    begins_without_a_handle,
    the_end_of_a_run_drops_those_that_wait: "it ends a run of its own",
    the_end_of_a_run_comes_at_any_time: "it ends runs of its own",
    all_ends_of_a_wait_race,
    goes_on_when_its_p_leaves: "it has Ps that leave",
    has_little_memory_before: "it looks at the memory of the process",
    waits_of_any_kind_in_turn,
}
