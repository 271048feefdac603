//! Random reads of 4 KiB from one file that is in memory, by many tasks at a time.
//!
//! tokio has no reads at a position: each of its tasks has a file of its own, and seeks.

use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::runtimes::Tokio;

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 16 << 10;

/// Writes the file, if it is not there: 64 MiB, whose pages begin with their numbers.
///
/// # Errors
///
/// Those of writing.
pub fn prepare(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("reads.data");
    let bytes = PAGES * PAGE_BYTES as u64;
    if !std::fs::metadata(&path).is_ok_and(|there| there.len() == bytes) {
        let mut all = vec![0; bytes as usize];
        for (number, page) in all.chunks_exact_mut(PAGE_BYTES).enumerate() {
            page[..8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        // Under another name until it is whole.
        let unfinished = path.with_extension(std::process::id().to_string());
        std::fs::write(&unfinished, all)?;
        std::fs::rename(&unfinished, &path)?;
    }
    Ok(path)
}

/// The pages that a task reads: a sequence that only looks random.
fn pages(task: usize, reads: u64) -> impl Iterator<Item = u64> {
    let mut state = task as u64;
    (0..reads).map(move |_| {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ (x >> 27)) % PAGES
    })
}

fn check(page: u64, bytes: &[u8]) {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(number, page, "another page than was asked for");
}

/// Goroutines, which share the file.
pub fn windlass(runtime: &windlass::Runtime, path: &Path, tasks: usize, reads: u64) -> Duration {
    let path = path.to_owned();
    runtime.run(move || {
        let file = Arc::new(windlass::fs::File::open(&path).unwrap());
        let read = |task| {
            let file = Arc::clone(&file);
            windlass::spawn(move || {
                let mut buffer = vec![0; PAGE_BYTES];
                for page in pages(task, reads) {
                    file.read_exact_at(&mut buffer, page * PAGE_BYTES as u64)
                        .unwrap();
                    check(page, &buffer);
                }
            })
        };
        let begin = Instant::now();
        let all: Vec<_> = (0..tasks).map(read).collect();
        all.into_iter().for_each(|reader| reader.join().unwrap());
        begin.elapsed()
    })
}

/// tokio's tasks.
pub fn tokio(runtime: &Tokio, path: &Path, tasks: usize, reads: u64) -> Duration {
    async fn read(mut file: ::tokio::fs::File, task: usize, reads: u64) {
        let mut buffer = vec![0; PAGE_BYTES];
        for page in pages(task, reads) {
            file.seek(SeekFrom::Start(page * PAGE_BYTES as u64))
                .await
                .unwrap();
            file.read_exact(&mut buffer).await.unwrap();
            check(page, &buffer);
        }
    }
    let path = path.to_owned();
    runtime.run(async move {
        let mut files = Vec::new();
        for _ in 0..tasks {
            files.push(::tokio::fs::File::open(&path).await.unwrap());
        }
        let begin = Instant::now();
        let files = files.into_iter().enumerate();
        let all: Vec<_> = files
            .map(|(task, file)| ::tokio::spawn(read(file, task, reads)))
            .collect();
        for reader in all {
            reader.await.unwrap();
        }
        begin.elapsed()
    })
}
