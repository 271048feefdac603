//! Simulated disks that lose their power, fail, are slow or full, and belong to hosts that crash.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use windlass::fs::{self, AlignedBuf, File, OpenOptions};
use windlass::sim::{self, Disk, FailureKind, Faults, Sim, Strategy};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, Instant, sleep};
use windlass::{spawn, task};

use crate::util::PROMISE;

const SECTOR: usize = 512;
const PAGE: usize = 4096;
const MS: Duration = Duration::from_millis(1);

/// Runs `f` under seeds 1 to `seeds`. Gives all that it returned.
#[track_caller]
fn outcomes<T: Ord>(seeds: u64, f: impl Fn() -> T) -> BTreeSet<T> {
    let seen = RefCell::new(BTreeSet::new());
    check_with(Sim::new(PROMISE).seed(1).seeds(seeds), || {
        seen.borrow_mut().insert(f());
    });
    seen.into_inner()
}

#[track_caller]
fn check_with(sim: Sim, f: impl Fn()) {
    if let Err(failure) = sim.run(f) {
        panic!("{failure}");
    }
}

#[track_caller]
fn errno<T: Debug>(outcome: io::Result<T>) -> i32 {
    let e = outcome.expect_err("it fails");
    e.raw_os_error().unwrap_or_else(|| panic!("{e:?}"))
}

fn sync_dir(path: &str) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// A file whose bytes and name are on the disk.
fn durable(path: &str, bytes: &[u8]) -> File {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    sync_dir(Path::new(path).parent().unwrap().to_str().unwrap());
    file
}

fn cut_power() {
    sim::this_host().crash_disk();
}

#[test]
fn what_was_synced_survives() {
    check_with(Sim::new(PROMISE).seeds(100), || {
        let file = durable("/a", &[1; 3 * PAGE]);
        file.write_all_at(&[2; 100], 5000).unwrap();
        file.sync_data().unwrap();
        fs::create_dir("/d").unwrap();
        fs::write("/d/b", "b").unwrap();
        File::open("/d/b").unwrap().sync_all().unwrap();
        sync_dir("/d");
        sync_dir("/");
        for _ in 0..3 {
            cut_power();
            let mut expected = vec![1; 3 * PAGE];
            expected[5000..5100].fill(2);
            assert_eq!(fs::read("/a").unwrap(), expected);
            assert_eq!(fs::read("/d/b").unwrap(), b"b");
        }
    });
}

#[test]
fn what_was_not_synced_is_lost_kept_torn_or_reordered() {
    // Two pages are changed, the second one later.
    let seen = outcomes(400, || {
        let file = durable("/a", &[0; 2 * PAGE]);
        file.write_all_at(&[1; PAGE], 0).unwrap();
        file.write_all_at(&[1; PAGE], PAGE as u64).unwrap();
        cut_power();
        let bytes = fs::read("/a").unwrap();
        assert_eq!(bytes.len(), 2 * PAGE);
        let sectors = bytes.chunks(SECTOR);
        let new: Vec<bool> = sectors
            .map(|sector| {
                let is_new = sector[0] == 1;
                assert!(sector.iter().all(|&byte| byte == u8::from(is_new)));
                is_new
            })
            .collect();
        let states = new.chunks(PAGE / SECTOR).map(|page| {
            match page.iter().filter(|&&is_new| is_new).count() {
                0 => "old",
                n if n == page.len() => "new",
                _ => "torn",
            }
        });
        states.collect::<Vec<_>>()
    });
    for expected in [
        ["old", "old"],
        ["new", "new"],
        ["new", "old"],
        ["old", "new"],
        ["torn", "new"],
        ["old", "torn"],
    ] {
        assert!(seen.contains(&expected[..]), "{expected:?} of {seen:?}");
    }
}

#[test]
fn a_file_that_grew_may_have_zeros() {
    let seen = outcomes(200, || {
        let mut file = durable("/a", b"begin ");
        file.write_all(b"end").unwrap();
        cut_power();
        fs::read("/a").unwrap()
    });
    let expected: [&[u8]; 3] = [b"begin ", b"begin \0\0\0", b"begin end"];
    assert_eq!(seen, expected.map(<[u8]>::to_vec).into());
}

#[test]
fn what_was_cut_off_does_not_come_back_into_a_file_that_grew() {
    let seen = outcomes(300, || {
        let file = durable("/a", b"secret");
        file.set_len(0).unwrap();
        file.write_all_at(b"ab", 4).unwrap();
        cut_power();
        fs::read("/a").unwrap()
    });
    let expected: [&[u8]; 4] = [b"", b"\0\0\0\0\0\0", b"\0\0\0\0ab", b"secret"];
    assert_eq!(seen, expected.map(<[u8]>::to_vec).into());
}

#[test]
fn a_name_needs_the_sync_of_its_directory() {
    let seen = outcomes(100, || {
        let mut file = File::create("/a").unwrap();
        file.write_all(b"x").unwrap();
        file.sync_all().unwrap();
        cut_power();
        fs::read("/a").ok()
    });
    // Its bytes are there if it is.
    assert_eq!(seen, [None, Some(b"x".to_vec())].into());

    let seen = outcomes(100, || {
        durable("/a", b"x");
        fs::remove_file("/a").unwrap();
        cut_power();
        fs::exists("/a").unwrap()
    });
    assert_eq!(seen, [false, true].into());

    // A directory that was not synced is missing with all that is in it.
    let seen = outcomes(100, || {
        fs::create_dir("/d").unwrap();
        durable("/d/a", b"x");
        cut_power();
        (fs::exists("/d").unwrap(), fs::exists("/d/a").unwrap())
    });
    assert_eq!(seen, [(false, false), (true, true)].into());
}

#[test]
fn a_rename_is_there_or_not() {
    let seen = outcomes(100, || {
        durable("/a", b"old");
        let mut file = File::create("/new").unwrap();
        file.write_all(b"new").unwrap();
        file.sync_all().unwrap();
        fs::rename("/new", "/a").unwrap();
        cut_power();
        (fs::read("/a").unwrap(), fs::exists("/new").unwrap())
    });
    let expected = [
        (b"new".to_vec(), false),
        (b"old".to_vec(), false),
        (b"old".to_vec(), true),
    ];
    assert_eq!(seen, expected.into());

    // Without the sync of the bytes before, the new name may come first.
    let seen = outcomes(200, || {
        durable("/a", b"old");
        fs::write("/new", b"new").unwrap();
        fs::rename("/new", "/a").unwrap();
        sync_dir("/");
        cut_power();
        fs::read("/a").unwrap()
    });
    assert!(
        seen.contains(&b""[..]) && seen.contains(&b"new"[..]),
        "{seen:?}"
    );
}

#[test]
fn changes_of_different_names_are_reordered() {
    let seen = outcomes(100, || {
        fs::write("/first", "").unwrap();
        fs::write("/second", "").unwrap();
        cut_power();
        (
            fs::exists("/first").unwrap(),
            fs::exists("/second").unwrap(),
        )
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn open_files_are_dead_after_the_power_was_cut() {
    check_with(Sim::new(PROMISE).seeds(20), || {
        let mut file = durable("/a", b"x");
        file.lock().unwrap();
        let waits = spawn(|| {
            let other = File::open("/a").unwrap();
            other.lock()
        });
        sim::settle();
        cut_power();
        assert_eq!(errno(waits.join().unwrap()), libc::EIO);
        assert_eq!(errno(file.read(&mut [0])), libc::EIO);
        assert_eq!(errno(file.write(b"y")), libc::EIO);
        assert_eq!(errno(file.sync_all()), libc::EIO);
        assert_eq!(errno(file.metadata()), libc::EIO);
        drop(file);
        let file = File::open("/a").unwrap();
        file.try_lock().unwrap();
    });
}

#[test]
fn direct_writes_need_a_sync_as_well() {
    let seen = outcomes(200, || {
        durable("/a", &[0; PAGE]);
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT);
        let file = options.open("/a").unwrap();
        let mut bytes = AlignedBuf::zeroed(SECTOR);
        bytes.fill(1);
        let start = Instant::now();
        file.write_all_at(&bytes, SECTOR as u64).unwrap();
        assert!(start.elapsed() > Duration::ZERO);
        cut_power();
        let bytes = fs::read("/a").unwrap();
        assert!(bytes[..SECTOR].iter().all(|&byte| byte == 0));
        bytes[SECTOR]
    });
    assert_eq!(seen, [0, 1].into());
    check_with(Sim::new(PROMISE).seeds(50), || {
        durable("/a", &[0; PAGE]);
        let mut options = OpenOptions::new();
        options
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_DSYNC);
        let file = options.open("/a").unwrap();
        let mut bytes = AlignedBuf::zeroed(SECTOR);
        bytes.fill(1);
        file.write_all_at(&bytes, 0).unwrap();
        cut_power();
        assert_eq!(fs::read("/a").unwrap()[..SECTOR], *bytes);
    });
}

#[test]
fn a_full_disk_takes_no_more() {
    let sim = Sim::new(PROMISE)
        .seeds(20)
        .disk(Disk::new().capacity(5 * PAGE as u64));
    check_with(sim, || {
        let mut file = File::create("/a").unwrap();
        // The root and /tmp take a page each.
        let n = file.write(&[1; 6 * PAGE]).unwrap();
        assert!((PAGE..4 * PAGE).contains(&n), "{n}");
        let e = file.write_all(&[1; PAGE]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::StorageFull);
        assert_eq!(errno(file.allocate(0, 10 * PAGE as u64)), libc::ENOSPC);
        // Data that are there can be overwritten, and a file that is removed makes room.
        file.write_all_at(&[2; PAGE], 0).unwrap();
        drop(file);
        fs::remove_file("/a").unwrap();
        fs::write("/b", [3; PAGE]).unwrap();
    });
}

#[test]
fn calls_fail_and_are_short_as_often_as_the_settings_say() {
    let disk = Disk::new()
        .read_errors(0.1)
        .write_errors(0.1)
        .short_reads(0.3)
        .short_writes(0.3);
    let counts = Cell::new([0; 5]);
    check_with(Sim::new(PROMISE).seed(1).seeds(50).disk(disk), || {
        let [
            mut eio_read,
            mut eio_write,
            mut short_read,
            mut short_write,
            mut eio_name,
        ] = counts.get();
        let Ok(file) = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .open("/a")
        else {
            return counts.set([eio_read, eio_write, short_read, short_write, eio_name + 1]);
        };
        for _ in 0..20 {
            match file.write_at(&[1; 100], 0) {
                Ok(n) => short_write += u32::from((1..100).contains(&n)),
                Err(e) => eio_write += u32::from(e.raw_os_error() == Some(libc::EIO)),
            }
            let n = file.metadata().unwrap().len() as usize;
            match file.read_at(&mut [0; 100], 0) {
                Ok(read) => short_read += u32::from(read < n),
                Err(e) => eio_read += u32::from(e.raw_os_error() == Some(libc::EIO)),
            }
            eio_name += u32::from(fs::rename("/a", "/b").is_err());
            eio_name += u32::from(fs::rename("/b", "/a").is_err());
        }
        counts.set([eio_read, eio_write, short_read, short_write, eio_name]);
    });
    // About 100 and 300 of 1,000 each.
    let [eio_read, eio_write, short_read, short_write, eio_name] = counts.get();
    assert!((50..200).contains(&eio_read), "{eio_read}");
    assert!((50..200).contains(&eio_write), "{eio_write}");
    assert!((180..400).contains(&short_read), "{short_read}");
    assert!((180..400).contains(&short_write), "{short_write}");
    assert!(eio_name > 100, "{eio_name}");
}

#[test]
fn a_sync_that_fails_says_so_once_and_loses_pages() {
    let seen = outcomes(100, || {
        let file = durable("/a", b"old");
        let other = File::open("/a").unwrap();
        file.write_all_at(b"new", 0).unwrap();
        let host = sim::this_host();
        host.set_disk(host.disk().sync_errors(1.0));
        assert_eq!(errno(file.sync_all()), libc::EIO);
        host.set_disk(host.disk().sync_errors(0.0));
        // As on Linux, the next one succeeds, and the other open file hears of it as well.
        file.sync_all().unwrap();
        assert_eq!(errno(other.sync_all()), libc::EIO);
        other.sync_all().unwrap();
        let before = fs::read("/a").unwrap();
        cut_power();
        (before, fs::read("/a").unwrap())
    });
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    // The cache may still have what the disk has not.
    assert!(seen.contains(&(new.clone(), old.clone())), "{seen:?}");
    assert!(seen.contains(&(old.clone(), old)), "{seen:?}");
    assert!(seen.contains(&(new.clone(), new)), "{seen:?}");
}

#[test]
fn a_sync_takes_its_time() {
    let disk = Disk::new().sync_time(20 * MS..=30 * MS);
    let seen = RefCell::new(BTreeSet::new());
    check_with(Sim::new(PROMISE).seed(1).seeds(50).disk(disk), || {
        let mut file = File::create("/a").unwrap();
        let start = Instant::now();
        file.write_all(b"x").unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        file.sync_data().unwrap();
        seen.borrow_mut().insert(start.elapsed());
        let start = Instant::now();
        file.sync_data().unwrap();
        // Only attributes are left, at most.
        assert!(start.elapsed() <= 30 * MS);
    });
    let seen = seen.into_inner();
    assert!(seen.len() > 5 && seen.first() >= Some(&(20 * MS)) && seen.last() <= Some(&(30 * MS)));
}

#[test]
fn what_is_written_during_a_sync_is_not_part_of_it() {
    let seen = outcomes(200, || {
        let file = durable("/a", b"0");
        let file = Arc::new(file);
        file.write_all_at(b"1", 0).unwrap();
        let syncs = {
            let file = Arc::clone(&file);
            spawn(move || file.sync_all().unwrap())
        };
        sim::settle();
        file.write_all_at(b"2", 0).unwrap();
        syncs.join().unwrap();
        cut_power();
        fs::read("/a").unwrap()
    });
    assert_eq!(seen, [b"1".to_vec(), b"2".to_vec()].into());
}

#[test]
fn each_host_has_a_disk_that_survives_its_crash() {
    let seen = RefCell::new(BTreeSet::new());
    check_with(Sim::new(PROMISE).seed(1).seeds(60), || {
        let found = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&found);
        let keeper = sim::host("keeper", [10, 0, 0, 1], move || {
            let synced = fs::read("/synced").ok();
            let other = fs::read("/other").ok();
            to.lock().unwrap().push((synced.clone(), other));
            if synced.is_none() {
                durable("/synced", b"x");
            }
            fs::write("/other", b"y").unwrap();
            task::park();
        });
        let other = sim::host("other", [10, 0, 0, 2], || {
            fs::write("/theirs", "z").unwrap();
            task::park();
        });
        sleep(Duration::from_secs(1));
        keeper.crash();
        keeper.restart();
        sleep(Duration::from_secs(1));
        let found = found.lock().unwrap();
        assert_eq!(found[0], (None, None));
        assert_eq!(found[1].0.as_deref(), Some(&b"x"[..]));
        seen.borrow_mut().insert(found[1].1.clone());
        // The main goroutine has a disk of its own, too.
        assert!(!fs::exists("/synced").unwrap() && !fs::exists("/theirs").unwrap());
        other.crash();
    });
    let seen = seen.into_inner();
    assert!(
        seen.contains(&None) && seen.contains(&Some(b"y".to_vec())),
        "{seen:?}"
    );
}

/// Removes its file when it is dropped, and says how that went.
struct Guard(File, Arc<Mutex<Vec<i32>>>);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut errors = vec![
            errno(fs::remove_file("/a")),
            errno((&self.0).write(b"late")),
        ];
        errors.push(errno(fs::read("/a")));
        self.1.lock().unwrap().extend(errors);
    }
}

#[test]
fn destructors_of_a_crashed_host_do_not_reach_its_disk() {
    check_with(Sim::new(PROMISE).seeds(40), || {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&errors);
        let n_starts = Arc::new(AtomicU32::new(0));
        let starts = Arc::clone(&n_starts);
        let host = sim::host("a", [10, 0, 0, 1], move || {
            if starts.fetch_add(1, Ordering::Relaxed) == 0 {
                let _guard = Guard(durable("/a", b"x"), Arc::clone(&to));
                task::park();
            }
            assert_eq!(fs::read("/a").unwrap(), b"x");
        });
        sleep(Duration::from_secs(1));
        host.crash();
        assert_eq!(*errors.lock().unwrap(), [libc::EIO; 3]);
        host.restart();
        sim::settle();
        assert_eq!(n_starts.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_crash_during_a_sync_leaves_the_old_or_the_new() {
    let seen = outcomes(100, || {
        let host = sim::host("a", [10, 0, 0, 1], || {
            if let Ok(bytes) = fs::read("/a") {
                assert!(bytes == b"old" || bytes == b"new", "{bytes:?}");
                fs::write("/seen", &bytes).unwrap();
                return;
            }
            let file = durable("/a", b"old");
            sleep(Duration::from_secs(1));
            file.write_all_at(b"new", 0).unwrap();
            let _ = file.sync_all();
            unreachable!("the host has crashed");
        });
        host.set_disk(host.disk().sync_time(MS..=MS));
        // Two syncs of 1 ms, and a second.
        sleep(Duration::from_secs(1) + 2 * MS + MS / 2);
        host.crash();
        host.restart();
        sim::settle();
        host.is_up()
    });
    assert_eq!(seen, [true].into());
}

#[test]
fn faults_of_disks_are_drawn() {
    let slowest = Cell::new(Duration::ZERO);
    let kinds = RefCell::new(BTreeSet::new());
    let faults = Faults::network()
        .slow_disks(3.0)
        .failing_disks(3.0)
        .full_disks(3.0)
        .until(Duration::from_secs(300));
    check_with(Sim::new(PROMISE).seed(1).seeds(10).faults(faults), || {
        let found = Arc::new(Mutex::new((Duration::ZERO, BTreeSet::new(), Vec::new())));
        let to = Arc::clone(&found);
        let _host = sim::host("a", [10, 0, 0, 1], move || {
            let began = Instant::now();
            loop {
                let start = Instant::now();
                let outcome =
                    fs::write("/a", [1; PAGE]).and_then(|()| File::open("/a")?.sync_all());
                let mut found = to.lock().unwrap();
                match outcome {
                    Ok(()) => found.0 = found.0.max(start.elapsed()),
                    Err(e) => {
                        found.1.insert(e.raw_os_error());
                        found.2.push(began.elapsed());
                    }
                }
                drop(found);
                sleep(Duration::from_secs(1));
            }
        });
        for _ in 0..600 {
            // The disk of the main goroutine has no faults if there are others.
            let start = Instant::now();
            fs::write("/a", [1; PAGE]).unwrap();
            File::open("/a").unwrap().sync_all().unwrap();
            assert!(start.elapsed() <= 10 * MS);
            sleep(Duration::from_secs(1));
        }
        let found = found.lock().unwrap();
        slowest.set(slowest.get().max(found.0));
        kinds.borrow_mut().extend(&found.1);
        // The last fault begins after five minutes at the latest, and lasts for ten seconds.
        assert!(found.2.iter().all(|&at| at < Duration::from_secs(312)));
    });
    assert!(slowest.get() >= 100 * MS, "{slowest:?}");
    assert_eq!(
        *kinds.borrow(),
        [Some(libc::EIO), Some(libc::ENOSPC)].into()
    );
}

#[test]
fn an_exhaustive_search_finds_what_a_crash_may_leave() {
    let seen = RefCell::new(BTreeSet::new());
    let search = Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions: 0 });
    let report = search.run(|| {
        fs::write("/first", "").unwrap();
        fs::write("/second", "").unwrap();
        cut_power();
        let found = ["/first", "/second"].map(|path| fs::exists(path).unwrap());
        seen.borrow_mut().insert(found);
    });
    assert!(report.unwrap().is_complete);
    assert_eq!(seen.borrow().len(), 4);
}

#[test]
fn a_missing_sync_is_found() {
    let failure = Sim::new(PROMISE).run(|| {
        let mut file = File::create("/a.new").unwrap();
        file.write_all(b"config").unwrap();
        // Here a sync is missing.
        fs::rename("/a.new", "/a").unwrap();
        sync_dir("/");
        cut_power();
        assert_eq!(fs::read("/a").unwrap(), b"config");
    });
    assert_eq!(failure.unwrap_err().kind(), FailureKind::Panic);
}

#[test]
fn the_number_of_a_simulated_file_is_of_no_use_outside() {
    check_with(Sim::new(PROMISE).seeds(5), || {
        let file = durable("/a", b"x");
        let copy = std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(errno((&copy).read(&mut [0])), libc::EBADF);
        assert_eq!(errno((&copy).write(b"y")), libc::EPIPE);
        assert_eq!(errno(copy.sync_all()), libc::EINVAL);
        drop(copy);
        // It leaves and comes back.
        let descriptor = OwnedFd::from(file);
        let file = File::from(descriptor);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(&byte, b"x");
    });
}
