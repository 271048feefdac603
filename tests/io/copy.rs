//! `io::copy` gives what `std::io::copy` gives, whatever is copied.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{Cursor, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use windlass::time::{Duration, Instant};

use crate::util;
use crate::util::{Pattern, hang_guard, pair, panic_text, run, runtime, wait_until};
use windlass::context::Context;
use windlass::io::{self, PipeReader, PipeWriter, pipe};
use windlass::net::{TcpStream, UnixStream};
use windlass::spawn;

fn is_nonblocking(fd: impl AsFd) -> bool {
    // SAFETY: takes a descriptor and plain numbers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

/// Both ends of something that bytes go through.
type Through = (Box<dyn Write + Send>, Source, Sink, Box<dyn Read + Send>);

enum Source {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(PipeReader),
}

enum Sink {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(PipeWriter),
}

/// A way in, what is to be copied from, what to, and a way out.
fn through(from: usize, to: usize) -> Through {
    let (way_in, source): (Box<dyn Write + Send>, _) = match from {
        0 => {
            let (a, b) = pair();
            (Box::new(a), Source::Tcp(b))
        }
        1 => {
            let (a, b) = UnixStream::pair().unwrap();
            (Box::new(a), Source::Unix(b))
        }
        _ => {
            let (reader, writer) = pipe().unwrap();
            (Box::new(writer), Source::Pipe(reader))
        }
    };
    let (sink, way_out): (_, Box<dyn Read + Send>) = match to {
        0 => {
            let (a, b) = pair();
            (Sink::Tcp(a), Box::new(b))
        }
        1 => {
            let (a, b) = UnixStream::pair().unwrap();
            (Sink::Unix(a), Box::new(b))
        }
        _ => {
            let (reader, writer) = pipe().unwrap();
            (Sink::Pipe(writer), Box::new(reader))
        }
    };
    (way_in, source, sink, way_out)
}

fn copy(source: Source, sink: Sink, by_reference: bool) -> io::Result<u64> {
    macro_rules! each {
        ($($source:ident, $sink:ident;)*) => {
            match (source, sink) {
                $(
                    (Source::$source(mut from), Sink::$sink(mut to)) => {
                        let n = if by_reference {
                            io::copy(&mut &from, &mut &to)
                        } else {
                            io::copy(&mut from, &mut to)
                        };
                        assert!(!is_nonblocking(&from) && !is_nonblocking(&to));
                        n
                    }
                )*
            }
        };
    }
    each! {
        Tcp, Tcp; Tcp, Unix; Tcp, Pipe;
        Unix, Tcp; Unix, Unix; Unix, Pipe;
        Pipe, Tcp; Pipe, Unix; Pipe, Pipe;
    }
}

/// Every byte arrives in order, in every combination.
#[test]
fn streams_and_pipes() {
    let pattern = Pattern::new();
    let lens = [0, 1, 16_383, 16_384, 16_385, 100_000, 3_000_000];
    let lens = &lens[..util::much(lens.len(), 5)];
    for n_ps in [1, 2] {
        run(n_ps, || {
            for (from, to) in (0..9).map(|i| (i / 3, i % 3)) {
                for &len in lens {
                    let (mut way_in, source, sink, mut way_out) = through(from, to);
                    windlass::scope(|s| {
                        let pattern = &pattern;
                        s.spawn(move || pattern.write(&mut way_in, 0, len, 70_000).unwrap());
                        let copied = s.spawn(move || copy(source, sink, len % 2 == 0).unwrap());
                        let n = pattern.check(&mut way_out, 50_000).unwrap();
                        assert_eq!(n, len, "from {from} to {to}");
                        assert_eq!(copied.join().unwrap(), len as u64);
                    });
                }
            }
        });
    }
}

#[test]
fn on_plain_threads() {
    let _guard = hang_guard();
    let pattern = Pattern::new();
    for (from, to) in (0..9).map(|i| (i / 3, i % 3)) {
        let len = 1_000_000;
        let (mut way_in, source, sink, mut way_out) = through(from, to);
        std::thread::scope(|s| {
            let pattern = &pattern;
            s.spawn(move || pattern.write(&mut way_in, 0, len, 70_000).unwrap());
            let copied = s.spawn(move || copy(source, sink, true).unwrap());
            assert_eq!(pattern.check(&mut way_out, 50_000).unwrap(), len);
            assert_eq!(copied.join().unwrap(), len as u64);
        });
    }
}

/// Small messages go through one by one: nothing waits for more.
#[test]
fn messages_are_not_held_back() {
    run(2, || {
        for large_first in [false, true] {
            let (mut a, mut from) = pair();
            let (mut to, mut b) = pair();
            let copies = spawn(move || io::copy(&mut from, &mut to).unwrap());
            let mut n = 0;
            if large_first {
                let mut large = vec![1; 200_000];
                let same = large.clone();
                let mut writer = a.try_clone().unwrap();
                let writes = spawn(move || writer.write_all(&same).unwrap());
                b.read_exact(&mut large).unwrap();
                writes.join().unwrap();
                n += 200_000;
            }
            for i in 0..300_u32 {
                let mut got = [0; 4];
                a.write_all(&i.to_le_bytes()).unwrap();
                b.read_exact(&mut got).unwrap();
                assert_eq!(got, i.to_le_bytes());
                n += 4;
            }
            a.shutdown(Shutdown::Write).unwrap();
            assert_eq!(copies.join().unwrap(), n);
            // The sink was dropped with the copy.
            assert_eq!(b.read(&mut [0]).unwrap(), 0);
        }
    });
}

/// A proxy: both directions of two connections at once, each socket in two copies.
#[test]
fn both_directions_at_once() {
    let n_bytes = util::much(8 << 20, 200_000);
    run(4, || {
        let pattern = Arc::new(Pattern::new());
        let (client, inner) = pair();
        let (outer, server) = pair();
        let (inner, outer) = (Arc::new(inner), Arc::new(outer));
        let copies: Vec<_> = [
            (Arc::clone(&inner), Arc::clone(&outer)),
            (Arc::clone(&outer), Arc::clone(&inner)),
        ]
        .into_iter()
        .map(|(from, to)| {
            spawn(move || {
                let n = io::copy(&mut &*from, &mut &*to).unwrap();
                to.shutdown(Shutdown::Write).unwrap();
                n
            })
        })
        .collect();
        let ends: Vec<_> = [client, server]
            .into_iter()
            .map(|end| {
                let end = Arc::new(end);
                let (writer, reader) = (Arc::clone(&end), end);
                let (pattern, same) = (Arc::clone(&pattern), Arc::clone(&pattern));
                let writes = spawn(move || {
                    pattern.write(&mut &*writer, 0, n_bytes, 200_000).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let reads = spawn(move || same.check(&mut &*reader, 100_000).unwrap());
                (writes, reads)
            })
            .collect();
        for (writes, reads) in ends {
            writes.join().unwrap();
            assert_eq!(reads.join().unwrap(), n_bytes);
        }
        for copy in copies {
            assert_eq!(copy.join().unwrap(), n_bytes as u64);
        }
        assert!(!is_nonblocking(&*inner) && !is_nonblocking(&*outer));
    });
}

/// While a socket is copied from it is in non-blocking mode, which is not its owner's wish: a
/// duplicate waits as the socket does.
#[test]
fn a_duplicate_waits_while_its_socket_is_copied() {
    const BYTES: usize = 2 << 20;
    let _guard = hang_guard();
    run(2, || {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let (mut sink, mut out) = UnixStream::pair().unwrap();
        let copied = socket.try_clone().unwrap();
        let copy = spawn(move || io::copy(&mut &copied, &mut sink));
        let read = spawn(move || out.read_to_end(&mut Vec::new()));
        peer.write_all(&vec![1; 100_000]).unwrap();
        while !is_nonblocking(&socket) {
            windlass::sleep(Duration::from_millis(1));
        }
        let mut duplicate = UnixStream::from(socket.as_fd().try_clone_to_owned().unwrap());
        let mut reader = peer.try_clone().unwrap();
        let received = spawn(move || reader.read_exact(&mut vec![0; BYTES]));
        duplicate.write_all(&vec![2; BYTES]).unwrap();
        received.join().unwrap().unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(copy.join().unwrap().unwrap(), 100_000);
        assert_eq!(read.join().unwrap().unwrap(), 100_000);
        assert!(!is_nonblocking(&socket));
    });
}

/// Handles that were adopted one by one know nothing of each other. The first copy that ends leaves the
/// socket in non-blocking mode for the other one, whose splices would block its thread.
#[test]
fn the_mode_of_a_socket_ends_with_its_last_copy() {
    const BYTES: usize = 100_000;
    run(2, || {
        let (a, mut client) = UnixStream::pair().unwrap();
        let (b, mut server) = UnixStream::pair().unwrap();
        let watched = b.as_fd().try_clone_to_owned().unwrap();
        let again =
            |socket: &UnixStream| UnixStream::from(socket.as_fd().try_clone_to_owned().unwrap());
        let (a_again, b_again) = (again(&a), again(&b));
        let there = spawn(move || io::copy(&mut &a, &mut &b));
        let (ctx, canceller) = Context::background().with_cancel();
        let back = spawn(move || ctx.run(|| io::copy(&mut &b_again, &mut &a_again)));
        for (from, to) in [(&client, &server), (&server, &client)] {
            windlass::scope(|scope| {
                scope.spawn(|| (&mut &*from).write_all(&[1; BYTES]).unwrap());
                (&mut &*to).read_exact(&mut [0; BYTES]).unwrap();
            });
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(there.join().unwrap().unwrap(), BYTES as u64);
        assert!(is_nonblocking(&watched));
        UnixStream::from(watched.try_clone().unwrap())
            .set_nonblocking(false)
            .unwrap();
        assert!(is_nonblocking(&watched));
        // The other one splices again, and waits.
        server.write_all(b"more").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        canceller.cancel();
        assert!(back.join().unwrap().is_err());
        assert!(!is_nonblocking(&watched));
    });
}

/// A byte of urgent data stops `splice(2)`, and nothing else.
struct Urgent {
    /// How many bytes come before each urgent byte, and behind the last one.
    parts: &'static [usize],
    is_inline: bool,
}

impl Urgent {
    /// A stream in which all of this lies, and its end.
    fn stream(&self) -> TcpStream {
        let (peer, stream) = pair();
        let inline = libc::c_int::from(self.is_inline);
        // SAFETY: the option is a number of this length.
        let r = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_OOBINLINE,
                (&raw const inline).cast(),
                size_of_val(&inline) as u32,
            )
        };
        assert_eq!(r, 0);
        let socket = socket2::SockRef::from(&peer);
        for (i, &len) in self.parts.iter().enumerate() {
            if i > 0 {
                assert_eq!(socket.send_out_of_band(b"!").unwrap(), 1);
            }
            let part: Vec<u8> = (0..len).map(|at| (at / 7 + i) as u8).collect();
            (&peer).write_all(&part).unwrap();
        }
        peer.shutdown(Shutdown::Write).unwrap();
        wait_until(|| n_under_way(&peer) == 0);
        stream
    }

    /// The result of a copy that knows nothing of splicing.
    fn expected(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.stream().read_to_end(&mut all).unwrap();
        all
    }
}

/// How many bytes the other end has not acknowledged yet.
fn n_under_way(stream: &TcpStream) -> libc::c_int {
    let mut n: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    let r = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut n) };
    assert_eq!(r, 0);
    n
}

const URGENT: &[&[usize]] = &[
    &[50_000, 7_000],
    &[16_384, 1],
    &[16_384, 0],
    &[20_000, 0],
    &[0, 40_000],
    &[1, 40_000],
    &[30_000, 10_000, 10_000],
    &[20_000, 0, 0, 20_000],
];

/// Bytes behind urgent data are copied as well.
#[test]
fn urgent_data_does_not_end_a_copy() {
    run(2, || {
        for (&parts, is_inline) in URGENT.iter().flat_map(|p| [(p, false), (p, true)]) {
            let urgent = Urgent { parts, is_inline };
            let expected = urgent.expected();
            for to in 0..3 {
                let (_, _, sink, mut way_out) = through(0, to);
                let source = Source::Tcp(urgent.stream());
                let copies = spawn(move || copy(source, sink, true).unwrap());
                let mut all = Vec::new();
                way_out.read_to_end(&mut all).unwrap();
                assert_eq!(copies.join().unwrap(), expected.len() as u64);
                assert!(all == expected, "{parts:?}, inline: {is_inline}, to {to}");
            }
            let (to, mut way_out) = pair();
            let from = urgent.stream();
            let copies = spawn(move || io::copy_bidirectional(&from, &to).unwrap());
            let mut all = Vec::new();
            way_out.read_to_end(&mut all).unwrap();
            drop(way_out);
            assert_eq!(copies.join().unwrap(), (expected.len() as u64, 0));
            assert!(all == expected, "{parts:?}, inline: {is_inline}");
        }
    });
}

/// Nor does it while the stream goes on.
#[test]
fn urgent_data_does_not_stop_a_copy() {
    run(2, || {
        for to in 0..3 {
            let (mut peer, from) = pair();
            let (_, _, sink, mut way_out) = through(0, to);
            let copies = spawn(move || copy(Source::Tcp(from), sink, false).unwrap());
            let (mut many, mut few) = (vec![0; 40_000], [0; 1000]);
            peer.write_all(&many).unwrap();
            way_out.read_exact(&mut many).unwrap();
            for i in 1..20 {
                let sent = socket2::SockRef::from(&peer).send_out_of_band(b"!");
                assert_eq!(sent.unwrap(), 1);
                // The copy finds the mark, most likely.
                windlass::sleep(Duration::from_millis(1));
                peer.write_all(&[i; 1000]).unwrap();
                way_out.read_exact(&mut few).unwrap();
                assert_eq!(few, [i; 1000]);
            }
            drop(peer);
            assert_eq!(copies.join().unwrap(), 59_000);
        }
    });
}

/// A stream that is not ours is copied as `std` does it.
#[test]
fn anything_else() {
    run(2, || {
        let bytes: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
        let mut all = Vec::new();
        assert_eq!(
            io::copy(&mut Cursor::new(&bytes), &mut all).unwrap(),
            300_000
        );
        assert_eq!(all, bytes);
        assert_eq!(io::copy(&mut io::empty(), &mut io::sink()).unwrap(), 0);
        // One of ours and something else, also behind a pointer and a limit.
        let (mut reader, mut writer) = pipe().unwrap();
        let same = bytes.clone();
        let writes = spawn(move || io::copy(&mut &same[..], &mut writer).unwrap());
        let mut some = Vec::new();
        let limited: &mut dyn Read = &mut (&mut reader).take(100_000);
        assert_eq!(io::copy(limited, &mut some).unwrap(), 100_000);
        let mut rest = Vec::new();
        io::copy(&mut reader, &mut rest).unwrap();
        assert_eq!(writes.join().unwrap(), 300_000);
        some.extend_from_slice(&rest);
        assert_eq!(some, bytes);
    });
}

#[test]
fn timeouts_and_deadlines_hold() {
    run(2, || {
        for large in [false, true] {
            // The source has no more.
            let (mut a, mut from) = pair();
            let (mut to, mut b) = pair();
            let drains = spawn(move || io::copy(&mut b, &mut io::sink()).unwrap());
            let len = if large { 300_000 } else { 100 };
            from.set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            let writes = spawn(move || {
                a.write_all(&vec![1; len]).unwrap();
                a
            });
            let e = io::copy(&mut from, &mut to).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            assert!(!is_nonblocking(&from) && !is_nonblocking(&to));
            let same = Arc::new(from);
            same.set_read_timeout(None).unwrap();
            same.set_read_deadline(Some(Instant::now() + Duration::from_millis(10)));
            let e = io::copy(&mut &*same, &mut to).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            drop(to);
            drains.join().unwrap();
            drop(writes.join().unwrap());
        }
        // The sink takes no more.
        let (mut a, mut from) = pair();
        let (mut to, _b) = pair();
        let writes = spawn(move || {
            // Until the copy has ended and nobody reads any more.
            while a.write(&[1; 100_000]).is_ok() {}
        });
        to.set_write_timeout(Some(Duration::from_millis(30)))
            .unwrap();
        let e = io::copy(&mut from, &mut to).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        drop(from);
        writes.join().unwrap();
    });
}

#[test]
fn errors_come_through() {
    run(2, || {
        // The sink's peer is gone.
        let (mut a, mut from) = pair();
        let (mut to, b) = UnixStream::pair().unwrap();
        let writes = spawn(move || while a.write(&[1; 100_000]).is_ok() {});
        let copies = spawn(move || io::copy(&mut from, &mut to).unwrap_err().kind());
        windlass::sleep(Duration::from_millis(10));
        drop(b);
        assert_eq!(copies.join().unwrap(), ErrorKind::BrokenPipe);
        writes.join().unwrap();
        // The source is reset.
        let (mut a, mut from) = pair();
        let (mut to, mut b) = pair();
        let drains = spawn(move || io::copy(&mut b, &mut io::sink()).unwrap());
        let copies = spawn(move || io::copy(&mut from, &mut to).unwrap_err().kind());
        a.write_all(&[1; 200_000]).unwrap();
        windlass::net::TcpOptions::new()
            .linger(Duration::ZERO)
            .apply(&a)
            .unwrap();
        windlass::sleep(Duration::from_millis(5));
        drop(a);
        assert_eq!(copies.join().unwrap(), ErrorKind::ConnectionReset);
        drains.join().unwrap();
    });
}

/// A copy that waits unwinds when the run ends.
#[test]
fn a_copy_ends_with_its_run() {
    let _guard = hang_guard();
    let census = util::Census::default();
    runtime(2).run(|| {
        for large in [false, true] {
            let (mut a, mut from) = pair();
            let (mut to, mut b) = pair();
            let member = census.member();
            spawn(move || {
                let _member = member;
                let _ = io::copy(&mut from, &mut to);
            });
            let len = if large { 100_000 } else { 10 };
            a.write_all(&vec![1; len]).unwrap();
            b.read_exact(&mut vec![0; len]).unwrap();
            // They stay open.
            std::mem::forget((a, b));
        }
    });
    census.assert_all_dropped(2);
}

#[test]
fn both_directions_are_copied_and_end_by_themselves() {
    run(2, || {
        for len in [10, 1 << 20] {
            let ((mut client, a), (b, mut server)) = (pair(), pair());
            let proxy = spawn(move || io::copy_bidirectional(&a, &b));
            let writes = spawn(move || {
                client.write_all(&vec![1; len]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                // The other direction is still open.
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).unwrap();
                answer
            });
            let mut request = Vec::new();
            server.read_to_end(&mut request).unwrap();
            server.write_all(b"an answer").unwrap();
            drop(server);
            assert!(request.len() == len && request.iter().all(|&byte| byte == 1));
            assert_eq!(writes.join().unwrap(), b"an answer");
            assert_eq!(proxy.join().unwrap().unwrap(), (len as u64, 9));
        }
    });
}

#[test]
fn an_error_of_one_direction_ends_the_other() {
    run(2, || {
        let ((_client, a), (b, server)) = (pair(), pair());
        // Of one side only, which never gets anything.
        b.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let error = io::copy_bidirectional(&a, &b).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // The streams are still open.
        (&b).write_all(b"x").unwrap();
        (&server).read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn contexts_end_copies_in_both_directions() {
    run(2, || {
        let ((_client, a), (b, _server)) = (UnixStream::pair().unwrap(), pair());
        let ctx = windlass::context::Context::background().with_timeout(Duration::from_millis(2));
        let error = ctx.run(|| io::copy_bidirectional(&a, &b)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

/// A stream of a program's own, whose reader panics.
struct Panics(TcpStream);

impl io::Duplex for Panics {
    type Half<'a> = PanicsHalf<'a>;

    fn half(&self) -> PanicsHalf<'_> {
        PanicsHalf(&self.0)
    }

    fn close_write(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

struct PanicsHalf<'a>(&'a TcpStream);

impl Read for PanicsHalf<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        panic!("of a reader")
    }
}

impl Write for PanicsHalf<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_panic_of_one_direction_ends_the_other() {
    run(2, || {
        let ((_client, a), (b, _server)) = (pair(), pair());
        let b = Panics(b);
        for there in [true, false] {
            let copied = catch_unwind(AssertUnwindSafe(|| match there {
                true => io::copy_bidirectional(&a, &b),
                false => io::copy_bidirectional(&b, &a),
            }));
            assert_eq!(panic_text(&*copied.unwrap_err()), "of a reader");
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    streams_and_pipes / 50,
    on_plain_threads: "it uses threads",
    messages_are_not_held_back / 10,
    both_directions_at_once / 10,
    a_duplicate_waits_while_its_socket_is_copied: "it waits for the mode of a descriptor, which a simulation does not change",
    the_mode_of_a_socket_ends_with_its_last_copy: "it waits for the mode of a descriptor, which a simulation does not change",
    urgent_data_does_not_end_a_copy: "simulated streams have no urgent data",
    urgent_data_does_not_stop_a_copy: "simulated streams have no urgent data",
    anything_else,
    timeouts_and_deadlines_hold,
    errors_come_through,
    both_directions_are_copied_and_end_by_themselves / 10,
    an_error_of_one_direction_ends_the_other,
    a_panic_of_one_direction_ends_the_other,
    contexts_end_copies_in_both_directions,
    a_copy_ends_with_its_run: "it has a runtime of its own",
}
