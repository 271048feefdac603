//! Goroutines of all kinds that go on until they are told to end, and then have done what they
//! should.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use windlass::channel::bounded;
use windlass::net::{TcpListener, TcpStream};
use windlass::task::JoinHandle;
use windlass::{Runtime, sleep, spawn, yield_now};

/// The load, until it is told to end.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    all: Vec<JoinHandle<()>>,
    /// The bytes that went out and those that came back: the same in the end.
    begun: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
    pause: Option<Duration>,
}

impl Load {
    /// Begins with `n` goroutines of each kind: they compute, sleep, spawn, block, send and receive. Each pauses
    /// between its rounds, if the test waits for long, or yields.
    pub(crate) fn begin(n: u64, pause: Option<Duration>) -> Load {
        let mut load = Load {
            pause,
            stop: Arc::default(),
            all: Vec::new(),
            begun: Arc::default(),
            ended: Arc::default(),
        };
        for i in 0..n {
            load.repeat(|| assert_eq!(compute(2_000), 1_999_000));
            load.repeat(move || sleep(Duration::from_micros(50 * i)));
            load.repeat(|| {
                let children: Vec<_> = (0..4_u64).map(|k| spawn(move || k)).collect();
                let sum: u64 = children.into_iter().map(|c| c.join().unwrap()).sum();
                assert_eq!(sum, 6);
            });
            load.repeat(|| assert_eq!(windlass::blocking(|| compute(200)), 19_900));
            load.channels(i as usize % 2);
            load.sockets();
        }
        load
    }

    /// Does `one` again and again.
    fn repeat(&mut self, mut one: impl FnMut() + Send + 'static) {
        let (stop, begun, ended) = (self.stop.clone(), self.begun.clone(), self.ended.clone());
        let pause = self.pause;
        self.all.push(spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                begun.fetch_add(1, Ordering::Relaxed);
                one();
                ended.fetch_add(1, Ordering::Relaxed);
                pause.map_or_else(yield_now, sleep);
            }
        }));
    }

    /// There and back again.
    fn channels(&mut self, room: usize) {
        let (to, from_there) = bounded::<u64>(room);
        let (back, from_here) = bounded::<u64>(room);
        self.all.push(spawn(move || {
            for n in from_there {
                back.send(n + 1).unwrap();
            }
        }));
        let mut n = 0;
        self.repeat(move || {
            to.send(n).unwrap();
            assert_eq!(from_here.recv(), Ok(n + 1));
            n += 1;
        });
    }

    fn sockets(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        self.all.push(spawn(move || {
            let mut buf = [0; 8];
            while server.read_exact(&mut buf).is_ok() {
                server.write_all(&buf).unwrap();
            }
        }));
        let mut n = 0_u64;
        self.repeat(move || {
            n += 1;
            client.write_all(&n.to_ne_bytes()).unwrap();
            let mut back = [0; 8];
            client.read_exact(&mut back).unwrap();
            assert_eq!(u64::from_ne_bytes(back), n);
        });
    }

    /// Returns when every P has run something from now on: there is more than enough for all.
    pub(crate) fn keeps_all_busy(&self, rt: &Runtime) {
        let dispatches = || {
            rt.metrics()
                .ps
                .iter()
                .map(|p| p.dispatches)
                .collect::<Vec<_>>()
        };
        let before = dispatches();
        loop {
            let now = dispatches();
            assert_eq!(now.len(), before.len(), "their number has not changed");
            if now.iter().zip(&before).all(|(now, before)| now > before) {
                return;
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Ends all of it, and looks whether each did what it should.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.all.into_iter().for_each(|g| g.join().unwrap());
        let (begun, ended) = (&self.begun, &self.ended);
        assert_eq!(begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
        assert!(begun.load(Ordering::Relaxed) > 0);
    }
}

fn compute(n: u64) -> u64 {
    (0..n).fold(0, |sum, i| std::hint::black_box(sum + i))
}
