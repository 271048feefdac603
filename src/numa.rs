//! Data of your own, node by node.
//!
//! The runtime keeps what it needs itself on the NUMA node that uses it (docs/NUMA.md). Data that
//! a program shares between all its goroutines, such as counters, queues and caches, is on the node
//! that touched it first, and every other node accesses it over the interconnect.
//! [`NodeLocal`] is one value for each node instead.

use std::fmt;

use crate::sched::current;
use crate::sys::{affinity, numa};
use crate::util::placed::Placed;

/// One value for each NUMA node, on pages of that node.
///
/// Goroutines borrow the nearest with [`get`](Self::get). All values may be reached from
/// everywhere, so `T` must be `Sync` to be shared, and a goroutine may go on using
/// the value of a node that it has left: that is slower, but correct.
///
/// A value takes whole pages (4 KiB at least), so a `NodeLocal` is for few and busy things. Where
/// `T` owns memory besides, such as the buffer of a `Vec`, that comes from the allocator as ever:
/// fixed arrays and atomics in `T` lie on the node for sure.
///
/// On a machine with one node, or a kernel without NUMA, there is one value.
///
/// # Examples
///
/// A counter that nodes do not fight over:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use windlass::numa::NodeLocal;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let hits = NodeLocal::new(|_node| AtomicU64::new(0));
/// rt.run(|| {
///     windlass::scope(|s| {
///         for _ in 0..10 {
///             s.spawn(|| hits.get().fetch_add(1, Relaxed));
///         }
///     });
/// });
/// let total: u64 = hits.iter().map(|(_node, n)| n.load(Relaxed)).sum();
/// assert_eq!(total, 10);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Work that stays on its node, with a channel for each node: producers send to the channel of their
/// node, and the workers of a node receive from it.
///
/// ```
/// use windlass::channel::{self, Receiver, Sender};
/// use windlass::numa::NodeLocal;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let queues: NodeLocal<(Sender<u64>, Receiver<u64>)> = NodeLocal::new(|_node| channel::bounded(64));
/// let sum: u64 = rt.run(|| {
///     let workers: Vec<_> = queues
///         .iter()
///         .map(|(_node, (_, jobs))| jobs.clone())
///         .map(|jobs| windlass::spawn(move || jobs.iter().sum::<u64>()))
///         .collect();
///     (1..=100).for_each(|job| queues.get().0.send(job).unwrap());
///     drop(queues); // the channels end, and with them the workers
///     workers.into_iter().map(|worker| worker.join().unwrap()).sum()
/// });
/// assert_eq!(sum, 5050);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NodeLocal<T> {
    /// The kernel's numbers of the nodes, ascending, as the values.
    nodes: Vec<u32>,
    values: Placed<T>,
}

impl<T> NodeLocal<T> {
    /// Makes a value for each node: of the runtime, in a goroutine; else of the machine, as far
    /// as they have CPUs. `make` is given the kernel's number of the node, and runs on the
    /// calling thread, for one node after the other.
    ///
    /// # Panics
    ///
    /// With `make`'s panic; the values made before are dropped. Aborts, as `Box` does, when there
    /// is no memory.
    pub fn new(mut make: impl FnMut(u32) -> T) -> NodeLocal<T> {
        let mut nodes = nodes_here();
        nodes.sort_unstable();
        let mut values = Placed::new();
        for &(node, memory) in &nodes {
            let one = std::iter::once_with(|| make(node));
            if values.push_group(memory, one).is_err() {
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<T>());
            }
        }
        NodeLocal {
            nodes: nodes.into_iter().map(|(node, _)| node).collect(),
            values,
        }
    }

    /// The value of the node that the caller runs on: the one of its P in a goroutine, else the
    /// one of the CPU. In a wait a goroutine may come to another node: then what it has borrowed
    /// stays valid, and another call gives what is nearest by then.
    ///
    /// Costs some nanoseconds in a goroutine, and on a machine with one node; a system call
    /// elsewhere.
    #[must_use]
    pub fn get(&self) -> &T {
        if self.nodes.len() == 1 {
            return &self.values[0];
        }
        let node = node_here();
        // A node that was not there, or not used, when this was made shares with the others.
        let position = self.nodes.binary_search(&node);
        &self.values[position.unwrap_or_else(|_| node as usize % self.nodes.len())]
    }

    /// The value of a node, by the kernel's number; `None` if it has none.
    #[must_use]
    pub fn on(&self, node: u32) -> Option<&T> {
        let position = self.nodes.binary_search(&node).ok()?;
        self.values.get(position)
    }

    /// All values with the kernel's numbers of their nodes, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &T)> {
        self.nodes.iter().copied().zip(&self.values)
    }

    /// As [`iter`](Self::iter), to change them.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (u32, &mut T)> {
        self.nodes.iter().copied().zip(self.values.iter_mut())
    }

    /// How many values there are: one for each node, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
}

impl<T: fmt::Debug> fmt::Debug for NodeLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T: Default> Default for NodeLocal<T> {
    fn default() -> NodeLocal<T> {
        NodeLocal::new(|_| T::default())
    }
}

/// The node that the caller runs on, by the kernel's number.
fn node_here() -> u32 {
    let p = current::m().and_then(|m| Some((m.sched(), m.last_p()?)));
    match p {
        Some((sched, p)) => sched.node_of(p).os_id,
        None => affinity::current_node(),
    }
}

/// The nodes, and where their memory shall come from.
fn nodes_here() -> Vec<(u32, Option<u32>)> {
    if let Some(m) = current::m() {
        let nodes = m.sched().nodes.iter();
        return nodes.map(|node| (node.os_id, node.memory)).collect();
    }
    let with_cpus = numa::nodes_that("has_cpu");
    if with_cpus.len() < 2 {
        return vec![(with_cpus.first().copied().unwrap_or(0), None)];
    }
    let with_memory = numa::nodes_that("has_memory");
    let memory = |node: u32| with_memory.contains(&node).then_some(node);
    with_cpus.into_iter().map(|n| (n, memory(n))).collect()
}
