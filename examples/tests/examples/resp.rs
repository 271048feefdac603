//! The RESP server: raw bytes, malformed requests, and the clients of Redis.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use crate::random::Random;
use crate::resp;
use crate::server::{Server, foreign_prints};
use crate::stoppable::{LONG_GRACE, start_graceful, start_stoppable};

fn start() -> Server {
    start_graceful(resp::serve)
}

/// A request in the form in which clients send it.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words(line: &str) -> Vec<u8> {
    request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Requests and their answers, in one conversation.
const CONVERSATION: &[(&str, &str)] = &[
    ("PING", "+PONG\r\n"),
    ("ping hello", "$5\r\nhello\r\n"),
    ("ECHO hello", "$5\r\nhello\r\n"),
    ("GET a", "$-1\r\n"),
    ("SET a 1", "+OK\r\n"),
    ("GET a", "$1\r\n1\r\n"),
    ("SET a 2 NX", "$-1\r\n"),
    ("SET a 2 XX GET", "$1\r\n1\r\n"),
    ("SET b 2 XX", "$-1\r\n"),
    ("SET a 2 NX XX", "-ERR syntax error\r\n"),
    ("SET a 2 EX", "-ERR syntax error\r\n"),
    (
        "SET a 2 EX x",
        "-ERR value is not an integer or out of range\r\n",
    ),
    (
        "SET a 2 EX 0",
        "-ERR invalid expire time in 'set' command\r\n",
    ),
    (
        "SET a 2 PX 9223372036854775807",
        "-ERR invalid expire time in 'set' command\r\n",
    ),
    ("INCR a", ":3\r\n"),
    ("INCRBY a 39", ":42\r\n"),
    ("DECR a", ":41\r\n"),
    ("DECRBY a 50", ":-9\r\n"),
    (
        "DECRBY a -9223372036854775808",
        "-ERR decrement would overflow\r\n",
    ),
    ("INCRBY a 9223372036854775807", ":9223372036854775798\r\n"),
    (
        "INCRBY a 10",
        "-ERR increment or decrement would overflow\r\n",
    ),
    ("APPEND a !", ":20\r\n"),
    ("STRLEN a", ":20\r\n"),
    ("INCR a", "-ERR value is not an integer or out of range\r\n"),
    ("TYPE a", "+string\r\n"),
    ("MSET a 1 b 2 c 3", "+OK\r\n"),
    (
        "MSET a 1 b",
        "-ERR wrong number of arguments for 'mset' command\r\n",
    ),
    ("MGET a b none", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n"),
    ("EXISTS a b none a", ":3\r\n"),
    ("DEL a b none", ":2\r\n"),
    ("TTL none", ":-2\r\n"),
    ("TTL c", ":-1\r\n"),
    ("EXPIRE none 10", ":0\r\n"),
    ("EXPIRE c 1000", ":1\r\n"),
    ("TTL c", ":1000\r\n"),
    ("SET c 4 KEEPTTL", "+OK\r\n"),
    ("TTL c", ":1000\r\n"),
    ("PERSIST c", ":1\r\n"),
    ("PERSIST c", ":0\r\n"),
    ("TTL c", ":-1\r\n"),
    ("EXPIRE c -1", ":1\r\n"),
    ("EXISTS c", ":0\r\n"),
    ("SET t 1 PXAT 4102444800499", "+OK\r\n"),
    ("PEXPIRETIME t", ":4102444800499\r\n"),
    ("EXPIRETIME t", ":4102444800\r\n"),
    ("PEXPIREAT t 4102444800500 GT", ":1\r\n"),
    ("EXPIRETIME t", ":4102444801\r\n"),
    ("PEXPIREAT t 4102444800500 GT", ":0\r\n"),
    ("PEXPIREAT t 4102444800500 LT", ":0\r\n"),
    ("EXPIREAT t 4102444800 GT", ":0\r\n"),
    ("EXPIREAT t 4102444800 NX", ":0\r\n"),
    ("EXPIREAT t 4102444800 xx lt", ":1\r\n"),
    ("PEXPIRETIME t", ":4102444800000\r\n"),
    (
        "EXPIRE t 9223372036854775",
        "-ERR invalid expire time in 'expire' command\r\n",
    ),
    (
        "EXPIRE t 1 GT LT",
        "-ERR GT and LT options at the same time are not compatible\r\n",
    ),
    ("EXPIRE t 1 NO", "-ERR Unsupported option NO\r\n"),
    (
        "SCAN 0 MATCH [t-z]* COUNT 1000 TYPE string",
        "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nt\r\n",
    ),
    ("SCAN 0 MATCH [^t-z]*", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ("SCAN 0 TYPE hash", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ("SCAN 18446744073709551615", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ("SCAN -", "-ERR invalid cursor\r\n"),
    ("SCAN 0 COUNT 0", "-ERR syntax error\r\n"),
    ("KEYS ?", "*1\r\n$1\r\nt\r\n"),
    ("KEYS \\?", "*0\r\n"),
    ("MULTI", "+OK\r\n"),
    ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
    ("INCR t", "+QUEUED\r\n"),
    ("WATCH t", "-ERR WATCH inside MULTI is not allowed\r\n"),
    ("LLEN t", "+QUEUED\r\n"),
    ("KEYS *", "+QUEUED\r\n"),
    (
        "EXEC",
        "*3\r\n:2\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n\
         *1\r\n$1\r\nt\r\n",
    ),
    ("EXEC", "-ERR EXEC without MULTI\r\n"),
    ("MULTI", "+OK\r\n"),
    ("EXEC", "*0\r\n"),
    ("MULTI", "+OK\r\n"),
    ("DEL t", "+QUEUED\r\n"),
    ("DISCARD", "+OK\r\n"),
    ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
    ("MULTI", "+OK\r\n"),
    ("DEL t", "+QUEUED\r\n"),
    (
        "DEL",
        "-ERR wrong number of arguments for 'del' command\r\n",
    ),
    (
        "EXEC",
        "-EXECABORT Transaction discarded because of previous errors.\r\n",
    ),
    ("MULTI", "+OK\r\n"),
    (
        "EXEC now",
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
         command\r\n",
    ),
    ("DEL t", ":1\r\n"),
    ("RPUSH l b c", ":2\r\n"),
    ("LPUSH l a", ":3\r\n"),
    ("LRANGE l 0 -1", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
    ("LRANGE l -2 1", "*1\r\n$1\r\nb\r\n"),
    ("LRANGE l 2 1", "*0\r\n"),
    (
        "LRANGE l -9223372036854775808 9223372036854775807",
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
    ),
    ("LRANGE none 0 -1", "*0\r\n"),
    ("LLEN l", ":3\r\n"),
    (
        "GET l",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    ),
    (
        "HSET l a 1",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    ),
    ("LPOP l", "$1\r\na\r\n"),
    ("RPOP l 5", "*2\r\n$1\r\nc\r\n$1\r\nb\r\n"),
    ("RPOP l 5", "*-1\r\n"),
    ("LPOP l", "$-1\r\n"),
    ("EXISTS l", ":0\r\n"),
    ("HSET h a 1 b 2", ":2\r\n"),
    ("HSET h a 3", ":0\r\n"),
    (
        "HSET h a",
        "-ERR wrong number of arguments for 'hset' command\r\n",
    ),
    ("HGET h a", "$1\r\n3\r\n"),
    ("HGET h none", "$-1\r\n"),
    ("HGET none a", "$-1\r\n"),
    ("HLEN h", ":2\r\n"),
    ("HDEL h b none", ":1\r\n"),
    ("HGETALL h", "*2\r\n$1\r\na\r\n$1\r\n3\r\n"),
    ("TYPE h", "+hash\r\n"),
    ("HDEL h a", ":1\r\n"),
    ("TYPE h", "+none\r\n"),
    ("PUBLISH nobody hello", ":0\r\n"),
    ("SELECT 0", "+OK\r\n"),
    ("SELECT 1", "-ERR DB index is out of range\r\n"),
    ("CLIENT SETNAME me", "+OK\r\n"),
    ("CLIENT GETNAME", "$2\r\nme\r\n"),
    ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
    ("CONFIG GET other", "*0\r\n"),
    ("CONFIG SET save x", "-ERR unknown subcommand 'SET'\r\n"),
    ("COMMAND DOCS", "*0\r\n"),
    (
        "GET",
        "-ERR wrong number of arguments for 'get' command\r\n",
    ),
    ("NONSENSE a", "-ERR unknown command 'NONSENSE'\r\n"),
    ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
    ("DBSIZE", ":0\r\n"),
    (
        "HELLO 3 SETNAME you",
        "%5\r\n$6\r\nserver\r\n$8\r\nwindlass\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
    ),
    ("GET none", "_\r\n"),
    ("RPOP none 1", "_\r\n"),
    ("HGETALL none", "%0\r\n"),
    ("QUIT", "+OK\r\n"),
];

fn conversation() -> (Vec<u8>, String) {
    let bytes = CONVERSATION.iter().flat_map(|(line, _)| words(line));
    let answers = CONVERSATION.iter().map(|(_, answer)| *answer).collect();
    (bytes.collect(), answers)
}

#[test]
fn each_command_has_its_answer() {
    let server = start();
    let mut stream = server.connect();
    for (line, expected) in CONVERSATION {
        stream.write_all(&words(line)).unwrap();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), *expected, "{line}");
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn requests_may_come_together_or_in_any_pieces() {
    let (bytes, answers) = conversation();
    for piece in [1, 2, 7, 100, bytes.len()] {
        // The connection's number is part of an answer, so each needs a server of its own.
        let server = start();
        let mut stream = server.connect();
        for part in bytes.chunks(piece) {
            stream.write_all(part).unwrap();
        }
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert_eq!(all, answers, "in pieces of {piece} bytes");
    }
}

#[test]
fn lines_of_words_are_requests_too() {
    let server = start();
    let answer = server.ask(b"PING\r\n\r\n  SET  a\t1 \nGET a\r\n");
    assert_eq!(answer, b"+PONG\r\n+OK\r\n$1\r\n1\r\n");
}

#[test]
fn what_is_no_request_gets_an_error_and_ends_the_connection() {
    let server = start();
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n\xff", "expected '$', got '\\xff'"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$4\nPING\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (
            b"*1\r\n$4\r\nPINGPONG",
            "expected a line end behind a bulk string",
        ),
        (&[b'x'; 70_000], "too big inline request"),
        (
            &[[b'*'; 1], [b'1'; 1]].concat().repeat(40_000),
            "too big inline request",
        ),
    ];
    for (bytes, why) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        // The bytes behind it are not parsed.
        let bytes = [&words("PING"), *bytes, &words("SET a 1")].concat();
        let answer = String::from_utf8(server.ask(&bytes)).unwrap();
        let expected = format!("+PONG\r\n-ERR Protocol error: {why}\r\n");
        assert_eq!(answer, expected, "{shown}");
    }
    assert_eq!(server.ask(&words("GET a")), b"$-1\r\n");
}

#[test]
fn nothing_at_all_is_no_request_and_no_error() {
    let server = start();
    for nothing in ["*0\r\n", "*-1\r\n", "\r\n", "\n"] {
        let bytes = [nothing.as_bytes(), &words("PING")].concat();
        assert_eq!(server.ask(&bytes), b"+PONG\r\n", "{nothing:?}");
    }
    // The start of a request, followed by the end of the stream.
    assert_eq!(server.ask(b"*2\r\n$3\r\nGET\r\n$5\r\nab"), b"");
}

#[test]
fn a_long_request_that_is_only_announced_takes_no_memory() {
    let server = start();
    let peers: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"*1048576\r\n$60000000\r\nx").unwrap();
            stream
        })
        .collect();
    assert_eq!(server.ask(&words("PING")), b"+PONG\r\n");
    drop(peers);
}

#[test]
fn long_values_come_back_whole() {
    let server = start();
    let value: Vec<u8> = (0..5_000_000_u32)
        .flat_map(|n| (n as u16).to_le_bytes())
        .collect();
    let bytes = [request(&[b"SET", b"long", &value]), words("GET long")].concat();
    let answer = server.ask(&bytes);
    let head = format!("+OK\r\n${}\r\n", value.len());
    assert!(answer.starts_with(head.as_bytes()));
    assert!(answer[head.len()..] == [&value[..], b"\r\n"].concat());
}

#[test]
fn a_browser_gets_nowhere() {
    let server = start();
    let page = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET a 1\r\n";
    assert_eq!(server.ask(page), b"");
    assert_eq!(server.ask(b"Host: x\r\nSET a 1\r\n"), b"");
    assert_eq!(server.ask(&words("GET a")), b"$-1\r\n");
}

/// Bytes that resemble requests but are invalid, from a generator with a fixed seed.
#[test]
fn garbage_harms_nobody() {
    let server = start();
    let mut random = Random::new(5);
    let (sound, _) = conversation();
    for _ in 0..300 {
        let part = &sound[..random.below(sound.len())];
        let bytes = random.nearly(&[part, &sound[..20]], b"*$\r\n-0129x\0");
        let answer = server.ask(&bytes);
        // Each answer, including errors, is of one of the protocol's types.
        assert!(answer.first().is_none_or(|b| b"+-:$*".contains(b)));
    }
    assert_eq!(server.ask(&words("PING")), b"+PONG\r\n");
}

/// The time limit is for the whole request; a client may be silent between two requests.
#[test]
fn requests_that_trickle_in_are_cut_off() {
    let patience = Duration::from_millis(300);
    let server =
        start_graceful(move |listener, server| resp::serve_with(listener, server, patience));
    let mut silent = server.connect();
    silent.write_all(&words("PING")).unwrap();
    expect(&mut silent, "+PONG\r\n");
    let long = request(&[b"SET", b"a", &[b'x'; 1000]]);
    for step in [patience / 10, 3 * patience] {
        let (answer, is_closed) = server.trickle(&long, step);
        assert!(is_closed && answer.is_empty(), "{answer:?}");
    }
    assert_eq!(server.ask(&words("GET a")), b"$-1\r\n");
    // Longer than the timeout since the last request.
    silent.write_all(&words("PING")).unwrap();
    expect(&mut silent, "+PONG\r\n");
}

#[test]
fn clients_at_once_lose_no_increment() {
    let server = start();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let bytes = words("INCR n").repeat(500);
                assert_eq!(server.ask(&bytes).split(|&b| b == b'\n').count(), 501);
            });
        }
    });
    assert_eq!(server.ask(&words("GET n")), b"$4\r\n4000\r\n");
}

#[test]
fn a_command_on_several_keys_is_one_step() {
    let server = start();
    server.ask(&words("MSET a 0 b 0 c 0"));
    thread::scope(|scope| {
        for writer in ["1", "2"] {
            let server = &server;
            scope.spawn(move || {
                // The two writers name the keys in opposite orders.
                let line = match writer {
                    "1" => "MSET a 1 b 1 c 1",
                    _ => "MSET c 2 b 2 a 2",
                };
                server.ask(&words(line).repeat(500));
            });
        }
        scope.spawn(|| {
            let answers = server.ask(&words("MGET a b c").repeat(500));
            let answers = String::from_utf8(answers).unwrap();
            for answer in answers.split("*3\r\n").skip(1) {
                let values: Vec<_> = answer.split("\r\n").skip(1).step_by(2).collect();
                assert!(values.iter().take(3).all(|v| *v == values[0]), "{values:?}");
            }
        });
    });
}

#[test]
fn a_key_ends_when_its_time_is_over() {
    let server = start();
    let bytes = [
        words("SET a 1 PX 1"),
        words("SET b 1"),
        words("PEXPIRE b 1"),
    ]
    .concat();
    assert_eq!(server.ask(&bytes), b"+OK\r\n+OK\r\n:1\r\n");
    // One is read, the other one is swept.
    while server.ask(&words("GET a")) != b"$-1\r\n" {}
    while server.ask(&words("DBSIZE")) != b":0\r\n" {}
    // A new value does not expire.
    let bytes = [
        words("SET a 1 PX 1000000"),
        words("SET a 2"),
        words("TTL a"),
    ]
    .concat();
    assert_eq!(server.ask(&bytes), b"+OK\r\n+OK\r\n:-1\r\n");
}

/// A key is there in the whole of its last millisecond, and not after it.
#[test]
fn a_key_ends_at_its_millisecond() {
    let server = start();
    let mut stream = server.connect();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis();
    let mut n_times_seen = 0;
    while n_times_seen < 20 {
        let end = now() + 20;
        let set = words(&format!("SET a 1 PXAT {end}"));
        stream.write_all(&set).unwrap();
        expect(&mut stream, "+OK\r\n");
        loop {
            let before = now();
            stream.write_all(&words("EXISTS a")).unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            let after = now();
            match answer {
                [_, b'1', ..] => assert!(before <= end, "at {before}, after {end}"),
                _ => {
                    assert!(after > end, "not there at {after}, before {end}");
                    break;
                }
            }
            n_times_seen += 1;
        }
    }
}

#[test]
fn a_transaction_whose_keys_change_does_nothing() {
    let server = start();
    let (mut client, mut other) = (server.connect(), server.connect());
    let ask = |stream: &mut TcpStream, line: &str, expected: &str| {
        stream.write_all(&words(line)).unwrap();
        expect(stream, expected);
    };
    let changes: &[&[(&str, &str)]] = &[
        &[("SET a 1", "+OK\r\n")],
        &[("MSET b 2 x 1", "+OK\r\n")],
        &[("DEL a", ":1\r\n")],
        &[("INCR a", ":2\r\n")],
        &[("APPEND b x", ":2\r\n")],
        &[("EXPIRE a 1000", ":1\r\n")],
        &[("PEXPIREAT a 1", ":1\r\n")],
        &[("RPUSH l 1", ":3\r\n")],
        &[("LPOP l", "$1\r\n0\r\n")],
        &[("HSET h f 1", ":0\r\n")],
        &[("HDEL h f", ":1\r\n")],
        &[("FLUSHALL", "+OK\r\n")],
        &[("SET none 1", "+OK\r\n")],
        &[("SET none 1", "+OK\r\n"), ("DEL none", ":1\r\n")],
    ];
    let none: &[&[(&str, &str)]] = &[
        &[("GET a", "$1\r\n1\r\n"), ("EXISTS l h", ":2\r\n")],
        &[("DEL none", ":0\r\n"), ("PERSIST a", ":0\r\n")],
        &[("SET a 1 NX", "$-1\r\n"), ("EXPIRE a 10 XX", ":0\r\n")],
        &[("HDEL h none", ":0\r\n"), ("LPOP l 0", "*0\r\n")],
        &[("SET c 1", "+OK\r\n"), ("FLUSHDB", "+OK\r\n")],
    ];
    for (commands, changes) in changes
        .iter()
        .map(|c| (c, true))
        .chain(none.iter().map(|c| (c, false)))
    {
        // The last of them has no effect on keys that do not exist.
        let watched = match commands.last() {
            Some(("FLUSHDB", _)) => "WATCH none other",
            _ => "WATCH a b l h none",
        };
        for is_ended in [false, true] {
            ask(&mut other, "FLUSHALL", "+OK\r\n");
            ask(&mut other, "MSET a 1 b 1", "+OK\r\n");
            ask(&mut other, "RPUSH l 0 0", ":2\r\n");
            ask(&mut other, "HSET h f 0 g 0", ":2\r\n");
            ask(&mut client, watched, "+OK\r\n");
            for (line, expected) in *commands {
                ask(&mut other, line, expected);
            }
            if is_ended {
                ask(&mut client, "UNWATCH", "+OK\r\n");
            }
            ask(&mut client, "MULTI", "+OK\r\n");
            ask(&mut client, "SET done 1", "+QUEUED\r\n");
            let is_off = changes && !is_ended;
            let (answer, n) = match is_off {
                true => ("*-1\r\n", ":0\r\n"),
                false => ("*1\r\n+OK\r\n", ":1\r\n"),
            };
            ask(&mut client, "EXEC", answer);
            ask(&mut other, "EXISTS done", n);
        }
    }
    // The end of a key's time is a change.
    let mut is_there = *b":0\r\n";
    while is_there != *b":1\r\n" {
        ask(&mut other, "SET a 1 PX 50", "+OK\r\n");
        ask(&mut client, "UNWATCH", "+OK\r\n");
        ask(&mut client, "WATCH a", "+OK\r\n");
        other.write_all(&words("EXISTS a")).unwrap();
        other.read_exact(&mut is_there).unwrap();
    }
    thread::sleep(Duration::from_millis(60));
    ask(&mut client, "MULTI", "+OK\r\n");
    ask(&mut client, "EXEC", "*-1\r\n");
    // The next transaction does not know of it.
    ask(&mut client, "MULTI", "+OK\r\n");
    ask(&mut client, "EXEC", "*0\r\n");
}

/// Clients add to a number by reading and writing it, which is safe only with WATCH.
#[test]
fn clients_that_watch_lose_no_increment() {
    let server = start();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = server.connect();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut next = || lines.next().unwrap().unwrap();
                let mut n_done = 0;
                while n_done < 100 {
                    let get = [words("WATCH n"), words("STRLEN n"), words("APPEND m x")];
                    stream.write_all(&get.concat()).unwrap();
                    assert_eq!(next(), "+OK");
                    let n: usize = next()[1..].parse().unwrap();
                    assert!(next().starts_with(':'));
                    let value = "x".repeat(n + 1);
                    let set = [words("MULTI"), words(&format!("SET n {value}"))];
                    stream.write_all(&set.concat()).unwrap();
                    stream.write_all(&words("EXEC")).unwrap();
                    assert_eq!([next(), next()], ["+OK", "+QUEUED"]);
                    if next() == "*1" {
                        assert_eq!(next(), "+OK");
                        n_done += 1;
                    }
                }
            });
        }
    });
    assert_eq!(server.ask(&words("STRLEN n")), b":400\r\n");
}

#[test]
fn a_transaction_is_one_step() {
    let server = start();
    server.ask(&words("MSET a 0 b 0"));
    thread::scope(|scope| {
        for keys in [["a", "b"], ["b", "a"]] {
            let server = &server;
            scope.spawn(move || {
                let lines = [
                    words("MULTI"),
                    words(&format!("INCR {}", keys[0])),
                    words("DBSIZE"),
                    words(&format!("INCR {}", keys[1])),
                    words("EXEC"),
                ];
                server.ask(&lines.concat().repeat(300));
            });
        }
        scope.spawn(|| {
            let answers = server.ask(&words("MGET a b").repeat(500));
            let answers = String::from_utf8(answers).unwrap();
            for answer in answers.split("*2\r\n").skip(1) {
                let lines: Vec<_> = answer.split("\r\n").collect();
                assert_eq!(lines[1], lines[3]);
            }
        });
    });
    let both = b"*2\r\n$3\r\n600\r\n$3\r\n600\r\n";
    assert_eq!(server.ask(&words("MGET a b")), both);
}

#[test]
fn a_transaction_has_a_limit() {
    let server = start();
    let mut stream = server.connect();
    stream.write_all(&words("MULTI")).unwrap();
    expect(&mut stream, "+OK\r\n");
    let long = request(&[b"SET", b"a", &vec![b'x'; 30 << 20]]);
    for answer in ["+QUEUED\r\n", "+QUEUED\r\n", "-ERR too big transaction\r\n"] {
        stream.write_all(&long).unwrap();
        expect(&mut stream, answer);
    }
    stream.write_all(&words("EXEC")).unwrap();
    expect(
        &mut stream,
        "-EXECABORT Transaction discarded because of previous errors.\r\n",
    );
    stream.write_all(&words("EXISTS a")).unwrap();
    expect(&mut stream, ":0\r\n");
}

#[test]
fn a_client_may_subscribe_in_a_transaction() {
    let server = start();
    let mut stream = server.connect();
    let lines = [
        "MULTI",
        "SET a 1",
        "SUBSCRIBE news",
        "PUBLISH news x",
        "EXEC",
    ];
    stream.write_all(&lines.map(words).concat()).unwrap();
    expect(&mut stream, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
    expect(
        &mut stream,
        "*3\r\n+OK\r\n*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
    );
    expect(
        &mut stream,
        "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n:1\r\n",
    );
}

/// All keys that are there the whole time come exactly once, however small the steps.
#[test]
fn a_scan_finds_each_key_once() {
    let server = start();
    let names: BTreeSet<_> = (0..2_000).map(|n| format!("key:{n}")).collect();
    for name in &names {
        server.ask(&words(&format!("SET {name} 1")));
    }
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let server = &server;
        scope.spawn(move || {
            // Other keys come and go.
            let mut n = 0;
            while stopped.try_recv() != Err(TryRecvError::Disconnected) {
                n += 1;
                let lines = [format!("SET new:{n} 1"), format!("DEL new:{}", n - 5)];
                server.ask(&lines.map(|line| words(&line)).concat());
            }
        });
        for count in ["1", "100", "1000000"] {
            let mut found = Vec::new();
            let mut cursor = "0".to_owned();
            let mut n_steps = 0;
            loop {
                let scan = words(&format!("SCAN {cursor} COUNT {count} MATCH key:*"));
                let answer = String::from_utf8(server.ask(&scan)).unwrap();
                let mut parts = answer
                    .split("\r\n")
                    .filter(|part| !part.starts_with(['*', '$']));
                cursor = parts.next().unwrap().to_owned();
                let keys: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
                // A step is not much larger than wanted.
                assert!(count != "1" || keys.len() < 100, "{}", keys.len());
                found.extend(keys.into_iter().map(str::to_owned));
                n_steps += 1;
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(count == "1000000", n_steps == 1, "{n_steps} steps");
            assert_eq!(found.len(), names.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
        }
        drop(stop);
    });
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[test]
fn what_is_published_reaches_all_subscribers_in_order() {
    let server = start();
    let mut old = server.connect();
    old.write_all(&[words("PING"), words("SUBSCRIBE news other")].concat())
        .unwrap();
    expect(
        &mut old,
        "+PONG\r\n*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
    );
    expect(&mut old, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:2\r\n");
    let mut new = server.connect();
    new.write_all(&[words("HELLO 3"), words("SUBSCRIBE news")].concat())
        .unwrap();
    // The connection's number has one digit.
    expect(
        &mut new,
        "%5\r\n$6\r\nserver\r\n$8\r\nwindlass\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
    );
    expect(&mut new, ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");

    let bytes: Vec<u8> = (100..200)
        .flat_map(|n| words(&format!("PUBLISH news {n}")))
        .collect();
    assert_eq!(server.ask(&bytes), b":2\r\n".repeat(100));
    for n in 100..200 {
        let message = format!("3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n{n}\r\n");
        expect(&mut old, &format!("*{message}"));
        expect(&mut new, &format!(">{message}"));
    }
    // In version 2 a subscriber may not use other commands.
    old.write_all(&[words("GET a"), words("PING x")].concat())
        .unwrap();
    expect(
        &mut old,
        "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n",
    );
    expect(&mut old, "*2\r\n$4\r\npong\r\n$1\r\nx\r\n");
    new.write_all(&words("GET a")).unwrap();
    expect(&mut new, "_\r\n");

    old.write_all(&words("UNSUBSCRIBE news")).unwrap();
    expect(&mut old, "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    drop(new);
    // The server notices it some time later.
    while server.ask(&words("PUBLISH news again")) != b":0\r\n" {}
    old.write_all(
        &[
            words("UNSUBSCRIBE"),
            words("GET a"),
            words("UNSUBSCRIBE"),
            words("QUIT"),
        ]
        .concat(),
    )
    .unwrap();
    expect(
        &mut old,
        "*3\r\n$11\r\nunsubscribe\r\n$5\r\nother\r\n:0\r\n$-1\r\n",
    );
    expect(&mut old, "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n+OK\r\n");
    assert_eq!(old.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_subscriber_that_takes_nothing_is_cut_off() {
    let server = start();
    let mut lazy = server.connect();
    lazy.write_all(&words("SUBSCRIBE news")).unwrap();
    expect(&mut lazy, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    let bytes = request(&[b"PUBLISH", b"news", &[b'x'; 1 << 20]]);
    let mut publisher = server.connect();
    // The bytes that the sockets buffer, and those that may be queued.
    let cut_off = (0..500).any(|_| {
        publisher.write_all(&bytes).unwrap();
        let mut answer = [0; 4];
        publisher.read_exact(&mut answer).unwrap();
        answer == *b":0\r\n"
    });
    assert!(cut_off);
}

#[test]
fn redis_cli_works() {
    let server = start();
    let port = server.addr.port().to_string();
    let cli = |args: &[&str]| {
        foreign_prints(
            "redis-cli",
            &[&["-h", "127.0.0.1", "-p", &port], args].concat(),
        )
    };
    let cases: &[(&[&str], &str)] = &[
        (&["ping"], "PONG\n"),
        (&["set", "greeting", "hello world"], "OK\n"),
        (&["get", "greeting"], "hello world\n"),
        (&["-3", "get", "none"], "\n"),
        (&["rpush", "list", "a", "b"], "2\n"),
        (&["lrange", "list", "0", "-1"], "a\nb\n"),
        (&["-3", "hset", "hash", "f", "v"], "1\n"),
        (&["hgetall", "hash"], "f\nv\n"),
        (&["-r", "3", "incr", "n"], "1\n2\n3\n"),
        (
            &["get", "list"],
            "WRONGTYPE Operation against a key holding the wrong kind of value\n\n",
        ),
    ];
    for (args, expected) in cases {
        match cli(args) {
            Some(printed) => assert_eq!(printed, *expected, "{args:?}"),
            None => return,
        }
    }
}

#[test]
fn redis_benchmark_works() {
    let server = start();
    let port = server.addr.port().to_string();
    let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,hset,lrange_100,mset";
    let common = [
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-q",
        "-e",
        "-n",
        "2000",
        "-c",
        "20",
        "-t",
        tests,
    ];
    for depth in ["1", "16"] {
        let args = [&common[..], &["-P", depth]].concat();
        let Some(printed) = foreign_prints("redis-benchmark", &args) else {
            return;
        };
        let n_results = printed.matches("requests per second").count();
        assert_eq!(n_results, 13, "{printed}");
        assert!(!printed.to_lowercase().contains("err"), "{printed}");
    }
}

#[test]
fn commands_are_answered_after_the_stop() {
    let (server, stopped, told) = start_stoppable(LONG_GRACE, resp::serve);
    let [mut begun, mut idle, mut subscriber] = [(); 3].map(|()| {
        let mut stream = server.connect();
        stream.write_all(&words("PING")).unwrap();
        expect(&mut stream, "+PONG\r\n");
        stream
    });
    subscriber.write_all(&words("SUBSCRIBE news")).unwrap();
    expect(
        &mut subscriber,
        "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
    );
    let set = words("SET a hello");
    begun.write_all(&set[..20]).unwrap();
    let mut queued = server.connect();
    server.stop_accepting(&stopped);
    begun.write_all(&set[20..]).unwrap();
    expect(&mut begun, "+OK\r\n");
    for stream in [&mut idle, &mut queued] {
        stream.write_all(&words("GET a")).unwrap();
        expect(stream, "$5\r\nhello\r\n");
    }
    idle.write_all(&words("PUBLISH news hello")).unwrap();
    expect(&mut idle, ":1\r\n");
    expect(
        &mut subscriber,
        "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n",
    );
    drop((begun, idle, queued, subscriber));
    assert_eq!(told.recv().unwrap(), Ok(()));
}

/// Between two requests a connection has no stack, whatever the client has begun.
#[test]
fn silent_clients_take_no_stack() {
    let (give, given) = mpsc::channel();
    let server = start_graceful(move |listener, server| {
        give.send(windlass::Handle::current()).unwrap();
        resp::serve(listener, server)
    });
    let handle = given.recv().unwrap();
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (stream, begun) in clients
        .iter_mut()
        .zip(["PING", "WATCH a", "MULTI"].iter().cycle())
    {
        stream.write_all(&words(begun)).unwrap();
        let answer = if *begun == "PING" {
            "+PONG\r\n"
        } else {
            "+OK\r\n"
        };
        expect(stream, answer);
    }
    let n_off_stack = || {
        let all = handle.goroutines();
        let waits = all.iter().filter_map(|g| g.wait_reason);
        waits
            .filter(|&reason| reason == "IO wait without a stack")
            .count()
    };
    while n_off_stack() < clients.len() {
        thread::sleep(Duration::from_millis(1));
    }
    for stream in &mut clients {
        stream.write_all(&words("ECHO hello")).unwrap();
    }
}

/// The messages that were published before the stop reach them first.
#[test]
fn silent_clients_are_closed_at_the_stop() {
    let (server, stopped, told) = start_stoppable(Duration::ZERO, resp::serve);
    let mut subscriber = server.connect();
    subscriber.write_all(&words("SUBSCRIBE news")).unwrap();
    expect(
        &mut subscriber,
        "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
    );
    let mut publisher = server.connect();
    for _ in 0..100 {
        publisher.write_all(&words("PUBLISH news hello")).unwrap();
        expect(&mut publisher, ":1\r\n");
    }
    stopped.stop();
    let mut rest = String::new();
    subscriber.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("hello").count(), 100);
    assert_eq!(publisher.read(&mut [0]).unwrap(), 0);
    assert_eq!(told.recv().unwrap(), Ok(()));
}
