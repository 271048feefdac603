//! `windlass::fs` on the disk of a simulation does what it does on the kernel's: the same tests run
//! on both.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::temp::TempDir;
use crate::util;
use crate::util::PROMISE;
use windlass::fs::{self, AlignedBuf, DirBuilder, File, FileTimes, OpenOptions, TryLockError};
use windlass::sim::Sim;

/// Runs the body in memory under 40 seeds, and then in a directory of the kernel. It is given an
/// empty directory.
fn on_both(body: impl Fn(&Path) + Sync) {
    let report = Sim::new(PROMISE).seed(1).seeds(40).run(|| {
        let dir = Path::new("/tmp/here");
        fs::create_dir(dir).unwrap();
        body(dir);
        fs::remove_dir_all(dir).unwrap();
    });
    report.unwrap_or_else(|failure| panic!("{failure}"));
    let dir = TempDir::new();
    util::run(2, || body(dir.path()));
}

/// The number of the error.
#[track_caller]
fn errno<T: Debug>(outcome: io::Result<T>) -> i32 {
    let e = outcome.expect_err("it fails");
    e.raw_os_error().unwrap_or_else(|| panic!("{e:?}"))
}

fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn files_are_read_and_written() {
    on_both(|dir| {
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

        let mut five = [0; 5];
        file.read_exact_at(&mut five, 11).unwrap();
        assert_eq!(&five, b"world");
        file.write_all_at(b"wurst", 11).unwrap();
        assert_eq!(file.stream_position().unwrap(), 16);
        assert_eq!(file.read_at(&mut five, 14).unwrap(), 2);
        assert_eq!(file.read_at(&mut five, 99).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
        assert_eq!(file.write(&[]).unwrap(), 0);
        assert_eq!(errno(file.read_at(&mut five, u64::MAX)), libc::EINVAL);
        assert_eq!(errno(file.write_at(&five, u64::MAX)), libc::EINVAL);

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
        assert_eq!(log.stream_position().unwrap(), 17);
        log.rewind().unwrap();
        log.write_all(b"?").unwrap();
        // As Linux has it: the position plays no part.
        assert_eq!(log.write_at(b".", 0).unwrap(), 1);
        assert_eq!(fs::read(&path).unwrap(), b"hello, big wurst!?.");
        file.set_len(5).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5);
    });
}

#[test]
fn holes_are_zeros() {
    on_both(|dir| {
        let path = dir.join("f");
        let file = File::create_new(&path).unwrap();
        file.write_all_at(b"x", 10_000).unwrap();
        let mut expected = vec![0; 10_001];
        expected[10_000] = b'x';
        assert_eq!(fs::read(&path).unwrap(), expected);
        file.write_all_at(&[b'y'; 5000], 4000).unwrap();
        expected[4000..9000].fill(b'y');
        assert_eq!(fs::read(&path).unwrap(), expected);
        // Bytes that were cut off do not come back.
        file.set_len(4500).unwrap();
        file.set_len(9000).unwrap();
        expected.truncate(4500);
        expected.resize(9000, 0);
        assert_eq!(fs::read(&path).unwrap(), expected);
        file.allocate(8000, 4000).unwrap();
        expected.resize(12_000, 0);
        assert_eq!(fs::read(&path).unwrap(), expected);
        assert_eq!(errno(file.allocate(0, 0)), libc::EINVAL);
        let mut file = file;
        assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 11_995);
        assert_eq!(file.seek(SeekFrom::Current(100)).unwrap(), 12_095);
        assert_eq!(file.read(&mut [0; 9]).unwrap(), 0);
        assert_eq!(errno(file.seek(SeekFrom::Current(-12_096))), libc::EINVAL);
        assert_eq!(file.write(b"end").unwrap(), 3);
        assert_eq!(file.metadata().unwrap().len(), 12_098);
    });
}

#[test]
fn the_mode_of_opening_counts() {
    on_both(|dir| {
        let path = dir.join("f");
        let open = || OpenOptions::new();
        assert_eq!(errno(open().read(true).open(&path)), libc::ENOENT);
        assert_eq!(errno(open().write(true).open(&path)), libc::ENOENT);
        for wrong in [
            open().open(&path),
            open().read(true).truncate(true).open(&path),
            open().read(true).create(true).open(&path),
            open().append(true).truncate(true).open(&path),
        ] {
            assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let mut file = File::create(&path).unwrap();
        file.write_all(b"old").unwrap();
        assert_eq!(errno(file.read(&mut [0; 4])), libc::EBADF);
        assert_eq!(errno(file.read_at(&mut [0; 4], 0)), libc::EBADF);
        let mut reader = File::open(&path).unwrap();
        assert_eq!(errno(reader.write(b"new")), libc::EBADF);
        assert_eq!(errno(reader.set_len(0)), libc::EINVAL);
        assert_eq!(errno(reader.allocate(0, 10)), libc::EBADF);
        assert_eq!(errno(File::create_new(&path)), libc::EEXIST);
        drop(open().write(true).create(true).open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(open().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"");

        assert_eq!(errno(open().write(true).open(dir)), libc::EISDIR);
        assert_eq!(errno(File::create(dir)), libc::EISDIR);
        assert_eq!(errno(File::create(dir.join("new/"))), libc::EISDIR);
        assert_eq!(errno(File::open(dir.join("f/"))), libc::ENOTDIR);
        assert_eq!(errno(File::open(dir.join("f/g"))), libc::ENOTDIR);
        assert_eq!(errno(File::create(dir.join("no/f"))), libc::ENOENT);
        assert_eq!(errno(File::open("")), libc::ENOENT);
        let long = dir.join("x".repeat(256));
        assert_eq!(errno(File::create(&long)), libc::ENAMETOOLONG);
        let e = File::open("a\0b").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        let directory = File::open(dir).unwrap();
        assert_eq!(errno((&directory).read(&mut [0; 4])), libc::EISDIR);
        directory.sync_all().unwrap();
        let only = |flag| open().read(true).custom_flags(flag).open(&path);
        assert_eq!(errno(only(libc::O_DIRECTORY)), libc::ENOTDIR);
        let place = only(libc::O_PATH).unwrap();
        assert_eq!(errno((&place).read(&mut [0; 4])), libc::EBADF);
        assert!(place.metadata().unwrap().is_file());
    });
}

#[test]
fn names_come_and_go() {
    on_both(|dir| {
        let at = |name: &str| dir.join(name);
        fs::write(at("a"), "a").unwrap();
        fs::rename(at("a"), at("b")).unwrap();
        assert_eq!(errno(fs::read(at("a"))), libc::ENOENT);
        assert_eq!(fs::read(at("b")).unwrap(), b"a");
        fs::write(at("c"), "c").unwrap();
        let old = File::open(at("c")).unwrap();
        fs::rename(at("b"), at("c")).unwrap();
        assert_eq!(names(dir), ["c"]);
        assert_eq!(fs::read(at("c")).unwrap(), b"a");
        // The one that was replaced lives as long as it is open.
        let mut text = [0];
        old.read_exact_at(&mut text, 0).unwrap();
        assert_eq!((&text, old.metadata().unwrap().nlink()), (b"c", 0));

        fs::hard_link(at("c"), at("d")).unwrap();
        assert_eq!(fs::metadata(at("c")).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(at("c")).unwrap().ino(),
            fs::metadata(at("d")).unwrap().ino()
        );
        // Two names of one file.
        fs::rename(at("c"), at("d")).unwrap();
        assert_eq!(names(dir), ["c", "d"]);
        assert_eq!(errno(fs::hard_link(at("c"), at("d"))), libc::EEXIST);
        assert_eq!(errno(fs::hard_link(at("no"), at("e"))), libc::ENOENT);
        fs::remove_file(at("c")).unwrap();
        assert_eq!(errno(fs::remove_file(at("c"))), libc::ENOENT);
        assert!(fs::exists(at("d")).unwrap());
        assert!(!fs::exists(at("c")).unwrap());
        assert!(!fs::exists(at("c/x")).unwrap());
        assert_eq!(errno(fs::exists(at("d/x"))), libc::ENOTDIR);
        assert_eq!(errno(fs::rename(at("no"), at("x"))), libc::ENOENT);
        assert_eq!(errno(fs::rename(at("d"), at("no/x"))), libc::ENOENT);
        assert_eq!(errno(fs::rename(at("d/"), at("x"))), libc::ENOTDIR);
        assert_eq!(errno(fs::rename(at("d"), at("x/"))), libc::ENOTDIR);
        assert_eq!(fs::copy(at("d"), at("e")).unwrap(), 1);
        assert_eq!(fs::read(at("e")).unwrap(), b"a");
        let e = fs::copy(dir, at("f")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn directories_come_and_go() {
    on_both(|dir| {
        let at = |name: &str| dir.join(name);
        fs::create_dir(at("a")).unwrap();
        assert_eq!(errno(fs::create_dir(at("a"))), libc::EEXIST);
        assert_eq!(errno(fs::create_dir(at("no/a"))), libc::ENOENT);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all("").unwrap();
        fs::write(at("a/f"), "f").unwrap();
        assert_eq!(errno(fs::create_dir_all(at("a/f"))), libc::EEXIST);
        assert_eq!(errno(fs::create_dir_all(at("a/f/g"))), libc::ENOTDIR);
        assert_eq!(fs::metadata(at("a")).unwrap().nlink(), kernel_links(dir, 3));
        assert_eq!(errno(fs::remove_dir(at("a"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::remove_dir(at("a/f"))), libc::ENOTDIR);
        assert_eq!(errno(fs::remove_dir(at("no"))), libc::ENOENT);
        assert_eq!(errno(fs::remove_dir(at("a/."))), libc::EINVAL);
        assert_eq!(errno(fs::remove_dir(at("a/b/.."))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::remove_file(at("a"))), libc::EISDIR);
        assert_eq!(errno(fs::remove_file(at("a/"))), libc::EISDIR);
        assert_eq!(errno(fs::remove_file(at("a/f/"))), libc::ENOTDIR);
        assert_eq!(errno(fs::hard_link(at("a"), at("x"))), libc::EPERM);
        assert_eq!(errno(fs::read_dir(at("a/f"))), libc::ENOTDIR);
        assert_eq!(errno(fs::read_dir(at("no"))), libc::ENOENT);

        // Renames of directories.
        assert_eq!(errno(fs::rename(at("a"), at("a/b/x"))), libc::EINVAL);
        assert_eq!(errno(fs::rename(at("a/b"), at("a"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(at("a/f"), at("a"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(at("a/b"), at("a/f"))), libc::ENOTDIR);
        assert_eq!(errno(fs::rename(at("a/f"), at("a/b"))), libc::EISDIR);
        assert_eq!(errno(fs::rename(at("a/."), at("x"))), libc::EBUSY);
        fs::create_dir(at("d")).unwrap();
        fs::rename(at("a/b"), at("d")).unwrap();
        assert_eq!(names(&at("d")), ["c"]);
        fs::create_dir(at("e")).unwrap();
        assert_eq!(errno(fs::rename(at("e"), at("d"))), libc::ENOTEMPTY);
        fs::rename(at("d"), at("e/d/")).unwrap();
        assert_eq!(
            fs::canonicalize(at("e/d/c/..")).unwrap(),
            fs::canonicalize(dir).unwrap().join("e/d")
        );
        assert_eq!(names(dir), ["a", "e"]);
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_dir());
            assert!(entry.metadata().unwrap().is_dir());
            assert_eq!(entry.path(), dir.join(entry.file_name()));
            assert_eq!(entry.ino(), fs::metadata(entry.path()).unwrap().ino());
        }
        assert_eq!(errno(fs::remove_dir_all(at("a/f"))), libc::ENOTDIR);
        assert_eq!(errno(fs::remove_dir_all(at("no"))), libc::ENOENT);
        fs::remove_dir_all(at("a")).unwrap();
        fs::remove_dir_all(at("e")).unwrap();
        assert_eq!(names(dir), [""; 0]);
        DirBuilder::new().mode(0o700).create(at("p")).unwrap();
        let mode = fs::metadata(at("p")).unwrap().permissions().mode();
        assert_eq!(mode, 0o40_700);
        let deep = at("p/q/r");
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&deep)
            .unwrap();
        assert_eq!(fs::metadata(at("p/q")).unwrap().mode() & 0o777, 0o750);
    });
}

/// Some file systems do not count the links of directories.
fn kernel_links(dir: &Path, n: u64) -> u64 {
    if fs::metadata(dir).unwrap().nlink() == 1 {
        1
    } else {
        n
    }
}

#[test]
fn symbolic_links_lead_on() {
    on_both(|dir| {
        let at = |name: &str| dir.join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/f"), "f").unwrap();
        fs::symlink("d/f", at("l")).unwrap();
        fs::symlink("d", at("m")).unwrap();
        fs::symlink("../l", at("d/up")).unwrap();
        fs::symlink(at("d"), at("absolute")).unwrap();
        fs::symlink("nowhere", at("broken")).unwrap();
        fs::symlink("self", at("self")).unwrap();
        fs::symlink("l/", at("slash")).unwrap();
        for path in [
            "l",
            "m/f",
            "m/up",
            "d/up",
            "absolute/f",
            "m/../l",
            "./m/./f",
        ] {
            assert_eq!(fs::read(at(path)).unwrap(), b"f", "{path}");
            let real = fs::canonicalize(dir).unwrap().join("d/f");
            assert_eq!(fs::canonicalize(at(path)).unwrap(), real, "{path}");
        }
        assert_eq!(fs::read_link(at("l")).unwrap(), Path::new("d/f"));
        assert_eq!(errno(fs::read_link(at("d"))), libc::EINVAL);
        assert_eq!(errno(fs::read_link(at("no"))), libc::ENOENT);
        let link = fs::symlink_metadata(at("l")).unwrap();
        assert!(link.is_symlink() && link.file_type().is_symlink());
        assert_eq!((link.len(), link.mode()), (3, 0o120_777));
        assert!(fs::metadata(at("l")).unwrap().is_file());
        assert!(fs::symlink_metadata(at("m/")).unwrap().is_dir());
        assert_eq!(errno(fs::symlink_metadata(at("l/"))), libc::ENOTDIR);
        assert_eq!(errno(fs::read(at("slash"))), libc::ENOTDIR);
        assert_eq!(errno(fs::read(at("broken"))), libc::ENOENT);
        assert!(!fs::exists(at("broken")).unwrap());
        assert_eq!(errno(fs::read(at("self"))), libc::ELOOP);
        assert_eq!(errno(fs::read(at("self/x"))), libc::ELOOP);
        assert_eq!(errno(fs::symlink("x", at("l"))), libc::EEXIST);
        assert_eq!(errno(fs::symlink("", at("x"))), libc::ENOENT);
        assert_eq!(errno(fs::create_dir(at("broken"))), libc::EEXIST);
        assert_eq!(errno(File::create_new(at("broken"))), libc::EEXIST);
        let no_follow = |flags: i32| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NOFOLLOW | flags);
            options.open(at("l"))
        };
        assert_eq!(errno(no_follow(0)), libc::ELOOP);
        assert_eq!(errno(no_follow(libc::O_DIRECTORY)), libc::ENOTDIR);
        let place = no_follow(libc::O_PATH).unwrap();
        assert!(place.metadata().unwrap().is_symlink());
        // Creating through a link makes what it names.
        fs::write(at("broken"), "new").unwrap();
        assert_eq!(fs::read(at("nowhere")).unwrap(), b"new");
        // A link is renamed, linked and removed itself.
        fs::rename(at("l"), at("k")).unwrap();
        fs::hard_link(at("k"), at("l")).unwrap();
        assert_eq!(fs::symlink_metadata(at("l")).unwrap().nlink(), 2);
        fs::remove_file(at("l")).unwrap();
        assert_eq!(errno(fs::remove_dir(at("m"))), libc::ENOTDIR);
        assert_eq!(errno(fs::remove_file(at("m/"))), libc::ENOTDIR);
        fs::remove_dir_all(at("m")).unwrap();
        assert_eq!(fs::read(at("d/f")).unwrap(), b"f");
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let is_link = fs::symlink_metadata(entry.path()).unwrap().is_symlink();
            assert_eq!(entry.file_type().unwrap().is_symlink(), is_link);
            assert_eq!(entry.metadata().unwrap().is_symlink(), is_link);
        }
    });
}

#[test]
fn attributes_are_kept() {
    on_both(|dir| {
        let path = dir.join("f");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(&path)
            .unwrap();
        let mode = || fs::metadata(&path).unwrap().mode();
        assert_eq!(mode(), 0o100_640);
        file.set_permissions(fs::Permissions::from_mode(0o4600))
            .unwrap();
        assert_eq!(mode(), 0o104_600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(fs::metadata(&path).unwrap().permissions().readonly());
        let time = |s| SystemTime::UNIX_EPOCH + Duration::new(s, 123_456_789);
        file.set_times(FileTimes::new().set_accessed(time(5)))
            .unwrap();
        file.set_modified(time(1_000_000)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.accessed().unwrap(), time(5));
        assert_eq!(metadata.modified().unwrap(), time(1_000_000));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (5, 123_456_789));
        assert_eq!(metadata.mtime(), 1_000_000);
        let before = metadata.modified().unwrap();
        (&file).write_all(b"x").unwrap();
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > before);
        let metadata = file.metadata().unwrap();
        let (uid, gid) = (metadata.uid(), metadata.gid());
        fs::chown(&path, Some(uid), None).unwrap();
        fs::lchown(&path, None, Some(gid)).unwrap();
        assert_eq!(metadata.len(), metadata.size());
        assert_eq!(metadata.dev(), fs::metadata(dir).unwrap().dev());
        let debug = format!("{metadata:?}");
        assert!(debug.starts_with("Metadata {"), "{debug}");
        #[allow(deprecated)]
        let raw_ino = std::os::linux::fs::MetadataExt::as_raw_stat(&metadata).st_ino;
        assert_eq!(raw_ino, metadata.ino());
    });
}

#[test]
fn locks_belong_to_the_open_file() {
    on_both(|dir| {
        let path = dir.join("f");
        let first = File::create(&path).unwrap();
        let second = File::open(&path).unwrap();
        let fails = |outcome| assert!(matches!(outcome, Err(TryLockError::WouldBlock)));
        first.lock().unwrap();
        first.try_lock().unwrap();
        fails(second.try_lock());
        fails(second.try_lock_shared());
        first.lock_shared().unwrap();
        second.lock_shared().unwrap();
        fails(first.try_lock());
        // The attempt has cost the shared lock.
        second.lock().unwrap();
        let clone = second.try_clone().unwrap();
        clone.try_lock().unwrap();
        drop(second);
        fails(first.try_lock_shared());
        drop(clone);
        first.try_lock_shared().unwrap();

        let other = File::open(&path).unwrap();
        let waits = windlass::spawn(move || other.lock().map(|()| other));
        for _ in 0..20 {
            windlass::yield_now();
        }
        assert!(!waits.is_finished());
        first.unlock().unwrap();
        let other = waits.join().unwrap().unwrap();
        fails(first.try_lock());
        drop(other);
        first.lock().unwrap();
    });
}

#[test]
fn direct_transfers_are_aligned() {
    on_both(|dir| {
        let path = dir.join("f");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = match options.custom_flags(libc::O_DIRECT).open(&path) {
            Ok(file) => file,
            Err(e) => {
                assert!(!windlass::sim::is_simulated(), "{e}");
                return;
            }
        };
        let mut buf = AlignedBuf::zeroed(8192);
        buf.fill(7);
        file.write_all_at(&buf, 4096).unwrap();
        assert_eq!(errno(file.write_at(&buf[..100], 0)), libc::EINVAL);
        assert_eq!(errno(file.write_at(&buf, 100)), libc::EINVAL);
        assert_eq!(errno(file.write_at(&buf[1..4097], 0)), libc::EINVAL);
        buf.fill(0);
        file.read_exact_at(&mut buf, 4096).unwrap();
        assert!(buf.iter().all(|&byte| byte == 7));
        assert_eq!(errno(file.read_at(&mut buf[1..4097], 4096)), libc::EINVAL);
        assert_eq!(errno(file.read_at(&mut buf, 100)), libc::EINVAL);
        assert_eq!(file.read_at(&mut buf, 8192).unwrap(), 4096);
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len(), 12_288);
        assert!(all[..4096].iter().all(|&byte| byte == 0));
        // Data in the cache are seen, and the other way round.
        let cached = OpenOptions::new().write(true).open(&path).unwrap();
        cached.write_all_at(&[9; 10], 4096).unwrap();
        file.read_exact_at(&mut buf, 4096).unwrap();
        assert_eq!(buf[..12], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7, 7]);
    });
}

#[test]
fn descriptors_leave_and_come_back() {
    on_both(|dir| {
        let mut file = File::create(dir.join("f")).unwrap();
        file.write_all(b"one ").unwrap();
        file.lock().unwrap();
        let number = file.as_raw_fd();
        let descriptor = OwnedFd::from(file);
        assert_eq!(descriptor.as_raw_fd(), number);
        let other = File::open(dir.join("f")).unwrap();
        assert!(other.try_lock().is_err());
        let mut copy = File::from(descriptor.try_clone().unwrap());
        let mut file = File::from(std::fs::File::from(descriptor));
        file.write_all(b"two ").unwrap();
        copy.write_all(b"three").unwrap();
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"one two three");
        drop((file, copy));
        other.lock().unwrap();
    });
}

#[test]
fn a_file_without_a_name_is_a_file() {
    on_both(|dir| {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let Ok(mut file) = options.custom_flags(libc::O_TMPFILE).open(dir) else {
            assert!(!windlass::sim::is_simulated());
            return;
        };
        file.write_all(b"text").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, file.metadata().unwrap().nlink()), ("text", 0));
        assert_eq!(names(dir), [""; 0]);
    });
}

/// Each writer's bytes are together, and none are lost, whoever goes first.
#[test]
fn goroutines_share_files() {
    on_both(|dir| {
        let path = dir.join("log");
        windlass::scope(|s| {
            for n in 0..4_u8 {
                let path = &path;
                s.spawn(move || {
                    let mut log = OpenOptions::new()
                        .append(true)
                        .create(true)
                        .open(path)
                        .unwrap();
                    for _ in 0..3 {
                        log.write_all(&[n; 100]).unwrap();
                    }
                    log.sync_data().unwrap();
                });
            }
        });
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len(), 1200);
        for record in all.chunks(100) {
            assert!(record.iter().all(|&byte| byte == record[0]));
        }
    });
}
