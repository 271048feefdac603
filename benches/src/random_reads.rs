//! Random reads of 4 KiB from one file, by many tasks at a time: the file, what is read of it, and
//! how it is measured. The reading itself is each runtime's own.
#![expect(clippy::print_stdout, reason = "the result")]

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, hint};

use clap::ValueEnum;

use crate::per_core::{self, PerCore};
use crate::process;

/// The bytes of a read.
pub const PAGE_BYTES: usize = 4096;

/// No more reads are to begin.
///
/// Ordering: relaxed; it says nothing about other memory.
static OVER: AtomicBool = AtomicBool::new(false);

/// The reads that the command line asks for.
#[derive(Clone, Debug, clap::Args)]
pub struct Reading {
    mode: Mode,
    /// How many read at a time.
    #[arg(long, default_value_t = 128)]
    tasks: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The size of the file.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Where the file lies: beside the program.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// How the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// All of the file is in the page cache.
    Cached,
    /// `O_DIRECT`.
    Direct,
}

/// The reads of one run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file.
    pub path: PathBuf,
    pages: u64,
    /// How it is read.
    pub mode: Mode,
    /// How many read at a time.
    pub tasks: usize,
}

/// Prepares the file, lets `run` read it, and prints `per_second=..` and `cpu_ns=..`, CPU time of
/// the process for each read. Says so if the file system does not take `O_DIRECT`.
///
/// # Errors
///
/// Those of the file, and of `run`, which gives how many reads it did.
///
/// # Panics
///
/// Never: the clock does not panic.
pub fn measure(reading: Reading, run: impl FnOnce(Job) -> io::Result<u64>) -> io::Result<()> {
    let folder = match reading.folder {
        Some(folder) => folder,
        None => env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .unwrap_or_default(),
    };
    let job = Job {
        path: folder.join("random_reads.data"),
        pages: (reading.mib << 20) as u64 / PAGE_BYTES as u64,
        mode: reading.mode,
        tasks: reading.tasks,
    };
    job.prepare()?;
    if job.options().open(&job.path).is_err() {
        println!("skipped: {} does not take O_DIRECT", folder.display());
        return Ok(());
    }

    let (cpu_before, start) = (process::own_cpu_time(), Instant::now());
    let patience = Duration::from_secs_f64(reading.seconds);
    let clock = thread::spawn(move || {
        thread::sleep(patience);
        OVER.store(true, Ordering::Relaxed);
    });
    let reads = run(job)?;
    let (cpu, elapsed) = (process::own_cpu_time() - cpu_before, start.elapsed());
    clock.join().expect("a clock does not panic");
    println!(
        "per_second={:.0} cpu_ns={:.1}",
        reads as f64 / elapsed.as_secs_f64(),
        cpu.as_nanos() as f64 / reads as f64,
    );
    Ok(())
}

impl Job {
    /// Writes the file if it is not there, and reads it once if it is to be in memory.
    fn prepare(&self) -> io::Result<()> {
        let bytes = self.pages * PAGE_BYTES as u64;
        if !fs::metadata(&self.path).is_ok_and(|there| there.len() == bytes) {
            // Under another name until it is whole.
            let unfinished = self.path.with_extension("new");
            let mut file = io::BufWriter::with_capacity(1 << 20, fs::File::create(&unfinished)?);
            let mut page = [0; PAGE_BYTES];
            for number in 0..self.pages {
                page[..8].copy_from_slice(&number.to_le_bytes());
                file.write_all(&page)?;
            }
            file.into_inner()?.sync_all()?;
            fs::rename(&unfinished, &self.path)?;
        }
        if self.mode == Mode::Cached {
            let mut file = fs::File::open(&self.path)?;
            let mut part = vec![0; 1 << 20];
            while file.read(&mut part)? > 0 {
                hint::black_box(&part);
            }
        }
        Ok(())
    }

    /// The flags of `open(2)` that the mode takes.
    pub fn flags(&self) -> i32 {
        match self.mode {
            Mode::Cached => 0,
            Mode::Direct => libc::O_DIRECT,
        }
    }

    /// How std opens the file.
    pub fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(self.flags());
        options
    }

    /// The reads of the task with this number.
    pub fn reads(&self, task: usize) -> Reads {
        Reads {
            pages: self.pages,
            random: task as u64,
            done: 0,
        }
    }
}

/// The reads of one task.
#[derive(Debug)]
pub struct Reads {
    pages: u64,
    random: u64,
    /// How many were right so far.
    pub done: u64,
}

impl Reads {
    /// The page to read next; `None` when the time is over.
    pub fn next_page(&mut self) -> Option<u64> {
        if OVER.load(Ordering::Relaxed) {
            return None;
        }
        // splitmix64
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some((x ^ (x >> 31)) % self.pages)
    }

    /// Counts it, if it is the right one.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn check(&mut self, page: u64, bytes: &[u8]) {
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        assert_eq!(number, page, "another page than was asked for");
        self.done += 1;
    }
}

/// A page of memory where `O_DIRECT` wants it: a part of a buffer, as the runtimes that own
/// buffers take such parts.
#[derive(Debug)]
pub struct Page {
    bytes: Box<[u8]>,
    at: usize,
}

impl Page {
    /// A new one, all zeros.
    pub fn new() -> Page {
        let bytes = vec![0; 2 * PAGE_BYTES].into_boxed_slice();
        let at = bytes.as_ptr().align_offset(PAGE_BYTES);
        Page { bytes, at }
    }

    /// Its bytes.
    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + PAGE_BYTES]
    }
}

impl Default for Page {
    fn default() -> Self {
        Page::new()
    }
}

/// Where a page begins in the file.
pub fn position(page: u64) -> u64 {
    page * PAGE_BYTES as u64
}

/// Reads by calls that block: a thread, or what looks like one.
///
/// # Errors
///
/// Those of the file.
pub fn read_blocking(file: &impl FileExt, mut reads: Reads) -> io::Result<u64> {
    let mut buffer = Page::new();
    while let Some(page) = reads.next_page() {
        file.read_exact_at(buffer.get(), position(page))?;
        reads.check(page, buffer.get());
    }
    Ok(reads.done)
}

/// Tasks of a runtime for each of `workers` cores, which share the reads evenly.
///
/// # Errors
///
/// Those of the file.
///
/// # Panics
///
/// If a page is not read as a whole, or is another one.
pub fn per_core<R: PerCore>(job: &Job, workers: usize) -> io::Result<u64> {
    async fn read<R: PerCore>(file: Rc<R::File>, mut reads: Reads) -> io::Result<u64> {
        let Page { mut bytes, at } = Page::new();
        let range = at..at + PAGE_BYTES;
        while let Some(page) = reads.next_page() {
            let (read, same) = R::read_at(&file, bytes, range.clone(), position(page)).await;
            assert_eq!(read?, PAGE_BYTES, "a whole page");
            bytes = same;
            reads.check(page, &bytes[range.clone()]);
        }
        Ok(reads.done)
    }

    async fn worker<R: PerCore>(job: Job, worker: usize, workers: usize) -> io::Result<u64> {
        let file = Rc::new(R::open(Path::new(&job.path), job.flags()).await?);
        let tasks: Vec<_> = (worker..job.tasks)
            .step_by(workers)
            .map(|i| R::spawn(read::<R>(Rc::clone(&file), job.reads(i))))
            .collect();
        let mut all = 0;
        for task in tasks {
            all += task.await?;
        }
        Ok(all)
    }

    per_core::on_each_core::<R, _, _>(workers, |i| worker::<R>(job.clone(), i, workers))
        .into_iter()
        .sum()
}
