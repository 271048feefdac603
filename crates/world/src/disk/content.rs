//! The bytes of a simulated file: those that programs see, those on the disk, and what may have
//! become of the others when the power goes.
//!
//! A file is divided into pages, as in the kernel's page cache. A page has the state that is surely
//! on the disk, and all states that programs have given it since. The kernel may write a page back
//! at any time, so any of these may be on the disk after a crash; and since a disk writes whole
//! sectors only, neighbouring sectors may have different ones of two successive states. Pages are
//! written back in any order. The size is kept likewise, apart from the pages: a file may have its
//! new size and not yet its new bytes, which then are zeros.
//!
//! A truncation is a barrier: a journal puts it on the disk before its space is used again. So the
//! pages after it cannot be there without it, nor those before it with it. Each truncation begins
//! an *epoch*, with which sizes and states are marked.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chance::{PowerLoss, below};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a sector, which is written whole or not at all.
pub const SECTOR: usize = 512;
/// The longest file.
pub const MOST_BYTES: u64 = 1 << 44;

/// How much one call allocates at most: each page of it takes memory.
const MOST_ALLOCATED: u64 = 1 << 30;

/// How many states of a page, and sizes of a file, are remembered. Of more, those in between are
/// forgotten: they then are never found on the disk.
const MOST_STATES: usize = 8;

/// The bytes of a page; `None` for a hole, which reads as zeros.
type Image = Option<Arc<[u8; PAGE]>>;

/// A state of a page that may not be on the disk.
#[derive(Clone, Debug)]
struct State {
    seq: u64,
    epoch: u32,
    image: Image,
    /// Comes from a truncation.
    is_cut: bool,
    /// The disk has it in its own memory: the kernel will not forget it.
    in_device: bool,
}

#[derive(Clone, Debug, Default)]
struct Page {
    on_disk: Image,
    on_disk_seq: u64,
    states: Vec<State>,
    /// A page whose write has failed: programs still see it, and nobody will write it again.
    ghost: Option<Image>,
    in_cache: bool,
}

impl Page {
    /// The bytes that programs see.
    fn current(&self) -> &Image {
        match (self.states.last(), &self.ghost) {
            (Some(state), _) => &state.image,
            (None, Some(ghost)) => ghost,
            (None, None) => &self.on_disk,
        }
    }

    fn push(&mut self, state: State) {
        self.ghost = None;
        self.in_cache = !state.in_device;
        let n_written = self.states.iter().filter(|state| !state.is_cut).count();
        if n_written >= MOST_STATES
            && let Some(oldest) = self.states.iter().position(|state| !state.is_cut)
        {
            self.states.remove(oldest);
        }
        self.states.push(state);
    }

    /// Puts a state on the disk, unless a newer one is there.
    fn settle(&mut self, state: &State) {
        if state.seq > self.on_disk_seq {
            self.on_disk = state.image.clone();
            self.on_disk_seq = state.seq;
        }
        self.states.retain(|s| s.seq > state.seq);
    }

    /// The write of a state has failed.
    fn lose(&mut self, state: &State) {
        // A truncation is a matter of the journal, and what the disk has is not lost either.
        let mut safe = self.states.iter();
        let safe = safe.rfind(|s| s.seq <= state.seq && (s.is_cut || s.in_device));
        if let Some(safe) = safe.cloned() {
            self.settle(&safe);
        }
        self.states.retain(|s| s.seq > state.seq);
        // Whether the kernel has thrown the page away already.
        if self.states.is_empty() && below(2) == 0 {
            self.ghost = Some(state.image.clone());
        }
    }

    fn crash(&mut self, epoch: u32, loss: PowerLoss) {
        let mut states: Vec<&State> = self.states.iter().filter(|s| s.epoch <= epoch).collect();
        let cut = states.iter().rposition(|state| state.is_cut);
        let mut images = vec![&self.on_disk];
        if let Some(cut) = cut {
            images.clear();
            states.drain(..cut);
        }
        images.extend(states.iter().map(|state| &state.image));
        let at = loss.state_of(images.len());
        let mut image = images[at].clone();
        if at > 0 {
            image = torn(images[at - 1], image, loss.torn_sectors());
        }
        *self = Page {
            on_disk: image,
            on_disk_seq: self.on_disk_seq,
            ..Page::default()
        };
    }
}

/// The page `new`, with some sectors of `old`.
fn torn(old: &Image, new: Image, sectors: u8) -> Image {
    if sectors == 0 {
        return new;
    }
    let mut bytes = bytes_of(&new);
    let old = bytes_of(old);
    for n in (0..PAGE / SECTOR).filter(|n| sectors >> n & 1 == 1) {
        let place = n * SECTOR..(n + 1) * SECTOR;
        bytes[place.clone()].copy_from_slice(&old[place]);
    }
    Some(Arc::new(bytes))
}

fn bytes_of(image: &Image) -> [u8; PAGE] {
    image.as_deref().copied().unwrap_or([0; PAGE])
}

/// A size that a file has had.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    seq: u64,
    epoch: u32,
    bytes: u64,
}

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pages: BTreeMap<u64, Page>,
    size_on_disk: Size,
    sizes: Vec<Size>,
    epoch: u32,
    /// Pages that are no holes.
    n_allocated: u64,
}

/// The pages that a sync has to write: the newest states when it began.
#[derive(Debug)]
pub struct Plan {
    pages: Vec<(u64, State)>,
    size: Option<Size>,
}

impl Plan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.size.is_none()
    }

    /// Whether it writes pages of the cache.
    pub fn writes_pages(&self) -> bool {
        self.pages.iter().any(|(_, state)| !state.in_device)
    }
}

/// The pages that some bytes lie in, with the part of each.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (page, begin) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = (end - at).min((PAGE - begin) as u64) as usize;
            at += n as u64;
            (page, begin..begin + n)
        })
    })
}

impl Content {
    /// The length in bytes.
    pub fn size(&self) -> u64 {
        self.sizes.last().unwrap_or(&self.size_on_disk).bytes
    }

    /// The space that it takes, in bytes.
    pub(super) fn allocated(&self) -> u64 {
        self.n_allocated * PAGE as u64
    }

    /// How many of these bytes can be written with `n_free` new pages.
    pub fn room(&self, offset: u64, len: usize, mut n_free: u64) -> usize {
        let mut room = 0;
        for (n, place) in parts(offset, len) {
            if self.is_hole(n) {
                if n_free == 0 {
                    break;
                }
                n_free -= 1;
            }
            room += place.len();
        }
        room
    }

    fn is_hole(&self, n: u64) -> bool {
        self.pages
            .get(&n)
            .is_none_or(|page| page.current().is_none())
    }

    /// Whether some of these bytes must come from the disk.
    pub fn is_cold(&self, offset: u64, len: usize) -> bool {
        let len = (self.size().saturating_sub(offset)).min(len as u64) as usize;
        parts(offset, len).any(|(n, _)| self.pages.get(&n).is_some_and(|page| !page.in_cache))
    }

    /// Reads at most `buf.len()` bytes; into the cache, too, if `caches`.
    pub fn read(&mut self, offset: u64, buf: &mut [u8], caches: bool) -> usize {
        let len = (self.size().saturating_sub(offset)).min(buf.len() as u64) as usize;
        let mut at = 0;
        for (n, place) in parts(offset, len) {
            let to = &mut buf[at..at + place.len()];
            at += place.len();
            let page = self.pages.get_mut(&n);
            match page.as_ref().and_then(|page| page.current().as_deref()) {
                Some(bytes) => to.copy_from_slice(&bytes[place]),
                None => to.fill(0),
            }
            if let Some(page) = page.filter(|_| caches) {
                page.in_cache = true;
            }
        }
        len
    }

    /// Writes bytes, past the end too. With `in_device` they bypass the cache.
    pub fn write(&mut self, seq: u64, offset: u64, bytes: &[u8], in_device: bool) {
        let mut at = 0;
        for (n, place) in parts(offset, bytes.len()) {
            let from = &bytes[at..at + place.len()];
            at += place.len();
            self.change(seq, n, in_device, |page| {
                page[place].copy_from_slice(from);
            });
        }
        let end = offset + bytes.len() as u64;
        if end > self.size() {
            self.push_size(seq, end);
        }
    }

    fn change(&mut self, seq: u64, n: u64, in_device: bool, f: impl FnOnce(&mut [u8; PAGE])) {
        let epoch = self.epoch;
        let page = self.pages.entry(n).or_default();
        if page.current().is_none() {
            self.n_allocated += 1;
        }
        let mut bytes = bytes_of(page.current());
        f(&mut bytes);
        if in_device {
            // The page's state in the cache is written first.
            page.states.iter_mut().for_each(|s| s.in_device = true);
        }
        page.push(State {
            seq,
            epoch,
            image: Some(Arc::new(bytes)),
            is_cut: false,
            in_device,
        });
    }

    fn push_size(&mut self, seq: u64, bytes: u64) {
        if self.sizes.len() >= MOST_STATES {
            // One that is not the first of its epoch.
            let epochs = std::iter::once(&self.size_on_disk).chain(&self.sizes);
            let mut pairs = epochs.zip(&self.sizes);
            if let Some(at) = pairs.position(|(before, size)| before.epoch == size.epoch) {
                self.sizes.remove(at);
            }
        }
        self.sizes.push(Size {
            seq,
            epoch: self.epoch,
            bytes,
        });
    }

    /// Cuts the end off, or adds zeros.
    pub fn set_size(&mut self, seq: u64, bytes: u64) {
        if bytes >= self.size() {
            if bytes > self.size() {
                self.push_size(seq, bytes);
            }
            return;
        }
        self.epoch += 1;
        let (last, used) = (bytes / PAGE as u64, (bytes % PAGE as u64) as usize);
        for (&n, page) in self.pages.range_mut(last..) {
            let Some(image) = page.current().as_deref() else {
                continue;
            };
            let image = if n == last && used > 0 {
                let mut kept = [0; PAGE];
                kept[..used].copy_from_slice(&image[..used]);
                Some(Arc::new(kept))
            } else {
                self.n_allocated -= 1;
                None
            };
            page.push(State {
                seq,
                epoch: self.epoch,
                image,
                is_cut: true,
                in_device: false,
            });
        }
        self.push_size(seq, bytes);
    }

    /// Gives space to a part of the file, which grows if it ends before. There are `n_free` new
    /// pages. `false` if that is not enough.
    pub fn allocate(&mut self, seq: u64, offset: u64, len: u64, n_free: u64) -> bool {
        if len > MOST_ALLOCATED || self.room(offset, len as usize, n_free) < len as usize {
            return false;
        }
        // All new pages are one in memory, until they are written to.
        let zeros = Arc::new([0; PAGE]);
        let last = (offset + len).div_ceil(PAGE as u64);
        for n in offset / PAGE as u64..last {
            if self.is_hole(n) {
                self.n_allocated += 1;
                self.pages.entry(n).or_default().push(State {
                    seq,
                    epoch: self.epoch,
                    image: Some(Arc::clone(&zeros)),
                    is_cut: false,
                    in_device: false,
                });
            }
        }
        if offset + len > self.size() {
            self.push_size(seq, offset + len);
        }
        true
    }

    /// The changes that are not on the disk yet.
    pub fn plan(&self) -> Plan {
        let newest = |(&n, page): (&u64, &Page)| Some((n, page.states.last()?.clone()));
        Plan {
            pages: self.pages.iter().filter_map(newest).collect(),
            size: self.sizes.last().copied(),
        }
    }

    /// The planned change is on the disk.
    pub fn settle(&mut self, plan: &Plan) {
        self.settle_size(plan);
        for (n, state) in &plan.pages {
            self.with_page(*n, |page| page.settle(state));
        }
    }

    /// The planned write has failed: the kernel counts its pages as written all the same.
    pub fn lose(&mut self, plan: &Plan) {
        self.settle_size(plan);
        for (n, state) in &plan.pages {
            let is_written = state.in_device || state.is_cut || below(2) == 1;
            self.with_page(*n, |page| {
                if is_written {
                    page.settle(state);
                } else {
                    page.lose(state);
                }
            });
        }
        self.count();
    }

    fn settle_size(&mut self, plan: &Plan) {
        if let Some(size) = plan.size.filter(|size| size.seq > self.size_on_disk.seq) {
            self.size_on_disk = size;
            self.sizes.retain(|s| s.seq > size.seq);
        }
    }

    fn with_page(&mut self, n: u64, f: impl FnOnce(&mut Page)) {
        if let Some(page) = self.pages.get_mut(&n) {
            f(page);
            if page.states.is_empty() && page.on_disk.is_none() && page.ghost.is_none() {
                self.pages.remove(&n);
            }
        }
    }

    fn count(&mut self) {
        let allocated = self.pages.values().filter(|page| page.current().is_some());
        self.n_allocated = allocated.count() as u64;
    }

    /// The power goes: what the disk has is all there is.
    pub(super) fn crash(&mut self, loss: PowerLoss) {
        let at = loss.state_of(self.sizes.len() + 1);
        let size = match at {
            0 => self.size_on_disk,
            n => self.sizes[n - 1],
        };
        let n_pages = size.bytes.div_ceil(PAGE as u64);
        for (&n, page) in &mut self.pages {
            page.crash(size.epoch, if n < n_pages { loss } else { PowerLoss::Lost });
        }
        self.pages
            .retain(|&n, page| n < n_pages && page.on_disk.is_some());
        let used = (size.bytes % PAGE as u64) as usize;
        if used > 0
            && let Some(page) = self.pages.get_mut(&(n_pages - 1))
            && let Some(image) = &mut page.on_disk
        {
            Arc::make_mut(image)[used..].fill(0);
        }
        self.size_on_disk = Size { epoch: 0, ..size };
        self.sizes.clear();
        self.epoch = 0;
        self.count();
    }
}
