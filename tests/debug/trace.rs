//! Execution traces: the file is what the format asks for, and shows what happened.

use crate::util;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::time::Duration;

use serde_json::Value;
use windlass::net::{TcpListener, TcpStream};
use windlass::{Builder, blocking, sleep, spawn, task, yield_now};

/// A slice on a track, in nanoseconds.
#[derive(Clone, Debug)]
struct Slice {
    from: u64,
    to: u64,
    name: String,
    until: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    tid: u64,
    at: u64,
}

#[derive(Debug, Default)]
struct File {
    /// The names of the tracks.
    names: BTreeMap<u64, String>,
    slices: BTreeMap<u64, Vec<Slice>>,
    marks: HashMap<String, u64>,
    flows: Vec<(End, End)>,
    /// The ends of regions, in the order of the file: the goroutine, the name, whether it begins,
    /// and when.
    regions: Vec<(u64, String, bool, u64)>,
}

/// Microseconds with three digits, as exact nanoseconds.
fn ns(value: &Value) -> u64 {
    let text = value.to_string();
    let (us, ns) = text.split_once('.').unwrap_or((&text, "0"));
    let ns = format!("{ns:0<3}");
    assert_eq!(ns.len(), 3, "{text}");
    us.parse::<u64>().unwrap() * 1000 + ns.parse::<u64>().unwrap()
}

/// Reads a file and checks everything that the format wants.
fn check(json: &[u8]) -> File {
    let root: Value = serde_json::from_slice(json).expect("valid JSON");
    let mut file = File::default();
    let mut flows: BTreeMap<u64, (Vec<End>, Vec<End>)> = BTreeMap::new();
    for e in root["traceEvents"].as_array().unwrap() {
        assert_eq!(e["pid"], 1);
        let name = e["name"].as_str().unwrap().to_owned();
        let tid = e["tid"].as_u64();
        match e["ph"].as_str().unwrap() {
            "M" => {
                if name == "thread_name" {
                    let track = e["args"]["name"].as_str().unwrap().to_owned();
                    file.names.insert(tid.unwrap(), track);
                }
            }
            "X" => {
                let from = ns(&e["ts"]);
                file.slices.entry(tid.unwrap()).or_default().push(Slice {
                    from,
                    to: from + ns(&e["dur"]),
                    name,
                    until: e["args"]["until"].as_str().map(str::to_owned),
                });
            }
            "i" => {
                assert_eq!(e["s"], "t");
                ns(&e["ts"]);
                *file.marks.entry(name).or_default() += 1;
            }
            ph @ ("s" | "f") => {
                let end = End {
                    tid: tid.unwrap(),
                    at: ns(&e["ts"]),
                };
                let (from, to) = flows.entry(e["id"].as_u64().unwrap()).or_default();
                if ph == "s" {
                    from.push(end);
                } else {
                    assert_eq!(e["bp"], "e");
                    to.push(end);
                }
            }
            ph @ ("b" | "e") => {
                assert_eq!(e["cat"], "region");
                let g = e["args"]["goroutine"].as_u64().unwrap();
                assert_eq!(e["id"], format!("{g:#x}"));
                let region = (g, name, ph == "b", ns(&e["ts"]));
                file.regions.push(region);
            }
            other => panic!("an event of type {other}"),
        }
    }
    for (from, to) in flows.into_values() {
        assert_eq!((from.len(), to.len()), (1, 1), "an arrow with one end");
        file.flows.push((from[0], to[0]));
    }
    file.check();
    file
}

impl File {
    fn check(&self) {
        for (tid, slices) in &self.slices {
            assert!(self.names.contains_key(tid), "a track without a name");
            assert!(slices.is_sorted_by_key(|s| s.from), "track {tid}");
            let mut open: Vec<&Slice> = Vec::new();
            for slice in slices {
                while open.last().is_some_and(|o| o.to <= slice.from) {
                    open.pop();
                }
                if let Some(outer) = open.last() {
                    assert!(slice.to <= outer.to, "{slice:?} reaches out of {outer:?}");
                }
                open.push(slice);
            }
        }
        for (from, to) in &self.flows {
            assert!(from.at <= to.at, "{from:?} {to:?}");
            for end in [from, to] {
                assert!(self.is_in_slice(*end), "{end:?} is in no slice");
            }
        }
    }

    fn is_in_slice(&self, end: End) -> bool {
        let slices = self.slices.get(&end.tid).map_or(&[][..], Vec::as_slice);
        slices.iter().any(|s| s.from <= end.at && end.at <= s.to)
    }

    fn all(&self) -> impl Iterator<Item = &Slice> {
        self.slices.values().flatten()
    }

    /// Slices of a goroutine with this name.
    fn named(&self, name: &str) -> Vec<&Slice> {
        self.all()
            .filter(|s| s.name.starts_with(&format!("{name} (G")))
            .collect()
    }
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> task::JoinHandle<()> {
    task::Builder::new().name(name).spawn(f).unwrap()
}

/// Something of everything: yields, wakes, sleeps, sockets, blocking, a hog.
fn work() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let echo = named("echo", move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut byte = [0];
        while peer.read(&mut byte).unwrap() > 0 {
            peer.write_all(&byte).unwrap();
        }
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    let mut byte = [1];
    for _ in 0..50 {
        stream.write_all(&byte).unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
    drop(stream);
    let yielders: Vec<_> = (0..10)
        .map(|_| spawn(|| (0..20).for_each(|_| yield_now())))
        .collect();
    blocking(|| pause(Duration::from_millis(2)));
    sleep(Duration::from_millis(1));
    yielders.into_iter().for_each(|y| y.join().unwrap());
    echo.join().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "blocks its thread on purpose")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn a_trace_shows_what_happened() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(2);
    let handle = runtime.handle();
    let mut json = Vec::new();
    runtime.run(|| {
        let trace = handle.start_trace();
        let witness = named("witness \"quoted\"", || {
            sleep(Duration::from_millis(1));
            task::park();
        });
        work();
        // Now all is quiet: the Ps go to sleep, and the witness parks.
        util::wait_until(|| {
            sleep(Duration::from_millis(5));
            let dump = handle.dump();
            dump.goroutines
                .iter()
                .any(|g| g.wait_reason == Some("park"))
        });
        trace.write(&mut json).unwrap();
        witness.task().unpark();
        witness.join().unwrap();
    });
    let file = check(&json);
    assert_eq!(file.names.len(), 3);
    assert_eq!(file.names[&0], "outside");
    assert!(file.names[&1].starts_with("P0 (cpu "));
    // It still lived when the file was written, so its name is there.
    let witness = file.named("witness \"quoted\"");
    // It may have moved to another P, whose track stands before the first one's.
    let first = witness.iter().min_by_key(|s| s.from).unwrap();
    assert_eq!(first.until.as_deref(), Some("sleep"));
    assert!(witness.iter().any(|s| s.until.as_deref() == Some("park")));
    let untils: Vec<_> = file.all().filter_map(|s| s.until.as_deref()).collect();
    for why in ["yield", "end", "sleep", "IO wait", "park"] {
        assert!(untils.contains(&why), "no {why} in {untils:?}");
    }
    assert!(file.all().any(|s| s.name == "blocking"));
    assert!(file.all().any(|s| s.name == "asleep"));
    assert!(file.marks["ring batch"] >= 10, "{:?}", file.marks);
    // Every echo takes two wakes by completions, most of them seen here.
    assert!(file.flows.len() >= 50, "{} arrows", file.flows.len());
}

/// Regions last across waits, belong to their goroutine, and are nothing while there is no trace and
/// on plain threads.
#[test]
fn regions_are_on_tracks_of_their_goroutines() {
    use windlass::debug::{begin_region, end_region, region};

    let _guard = util::hang_guard();
    let runtime = util::runtime(2);
    let handle = runtime.handle();
    let mut json = Vec::new();
    let ids = runtime.run(|| {
        drop(region("before the trace"));
        let trace = handle.start_trace();
        let worker = spawn(|| {
            let _outer = region("outer \"quoted\"");
            (0..3).for_each(|_| {
                let _inner = region("inner");
                sleep(Duration::from_millis(1));
            });
            end_region("was never begun");
            task::current().id()
        });
        let other = spawn(|| {
            begin_region("still open");
            begin_region("inner");
            yield_now();
            end_region("inner");
            task::current().id()
        });
        windlass::offload(|| drop(region("on a plain thread")));
        let ids = [worker, other].map(|task| task.join().unwrap());
        trace.finish(&mut json).unwrap();
        ids
    });
    drop(region("after the run"));
    let file = check(&json);
    let of = |id: u64| -> Vec<(&str, bool)> {
        let regions = file.regions.iter().filter(|(g, ..)| *g == id);
        regions
            .map(|(_, name, begins, _)| (&**name, *begins))
            .collect()
    };
    let mut worker = vec![("outer \"quoted\"", true)];
    (0..3).for_each(|_| worker.extend([("inner", true), ("inner", false)]));
    worker.push(("outer \"quoted\"", false));
    assert_eq!(of(ids[0]), worker);
    let other = [
        ("still open", true),
        ("inner", true),
        ("inner", false),
        ("still open", false),
    ];
    assert_eq!(of(ids[1]), other);
    assert_eq!(file.regions.len(), worker.len() + other.len());
    // A sleep lies inside of each inner one.
    let inner: Vec<_> = file
        .regions
        .iter()
        .filter(|(g, name, ..)| *g == ids[0] && name == "inner")
        .collect();
    for ends in inner.chunks(2) {
        assert!(ends[1].3 - ends[0].3 >= 1_000_000, "{ends:?}");
    }
}

#[test]
fn a_trace_for_a_while_from_a_plain_thread() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(2);
    let handle = runtime.handle();
    let json = runtime.run(|| {
        let tracer = std::thread::spawn(move || {
            // On a busy machine no goroutine may come to run for long.
            let mut duration = Duration::from_millis(10);
            loop {
                let mut json = Vec::new();
                handle.trace(duration, &mut json).unwrap();
                if check(&json).all().count() > 0 {
                    return json;
                }
                duration *= 2;
            }
        });
        while !tracer.is_finished() {
            work();
        }
        blocking(|| tracer.join().unwrap())
    });
    let file = check(&json);
    assert!(file.all().count() > 0);
}

#[test]
fn the_flight_recorder_keeps_the_newest() {
    let _guard = util::hang_guard();
    let builder = Builder::new().processors(2).flight_recorder(64 * 24);
    let runtime = util::build(builder).unwrap();
    runtime.run(work);
    let mut json = Vec::new();
    runtime.write_flight_record(&mut json).unwrap();
    let file = check(&json);
    let n = file.all().count();
    // 64 events of each P and of the outside.
    assert!((1..=3 * 64).contains(&n), "{n} slices");
    // It goes on.
    runtime.run(work);
    let mut again = Vec::new();
    runtime.handle().write_flight_record(&mut again).unwrap();
    check(&again);
    assert_ne!(json, again);
}

#[test]
fn without_a_recorder_there_is_nothing_to_write() {
    let runtime = util::runtime(1);
    let e = runtime.write_flight_record(io::sink()).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::Unsupported);
    assert!(e.to_string().contains("Builder::flight_recorder"), "{e}");
    let bad = util::build(Builder::new().flight_recorder(0)).unwrap_err();
    assert_eq!(bad.kind(), io::ErrorKind::InvalidInput);
    assert!(bad.to_string().contains("flight_recorder(0)"), "{bad}");
}

#[test]
fn the_writers_error_comes_back() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let runtime = util::runtime(1);
    let trace = runtime.start_trace();
    runtime.run(work);
    let e = trace.finish(Full).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_retaken_p_ends_the_slice_of_its_hog() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    let mut json = Vec::new();
    runtime.run(|| {
        let trace = handle.start_trace();
        let other = spawn(|| {});
        while !other.is_finished() {
            std::hint::spin_loop();
        }
        yield_now();
        trace.finish(&mut json).unwrap();
    });
    let file = check(&json);
    assert!(file.marks["P taken"] >= 1);
    assert!(file.marks["P handed on"] >= 1);
    assert!(file.marks["goroutine without P"] >= 1);
    let yields = file
        .all()
        .filter(|s| s.until.as_deref() == Some("end"))
        .count();
    assert!(yields >= 1);
}
