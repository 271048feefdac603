//! Searches the memory of this process for words.
//!
//! The kernel copies it (`/proc/self/mem`): memory that another thread writes meanwhile is no race of this program, and
//! what was unmapped is an error and not a fault. Pages that were never written are left out (`/proc/self/pagemap`).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use windlass_sys::mmap;

/// How much is copied at a time.
const CHUNK_BYTES: usize = 256 * 1024;
const WORD_BYTES: usize = size_of::<usize>();

/// The bits of an entry of the page map for a page that is in memory, or in swap.
const HAS_DATA: u64 = 1 << 63 | 1 << 62;

/// Passes the address and the value of each word that `is_wanted` to `found`.
///
/// # Errors
///
/// If the kernel does not let the process read its memory.
pub(crate) fn search(
    is_wanted: impl Fn(usize) -> bool,
    mut found: impl FnMut(usize, usize),
) -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut memory = Memory::open()?;
    for area in maps.lines().filter_map(writable) {
        memory.search(area, &is_wanted, &mut found);
    }
    Ok(())
}

/// The addresses in a line of `/proc/self/maps`, if a value of the program may be there.
fn writable(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    // Shared memory is that of files, rings and other processes.
    if rights != "rw-p" && rights != "rwxp" {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

struct Memory {
    memory: File,
    pages: Option<File>,
    copy: Vec<u8>,
}

impl Memory {
    fn open() -> io::Result<Memory> {
        Ok(Memory {
            memory: File::open("/proc/self/mem")?,
            pages: File::open("/proc/self/pagemap").ok(),
            copy: vec![0; CHUNK_BYTES],
        })
    }

    fn search(
        &mut self,
        area: Range<usize>,
        is_wanted: &impl Fn(usize) -> bool,
        found: &mut impl FnMut(usize, usize),
    ) {
        let page_bytes = mmap::page_bytes();
        for chunk in area.clone().step_by(CHUNK_BYTES) {
            let chunk = chunk..area.end.min(chunk + CHUNK_BYTES);
            let has_data = self.pages_with_data(&chunk);
            let mut at = chunk.start;
            while at < chunk.end {
                let is_there = |at: usize| has_data[(at - chunk.start) / page_bytes];
                let mut end = at;
                while end < chunk.end && is_there(end) {
                    end += page_bytes;
                }
                self.search_run(at..end, is_wanted, found);
                at = end + page_bytes;
            }
        }
    }

    /// Which pages are in memory or in swap; all, if that cannot be known.
    fn pages_with_data(&self, chunk: &Range<usize>) -> Vec<bool> {
        let page_bytes = mmap::page_bytes();
        let n = chunk.len().div_ceil(page_bytes);
        let mut entries = vec![0; n * size_of::<u64>()];
        let at = (chunk.start / page_bytes * size_of::<u64>()) as u64;
        let read = self
            .pages
            .as_ref()
            .map(|f| f.read_exact_at(&mut entries, at));
        if !matches!(read, Some(Ok(()))) {
            return vec![true; n];
        }
        let entries = entries.as_chunks().0.iter();
        let has_data = entries.map(|&entry| u64::from_ne_bytes(entry) & HAS_DATA != 0);
        has_data.collect()
    }

    /// Searches pages. One that cannot be read is skipped.
    fn search_run(
        &mut self,
        run: Range<usize>,
        is_wanted: &impl Fn(usize) -> bool,
        found: &mut impl FnMut(usize, usize),
    ) {
        let page_bytes = mmap::page_bytes();
        // What is copied is found where it comes from, not in the copy.
        let own = self.copy.as_ptr_range();
        let own = own.start.addr()..own.end.addr();
        let mut at = run.start;
        while at < run.end {
            let copy = &mut self.copy[..run.end - at];
            let n = self.memory.read_at(copy, at as u64).unwrap_or(0);
            if n == 0 {
                at += page_bytes;
                continue;
            }
            for (i, &word) in copy[..n].as_chunks::<WORD_BYTES>().0.iter().enumerate() {
                let word = usize::from_ne_bytes(word);
                let place = at + i * WORD_BYTES;
                if is_wanted(word) && !own.contains(&place) {
                    found(place, word);
                }
            }
            at += n - n % WORD_BYTES;
        }
    }
}

/// The next search is not to find what this one has copied.
impl Drop for Memory {
    fn drop(&mut self) {
        self.copy.fill(0);
        std::hint::black_box(self.copy.as_ptr());
    }
}
