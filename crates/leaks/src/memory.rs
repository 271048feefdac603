//! Searches the memory of this process for words.
//!
//! The kernel copies it (`/proc/self/mem`): memory that another thread writes meanwhile is no race of this program, and
//! what was unmapped is an error and not a fault. Pages that the program has never written are left out ([`windlass_sys::pages`]).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use windlass_sys::mmap;
use windlass_sys::pages::PageMap;

/// How much is copied at a time.
const CHUNK_BYTES: usize = 256 * 1024;
const WORD_BYTES: usize = size_of::<usize>();

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
    for area in maps.lines().filter_map(private) {
        memory.search(area, &is_wanted, &mut found);
    }
    Ok(())
}

/// The addresses in a line of `/proc/self/maps`, if a value of the program may be there.
fn private(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    // Shared memory is that of files, rings and other processes.
    if !rights.starts_with('r') || !rights.ends_with('p') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

struct Memory {
    memory: File,
    pages: PageMap,
    copy: Vec<u8>,
}

impl Memory {
    fn open() -> io::Result<Memory> {
        Ok(Memory {
            memory: File::open("/proc/self/mem")?,
            pages: PageMap::open(),
            copy: vec![0; CHUNK_BYTES],
        })
    }

    fn search(
        &mut self,
        area: Range<usize>,
        is_wanted: &impl Fn(usize) -> bool,
        found: &mut impl FnMut(usize, usize),
    ) {
        let mut at = area.start;
        while at < area.end {
            let (runs, end) = self.pages.with_data(&(at..area.end));
            for run in runs {
                self.search_run(run, is_wanted, found);
            }
            at = end;
        }
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
            let copy = &mut self.copy[..CHUNK_BYTES.min(run.end - at)];
            let n = self.memory.read_at(copy, at as u64).unwrap_or(0);
            for (i, &word) in copy[..n].as_chunks::<WORD_BYTES>().0.iter().enumerate() {
                let word = usize::from_ne_bytes(word);
                let place = at + i * WORD_BYTES;
                if is_wanted(word) && !own.contains(&place) {
                    found(place, word);
                }
            }
            // It ends early before a page that cannot be read.
            at += if n == 0 { page_bytes } else { n };
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
