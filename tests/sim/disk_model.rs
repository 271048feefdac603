//! Operations on files that are drawn from seeds: what they give on the disk of a simulation must be
//! what they give on the kernel's. `WINDLASS_DISK_SEEDS=n` sets how many seeds.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::temp::TempDir;
use crate::util;
use crate::util::PROMISE;
use windlass::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use windlass::sim::Sim;

/// So deep lies the directory that the paths begin in: more levels than the links of a path and its
/// own dots can climb.
const DEPTH: usize = 60;
const MOST_OPEN: usize = 4;

/// Runs the operations of a seed below `top`. Gives a line for each, with its outcome.
struct Machine {
    top: PathBuf,
    base: PathBuf,
    random: Random,
    open: Vec<File>,
    can_allocate: bool,
    lines: Vec<String>,
}

impl Machine {
    fn new(top: &Path, seed: u64, can_allocate: bool) -> Machine {
        let base: PathBuf = std::iter::repeat_n("x", DEPTH).collect();
        let base = top.join(base);
        fs::create_dir_all(&base).unwrap();
        Machine {
            top: fs::canonicalize(top).unwrap(),
            base,
            random: Random::new(seed + 1),
            open: Vec::new(),
            can_allocate,
            lines: Vec::new(),
        }
    }

    fn run(mut self, n: usize) -> Vec<String> {
        for _ in 0..30 {
            self.random.next();
        }
        for _ in 0..n {
            self.step();
        }
        let base = self.base.clone();
        self.dump(&base);
        self.lines
    }

    fn below(&mut self, n: usize) -> usize {
        // The lower bits of the generator are no good.
        (self.random.next() >> 33) as usize % n
    }

    fn note<T: Debug>(&mut self, what: String, outcome: io::Result<T>) {
        let outcome = match outcome {
            Ok(value) => format!("{value:?}"),
            Err(e) => match e.raw_os_error() {
                Some(number) => format!("error {number}"),
                None => format!("error {:?}", e.kind()),
            },
        };
        self.lines.push(format!("{what} = {outcome}"));
    }

    fn name(&mut self) -> &'static str {
        ["a", "b", "c", "d"][self.below(4)]
    }

    /// A path of up to three parts.
    fn path(&mut self) -> (String, PathBuf) {
        let mut path = String::new();
        for n in 0..1 + self.below(3) {
            if n > 0 {
                path.push('/');
            }
            path.push_str(match self.below(16) {
                0 => ".",
                1 => "..",
                _ => self.name(),
            });
        }
        if self.below(12) == 0 {
            path.push('/');
        }
        let full = format!("{}/{path}", self.base.display());
        (path, full.into())
    }

    fn step(&mut self) {
        let (name, path) = self.path();
        match self.below(24) {
            0 | 1 => self.note(format!("mkdir {name}"), fs::create_dir(&path)),
            2 => self.note(format!("mkdir -p {name}"), fs::create_dir_all(&path)),
            3 => self.note(format!("rmdir {name}"), fs::remove_dir(&path)),
            4 | 5 => self.note(format!("unlink {name}"), fs::remove_file(&path)),
            6 if !name.contains('.') && self.below(4) == 0 => {
                self.note(format!("rm -r {name}"), fs::remove_dir_all(&path));
            }
            6..=8 => {
                let (to, to_path) = self.path();
                self.note(format!("rename {name} {to}"), fs::rename(&path, to_path));
            }
            9 => {
                let (to, to_path) = self.path();
                self.note(format!("link {name} {to}"), fs::hard_link(&path, to_path));
            }
            10 => {
                let up = if self.below(4) == 0 { "../" } else { "" };
                let slash = if self.below(8) == 0 { "/" } else { "" };
                let target = format!("{up}{}{slash}", self.name());
                let outcome = fs::symlink(&target, &path);
                self.note(format!("symlink {target} {name}"), outcome);
            }
            11 => self.note(format!("readlink {name}"), fs::read_link(&path)),
            12 => {
                let top = self.top.clone();
                let real = fs::canonicalize(&path);
                let real = real.map(|path| path.strip_prefix(top).unwrap().to_owned());
                self.note(format!("realpath {name}"), real);
            }
            13 => {
                let list = fs::read_dir(&path).map(|entries| {
                    let entries = entries.map(Result::unwrap);
                    let mut list: Vec<_> = entries
                        .map(|entry| (entry.file_name(), entry.file_type().unwrap()))
                        .collect();
                    list.sort_by(|a, b| a.0.cmp(&b.0));
                    format!("{list:?}")
                });
                self.note(format!("ls {name}"), list);
            }
            14 => self.note(format!("stat {name}"), fs::metadata(&path).map(shown)),
            15 => {
                let outcome = fs::symlink_metadata(&path).map(shown);
                self.note(format!("lstat {name}"), outcome);
            }
            16 => self.note(format!("exists {name}"), fs::exists(&path)),
            17 => {
                // The owner's permissions stay, in case it is not root.
                let mode = 0o700 | self.below(0o100) as u32;
                let outcome = fs::set_permissions(&path, Permissions::from_mode(mode));
                self.note(format!("chmod {mode:o} {name}"), outcome);
            }
            18 => {
                let (to, to_path) = self.path();
                self.note(format!("cp {name} {to}"), fs::copy(&path, to_path));
            }
            _ => self.open(&name, &path),
        }
        for _ in 0..3 {
            if !self.open.is_empty() {
                let n = self.below(self.open.len());
                self.use_file(n);
            }
        }
    }

    fn open(&mut self, name: &str, path: &Path) {
        let mut options = OpenOptions::new();
        let mut bits = [false; 6];
        bits.fill_with(|| self.below(2) == 0);
        let [read, write, append, truncate, create, create_new] = bits;
        let append = append && self.below(2) == 0;
        let create_new = create_new && self.below(2) == 0;
        options
            .read(read)
            .write(write)
            .append(append)
            .truncate(truncate)
            .create(create)
            .create_new(create_new);
        let flags = match self.below(8) {
            0 => libc::O_NOFOLLOW,
            1 if !create && !create_new => libc::O_DIRECTORY,
            2 if !create && !create_new => libc::O_PATH,
            3 => libc::O_DSYNC,
            _ => 0,
        };
        let outcome = options.custom_flags(flags).open(path);
        let what = format!("open {name} {bits:?} append {append} new {create_new} {flags:o}");
        if self.open.len() == MOST_OPEN {
            let n = self.below(MOST_OPEN);
            self.open.remove(n);
        }
        let outcome = outcome.map(|file| self.open.push(file));
        self.note(what, outcome);
    }

    fn use_file(&mut self, n: usize) {
        let is_directory = self.open[n].metadata().is_ok_and(|m| m.is_dir());
        let len = [0, 1, 100, 4096, 9000][self.below(5)];
        let offset = [0, 1, 4000, 4096, 20_000][self.below(5)];
        let bytes = vec![b'a' + self.below(26) as u8; len];
        let mut buf = vec![0; len];
        let mut file = &self.open[n];
        let (what, outcome): (String, io::Result<String>) = match self.random.next() >> 33 {
            r if r % 16 < 2 => (
                format!("read {len}"),
                read_all(&mut buf, |buf, _| file.read(buf)),
            ),
            r if r % 16 == 2 => (
                format!("read_at {len} {offset}"),
                read_all(&mut buf, |buf, n| file.read_at(buf, offset + n as u64)),
            ),
            r if r % 16 < 5 => (
                format!("write {len}"),
                file.write(&bytes).map(|n| n.to_string()),
            ),
            r if r % 16 == 5 => (
                format!("write_at {len} {offset}"),
                file.write_at(&bytes, offset).map(|n| n.to_string()),
            ),
            r if r % 16 == 6 && !is_directory => (
                format!("seek {offset}"),
                file.seek(SeekFrom::Start(offset)).map(|n| n.to_string()),
            ),
            r if r % 16 == 7 && !is_directory => (
                format!("seek end -{len}"),
                file.seek(SeekFrom::End(-(len as i64)))
                    .map(|n| n.to_string()),
            ),
            r if r % 16 == 8 => (
                format!("set_len {offset}"),
                file.set_len(offset).map(|()| String::new()),
            ),
            r if r % 16 == 9 => (
                "sync".to_owned(),
                match r % 32 {
                    9 => file.sync_all().map(|()| String::new()),
                    _ => file.sync_data().map(|()| String::new()),
                },
            ),
            r if r % 16 == 10 => ("fstat".to_owned(), file.metadata().map(shown)),
            r if r % 16 == 11 && self.can_allocate => (
                format!("allocate {offset} {len}"),
                file.allocate(offset, len as u64).map(|()| String::new()),
            ),
            r if r % 16 == 12 => {
                let lock = if r % 32 == 12 {
                    File::try_lock
                } else {
                    File::try_lock_shared
                };
                let outcome = match lock(file) {
                    Ok(()) => Ok("locked".to_owned()),
                    Err(TryLockError::WouldBlock) => Ok("would block".to_owned()),
                    Err(TryLockError::Error(e)) => Err(e),
                };
                (format!("lock {}", r % 32), outcome)
            }
            r if r % 16 == 13 => ("unlock".to_owned(), file.unlock().map(|()| String::new())),
            r if r % 16 == 14 && !is_directory => {
                let mut all = Vec::new();
                let outcome = file.read_to_end(&mut all).map(|_| digest(&all));
                ("read to the end".to_owned(), outcome)
            }
            r if r % 16 == 15 => {
                let clone = file.try_clone();
                let outcome = clone.map(|clone| {
                    self.open[n] = clone;
                    String::new()
                });
                ("clone".to_owned(), outcome)
            }
            _ => return,
        };
        self.note(format!("file {n}: {what}"), outcome);
    }

    /// All that there is.
    fn dump(&mut self, path: &Path) {
        let metadata = fs::symlink_metadata(path).map(shown);
        let name = path.strip_prefix(&self.base).unwrap().to_owned();
        self.note(format!("{}", name.display()), metadata);
        let is_file = fs::symlink_metadata(path).is_ok_and(|m| m.is_file());
        if is_file {
            let content = fs::read(path).map(|bytes| digest(&bytes));
            self.note("content".to_owned(), content);
        }
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
            let entries = fs::read_dir(path).unwrap();
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths.iter().for_each(|path| self.dump(path));
        }
    }
}

/// Reads until there is no more: a read of the kernel's may end where its cache does.
fn read_all(
    buf: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<String> {
    let mut n = 0;
    loop {
        match read(&mut buf[n..], n)? {
            0 => return Ok(digest(&buf[..n])),
            more => n += more,
        }
    }
}

/// The attributes that do not differ between file systems.
fn shown(metadata: Metadata) -> String {
    let is_dir = metadata.is_dir();
    let (len, n_links) = if is_dir {
        (0, 0)
    } else {
        (metadata.len(), metadata.nlink())
    };
    format!("{:o} {len} {n_links}", metadata.mode())
}

/// The length, and a number for the bytes.
fn digest(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0_u64, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte) + 1)
    });
    format!("{} bytes, {sum:x}", bytes.len())
}

/// The lines before the one that differs.
fn found_before(lines: &[String], n: usize) -> String {
    let lines = lines[..n].iter().skip(n.saturating_sub(20));
    lines.map(|line| format!("\n  {line}")).collect()
}

#[test]
fn drawn_operations_do_what_they_do_on_the_kernels_disk() {
    const STEPS: usize = 150;
    let n_seeds = std::env::var("WINDLASS_DISK_SEEDS").map_or(40, |n| n.parse().unwrap());
    let dir = TempDir::new();
    let can_allocate = util::run(1, || {
        File::create(dir.join("f")).unwrap().allocate(0, 1).is_ok()
    });
    let mut n_lines = 0;
    let mut n_errors = 0;
    for seed in 0..n_seeds {
        let dir = TempDir::new();
        let expected = util::run(2, || {
            Machine::new(dir.path(), seed, can_allocate).run(STEPS)
        });
        let found = RefCell::new(Vec::new());
        let outcome = Sim::new(PROMISE).seed(seed).seeds(1).run(|| {
            let top = Path::new("/tmp/top");
            *found.borrow_mut() = Machine::new(top, seed, can_allocate).run(STEPS);
        });
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
        let all = found.into_inner();
        let found = &all;
        for (n, (expected, found)) in expected.iter().zip(found).enumerate() {
            let before = || found_before(&all, n);
            assert_eq!(expected, found, "seed {seed}, after{}", before());
        }
        assert_eq!(expected.len(), found.len());
        n_lines += found.len();
        n_errors += found.iter().filter(|line| line.contains("error")).count();
    }
    // Most operations do something.
    assert!(n_lines > 250 * n_seeds as usize, "{n_lines}");
    assert!(n_errors * 3 < n_lines * 2, "{n_errors} of {n_lines} fail");
}
