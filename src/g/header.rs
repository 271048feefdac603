//! G itself: the header that every goroutine has, and behind it the closure it
//! will run or the result it left.
//!
//! ```text
//!  slot of 256 or 512 bytes
//!  +------------------+------------------+-----------+--------------------+
//!  | status link coro | vtable refs join | parent op | closure or result, |
//!  |   (every switch) |  id name site .. | sizes ..  | inline or a Box    |
//!  +------------------+------------------+-----------+--------------------+
//!  0                  64                 128         160
//! ```
//!
//! While the closure runs, its place is empty: then [`GoroutineLocals`] lies there.
//!
//! Who may touch what: `status` and the atomics, anyone; `link`, the holder of
//! the list that the G is in; everything else, whoever owns the G by its status.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;

use super::coro::{Coro, Out};
use super::goroutine_locals::GoroutineLocals;
use super::stack;
use super::status::{Status, Token};
use crate::loom::native::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::sys::signal;
use crate::util::prefetch::{prefetch, prefetch_bytes};

/// Bytes of a [`Header`]; the payload begins here. 160, but for builds with a sanitizer
/// or with loom, whose coroutines and atomics are larger.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(16);

/// Slot sizes; a closure or result that does not fit behind the header of the
/// last is boxed and takes the first.
pub(crate) const SLOT_BYTES: [usize; 2] = [256, 512];

/// The slot class for a payload of `bytes`, or `None` if it must be boxed.
#[inline]
pub(crate) const fn class_for(payload_bytes: usize) -> Option<usize> {
    if payload_bytes <= SLOT_BYTES[0].saturating_sub(HEADER_BYTES) {
        Some(0)
    } else if payload_bytes <= SLOT_BYTES[1].saturating_sub(HEADER_BYTES) {
        Some(1)
    } else {
        None
    }
}

/// What `join` gives: the value, or the payload of the panic.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send + 'static>>;

/// How to run and dispose of a payload whose type is forgotten.
#[derive(Debug)]
pub(crate) struct Vtable {
    /// Runs the closure (or only drops it, if the goroutine was cancelled before
    /// it ran) and leaves the outcome in its place.
    run: unsafe fn(GRef, Option<Box<dyn Any + Send>>),
    drop_outcome: unsafe fn(GRef),
}

/// Ties a goroutine to the M that it has locked. Lies in the M.
#[derive(Debug)]
pub(crate) struct LockLink {
    /// What `Header::out` is otherwise.
    out: Cell<*const Out>,
    /// The M, whose type is not known here.
    m: Cell<*const ()>,
}

/// The mark in `Header::out`.
const WIRED: usize = 1;

impl LockLink {
    pub(crate) fn new() -> LockLink {
        LockLink {
            out: Cell::new(std::ptr::null()),
            m: Cell::new(std::ptr::null()),
        }
    }
}

/// The header of a goroutine. An all-zero one is a valid free slot.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) status: Status,
    link: Cell<Option<GRef>>,
    coro: UnsafeCell<Option<Coro>>,
    /// Where the goroutine switches out through; set at its first run. While it has
    /// locked a thread, the address of that thread's [`LockLink`], marked with [`WIRED`].
    /// Ordering: relaxed; written by the goroutine's owner. A thief that has not taken it
    /// yet reads it as a hint: whether it has run.
    out: AtomicPtr<Out>,

    vtable: Cell<Option<&'static Vtable>>,
    /// The runtime's reference while it lives, and one per handle; at most [`MAX_REFS`].
    /// Ordering: as `Arc`: increments relaxed, decrements release, the last acquires.
    refs: AtomicU32,
    pub(crate) token: Token,
    /// The runtime it belongs to. Ordering: relaxed; it is set before the status
    /// leaves Free (a release), and a reader confirms by a CAS on the status.
    sched: AtomicPtr<()>,
    /// Who waits for the end: see `sched::wait::completion`.
    pub(crate) join: AtomicPtr<()>,
    id: Cell<u64>,
    name: UnsafeCell<Option<Box<str>>>,
    site: Cell<Option<&'static Location<'static>>>,

    parent: Cell<u64>,
    /// The operation it waits for, while its status says Waiting for Io.
    /// Ordering: release before the wait begins, acquire by a canceller that holds it.
    pub(crate) op: AtomicPtr<()>,
    stack_bytes: Cell<u32>,
    /// The node that it belongs to, whether it is bound to it, and how often in a row it
    /// was away: see [`GRef::home`]. Ordering: relaxed; written by the goroutine's owner. A
    /// thief that has not taken it yet reads it as a hint.
    home: AtomicU16,
    slot_class: Cell<u8>,
    slab_node: Cell<u8>,
    /// When it was queued, if its status says so: see `sched::types::sampling`.
    /// Ordering: relaxed; the stamp in the status releases it.
    queued_at: AtomicU32,
    /// It unwinds, or has unwound, because its runtime ends.
    unwinds_cancelled: Cell<bool>,
    /// The operation it waits for has completed: see `netpoll::op`.
    /// Ordering: sequentially consistent against the status.
    pub(crate) op_done: AtomicU8,
}

/// References to a goroutine. A program can forget handles without end, and a count that
/// wraps to 0 would free a goroutine that others still refer to, so one more than this ends
/// the process, as with `Arc`. The upper half of the type is for threads that have gone past
/// the limit and are about to abort: there cannot be 2^31 of them.
const MAX_REFS: u32 = i32::MAX as u32;

/// What [`Header::home`] holds: the node (a runtime has at most as many as Ps, 4096), a mark
/// if the goroutine is bound to it, and times away, up to 7.
const HOME_NODE: u16 = (1 << 12) - 1;
const HOME_BOUND: u16 = 1 << 12;
const HOME_AWAY_SHIFT: u32 = 13;

#[inline(always)]
fn pack_home(node_idx: usize, is_bound: bool) -> u16 {
    node_idx as u16 | if is_bound { HOME_BOUND } else { 0 }
}

/// A goroutine, by address. Copy and uncounted: valid as memory for ever, as a
/// goroutine for as long as the caller has a reason to know that it lives.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct GRef(NonNull<Header>);

// SAFETY: a GRef is an address of type-stable memory; what may be done through it is decided by
// the status word, as the module comment says.
unsafe impl Send for GRef {}
// SAFETY: as for Send.
unsafe impl Sync for GRef {}

impl std::fmt::Debug for GRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "G({:?} {:?})", self.0, self.header().status.load())
    }
}

impl std::ops::Deref for GRef {
    type Target = Header;
    #[inline(always)]
    fn deref(&self) -> &Header {
        self.header()
    }
}

impl GRef {
    /// # Safety
    ///
    /// `p` is a slot of the slab.
    #[inline]
    pub(crate) unsafe fn from_raw(p: NonNull<Header>) -> GRef {
        GRef(p)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Header {
        self.0.as_ptr()
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: slots are never unmapped, and all shared fields are atomics or owned by status.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn init_slot(self, class: usize, slab_node: usize) {
        self.slot_class.set(class as u8);
        self.slab_node.set(slab_node as u8);
    }

    pub(crate) fn slot_class(self) -> usize {
        usize::from(self.slot_class.get())
    }

    pub(crate) fn slab_node(self) -> usize {
        usize::from(self.slab_node.get())
    }

    #[inline(always)]
    pub(crate) fn link(self) -> Option<GRef> {
        self.header().link.get()
    }

    #[inline(always)]
    pub(crate) fn set_link(self, next: Option<GRef>) {
        self.header().link.set(next);
    }

    /// The coroutine, for the M that runs this G.
    ///
    /// # Safety
    ///
    /// The caller owns the G: it is Running or Runnable and in no queue.
    #[inline(always)]
    #[allow(
        clippy::mut_from_ref,
        reason = "ownership is the status word's, not the reference's"
    )]
    pub(crate) unsafe fn coro(&self) -> &mut Option<Coro> {
        // SAFETY: by this function's contract nobody else touches the cell.
        unsafe { &mut *self.header().coro.get() }
    }

    #[inline(always)]
    pub(crate) fn set_out(self, out: &Out) {
        self.set_raw_out(out);
    }

    #[inline(always)]
    fn raw_out(self) -> *const Out {
        self.header().out.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_raw_out(self, out: *const Out) {
        self.header().out.store(out.cast_mut(), Ordering::Relaxed);
    }

    /// The way out of the goroutine that the caller runs in.
    #[inline(always)]
    pub(crate) fn out(self) -> *const Out {
        // Read once: an atomic is not read less often than is written here.
        let out = self.raw_out();
        match wire_in(out) {
            None => out,
            Some(wire) => wire.out.get(),
        }
    }

    /// Asks for the header to be in the caches soon.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        prefetch_bytes(self.as_ptr(), HEADER_BYTES);
    }

    /// Asks for what is touched when it goes on after an operation: the ends of its stack. By
    /// anybody: what it was waiting for may be long over.
    #[inline(always)]
    pub(crate) fn prefetch_stack(self) {
        /// What lies below and above an operation in the frames of the calls that wait for one.
        const BELOW: usize = 256;
        const ABOVE: usize = 320;
        let op = self.op.load(Ordering::Relaxed).cast::<u8>();
        if op.is_null() {
            return;
        }
        prefetch(self.raw_out());
        prefetch_bytes(op.wrapping_sub(BELOW), BELOW + ABOVE);
    }

    /// Whether it has locked a thread. Asked by whoever owns it.
    #[inline(always)]
    pub(crate) fn is_locked(self) -> bool {
        self.raw_out().addr() & WIRED != 0
    }

    #[inline(always)]
    fn wire<'a>(self) -> Option<&'a LockLink> {
        wire_in(self.raw_out())
    }

    /// The M that it has locked, or null. Asked by whoever owns it.
    #[inline(always)]
    pub(crate) fn locked_m(self) -> *const () {
        self.wire().map_or(std::ptr::null(), |wire| wire.m.get())
    }

    /// By the goroutine itself: it locks the M `m`, in which `wire` lies.
    pub(crate) fn lock_to(self, wire: &LockLink, m: *const ()) {
        wire.out.set(self.out());
        wire.m.set(m);
        let marked = std::ptr::from_ref(wire).cast::<u8>().wrapping_add(WIRED);
        self.set_raw_out(marked.cast());
    }

    /// By the goroutine itself, or for one that has ended: it gives its thread free.
    pub(crate) fn unlock(self) {
        self.set_raw_out(self.out());
    }

    #[inline(always)]
    fn own_ptr(self) -> *mut GoroutineLocals {
        // SAFETY: a slot is longer than this.
        unsafe { self.as_ptr().cast::<u8>().add(OWN_AT).cast() }
    }

    /// What the goroutine owns besides its stack.
    ///
    /// # Safety
    ///
    /// The caller is the goroutine's own code (its closure, or a destructor of what that
    /// left), and uses what it gets before that ends.
    #[inline(always)]
    pub(crate) unsafe fn own<'a>(self) -> &'a GoroutineLocals {
        // SAFETY: by this function's contract; see `begin_own`.
        unsafe { &*self.own_ptr() }
    }

    #[inline]
    pub(crate) fn id(self) -> u64 {
        self.header().id.get()
    }

    pub(crate) fn parent(self) -> u64 {
        self.header().parent.get()
    }

    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: the name is set before the G is queued and stays until its last reference goes.
        unsafe { (*self.header().name.get()).as_deref() }
    }

    pub(crate) fn site(self) -> Option<&'static Location<'static>> {
        self.header().site.get()
    }

    #[inline(always)]
    pub(crate) fn sched(self) -> *mut () {
        self.header().sched.load(Ordering::Relaxed)
    }

    pub(crate) fn stack_bytes(self) -> usize {
        self.header().stack_bytes.get() as usize * 1024
    }

    /// The node that it belongs to: index into the runtime's nodes. The one that it was
    /// spawned for, then the one of its first run, where its stack is; later the one that it
    /// has moved to (`sched::numa::policy`).
    #[inline]
    pub(crate) fn home(self) -> usize {
        usize::from(self.raw_home() & HOME_NODE)
    }

    /// Whether it runs on no other node than its home. A hint to whoever does not own it.
    #[inline]
    pub(crate) fn is_bound(self) -> bool {
        self.raw_home() & HOME_BOUND != 0
    }

    /// How often in a row it ran away from home, or was woken from there.
    #[inline]
    pub(crate) fn times_away(self) -> u8 {
        (self.raw_home() >> HOME_AWAY_SHIFT) as u8
    }

    /// By its owner: it belongs to another node now. A bound one stays bound.
    #[inline]
    pub(crate) fn set_home(self, node_idx: usize) {
        self.set_raw_home(pack_home(node_idx, self.is_bound()));
    }

    /// By its owner.
    #[inline]
    pub(crate) fn set_times_away(self, n: u8) {
        let kept = self.raw_home() & (HOME_NODE | HOME_BOUND);
        self.set_raw_home(kept | u16::from(n) << HOME_AWAY_SHIFT);
    }

    #[inline(always)]
    fn raw_home(self) -> u16 {
        self.header().home.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_raw_home(self, home: u16) {
        self.header().home.store(home, Ordering::Relaxed);
    }

    pub(crate) fn queued_at(self) -> u32 {
        self.header().queued_at.load(Ordering::Relaxed)
    }

    pub(crate) fn set_queued_at(self, stamp: u32) {
        self.header().queued_at.store(stamp, Ordering::Relaxed);
    }

    /// The addresses of its stack in use, guard excluded; `None` before it has one.
    ///
    /// For whoever keeps the goroutine from running, or is it.
    pub(crate) fn stack_span(self) -> Option<std::ops::Range<usize>> {
        let out = self.out().addr();
        (out != 0).then(|| stack::span_of(out, self.stack_bytes()))
    }

    /// Whether a stack was made for it. Asked by whoever owns it.
    pub(crate) fn has_stack(self) -> bool {
        // SAFETY: by this function's contract nobody else touches it.
        unsafe { self.coro() }.is_some()
    }

    /// By the goroutine itself: it begins to unwind because its runtime ends.
    pub(crate) fn set_unwinds_cancelled(self) {
        self.header().unwinds_cancelled.set(true);
    }

    /// Asked by the goroutine itself.
    pub(crate) fn unwinds_cancelled(self) -> bool {
        self.header().unwinds_cancelled.get()
    }

    /// Whether it has never run. A hint to whoever does not own it.
    pub(crate) fn is_fresh(self) -> bool {
        self.raw_out().is_null()
    }

    /// Adds a reference. Ends the process if there are [`MAX_REFS`].
    pub(crate) fn retain(self) {
        if self.refs.fetch_add(1, Ordering::Relaxed) >= MAX_REFS {
            too_many_refs();
        }
    }

    /// Adds a reference unless there is none: whoever looks at a slot that may be free.
    pub(crate) fn try_retain(self) -> bool {
        self.refs
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| {
                if n >= MAX_REFS {
                    too_many_refs();
                }
                (n > 0).then(|| n + 1)
            })
            .is_ok()
    }

    /// Drops a reference; `true` means it was the last, and the caller disposes
    /// of the G with [`GRef::dispose`].
    #[inline]
    #[must_use]
    pub(crate) fn release(self) -> bool {
        if self.refs.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        self.refs.load(Ordering::Acquire);
        true
    }

    /// Empties a slot whose last reference is gone; it may then go to a free list.
    #[inline]
    pub(crate) fn dispose(self) {
        // SAFETY: no reference is left, so nobody reads the name.
        unsafe { *self.header().name.get() = None };
        self.set_raw_out(std::ptr::null());
        self.status.set_free();
    }
}

/// Not a panic: a caller that catches it could go on until the count wraps.
#[cold]
#[inline(never)]
fn too_many_refs() -> ! {
    signal::write_stderr(
        b"windlass: a goroutine has more than 2^31 - 1 references: handles or wakers are \
          forgotten (std::mem::forget)\n",
    );
    std::process::abort()
}

/// The wire that a goroutine's `out` names, if it is marked.
#[inline(always)]
fn wire_in<'a>(out: *const Out) -> Option<&'a LockLink> {
    if out.addr() & WIRED == 0 {
        return None;
    }
    let wire = out.cast::<u8>().wrapping_sub(WIRED).cast::<LockLink>();
    // SAFETY: a marked word holds what `lock_to` put there, an address one less than it, and
    // that M lives until the run ends, after the goroutine.
    Some(unsafe { &*wire })
}

/// What a spawner decides about a goroutine.
#[derive(Debug)]
pub(crate) struct Spawn {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) stack_bytes: usize,
    pub(crate) home: usize,
    /// Whether it runs on no other node.
    pub(crate) is_bound: bool,
    pub(crate) sched: *mut (),
    /// References it begins with: the runtime's own, and the spawner's handle.
    pub(crate) refs: u32,
}

/// Where a closure of type `F` with result `T` lives: one place for both.
union Payload<F, T> {
    closure: ManuallyDrop<F>,
    outcome: ManuallyDrop<Outcome<T>>,
}

struct Typed<F, T>(std::marker::PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Typed<F, T> {
    const INLINE: Option<usize> = if align_of::<Payload<F, T>>() <= 16 {
        class_for(size_of::<Payload<F, T>>())
    } else {
        None
    };

    const VTABLE: Vtable = Vtable {
        run: Self::run,
        drop_outcome: Self::drop_outcome,
    };

    /// # Safety
    ///
    /// `g` was set up by [`init`] with this `F` and `T`.
    #[inline]
    unsafe fn place(g: GRef) -> *mut Payload<F, T> {
        let at = payload_ptr(g);
        match Self::INLINE {
            Some(_) => at.cast(),
            // SAFETY: a boxed payload's address lies in the first word.
            None => unsafe { at.cast::<*mut Payload<F, T>>().read() },
        }
    }

    unsafe fn run(g: GRef, cancelled: Option<Box<dyn Any + Send>>) {
        // SAFETY: the vtable is that of the types the payload was made with.
        let place = unsafe { Self::place(g) };
        // SAFETY: the goroutine runs once; the closure is still in place and moves out.
        let closure =
            ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*place).closure) });
        // SAFETY: the place is empty until the outcome is written below.
        let own = unsafe { begin_own(g) };
        let outcome: Outcome<T> = catch_unwind(AssertUnwindSafe(move || match cancelled {
            None => Ok(closure()),
            Some(payload) => {
                drop(closure);
                Err(payload)
            }
        }))
        .and_then(|r| r);
        drop(own);
        // SAFETY: the place is the payload's and holds nothing now.
        unsafe { std::ptr::write(&raw mut (*place).outcome, ManuallyDrop::new(outcome)) };
    }

    unsafe fn drop_outcome(g: GRef) {
        // SAFETY: by the callers of the vtable: the outcome is there and taken once.
        let outcome = unsafe { Self::take(g) };
        // SAFETY: the place is empty for good; the destructor may be the goroutine's own code.
        let _own = unsafe { begin_own(g) };
        drop(outcome);
    }

    /// # Safety
    ///
    /// The goroutine has ended and its outcome was not taken before.
    unsafe fn take(g: GRef) -> Outcome<T> {
        // SAFETY: as in `run`.
        let place = unsafe { Self::place(g) };
        // SAFETY: by this function's contract.
        let outcome =
            ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*place).outcome) });
        if Self::INLINE.is_none() {
            // SAFETY: the box was made by `init`; `MaybeUninit` keeps its emptied content from being dropped.
            drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Payload<F, T>>>()) });
        }
        outcome
    }
}

#[inline(always)]
fn payload_ptr(g: GRef) -> *mut u8 {
    // SAFETY: a slot is longer than its header.
    unsafe { g.as_ptr().cast::<u8>().add(HEADER_BYTES) }
}

/// Where a goroutine's [`GoroutineLocals`] lies while its code runs: in the place of closure and
/// outcome, behind the word that a box's address may take.
const OWN_AT: usize = HEADER_BYTES + 16;
#[cfg(not(loom))]
const _: () = assert!(OWN_AT + size_of::<GoroutineLocals>() <= SLOT_BYTES[0]);

/// # Safety
///
/// The place of closure and outcome holds neither, until what this gives is dropped.
#[inline(always)]
unsafe fn begin_own(g: GRef) -> EndsOwn {
    // SAFETY: every slot is long enough, as asserted above, and the place is aligned to 16.
    unsafe { g.own_ptr().write(GoroutineLocals::new()) };
    EndsOwn(g)
}

/// Drops what a goroutine owns, when its code has ended.
struct EndsOwn(GRef);

impl Drop for EndsOwn {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it was made by `begin_own`, and this is the last use.
        unsafe { std::ptr::drop_in_place(self.0.own_ptr()) };
    }
}

/// The slot class that a goroutine with this closure needs.
#[inline]
pub(crate) const fn class_of<F: FnOnce() -> T, T>() -> usize {
    match Typed::<F, T>::INLINE {
        Some(class) => class,
        None => 0,
    }
}

/// Fills in a free slot of class [`class_of`]`::<F, T>()`. The caller owns the
/// new G and queues it.
#[inline]
pub(crate) fn init<F: FnOnce() -> T, T>(g: GRef, closure: F, spawn: Spawn) {
    let payload = Payload::<F, T> {
        closure: ManuallyDrop::new(closure),
    };
    match Typed::<F, T>::INLINE {
        // SAFETY: the class was chosen to hold the payload, and slots are aligned to 16 at the payload.
        Some(_) => unsafe { payload_ptr(g).cast::<Payload<F, T>>().write(payload) },
        None => {
            let boxed = Box::into_raw(Box::new(payload));
            // SAFETY: every slot holds at least a pointer behind its header.
            unsafe { payload_ptr(g).cast::<*mut Payload<F, T>>().write(boxed) };
        }
    }
    let h = g.header();
    h.vtable.set(Some(const { &Typed::<F, T>::VTABLE }));
    h.refs.store(spawn.refs, Ordering::Relaxed);
    h.token.clear();
    h.sched.store(spawn.sched, Ordering::Relaxed);
    h.join.store(std::ptr::null_mut(), Ordering::Relaxed);
    h.id.set(spawn.id);
    h.parent.set(spawn.parent);
    // SAFETY: the slot is free, so nobody reads the name.
    unsafe { *h.name.get() = spawn.name };
    h.site.set(Some(spawn.site));
    h.stack_bytes.set((spawn.stack_bytes / 1024) as u32);
    h.home
        .store(pack_home(spawn.home, spawn.is_bound), Ordering::Relaxed);
    h.unwinds_cancelled.set(false);
    h.status.set_new();
}

/// Runs the closure on the stack of the goroutine, or drops it there if a
/// cancellation came first. Never unwinds.
///
/// # Safety
///
/// `g` is Running for the first time, and the caller is on its stack.
pub(crate) unsafe fn run(g: GRef, cancelled: Option<Box<dyn Any + Send>>) {
    let vtable = g.vtable.get().expect("a G that runs was spawned");
    // SAFETY: the vtable belongs to the payload, which has not run.
    unsafe { (vtable.run)(g, cancelled) };
}

/// Drops the outcome of a goroutine that nobody joins.
///
/// # Safety
///
/// `g` has run to its end and its outcome was not taken.
pub(crate) unsafe fn drop_outcome(g: GRef) {
    let vtable = g.vtable.get().expect("a G that ran was spawned");
    // SAFETY: by this function's contract.
    unsafe { (vtable.drop_outcome)(g) };
}

/// How a handle that knows only `T` takes the outcome.
pub(crate) type TakeFn<T> = unsafe fn(GRef) -> Outcome<T>;

/// The function that takes the outcome of a goroutine made from `F`.
pub(crate) const fn take_fn<F: FnOnce() -> T, T>() -> TakeFn<T> {
    Typed::<F, T>::take
}

/// Process-wide source of goroutine ids, handed out in batches to Ps.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Reserves `n` ids and gives the first. Ordering: relaxed, only uniqueness matters.
pub(crate) fn reserve_ids(n: u64) -> u64 {
    NEXT_ID.fetch_add(n, Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::util::test_child;

    /// A goroutine that nobody runs, with `n` references.
    fn with_refs(n: u32) -> GRef {
        let mut slot = None;
        crate::g::slab::take(crate::g::slab::DepotId::of(None), 0, 1, |g| slot = Some(g));
        let g = slot.expect("the slab gives the slot asked for");
        let spawn = Spawn {
            id: reserve_ids(1),
            parent: 0,
            name: None,
            site: Location::caller(),
            stack_bytes: 0,
            home: 0,
            is_bound: false,
            sched: std::ptr::null_mut(),
            refs: n,
        };
        init(g, || (), spawn);
        g
    }

    /// Handles can be forgotten: a count that wraps would free what others refer to.
    #[test]
    fn too_many_references_end_the_process() {
        const NAME: &str = "g::header::tests::too_many_references_end_the_process";
        match test_child::case().as_deref() {
            Some("retain") => with_refs(MAX_REFS).retain(),
            Some("try_retain") => _ = with_refs(MAX_REFS).try_retain(),
            _ => {
                test_child::aborts(NAME, "retain", "more than 2^31 - 1 references");
                test_child::aborts(NAME, "try_retain", "more than 2^31 - 1 references");
            }
        }
    }

    #[test]
    fn as_many_references_as_there_may_be() {
        let g = with_refs(MAX_REFS - 2);
        g.retain();
        assert!(g.try_retain());
        assert!(!g.release());
        assert!(!with_refs(0).try_retain());
    }
}
