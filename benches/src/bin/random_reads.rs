//! Random reads of 4 KiB from one file, by many tasks at a time.
//!
//! `random_reads cached windlass` reads from the page cache, `random_reads direct windlass`
//! with `O_DIRECT`; it prints `per_second=..` and `cpu_ns=..`, CPU time of the process for
//! each read.
//!
//! - Each page of the file begins with its number, which every read checks.
//! - windlass and the threads read at a position of a file they share, and so do monoio and
//!   compio, whose tasks are shared out to the cores, by programs of their own:
//!   `bench_monoio random_reads cached`.
//! - tokio: a file for each task, and seek and read, as `tokio::fs` has no reads at a position. It
//!   has no aligned buffers either, so with `O_DIRECT` it is `spawn_blocking` around a read of
//!   std's.
//! - The file lies beside the program if `--folder` does not say otherwise, and stays there.

use std::fs;
use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt};
use clap::Parser;
use windlass_benches::random_reads::{
    self, Job, Mode, Page, Reading, Reads, position, read_blocking,
};
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    reading: Reading,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
}

fn main() -> io::Result<()> {
    let Args {
        reading,
        runtime,
        workers,
    } = Args::parse();
    random_reads::measure(reading, |job| match runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(&job)),
        Name::Tokio => runtimes::tokio(workers).run(tokio(job)),
        Name::Threads => threads(&job),
        other => other.has_no_twin(),
    })
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
        while let Some(page) = reads.next_page() {
            file.seek(SeekFrom::Start(position(page))).await?;
            file.read_exact(buffer.get()).await?;
            reads.check(page, buffer.get());
        }
        Ok(reads.done)
    }

    async fn direct(file: Arc<fs::File>, mut reads: Reads) -> io::Result<u64> {
        let mut buffer = Page::new();
        while let Some(page) = reads.next_page() {
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
