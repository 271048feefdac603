//! Random reads of 4 KiB from one file, by many tasks at a time.
//!
//! `random_reads cached windlass` reads from the page cache, `random_reads direct windlass`
//! with `O_DIRECT`; it prints `per_second=..` and `cpu_ns=..`, CPU time of the process for
//! each read.
//!
//! - Each page of the file begins with its number, which every read checks.
//! - windlass and the threads read at a position of a file they share, and so do monoio and
//!   compio, whose tasks are shared out to the cores.
//! - tokio: a file for each task, and seek and read, as `tokio::fs` has no reads at a position. It
//!   has no aligned buffers either, so with `O_DIRECT` it is `spawn_blocking` around a read of
//!   std's.
//! - The file lies beside the program if `--folder` does not say otherwise, and stays there.
#![expect(clippy::print_stdout, reason = "the result")]

use std::fs::{self, OpenOptions};
use std::io::{self, Read, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, hint};

use ::tokio::io::{AsyncReadExt, AsyncSeekExt};
use clap::{Parser, ValueEnum};
use windlass_benches::per_core::{self, Compio, Monoio, PerCore};
use windlass_benches::process;
use windlass_benches::runtimes::{self, Name};

const PAGE_BYTES: usize = 4096;

/// No more reads are to begin.
///
/// Ordering: relaxed; it says nothing about other memory.
static OVER: AtomicBool = AtomicBool::new(false);

#[derive(Parser)]
struct Args {
    mode: Mode,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// All of the file is in the page cache.
    Cached,
    /// `O_DIRECT`.
    Direct,
}

/// What is read, and how.
#[derive(Clone)]
struct Job {
    path: PathBuf,
    pages: u64,
    mode: Mode,
    tasks: usize,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let folder = match args.folder {
        Some(folder) => folder,
        None => env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .unwrap_or_default(),
    };
    let job = Job {
        path: folder.join("random_reads.data"),
        pages: (args.mib << 20) as u64 / PAGE_BYTES as u64,
        mode: args.mode,
        tasks: args.tasks,
    };
    job.prepare()?;
    if job.options().open(&job.path).is_err() {
        println!("skipped: {} does not take O_DIRECT", folder.display());
        return Ok(());
    }

    let (cpu_before, start) = (process::own_cpu_time(), Instant::now());
    let patience = Duration::from_secs_f64(args.seconds);
    let clock = thread::spawn(move || {
        thread::sleep(patience);
        OVER.store(true, Ordering::Relaxed);
    });
    let workers = args.workers;
    let reads = match args.runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(&job))?,
        Name::Tokio => runtimes::tokio(workers).run(tokio(job))?,
        Name::Monoio => on_each_core::<Monoio>(&job, workers)?,
        Name::Compio => on_each_core::<Compio>(&job, workers)?,
        Name::Threads => threads(&job)?,
        Name::May => args.runtime.has_no_twin(),
    };
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

    fn flags(&self) -> i32 {
        match self.mode {
            Mode::Cached => 0,
            Mode::Direct => libc::O_DIRECT,
        }
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(self.flags());
        options
    }

    fn reads(&self, task: usize) -> Reads {
        Reads {
            pages: self.pages,
            random: task as u64,
            done: 0,
        }
    }
}

/// The reads of one task.
struct Reads {
    pages: u64,
    random: u64,
    done: u64,
}

impl Reads {
    /// The page to read next.
    fn next(&mut self) -> Option<u64> {
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
    fn check(&mut self, page: u64, bytes: &[u8]) {
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        assert_eq!(number, page, "another page than was asked for");
        self.done += 1;
    }
}

/// A page of memory where `O_DIRECT` wants it: a part of a buffer, as the runtimes that own
/// buffers take such parts.
struct Page {
    bytes: Box<[u8]>,
    at: usize,
}

impl Page {
    fn new() -> Page {
        let bytes = vec![0; 2 * PAGE_BYTES].into_boxed_slice();
        let at = bytes.as_ptr().align_offset(PAGE_BYTES);
        Page { bytes, at }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + PAGE_BYTES]
    }
}

fn position(page: u64) -> u64 {
    page * PAGE_BYTES as u64
}

fn read_blocking(file: &impl FileExt, mut reads: Reads) -> io::Result<u64> {
    let mut buffer = Page::new();
    while let Some(page) = reads.next() {
        file.read_exact_at(buffer.get(), position(page))?;
        reads.check(page, buffer.get());
    }
    Ok(reads.done)
}

fn windlass(job: &Job) -> io::Result<u64> {
    let mut options = windlass::fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(job.flags())
        .open(&job.path)?;
    let file = Arc::new(file);
    let tasks: Vec<_> = (0..job.tasks)
        .map(|i| {
            let (file, reads) = (Arc::clone(&file), job.reads(i));
            windlass::spawn(move || read_blocking(&*file, reads))
        })
        .collect();
    tasks
        .into_iter()
        .map(|task| task.join().expect("a reader should not panic"))
        .sum()
}

fn threads(job: &Job) -> io::Result<u64> {
    let file = job.options().open(&job.path)?;
    thread::scope(|s| {
        let threads: Vec<_> = (0..job.tasks)
            .map(|i| {
                let (file, reads) = (&file, job.reads(i));
                s.spawn(move || read_blocking(file, reads))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a reader should not panic"))
            .sum()
    })
}

async fn tokio(job: Job) -> io::Result<u64> {
    async fn cached(path: PathBuf, mut reads: Reads) -> io::Result<u64> {
        let mut file = ::tokio::fs::File::open(path).await?;
        let mut buffer = Page::new();
        while let Some(page) = reads.next() {
            file.seek(SeekFrom::Start(position(page))).await?;
            file.read_exact(buffer.get()).await?;
            reads.check(page, buffer.get());
        }
        Ok(reads.done)
    }

    async fn direct(file: Arc<fs::File>, mut reads: Reads) -> io::Result<u64> {
        let mut buffer = Page::new();
        while let Some(page) = reads.next() {
            let file = Arc::clone(&file);
            let read = ::tokio::task::spawn_blocking(move || {
                file.read_exact_at(buffer.get(), position(page))?;
                io::Result::Ok(buffer)
            });
            buffer = read.await??;
            reads.check(page, buffer.get());
        }
        Ok(reads.done)
    }

    let file = Arc::new(job.options().open(&job.path)?);
    let tasks: Vec<_> = (0..job.tasks)
        .map(|i| match job.mode {
            Mode::Cached => ::tokio::spawn(cached(job.path.clone(), job.reads(i))),
            Mode::Direct => ::tokio::spawn(direct(Arc::clone(&file), job.reads(i))),
        })
        .collect();
    let mut all = 0;
    for task in tasks {
        all += task.await??;
    }
    Ok(all)
}

fn on_each_core<R: PerCore>(job: &Job, workers: usize) -> io::Result<u64> {
    async fn read<R: PerCore>(file: Rc<R::File>, mut reads: Reads) -> io::Result<u64> {
        let Page { mut bytes, at } = Page::new();
        let range = at..at + PAGE_BYTES;
        while let Some(page) = reads.next() {
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
