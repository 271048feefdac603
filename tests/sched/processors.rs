//! The number of Ps: where it comes from, and that changing it loses nothing.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::util;
use crate::util::{build, hang_guard, runtime};
use windlass::net::{TcpListener, TcpStream};
use windlass::topology::Topology;
use windlass::{Builder, Runtime};

/// A runtime of `n` Ps that may get `max`.
fn growing(n: usize, max: usize) -> Runtime {
    build(Builder::new().processors(n).max_processors(max)).expect("these tests need io_uring")
}

/// Changes the number of Ps, however long a busy machine keeps the world from stopping.
fn change(rt: &Runtime, n: usize) {
    util::set_processors(rt, n);
    assert_eq!(rt.processors(), n);
}

#[test]
fn bad_numbers_are_refused_and_change_nothing() {
    let rt = growing(2, 4);
    for (n, word) in [(0, "at least one"), (5, "max_processors")] {
        let error = rt.set_processors(n).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(rt.processors(), 2);
    assert_eq!(rt.plan().ps.len(), 2);
    let too_many = build(Builder::new().max_processors(1_000_000)).unwrap_err();
    assert_eq!(too_many.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn it_changes_before_between_and_after_runs() {
    let _guard = hang_guard();
    let rt = growing(1, 4);
    for n in [3, 1, 4, 2] {
        change(&rt, n);
        assert_eq!(rt.metrics().ps.len(), n);
        let sum = rt.run(|| {
            let all: Vec<_> = (0..100).map(|i| windlass::spawn(move || i)).collect();
            all.into_iter().map(|j| j.join().unwrap()).sum::<usize>()
        });
        assert_eq!(sum, 4950);
    }
}

#[test]
fn a_plain_thread_changes_it_while_goroutines_run() {
    let _guard = hang_guard();
    let rt = growing(2, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let changer = s.spawn(|| {
            let _stops = SetOnDrop(&stop);
            for i in 0..200 {
                change(&rt, 1 + i % 4);
            }
        });
        rt.run(|| {
            while !stop.load(Ordering::SeqCst) {
                windlass::yield_now();
            }
        });
        changer.join().unwrap();
    });
    assert_eq!(rt.processors(), 4);
}

#[test]
fn parked_goroutines_survive_their_ps() {
    const SLEEPERS: usize = 200;
    let _guard = hang_guard();
    let rt = growing(4, 4);
    rt.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let sleepers: Vec<_> = (0..SLEEPERS)
            .map(|i| {
                windlass::spawn(move || {
                    windlass::sleep(Duration::from_millis(20 + i as u64 % 30));
                    1
                })
            })
            .collect();
        // One end waits for data wherever it happens to run; its P goes away under it.
        let pairs: Vec<_> = (0..32)
            .map(|i| {
                let mut client = TcpStream::connect(addr).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                let echo = windlass::spawn(move || {
                    let mut byte = [0; 3];
                    server.read_exact(&mut byte).unwrap();
                    server.write_all(&byte).unwrap();
                });
                let asks = windlass::spawn(move || {
                    windlass::sleep(Duration::from_millis(30));
                    let sent = [i, i + 1, i + 2];
                    client.write_all(&sent).unwrap();
                    let mut got = [0; 3];
                    client.read_exact(&mut got).unwrap();
                    assert_eq!(got, sent);
                });
                (echo, asks)
            })
            .collect();
        windlass::sleep(Duration::from_millis(5));
        change(&rt, 1);
        let woken: usize = sleepers.into_iter().map(|s| s.join().unwrap()).sum();
        assert_eq!(woken, SLEEPERS);
        for (echo, asks) in pairs {
            echo.join().unwrap();
            asks.join().unwrap();
        }
    });
}

#[test]
fn a_hog_and_a_blocking_section_do_not_hold_it_up() {
    let _guard = hang_guard();
    let rt = growing(3, 3);
    let stop = AtomicBool::new(false);
    rt.run(|| {
        windlass::scope(|s| {
            let hog = s.spawn(|| {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n = std::hint::black_box(n + 1);
                }
                n
            });
            let blocked = s.spawn(|| {
                windlass::blocking(|| {
                    while !stop.load(Ordering::Relaxed) {
                        #[expect(clippy::disallowed_methods, reason = "a thread that blocks")]
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            windlass::sleep(Duration::from_millis(5));
            let stops = SetOnDrop(&stop);
            for n in [1, 3, 2, 1, 3] {
                change(&rt, n);
            }
            drop(stops);
            assert!(hog.join().unwrap() > 0);
            blocked.join().unwrap();
        });
    });
}

/// A goroutine that enters a blocking section just when its P is being taken, because
/// it has computed for a while, keeps the P or loses it, and not both.
#[test]
fn a_section_begins_while_its_p_is_taken() {
    let _guard = hang_guard();
    let rt = growing(2, 4);
    let stop = AtomicBool::new(false);
    let in_section = AtomicUsize::new(0);
    rt.run(|| {
        windlass::scope(|s| {
            for i in 0..8u32 {
                let (stop, in_section) = (&stop, &in_section);
                s.spawn(move || {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        // Around the moment from which on it is taken as from a hog.
                        let until = Instant::now() + Duration::from_micros(u64::from(70 + n % 64));
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                        windlass::blocking(|| in_section.fetch_add(1, Ordering::Relaxed));
                        n += i + 1;
                    }
                });
            }
            let _stops = SetOnDrop(&stop);
            for i in 0..60 {
                change(&rt, [2, 4, 3][i % 3]);
            }
        });
    });
    assert!(in_section.load(Ordering::Relaxed) > 0);
}

/// A P that takes over from another goes itself a moment later.
#[test]
fn timers_survive_one_heir_after_another() {
    let _guard = hang_guard();
    let rt = growing(4, 4);
    rt.run(|| {
        for _ in 0..20 {
            let sleepers: Vec<_> = (0..100)
                .map(|i| {
                    windlass::spawn(move || windlass::sleep(Duration::from_micros(500 + i * 20)))
                })
                .collect();
            windlass::yield_now();
            for n in [3, 2, 1, 4] {
                change(&rt, n);
            }
            sleepers.into_iter().for_each(|s| s.join().unwrap());
        }
    });
}

/// Tells the others to stop however its scope is left.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts what every kind of goroutine did, while the number of Ps goes up and down.
#[test]
fn nothing_is_lost_under_load() {
    const ROUNDS: usize = 60;
    let _guard = hang_guard();
    let rt = growing(2, 6);
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut workers = Vec::new();
        for i in 0..24 {
            let (stop, begun, ended) = (stop.clone(), begun.clone(), ended.clone());
            workers.push(windlass::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    begun.fetch_add(1, Ordering::Relaxed);
                    match i % 4 {
                        0 => windlass::yield_now(),
                        1 => windlass::sleep(Duration::from_micros(50)),
                        2 => windlass::spawn(|| ()).join().unwrap(),
                        _ => windlass::blocking(|| std::hint::black_box(())),
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        for _ in 0..8 {
            let mut client = TcpStream::connect(addr).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            workers.push(windlass::spawn(move || {
                let mut buf = [0; 8];
                while server.read_exact(&mut buf).is_ok() {
                    server.write_all(&buf).unwrap();
                }
            }));
            let (stop, begun, ended) = (stop.clone(), begun.clone(), ended.clone());
            workers.push(windlass::spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    begun.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                    client.write_all(&n.to_ne_bytes()).unwrap();
                    let mut back = [0; 8];
                    client.read_exact(&mut back).unwrap();
                    assert_eq!(u64::from_ne_bytes(back), n);
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let stops = SetOnDrop(&stop);
        for i in 0..ROUNDS {
            change(&rt, [1, 6, 2, 5, 3, 4][i % 6]);
            windlass::sleep(Duration::from_millis(1));
        }
        drop(stops);
        for worker in workers {
            worker.join().unwrap();
        }
    });
    assert!(begun.load(Ordering::Relaxed) > 0);
    assert_eq!(begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
}

/// A listener whose queue is full: further connections wait until it accepts.
fn full_listener() -> (TcpListener, std::net::TcpStream) {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let filler = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.into(), filler)
}

/// A connection that is being made when its P goes away is made all the same.
#[test]
fn a_connect_in_progress_survives() {
    let _guard = hang_guard();
    let rt = growing(2, 2);
    rt.run(|| {
        let (listener, _filler) = full_listener();
        let addr = listener.local_addr().unwrap();
        let connecting: Vec<_> = (0..4)
            .map(|_| windlass::spawn(move || TcpStream::connect(addr)))
            .collect();
        windlass::sleep(Duration::from_millis(20));
        for n in [1, 2, 1] {
            change(&rt, n);
            windlass::sleep(Duration::from_millis(5));
        }
        let accepting = windlass::spawn(move || {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                kept.push(stream);
                if kept.len() == 4 + 1 {
                    break;
                }
            }
            kept.len()
        });
        for one in connecting {
            one.join().unwrap().unwrap();
        }
        assert_eq!(accepting.join().unwrap(), 4 + 1);
    });
}

#[test]
fn the_environment_chooses() {
    if let Some(value) = util::child_case() {
        // SAFETY: the one test of this process has begun no other thread that reads it.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("WINDLASS_PROCS", &value);
        }
        let n = build(Builder::new()).unwrap().processors();
        let expected = value.trim().parse().ok().filter(|&n| n > 0);
        let default = || windlass::topology::default_processors(&Topology::detect().unwrap());
        assert_eq!(n, expected.unwrap_or_else(default));
        // The program's setting counts more.
        let explicit = build(Builder::new().processors(1)).unwrap();
        assert_eq!(explicit.processors(), 1);
        return;
    }
    for (value, warnings) in [("3", 0), (" 2 ", 0), ("0", 1), ("many", 1), ("", 0)] {
        let stderr = util::child_passes("the_environment_chooses", value);
        assert_eq!(
            stderr.matches("WINDLASS_PROCS").count(),
            warnings,
            "{stderr}"
        );
    }
}

/// Changing the number back and forth leaves no thread and no descriptor behind.
#[test]
fn rings_and_threads_are_reused() {
    let _guard = hang_guard();
    let rt = growing(4, 4);
    rt.run(|| {
        let mut threads = 0;
        let begin = Instant::now();
        for i in 0..100 {
            change(&rt, 1 + i % 4);
            if i == 20 {
                threads = rt.metrics().threads;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
        assert!(rt.metrics().threads <= threads + 4, "threads pile up");
    });
    let _ = runtime(1);
}

/// Two nodes of two Ps, of a machine that is not this one.
fn two_nodes() -> Builder {
    let machine = Topology::synthetic("pack:2 [numa] core:2 pu:1").unwrap();
    Builder::new().topology(machine)
}

/// A P that comes into use again, on a node where none was, is run by somebody.
#[test]
fn ps_that_come_back_on_another_node_run() {
    const ROUNDS: usize = 150;
    let _guard = hang_guard();
    let rt = build(two_nodes().processors(4)).unwrap();
    rt.run(|| {
        let load = Load::begin(4, None);
        for i in 0..ROUNDS {
            change(&rt, [4, 2, 1, 3][i % 4]);
            load.keeps_all_busy(&rt);
        }
        load.end();
    });
}
