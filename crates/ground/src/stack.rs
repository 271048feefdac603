//! Stacks: slots of large arenas, one set of arenas per NUMA node.
//!
//! ```text
//!  arena (one mapping, 256 slots or what fits, preferred on its node, no huge pages)
//!  +--------+--------+--------+----
//!  | slot 0 | slot 1 | slot 2 | ...
//!  +--------+--------+--------+----
//!
//!  slot, low to high addresses
//!  +-------+---------------------------------+--------+
//!  | guard |  ... grows down ...      frames | colour |
//!  +-------+---------------------------------+--------+
//!  ^ bottom                                  ^ top      (slot % 16) * 64 bytes
//! ```
//!
//! - A slot's guard page is made when the slot is first used. On Linux 6.13 and later it costs no
//!   mapping (`MADV_GUARD_INSTALL`). Before, and in locked memory (`mlockall`), `mprotect` splits
//!   the arena, so the number of such stacks is kept below `vm.max_map_count`.
//! - The colour lowers the top by a few cache lines, in proportion to the slot's number, so that
//!   the hot frames of many stacks are not in the same cache sets. It is linear, not hashed: the
//!   prefetcher can follow a stride.
//! - Free stacks are reused last in, first out, with their pages: a short goroutine runs on memory
//!   that is still in the cache.
//! - The pages of stacks that were free for a whole age can be returned to the kernel. Stacks are taken from the back of the list, so the lowest length of the list
//!   during the age is the number of stacks at its front that were not used. The mapping and the
//!   guard stay; such a stack is reused when no other is free.
//! - Sizes beyond the largest class, and those that would leave most of its slots unused, get a
//!   mapping of their own.
//! - A guard is one page of the kernel's page size. Where pages are larger than 4 KiB (aarch64), so
//!   is the guard, and the next class is used where the guard leaves too little of a slot.
#![allow(unsafe_code)]

use std::collections::{HashSet, VecDeque};
use std::ffi::CString;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;

use windlass_sys::mmap::{self, GuardKind};
use windlass_sys::numa;

use crate::lock::{Lock, Rank};
use crate::loom::native::OnceLock;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::oracle;

/// Slot sizes that are pooled.
pub const CLASSES: [usize; 4] = [64 * 1024, 256 * 1024, 1024 * 1024, 8 * 1024 * 1024];

const LARGEST: usize = CLASSES.len() - 1;

const COLOURS: usize = 16;
const COLOUR_BYTES: usize = 64;
/// The slots of an arena of each class. It has fewer where address space is short.
const SLOTS_PER_ARENA: [usize; CLASSES.len()] = [256, 256, 256, 8];
/// The number of stacks whose pages are returned between two acquisitions of the lock.
const RETURNED_AT_ONCE: usize = 64;

/// The bounds of one stack.
///
/// `bottom` is page-aligned; its two low bits hold the class (or `OWN`),
/// the ten above them the node.
#[derive(Debug, PartialEq, Eq)]
pub struct Stack {
    bottom: usize,
    top: usize,
}

impl Stack {
    /// The lowest address, where its guard page is.
    #[inline]
    pub fn bottom(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.bottom & !0xfff).expect("a mapped address is not 0")
    }

    /// The address where the first frame begins.
    #[inline]
    pub fn top(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.top).expect("a mapped address is not 0")
    }

    /// The usable addresses: above the guard page, and below the frame record at the top.
    pub fn span(&self) -> Range<usize> {
        self.bottom().get() + mmap::page_bytes()..self.top - 2 * size_of::<usize>()
    }

    /// The class of this stack, or `None` for one with a mapping of its own.
    #[inline]
    pub fn class(&self) -> Option<usize> {
        let tag = self.bottom & OWN;
        (tag != OWN).then_some(tag)
    }

    /// The node of the pool that it came from.
    #[inline]
    pub fn node(&self) -> usize {
        (self.bottom & 0xfff) >> NODE_SHIFT
    }
}

/// The lowest bits of `Stack::bottom`: the class, or this.
const OWN: usize = 7;
const NODE_SHIFT: u32 = 3;
const _: () = assert!(CLASSES.len() <= OWN);
/// Node numbers above this share a tag; a stack is then returned to the pool with that tag.
const MAX_NODE_TAG: usize = 0x1ff;

/// The smallest class that holds `bytes`, or `None` for a mapping of its own.
#[inline]
pub fn class_for(bytes: usize) -> Option<usize> {
    class_with(bytes, mmap::page_bytes())
}

/// As [`class_for`], for a kernel with pages of `page_bytes`. The sizes include a guard of 4 KiB;
/// the extra size of a larger guard is added.
#[inline]
fn class_with(bytes: usize, page_bytes: usize) -> Option<usize> {
    let bytes = bytes + (page_bytes - mmap::SMALLEST_PAGE_BYTES);
    let class = CLASSES.iter().position(|&c| c >= bytes)?;
    // A stack of 2 MiB would waste most of a slot of the largest class.
    (bytes >= CLASSES[class] / 2 || class < LARGEST).then_some(class)
}

/// The size of the largest stacks that are pooled.
pub fn largest_pooled() -> usize {
    CLASSES[LARGEST] - (mmap::page_bytes() - mmap::SMALLEST_PAGE_BYTES)
}

/// The usable addresses of the stack of a coroutine that requested `stack_bytes`, from the address
/// of its yielder: that lies in the top page, whatever the colour.
pub fn span_of(way_out: usize, stack_bytes: usize) -> Range<usize> {
    span_with(way_out, stack_bytes, mmap::page_bytes())
}

fn span_with(way_out: usize, stack_bytes: usize, page_bytes: usize) -> Range<usize> {
    let bytes = match class_with(stack_bytes, page_bytes) {
        Some(class) => CLASSES[class],
        None => stack_bytes.next_multiple_of(page_bytes),
    };
    let top = (way_out | (page_bytes - 1)) + 1;
    top - bytes + page_bytes..way_out
}

#[derive(Debug, Default)]
struct ClassPool {
    /// Free stacks with their pages, the most recently used at the back.
    free: VecDeque<Stack>,
    /// Free stacks whose pages were returned.
    empty: Vec<Stack>,
    /// Stacks whose pages are being returned now.
    n_away: usize,
    /// The lowest length of `free` since the age began.
    low: usize,
    /// The number of stacks at the front of `free` that were not used for an age.
    n_old: usize,
    /// The arena that new slots are cut from: base address, slots, next slot.
    arena: usize,
    n_slots: usize,
    next_slot: usize,
    /// Slots cut from all arenas.
    n_cut: usize,
}

impl ClassPool {
    fn pop(&mut self) -> Option<Stack> {
        let stack = self.free.pop_back();
        self.notice_fewer();
        stack.or_else(|| self.empty.pop())
    }

    /// Takes up to `n`, the most recently used at the end of `into`.
    fn pop_many(&mut self, n: usize, into: &mut Vec<Stack>) {
        let n_warm = n.min(self.free.len());
        let from = self.empty.len().saturating_sub(n - n_warm);
        into.extend(self.empty.drain(from..));
        into.extend(self.free.drain(self.free.len() - n_warm..));
        self.notice_fewer();
    }

    fn notice_fewer(&mut self) {
        self.low = self.low.min(self.free.len());
        self.n_old = self.n_old.min(self.free.len());
    }

    fn end_age(&mut self) {
        self.n_old = self.low;
        self.low = self.free.len();
    }

    /// Removes up to `n` stacks that were not used for an age.
    fn take_old(&mut self, n: usize) -> Vec<Stack> {
        let n = n.min(self.n_old);
        self.n_old -= n;
        self.low = self.low.saturating_sub(n);
        self.n_away += n;
        self.free.drain(..n).collect()
    }

    fn n_free(&self) -> usize {
        self.free.len() + self.empty.len() + self.n_away
    }
}

/// A mapping that stacks of one class are cut from.
#[derive(Debug)]
struct Arena {
    base: usize,
    n_slots: usize,
    slot_bytes: usize,
}

#[derive(Debug)]
struct Inner {
    classes: [ClassPool; CLASSES.len()],
    /// Every arena. The last of a class is the one that is being cut.
    arenas: Vec<Arena>,
    /// The stacks with a mapping of their own whose guard counts in `StackPool::n_split`, by their
    /// lowest address.
    own_split: HashSet<usize>,
}

/// The stacks of one NUMA node.
#[derive(Debug)]
pub struct StackPool {
    node_idx: usize,
    /// The kernel's number of the preferred node, on machines with more than one.
    os_node: Option<u32>,
    guard: GuardKind,
    n_nodes: usize,
    inner: Lock<Inner>,
    /// Slots in use or cached. Ordering: relaxed, a statistic.
    n_made: AtomicUsize,
    /// The most stacks at any one time. Ordering: relaxed, a statistic.
    n_peak: AtomicUsize,
    /// Guards that split a mapping. Ordering: relaxed, a limit with room to spare.
    n_split: AtomicUsize,
    /// The limit on `n_split`, from `vm.max_map_count`, which is read at the first such guard.
    limit: OnceLock<usize>,
}

impl StackPool {
    /// A pool without any mapping, of one of `n_nodes` nodes. Its lock has the rank `rank`.
    pub fn new(
        rank: Rank,
        node_idx: usize,
        os_node: Option<u32>,
        guard: GuardKind,
        n_nodes: usize,
    ) -> StackPool {
        StackPool {
            node_idx,
            os_node,
            guard,
            n_nodes,
            inner: Lock::new(
                rank,
                Inner {
                    classes: Default::default(),
                    arenas: Vec::new(),
                    own_split: HashSet::new(),
                },
            ),
            n_made: AtomicUsize::new(0),
            n_peak: AtomicUsize::new(0),
            n_split: AtomicUsize::new(0),
            limit: OnceLock::new(),
        }
    }

    /// The number of stacks, in use or free.
    pub fn n_made(&self) -> usize {
        self.n_made.load(Ordering::Relaxed)
    }

    /// The most stacks at any one time.
    pub fn n_peak(&self) -> usize {
        self.n_peak.load(Ordering::Relaxed)
    }

    /// The number of free stacks in this pool.
    pub fn n_free(&self) -> usize {
        let inner = self.inner.lock();
        inner.classes.iter().map(ClassPool::n_free).sum()
    }

    /// The number of those whose pages were returned.
    pub fn n_returned(&self) -> usize {
        let inner = self.inner.lock();
        inner.classes.iter().map(|c| c.empty.len()).sum()
    }

    /// Whether there are free stacks with their pages.
    pub fn has_pages_to_return(&self) -> bool {
        let inner = self.inner.lock();
        inner.classes.iter().any(|c| !c.free.is_empty())
    }

    /// Ends an age and begins the next: stacks that were free all the time are old now.
    pub fn end_age(&self) {
        let mut inner = self.inner.lock();
        inner.classes.iter_mut().for_each(ClassPool::end_age);
    }

    /// Returns the pages of up to `max` old stacks to the kernel; returns the number of stacks.
    pub fn return_old(&self, max: usize) -> usize {
        let mut n_done = 0;
        for (class, &slot_bytes) in CLASSES.iter().enumerate() {
            while n_done < max {
                let n = RETURNED_AT_ONCE.min(max - n_done);
                // One statement, so that the lock is not held during the system call.
                let mut old = self.inner.lock().classes[class].take_old(n);
                if old.is_empty() {
                    break;
                }
                n_done += old.len();
                old.sort_unstable_by_key(Stack::bottom);
                old.chunk_by(|a, b| a.bottom().get() + slot_bytes == b.bottom().get())
                    .for_each(|run| return_pages(run, slot_bytes));
                let mut inner = self.inner.lock();
                let pool = &mut inner.classes[class];
                pool.n_away -= old.len();
                pool.empty.append(&mut old);
            }
        }
        n_done
    }

    /// Passes to `f` an address in each of about up to `n` pages of stacks, evenly spread, in use
    /// or free: the top page of a stack, which every goroutine that ran has written, and the next
    /// one.
    pub fn sample_pages(&self, n: usize, mut f: impl FnMut(usize)) {
        let inner = self.inner.lock();
        let slots: usize = inner.arenas.iter().map(|a| a.n_slots).sum();
        let step = (2 * slots).div_ceil(n.max(1)).max(1);
        let tops = inner
            .arenas
            .iter()
            .flat_map(|a| (1..=a.n_slots).map(|slot| a.base + slot * a.slot_bytes));
        // Slots that are not cut yet have no pages, and are left out.
        for top in tops.step_by(step) {
            f(top - mmap::page_bytes());
            f(top - 2 * mmap::page_bytes());
        }
    }

    /// The address ranges of the arenas. A stack that is free, or was, is in one, or is not mapped.
    pub fn arenas(&self) -> Vec<Range<usize>> {
        let inner = self.inner.lock();
        let ranges = inner
            .arenas
            .iter()
            .map(|a| a.base..a.base + a.n_slots * a.slot_bytes);
        ranges.collect()
    }

    fn count_made(&self) {
        let n = self.n_made.fetch_add(1, Ordering::Relaxed) + 1;
        self.n_peak.fetch_max(n, Ordering::Relaxed);
    }

    /// Takes a stack of at least `bytes`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the kernel refuses more address space or mappings.
    pub fn take(&self, bytes: usize) -> io::Result<Stack> {
        let stack = match class_for(bytes) {
            Some(class) => {
                let mut inner = self.inner.lock();
                match inner.classes[class].pop() {
                    Some(stack) => stack,
                    None => self.cut(&mut inner, class)?,
                }
            }
            None => self.map_own(bytes)?,
        };
        oracle::stacks(1);
        Ok(stack)
    }

    /// Fills `into` with up to `n` free stacks of a class, for a P's cache. Only existing stacks:
    /// making stacks ahead of need would waste guards.
    pub fn take_free(&self, class: usize, n: usize, into: &mut Vec<Stack>) {
        let before = into.len();
        self.inner.lock().classes[class].pop_many(n, into);
        oracle::stacks((into.len() - before).cast_signed());
    }

    /// Returns stacks to the pool.
    pub fn give(&self, stacks: impl IntoIterator<Item = Stack>) {
        let mut inner = self.inner.lock();
        for stack in stacks {
            oracle::stacks(-1);
            match stack.class() {
                Some(class) => inner.classes[class].free.push_back(stack),
                None => {
                    if inner.own_split.remove(&stack.bottom().get()) {
                        self.n_split.fetch_sub(1, Ordering::Relaxed);
                    }
                    // SAFETY: a stack with a mapping of its own owns that mapping, and is free.
                    unsafe { mmap::release(own_base(&stack), own_len(&stack)) };
                    self.n_made.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Cuts a new slot from the current arena; maps another arena if that is used up.
    fn cut(&self, inner: &mut Inner, class: usize) -> io::Result<Stack> {
        let slot_bytes = CLASSES[class];
        let pool = &inner.classes[class];
        if pool.next_slot == pool.n_slots {
            self.map_arena(inner, class)?;
        }
        let pool = &mut inner.classes[class];
        let bottom = pool.arena + pool.next_slot * slot_bytes;
        // SAFETY: the page is the lowest of a slot that was never in use.
        unsafe { self.guard(std::ptr::with_exposed_provenance_mut(bottom)) }?;
        let colour = pool.n_cut % COLOURS;
        pool.next_slot += 1;
        pool.n_cut += 1;
        self.count_made();
        Ok(Stack {
            bottom: bottom | (self.node_idx.min(MAX_NODE_TAG) << NODE_SHIFT) | class,
            top: bottom + slot_bytes - colour * COLOUR_BYTES,
        })
    }

    /// Maps another arena for a class: a smaller one where the kernel refuses the address space
    /// (`RLIMIT_AS`, strict overcommit), down to one slot.
    fn map_arena(&self, inner: &mut Inner, class: usize) -> io::Result<()> {
        let slot_bytes = CLASSES[class];
        let most = SLOTS_PER_ARENA[class];
        let mut n_slots = match inner.classes[class].n_slots {
            0 => most,
            // If the last arena had to be small, a much larger one is unlikely to fit.
            last => (2 * last).min(most),
        };
        let base = loop {
            match mmap::reserve(n_slots * slot_bytes) {
                Ok(base) => break base,
                Err(e) if n_slots == 1 => return Err(out_of_stacks(&e)),
                Err(_) => n_slots /= 2,
            }
        };
        // SAFETY: the range is the mapping made above.
        unsafe { self.place(base, n_slots * slot_bytes) };
        inner.arenas.push(Arena {
            base: base.addr(),
            n_slots,
            slot_bytes,
        });
        let pool = &mut inner.classes[class];
        pool.arena = base.expose_provenance();
        (pool.n_slots, pool.next_slot) = (n_slots, 0);
        Ok(())
    }

    /// Binds a new mapping of stacks to the pool's node, and names it.
    ///
    /// # Safety
    ///
    /// The range is a mapping of [`mmap::reserve`].
    unsafe fn place(&self, base: *mut u8, bytes: usize) {
        let name = match self.os_node {
            // SAFETY: by this function's contract. A refusal costs locality only.
            Some(node) => unsafe {
                numa::prefer_node(base, bytes, node);
                CString::new(format!("windlass stacks of node {node}"))
            },
            None => Ok(c"windlass stacks".to_owned()),
        };
        if let Ok(name) = name {
            // SAFETY: as above.
            unsafe { mmap::name(base, bytes, &name) };
        }
    }

    fn map_own(&self, bytes: usize) -> io::Result<Stack> {
        let bytes = bytes.next_multiple_of(mmap::page_bytes());
        let base = mmap::reserve(bytes).map_err(|e| out_of_stacks(&e))?;
        // SAFETY: the range is the mapping made above.
        unsafe { self.place(base, bytes) };
        let bottom = base.expose_provenance();
        // SAFETY: the page is the lowest of a fresh mapping.
        match unsafe { self.guard(base) } {
            Ok(GuardKind::Madvise) => {}
            Ok(GuardKind::Mprotect) => {
                self.inner.lock().own_split.insert(bottom);
            }
            Err(e) => {
                // SAFETY: the mapping was made above and is not in use.
                unsafe { mmap::release(base, bytes) };
                return Err(e);
            }
        }
        self.count_made();
        Ok(Stack {
            bottom: bottom | (self.node_idx.min(MAX_NODE_TAG) << NODE_SHIFT) | OWN,
            top: bottom + bytes,
        })
    }

    /// Makes the page at `page` fault on access, and returns the method used.
    ///
    /// # Safety
    ///
    /// As [`mmap::guard`].
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the kernel refuses more memory or mappings.
    unsafe fn guard(&self, page: *mut u8) -> io::Result<GuardKind> {
        if self.guard == GuardKind::Madvise {
            // SAFETY: by this function's contract.
            match unsafe { mmap::guard(page, GuardKind::Madvise) } {
                Ok(()) => return Ok(GuardKind::Madvise),
                // The program has locked its memory since the method was chosen.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(e) => return Err(out_of_stacks(&e)),
            }
        }
        self.check_limit()?;
        // SAFETY: by this function's contract.
        unsafe { mmap::guard(page, GuardKind::Mprotect) }.map_err(|e| out_of_stacks(&e))?;
        self.n_split.fetch_add(1, Ordering::Relaxed);
        Ok(GuardKind::Mprotect)
    }

    fn check_limit(&self) -> io::Result<()> {
        // Two mappings for each stack; a quarter is left for everything else in the process.
        let limit = || mmap::max_map_count() * 3 / 8 / self.n_nodes.max(1);
        let n_split = self.n_split.load(Ordering::Relaxed);
        if n_split < *self.limit.get_or_init(limit) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "{n_split} goroutine stacks use up this kernel's mappings: raise vm.max_map_count \
                 (sysctl), or use Linux 6.13 or later, whose guard pages need none unless memory is \
                 locked (mlockall)",
            ),
        ))
    }

    /// Unmaps every arena.
    ///
    /// # Safety
    ///
    /// No stack of this pool is in use or will be used again.
    pub unsafe fn unmap(&self) {
        let mut inner = self.inner.lock();
        inner.classes = Default::default();
        for arena in std::mem::take(&mut inner.arenas) {
            let base = std::ptr::with_exposed_provenance_mut(arena.base);
            // SAFETY: the arena is this pool's, and unused by this function's contract.
            unsafe { mmap::release(base, arena.n_slots * arena.slot_bytes) };
        }
        self.n_made.store(0, Ordering::Relaxed);
        self.n_split.store(0, Ordering::Relaxed);
    }
}

/// Returns the pages of adjacent free stacks to the kernel. The lowest guard is left out, and the
/// others stay guards.
fn return_pages(run: &[Stack], slot_bytes: usize) {
    let bottom = own_base(&run[0]);
    let page_bytes = mmap::page_bytes();
    let bytes = run.len() * slot_bytes - page_bytes;
    // SAFETY: the slots are free, and the caller has removed them from the list.
    unsafe { mmap::return_pages(bottom.wrapping_add(page_bytes), bytes) };
}

fn own_base(stack: &Stack) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(stack.bottom().get())
}

fn own_len(stack: &Stack) -> usize {
    stack.top - stack.bottom().get()
}

fn out_of_stacks(e: &io::Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!(
            "cannot map a goroutine stack: {e}; check ulimit -v, the memory cgroup and vm.max_map_count"
        ),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pool() -> StackPool {
        StackPool::new(Rank(0), 0, None, mmap::probe_guard().unwrap(), 1)
    }

    #[test]
    fn slots_are_disjoint_coloured_and_reused_lifo() {
        let p = pool();
        let a = p.take(100_000).unwrap();
        let b = p.take(100_000).unwrap();
        assert_eq!(a.class(), Some(1));
        assert_eq!(a.bottom().get() + CLASSES[1], b.bottom().get());
        assert_eq!(a.top().get() % 16, 0);
        assert_eq!(b.top().get(), b.bottom().get() + CLASSES[1] - COLOUR_BYTES);
        let bottom = b.bottom();
        p.give([a, b]);
        assert_eq!(p.take(100_000).unwrap().bottom(), bottom);
        assert_eq!(p.n_made(), 2);
        // SAFETY: the stacks taken above are not used.
        unsafe { p.unmap() };
    }

    #[test]
    fn larger_pages_leave_as_much_of_a_stack() {
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            for asked in [
                16 << 10,
                64 << 10,
                256 << 10,
                300_000,
                1 << 20,
                3_000_000,
                8 << 20,
                9_000_000,
            ] {
                // The space that the guard leaves is as much as with pages of 4 KiB, except for
                // stacks with a mapping of their own, of which the guard is a small part.
                let (bytes, loss) = match class_with(asked, page_bytes) {
                    Some(class) => (CLASSES[class], 4096),
                    None => (asked.next_multiple_of(page_bytes), page_bytes),
                };
                assert!(
                    bytes - page_bytes >= asked - loss,
                    "{asked} of {page_bytes}"
                );
                let (bottom, colour) = (64 * bytes.next_power_of_two(), 960);
                let span = span_with(bottom + bytes - colour, asked, page_bytes);
                assert_eq!(span, bottom + page_bytes..bottom + bytes - colour);
            }
        }
        assert_eq!(class_with(64 << 10, 4 << 10), Some(0));
        assert_eq!(class_with(256 << 10, 4 << 10), Some(1));
        assert_eq!(class_with(1 << 20, 4 << 10), Some(2));
    }

    #[test]
    fn guards_that_split_are_counted_and_bounded() {
        let p = StackPool::new(Rank(0), 0, None, GuardKind::Mprotect, 1);
        p.limit.set(3).unwrap();
        let small: Vec<_> = (0..2).map(|_| p.take(100_000).unwrap()).collect();
        let large = p.take(3 << 20).unwrap();
        for bytes in [100_000, 3 << 20] {
            let e = p.take(bytes).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::OutOfMemory);
            assert!(e.to_string().contains("vm.max_map_count"), "{e}");
        }
        p.give([large]);
        p.give(small);
        // An existing stack is reused, and the large one has returned its guard.
        p.take(100_000).unwrap();
        p.take(3 << 20).unwrap();
        // SAFETY: the stacks taken above are not used.
        unsafe { p.unmap() };
    }

    fn has_page(stack: &Stack) -> bool {
        let top_page = stack.top().get() - 8;
        numa::where_are(&[top_page]).unwrap() != [numa::PageAt::Nowhere]
    }

    fn touch(stack: &Stack) {
        let word = std::ptr::with_exposed_provenance_mut::<u64>(stack.top().get() - 8);
        // SAFETY: the word is the top one of a stack that the caller owns.
        unsafe { word.write_volatile(1) };
    }

    #[test]
    fn pages_of_stacks_that_nobody_used_for_an_age_are_returned() {
        let p = pool();
        let stacks: Vec<_> = (0..200).map(|_| p.take(100_000).unwrap()).collect();
        stacks.iter().for_each(touch);
        let bottoms: Vec<_> = stacks.iter().map(Stack::bottom).collect();
        assert!(stacks.iter().all(has_page));
        p.give(stacks);
        p.end_age();
        assert_eq!(p.return_old(1000), 0, "they were in use when the age began");
        // The last 30 are used again.
        let mut some = Vec::new();
        p.take_free(1, 30, &mut some);
        assert_eq!(some.last().unwrap().bottom(), bottoms[199]);
        p.give(some);
        p.end_age();
        assert_eq!((p.return_old(100), p.return_old(1000)), (100, 70));
        assert_eq!((p.n_free(), p.n_returned(), p.n_made()), (200, 170, 200));
        assert!(p.has_pages_to_return());
        // Warm stacks first, in last-in, first-out order; then the others, whose guards are still
        // there.
        let again: Vec<_> = (0..200).map(|_| p.take(100_000).unwrap()).collect();
        assert_eq!((p.n_made(), p.n_returned()), (200, 0));
        assert_eq!(again[0].bottom(), bottoms[199]);
        for (i, stack) in again.iter().enumerate() {
            assert_eq!(has_page(stack), i < 30, "{i}");
            assert!(mmap::faults(stack.bottom().get()));
            assert!(!mmap::faults(stack.bottom().get() + mmap::page_bytes()));
        }
        p.give(again);
        p.end_age();
        p.end_age();
        assert_eq!(p.return_old(1000), 200);
        assert!(!p.has_pages_to_return());
        // SAFETY: the stacks taken above are not used.
        unsafe { p.unmap() };
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "plain threads take part")]
    fn stacks_in_use_keep_what_is_on_them() {
        let p = pool();
        let use_some = |seed: usize| {
            for round in 0..3000 {
                let n = 1 + (seed + round) % 90;
                let mut some: Vec<_> = (0..n).map(|_| p.take(100_000).unwrap()).collect();
                p.take_free(1, n, &mut some);
                let word_of =
                    |s: &Stack| std::ptr::with_exposed_provenance_mut::<usize>(s.top().get() - 16);
                for (i, stack) in some.iter().enumerate() {
                    // SAFETY: the word lies on a stack that this thread owns.
                    unsafe { word_of(stack).write_volatile(seed + round + i) };
                }
                for (i, stack) in some.iter().enumerate() {
                    // SAFETY: as above.
                    let word = unsafe { word_of(stack).read_volatile() };
                    assert_eq!(word, seed + round + i);
                }
                p.give(some);
            }
        };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let n_returned = std::thread::scope(|scope| {
            let users: Vec<_> = (1..3)
                .map(|i| scope.spawn(move || use_some(i << 32)))
                .collect();
            let returner = scope.spawn(|| {
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    p.end_age();
                    n += p.return_old(100);
                }
                // Now no stack is taken any more, so these ages return some in any case.
                p.end_age();
                p.end_age();
                n + p.return_old(100)
            });
            users.into_iter().for_each(|user| user.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            returner.join().unwrap()
        });
        assert!(n_returned > 0);
        assert_eq!(p.n_free(), p.n_made());
        // SAFETY: no stack is in use.
        unsafe { p.unmap() };
    }

    #[test]
    fn old_stacks_that_are_taken_meanwhile_are_not_returned() {
        let p = pool();
        let stacks: Vec<_> = (0..10).map(|_| p.take(100_000).unwrap()).collect();
        p.give(stacks);
        p.end_age();
        p.end_age();
        let taken: Vec<_> = (0..7).map(|_| p.take(100_000).unwrap()).collect();
        p.give(taken);
        assert_eq!(p.return_old(1000), 3);
        // A batch has as many as there are, and the warm ones are on top.
        let mut all = Vec::new();
        p.take_free(1, 32, &mut all);
        assert_eq!((all.len(), p.n_free()), (10, 0));
        // SAFETY: the stacks taken above are not used.
        unsafe { p.unmap() };
    }

    /// Forks of the main goroutine have stacks of its size: each would cost three system calls.
    #[test]
    fn stacks_as_large_as_the_main_goroutines_are_reused() {
        let p = pool();
        let s = p.take(largest_pooled()).unwrap();
        assert_eq!((s.class(), s.node()), (Some(LARGEST), 0));
        let bottom = s.bottom();
        p.give([s]);
        let s = p.take(largest_pooled()).unwrap();
        assert_eq!((s.bottom(), p.n_made()), (bottom, 1));
        p.give([s]);
        // SAFETY: no stack is in use.
        unsafe { p.unmap() };
    }

    #[test]
    fn large_stacks_have_a_mapping_of_their_own() {
        let p = pool();
        let s = p.take(3 << 20).unwrap();
        assert_eq!(s.class(), None);
        assert_eq!(s.top().get() - s.bottom().get(), 3 << 20);
        p.give([s]);
        assert_eq!(p.n_made(), 0);
    }
}
