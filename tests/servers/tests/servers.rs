//! Clients that know nothing of windlass, on goroutines with windlass-hook: a thousand of them get the
//! right answers, while their neighbour goes on; where their waits park, they hold no threads.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "what is tested blocks")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use redis::Commands;
use windlass::Runtime;
use windlass::net::TcpListener;
use windlass::sync::Barrier;
use windlass_servers::{
    Client, Home, Kind, Pool, Server, World, high_water_kib, http, raise_descriptor_limit, sql, tls,
};

/// How many goroutines use a client at once.
const ALL: usize = 1000;

/// More threads than two Ps and their waits for readiness need.
const FEW: usize = 32;

/// Runs `f` as the first goroutine of a runtime with two Ps. Ends the process if that takes too long.
fn run<T: Send>(f: impl FnOnce(&Runtime) -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let test = thread::current().name().unwrap_or("?").to_owned();
    let watch = thread::spawn(move || {
        let limit = Duration::from_secs(300);
        if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test} took {limit:?}");
            std::process::abort();
        }
    });
    raise_descriptor_limit();
    // SAFETY: the clients keep no thread-local across a call that parks. SQLite might, and runs in
    // `blocking`.
    let rt = unsafe {
        windlass_hook::install();
        windlass::Builder::new().processors(2).build().unwrap()
    };
    let result = rt.run(|| f(&rt));
    drop(done);
    watch.join().unwrap();
    result
}

/// The server, or a line that says why the test is skipped.
fn start(kind: Kind) -> Option<Server> {
    Server::start(kind)
        .inspect_err(|cause| {
            // Unlike what `eprintln!` prints, this is shown for tests that pass.
            let _ = writeln!(io::stderr(), "SKIPPED, no server {kind:?}: {cause}");
        })
        .ok()
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        windlass::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn assert_few_threads(rt: &Runtime, waits: usize) {
    let metrics = rt.metrics();
    let threads = metrics.threads - metrics.threads_idle;
    assert!(threads < FEW, "{threads} threads for {waits} waits");
}

/// A thousand goroutines use a client again and again, until their neighbour, a client of an echo
/// server on the same two Ps, has made its round trips.
fn serves_all(name: &str) {
    const TRIPS: usize = 20;
    let client = Client::named(name).unwrap();
    let Some(server) = start(client.server) else {
        return;
    };
    let world = World {
        port: server.port,
        dir: server.dir.clone(),
        home: Home::Goroutines,
    };
    run(|_| {
        let pool = Pool::new(client, &world).unwrap();
        let over = AtomicBool::new(false);
        let used = AtomicUsize::new(0);
        windlass::scope(|s| {
            s.spawn(|| {
                round_trips(TRIPS, || used.load(Ordering::Relaxed));
                over.store(true, Ordering::Relaxed);
            });
            for i in 0..ALL {
                let (pool, over, used) = (&pool, &over, &used);
                s.spawn(move || {
                    loop {
                        let mut seat = pool.seat();
                        if client.parks {
                            seat.talk(i).unwrap();
                        } else {
                            windlass::blocking(|| seat.talk(i)).unwrap();
                        }
                        drop(seat);
                        used.fetch_add(1, Ordering::Relaxed);
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
        });
        assert!(used.load(Ordering::Relaxed) >= ALL);
    });
}

/// Exchanges 64 bytes with an echo server this many times, each time after the others have got on.
fn round_trips(n: usize, others: impl Fn() -> usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    windlass::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        std::io::copy(&mut &stream, &mut &stream)
    });
    let mut stream = windlass::net::TcpStream::connect(addr).unwrap();
    for trip in 0..n {
        let before = others();
        until(|| others() > before);
        let (sent, mut received) = ([trip as u8; 64], [0; 64]);
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, sent);
    }
}

#[test]
fn redis_serves_all() {
    serves_all("redis");
}

/// A pool waits by a lock of parking_lot, which takes a thread, but no P.
#[test]
fn a_pool_of_r2d2_serves_all() {
    serves_all("redis in r2d2");
}

/// With a semaphore of windlass before it nobody waits in the pool.
#[test]
fn a_pool_of_r2d2_behind_a_semaphore_serves_all() {
    serves_all("redis in r2d2, Semaphore");
}

#[test]
fn mysql_serves_all() {
    serves_all("mysql");
}

#[test]
fn postgres_serves_all() {
    serves_all("postgres");
}

/// As postgres, but the runtime is a part of each client, and waits for messages that nobody has asked for.
#[test]
fn rumqttc_serves_all() {
    serves_all("rumqttc");
}

#[test]
fn lettre_serves_all() {
    serves_all("lettre");
}

#[test]
fn suppaftp_serves_all() {
    serves_all("suppaftp");
}

#[test]
fn minreq_serves_all() {
    serves_all("minreq");
}

/// Its own threads read the requests; goroutines answer them.
#[test]
fn tiny_http_serves_all() {
    serves_all("tiny_http");
}

#[test]
fn native_tls_serves_all() {
    serves_all("native-tls");
}

#[test]
fn rustls_serves_all() {
    serves_all("rustls");
}

/// In `blocking`, since SQLite waits in sleeps, which would park.
#[test]
fn rusqlite_in_blocking_serves_all() {
    serves_all("rusqlite");
}

/// All wait at once, each for its own value, and no thread waits with them.
#[test]
fn redis_waits_park() {
    let Some(server) = start(Kind::Redis) else {
        return;
    };
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port)).unwrap();
    run(|rt| {
        let mut main = client.get_connection().unwrap();
        windlass::scope(|s| {
            for i in 0..ALL {
                let client = &client;
                s.spawn(move || {
                    let mut connection = client.get_connection().unwrap();
                    let (list, value): (String, usize) =
                        connection.blpop(format!("list{i}"), 0.0).unwrap();
                    assert_eq!((list, value), (format!("list{i}"), i));
                });
            }
            let all_wait = format!("blocked_clients:{ALL}");
            until(|| {
                let info: String = redis::cmd("INFO").arg("clients").query(&mut main).unwrap();
                info.lines().any(|line| line == all_wait)
            });
            assert_few_threads(rt, ALL);
            for i in 0..ALL {
                let _: usize = main.rpush(format!("list{i}"), i).unwrap();
            }
        });
    });
}

/// All wait for one lock of the server.
#[test]
fn mysql_waits_park() {
    const N: usize = 200;
    let Some(server) = start(Kind::MariaDb) else {
        return;
    };
    let port = server.port;
    run(|rt| {
        let mut main = sql::mysql_conn(port).unwrap();
        let taken: Option<u8> = main.query_first("SELECT GET_LOCK('gate', 60)").unwrap();
        assert_eq!(taken, Some(1));
        windlass::scope(|s| {
            for i in 0..N {
                s.spawn(move || {
                    let mut conn = sql::mysql_conn(port).unwrap();
                    let query = "SELECT GET_LOCK('gate', 300), ?";
                    let got: Option<(u8, usize)> = conn.exec_first(query, (i,)).unwrap();
                    assert_eq!(got, Some((1, i)));
                    conn.query_drop("SELECT RELEASE_LOCK('gate')").unwrap();
                });
            }
            let waiting =
                "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";
            until(|| main.query_first(waiting).unwrap() == Some(N));
            assert_few_threads(rt, N);
            main.query_drop("SELECT RELEASE_LOCK('gate')").unwrap();
        });
    });
}

/// The crate runs a runtime of tokio on the caller's thread. Each wait takes a thread, but no P, so
/// all of them can wait at once on two Ps.
#[test]
fn postgres_waits_take_threads_but_no_ps() {
    const N: usize = 100;
    let Some(server) = start(Kind::Postgres) else {
        return;
    };
    let port = server.port;
    run(|rt| {
        let mut main = sql::postgres_client(port).unwrap();
        main.execute("SELECT pg_advisory_lock(1)", &[]).unwrap();
        windlass::scope(|s| {
            for i in 0..N as i64 {
                s.spawn(move || {
                    let mut client = sql::postgres_client(port).unwrap();
                    client
                        .execute("SELECT pg_advisory_lock_shared(1)", &[])
                        .unwrap();
                    let row = client.query_one("SELECT $1::BIGINT", &[&i]).unwrap();
                    assert_eq!(row.get::<_, i64>(0), i);
                });
            }
            let waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted";
            until(|| main.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == N as i64);
            assert!(rt.metrics().threads >= N);
            main.execute("SELECT pg_advisory_unlock(1)", &[]).unwrap();
        });
    });
}

/// The server answers nobody before all have asked.
#[test]
fn minreq_waits_park() {
    run(|rt| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let answer = Arc::new(Barrier::new(ALL + 1));
        let (counter, gate) = (Arc::clone(&asked), Arc::clone(&answer));
        windlass::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (counter, gate) = (Arc::clone(&counter), Arc::clone(&gate));
                windlass::spawn(move || {
                    http::answer(stream, || {
                        counter.fetch_add(1, Ordering::Relaxed);
                        gate.wait();
                    })
                });
            }
        });
        windlass::scope(|s| {
            for i in 0..ALL {
                s.spawn(move || http::fetch(addr, i).unwrap());
            }
            until(|| asked.load(Ordering::Relaxed) == ALL);
            assert_few_threads(rt, ALL);
            answer.wait();
        });
    });
}

/// The measure itself. The second goroutine gets the stack of the first.
#[test]
fn stacks_are_measured() {
    run(|_| {
        let much = high_water_kib(|| {
            std::hint::black_box([1_u8; 200 << 10]);
        });
        assert!((200..700).contains(&much), "{much} KiB");
        let little = high_water_kib(|| ());
        assert!(little < 32, "{little} KiB");
    });
}

/// Both sides are goroutines, and each fits the stack that goroutines have by default.
fn shakes_hands(kind: Kind) {
    let server = Server::start(kind).unwrap();
    let (serve, connect) = tls::sides(kind).unwrap();
    let (serve, connect) = (serve(&server.dir).unwrap(), connect(&server.dir).unwrap());
    run(|_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        windlass::scope(|s| {
            for i in 0..=ALL {
                let connect = Arc::clone(&connect);
                let connect = move || connect(TcpStream::connect(addr).unwrap()).unwrap();
                let client = s.spawn(move || match i {
                    0 => high_water_kib(connect),
                    _ => {
                        connect();
                        0
                    }
                });
                let (serve, stream) = (Arc::clone(&serve), listener.accept().unwrap().0);
                let serve = move || serve(stream).unwrap();
                if i > 0 {
                    s.spawn(serve);
                    continue;
                }
                let server = high_water_kib(serve);
                let client = client.join().unwrap();
                eprintln!(
                    "{kind:?}: the client used {client} KiB of its stack, the server {server}"
                );
                assert!(client.max(server) < 256);
            }
        });
    });
}

#[test]
fn native_tls_on_both_sides() {
    shakes_hands(Kind::NativeTls);
}

#[test]
fn rustls_on_both_sides() {
    shakes_hands(Kind::Rustls);
}
