//! On which NUMA nodes the runtime's memory is. The kernel is queried, page by page, on demand.

use std::ops::Range;

use super::sum::{Sum, sums};
use crate::g::slab;
use crate::netpoll::ring;
use crate::sched::types::p::P;
use crate::sched::types::state::{Node, Sched};
use crate::sys::mmap;
use crate::sys::numa::{self, PageAt};

/// The maximum number of pages of a kind that are queried on each node.
const SAMPLE: usize = 2048;

sums! {
    /// The number of sampled pages on the node that they belong to, and elsewhere.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Pages {
        /// Pages on the node that they belong to, and pages that may be on any node.
        pub home: u64,
        /// Pages on another node.
        pub away: u64,
        /// Pages whose node is unknown, because `move_pages(2)` is denied (seccomp in a container) or
        /// does not report such pages.
        pub unknown: u64,
    }
}

impl Pages {
    /// The share of pages at home, 0 to 1, among the pages whose node is known. `None` if no page's
    /// node is known.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let share = rt.memory_placement().total().all().share_at_home();
    /// assert!(share.is_none_or(|share| share > 0.9));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn share_at_home(&self) -> Option<f64> {
        let known = self.home + self.away;
        (known > 0).then(|| self.home as f64 / known as f64)
    }
}

sums! {
    /// Pages by what they hold.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct MemoryPages {
        /// Ps (run queues, timers, counters and caches) and the state of the node.
        pub processors: Pages,
        /// Goroutine slots. All runtimes of the process share them.
        pub goroutines: Pages,
        /// Goroutine stacks up to 1 MiB, in use or free.
        pub stacks: Pages,
        /// Queues of io_uring.
        pub rings: Pages,
        /// Receive buffers of the Ps (`recv_owned`).
        pub buffers: Pages,
    }
}

impl MemoryPages {
    /// The sum of all kinds.
    #[must_use]
    pub fn all(&self) -> Pages {
        let mut all = Pages::default();
        for pages in [
            self.processors,
            self.goroutines,
            self.stacks,
            self.rings,
            self.buffers,
        ] {
            all.add(&pages);
        }
        all
    }
}

/// The memory of a node of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMemory {
    /// The kernel's number of the node.
    pub os_id: u32,
    /// The node from which its memory is allocated: the node itself, or the nearest node with
    /// memory if it has none. `None` if memory may come from any node: on a machine with one node,
    /// without pinning, and for the description of another machine
    /// ([`Builder::topology`](crate::Builder::topology)).
    pub memory_os_id: Option<u32>,
    /// The number of pages at home and elsewhere.
    pub pages: MemoryPages,
}

/// On which NUMA nodes a runtime's memory is. Made by
/// [`Runtime::memory_placement`](crate::Runtime::memory_placement).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlacement {
    /// One entry per NUMA node on which Ps may be.
    pub nodes: Vec<NodeMemory>,
}

impl MemoryPlacement {
    pub(crate) fn of(sched: &Sched) -> MemoryPlacement {
        let memory_of = |(idx, node): (usize, &Node)| NodeMemory {
            os_id: node.os_id,
            memory_os_id: node.memory,
            pages: pages_of(sched, idx, node),
        };
        MemoryPlacement {
            nodes: sched.nodes.iter().enumerate().map(memory_of).collect(),
        }
    }

    /// The sum of all nodes.
    #[must_use]
    pub fn total(&self) -> MemoryPages {
        let mut total = MemoryPages::default();
        self.nodes.iter().for_each(|node| total.add(&node.pages));
        total
    }
}

fn pages_of(sched: &Sched, idx: usize, node: &Node) -> MemoryPages {
    let ps = || sched.ps.range(node.ps.clone());
    let mut processors = vec![sched.nodes.span(idx)];
    processors.extend(node.ps.clone().map(|i| sched.ps.span(i)));
    processors.extend(ps().flat_map(|p| p.timers.spans()));
    let buffers = ps()
        .filter_map(|p| p.poller.pool_span())
        .collect::<Vec<_>>();
    let mut goroutines = Vec::new();
    slab::sample_pages(node.depot, SAMPLE, |page| goroutines.push(page));
    let mut stacks = Vec::new();
    node.stacks.sample_pages(SAMPLE, |page| stacks.push(page));
    MemoryPages {
        processors: count_by_node(node.memory, &sample(&processors)),
        goroutines: count_by_node(node.memory, &goroutines),
        stacks: count_by_node(node.memory, &stacks),
        rings: rings(node.memory, ps()),
        buffers: count_by_node(node.memory, &sample(&buffers)),
    }
}

/// An evenly spread sample of the pages of these ranges.
fn sample(ranges: &[Range<usize>]) -> Vec<usize> {
    let page_bytes = mmap::page_bytes();
    let pages = ranges.iter().filter(|range| !range.is_empty());
    let mut pages: Vec<usize> = pages
        .flat_map(|range| range.start / page_bytes..range.end.div_ceil(page_bytes))
        .map(|page| page * page_bytes)
        .collect();
    pages.sort_unstable();
    pages.dedup();
    let step = pages.len().div_ceil(SAMPLE).max(1);
    pages.into_iter().step_by(step).collect()
}

/// Counts these pages by node. Pages that were never written are not counted.
fn count_by_node(home: Option<u32>, pages: &[usize]) -> Pages {
    let mut found = Pages::default();
    match numa::where_are(pages) {
        Err(_) => found.unknown = pages.len() as u64,
        Ok(places) => places.into_iter().for_each(|at| match at {
            PageAt::Nowhere => {}
            PageAt::Node(node) if home.is_none_or(|home| home == node) => found.home += 1,
            PageAt::Node(_) => found.away += 1,
        }),
    }
    found
}

/// Counts the pages of the rings' queues. They always exist, so a page that is reported as absent
/// is one that the kernel does not report.
fn rings<'a>(home: Option<u32>, ps: impl Iterator<Item = &'a P>) -> Pages {
    let mut all = Pages::default();
    let fds = ps.filter_map(|p| p.poller.open_ring());
    for fd in fds.take(SAMPLE / ring::n_pages()) {
        let looked = ring::with_pages(fd, |pages| count_by_node(home, pages)).unwrap_or_default();
        let told = looked.home + looked.away;
        all.add(&Pages {
            unknown: (ring::n_pages() as u64).saturating_sub(told),
            ..looked
        });
    }
    all
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_bounded_and_has_each_page_once() {
        let page_bytes = mmap::page_bytes();
        let few = sample(&[100..200, 300..400, page_bytes..2 * page_bytes + 1, 7..7]);
        assert_eq!(few, [0, page_bytes, 2 * page_bytes]);
        let many = sample(&[0..page_bytes, 0..10_000 * page_bytes]);
        assert_eq!(many.len(), 2000);
    }

    #[test]
    fn shares_leave_out_what_is_not_known() {
        let pages = |home, away, unknown| Pages {
            home,
            away,
            unknown,
        };
        assert_eq!(pages(3, 1, 9).share_at_home(), Some(0.75));
        assert_eq!(pages(0, 0, 9).share_at_home(), None);
        let all = MemoryPages {
            stacks: pages(1, 2, 3),
            rings: pages(10, 20, 30),
            ..MemoryPages::default()
        };
        assert_eq!(all.all(), pages(11, 22, 33));
    }
}
