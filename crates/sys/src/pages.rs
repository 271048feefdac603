//! Which pages of this process have data of its own (`/proc/self/pagemap`).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::errno::cvt;
use super::mmap::page_bytes;

/// Bits of an entry of the page map: the page is in memory, or in swap.
const HAS_DATA: u64 = 1 << 63 | 1 << 62;
/// It is that of a file, or shared.
const IS_OF_FILE: u64 = 1 << 61;
/// How many entries are read at a time.
const N_ENTRIES: usize = 8192;

/// Linux 6.7's `PAGEMAP_SCAN`: passes over page tables that are not there.
const SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// Categories of pages, of the same.
const SCAN_IS_OF_FILE: u64 = 1 << 2;
const SCAN_IS_PRESENT: u64 = 1 << 3;
const SCAN_IS_SWAPPED: u64 = 1 << 4;
const SCAN_IS_ZERO_PAGE: u64 = 1 << 5;
/// How many runs are asked for at a time.
const N_RUNS: usize = 512;

/// `struct page_region` of linux/fs.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[derive(Debug, Default)]
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The page map of this process.
#[derive(Debug)]
pub struct PageMap {
    map: Option<File>,
    can_scan: bool,
}

impl PageMap {
    /// Opens the page map. A kernel without one is no error: then each page may have data.
    #[must_use]
    pub fn open() -> PageMap {
        PageMap {
            map: File::open("/proc/self/pagemap").ok(),
            can_scan: true,
        }
    }

    /// The runs of pages with private data, in memory or in swap, at the beginning of `area`, and the address up to which
    /// they were looked for, which is above its start. Left out are pages of files that were not written here, and
    /// maybe such as are nothing but zeros. No page is made.
    pub fn with_data(&mut self, area: &Range<usize>) -> (Vec<Range<usize>>, usize) {
        let Some(map) = &self.map else {
            return (vec![area.clone()], area.end);
        };
        if self.can_scan {
            match scan(map, area) {
                Ok((runs, end)) if end > area.start => return (runs, end),
                _ => self.can_scan = false,
            }
        }
        read(map, area).unwrap_or_else(|_| (vec![area.clone()], area.end))
    }
}

/// Asks the kernel for the runs.
fn scan(map: &File, area: &Range<usize>) -> io::Result<(Vec<Range<usize>>, usize)> {
    let mut runs = [Run::default(); N_RUNS];
    let mut arg = Scan {
        size: size_of::<Scan>() as u64,
        start: area.start as u64,
        end: area.end as u64,
        vec: runs.as_mut_ptr().expose_provenance() as u64,
        vec_len: N_RUNS as u64,
        category_inverted: SCAN_IS_ZERO_PAGE | SCAN_IS_OF_FILE,
        category_mask: SCAN_IS_ZERO_PAGE | SCAN_IS_OF_FILE,
        category_anyof_mask: SCAN_IS_PRESENT | SCAN_IS_SWAPPED,
        ..Scan::default()
    };
    // SAFETY: the argument has the size that it says, and room for as many runs as it says; both outlive the call.
    let n = cvt(unsafe { libc::ioctl(map.as_raw_fd(), SCAN, &raw mut arg) })?;
    let runs = runs.iter().take(n as usize);
    let runs = runs.map(|run| run.start as usize..run.end as usize);
    Ok((runs.collect(), arg.walk_end as usize))
}

/// Whether an entry says that the page has private data.
fn is_private(entry: u64) -> bool {
    entry & HAS_DATA != 0 && entry & IS_OF_FILE == 0
}

/// Reads the entries of the pages.
fn read(map: &File, area: &Range<usize>) -> io::Result<(Vec<Range<usize>>, usize)> {
    let page_bytes = page_bytes();
    let n = (area.len() / page_bytes).min(N_ENTRIES);
    let mut entries = vec![0; n * size_of::<u64>()];
    map.read_exact_at(
        &mut entries,
        (area.start / page_bytes * size_of::<u64>()) as u64,
    )?;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (idx, &entry) in entries.as_chunks().0.iter().enumerate() {
        let at = area.start + idx * page_bytes;
        match runs.last_mut() {
            _ if !is_private(u64::from_ne_bytes(entry)) => {}
            Some(run) if run.end == at => run.end += page_bytes,
            _ => runs.push(at..at + page_bytes),
        }
    }
    Ok((runs, area.start + n * page_bytes))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::mmap;

    fn all_runs(mut pages: PageMap, area: &Range<usize>) -> Vec<Range<usize>> {
        let (mut all, mut at) = (Vec::<Range<usize>>::new(), area.start);
        while at < area.end {
            let (runs, end) = pages.with_data(&(at..area.end));
            assert!(at < end && end <= area.end);
            all.extend(runs);
            at = end;
        }
        all
    }

    /// Reserves memory, writes to these pages, and finds these alone.
    fn finds(bytes: usize, can_scan: bool, written: impl Iterator<Item = usize> + Clone) {
        let page_bytes = page_bytes();
        let base = mmap::reserve(bytes).unwrap();
        let area = base.addr()..base.addr() + bytes;
        for page in written.clone() {
            // SAFETY: the page is in the mapping, which nothing else uses.
            unsafe { base.add(page * page_bytes).write(1) };
        }
        let pages = PageMap {
            can_scan,
            ..PageMap::open()
        };
        let found: Vec<_> = all_runs(pages, &area)
            .into_iter()
            .flat_map(|run| run.step_by(page_bytes))
            .map(|at| (at - area.start) / page_bytes)
            .collect();
        assert_eq!(found, written.collect::<Vec<_>>());
        // SAFETY: nothing uses the mapping any more.
        unsafe { mmap::release(base, bytes) };
    }

    /// More runs than fit into one answer, and runs of several pages.
    #[test]
    fn pages_that_were_written_are_found() {
        let written = (0..5000).filter(|page| page % 3 == 1 || page % 128 == 0);
        for can_scan in [true, false] {
            finds(10_000 * page_bytes(), can_scan, written.clone());
        }
    }

    #[test]
    fn pages_of_a_file_are_found_once_they_are_written() {
        let page_bytes = page_bytes();
        let file = File::open("/proc/self/exe").unwrap();
        let bytes = 8 * page_bytes;
        // SAFETY: a mapping at an address of the kernel's choice; a private one does not write to the file.
        let base = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = std::ptr::null_mut();
            libc::mmap(at, bytes, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base: *mut u8 = base.cast();
        for page in 0..8 {
            // SAFETY: the page is in the mapping.
            let at = unsafe { base.add(page * page_bytes) };
            // SAFETY: as above, and nothing else uses it.
            let byte = unsafe { at.read_volatile() };
            if page == 5 {
                // SAFETY: as above.
                unsafe { at.write_volatile(!byte) };
            }
        }
        let area = base.addr()..base.addr() + bytes;
        for can_scan in [true, false] {
            let pages = PageMap {
                can_scan,
                ..PageMap::open()
            };
            let written = area.start + 5 * page_bytes..area.start + 6 * page_bytes;
            assert_eq!(all_runs(pages, &area), [written]);
        }
        // SAFETY: nothing uses the mapping any more.
        unsafe { mmap::release(base, bytes) };
    }

    /// Entry by entry, this takes half an hour.
    #[test]
    fn nothing_is_done_for_pages_that_nobody_has_touched() {
        let probe = PageMap::open();
        let page = page_bytes();
        let has_scan = probe
            .map
            .is_some_and(|map| scan(&map, &(page..2 * page)).is_ok());
        let bytes: usize = if has_scan { 1 << 45 } else { 1 << 36 };
        let last = bytes / page - 1;
        finds(bytes, true, [0, last / 2, last].into_iter());
    }
}
