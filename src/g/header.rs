//! The G: the header of every goroutine, followed by the closure it will run or the result it left.
//!
//! ```text
//!  slot of 256 or 512 bytes
//!  +------------------+------------------+-----------+--------------------+
//!  | status link coro | vtable refs join | parent op | closure or result, |
//!  |   (every switch) |  id cpu  site .. | sizes ..  | inline or a Box    |
//!  +------------------+------------------+-----------+--------------------+
//!  0                  64                 128         160
//! ```
//!
//! While the closure runs, the payload is empty, and [`GoroutineLocals`] lies there. A future that has
//! a goroutine of its own ([`Steps`]) lies behind them, or in a box, until its end.
//!
//! Access: `status` and the atomics, any thread; `link`, the holder of the list that the G is in;
//! everything else, the owner of the G, as its status defines.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;

use windlass_ground::cpu::{LINE_BYTES, prefetch, prefetch_bytes};
use windlass_ground::stack;

use super::coro::{Coro, Out};
use super::details::{Details, Label};
use super::goroutine_locals::GoroutineLocals;
use super::status::{Status, Token};
#[cfg(feature = "sim")]
use crate::bubble;
use crate::loom::native::Arc;
use crate::loom::native::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::race::{self, Fiber};
use crate::sys::signal;

/// Where a debugger finds the parts of a goroutine: see `slab::Registry`.
pub(crate) const DEBUG_OFFSETS: [u16; 14] = [
    offset_of!(Header, status) as u16,
    offset_of!(Header, coro) as u16,
    (offset_of!(Header, coro) + size_of::<Option<Coro>>()) as u16,
    offset_of!(Header, out) as u16,
    offset_of!(Header, id) as u16,
    offset_of!(Header, details) as u16,
    offset_of!(Header, site) as u16,
    offset_of!(Header, stack_bytes) as u16,
    HEADER_BYTES as u16,
    offset_of!(Details, name) as u16,
    LINKED as u16,
    offset_of!(OutLink, out) as u16,
    offset_of!(OutLink, extra) as u16,
    offset_of!(ExtraStack, span) as u16,
];

/// The size of a [`Header`]; the payload begins here. 160, except in builds with a sanitizer or
/// loom, whose coroutines and atomics are larger.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(16);

/// Slot sizes. A closure or result that does not fit behind the header of the largest is boxed, and
/// uses the smallest.
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

/// The result of `join`: the value, or the payload of the panic.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send + 'static>>;

/// Runs and drops a payload whose type is erased.
#[derive(Debug)]
pub(crate) struct Vtable {
    /// Runs the closure, or only drops it if the goroutine was cancelled before it ran, and writes
    /// the outcome in its place. Returns its wait if it is to be run again ([`Steps`]).
    run: unsafe fn(GRef, Option<Box<dyn Any + Send>>) -> Option<OffStack>,
    drop_outcome: unsafe fn(GRef, fn(&(dyn Any + Send))),
}

/// The target of `Header::out` in two cases: the goroutine has locked an M (`LockOSThread`), in which it lies
/// then, or runs on a stack besides its own, and it lies in the [`ExtraStack`].
#[derive(Debug, Default)]
pub(crate) struct OutLink {
    /// The way back to the M: what the goroutine switches out by.
    out: Cell<*const Out>,
    /// The locked M, whose type this module does not know, or null.
    m: Cell<*const ()>,
    /// The stack on which it runs, null for its own.
    extra: Cell<*const ExtraStack>,
}

/// Tag bits in `Header::out`: the address is an [`OutLink`]'s, in a locked M or in an [`ExtraStack`].
const LOCKED: usize = 1;
const ON_EXTRA: usize = 2;
const LINKED: usize = LOCKED | ON_EXTRA;
/// The tag in `Header::out` of a goroutine that has run, and waits without a stack: the address is that of
/// its [`OffStack`].
const IS_OFF_STACK: usize = LINKED + 1;
const _: () = assert!(align_of::<OutLink>() > IS_OFF_STACK && align_of::<Out>() > IS_OFF_STACK);

/// The wait of a goroutine that leaves its stack for it: the address of the record by which the M begins
/// it (`sched::wait::park`). The record stays in place until the goroutine runs again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OffStack(NonNull<()>);

impl OffStack {
    /// `record` is aligned as a pointer is.
    pub(crate) fn new<R>(record: NonNull<R>) -> OffStack {
        const { assert!(align_of::<R>() > IS_OFF_STACK) };
        OffStack(record.cast())
    }

    pub(crate) fn record<R>(self) -> NonNull<R> {
        self.0.cast()
    }
}

/// A stack on which a goroutine goes on when its own has little room left (`sched::wait::fork`). Lies
/// in the frame of the call that goes on there.
#[derive(Debug)]
pub(crate) struct ExtraStack {
    span: Range<usize>,
    /// The one on which it ran before, null for its own.
    outer: Cell<*const ExtraStack>,
    link: OutLink,
}

impl ExtraStack {
    pub(crate) fn new(span: Range<usize>) -> ExtraStack {
        ExtraStack {
            span,
            outer: Cell::new(std::ptr::null()),
            link: OutLink::default(),
        }
    }
}

/// The header of a goroutine. An all-zero one is a valid free slot.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) status: Status,
    link: Cell<Option<GRef>>,
    coro: UnsafeCell<Option<Coro>>,
    /// The yielder through which the goroutine switches out; set at its first run. While it has
    /// locked an M or runs on another stack, the address of an [`OutLink`], tagged. Ordering: relaxed;
    /// written by the goroutine's owner. A thief that does not own it yet reads it as a hint
    /// whether the goroutine has run.
    out: AtomicPtr<Out>,

    vtable: Cell<Option<&'static Vtable>>,
    /// One reference of the runtime while the goroutine lives, and one per handle; at most
    /// [`MAX_REFS`]. Ordering: as `Arc`: increments relaxed, decrements release, the last acquires.
    refs: AtomicU32,
    pub(crate) token: Token,
    /// The runtime it belongs to. Ordering: relaxed; it is set before the status leaves Free (a
    /// release), and readers confirm it by a CAS on the status.
    sched: AtomicPtr<()>,
    /// The goroutine that waits for the end: see `sched::wait::completion`.
    pub(crate) join: crate::loom::AtomicPtr<()>,
    id: Cell<u64>,
    /// Its name and label, null for none. Ordering: release by the spawner, before the goroutine is
    /// queued; acquire by readers, which hold a reference.
    details: AtomicPtr<Details>,
    /// The CPU time that it has used up to its last switch, where that is measured, since its first
    /// run. Ordering: relaxed; written by the M that runs it.
    cpu_ns: AtomicU64,
    site: Cell<Option<&'static Location<'static>>>,

    parent: Cell<u64>,
    /// The operation it waits for, while its status says Waiting for Io.
    /// Ordering: release before the wait begins, acquire by a canceller that holds it.
    pub(crate) op: AtomicPtr<()>,
    stack_bytes: Cell<u32>,
    /// Its home node, and how often in a row it was away: see [`GRef::home`]. Ordering: relaxed;
    /// written by the goroutine's owner.
    home: AtomicU16,
    slot_class: Cell<u8>,
    slab_node: Cell<u8>,
    /// When it was queued, if its status says that it is stamped: see `sched::types::sampling`.
    /// Ordering: relaxed; the stamp in the status releases it.
    queued_at: AtomicU32,
    /// Whether it unwinds, or has unwound, because its runtime ends.
    unwinds_cancelled: Cell<bool>,
    /// Whether the operation it waits for has completed: see `netpoll::op`. Ordering: sequentially
    /// consistent against the status.
    pub(crate) op_done: AtomicU8,
    /// How far below `out` on its stack the frame of its last wait with a timer is, in cache lines: a
    /// hint. Ordering: relaxed; the address is only prefetched.
    frame: AtomicU16,
    pub(crate) fiber: Fiber,
}

/// The limit on references to a goroutine. A program can forget handles without bound, and a count
/// that wraps to 0 would free a goroutine that is still referenced. So one more reference than this
/// ends the process, as with `Arc`. The upper half of the type's range is for threads that have
/// passed the limit and are about to abort: there cannot be 2^31 of them.
const MAX_REFS: u32 = i32::MAX as u32;

/// The layout of [`Header::home`]: the node (a runtime has at most as many as Ps, 4096), and the times
/// away, up to 7.
const HOME_AWAY_SHIFT: u32 = 12;
const HOME_NODE: u16 = (1 << HOME_AWAY_SHIFT) - 1;

/// The address of a goroutine. Copy and not counted: always valid as memory, but valid as a
/// goroutine only while the caller knows that it lives.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct GRef(NonNull<Header>);

// SAFETY: a GRef is an address of type-stable memory; the status word decides what may be done
// through it, as the module comment says.
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
    /// The caller owns the G: it is Running, or Runnable and in no queue.
    #[inline(always)]
    #[allow(
        clippy::mut_from_ref,
        reason = "ownership is the status word's, not the reference's"
    )]
    pub(crate) unsafe fn coro(&self) -> &mut Option<Coro> {
        // SAFETY: by this function's contract no other thread accesses the cell.
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

    /// The yielder of the goroutine that the caller runs in.
    #[inline(always)]
    pub(crate) fn out(self) -> *const Out {
        // One load: the compiler does not merge several loads of an atomic.
        let out = self.raw_out();
        match link_in(out) {
            None => out,
            Some(link) => link.out.get(),
        }
    }

    /// Prefetches the line with the status.
    #[inline(always)]
    pub(crate) fn prefetch_status(self) {
        prefetch(self.as_ptr());
    }

    /// Prefetches the header.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        prefetch_bytes(self.as_ptr(), HEADER_BYTES);
    }

    /// Notes where on its stack it waits, with a timer. Called by its owner.
    #[inline(always)]
    pub(crate) fn note_frame<T>(self, at: NonNull<T>) {
        let below = self.raw_out().addr().wrapping_sub(at.addr().get());
        self.frame
            .store((below / LINE_BYTES) as u16, Ordering::Relaxed);
    }

    /// Prefetches what the goroutine touches first when it continues after an operation: the ends
    /// of its stack. Any thread: the wait may be long over. `false` if there was no operation.
    #[inline(always)]
    pub(crate) fn prefetch_stack(self) -> bool {
        /// The extent of the callers' frames below and above an operation.
        const BELOW: usize = 256;
        const ABOVE: usize = 320;
        let op = self.op.load(Ordering::Relaxed).cast::<u8>();
        if op.is_null() {
            return false;
        }
        prefetch(self.raw_out());
        prefetch_bytes(op.wrapping_sub(BELOW), BELOW + ABOVE);
        true
    }

    /// Prefetches what a goroutine touches first when it goes on after a sleep.
    #[inline(always)]
    pub(crate) fn prefetch_frame(self) {
        /// The extent of the frames below and above the one of the wait.
        const BELOW: usize = 64;
        const ABOVE: usize = 192;
        let (out, frame) = (self.raw_out(), self.frame.load(Ordering::Relaxed));
        prefetch(out);
        let at = out.wrapping_byte_sub(usize::from(frame) * LINE_BYTES + BELOW);
        prefetch_bytes(at, BELOW + ABOVE);
    }

    /// Whether it has locked an M. Called by the goroutine's owner.
    #[inline(always)]
    pub(crate) fn is_locked(self) -> bool {
        self.raw_out().addr() & LOCKED != 0
    }

    /// The link to a locked M or a stack besides its own, if it has one. Only the goroutine's owner may call this and
    /// the functions below.
    #[inline(always)]
    fn out_link<'a>(self) -> Option<&'a OutLink> {
        link_in(self.raw_out())
    }

    fn extra_stack<'a>(self) -> Option<&'a ExtraStack> {
        // SAFETY: it lies in a frame of the goroutine, until `leave_stack`.
        unsafe { self.out_link()?.extra.get().as_ref() }
    }

    /// Makes `out` name `link`.
    fn set_out_link(self, link: &OutLink, m: *const (), extra: *const ExtraStack) {
        link.out.set(self.out());
        link.m.set(m);
        link.extra.set(extra);
        let tag = if m.is_null() { ON_EXTRA } else { LOCKED };
        let marked = std::ptr::from_ref(link).cast::<u8>().wrapping_add(tag);
        self.set_raw_out(marked.cast());
    }

    /// Makes `out` name what it does without a locked M, on this stack.
    fn set_unlocked(self, extra: Option<&ExtraStack>) {
        match extra {
            Some(extra) => self.set_out_link(&extra.link, std::ptr::null(), extra),
            None => self.set_raw_out(self.out()),
        }
    }

    fn set_stack(self, extra: Option<&ExtraStack>) {
        match self.out_link() {
            Some(link) if self.is_locked() => {
                link.extra
                    .set(extra.map_or(std::ptr::null(), std::ptr::from_ref));
            }
            _ => self.set_unlocked(extra),
        }
    }

    /// The goroutine goes on on `extra`, which stays in place until [`GRef::leave_stack`]. Called by the
    /// goroutine itself.
    pub(crate) fn enter_stack(self, extra: &ExtraStack) {
        let outer = self.extra_stack();
        extra
            .outer
            .set(outer.map_or(std::ptr::null(), std::ptr::from_ref));
        self.set_stack(Some(extra));
    }

    /// The goroutine is back from `extra`, which it entered last.
    pub(crate) fn leave_stack(self, extra: &ExtraStack) {
        // SAFETY: it lies in an older frame of the goroutine.
        self.set_stack(unsafe { extra.outer.get().as_ref() });
    }

    /// The M that it has locked, or null. Called by the goroutine's owner.
    #[inline(always)]
    pub(crate) fn locked_m(self) -> *const () {
        self.out_link()
            .map_or(std::ptr::null(), |link| link.m.get())
    }

    /// Locks the M `m`, which contains `link`. Called by the goroutine itself.
    pub(crate) fn lock_to(self, link: &OutLink, m: *const ()) {
        let extra = self.extra_stack();
        self.set_out_link(link, m, extra.map_or(std::ptr::null(), std::ptr::from_ref));
    }

    /// Releases its M. Called by the goroutine itself, or for one that has ended.
    pub(crate) fn unlock(self) {
        self.set_unlocked(self.extra_stack());
    }

    #[inline(always)]
    fn locals_ptr(self) -> *mut GoroutineLocals {
        // SAFETY: a slot is longer than this.
        unsafe { self.as_ptr().cast::<u8>().add(OWN_AT).cast() }
    }

    /// The goroutine's locals.
    ///
    /// # Safety
    ///
    /// The caller is the goroutine's own code (its closure, or a destructor of a value that it
    /// left), and uses the reference only while that code runs.
    #[inline(always)]
    pub(crate) unsafe fn locals<'a>(self) -> &'a GoroutineLocals {
        // SAFETY: by this function's contract; see `begin_own`.
        unsafe { &*self.locals_ptr() }
    }

    #[inline]
    pub(crate) fn id(self) -> u64 {
        self.header().id.get()
    }

    pub(crate) fn parent(self) -> u64 {
        self.header().parent.get()
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.details()?.name.as_deref()
    }

    pub(crate) fn label(&self) -> Option<&Arc<Label>> {
        self.details()?.label.get()
    }

    fn details(&self) -> Option<&Details> {
        // SAFETY: the details are set before the G is queued and stay until its last reference goes.
        unsafe { self.header().details.load(Ordering::Acquire).as_ref() }
    }

    /// Gives it a label, unless it has one. Called by its spawner before it is queued.
    pub(crate) fn inherit_label(self, label: &Arc<Label>) {
        label.spawned.fetch_add(1, Ordering::Relaxed);
        match self.details() {
            Some(details) => {
                if details.label.set(Arc::clone(label)).is_err() {
                    label.spawned.fetch_sub(1, Ordering::Relaxed);
                }
            }
            None => {
                let details = Details::new(None, Some(Arc::clone(label)));
                let details = Box::into_raw(Box::new(details));
                self.header().details.store(details, Ordering::Release);
            }
        }
    }

    pub(crate) fn cpu_ns(self) -> u64 {
        self.header().cpu_ns.load(Ordering::Relaxed)
    }

    /// Sets the CPU time that it has used so far. Called by the M that runs it.
    pub(crate) fn set_cpu_ns(self, ns: u64) {
        self.header().cpu_ns.store(ns, Ordering::Relaxed);
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

    /// Its home node, as an index into the runtime's nodes: first the node it was spawned for, then
    /// the node of its first run, where its stack is, later the node it has moved to
    /// (`sched::numa::policy`).
    #[inline]
    pub(crate) fn home(self) -> usize {
        usize::from(self.raw_home() & HOME_NODE)
    }

    /// Whether it runs on its home node only. A hint unless the caller owns the goroutine.
    #[inline]
    pub(crate) fn is_bound(self) -> bool {
        self.status.is_bound()
    }

    /// How often in a row it ran on, or was woken from, another node than its home.
    #[inline]
    pub(crate) fn times_away(self) -> u8 {
        (self.raw_home() >> HOME_AWAY_SHIFT) as u8
    }

    /// Changes its home node. Called by its owner.
    #[inline]
    pub(crate) fn set_home(self, node_idx: usize) {
        self.set_raw_home(node_idx as u16);
    }

    /// Sets how often in a row it was woken away from its home node. Called by its owner.
    #[inline]
    pub(crate) fn set_times_away(self, n: u8) {
        let kept = self.raw_home() & HOME_NODE;
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

    /// The address range of its stack, without the guard; `None` before it has one.
    ///
    /// The caller keeps the goroutine from running, or is that goroutine.
    pub(crate) fn stack_span(self) -> Option<Range<usize>> {
        if let Some(extra) = self.extra_stack() {
            return Some(extra.span.clone());
        }
        let out = self.out().addr();
        let is_on_stack = out != 0 && !self.is_off_stack();
        is_on_stack.then(|| stack::span_of(out, self.stack_bytes()))
    }

    /// The address range of its stack, empty for none, as it is or was a moment ago; `None` if that cannot be known while it
    /// runs.
    pub(crate) fn stack_hint(self) -> Option<Range<usize>> {
        let out = self.raw_out();
        match out.addr() {
            0 => Some(0..0),
            addr if addr & IS_OFF_STACK != 0 => Some(0..0),
            addr if addr & LINKED != 0 => None,
            addr => Some(stack::span_of(addr, self.stack_bytes())),
        }
    }

    /// Whether it has a stack. Called by the goroutine's owner.
    pub(crate) fn has_stack(self) -> bool {
        // SAFETY: by this function's contract no other thread accesses it.
        unsafe { self.coro() }.is_some()
    }

    /// Records that it begins to unwind because its runtime ends. Called by the goroutine itself.
    pub(crate) fn set_unwinds_cancelled(self, yes: bool) {
        self.header().unwinds_cancelled.set(yes);
    }

    /// Whether it unwinds because its runtime ends. Called by the goroutine itself.
    pub(crate) fn unwinds_cancelled(self) -> bool {
        self.header().unwinds_cancelled.get()
    }

    /// Records that it is about to leave its stack, to begin `wait`. Called by the goroutine itself.
    pub(crate) fn set_off_stack(self, wait: OffStack) {
        let record = wait.0.as_ptr().cast::<u8>().cast_const();
        self.set_raw_out(record.wrapping_add(IS_OFF_STACK).cast());
    }

    /// Its wait, if it has run and waits without a stack. Called by its owner.
    pub(crate) fn off_stack(self) -> Option<OffStack> {
        let record = self.raw_out().cast::<u8>().wrapping_sub(IS_OFF_STACK);
        let record = NonNull::new(record.cast::<()>().cast_mut());
        record.filter(|_| self.is_off_stack()).map(OffStack)
    }

    /// Whether it has run, and waits without a stack. A hint unless the caller owns the goroutine.
    #[inline(always)]
    pub(crate) fn is_off_stack(self) -> bool {
        self.raw_out().addr() & IS_OFF_STACK != 0
    }

    /// Whether it has never run. A hint unless the caller owns the goroutine.
    pub(crate) fn is_fresh(self) -> bool {
        self.raw_out().is_null()
    }

    /// Adds a reference. Aborts the process if there are [`MAX_REFS`].
    pub(crate) fn retain(self) {
        if self.refs.fetch_add(1, Ordering::Relaxed) >= MAX_REFS {
            too_many_refs();
        }
    }

    /// The number of references. Ordering: acquire, so that what former holders did with theirs has happened.
    pub(crate) fn refs(self) -> u32 {
        self.refs.load(Ordering::Acquire)
    }

    /// Adds a reference unless there is none, for callers that find a slot which may be free.
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

    /// Drops a reference. `true` if it was the last: the caller must then call [`GRef::dispose`].
    #[inline]
    #[must_use]
    pub(crate) fn release(self) -> bool {
        if self.refs.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        self.refs.load(Ordering::Acquire);
        true
    }

    /// Empties a slot whose last reference is gone; it may then be added to a free list.
    #[inline]
    pub(crate) fn dispose(self) {
        let details = self.header().details.load(Ordering::Acquire);
        if !details.is_null() {
            // SAFETY: the box was made by the spawner, and no reference is left, so nobody reads it.
            unsafe { drop_details(details) };
            let none = std::ptr::null_mut();
            self.header().details.store(none, Ordering::Relaxed);
        }
        self.set_raw_out(std::ptr::null());
        self.fiber.end();
        self.status.set_free();
    }
}

/// # Safety
///
/// `details` came from a box, and nobody uses it any more.
#[cold]
#[inline(never)]
unsafe fn drop_details(details: *mut Details) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(details) });
}

/// Ends the process. A panic would not do: a caller that catches it could go on until the count wraps.
#[cold]
#[inline(never)]
fn too_many_refs() -> ! {
    signal::write_stderr(
        b"windlass: a goroutine has more than 2^31 - 1 references: handles or wakers are \
          forgotten (std::mem::forget)\n",
    );
    std::process::abort()
}

/// The link that a tagged `out` names, if it is tagged.
#[inline(always)]
fn link_in<'a>(out: *const Out) -> Option<&'a OutLink> {
    if out.addr() & LINKED == 0 {
        return None;
    }
    let link = out.map_addr(|addr| addr & !LINKED).cast::<OutLink>();
    // SAFETY: a tagged word holds the address that `set_out_link` stored, plus a tag. A locked M lives
    // until the run ends, after the goroutine, and an extra stack until it is left.
    Some(unsafe { &*link })
}

/// The properties of a new goroutine.
#[derive(Debug)]
pub(crate) struct Spawn {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) details: Option<Box<Details>>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) stack_bytes: usize,
    pub(crate) home: usize,
    /// Whether it runs on its home node only.
    pub(crate) is_bound: bool,
    pub(crate) sched: *mut (),
    /// The initial number of references: the runtime's own, and the spawner's handle.
    pub(crate) refs: u32,
}

/// The body of type `B` or its result of type `T`, in the same memory.
union Payload<B, T> {
    body: ManuallyDrop<B>,
    outcome: ManuallyDrop<Outcome<T>>,
}

impl<B, T> Payload<B, T> {
    fn new(body: B) -> Payload<B, T> {
        Payload {
            body: ManuallyDrop::new(body),
        }
    }
}

/// The code of a goroutine with a result of type `T`: a closure, or [`Steps`].
pub(crate) trait Body<T>: Sized {
    /// Whether it stays in its place while it runs. The goroutine's locals then lie beside it from the spawn on.
    const STAYS: bool;

    /// Runs it, or only drops it if `cancelled` says why. An error is its wait, after which it is to run
    /// again. Never unwinds.
    ///
    /// # Safety
    ///
    /// The caller is as that of [`run`]. `this` lies in the payload of `g`, which was spawned with it.
    unsafe fn run(
        this: *mut Self,
        g: GRef,
        cancelled: Option<Box<dyn Any + Send>>,
    ) -> Result<Outcome<T>, OffStack>;
}

impl<F: FnOnce() -> T, T> Body<T> for F {
    const STAYS: bool = false;

    #[inline(always)]
    unsafe fn run(
        this: *mut F,
        g: GRef,
        cancelled: Option<Box<dyn Any + Send>>,
    ) -> Result<Outcome<T>, OffStack> {
        // SAFETY: a closure runs once; it is still there and is moved out.
        let closure = unsafe { this.read() };
        // The handles in it are found where they are now (`sync::tag`).
        #[cfg(feature = "leaks")]
        // SAFETY: it was moved out, so that any bytes may be left.
        unsafe {
            this.cast::<u8>().write_bytes(0, size_of::<F>());
        }
        // SAFETY: the payload is empty until the outcome is written.
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
        Ok(outcome)
    }
}

/// The work of a goroutine that needs no stack between two steps.
pub(crate) trait Step {
    type Output;

    /// Runs on a stack of the goroutine `g`, which is the caller.
    ///
    /// # Errors
    ///
    /// A wait after which it is to run again.
    fn step(self: Pin<&mut Self>, g: GRef) -> Result<Self::Output, OffStack>;
}

/// The body of a goroutine that gives its stack back after each step. It is dropped after the last.
#[derive(Debug)]
pub(crate) struct Steps<S>(pub(crate) S);

impl<S: Step> Body<S::Output> for Steps<S> {
    const STAYS: bool = true;

    unsafe fn run(
        this: *mut Steps<S>,
        g: GRef,
        cancelled: Option<Box<dyn Any + Send>>,
    ) -> Result<Outcome<S::Output>, OffStack> {
        let step = || match cancelled {
            // SAFETY: it is there until it is dropped below, and does not move meanwhile.
            None => unsafe { Pin::new_unchecked(&mut (*this).0) }
                .step(g)
                .map(Ok),
            Some(payload) => Ok(Err(payload)),
        };
        let outcome = match catch_unwind(AssertUnwindSafe(step)) {
            Ok(stepped) => stepped?,
            Err(payload) => Err(payload),
        };
        let outcome = catch_unwind(AssertUnwindSafe(move || {
            // SAFETY: it has made its last step.
            unsafe { std::ptr::drop_in_place(this) };
            outcome
        }))
        .and_then(|r| r);
        drop(EndsOwn(g));
        Ok(outcome)
    }
}

struct Typed<B, T>(std::marker::PhantomData<(B, T)>);

impl<B: Body<T>, T> Typed<B, T> {
    /// The offset of a payload that lies in the slot.
    const AT: usize = if B::STAYS { STAYS_AT } else { HEADER_BYTES };

    /// The class of a slot with the payload in it. One that stays is there for long: a box takes less than a
    /// slot of the second class.
    const INLINE: Option<usize> =
        match class_for(Self::AT - HEADER_BYTES + size_of::<Payload<B, T>>()) {
            Some(class) if align_of::<Payload<B, T>>() <= 16 && !(B::STAYS && class > 0) => {
                Some(class)
            }
            _ => None,
        };

    const CLASS: usize = match Self::INLINE {
        Some(class) => class,
        None => 0,
    };

    const VTABLE: Vtable = Vtable {
        run: Self::run,
        drop_outcome: Self::drop_outcome,
    };

    /// # Safety
    ///
    /// `g` was set up by [`init`] with this `B` and `T`.
    #[inline]
    unsafe fn place(g: GRef) -> *mut Payload<B, T> {
        match Self::INLINE {
            // SAFETY: the slot is longer than this, as the class says.
            Some(_) => unsafe { g.as_ptr().cast::<u8>().add(Self::AT).cast() },
            // SAFETY: the first word holds the address of a boxed payload.
            None => unsafe { payload_ptr(g).cast::<*mut Payload<B, T>>().read() },
        }
    }

    /// # Safety
    ///
    /// The slot is free, is the caller's, and is of this class.
    #[inline]
    unsafe fn put(g: GRef, body: B) {
        let payload = Payload::<B, T>::new(body);
        match Self::INLINE {
            // SAFETY: the class was chosen to hold the payload there, and slots are aligned to 16 at the
            // payload.
            Some(_) => unsafe { Self::place(g).write(payload) },
            // SAFETY: every slot holds at least a pointer behind its header.
            None => unsafe {
                payload_ptr(g)
                    .cast::<*mut Payload<B, T>>()
                    .write(Box::into_raw(Box::new(payload)))
            },
        }
        if B::STAYS {
            // SAFETY: the payload does not cover them. The body ends them.
            std::mem::forget(unsafe { begin_own(g) });
        }
    }

    unsafe fn run(g: GRef, cancelled: Option<Box<dyn Any + Send>>) -> Option<OffStack> {
        #[cfg(feature = "sim")]
        let ran = cancelled.is_none();
        // SAFETY: the vtable was made for the types of this payload.
        let place = unsafe { Self::place(g) };
        // SAFETY: as above, and the body has not ended.
        let body = unsafe { (&raw mut (*place).body).cast::<B>() };
        // SAFETY: as above.
        match unsafe { B::run(body, g, cancelled) } {
            Ok(outcome) => {
                #[cfg(feature = "sim")]
                note_panic(g, &outcome, ran);
                // SAFETY: the memory is the payload's and is empty now.
                unsafe { std::ptr::write(&raw mut (*place).outcome, ManuallyDrop::new(outcome)) };
                None
            }
            Err(wait) => Some(wait),
        }
    }

    unsafe fn drop_outcome(g: GRef, on_panic: fn(&(dyn Any + Send))) {
        // SAFETY: by the contract of the vtable: the outcome is there and taken once.
        let outcome = unsafe { Self::take(g) };
        if let Err(payload) = &outcome {
            on_panic(&**payload);
        }
        // SAFETY: the payload stays empty; the destructor may be the goroutine's own code.
        let _own = unsafe { begin_own(g) };
        drop(outcome);
    }

    /// # Safety
    ///
    /// The goroutine has ended and its outcome was not taken before.
    unsafe fn take(g: GRef) -> Outcome<T> {
        // SAFETY: the vtable's types.
        let place = unsafe { Self::place(g) };
        // SAFETY: by this function's contract.
        let outcome =
            ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*place).outcome) });
        if Self::INLINE.is_none() {
            // SAFETY: the box was made by `put`; `MaybeUninit` keeps the content, which was moved
            // out, from being dropped.
            drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Payload<B, T>>>()) });
        }
        outcome
    }
}

fn payload_span(g: GRef) -> Range<usize> {
    let slot = g.as_ptr().addr();
    slot + HEADER_BYTES..slot + SLOT_BYTES[g.slot_class()]
}

#[inline(always)]
fn payload_ptr(g: GRef) -> *mut u8 {
    // SAFETY: a slot is longer than its header.
    unsafe { g.as_ptr().cast::<u8>().add(HEADER_BYTES) }
}

/// The offset of a goroutine's [`GoroutineLocals`] while its code runs: in the payload, behind the
/// word that may hold a box's address.
const OWN_AT: usize = HEADER_BYTES + 16;
/// The offset of a body that stays in the slot ([`Body::STAYS`]), behind the locals.
const STAYS_AT: usize = (OWN_AT + size_of::<GoroutineLocals>()).next_multiple_of(16);

#[cfg(not(loom))]
const _: () = assert!(OWN_AT + size_of::<GoroutineLocals>() <= SLOT_BYTES[0]);

/// # Safety
///
/// The payload holds neither closure nor outcome until the returned guard is dropped.
#[inline(always)]
unsafe fn begin_own(g: GRef) -> EndsOwn {
    // SAFETY: every slot is long enough, as asserted above, and the address is aligned to 16.
    unsafe { g.locals_ptr().write(GoroutineLocals::new()) };
    EndsOwn(g)
}

/// Drops a goroutine's locals when its code has ended.
struct EndsOwn(GRef);

impl Drop for EndsOwn {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it was made by `begin_own`, and this is the last use.
        unsafe { std::ptr::drop_in_place(self.0.locals_ptr()) };
    }
}

/// The slot class of a goroutine with this body.
#[inline]
pub(crate) const fn class_of<B: Body<T>, T>() -> usize {
    Typed::<B, T>::CLASS
}

/// Initialises a free slot of class [`class_of`]`::<F, T>()`. The caller owns the new G and queues
/// it.
#[inline]
pub(crate) fn init<B: Body<T>, T>(g: GRef, body: B, spawn: Spawn) {
    race::enter_runtime();
    race::renew(|| payload_span(g));
    // SAFETY: by this function's contract.
    unsafe { Typed::<B, T>::put(g, body) };
    let h = g.header();
    h.vtable.set(Some(const { &Typed::<B, T>::VTABLE }));
    h.refs.store(spawn.refs, Ordering::Relaxed);
    h.token.clear();
    h.sched.store(spawn.sched, Ordering::Relaxed);
    h.join.store(std::ptr::null_mut(), Ordering::Relaxed);
    h.id.set(spawn.id);
    h.parent.set(spawn.parent);
    let details = spawn.details.map_or(std::ptr::null_mut(), Box::into_raw);
    h.details.store(details, Ordering::Release);
    h.site.set(Some(spawn.site));
    h.stack_bytes.set((spawn.stack_bytes / 1024) as u32);
    h.home.store(spawn.home as u16, Ordering::Relaxed);
    h.unwinds_cancelled.set(false);
    h.fiber.begin(spawn.id, || g.name());
    h.status.set_new(spawn.is_bound);
    race::leave_runtime();
}

/// Runs the closure on the goroutine's stack, or drops it there if it was cancelled first. Never
/// unwinds. Returns its wait if it has made a step and is to run again ([`Steps`]).
///
/// # Safety
///
/// `g` is Running, and the caller is on its stack. This has not returned `None` for it.
pub(crate) unsafe fn run(g: GRef, cancelled: Option<Box<dyn Any + Send>>) -> Option<OffStack> {
    let vtable = g.vtable.get().expect("a G that runs was spawned");
    // SAFETY: the vtable belongs to the payload, which has not ended.
    unsafe { (vtable.run)(g, cancelled) }
}

/// Drops the outcome of a goroutine that is not joined. If that is a panic, `on_panic` sees it before.
///
/// # Safety
///
/// `g` has run to its end and its outcome was not taken.
pub(crate) unsafe fn drop_outcome(g: GRef, on_panic: fn(&(dyn Any + Send))) {
    let vtable = g.vtable.get().expect("a G that ran was spawned");
    // SAFETY: by this function's contract.
    unsafe { (vtable.drop_outcome)(g, on_panic) };
}

/// The type of function by which a handle that knows only `T` takes the outcome.
pub(crate) type TakeFn<T> = unsafe fn(GRef) -> Outcome<T>;

/// The function that takes the outcome of a goroutine made from `B`.
pub(crate) const fn take_fn<B: Body<T>, T>() -> TakeFn<T> {
    Typed::<B, T>::take
}

/// Tells the simulation that a panic has ended `g`, unless it was cancelled. One that did not run
/// has a text for its payload if there was no stack for it.
#[cfg(feature = "sim")]
fn note_panic<T>(g: GRef, outcome: &Outcome<T>, ran: bool) {
    if let (Err(payload), Some(bubble)) = (outcome, bubble::current())
        && !g.unwinds_cancelled()
        && (ran || payload.is::<String>())
    {
        bubble.note_panic(g.id(), g.name(), &**payload);
    }
}

/// Tells the simulation of a panic of `g` that a scope or a group keeps: `g` itself does not end by it.
#[cfg_attr(not(feature = "sim"), allow(unused_variables))]
pub(crate) fn note_kept_panic<T>(g: GRef, outcome: &Outcome<T>) {
    #[cfg(feature = "sim")]
    note_panic(g, outcome, true);
}

/// Tells the simulation that the destructor of what `g` has returned panicked, in the goroutine that runs.
#[cfg_attr(not(feature = "sim"), allow(unused_variables))]
pub(crate) fn note_destructor_panic(g: GRef, payload: &(dyn Any + Send)) {
    #[cfg(feature = "sim")]
    if let Some(bubble) = bubble::current() {
        bubble.note_panic_in(bubble.running(), g.id(), g.name(), payload);
    }
}

/// The source of goroutine ids in this process; Ps reserve them in batches.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Reserves `n` ids and returns the first. Ordering: relaxed, only uniqueness matters.
pub(crate) fn reserve_ids(n: u64) -> u64 {
    NEXT_ID.fetch_add(n, Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::util::test_child;

    /// A goroutine that never runs, with `n` references.
    fn with_refs(n: u32) -> GRef {
        let mut slot = None;
        crate::g::slab::take(crate::g::slab::DepotId::of(None), 0, 1, |g| slot = Some(g));
        let g = slot.expect("the slab gives the slot asked for");
        let spawn = Spawn {
            id: reserve_ids(1),
            parent: 0,
            details: None,
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

    /// Handles can be forgotten: a count that wraps would free a referenced goroutine.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
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
