//! Leaked goroutines that wait for a channel, a lock, a semaphore or a group; and waits that are none of these.
#![cfg(feature = "leaks")]
#![allow(unsafe_code)]

#[path = "util/leaks.rs"]
mod found;
#[path = "util/mod.rs"]
mod util;

use std::sync::mpsc;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use windlass::channel::{Receiver, Sender, bounded, select, unbounded};
use windlass::context::Context;
use windlass::debug::{Leak, Verdict};
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::{Mutex, Semaphore, WaitGroup};
use windlass::task::{self, JoinHandle};
use windlass::{Handle, blocking, offload, sleep};

use found::{leaks, names, waits};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `f` in a goroutine that has ended afterwards: what `f` has moved away is not found in its frames any more.
fn set_up(f: impl FnOnce() + Send + 'static) {
    windlass::spawn(f).join().unwrap();
}

/// Returns when a goroutine waits for this reason.
fn wait_for(reason: &str) {
    util::wait_until(|| {
        let all = Handle::current().goroutines();
        all.iter().any(|g| g.wait_reason == Some(reason))
    });
}

/// A value whose memory nothing else gets: locks, semaphores and groups are known by their addresses.
fn kept<T>(value: T) -> Arc<T> {
    let value = Arc::new(value);
    std::mem::forget(Arc::clone(&value));
    value
}

/// The leaks, which are these, all of them suspected. Each P numbers the goroutines that are spawned there, so numbers
/// need not be in the order of the spawns.
fn leaked(expected: &[&str]) -> Vec<Leak> {
    let mut found = leaks();
    found.leaks.sort_by_key(|leak| {
        let name = leak.goroutine.name.as_deref().unwrap_or("unnamed");
        expected.iter().position(|&expected| expected == name)
    });
    assert_eq!(names(&found), expected, "{found}");
    assert!(
        found.leaks.iter().all(|l| l.verdict == Verdict::Suspected),
        "{found}"
    );
    found.leaks
}

/// Nothing is leaked while the runtime is as `set_up` leaves it. What it returns is dropped afterwards, with which all
/// goroutines end.
fn none_are_leaked<T>(set_up: impl FnOnce() -> (Vec<JoinHandle<()>>, T) + Send + 'static)
where
    T: Send,
{
    util::run(2, move || {
        let (waiters, keeps) = set_up();
        let found = leaks();
        assert!(found.leaks.is_empty(), "{found}");
        drop(keeps);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_receiver_that_holds_the_only_sender() {
    util::run(2, || {
        let waiter = waits("own sender", || {
            let (s, r) = unbounded::<u32>();
            assert!(r.recv().is_err());
            drop(s);
        });
        let found = leaked(&["own sender"]);
        assert_eq!(found[0].goroutine.id, waiter.task().id());
        assert_eq!(found[0].goroutine.wait_reason, Some("chan receive"));
        assert_eq!(
            found[0].reason,
            "it holds the senders of the channel itself"
        );
        assert!(found[0].goroutine.spawned_at.file().ends_with("leaks.rs"));
    });
}

#[test]
fn a_receiver_that_was_given_the_only_sender() {
    fn start() {
        let (s, r) = unbounded::<u32>();
        // More than fits into its slot.
        let much = [7_u64; 100];
        drop(waits("was given", move || {
            let _s = s;
            std::hint::black_box(&much);
            let _ = r.recv();
        }));
    }
    util::run(2, || {
        set_up(start);
        leaked(&["was given"]);
    });
}

#[test]
fn a_sender_that_holds_the_only_receiver() {
    util::run(2, || {
        waits("own receiver", || {
            let (s, r) = bounded::<u32>(0);
            let _ = s.send(1);
            drop(r);
        });
        let found = leaked(&["own receiver"]);
        assert_eq!(
            found[0].reason,
            "it holds the receivers of the channel itself"
        );
    });
}

#[test]
fn a_sender_that_was_forgotten() {
    util::run(2, || {
        let waiter = waits("forgotten", || {
            let (s, r) = unbounded::<u32>();
            forget(s);
            let _ = r.recv();
        });
        #[inline(never)]
        fn forget(s: Sender<u32>) {
            std::mem::forget(s);
        }
        let found = leaks();
        // The frame of the goroutine may have the bytes of the handle that was moved away.
        assert_eq!(names(&found), ["forgotten"], "{found}");
        drop(waiter);
    });
}

/// Starts two goroutines each of which has the only sender for the other, and waits for it.
fn wait_for_each_other() {
    let ((to_one, one), (to_two, two)) = (unbounded::<u32>(), unbounded::<u32>());
    drop(waits("one", move || {
        let _ = one.recv();
        drop(to_two);
    }));
    drop(waits("two", move || {
        let _ = two.recv();
        drop(to_one);
    }));
}

#[test]
fn two_that_wait_for_each_other() {
    util::run(2, || {
        set_up(wait_for_each_other);
        let found = leaked(&["one", "two"]);
        let [one, two] = [0, 1].map(|idx| found[idx].goroutine.id);
        let says = |id| format!("the senders of the channel are held by goroutine {id}, leaked");
        assert_eq!(
            [&found[0].reason, &found[1].reason],
            [&says(two), &says(one)]
        );
    });
}

#[test]
fn a_ring_is_none_if_one_of_it_can_go_on() {
    util::run(2, || {
        let (to_three, three) = unbounded::<u32>();
        let (to_four, four) = unbounded::<u32>();
        let waiter = waits("four", move || {
            let _ = four.recv();
            drop(to_three);
        });
        waits("three", move || {
            select! {
                recv(three) -> _ => {}
                default(HOUR) => {}
            }
            drop(to_four);
        });
        // Last, so that no other goroutine gets the stack on which they were set up.
        set_up(wait_for_each_other);
        leaked(&["one", "two"]);
        drop(waiter);
    });
}

#[test]
fn a_select_of_what_cannot_come() {
    util::run(2, || {
        waits("select", || {
            let (s1, r1) = unbounded::<u32>();
            let (s2, r2) = bounded::<u32>(0);
            select! {
                recv(r1) -> _ => {}
                send(s2, 1) -> _ => {}
            }
            drop((s1, r2));
        });
        let found = leaked(&["select"]);
        assert!(
            found[0]
                .reason
                .contains("the senders of the channel itself"),
            "{found:?}"
        );
        assert!(
            found[0]
                .reason
                .contains("the receivers of the channel itself"),
            "{found:?}"
        );
    });
}

#[test]
fn a_lock_whose_holder_has_forgotten_it() {
    util::run(2, || {
        let lock = kept(Mutex::new(0));
        let its = Arc::clone(&lock);
        // It has its stack before the other ends.
        let waiter = waits("wants the lock", move || {
            task::park();
            *its.lock().unwrap() += 1;
        });
        set_up(move || std::mem::forget(lock.lock().unwrap()));
        waiter.task().unpark();
        wait_for("sync.Mutex.lock");
        let found = leaked(&["wants the lock"]);
        assert_eq!(found[0].goroutine.wait_reason, Some("sync.Mutex.lock"));
        assert_eq!(
            found[0].reason,
            "there is no guard of the lock any more: it was forgotten"
        );
    });
}

#[test]
fn locks_that_are_taken_in_different_orders() {
    util::run(2, || {
        let locks = kept([const { Mutex::new(()) }; 2]);
        let both = [0, 1].map(|n| {
            let locks = Arc::clone(&locks);
            waits(["first", "second"][n], move || {
                let _own = locks[n].lock().unwrap();
                task::park();
                drop(locks[1 - n].lock());
            })
        });
        assert!(leaks().leaks.is_empty(), "both may be unparked");
        both.iter().for_each(|handle| handle.task().unpark());
        util::wait_until(|| leaks().leaks.len() == 2);
        leaked(&["first", "second"]);
    });
}

#[test]
fn permits_that_leaked_goroutines_hold() {
    util::run(2, || {
        let semaphore = kept(Semaphore::new(2));
        for owned in [true, false] {
            let its = Arc::clone(&semaphore);
            waits("holds", move || {
                let (s, r) = unbounded::<u32>();
                let _owned = owned.then(|| its.acquire_owned(1).unwrap());
                let _borrowed = (!owned).then(|| its.acquire(1).unwrap());
                let _ = r.recv();
                drop(s);
            });
        }
        let its = Arc::clone(&semaphore);
        waits("wants a permit", move || drop(its.acquire(1)));
        let found = leaked(&["holds", "holds", "wants a permit"]);
        assert!(
            found[2]
                .reason
                .starts_with("the permits of the semaphore are held by goroutine ")
        );
    });
}

#[test]
fn a_group_with_a_leaked_member() {
    util::run(2, || {
        set_up(|| {
            let group = WaitGroup::new();
            group.go(|| {
                let (s, r) = unbounded::<u32>();
                let _ = r.recv();
                drop(s);
            });
            drop(waits("waits for the group", move || group.wait()));
        });
        wait_for("chan receive");
        leaked(&["unnamed", "waits for the group"]);
    });
}

#[test]
fn who_joins_a_leaked_goroutine() {
    util::run(2, || {
        waits("joins", || {
            let waiter = windlass::spawn(|| {
                let (s, r) = unbounded::<u32>();
                let _ = r.recv();
                drop(s);
            });
            drop(waiter.join());
        });
        wait_for("chan receive");
        let found = leaked(&["joins", "unnamed"]);
        let id = found[1].goroutine.id;
        assert_eq!(
            found[0].reason,
            format!("goroutine {id}, which it joins, is leaked")
        );
    });
}

/// Each waits for all others, and a reason names some of them.
#[test]
fn many_that_hold_senders_of_one_channel() {
    fn start() {
        let (s, r) = unbounded::<u32>();
        for _ in 0..30 {
            let (s, r) = (s.clone(), r.clone());
            drop(waits("one of many", move || {
                let _ = r.recv();
                drop(s);
            }));
        }
    }
    util::run(2, || {
        set_up(start);
        let found = leaked(&["one of many"; 30]);
        for leak in &found {
            assert_eq!(leak.reason.matches("goroutine").count(), 5, "{leak}");
            assert!(leak.reason.ends_with(", 24 others, leaked"), "{leak}");
        }
    });
}

/// A receiver that waits, the sender for which is put where `keep` says.
fn with_sender<T>(keep: impl FnOnce(Sender<u32>) -> T) -> (Vec<JoinHandle<()>>, T) {
    let (s, r) = unbounded();
    let waiter = waits("waits", move || assert!(r.recv().is_err()));
    (vec![waiter], keep(s))
}

#[test]
fn a_sender_on_the_heap() {
    none_are_leaked(|| with_sender(|s| vec![s]));
    none_are_leaked(|| with_sender(|s| Arc::new(StdMutex::new(Some(s)))));
}

#[test]
fn a_sender_that_the_receiver_has_registered() {
    type Registry = Arc<StdMutex<Vec<Sender<u32>>>>;
    fn actor(registry: &Registry) -> JoinHandle<()> {
        let registry = Arc::clone(registry);
        waits("actor", move || {
            // The frame keeps the bytes of the sender that was moved away.
            let (s, r) = unbounded();
            registry.lock().unwrap().push(s);
            drop(registry);
            assert!(r.recv().is_err());
        })
    }
    none_are_leaked(|| {
        let registry = Registry::default();
        (vec![actor(&registry)], registry)
    });
}

#[test]
fn a_sender_in_a_static() {
    static SENDER: StdMutex<Option<Sender<u32>>> = StdMutex::new(None);
    struct Clears;
    impl Drop for Clears {
        fn drop(&mut self) {
            *SENDER.lock().unwrap() = None;
        }
    }
    none_are_leaked(|| {
        with_sender(|s| {
            *SENDER.lock().unwrap() = Some(s);
            Clears
        })
    });
}

#[test]
fn a_sender_on_a_plain_thread() {
    none_are_leaked(|| {
        with_sender(|s| {
            let (stop, stopped) = mpsc::channel::<()>();
            std::thread::spawn(move || {
                let s = s;
                let _ = stopped.recv();
                drop(s);
            });
            stop
        })
    });
}

/// Memory that a C library has got, and memory that may only be read now.
#[test]
fn a_sender_in_memory_that_rust_does_not_know() {
    struct Mapped(usize);
    impl Mapped {
        const BYTES: usize = 1 << 20;

        fn of(sender: Sender<u32>) -> Mapped {
            let at = map(Mapped::BYTES);
            assert_ne!(at, libc::MAP_FAILED);
            // SAFETY: the mapping is large enough, and nothing else knows of it.
            unsafe {
                at.cast::<Sender<u32>>().write(sender);
                assert_eq!(libc::mprotect(at, Mapped::BYTES, libc::PROT_READ), 0);
                Mapped(at.expose_provenance())
            }
        }
    }
    impl Drop for Mapped {
        fn drop(&mut self) {
            let at = std::ptr::with_exposed_provenance_mut::<Sender<u32>>(self.0);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the value was written when the memory was mapped, and is taken once.
            unsafe {
                assert_eq!(libc::mprotect(at.cast(), Mapped::BYTES, rights), 0);
                at.drop_in_place();
                libc::munmap(at.cast(), Mapped::BYTES);
            }
        }
    }
    struct Allocated(usize);
    impl Allocated {
        fn of(sender: Sender<u32>) -> Allocated {
            // SAFETY: the block is large enough, and aligned for every type.
            unsafe {
                let at = libc::malloc(size_of::<Sender<u32>>()).cast::<Sender<u32>>();
                assert!(!at.is_null());
                at.write(sender);
                Allocated(at.expose_provenance())
            }
        }
    }
    impl Drop for Allocated {
        fn drop(&mut self) {
            let at = std::ptr::with_exposed_provenance_mut::<Sender<u32>>(self.0);
            // SAFETY: the value was written when the block was allocated, and is taken once.
            unsafe {
                at.drop_in_place();
                libc::free(at.cast());
            }
        }
    }
    none_are_leaked(|| with_sender(Mapped::of));
    none_are_leaked(|| with_sender(Allocated::of));
}

#[test]
fn a_sender_in_a_thread_local() {
    thread_local! {
        static SENDER: std::cell::RefCell<Option<Sender<u32>>> = const { std::cell::RefCell::new(None) };
    }
    none_are_leaked(|| {
        with_sender(|s| {
            let (stop, stopped) = mpsc::channel::<()>();
            std::thread::spawn(move || {
                SENDER.set(Some(s));
                let _ = stopped.recv();
            });
            stop
        })
    });
}

/// A goroutine that holds the only sender of the channel from which it receives.
fn leak_one() {
    drop(waits("own sender", || {
        let (s, r) = unbounded::<u32>();
        let _ = r.recv();
        drop(s);
    }));
}

/// A mapping at an address of the kernel's choice, of memory that is there once it is written.
fn map(bytes: usize) -> *mut libc::c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: it takes the place of no other mapping.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) }
}

#[test]
fn a_plain_thread_that_searches() {
    util::run(2, || {
        leak_one();
        leaked(&["own sender"]);
        let handle = Handle::current();
        let searches = move || [(); 3].map(|()| handle.leaks().unwrap());
        let found = std::thread::spawn(searches);
        for found in blocking(|| found.join()).unwrap() {
            assert_eq!(names(&found), ["own sender"], "{found}");
        }
    });
}

/// Maps, moves, empties and unmaps memory until the other side of the channel is gone.
fn changes_memory(stopped: &mpsc::Receiver<()>) {
    const BYTES: usize = 4 << 20;
    while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
        let at = map(BYTES);
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: nothing else uses the mapping, which ends here, wherever it is moved.
        unsafe {
            at.write_bytes(0xb1, BYTES);
            let at = libc::mremap(at, BYTES, 2 * BYTES, libc::MREMAP_MAYMOVE);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::madvise(at, BYTES / 2, libc::MADV_DONTNEED), 0);
            assert_eq!(libc::mprotect(at, BYTES / 4, libc::PROT_NONE), 0);
            assert_eq!(libc::munmap(at, 2 * BYTES), 0);
        }
    }
}

#[test]
fn memory_that_changes_while_it_is_searched() {
    util::run(2, || {
        leak_one();
        let (waiters, kept) = with_sender(Box::new);
        let (stop, stopped) = mpsc::channel();
        let changes = std::thread::spawn(move || changes_memory(&stopped));
        for _ in 0..20 {
            leaked(&["own sender"]);
        }
        drop(stop);
        blocking(|| changes.join()).unwrap();
        drop(kept);
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// Memory that was never written is not read, nor made.
#[test]
fn a_mapping_that_nobody_has_touched() {
    let bytes: usize = 1 << 40;
    let at = map(bytes);
    if at == libc::MAP_FAILED {
        eprintln!("no mapping of 1 TiB here: vm.overcommit_memory or a limit forbids it");
        return;
    }
    let tables = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<usize>().unwrap() * 1024
    };
    util::run(2, move || {
        leak_one();
        let before = tables();
        leaked(&["own sender"]);
        // The tables of the whole are 2 GiB.
        assert!(tables() < before + (64 << 20));
    });
    // SAFETY: nothing uses the mapping.
    unsafe { libc::munmap(at, bytes) };
}

#[test]
fn a_sender_of_a_goroutine_that_sleeps_or_offloads() {
    none_are_leaked(|| {
        let (ctx, canceller) = Context::background().with_cancel();
        let (mut waiters, ()) = with_sender(|s| {
            waits("sleeps", move || {
                ctx.run(|| sleep(HOUR));
                drop(s);
            });
        });
        let (stop, stopped) = mpsc::channel::<()>();
        let (more, ()) = with_sender(|s| {
            waits("offloads", move || {
                offload(move || {
                    let s = s;
                    let _ = stopped.recv();
                    drop(s);
                });
            });
        });
        waiters.extend(more);
        (waiters, (canceller, stop))
    });
}

#[test]
fn a_sender_in_a_message() {
    none_are_leaked(|| {
        with_sender(|s| {
            let (carrier, carried): (Sender<Sender<u32>>, Receiver<_>) = unbounded();
            carrier.send(s).unwrap();
            (carrier, carried)
        })
    });
}

#[test]
fn waits_with_a_deadline_or_a_context() {
    none_are_leaked(|| {
        let (ctx, canceller) = Context::background().with_cancel();
        let late = waits("deadline", || {
            let (s, r) = unbounded::<u32>();
            let _ = r.recv_timeout(HOUR);
            drop(s);
        });
        drop(late);
        let cancelled = waits("context", move || {
            let (s, r) = unbounded::<u32>();
            ctx.run(|| assert!(r.recv().is_err()));
            drop(s);
        });
        (vec![cancelled], canceller)
    });
}

#[test]
fn a_loop_that_accepts() {
    util::run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = waits("accepts", move || drop(listener.accept().unwrap()));
        let found = leaks();
        assert!(found.leaks.is_empty(), "{found}");
        drop(TcpStream::connect(addr).unwrap());
        server.join().unwrap();
    });
}

#[test]
fn guards_and_permits_that_are_given_away() {
    none_are_leaked(|| {
        let lock = Arc::new(Mutex::new(0));
        let semaphore = Arc::new(Semaphore::new(1));
        // Their goroutine has ended.
        let (l, s) = (Arc::clone(&lock), Arc::clone(&semaphore));
        let taken = windlass::spawn(move || {
            Box::new((l.lock_owned().unwrap(), s.acquire_owned(1).unwrap()))
        });
        let taken = taken.join().unwrap();
        let waiters = vec![
            waits("lock", move || *lock.lock().unwrap() += 1),
            waits("semaphore", move || drop(semaphore.acquire(1).unwrap())),
        ];
        (waiters, taken)
    });
}

#[test]
fn a_semaphore_to_which_permits_are_added() {
    none_are_leaked(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let its = Arc::clone(&semaphore);
        let waiter = waits("signal", move || its.acquire(1).unwrap().forget());
        struct Adds(Arc<Semaphore>);
        impl Drop for Adds {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        (vec![waiter], Adds(semaphore))
    });
}

/// A run of a program with a leaked goroutine, or with its twin that is none.
#[cfg(feature = "sim")]
#[test]
fn a_leak_in_a_simulation() {
    use windlass::sim::Sim;
    for leaks_it in [true, false] {
        let sim = Sim::new(util::PROMISE).seeds(5);
        let ran = sim.run(|| {
            let (give, given) = unbounded();
            set_up(move || {
                let (s, r) = unbounded::<u32>();
                let kept = (!leaks_it).then(|| Box::new(s.clone()));
                let its = leaks_it.then_some(s);
                let waiter = task::Builder::new().name("sim").spawn(move || {
                    let _ = r.recv();
                    drop(its);
                });
                give.send((waiter.unwrap(), kept)).unwrap();
            });
            let (waiter, kept) = given.recv().unwrap();
            sleep(HOUR);
            let found = Handle::current().leaks().unwrap();
            let expected: &[&str] = if leaks_it { &["sim"] } else { &[] };
            assert_eq!(names(&found), expected, "{found}");
            drop(kept);
            if !leaks_it {
                waiter.join().unwrap();
            }
        });
        ran.unwrap();
    }
}
