//! `windlass::fs`: what `std::fs` does, and goroutines that wait instead of threads.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs as std_fs;
use std::io::{self, BufWriter, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::temp::TempDir;
use crate::{fuse, util};
use windlass::channel::unbounded;
use windlass::fs::{self, AlignedBuf, DirBuilder, File, OpenOptions};
use windlass::time::{Elapsed, timeout};
use windlass::{spawn, yield_now};

/// Longer than any test waits for what does come.
const LONG: Duration = Duration::from_secs(600);
/// How long a test waits for what does not.
const SHORT: Duration = Duration::from_millis(20);

/// On a plain thread and on a goroutine.
fn both(test: impl Fn() + Send + Sync) {
    crate::util::on_thread_and_goroutine(2, test);
}

/// Throws a file's pages out of the cache. A simulated one keeps what it has.
fn make_cold(file: &impl AsFd) {
    if util::is_simulated() {
        return;
    }
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: plain integers on an open descriptor.
    let r =
        unsafe { libc::fdatasync(fd) | libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(r, 0);
}

fn pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    (
        File::from(OwnedFd::from(reader)),
        File::from(OwnedFd::from(writer)),
    )
}

/// Eight bytes that are the number of their place.
fn numbered(n: u64) -> Vec<u8> {
    (0..n).flat_map(u64::to_ne_bytes).collect()
}

/// Reads of what is in memory do not park, and yet others get their turn on the only P: within
/// far fewer of them than take 10 ms, from where on a P is taken away.
#[test]
fn reads_from_memory_give_way() {
    const READS: usize = 5000;
    crate::util::run(1, || {
        let dir = TempDir::new();
        let path = dir.path().join("file");
        fs::write(&path, [7; 4096]).unwrap();
        let file = File::open(&path).unwrap();
        let (sender, receiver) = unbounded();
        let n_heard = Arc::new(AtomicUsize::new(0));
        let listener = spawn({
            let n_heard = Arc::clone(&n_heard);
            move || {
                for () in receiver {
                    n_heard.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        yield_now();
        for n_sent in 1..=20 {
            sender.send(()).unwrap();
            let mut buf = [0; 4096];
            let mut n_reads = 0;
            while n_heard.load(Ordering::SeqCst) < n_sent {
                assert!(n_reads < READS, "message {n_sent} is not heard");
                file.read_exact_at(&mut buf, 0).unwrap();
                n_reads += 1;
            }
            assert!(buf.iter().all(|&byte| byte == 7) || n_reads == 0);
        }
        drop(sender);
        listener.join().unwrap();
    });
}

#[test]
fn a_file_is_written_and_read() {
    both(|| {
        let dir = TempDir::new();
        let path = dir.join("f");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"hello, ").unwrap();
        let parts = [IoSlice::new(b"big "), IoSlice::new(b"world")];
        assert_eq!(file.write_vectored(&parts).unwrap(), 9);
        assert_eq!(file.stream_position().unwrap(), 16);
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.seek(SeekFrom::Start(7)).unwrap(), 7);
        let (mut a, mut b) = ([0; 3], [0; 10]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(file.read_vectored(&mut bufs).unwrap(), 9);
        assert_eq!((&a, &b[..6]), (b"big", &b" world"[..]));
        assert_eq!(file.read(&mut b).unwrap(), 0);

        // At a position, which moves nothing.
        let mut five = [0; 5];
        file.read_exact_at(&mut five, 11).unwrap();
        assert_eq!(&five, b"world");
        file.write_all_at(b"wurst", 11).unwrap();
        assert_eq!(file.stream_position().unwrap(), 16);
        assert_eq!(file.read_at(&mut five, 14).unwrap(), 2);
        assert_eq!(file.read_at(&mut five, 99).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
        assert_eq!(file.read(&mut []).unwrap(), 0);
        assert_eq!(file.write(&[]).unwrap(), 0);
        let e = file.read_exact_at(&mut five, 14).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);

        assert_eq!(fs::read_to_string(&path).unwrap(), "hello, big wurst");
        file.rewind().unwrap();
        let mut clone = file.try_clone().unwrap();
        assert_eq!(clone.read(&mut five).unwrap(), 5);
        assert_eq!(file.stream_position().unwrap(), 5);
        let mut text = String::new();
        clone.read_to_string(&mut text).unwrap();
        assert_eq!(text, ", big wurst");

        let mut log = File::options().append(true).open(&path).unwrap();
        log.write_all(b"!").unwrap();
        file.set_len(17).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"hello, big wurst!");
        file.set_len(5).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5);
    });
}

#[test]
fn bytes_come_from_the_disk_when_the_cache_has_none() {
    both(|| {
        let dir = TempDir::new();
        let content = numbered(64 * 1024);
        fs::write(dir.join("f"), &content).unwrap();
        let mut file = File::open(dir.join("f")).unwrap();
        for round in 0..util::much(20, 1) {
            make_cold(&file);
            let mut buf = [0; 4096];
            for page in [0, 77, 13, 100, 126] {
                let at = page * 4096 + round;
                file.read_exact_at(&mut buf, at as u64).unwrap();
                assert_eq!(buf, content[at..at + 4096]);
            }
            make_cold(&file);
            file.seek(SeekFrom::Start(4096 * 50)).unwrap();
            file.read_exact(&mut buf).unwrap();
            assert_eq!(buf, content[4096 * 50..4096 * 51]);
            // Partly cached, and over the end.
            make_cold(&file);
            let end = content.len() as u64;
            file.read_exact_at(&mut buf, end - 4096).unwrap();
            let mut big = vec![0; 200_000];
            assert_eq!(file.read_at(&mut big, end - 100_000).unwrap(), 100_000);
            assert_eq!(big[..100_000], content[content.len() - 100_000..]);
        }
        make_cold(&file);
        file.rewind().unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all, content);
    });
}

/// After many reads from memory the next one does not ask whether the data is there.
#[test]
fn bytes_come_from_the_disk_after_many_that_did_not() {
    both(|| {
        let dir = TempDir::new();
        let content = numbered(8 * 1024);
        let path = dir.join("f");
        fs::write(&path, &content).unwrap();
        let mut file = File::open(&path).unwrap();
        let mut buf = [0; 512];
        let mut read_all = |file: &mut File, content: &[u8]| {
            file.rewind().unwrap();
            for (i, piece) in content.chunks(buf.len()).enumerate() {
                file.read_exact_at(&mut buf, (i * piece.len()) as u64)
                    .unwrap();
                assert_eq!(buf, piece);
                file.read_exact(&mut buf).unwrap();
                assert_eq!(buf, piece);
            }
            let end = content.len() as u64;
            assert_eq!(file.read_at(&mut buf, end).unwrap(), 0);
            assert_eq!(file.read(&mut buf).unwrap(), 0);
            assert_eq!(file.read_at(&mut buf, end - 100).unwrap(), 100);
        };
        for _ in 0..util::much(20, 5) {
            read_all(&mut file, &content);
        }
        make_cold(&file);
        read_all(&mut file, &content);
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_len(4096).unwrap();
        read_all(&mut file, &content[..4096]);
        writer.write_all_at(&content[..512], 4096).unwrap();
        read_all(&mut file, &[&content[..4096], &content[..512]].concat());
    });
}

/// Readers and writers that share a position must each have a piece of their own.
#[test]
fn goroutines_share_a_position_as_threads_do() {
    let n_records = util::much(4000, 200) as u64;
    crate::util::run(4, || {
        let dir = TempDir::new();
        let file = Arc::new(File::create_new(dir.join("f")).unwrap());
        let next = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let (file, next) = (Arc::clone(&file), Arc::clone(&next));
                spawn(move || {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed) as u64;
                        if n >= n_records {
                            return;
                        }
                        (&*file).write_all(&n.to_ne_bytes()).unwrap();
                        yield_now();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 8 * n_records);

        for cold in [false, true] {
            if cold {
                make_cold(&*file);
            }
            (&*file).rewind().unwrap();
            let readers: Vec<_> = (0..8)
                .map(|_| {
                    let file = Arc::clone(&file);
                    spawn(move || {
                        let mut seen = Vec::new();
                        let mut record = [0; 8];
                        while (&*file).read(&mut record).unwrap() == 8 {
                            seen.push(u64::from_ne_bytes(record));
                            yield_now();
                        }
                        seen
                    })
                })
                .collect();
            let mut all: Vec<_> = readers
                .into_iter()
                .flat_map(|r| r.join().unwrap())
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..n_records).collect::<Vec<_>>());
        }
    });
}

#[test]
fn direct_transfers_go_past_the_cache() {
    both(|| {
        let dir = TempDir::new();
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .custom_flags(libc::O_DIRECT)
            .open(dir.join("f"));
        let mut file = match opened {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                eprintln!("skipped: the file system has no O_DIRECT");
                return;
            }
            opened => opened.unwrap(),
        };
        let mut block = AlignedBuf::zeroed(8192);
        for at in 0..4_u8 {
            block.fill(at + 1);
            file.write_all_at(&block, u64::from(at) * 8192).unwrap();
        }
        block.fill(9);
        file.seek(SeekFrom::Start(4 * 8192)).unwrap();
        file.write_all(&block).unwrap();
        for at in [3, 0, 4] {
            file.read_exact_at(&mut block, at * 8192).unwrap();
            let byte = if at == 4 { 9 } else { at as u8 + 1 };
            assert!(block.iter().all(|&b| b == byte), "block {at}");
        }
        file.rewind().unwrap();
        file.read_exact(&mut block).unwrap();
        assert!(block.iter().all(|&b| b == 1));
        assert_eq!(file.read_at(&mut block, 5 * 8192).unwrap(), 0);
        // A kernel may take other addresses, but not an odd length.
        let e = file.read_at(&mut block[1..100], 1).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn names_are_made_changed_and_removed() {
    both(|| {
        let dir = TempDir::new();
        let at = |name: &str| dir.join(name);
        fs::create_dir(at("d")).unwrap();
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all(at("a/b/c")).unwrap();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(at("x/y"))
            .unwrap();
        assert_eq!(fs::metadata(at("x/y")).unwrap().mode() & 0o777, 0o700);
        fs::write(at("d/f"), "text").unwrap();
        fs::rename(at("d/f"), at("a/g")).unwrap();
        assert!(!fs::exists(at("d/f")).unwrap());
        fs::hard_link(at("a/g"), at("a/h")).unwrap();
        assert_eq!(fs::metadata(at("a/h")).unwrap().nlink(), 2);
        fs::symlink("a/h", at("s")).unwrap();
        assert_eq!(fs::read_link(at("s")).unwrap(), Path::new("a/h"));
        assert!(fs::symlink_metadata(at("s")).unwrap().is_symlink());
        assert!(fs::metadata(at("s")).unwrap().is_file());
        let whole = fs::canonicalize(at("s")).unwrap();
        assert_eq!(whole, fs::canonicalize(dir.path()).unwrap().join("a/h"));
        fs::set_permissions(at("a/h"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::copy(at("s"), at("copy")).unwrap(), 4);
        assert_eq!(fs::metadata(at("copy")).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read(at("copy")).unwrap(), b"text");

        let file = File::open(at("copy")).unwrap();
        let then = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(then).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), then);
        let then = then + Duration::from_secs(1);
        file.set_times(fs::FileTimes::new().set_modified(then))
            .unwrap();
        assert_eq!(fs::metadata(at("copy")).unwrap().modified().unwrap(), then);
        let own = file.metadata().unwrap();
        fs::chown(at("copy"), Some(own.uid()), Some(own.gid())).unwrap();
        fs::lchown(at("s"), None, Some(own.gid())).unwrap();

        let names: BTreeSet<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                assert_eq!(entry.path(), dir.path().join(entry.file_name()));
                assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
                let is_dir = entry.file_type().unwrap().is_dir();
                assert_eq!(is_dir, entry.metadata().unwrap().is_dir());
                entry.file_name().into_string().unwrap()
            })
            .collect();
        let expected = ["a", "copy", "d", "s", "x"].map(str::to_owned);
        assert_eq!(names, BTreeSet::from(expected));
        fs::remove_file(at("s")).unwrap();
        fs::remove_dir(at("d")).unwrap();
        fs::remove_dir_all(at("a")).unwrap();
        assert!(!fs::exists(at("a")).unwrap());
    });
}

/// Kind, number and text.
fn fault<T: Debug>(r: io::Result<T>) -> (io::ErrorKind, Option<i32>, String) {
    let e = r.expect_err("this must fail");
    (e.kind(), e.raw_os_error(), e.to_string())
}

#[test]
fn errors_are_those_of_std() {
    both(|| {
        let dir = TempDir::new();
        let (no, f, nul) = (dir.join("no"), dir.join("f"), dir.join("a\0b"));
        fs::write(&f, "x").unwrap();
        let inside = f.join("x");
        macro_rules! same {
            ($($call:tt)*) => {
                assert_eq!(
                    fault(fs::$($call)*), fault(std_fs::$($call)*), stringify!($($call)*)
                )
            };
        }
        for path in [&no, &nul, &inside] {
            same!(File::open(path));
            same!(read(path));
            same!(read_to_string(path));
            same!(read_dir(path).map(drop));
            same!(metadata(path));
            same!(symlink_metadata(path));
            same!(canonicalize(path));
            same!(remove_file(path));
            same!(remove_dir(path));
            same!(remove_dir_all(path));
            same!(rename(path, &f));
            same!(copy(path, &f));
            same!(hard_link(path, &f));
            same!(read_link(path));
            same!(set_permissions(path, fs::Permissions::from_mode(0o600)));
        }
        for path in [&nul, &inside] {
            same!(File::create(path));
            same!(create_dir(path));
            same!(write(path, "x"));
        }
        same!(create_dir(&f));
        same!(create_dir_all(&inside));
        same!(File::create_new(&f));
        same!(File::open(&f).and_then(|mut file| file.write(b"x")));
        same!(File::open(dir.path()).and_then(|mut file| file.read(&mut [0; 9])));
        same!(File::create(dir.path()));
        same!(copy(dir.path(), &no));
        same!(OpenOptions::new().open(&f));
        same!(OpenOptions::new().open("/dev/null"));
        same!(
            OpenOptions::new()
                .append(true)
                .truncate(true)
                .open("/dev/null")
        );
        same!(OpenOptions::new().read(true).truncate(true).open(&f));
        same!(OpenOptions::new().append(true).truncate(true).open(&f));
        same!(OpenOptions::new().create(true).open(&f));
        same!(File::open(&f).and_then(|file| file.read_at(&mut [0; 9], u64::MAX)));
        same!(File::open(&f).and_then(|file| file.read_at(&mut [0; 9], 1 << 63)));
        same!(
            File::options()
                .write(true)
                .open(&f)
                .and_then(|file| file.write_at(b"x", u64::MAX))
        );
        same!(File::open(&f).and_then(|mut file| file.seek(SeekFrom::Current(-1))));
        same!(
            File::options()
                .write(true)
                .open(&f)
                .and_then(|file| file.set_len(u64::MAX))
        );

        fs::write(&f, [0xff]).unwrap();
        same!(read_to_string(&f));
        let (reader, _writer) = pipe();
        assert_eq!(
            reader.read_at(&mut [0; 1], 0).unwrap_err().raw_os_error(),
            Some(libc::ESPIPE)
        );
        let file = File::create(&f).unwrap();
        assert_eq!(
            file.allocate(0, 0).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            file.allocate(u64::MAX, 1).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    });
}

#[test]
fn lengths_beyond_the_kernels_are_cut() {
    const LEN: usize = (4 << 30) + 1;
    both(|| {
        // SAFETY: an anonymous mapping of its own; the pages that nobody writes are all the same.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the mapping is LEN bytes of zeros and nobody else's.
        let huge = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN) };
        let dir = TempDir::new();
        fs::write(dir.join("f"), "small").unwrap();
        let mut file = File::open(dir.join("f")).unwrap();
        assert_eq!(file.read(huge).unwrap(), 5);
        assert_eq!(file.read_at(huge, 1).unwrap(), 4);
        let mut null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
        assert_eq!(null.write(huge).unwrap(), 0x7fff_f000);
        assert_eq!(null.write_at(huge, 0).unwrap(), 0x7fff_f000);
        assert_eq!(null.read(huge).unwrap(), 0);
        let many = vec![IoSlice::new(b"ab"); 5000];
        assert_eq!(null.write_vectored(&many).unwrap(), 2048);
        // SAFETY: the mapping from above, whose slice is not used any more.
        unsafe { libc::munmap(at, LEN) };
    });
}

#[test]
fn holes_are_zeros_and_allocated_room_is_room() {
    both(|| {
        const FAR: u64 = 1 << 36;
        let dir = TempDir::new();
        let file = File::create_new(dir.join("f")).unwrap();
        file.write_all_at(b"end", FAR).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), FAR + 3);
        assert!(metadata.blocks() < 1 << 16, "the hole takes room");
        let mut buf = [7; 5000];
        file.read_exact_at(&mut buf, FAR - 5000).unwrap();
        assert_eq!(buf, [0; 5000]);
        file.set_len(0).unwrap();
        match file.allocate(0, 1 << 20) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => eprintln!("skipped: no fallocate"),
            done => {
                done.unwrap();
                let metadata = file.metadata().unwrap();
                assert_eq!(metadata.len(), 1 << 20);
                assert!(metadata.blocks() >= 1 << 11);
            }
        }
    });
}

#[test]
fn a_thousand_files_are_read_at_once() {
    crate::util::run(4, || {
        let n_files = util::much(1000, 20) as u64;
        let dir = TempDir::new();
        let file = Arc::new(File::create_new(dir.join("f")).unwrap());
        (&*file).write_all(&numbered(512 * n_files)).unwrap();
        make_cold(&*file);
        let readers: Vec<_> = (0..n_files)
            .map(|i| {
                let (file, path) = (Arc::clone(&file), dir.join(&i.to_string()));
                spawn(move || {
                    fs::write(&path, i.to_string()).unwrap();
                    let mut page = [0; 4096];
                    file.read_exact_at(&mut page, i * 4096).unwrap();
                    let numbers: Vec<_> = (i * 512..(i + 1) * 512)
                        .flat_map(u64::to_ne_bytes)
                        .collect();
                    assert_eq!(page[..], numbers);
                    assert_eq!(fs::read_to_string(&path).unwrap(), i.to_string());
                    fs::remove_file(&path).unwrap();
                })
            })
            .collect();
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
}

#[test]
fn a_read_of_a_pipe_parks() {
    // One P: if it blocked, nobody would write.
    crate::util::run(1, || {
        let (mut reader, mut writer) = pipe();
        let task = spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        yield_now();
        // More than a pipe holds: this parks, too.
        let bytes = numbered(100_000);
        writer.write_all(&bytes).unwrap();
        let bufs = [IoSlice::new(b"the "), IoSlice::new(b"end")];
        assert_eq!(writer.write_vectored(&bufs).unwrap(), 7);
        drop(writer);
        let all = task.join().unwrap();
        assert_eq!(all.len(), bytes.len() + 7);
        assert_eq!(all[..bytes.len()], bytes);
        assert_eq!(&all[bytes.len()..], b"the end");

        let (mut reader, mut writer) = pipe();
        let task = spawn(move || {
            let (mut a, mut b) = ([0; 2], [0; 5]);
            let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            (reader.read_vectored(&mut bufs).unwrap(), a, b)
        });
        yield_now();
        writer.write_all(b"abcd").unwrap();
        assert_eq!(task.join().unwrap(), (4, *b"ab", *b"cd\0\0\0"));
        // Without a reader: an error, and no signal.
        let e = writer.write_all(b"x").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
    });
}

/// A pipe takes up to `PIPE_BUF` bytes in one piece, also from several buffers: writers that share it do not mix their lines.
#[test]
fn several_buffers_go_into_a_fifo_in_one_piece() {
    let dir = TempDir::new();
    let path = dir.fifo("p");
    both(|| {
        let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
        // Plain threads make attempts only where something may end their wait.
        fifo.set_write_deadline(Some(Instant::now() + LONG));
        let line = [1_u8, 0, 250, 90].map(|n| vec![n; 12 * usize::from(n)]);
        let bufs: Vec<_> = line.iter().map(|buf| IoSlice::new(buf)).collect();
        assert_eq!(fifo.write_vectored(&bufs).unwrap(), 12 * 341);
        let mut whole = vec![0; 12 * 341];
        fifo.read_exact(&mut whole).unwrap();
        assert_eq!(whole, line.concat());
        // One that has no room in a page goes by parts, and the one after it is not lost.
        let large = [vec![2; 5000], vec![3; 1]];
        let bufs: Vec<_> = large.iter().map(|buf| IoSlice::new(buf)).collect();
        let n = fifo.write_vectored(&bufs).unwrap();
        assert!((4096..=5001).contains(&n), "{n}");
        let mut some = vec![0; n];
        fifo.read_exact(&mut some).unwrap();
        assert_eq!(some, large.concat()[..n]);
    });
}

#[test]
fn opening_a_fifo_waits_for_the_other_side() {
    crate::util::run(1, || {
        let dir = TempDir::new();
        for reader_first in [true, false] {
            let path = dir.fifo(if reader_first { "r" } else { "w" });
            let opened = Arc::new(AtomicBool::new(false));
            let (path2, opened2) = (path.clone(), Arc::clone(&opened));
            let task = spawn(move || {
                let mut file = if reader_first {
                    File::open(path2).unwrap()
                } else {
                    File::options().write(true).open(path2).unwrap()
                };
                opened2.store(true, Ordering::SeqCst);
                if reader_first {
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    text
                } else {
                    file.write_all(b"to the reader").unwrap();
                    String::new()
                }
            });
            windlass::sleep(SHORT);
            assert!(!opened.load(Ordering::SeqCst), "nobody is there");
            if reader_first {
                fs::write(&path, "from the writer").unwrap();
                assert_eq!(task.join().unwrap(), "from the writer");
            } else {
                assert_eq!(fs::read(&path).unwrap(), b"to the reader");
                task.join().unwrap();
            }
        }
    });
}

#[test]
fn many_fifos_may_wait_to_be_opened() {
    crate::util::run(2, || {
        let dir = Arc::new(TempDir::new());
        let paths: Vec<_> = (0..60).map(|i| dir.fifo(&i.to_string())).collect();
        let readers: Vec<_> = paths
            .iter()
            .cloned()
            .map(|path| spawn(move || fs::read(path).unwrap()))
            .collect();
        windlass::sleep(SHORT);
        // Goroutines that wait hold up no others.
        let file = File::create(dir.join("f")).unwrap();
        file.sync_all().unwrap();
        for (i, path) in paths.iter().enumerate().rev() {
            fs::write(path, i.to_string()).unwrap();
        }
        for (i, reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.join().unwrap(), i.to_string().as_bytes());
        }
    });
}

/// The kernel's threads count as this process's, so they show in its list of threads.
#[test]
fn opens_of_fifos_that_wait_hold_no_threads() {
    const OPENS: usize = 150;
    if util::child_case().is_none() {
        util::child_passes("opens_of_fifos_that_wait_hold_no_threads", "");
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    crate::util::run(2, || {
        let dir = TempDir::new();
        let before = threads();
        let begun = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..OPENS)
            .map(|i| {
                let (path, begun) = (dir.fifo(&i.to_string()), Arc::clone(&begun));
                spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    match i % 2 {
                        0 => fs::read(path).unwrap().len(),
                        _ => fs::write(path, b"four").map(|()| 4).unwrap(),
                    }
                })
            })
            .collect();
        util::wait_until(|| begun.load(Ordering::SeqCst) == OPENS);
        windlass::sleep(SHORT);
        let most = threads();
        assert!(most < before + OPENS / 4, "{before} and then {most}");
        // Both sides may be looked for by goroutines.
        for (i, task) in tasks.into_iter().enumerate() {
            let path = dir.join(&i.to_string());
            match i % 2 {
                0 => fs::write(path, b"four").unwrap(),
                _ => assert_eq!(fs::read(path).unwrap(), b"four"),
            }
            assert_eq!(task.join().unwrap(), 4);
        }
    });
}

#[test]
fn a_deadline_ends_a_wait_and_loses_nothing() {
    both(|| {
        let dir = TempDir::new();
        let path = dir.fifo("p");
        // For both sides, so that opening does not wait.
        let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
        let mut buf = [0; 8];
        for _ in 0..10 {
            fifo.set_read_deadline(Some(Instant::now() + Duration::from_millis(2)));
            let e = fifo.read(&mut buf).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
            // Passed for good, also with bytes there.
            fifo.write_all(b"late").unwrap();
            assert_eq!(
                fifo.read(&mut buf).unwrap_err().kind(),
                io::ErrorKind::WouldBlock
            );
            fifo.set_read_deadline(Some(Instant::now() + LONG));
            assert_eq!(fifo.read(&mut buf).unwrap(), 4);
            assert_eq!(&buf[..4], b"late");
        }
        fifo.set_write_deadline(Some(Instant::now() + SHORT));
        let bufs = [IoSlice::new(&[]), IoSlice::new(&[1; 10_000])];
        assert!(fifo.write_vectored(&bufs).unwrap() >= 4096);
        let full = fifo.write_all(&vec![1; 10 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        fifo.set_write_deadline(None);
        fifo.set_read_deadline(None);
        assert_eq!(fifo.read(&mut buf).unwrap(), 8);

        let file = File::create_new(dir.join("f")).unwrap();
        file.set_read_deadline(Some(Instant::now()));
        assert_eq!(
            file.read_at(&mut buf, 0).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        file.write_all_at(b"x", 0).unwrap();
        file.set_read_deadline(None);
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 1);
    });
}

#[test]
fn a_context_ends_waits_for_pipes() {
    both(|| {
        let dir = TempDir::new();
        let path = dir.fifo("p");
        let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
        let mut buf = [0; 8];
        for _ in 0..10 {
            let cut = timeout(Duration::from_millis(2), || {
                assert_eq!(
                    fifo.read(&mut buf).unwrap_err().kind(),
                    io::ErrorKind::TimedOut
                );
            });
            assert_eq!(cut, Err(Elapsed::default()));
        }
        // On a busy machine the time may be up before the first byte.
        fifo.write_all(b"8 bytes!").unwrap();
        let much = vec![1; 10 << 20];
        assert!(timeout(SHORT, || fifo.write_all(&much).map(drop)).is_err());
        assert_eq!(fifo.read(&mut buf).unwrap(), 8);
    });
}

/// Nobody comes to the other side.
#[test]
fn a_context_ends_the_opening_of_a_fifo() {
    crate::util::run(2, || {
        let dir = TempDir::new();
        let path = dir.fifo("p");
        for write in [false, true] {
            let cut = timeout(Duration::from_millis(2), || {
                let opened = File::options().read(!write).write(write).open(&path);
                assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::TimedOut);
            });
            assert_eq!(cut, Err(Elapsed::default()));
        }
    });
}

/// The deadline races with the writer: what the read did not get, the next one does.
#[test]
fn a_deadline_that_races_with_bytes_loses_none() {
    crate::util::run(2, || {
        let (mut reader, mut writer) = pipe();
        let task = spawn(move || {
            for i in 0..400_u64 {
                windlass::sleep(Duration::from_micros(50 + i % 7 * 10));
                writer.write_all(&i.to_ne_bytes()).unwrap();
            }
        });
        let mut next = 0;
        let mut record = [0; 8];
        while next < 400 {
            reader.set_read_deadline(Some(Instant::now() + Duration::from_micros(80)));
            match reader.read(&mut record) {
                Ok(8) => {
                    assert_eq!(u64::from_ne_bytes(record), next);
                    next += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => panic!("{other:?}"),
            }
        }
        task.join().unwrap();
    });
}

#[test]
fn a_run_ends_with_reads_and_opens_that_wait() {
    // A process of its own: nobody else opens and closes descriptors.
    if util::child_case().is_none() {
        util::child_passes("a_run_ends_with_reads_and_opens_that_wait", "end");
        return;
    }
    let census = util::Census::default();
    let fds = util::open_fds().len();
    for _ in 0..3 {
        let dir = TempDir::new();
        let (both, never, fifo) = (dir.fifo("both"), dir.fifo("never"), dir.fifo("fifo"));
        util::runtime(2).run(|| {
            let (mut reader, writer) = pipe();
            let member = census.member();
            spawn(move || {
                let _held = (member, writer);
                let _ = reader.read(&mut [0; 8]);
                unreachable!("nobody writes");
            });
            let mut both = File::options().read(true).write(true).open(&both).unwrap();
            let member = census.member();
            spawn(move || {
                let _member = member;
                let _ = both.read(&mut [0; 8]);
                unreachable!("nobody writes");
            });
            for write in [true, false] {
                let (member, never) = (census.member(), never.clone());
                let path = if write { never } else { fifo.clone() };
                spawn(move || {
                    let _member = member;
                    let opened = File::options().read(!write).write(write).open(path);
                    unreachable!("nobody is on the other side: {opened:?}");
                });
            }
            windlass::sleep(SHORT);
        });
    }
    census.assert_all_dropped(12);
    assert_eq!(util::open_fds().len(), fds);
}

#[test]
fn destructors_still_write_when_a_run_ends() {
    let _guard = util::hang_guard();
    let dir = TempDir::new();
    let path = dir.join("log");
    util::runtime(2).run(|| {
        let file = File::create(&path).unwrap();
        let (mut reader, writer) = pipe();
        let waiting = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&waiting);
        spawn(move || {
            let _writer = writer;
            let mut log = BufWriter::new(file);
            log.write_all(b"last words").unwrap();
            flag.store(true, Ordering::SeqCst);
            let _ = reader.read(&mut [0; 1]);
        });
        util::wait_until(|| waiting.load(Ordering::SeqCst));
    });
    assert_eq!(std_fs::read(&path).unwrap(), b"last words");
}

/// Goroutines that wait for a lock leave threads to others: the holder may need one before it unlocks.
#[test]
fn waits_for_a_lock_leave_threads_to_others() {
    const WAITERS: usize = 560;
    crate::util::run(2, || {
        let dir = TempDir::new();
        let (path, copy) = (dir.join("lock"), dir.join("copy"));
        let holder = File::create(&path).unwrap();
        holder.lock().unwrap();
        let begun = AtomicUsize::new(0);
        windlass::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let file = File::open(&path).unwrap();
                    begun.fetch_add(1, Ordering::SeqCst);
                    file.lock().unwrap();
                });
            }
            crate::util::wait_until(|| begun.load(Ordering::SeqCst) == WAITERS);
            windlass::sleep(SHORT);
            fs::copy(&path, &copy).unwrap();
            holder.unlock().unwrap();
        });
    });
}

#[test]
fn locks_exclude_each_other() {
    crate::util::run(1, || {
        let dir = TempDir::new();
        let path = dir.join("lock");
        let first = File::create(&path).unwrap();
        first.lock().unwrap();
        let second = File::open(&path).unwrap();
        assert!(matches!(
            second.try_lock(),
            Err(fs::TryLockError::WouldBlock)
        ));
        assert!(matches!(
            second.try_lock_shared(),
            Err(fs::TryLockError::WouldBlock)
        ));
        let freed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&freed);
        let task = spawn(move || {
            second.lock().unwrap();
            assert!(flag.load(Ordering::SeqCst));
            second.unlock().unwrap();
            second.lock_shared().unwrap();
            second
        });
        windlass::sleep(SHORT);
        freed.store(true, Ordering::SeqCst);
        first.unlock().unwrap();
        let second = task.join().unwrap();
        first.lock_shared().unwrap();
        drop(second);
        // A child that another test starts may have a copy of it for a moment.
        first.lock().unwrap();
    });
}

#[test]
fn files_are_exchanged_with_std() {
    both(|| {
        let dir = TempDir::new();
        let mut file = File::from(std_fs::File::create_new(dir.join("f")).unwrap());
        file.write_all(b"abc").unwrap();
        let text = format!("{file:?}");
        assert!(
            text.starts_with("File {") && text.contains("/f\""),
            "{text}"
        );
        let fd = file.as_raw_fd();
        let std_file = std_fs::File::from(file);
        assert_eq!(std_file.as_raw_fd(), fd);
        let file = File::from(OwnedFd::from(std_file));
        let mut std_file = std_fs::File::from(OwnedFd::from(file));
        std_file.rewind().unwrap();
        let mut text = String::new();
        std_file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");

        // A descriptor that does not wait goes on not to.
        let (reader, _writer) = io::pipe().unwrap();
        let on: libc::c_int = 1;
        // SAFETY: the argument of FIONBIO is a valid integer.
        let r = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONBIO, &raw const on) };
        assert_eq!(r, 0);
        let mut reader = File::from(OwnedFd::from(reader));
        assert_eq!(
            reader.read(&mut [0; 1]).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );

        let mut random = File::open("/dev/urandom").unwrap();
        let mut bytes = [0; 64];
        random.read_exact(&mut bytes).unwrap();
        assert_ne!(bytes, [0; 64]);
        assert!(
            fs::read_to_string("/proc/self/status")
                .unwrap()
                .contains("Threads:")
        );
    });
}

/// A goroutine that only works on files sees the end of its run.
#[test]
fn a_goroutine_that_never_waits_is_cancelled_at_a_file() {
    let _guard = util::hang_guard();
    let dir = TempDir::new();
    util::runtime(2).run(|| {
        for i in 0..3 {
            let path = dir.join(&i.to_string());
            let file = File::create_new(&path).unwrap();
            spawn(move || {
                loop {
                    match i {
                        0 => drop(fs::metadata(&path)),
                        1 => file.write_all_at(b"x", 0).unwrap(),
                        _ => drop(file.read_at(&mut [0; 1], 0)),
                    }
                }
            });
        }
        yield_now();
    });
}

/// Needs a process of its own, whose descriptors are few.
#[test]
fn without_descriptors_there_is_an_error_and_no_leak() {
    if util::child_case().is_none() {
        util::child_passes(
            "without_descriptors_there_is_an_error_and_no_leak",
            "emfile",
        );
        return;
    }
    both(|| {
        let dir = TempDir::new();
        fs::write(dir.join("f"), "x").unwrap();
        let fifo = dir.fifo("p");
        let soft = util::nofile_limits().0;
        let open = util::open_fds();
        util::set_nofile_limit(*open.keys().max().unwrap() as u64 + 20);
        let mut files = Vec::new();
        let e = loop {
            match File::open(dir.join("f")) {
                Ok(file) => files.push(file),
                Err(e) => break e,
            }
        };
        assert_eq!(e.raw_os_error(), Some(libc::EMFILE));
        assert!(files[0].try_clone().is_err());
        assert!(fs::read_dir(dir.path()).is_err());
        assert!(fs::copy(dir.join("f"), dir.join("g")).is_err());
        assert!(File::options().read(true).write(true).open(&fifo).is_err());
        let mut buf = [0; 1];
        assert_eq!(files[3].read_at(&mut buf, 0).unwrap(), 1);
        drop(files);
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"x");
        util::set_nofile_limit(soft);
        assert_eq!(util::open_fds(), open);
    });
}

/// A goroutine's call on a file whose server stops; the steps before it are done at once.
fn call_of(case: &str, dir: &Path) -> Box<dyn FnOnce() + Send> {
    let (slow, file) = (dir.join("slow"), dir.join("file"));
    match case {
        "metadata" => Box::new(move || {
            let e = fs::metadata(slow).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::NotFound);
        }),
        "open" => Box::new(move || {
            let e = File::open(slow).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::NotFound);
        }),
        "read" => {
            let mut file = File::open(file).unwrap();
            Box::new(move || assert_eq!(file.read(&mut [0; 10]).unwrap(), 4))
        }
        "read_at" => {
            let file = File::open(file).unwrap();
            Box::new(move || assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 4))
        }
        "write" => {
            let mut file = File::options().write(true).open(file).unwrap();
            Box::new(move || assert_eq!(file.write(b"more").unwrap(), 4))
        }
        "close" => {
            let file = File::open(file).unwrap();
            Box::new(move || drop(file))
        }
        _ => unreachable!(),
    }
}

/// A thread that waits for a file server reports no completion of what it has submitted to its
/// ring for other goroutines; so it must be another thread. In a process of its own, which
/// mounts a file system.
#[test]
fn a_file_server_that_stops_holds_up_nobody_else() {
    let Some(case) = util::child_case() else {
        for case in ["metadata", "open", "read", "read_at", "write", "close"] {
            util::child_passes("a_file_server_that_stops_holds_up_nobody_else", case);
        }
        return;
    };
    let temp = TempDir::new();
    let dir = temp.path().to_owned();
    let device = match fuse::mount(&dir) {
        Ok(device) => device,
        Err(e) => return eprintln!("no file system can be mounted here ({e}): not tested"),
    };
    let (stopped, when_stopped) = std::sync::mpsc::channel();
    let (go, when_to_go) = std::sync::mpsc::channel();
    std::thread::spawn(move || fuse::serve(device, &stopped, &when_to_go));
    let rt = util::build(windlass::Builder::new().processors(1).max_processors(1)).unwrap();
    rt.run(|| {
        let (mut near, mut far) = util::pair();
        let call = call_of(&case, &dir);
        let (came, when_come) = std::sync::mpsc::channel();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let reader = spawn(move || {
            near.read_exact(&mut [0]).unwrap();
            came.send(()).unwrap();
        });
        // It waits by now, for an operation of this thread.
        windlass::sleep(Duration::from_millis(20));
        let outside = std::thread::spawn(move || {
            when_stopped.recv().unwrap();
            // Now the call waits for the server.
            std::io::Write::write_all(&mut far, &[1]).unwrap();
            let has_come = when_come.recv_timeout(Duration::from_secs(10)).is_ok();
            go.send(()).unwrap();
            // Closing asks, too.
            while !is_done.load(Ordering::Relaxed) {
                if when_stopped.recv_timeout(SHORT).is_ok() {
                    go.send(()).unwrap();
                }
            }
            has_come
        });
        call();
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        assert!(
            windlass::blocking(|| outside.join().unwrap()),
            "the reader's byte came with the answer"
        );
    });
    fuse::unmount(&dir);
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    reads_from_memory_give_way: "it asks for the fairness of a scheduler",
    a_file_is_written_and_read,
    bytes_come_from_the_disk_when_the_cache_has_none,
    bytes_come_from_the_disk_after_many_that_did_not,
    goroutines_share_a_position_as_threads_do,
    direct_transfers_go_past_the_cache,
    names_are_made_changed_and_removed,
    errors_are_those_of_std: "it compares with std::fs",
    lengths_beyond_the_kernels_are_cut: "it writes to a device",
    holes_are_zeros_and_allocated_room_is_room,
    a_thousand_files_are_read_at_once,
    a_read_of_a_pipe_parks: "it has a pipe of std's",
    several_buffers_go_into_a_fifo_in_one_piece: "a simulated disk has no FIFOs",
    opening_a_fifo_waits_for_the_other_side: "a simulated disk has no FIFOs",
    many_fifos_may_wait_to_be_opened: "a simulated disk has no FIFOs",
    opens_of_fifos_that_wait_hold_no_threads: "it has a process of its own",
    a_deadline_ends_a_wait_and_loses_nothing: "a simulated disk has no FIFOs",
    a_context_ends_waits_for_pipes: "a simulated disk has no FIFOs",
    a_context_ends_the_opening_of_a_fifo: "a simulated disk has no FIFOs",
    a_deadline_that_races_with_bytes_loses_none: "it has a pipe of std's",
    a_run_ends_with_reads_and_opens_that_wait: "it has a process of its own",
    destructors_still_write_when_a_run_ends: "it has a runtime of its own",
    waits_for_a_lock_leave_threads_to_others: "it is about threads",
    locks_exclude_each_other,
    files_are_exchanged_with_std: "it has files and pipes of std's",
    a_goroutine_that_never_waits_is_cancelled_at_a_file: "it has a runtime of its own",
    without_descriptors_there_is_an_error_and_no_leak: "it has a process of its own",
    a_file_server_that_stops_holds_up_nobody_else: "it has a process of its own",
}
