//! The RESP server beside Redis itself: both get the same commands, and must give the same answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::resp;
use crate::stoppable::start_graceful;
use crate::temp::TempDir;

/// A Redis server that runs until this value is dropped.
struct Redis {
    child: Child,
    _dir: TempDir,
}

impl Redis {
    /// Starts the server, if it is installed. Prints a message if it is not.
    fn start() -> Option<Redis> {
        let dir = TempDir::new();
        // Debian's package of the clients has the server, too: it is the same program, which looks
        // at its name.
        let child = ["redis-server", "redis-check-rdb"].iter().find_map(|name| {
            Command::new(name)
                .arg0("redis-server")
                .args(["--port", "0", "--unixsocket", "socket"])
                .args(["--save", "", "--appendonly", "no"])
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .spawn()
                .ok()
        });
        let Some(child) = child else {
            eprintln!("SKIPPED: no redis-server here, so its answers are not compared with ours");
            return None;
        };
        Some(Redis { child, _dir: dir })
    }

    fn connect(&self) -> UnixStream {
        // The path of the directory itself may be too long for a socket's address.
        let path = format!("/proc/{}/cwd/socket", self.child.id());
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&path) {
                Ok(stream) => return stream,
                Err(e) if begun.elapsed() > Duration::from_secs(60) => panic!("{path}: {e}"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// A line without structure, with its type.
    Line(String),
    Number(i64),
    Bulk(Option<Vec<u8>>),
    /// The type, as null and empty maps are no arrays, and the elements.
    Array(char, Vec<Answer>),
}

fn read_answer(from: &mut impl BufRead) -> Answer {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let line = line.strip_suffix("\r\n").expect("a whole line");
    let (kind, rest) = line.split_at(1);
    let number = || rest.parse::<i64>().unwrap();
    match kind {
        ":" => Answer::Number(number()),
        "$" if number() < 0 => Answer::Bulk(None),
        "$" => {
            let mut bytes = vec![0; number() as usize + 2];
            from.read_exact(&mut bytes).unwrap();
            bytes.truncate(number() as usize);
            Answer::Bulk(Some(bytes))
        }
        "*" if number() < 0 => Answer::Line(line.to_owned()),
        "*" => Answer::Array('*', (0..number()).map(|_| read_answer(from)).collect()),
        "%" => Answer::Array('%', (0..2 * number()).map(|_| read_answer(from)).collect()),
        // Redis repeats the arguments of what it does not know.
        _ => Answer::Line(line.split(", with args").next().unwrap().to_owned()),
    }
}

/// A client of either server.
struct Client<S> {
    stream: BufReader<S>,
    /// The commands that it has sent since MULTI.
    queued: Vec<String>,
}

impl<S: Read + Write> Client<S> {
    fn new(stream: S) -> Client<S> {
        Client {
            stream: BufReader::new(stream),
            queued: Vec::new(),
        }
    }

    fn ask(&mut self, words: &[Vec<u8>]) -> Answer {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
        read_answer(&mut self.stream)
    }

    /// Asks, and removes from the answer what may differ.
    fn compare(&mut self, line: &str) -> Answer {
        let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().into()).collect();
        let answer = self.ask(&words);
        match (line, answer) {
            ("EXEC", Answer::Array(kind, answers)) => {
                assert_eq!(answers.len(), self.queued.len());
                let queued = std::mem::take(&mut self.queued);
                let answers = queued.iter().zip(answers).map(|(q, a)| comparable(q, a));
                Answer::Array(kind, answers.collect())
            }
            ("EXEC" | "EXEC x" | "DISCARD", answer) => {
                self.queued.clear();
                answer
            }
            (_, answer) if answer == Answer::Line("+QUEUED".into()) => {
                self.queued.push(line.to_owned());
                answer
            }
            (_, answer) => comparable(line, answer),
        }
    }
}

/// Removes from an answer what may differ.
fn comparable(line: &str, answer: Answer) -> Answer {
    let name = line.split(' ').next().unwrap();
    match (name, answer) {
        ("KEYS", Answer::Array(kind, mut keys)) => {
            keys.sort();
            Answer::Array(kind, keys)
        }
        ("HGETALL", Answer::Array(kind, fields)) => {
            let mut pairs: Vec<_> = fields.chunks(2).map(<[_]>::to_vec).collect();
            pairs.sort();
            Answer::Array(kind, pairs.concat())
        }
        // The cursor is always 0 behind so large a COUNT.
        ("SCAN", Answer::Array(kind, parts)) => {
            let parts = parts.into_iter().map(|part| comparable("KEYS", part));
            Answer::Array(kind, parts.collect())
        }
        // The times that the program below uses differ by 1,000 seconds or not at all.
        ("TTL" | "EXPIRETIME", Answer::Number(n @ 0..)) => {
            Answer::Number(n / 1000 + i64::from(n % 1000 >= 500))
        }
        ("PTTL" | "PEXPIRETIME", Answer::Number(n @ 0..)) => {
            Answer::Number(n / 1_000_000 + i64::from(n % 1_000_000 >= 500_000))
        }
        (_, answer) => answer,
    }
}

/// Writes commands at random.
struct Author {
    random: Random,
    /// Relative times: each is used once, and none is near another. So whether one is later does not
    /// depend on when the commands arrive.
    seconds: u64,
    /// Unix time, in seconds, of the start.
    start: u64,
}

impl Author {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len())]
    }

    fn key(&mut self) -> &'static str {
        self.pick(&["a", "b", "c", "d"])
    }

    fn value(&mut self) -> &'static str {
        self.pick(&["1", "-5", "x", "9223372036854775807", ""])
    }

    /// The time of an EXPIRE, in its unit.
    fn time(&mut self, is_ms: bool, is_absolute: bool) -> String {
        let odd = [
            "0",
            "-1",
            "1.5",
            "x",
            "",
            "9223372036854775",
            "9223372036854776",
            // Redis itself overflows in EXPIRETIME behind a longer one.
            "9223372036854775000",
            "-9223372036854775808",
            "-9223372036854776",
            "9223372036854775808",
        ];
        if self.random.below(4) == 0 {
            return self.pick(&odd).to_owned();
        }
        if is_absolute && self.random.below(2) == 0 {
            // Three instants, again and again.
            let seconds = self.start + 100_000_000 + 1000 * self.random.below(3) as u64;
            return (if is_ms { seconds * 1000 } else { seconds }).to_string();
        }
        self.seconds += 1000;
        let seconds = match is_absolute {
            true => self.start + self.seconds,
            false => self.seconds,
        };
        (if is_ms { seconds * 1000 } else { seconds }).to_string()
    }

    fn expire(&mut self) -> String {
        let (is_ms, is_absolute) = (self.random.below(2) == 0, self.random.below(2) == 0);
        let name = match (is_ms, is_absolute) {
            (false, false) => "EXPIRE",
            (true, false) => "PEXPIRE",
            (false, true) => "EXPIREAT",
            (true, true) => "PEXPIREAT",
        };
        let time = self.time(is_ms, is_absolute);
        let mut line = format!("{name} {} {time}", self.key());
        for _ in 0..self.random.below(3) {
            line += " ";
            line += self.pick(&["NX", "XX", "GT", "LT", "gt", "lt", "nx", "NO"]);
        }
        line
    }

    fn set(&mut self) -> String {
        let mut line = format!("SET {} {}", self.key(), self.value());
        for _ in 0..self.random.below(4) {
            let unit = self.pick(&["EX", "PX", "EXAT", "PXAT"]);
            line += &match self.random.below(5) {
                0 => format!(
                    " {unit} {}",
                    self.time(unit.starts_with('P'), unit.len() > 2)
                ),
                1 => " NX".to_owned(),
                2 => " xx".to_owned(),
                3 => " GET".to_owned(),
                _ => " KEEPTTL".to_owned(),
            };
        }
        line
    }

    fn line(&mut self) -> String {
        let (k, l, v) = (self.key(), self.key(), self.value());
        match self.random.below(46) {
            0..=3 => "MULTI".to_owned(),
            4..=7 => "EXEC".to_owned(),
            8 => "DISCARD".to_owned(),
            9 | 10 => format!("WATCH {k} {l}"),
            11 => "UNWATCH".to_owned(),
            12..=15 => self.expire(),
            16..=19 => self.set(),
            20 => format!("PERSIST {k}"),
            21 => format!("TTL {k}"),
            22 => format!("PTTL {k}"),
            23 => format!("EXPIRETIME {k}"),
            24 => format!("PEXPIRETIME {k}"),
            25 => format!("GET {k}"),
            26 => format!("DEL {k} {l}"),
            27 => format!("INCR {k}"),
            28 => format!("INCRBY {k} {v}"),
            29 => format!("MSET {k} {v} {l} 7"),
            30 => format!("MGET {k} {l}"),
            31 => format!("APPEND {k} {v}"),
            32 => format!("TYPE {k}"),
            33 => format!("{} {k} {v} z", self.pick(&["LPUSH", "RPUSH"])),
            34 => format!("{} {k}", self.pick(&["LPOP", "RPOP", "LLEN", "STRLEN"])),
            35 => format!("LPOP {k} {}", self.pick(&["0", "1", "5", "-1", "x"])),
            36 => format!("LRANGE {k} 0 -1"),
            37 => format!("HSET {k} f {v} g 1"),
            38 => format!("{} {k} f", self.pick(&["HGET", "HDEL"])),
            39 => format!("HGETALL {k}"),
            40 => format!(
                "KEYS {}",
                self.pick(&["*", "a", "[b-c]", "?", "[^a]", "x*"])
            ),
            41 => {
                let options = ["", " MATCH [ab]", " TYPE string", " type HASH", " TYPE no"];
                format!("SCAN 0 COUNT 1000{}", self.pick(&options))
            }
            42 => {
                let wrong = [
                    "SCAN x",
                    "SCAN",
                    "SCAN 0 COUNT 0",
                    "SCAN 0 COUNT x",
                    "SCAN 0 COUNT",
                    "SCAN 0 MATCH",
                    "SCAN 0 NO 1",
                    "SCAN 1x",
                    "SCAN 18446744073709551616",
                ];
                self.pick(&wrong).to_owned()
            }
            43 => {
                let wrong = [
                    "GET",
                    "NONSENSE a b",
                    "EXPIRE a",
                    "WATCH",
                    "MULTI x",
                    "EXEC x",
                ];
                self.pick(&wrong).to_owned()
            }
            44 => format!("EXISTS {k} {l} {k}"),
            _ => self.pick(&["FLUSHALL", "PING", "ECHO x"]).to_owned(),
        }
    }
}

/// Two clients of each server, one of them with version 3 of the protocol, take turns.
#[test]
fn redis_gives_the_same_answers() {
    let Some(redis) = Redis::start() else { return };
    let server = start_graceful(resp::serve);
    let mut theirs = [(); 2].map(|()| Client::new(redis.connect()));
    let mut ours = [(); 2].map(|()| Client::new(server.connect()));
    let hello = [b"HELLO".to_vec(), b"3".to_vec()];
    let _ = (theirs[1].ask(&hello), ours[1].ask(&hello));
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap();
    let mut author = Author {
        random: Random::new(7),
        seconds: 0,
        start: since_1970.as_secs(),
    };
    let mut history = Vec::new();
    let mut compare = |client: usize, line: &str| {
        history.push(format!("{client}: {line}"));
        let expected = theirs[client].compare(line);
        let answer = ours[client].compare(line);
        let recent = &history[history.len().saturating_sub(40)..];
        assert_eq!(answer, expected, "{}", recent.join("\n"));
    };
    for _ in 0..5_000 {
        let client = author.random.below(2);
        if author.random.below(5) > 0 {
            compare(client, &author.line());
            continue;
        }
        // These must end a transaction, or must not.
        compare(client, "DISCARD");
        compare(1 - client, "DISCARD");
        compare(client, &format!("WATCH {} {}", author.key(), author.key()));
        for _ in 0..=author.random.below(2) {
            compare(1 - client, &author.line());
        }
        compare(client, "MULTI");
        compare(client, &author.line());
        compare(client, "EXEC");
    }
}

#[test]
fn redis_finds_the_same_keys_by_patterns() {
    let Some(redis) = Redis::start() else { return };
    let server = start_graceful(resp::serve);
    let mut theirs = Client::new(redis.connect());
    let mut ours = Client::new(server.connect());
    let mut random = Random::new(8);
    let mut text = |letters: &[u8], n: usize| -> Vec<u8> {
        let n = 1 + random.below(n);
        (0..n)
            .map(|_| letters[random.below(letters.len())])
            .collect()
    };
    let mut set = vec![b"MSET".to_vec()];
    for _ in 0..100 {
        set.extend([text(b"abcc-]^\\[*", 4), b"1".to_vec()]);
    }
    assert_eq!(ours.ask(&set), theirs.ask(&set));
    let mut n_found = 0;
    for _ in 0..2_000 {
        // Whether Redis' bytes have a sign depends on the machine.
        let pattern = text(b"ab-[]^\\**?c", 8);
        let keys = [b"KEYS".to_vec(), pattern.clone()];
        let expected = comparable("KEYS", theirs.ask(&keys));
        if let Answer::Array(_, keys) = &expected {
            n_found += keys.len();
        }
        let shown = pattern.escape_ascii();
        assert_eq!(comparable("KEYS", ours.ask(&keys)), expected, "{shown}");
        let words = ["SCAN", "0", "COUNT", "1000", "MATCH"];
        let mut scan: Vec<_> = words.map(|word| word.as_bytes().to_vec()).into();
        scan.push(pattern.clone());
        let expected = comparable("SCAN", theirs.ask(&scan));
        assert_eq!(comparable("SCAN", ours.ask(&scan)), expected, "{shown}");
    }
    assert!(n_found > 1000, "the patterns find {n_found} keys");
}
