//! Calls on files that programs make seldom, or by mistake: numbers that are too large, names that cannot be,
//! unusual flags. The disk of a simulation gives the kernel's answers.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::temp::TempDir;
use crate::util;
use crate::util::PROMISE;
use windlass::fs::{self, AlignedBuf, DirBuilder, File, OpenOptions, Permissions};
use windlass::sim::{self, Disk, Sim};
use windlass::time::{Duration, Instant, sleep, timeout};
use windlass::{spawn, task};

/// Outcomes, each with the call that had it.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add<T: Debug>(&mut self, what: &str, outcome: io::Result<T>) {
        self.0.push(match outcome {
            Ok(value) => format!("{what} = {value:?}"),
            Err(e) => match e.raw_os_error() {
                Some(number) => format!("{what} = error {number}"),
                None => format!("{what} = {:?}", e.kind()),
            },
        });
    }
}

/// Notes the outcome of each call.
macro_rules! note {
    ($lines:ident; $($call:expr),* $(,)?) => {
        $($lines.add(stringify!($call), $call);)*
    };
}

/// Runs the body in a directory of the kernel and in one of a simulation, where it must give the
/// same lines.
fn same(body: impl Fn(&Path, &mut Lines) + Sync) {
    let temp = TempDir::new();
    let expected = util::run(2, || {
        let mut lines = Lines::default();
        body(temp.path(), &mut lines);
        lines.0
    });
    let found = RefCell::new(Vec::new());
    let report = Sim::new(PROMISE).seed(1).seeds(3).run(|| {
        // As deep as the other one.
        let dir = temp.path();
        fs::create_dir_all(dir).unwrap();
        let mut lines = Lines::default();
        body(dir, &mut lines);
        *found.borrow_mut() = lines.0;
    });
    report.unwrap_or_else(|failure| panic!("{failure}"));
    let found = found.into_inner();
    let pairs = expected.iter().zip(&found);
    let differ: Vec<_> = pairs
        .filter(|(expected, found)| expected != found)
        .collect();
    assert!(differ.is_empty(), "kernel, simulation: {differ:#?}");
    assert_eq!(expected.len(), found.len());
}

fn read_write(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(path).unwrap()
}

#[test]
fn positions_and_lengths_that_cannot_be() {
    same(|dir, lines| {
        let path = dir.join("f");
        let mut file = read_write(&path);
        file.write_all(b"0123456789").unwrap();
        const MAX: u64 = i64::MAX as u64;
        note!(lines;
            file.seek(SeekFrom::Start(u64::MAX)),
            file.seek(SeekFrom::Start(1 << 63)),
            file.seek(SeekFrom::End(i64::MAX)),
            file.seek(SeekFrom::End(-11)),
            file.seek(SeekFrom::Current(i64::MIN)),
            file.seek(SeekFrom::Current(i64::MAX)),
            file.seek(SeekFrom::Current(-1)),
            file.seek(SeekFrom::Current(1)),
            file.stream_position(),
        );
        let reader = File::open(&path).unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        let mut buf = [0; 10];
        for file in [&file, &reader, &writer] {
            for offset in [u64::MAX, 1 << 63, MAX, MAX - 5, MAX - 10, 1 << 44, 11, 10] {
                note!(lines;
                    file.read_at(&mut buf, offset),
                    file.read_at(&mut [], offset),
                    file.write_at(&[], offset),
                );
                // How long a file may be is a matter of the file system.
                if offset > MAX - 10 {
                    note!(lines; file.write_at(&buf, offset));
                }
            }
            note!(lines;
                file.set_len(u64::MAX),
                file.set_len(1 << 63),
                file.allocate(0, 0),
                file.allocate(0, u64::MAX),
                file.allocate(u64::MAX, 1),
                file.allocate(1 << 63, 1),
                file.allocate(MAX, MAX),
            );
        }
        file.set_len(1 << 40).unwrap();
        note!(lines;
            file.metadata().map(|m| (m.len(), m.blocks() < 100)),
            file.seek(SeekFrom::End(-3)),
            file.read(&mut buf),
            file.read(&mut buf),
            file.write(b"end"),
            file.stream_position(),
            file.read_at(&mut buf, 1 << 39),
            file.set_len(3),
            fs::read_to_string(&path),
        );
        let directory = File::open(dir).unwrap();
        note!(lines;
            (&directory).read(&mut []),
            (&directory).read(&mut buf),
            directory.read_at(&mut buf, 0),
            directory.read_at(&mut buf, u64::MAX),
            directory.write_at(&buf, 0),
            directory.set_len(0),
            directory.set_len(u64::MAX),
            directory.allocate(0, 1),
            directory.sync_data(),
        );
    });
}

#[test]
fn vectors_of_many_buffers_and_of_none() {
    same(|dir, lines| {
        let mut file = read_write(&dir.join("f"));
        let bytes: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
        let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        note!(lines;
            file.write_vectored(&[]),
            file.write_vectored(&[IoSlice::new(&[]), IoSlice::new(&[])]),
            file.write_vectored(&slices),
            file.stream_position(),
            file.write_vectored(&slices[1024..1026]),
            file.rewind(),
            file.read_vectored(&mut []),
            file.read_vectored(&mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])]),
        );
        let mut buf = vec![0; 3000];
        let mut slices: Vec<_> = buf.chunks_mut(1).map(IoSliceMut::new).collect();
        note!(lines; file.read_vectored(&mut slices), file.stream_position());
        let n = buf.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
        lines.0.push(format!("{n} bytes are right"));
    });
}

/// More bytes than the kernel takes in a call, all of them the same ones: the simulation must not
/// need memory for each.
#[test]
fn one_large_buffer_many_times() {
    let report = Sim::new(PROMISE).seed(1).seeds(1).run(|| {
        let big = vec![7; 64 << 20];
        let slices = vec![IoSlice::new(&big); 1024];
        let mut file = read_write(Path::new("/f"));
        sim::this_host().set_disk(Disk::new().capacity(1 << 20));
        let n = file.write_vectored(&slices).unwrap();
        assert!(n > 500 << 10 && n < 1 << 20, "{n}");
    });
    report.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn names_that_cannot_be() {
    same(|dir, lines| {
        let long = "n".repeat(255);
        let mut deep = dir.to_owned();
        while deep.as_os_str().len() < 4095 - 100 {
            deep.push("d".repeat(90));
        }
        fs::create_dir_all(&deep).unwrap();
        let of_length = |n: usize| deep.join("x".repeat(n - deep.as_os_str().len() - 1));
        let names: Vec<PathBuf> = vec![
            dir.join("nul\0byte"),
            dir.join(&long),
            dir.join(format!("{long}n")),
            dir.join(format!("{long}n/below")),
            of_length(4094),
            of_length(4095),
            of_length(4096),
            PathBuf::new(),
            dir.join(OsStr::from_bytes(b"\xff\xfe")),
            dir.join("..."),
            dir.join("a//b"),
            PathBuf::from(format!("{}/none/..", dir.display())),
            PathBuf::from(format!("{}/none/../more", dir.display())),
            PathBuf::from(format!("{}/.", dir.display())),
            PathBuf::from(format!("{}//", dir.display())),
        ];
        fs::write(dir.join("there"), "x").unwrap();
        for (n, path) in names.iter().enumerate() {
            lines.0.push(format!("name {n}"));
            note!(lines;
                File::open(path).map(drop),
                fs::metadata(path).map(|m| m.is_dir()),
                fs::exists(path),
                fs::read_link(path),
                fs::create_dir(path),
                fs::remove_dir(path),
                File::create(path).map(drop),
                fs::symlink(path, dir.join("link")),
                fs::read_link(dir.join("link")).map(|target| target == *path),
                fs::metadata(dir.join("link")).map(|m| m.is_dir()),
                File::create(dir.join("link")).map(drop),
                fs::remove_file(dir.join("link")),
                fs::rename(path, dir.join("there")),
                fs::rename(dir.join("there"), path),
                fs::write(dir.join("there"), "x"),
                fs::hard_link(path, dir.join("other")),
                fs::remove_file(dir.join("other")),
                fs::set_permissions(path, Permissions::from_mode(0o755)),
                fs::remove_file(path),
            );
        }
        for path in ["/", "/.", "/..", "//"] {
            note!(lines;
                fs::create_dir(path),
                fs::remove_dir(path),
                fs::remove_file(path),
                fs::rename(path, dir.join("x")),
                fs::rename(dir, path),
                fs::symlink("a", path),
                fs::hard_link(path, dir.join("x")),
                File::create(path).map(drop),
                fs::canonicalize(path),
            );
        }
    });
}

#[test]
fn links_and_renames_that_lead_into_themselves() {
    same(|dir, lines| {
        let at = |name: &str| dir.join(name);
        fs::create_dir_all(at("d/e/f")).unwrap();
        fs::write(at("file"), "x").unwrap();
        fs::hard_link(at("file"), at("same")).unwrap();
        fs::symlink("d", at("to-d")).unwrap();
        fs::symlink("loop", at("loop")).unwrap();
        fs::symlink("nowhere", at("dangling")).unwrap();
        fs::symlink("file/", at("slash")).unwrap();
        note!(lines;
            fs::rename(at("d"), at("d")),
            fs::rename(at("d"), at("d/e/f/g")),
            fs::rename(at("d"), at("d/e")),
            fs::rename(at("d/e"), at("d")),
            fs::rename(at("d"), at("to-d/e/x")),
            fs::rename(at("d"), at("to-d")),
            fs::rename(at("d/"), at("new/")),
            fs::rename(at("new"), at("d")),
            fs::rename(at("file"), at("same")),
            fs::rename(at("file"), at("d")),
            fs::rename(at("file"), at("none/x")),
            fs::rename(at("file/"), at("x")),
            fs::rename(at("file"), at("x/")),
            fs::rename(at("d"), at("file")),
            fs::rename(at("to-d/"), at("y")),
            fs::rename(at("y"), at("to-d/")),
            fs::rename(at("."), at("x")),
            fs::rename(at("d/.."), at("x")),
            fs::rename(at("d"), at("d/.")),
            fs::rename(at("loop"), at("loop2")),
            fs::rename(at("loop2"), at("loop")),
            fs::rename(at("loop/x"), at("z")),
            fs::hard_link(at("d"), at("x")),
            fs::hard_link(at("d"), at("d")),
            fs::hard_link(at("to-d"), at("x")),
            fs::remove_file(at("x")),
            fs::hard_link(at("to-d/"), at("x")),
            fs::hard_link(at("loop"), at("loop3")),
            fs::hard_link(at("dangling"), at("dangling2")),
            fs::hard_link(at("none"), at("x")),
            fs::hard_link(at("file"), at("x/")),
            fs::hard_link(at("file"), at("file/x")),
            fs::symlink("", at("x")),
            fs::symlink("a", at("file")),
            fs::symlink("a", at("x/")),
            fs::read_link(at("to-d/")),
            fs::read_link(at("loop/x")),
            fs::metadata(at("loop")).map(drop),
            fs::metadata(at("slash")).map(drop),
            fs::canonicalize(at("loop")),
            fs::canonicalize(at("dangling")),
            File::create(at("loop")).map(drop),
            File::create(at("slash")).map(drop),
            File::create_new(at("dangling")).map(drop),
            File::create(at("dangling")).map(drop),
            fs::exists(at("nowhere")),
            fs::remove_dir(at("to-d")),
            fs::remove_dir(at("to-d/")),
            fs::remove_dir(at("d/e/.")),
            fs::remove_dir(at("d/e/f/..")),
            fs::remove_dir(at("d")),
            fs::remove_file(at("d")),
            fs::remove_file(at("d/")),
            fs::remove_file(at("file/")),
            fs::remove_dir(at("file")),
            fs::remove_dir_all(at("file")),
            fs::remove_dir_all(at("none")),
            fs::remove_dir_all(at("loop")),
            fs::exists(at("loop")),
            fs::create_dir(at("dangling2")),
            fs::create_dir(at("to-d/")),
            fs::create_dir_all(at("to-d/e/f/g")),
            fs::create_dir_all(at("file/x")),
            fs::create_dir_all(at("dangling3/../x")),
            fs::copy(at("file"), at("same")),
            fs::copy(at("d"), at("x")),
            fs::copy(at("file"), at("d")),
        );
        for n in 0..42 {
            fs::symlink(format!("chain{}", n + 1), at(&format!("chain{n}"))).unwrap();
        }
        fs::write(at("chain42"), "end").unwrap();
        for n in 0..4 {
            note!(lines; fs::metadata(at(&format!("chain{n}"))).map(|m| m.len()));
        }
    });
}

#[test]
fn unusual_flags() {
    same(|dir, lines| {
        let at = |name: &str| dir.join(name);
        fs::write(at("file"), "text").unwrap();
        fs::symlink("file", at("link")).unwrap();
        fs::symlink(".", at("here")).unwrap();
        let flags = [
            0,
            libc::O_TMPFILE,
            libc::O_TMPFILE | libc::O_EXCL,
            libc::O_TMPFILE & !libc::O_DIRECTORY,
            libc::O_DIRECTORY,
            libc::O_DIRECTORY | libc::O_NOFOLLOW,
            libc::O_NOFOLLOW,
            libc::O_PATH,
            libc::O_PATH | libc::O_NOFOLLOW,
            libc::O_PATH | libc::O_DIRECTORY,
            libc::O_EXCL,
            libc::O_TRUNC,
            libc::O_APPEND,
            libc::O_SYNC,
            libc::O_NOATIME,
            libc::O_NONBLOCK,
            libc::O_CREAT,
            libc::O_CREAT | libc::O_EXCL,
            libc::O_CREAT | libc::O_DIRECTORY,
            libc::O_CREAT | libc::O_NOFOLLOW,
            libc::O_ASYNC,
            libc::O_NOCTTY,
        ];
        for name in ["file", "link", ".", "here", "none", "none/x", "file/x"] {
            for flag in flags {
                for (read, write, create) in [
                    (true, false, false),
                    (false, true, false),
                    (true, true, false),
                    (true, true, true),
                    (false, false, false),
                ] {
                    let mut options = OpenOptions::new();
                    options
                        .read(read)
                        .write(write)
                        .create(create)
                        .custom_flags(flag);
                    let opened = options.open(at(name));
                    let what = format!("open {name} {read} {write} {create} {flag:o}");
                    lines.add(&what, opened.as_ref().map(drop).map_err(copied));
                    if let Ok(mut file) = opened {
                        note!(lines;
                            file.read_at(&mut [0; 2], 0),
                            file.metadata().map(|m| (m.mode(), m.is_dir() || m.nlink() > 0)),
                            file.try_clone().map(drop),
                        );
                        if flag & libc::O_PATH != 0 {
                            note!(lines;
                                file.read(&mut [0; 2]),
                                file.read(&mut []),
                                file.write(&[]),
                                file.write(&[1]),
                                file.write_at(&[1], 0),
                                file.stream_position(),
                                file.set_len(1),
                                file.set_len(u64::MAX),
                                file.allocate(0, 1),
                                file.allocate(0, 0),
                                file.sync_all(),
                                file.sync_data(),
                                file.set_permissions(Permissions::from_mode(0o600)),
                                file.set_modified(std::time::SystemTime::UNIX_EPOCH),
                                file.try_lock().map_err(io::Error::from),
                                file.unlock(),
                            );
                        }
                    }
                    let _ = fs::remove_file(at("none"));
                    fs::write(at("file"), "text").unwrap();
                    fs::set_permissions(at("file"), Permissions::from_mode(0o644)).unwrap();
                }
            }
        }
    });
}

fn copied(e: &io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => e.kind().into(),
    }
}

#[test]
fn files_without_names() {
    same(|dir, lines| {
        let path = dir.join("f");
        let mut file = read_write(&path);
        let other = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        note!(lines;
            file.metadata().map(|m| (m.nlink(), m.len())),
            file.write(b"unseen"),
            other.read_at(&mut [0; 9], 0),
            file.sync_all(),
            file.set_len(3),
            file.set_permissions(Permissions::from_mode(0o600)),
            other.metadata().map(|m| (m.nlink(), m.len(), m.mode())),
            File::create_new(&path).map(drop),
            other.metadata().map(|m| m.len()),
        );
        let below = dir.join("d/e");
        fs::create_dir_all(&below).unwrap();
        let directory = File::open(&below).unwrap();
        let entries = fs::read_dir(&below).unwrap();
        fs::remove_dir_all(dir.join("d")).unwrap();
        note!(lines;
            directory.metadata().map(|m| (m.is_dir(), m.nlink())),
            directory.sync_all(),
            directory.set_permissions(Permissions::from_mode(0o700)),
            io::Result::Ok(entries.count()),
        );
        let mut builder = DirBuilder::new();
        note!(lines;
            builder.mode(0o7777).create(&below),
            builder.recursive(true).mode(0o7777).create(&below),
            fs::metadata(&below).map(|m| m.mode()),
            builder.create(&path),
            builder.create(""),
        );
    });
}

/// Runs `f` in simulations only.
#[track_caller]
fn check(sim: Sim, f: impl Fn()) {
    if let Err(failure) = sim.run(f) {
        panic!("{failure}");
    }
}

#[test]
fn a_file_that_is_too_large_for_the_memory() {
    check(Sim::new(PROMISE).seed(1).seeds(1), || {
        let mut file = read_write(Path::new("/f"));
        for (offset, len) in [(0, 1 << 43), (1 << 43, 1 << 43), (0, (1 << 30) + 1)] {
            let e = file.allocate(offset, len).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
        file.allocate(4096, 64 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(
            (metadata.len(), metadata.blocks()),
            (4096 + (64 << 20), (64 << 20) / 512)
        );
        // Where a file may end, and not farther.
        assert_eq!(file.seek(SeekFrom::Start(1 << 44)).unwrap(), 1 << 44);
        for offset in [(1 << 44) + 1, i64::MAX as u64] {
            let e = file.seek(SeekFrom::Start(offset)).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
            let e = file.set_len(offset).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EFBIG));
        }
        let e = file.write(b"x").unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EFBIG));
    });
}

#[test]
fn times_without_end() {
    let forever = Duration::ZERO..=Duration::MAX;
    let disk = Disk::new()
        .sync_time(forever.clone())
        .transfer_time(forever);
    check(Sim::new(PROMISE).seed(1).seeds(20).disk(disk), || {
        fs::write("/f", "x").unwrap();
        let synced = spawn(|| File::open("/f").unwrap().sync_all());
        sleep(Duration::from_secs(1));
        // If it is not done at once it is never done.
        if synced.is_finished() {
            synced.join().unwrap().unwrap();
        }
    });
}

/// As deep as paths can say.
#[test]
fn deep_directories() {
    check(Sim::new(PROMISE).seed(1).seeds(1), || {
        let deep: PathBuf = std::iter::once("/")
            .chain(std::iter::repeat_n("d", 2000))
            .collect();
        fs::create_dir_all(&deep).unwrap();
        assert!(fs::metadata(&deep).unwrap().is_dir());
        fs::write(deep.join("f"), "x").unwrap();
        fs::remove_dir_all("/d").unwrap();
        assert!(!fs::exists("/d").unwrap());
    });
}

#[test]
fn a_direct_read_that_is_cut_short_ends_with_a_sector() {
    let disk = Disk::new().short_reads(0.5);
    check(Sim::new(PROMISE).seed(1).seeds(30).disk(disk), || {
        fs::write("/f", [1; 5 * 512 + 100]).unwrap();
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_DIRECT);
        let mut file = options.open("/f").unwrap();
        let mut buf = AlignedBuf::zeroed(4096);
        let mut n = 0;
        while n < 5 * 512 + 100 {
            let more = file.read(&mut buf).unwrap();
            assert!(
                more.is_multiple_of(512) || n + more == 5 * 512 + 100,
                "{more}"
            );
            n += more;
        }
    });
}

/// The sync that began first may end last. What the other one wrote stays.
#[test]
fn attributes_that_were_synced_stay() {
    check(Sim::new(PROMISE).seed(1).seeds(200), || {
        let file = read_write(Path::new("/f"));
        file.sync_all().unwrap();
        File::open("/").unwrap().sync_all().unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        let other = file.try_clone().unwrap();
        let first = spawn(move || other.sync_all().unwrap());
        sim::settle();
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        file.sync_all().unwrap();
        first.join().unwrap();
        sim::this_host().crash_disk();
        assert_eq!(fs::metadata("/f").unwrap().mode() & 0o777, 0o640);
    });
}

/// Waiters are woken, and the first thing that one of them does is another call.
#[test]
fn many_wait_for_one_lock() {
    check(Sim::new(PROMISE).seed(1).seeds(100), || {
        let first = File::create("/lock").unwrap();
        first.lock().unwrap();
        let others: Vec<_> = (0..4)
            .map(|n| {
                spawn(move || {
                    let file = File::open("/lock").unwrap();
                    match n {
                        0 => file.lock_shared().unwrap(),
                        _ => file.lock().unwrap(),
                    }
                    fs::write("/who", [n]).unwrap();
                    task::yield_now();
                    assert_eq!(fs::read("/who").unwrap(), [n]);
                    match n {
                        1 => file.unlock().unwrap(),
                        2 => file.lock_shared().unwrap(),
                        _ => {}
                    }
                })
            })
            .collect();
        sim::settle();
        drop(first);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A wait for a lock is no `park`: it leaves the token of the goroutine alone. And a context that is
/// done does not end it.
#[test]
fn waits_for_locks_are_waits_of_their_own() {
    check(Sim::new(PROMISE).seed(1).seeds(50), || {
        let first = File::create("/lock").unwrap();
        first.lock().unwrap();
        let waits = spawn(|| {
            let file = File::open("/lock").unwrap();
            let begin = Instant::now();
            let _ = timeout(Duration::from_secs(1), || file.lock().unwrap());
            assert_eq!(begin.elapsed(), Duration::from_secs(5));
            task::park();
        });
        sleep(Duration::from_secs(2));
        waits.task().unpark();
        sleep(Duration::from_secs(3));
        drop(first);
        waits.join().unwrap();
    });
}

/// The kernel does not stop a sync that has begun.
#[test]
fn a_context_does_not_make_the_disk_faster() {
    let ms = Duration::from_millis(1);
    let disk = Disk::new()
        .sync_time(9 * ms..=9 * ms)
        .transfer_time(5 * ms..=5 * ms);
    check(Sim::new(PROMISE).seed(1).seeds(10).disk(disk), || {
        let file = read_write(Path::new("/f"));
        file.write_all_at(&[1; 5000], 0).unwrap();
        let begin = Instant::now();
        let _ = timeout(2 * ms, || file.sync_all().unwrap());
        assert_eq!(begin.elapsed(), 9 * ms);
        // Nor does it begin one for a context that is done.
        file.write_all_at(&[2; 5000], 0).unwrap();
        let begin = Instant::now();
        let over = timeout(2 * ms, || {
            sleep(3 * ms);
            let e = file.sync_all().unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        });
        assert!(over.is_err());
        assert_eq!(begin.elapsed(), 2 * ms);
        file.sync_all().unwrap();
        sim::this_host().crash_disk();
    });
}

/// A write whose sync fails has failed, and its position stands where it was.
#[test]
fn a_position_after_a_failed_write() {
    let disk = Disk::new().sync_errors(1.0);
    check(Sim::new(PROMISE).seed(1).seeds(10).disk(disk), || {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).custom_flags(libc::O_DSYNC);
        let mut file = options.open("/f").unwrap();
        let e = file.write(b"abc").unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EIO));
        assert_eq!(file.stream_position().unwrap(), 0);
    });
}

/// Needs a process of its own, whose descriptors are few.
#[test]
fn without_descriptors_nothing_is_created_or_cut() {
    const NAME: &str = "without_descriptors_nothing_is_created_or_cut";
    if util::child_case().is_none() {
        util::child_passes(NAME, "emfile");
        return;
    }
    check(Sim::new(PROMISE).seed(1).seeds(1), || {
        fs::write("/f", "text").unwrap();
        let before = util::open_fds();
        let soft = util::nofile_limits().0;
        util::set_nofile_limit(*before.keys().max().unwrap() as u64 + 20);
        let mut files = Vec::new();
        let e = loop {
            match File::open("/f") {
                Ok(file) => files.push(file),
                Err(e) => break e,
            }
        };
        assert_eq!(e.raw_os_error(), Some(libc::EMFILE));
        for path in ["/f", "/new"] {
            let e = File::create(path).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EMFILE));
        }
        assert!(!fs::exists("/new").unwrap());
        assert_eq!(files[0].metadata().unwrap().len(), 4);
        drop(files);
        util::set_nofile_limit(soft);
        assert_eq!(util::open_fds(), before);
        assert_eq!(fs::read("/f").unwrap(), b"text");
    });
}

/// Goroutines of a host that crashes hold files, wait for locks and syncs, and have given a
/// descriptor to `std`. In a process of its own, where nobody else opens anything.
#[test]
fn a_crash_leaves_nothing_open() {
    const NAME: &str = "a_crash_leaves_nothing_open";
    if util::child_case().is_none() {
        util::child_passes(NAME, "crash");
        return;
    }
    // A file that is opened once for a process is open from here on.
    check(Sim::new(PROMISE).seed(1).seeds(1), || {
        drop(read_write(Path::new("/f")))
    });
    let before = util::open_fds();
    let census = util::Census::default();
    let n_runs = std::cell::Cell::new(0);
    check(Sim::new(PROMISE).seed(1).seeds(20), || {
        n_runs.set(n_runs.get() + 1);
        let held = census.clone();
        let host = sim::host("db", [10, 0, 0, 1], move || {
            let lock = read_write(Path::new("/lock"));
            lock.lock().unwrap();
            let waits: Vec<_> = (0..3)
                .map(|n| {
                    let member = held.member();
                    spawn(move || {
                        let _member = member;
                        let mut file = read_write(Path::new("/lock"));
                        if n == 0 {
                            return file.lock().unwrap();
                        }
                        let given: std::fs::File = file.try_clone().unwrap().into();
                        loop {
                            file.write_all(&[n; 5000]).unwrap();
                            file.sync_all().unwrap();
                            assert!(given.metadata().is_ok());
                        }
                    })
                })
                .collect();
            waits.into_iter().for_each(|one| one.join().unwrap());
        });
        for _ in 0..3 {
            sleep(Duration::from_millis(20));
            host.crash();
            sleep(Duration::from_millis(5));
            host.restart();
        }
        host.crash();
        sleep(Duration::from_millis(5));
        assert_eq!(census.made(), census.dropped());
    });
    // The last life of the host may be too short for its goroutines.
    assert!(census.made() >= n_runs.get() * 3 * 3);
    assert_eq!(util::open_fds(), before);
}
