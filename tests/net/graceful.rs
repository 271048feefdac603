//! The graceful end of servers.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};

#[cfg(feature = "sim")]
use crate::util::PROMISE;
use crate::util::{
    child_case, child_command, child_passes, hang_guard, has_rings, is_simulated, much, own_addr,
    run, set_nofile_limit, wait_until,
};
use windlass::channel::{Receiver, Sender, bounded};
use windlass::context::{self, Context, Error};
use windlass::net::{Graceful, Member, TcpListener, TcpStream, UnixListener, UnixStream};
use windlass::task::{self, Builder, Group};
use windlass::time::Duration;
use windlass::{sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

/// Answers each byte with itself.
fn echo(mut stream: impl Read + Write, member: &Member) -> io::Result<()> {
    let mut byte = [0];
    while let Some(1) = member.idle(|| stream.read(&mut byte))? {
        stream.write_all(&byte)?;
    }
    Ok(())
}

struct Server {
    server: Graceful,
    addr: std::net::SocketAddr,
    ended: windlass::task::JoinHandle<io::Result<()>>,
}

fn start<F>(server: Graceful, handle: F) -> Server
where
    F: Fn(TcpStream, &Member) + Clone + Send + 'static,
{
    let listener = TcpListener::bind(own_addr()).unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = server.clone();
    let ended = spawn(move || serving.serve(listener, handle));
    Server {
        server,
        addr,
        ended,
    }
}

fn ask(client: &mut TcpStream, byte: u8) {
    client.write_all(&[byte]).unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [byte]);
}

/// In a process of its own: a child that another test starts has the listener until it runs its program, and until then
/// connections are not refused.
#[test]
fn a_stop_ends_idle_connections_after_the_grace() {
    if !is_simulated() && child_case().is_none() {
        child_passes("a_stop_ends_idle_connections_after_the_grace", "");
        return;
    }
    let _guard = hang_guard();
    run(2, || {
        let server = start(Graceful::with_grace(MOMENT), |stream, member| {
            echo(stream, member).unwrap();
        });
        let mut clients: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(server.addr).unwrap())
            .collect();
        for client in &mut clients {
            ask(client, 7);
        }
        assert_eq!(server.server.n_members(), 20);
        assert!(!server.server.is_stopping());
        server.server.stop();
        server.server.stop();
        server.ended.join().unwrap().unwrap();
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
        assert_eq!(server.server.n_members(), 0);
        for mut client in clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        let refused = TcpStream::connect(server.addr).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

/// With a grace that does not end, every request that a client sends is answered.
#[test]
fn requests_on_their_way_are_answered() {
    run(2, || {
        let server = start(Graceful::with_grace(FOREVER), |stream, member| {
            echo(stream, member).unwrap();
        });
        let mut served = TcpStream::connect(server.addr).unwrap();
        ask(&mut served, 1);
        // Connections that nobody may have accepted yet.
        let queued: Vec<_> = (0..50)
            .map(|_| TcpStream::connect(server.addr).unwrap())
            .collect();
        server.server.stop();
        server.ended.join().unwrap().unwrap();
        assert_eq!(server.server.n_members(), 51);
        for (i, mut client) in queued.into_iter().chain([served]).enumerate() {
            ask(&mut client, i as u8);
            ask(&mut client, 7);
        }
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
    });
}

/// A handler that works until it is told to go on.
fn works(gate: Receiver<()>) -> impl Fn(TcpStream, &Member) + Clone + Send {
    move |mut stream, member| {
        let mut byte = [0];
        if let Ok(Some(1)) = member.idle(|| stream.read(&mut byte)) {
            let _ = gate.recv();
            let _ = stream.write_all(&byte);
        }
    }
}

fn gate() -> (Sender<()>, Receiver<()>) {
    bounded(0)
}

#[test]
fn work_in_flight_is_finished() {
    run(2, || {
        let (open, gate) = gate();
        let server = start(Graceful::with_grace(Duration::ZERO), works(gate));
        let mut client = TcpStream::connect(server.addr).unwrap();
        client.write_all(b"x").unwrap();
        wait_until(|| server.server.n_members() == 1);
        // The handler has its request: it waits for the gate, which a first visitor passes.
        let mut second = TcpStream::connect(server.addr).unwrap();
        second.write_all(b"y").unwrap();
        open.send(()).unwrap();
        wait_until(|| server.server.n_members() == 1);
        let stopping = server.server.clone();
        let shutdown = spawn(move || stopping.shutdown(FOREVER));
        server.ended.join().unwrap().unwrap();
        // Whichever of the two is left either has its request or never gets it.
        let _ = open.send_timeout((), Duration::from_millis(100));
        assert_eq!(shutdown.join().unwrap(), Ok(()));
        let mut answers = Vec::new();
        for client in [&mut client, &mut second] {
            let _ = client.read_to_end(&mut answers);
        }
        assert!(!answers.is_empty() && answers.len() <= 2);
    });
}

#[test]
fn the_deadline_cancels_what_is_left() {
    run(2, || {
        let (tell, told) = bounded(10);
        let server = start(Graceful::new(), move |_stream, member| {
            assert!(!member.stopping().is_done());
            tell.send(None).unwrap();
            sleep(FOREVER);
            assert!(member.is_stopping() && member.stopping().is_done());
            tell.send(Some(context::check())).unwrap();
        });
        let clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(server.addr).unwrap())
            .collect();
        for _ in &clients {
            assert_eq!(told.recv(), Ok(None));
        }
        let unfinished = server.server.shutdown(MOMENT).unwrap_err();
        assert_eq!(unfinished.n_left, 3);
        assert_eq!(
            unfinished.to_string(),
            "3 connections had not ended in time"
        );
        for _ in &clients {
            assert_eq!(told.recv(), Ok(Some(Err(Error::Cancelled))));
        }
        server.ended.join().unwrap().unwrap();
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
    });
}

/// Its `serve` returns no error. The deadline passes while the only P computes, so the accept loop
/// cannot run before it.
#[test]
fn a_server_that_hears_of_a_stop_after_the_deadline_ends_as_usual() {
    run(1, || {
        let (tell, told) = bounded(1);
        let server = start(Graceful::new(), move |_stream, _| {
            tell.send(()).unwrap();
            sleep(FOREVER);
        });
        let _client = TcpStream::connect(server.addr).unwrap();
        told.recv().unwrap();
        let stopping = server.server.clone();
        let thread = std::thread::spawn(move || stopping.shutdown(Duration::ZERO));
        while !thread.is_finished() {
            std::hint::spin_loop();
        }
        assert_eq!(thread.join().unwrap().unwrap_err().n_left, 1);
        server.ended.join().unwrap().unwrap();
    });
}

#[test]
fn a_stop_before_the_start_serves_the_queue() {
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = Graceful::with_grace(FOREVER);
        server.stop();
        server
            .serve(listener, |stream, member| echo(stream, member).unwrap())
            .unwrap();
        ask(&mut client, 7);
        drop(client);
        assert_eq!(server.shutdown(FOREVER), Ok(()));
        // A server without connections ends at once.
        assert_eq!(Graceful::default().shutdown(Duration::ZERO), Ok(()));
    });
}

/// Another process may have the listener. (Over epoll, accepts need the mode.)
#[test]
fn the_mode_of_the_listener_is_as_it_was() {
    use std::os::fd::{AsFd, AsRawFd};

    fn check(listener: impl windlass::net::Listener + AsFd) {
        let shared = listener.as_fd().try_clone_to_owned().unwrap();
        let server = Graceful::with_grace(FOREVER);
        server.stop();
        server.serve(listener, |_, _| ()).unwrap();
        // SAFETY: takes a descriptor and plain numbers.
        let flags = unsafe { libc::fcntl(shared.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
    }
    if !has_rings() {
        return;
    }
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        check(listener);
        drop(client);
        let path = std::env::temp_dir().join(format!("windlass-graceful-{}", std::process::id()));
        check(UnixListener::bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_broken_listener_ends_the_loop() {
    run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.shutdown().unwrap();
        let ended = Graceful::new().serve(listener, |_, _| unreachable!());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn contexts_end_the_server() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let server = start(Graceful::with_context(&ctx, FOREVER), |stream, member| {
            let error = echo(stream, member).unwrap_err();
            assert_eq!(
                error.get_ref().unwrap().to_string(),
                Error::Cancelled.to_string()
            );
        });
        let mut client = TcpStream::connect(server.addr).unwrap();
        ask(&mut client, 7);
        canceller.cancel();
        assert_eq!(
            server.ended.join().unwrap().unwrap_err().kind(),
            ErrorKind::Other
        );
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);

        // An ambient context ends a wait in `idle`, before the stop and after it.
        let server = Graceful::new();
        let ctx = Context::background().with_timeout(MOMENT);
        let member = server.member();
        let idle = ctx.run(|| member.idle(|| context::check().map_err(io::Error::from)));
        assert!(idle.is_ok() || idle.unwrap_err().kind() == ErrorKind::TimedOut);
        ctx.wait();
        let idle = ctx.run(|| member.idle(|| context::check().map_err(io::Error::from)));
        assert_eq!(idle.unwrap_err().kind(), ErrorKind::TimedOut);
        server.stop();
        let idle = ctx.run(|| member.idle(|| context::check().map_err(io::Error::from)));
        assert_eq!(idle.unwrap_err().kind(), ErrorKind::TimedOut);
        // One that becomes done while a shutdown waits ends that.
        let ctx = Context::background().with_timeout(MOMENT);
        let unfinished = ctx.run(|| server.shutdown(FOREVER)).unwrap_err();
        assert_eq!(unfinished.n_left, 1);
    });
}

/// The pattern of Go's errgroup and `signal.NotifyContext`: the context of the group is done, and
/// `serve` and `shutdown` are called inside.
#[test]
fn a_done_context_around_serve_is_a_stop() {
    run(2, || {
        let (stop, canceller) = Context::background().with_cancel();
        let group = Group::with_context(&stop);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients: Vec<_> = (0..50)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
            .collect();
        for client in &mut clients {
            client.write_all(b"x").unwrap();
        }
        // None is accepted yet.
        canceller.cancel();
        let server = Graceful::with_grace(FOREVER);
        let serving = server.clone();
        group.spawn(move || {
            serving.serve(listener, |stream, member| echo(stream, member).unwrap())?;
            assert!(context::check().is_err() && serving.is_stopping());
            serving.shutdown(FOREVER).map_err(io::Error::other)
        });
        for client in &mut clients {
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"x");
            ask(client, 7);
        }
        drop(clients);
        group.wait().unwrap();
        assert_eq!(server.n_members(), 0);
    });
}

/// A context that becomes done while `serve` waits for a connection.
#[test]
fn a_context_that_ends_stops_the_server() {
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Graceful::new();
        let ctx = Context::background().with_timeout(MOMENT);
        ctx.run(|| server.serve(listener, |_, _| ())).unwrap();
        assert!(server.is_stopping());
        assert_eq!(ctx.run(|| server.shutdown(FOREVER)), Ok(()));
    });
}

#[test]
fn connections_are_goroutines_as_the_builder_says() {
    run(2, || {
        let (tell, told) = bounded(2);
        let server = Graceful::with_grace(MOMENT);
        let builder = Builder::new().name("of admin").label("admin");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        server.stop();
        let served = server.spawn_with(builder).serve(listener, move |_, _| {
            let task = task::current();
            let name = |name: Option<&str>| name.map(str::to_owned);
            tell.send((name(task.name()), name(task.label()))).unwrap();
        });
        served.unwrap();
        let names = (Some("of admin".to_owned()), Some("admin".to_owned()));
        assert_eq!(told.recv(), Ok(names));
        assert_eq!(server.shutdown(FOREVER), Ok(()));

        // A builder that cannot spawn is refused at once, with the listener open and nobody there.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Graceful::new();
        let refused = server.spawn_with(Builder::new().stack_size(1));
        let refused = refused.serve(listener, |_, _| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(!server.is_stopping());
    });
}

/// Not only when the first client comes.
#[test]
fn serve_on_a_plain_thread_panics_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let serve = || Graceful::new().serve(listener, |_, _| ());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).unwrap_err();
    let text = panic.downcast_ref::<&str>().unwrap();
    assert!(text.contains("outside any windlass runtime"), "{text}");
}

#[test]
fn panics_of_handlers_are_counted_as_ends() {
    run(2, || {
        let server = start(Graceful::new(), |_, _| panic!("of a handler"));
        let mut client = TcpStream::connect(server.addr).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
        server.ended.join().unwrap().unwrap();
    });
}

#[test]
fn unix_listeners() {
    run(2, || {
        let path = std::env::temp_dir().join(format!("windlass-graceful-{}", std::process::id()));
        let _ = windlass::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = Graceful::with_grace(MOMENT);
        let serving = server.clone();
        let ended =
            spawn(move || serving.serve(listener, |stream, member| echo(stream, member).unwrap()));
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 1);
        server.stop();
        ended.join().unwrap().unwrap();
        assert_eq!(server.shutdown(FOREVER), Ok(()));
        windlass::fs::remove_file(&path).unwrap();
    });
}

/// Each empties the queue in a mode that all of them share.
#[test]
fn several_loops_of_one_listener_end() {
    run(2, || {
        for _ in 0..much(20, 1) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = Graceful::with_grace(Duration::ZERO);
            let serve = |_| {
                let (listener, server) = (listener.try_clone().unwrap(), server.clone());
                spawn(move || server.serve(listener, |_, _| {}))
            };
            let loops = [0; 4].map(serve);
            yield_now();
            server.stop();
            for ended in loops {
                ended.join().unwrap().unwrap();
            }
        }
    });
}

/// Before the stop and after it.
#[test]
fn a_timeout_inside_of_an_idle_wait_is_an_error() {
    run(1, || {
        let server = Graceful::with_grace(FOREVER);
        let member = server.member();
        let (stream, _peer) = UnixStream::pair().unwrap();
        for _ in 0..2 {
            let short = Context::background().with_timeout(MOMENT);
            let waited = member.idle(|| short.run(|| (&stream).read(&mut [0])));
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
            server.stop();
        }
    });
}

/// A connection that was accepted in another way, and a plain thread that stops the server.
#[test]
fn members_of_ones_own() {
    run(2, || {
        let server = Graceful::with_grace(MOMENT);
        let member = server.member();
        let stopper = server.clone();
        let thread = std::thread::spawn(move || {
            stopper.stop();
            assert_eq!(stopper.shutdown(FOREVER), Ok(()));
        });
        member.stopping().wait();
        drop(member);
        windlass::blocking(|| thread.join().unwrap());
    });
}

/// Stops from many sides, while clients come and go.
#[test]
fn stops_race_with_connections() {
    for _ in 0..much(10, 1) {
        run(2, || {
            let n_answers = Arc::new(AtomicUsize::new(0));
            let server = start(Graceful::with_grace(FOREVER), |stream, member| {
                let _ = echo(stream, member);
            });
            let addr = server.addr;
            let clients: Vec<_> = (0..much(8, 4))
                .map(|_| {
                    let n_answers = Arc::clone(&n_answers);
                    spawn(move || {
                        while let Ok(mut client) = TcpStream::connect(addr) {
                            // Refused only if the listener was closed with it in the queue.
                            let asked = client.write_all(b"x");
                            let answered = client.read(&mut [0]);
                            if !matches!((asked, answered), (Ok(()), Ok(1))) {
                                break;
                            }
                            n_answers.fetch_add(1, Ordering::SeqCst);
                            if is_simulated() {
                                // Else some orders never let the server see an empty queue.
                                sleep(MOMENT);
                            }
                        }
                    })
                })
                .collect();
            wait_until(|| n_answers.load(Ordering::SeqCst) > 20);
            let stops: Vec<_> = (0..4)
                .map(|_| {
                    let server = server.server.clone();
                    spawn(move || {
                        yield_now();
                        server.shutdown(FOREVER)
                    })
                })
                .collect();
            for stop in stops {
                assert_eq!(stop.join().unwrap(), Ok(()));
            }
            for client in clients {
                client.join().unwrap();
            }
        });
    }
}

/// In a process of its own: the test takes all descriptors.
#[test]
fn accepts_fail_for_want_of_descriptors_and_go_on() {
    let name = "accepts_fail_for_want_of_descriptors_and_go_on";
    if child_case().is_none() {
        child_passes(name, "descriptors");
        return;
    }
    let _guard = hang_guard();
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let n_errors = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_errors);
        let server = Graceful::with_grace(FOREVER);
        let serving = server.clone();
        let mut clients: Vec<_> = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let shared = listener.try_clone().unwrap();
        let late = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let (stopping, mut n_after_stop) = (server.clone(), 0);
        set_nofile_limit(1024);
        // The descriptors that are left.
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        let ended = spawn(move || {
            let on_error = move |_: &io::Error| {
                n_after_stop += u32::from(stopping.is_stopping());
                // The first may have been called before the loop knew of the stop.
                if n_after_stop == 2 {
                    // No connection begins that might be lost at the close.
                    let connected = late.connect_timeout(&addr.into(), 20 * MOMENT);
                    assert_eq!(connected.unwrap_err().kind(), ErrorKind::TimedOut);
                }
                counted.fetch_add(1, Ordering::SeqCst);
            };
            serving.serve_with(listener, on_error, |stream, member| {
                echo(stream, member).unwrap();
            })
        });
        wait_until(|| n_errors.load(Ordering::SeqCst) > 2);
        // The stop does not lose those in the queue.
        server.stop();
        let seen = n_errors.load(Ordering::SeqCst);
        wait_until(|| n_errors.load(Ordering::SeqCst) > seen + 2);
        drop(files);
        ended.join().unwrap().unwrap();
        for client in &mut clients {
            ask(client, 7);
        }
        drop(clients);
        assert_eq!(server.shutdown(FOREVER), Ok(()));
        // Another owner of the listener has it as it was.
        let client = TcpStream::connect(addr).unwrap();
        let (stream, _) = shared.accept().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
    });
}

/// Whether the socket has a filter.
fn has_filter(socket: &impl AsRawFd) -> bool {
    let mut n_instructions: libc::socklen_t = 0;
    // SAFETY: with a length of 0 the kernel writes the length only.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            std::ptr::null_mut(),
            &raw mut n_instructions,
        )
    };
    assert_eq!(asked, 0);
    n_instructions > 0
}

/// As with socket activation: the listener outlives the process that serves it, in another one.
#[test]
fn a_process_that_is_killed_while_it_stops_leaves_a_listener_that_accepts() {
    let name = "a_process_that_is_killed_while_it_stops_leaves_a_listener_that_accepts";
    if child_case().is_some() {
        let given = io::stdin().as_fd().try_clone_to_owned().unwrap();
        let listener = TcpListener::from(std::net::TcpListener::from(given));
        let server = Graceful::with_grace(FOREVER);
        server.stop();
        return run(1, || {
            loop {
                let listener = listener.try_clone().unwrap();
                server.serve(listener, |_, _| {}).unwrap();
            }
        });
    }
    let _guard = hang_guard();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    loop {
        let given = OwnedFd::from(listener.try_clone().unwrap());
        let mut child = child_command(name, "").stdin(given).spawn().unwrap();
        while !has_filter(&listener) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Else it was killed between two stops.
        if has_filter(&listener) {
            break;
        }
    }
    run(2, || {
        let server = Graceful::new();
        let serving = server.clone();
        let ended = spawn(move || {
            serving.serve(TcpListener::from(listener), |stream, member| {
                echo(stream, member).unwrap();
            })
        });
        ask(&mut TcpStream::connect(addr).unwrap(), 7);
        server.stop();
        ended.join().unwrap().unwrap();
    });
}

/// In simulations the times are exact.
#[cfg(feature = "sim")]
#[test]
fn grace_and_limit_in_virtual_time() {
    use windlass::sim::Sim;
    use windlass::time::Instant;

    const GRACE: Duration = Duration::from_secs(10);
    const LIMIT: Duration = Duration::from_secs(60);
    /// More than a message takes.
    const STEP: Duration = Duration::from_secs(1);

    let run = || {
        let server = start(Graceful::with_grace(GRACE), |mut stream, member| {
            let mut byte = [0];
            while let Ok(Some(1)) = member.idle(|| stream.read(&mut byte)) {
                if byte == *b"z" {
                    sleep(FOREVER);
                }
                let _ = stream.write_all(&byte);
            }
        });
        let mut clients = [(); 3].map(|()| TcpStream::connect(server.addr).unwrap());
        for client in &mut clients {
            ask(client, b'a');
        }
        let begin = Instant::now();
        let stopping = server.server.clone();
        let shutdown = spawn(move || stopping.shutdown(LIMIT));
        server.ended.join().unwrap().unwrap();
        assert!(begin.elapsed() < STEP);
        let [idle, late, stuck] = clients;
        let idle = spawn(move || {
            assert_eq!((&idle).read(&mut [0]).unwrap(), 0);
            begin.elapsed()
        });
        let late = spawn(move || {
            let mut late = late;
            sleep(GRACE - STEP);
            ask(&mut late, b'b');
            // The grace is one for all requests.
            assert_eq!(late.read(&mut [0]).unwrap(), 0);
            begin.elapsed()
        });
        (&stuck).write_all(b"z").unwrap();
        for waited in [idle, late].map(|client| client.join().unwrap()) {
            assert!(GRACE <= waited && waited < GRACE + STEP, "{waited:?}");
        }
        wait_until(|| server.server.n_members() == 1);
        assert_eq!(shutdown.join().unwrap().unwrap_err().n_left, 1);
        assert_eq!((&stuck).read(&mut [0]).unwrap_or(0), 0);
        let ended = begin.elapsed();
        assert!(LIMIT <= ended && ended < LIMIT + STEP, "{ended:?}");
    };
    if let Err(failure) = Sim::new(PROMISE).seed(0).seeds(30).run(run) {
        panic!("{failure}");
    }
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_stop_ends_idle_connections_after_the_grace,
    requests_on_their_way_are_answered,
    work_in_flight_is_finished,
    a_server_that_hears_of_a_stop_after_the_deadline_ends_as_usual: "it uses threads",
    a_done_context_around_serve_is_a_stop,
    a_context_that_ends_stops_the_server,
    connections_are_goroutines_as_the_builder_says,
    serve_on_a_plain_thread_panics_at_once: "it has no goroutine",
    the_deadline_cancels_what_is_left,
    a_stop_before_the_start_serves_the_queue,
    the_mode_of_the_listener_is_as_it_was: "it asks the kernel for the mode",
    a_broken_listener_ends_the_loop,
    contexts_end_the_server,
    panics_of_handlers_are_counted_as_ends,
    unix_listeners,
    several_loops_of_one_listener_end,
    a_timeout_inside_of_an_idle_wait_is_an_error,
    members_of_ones_own: "it uses threads",
    stops_race_with_connections,
    accepts_fail_for_want_of_descriptors_and_go_on: "it has a process of its own",
    a_process_that_is_killed_while_it_stops_leaves_a_listener_that_accepts: "it has a process of its own",
    grace_and_limit_in_virtual_time: "it makes simulations of its own",
}
