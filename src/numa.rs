//! Per-node data for programs.
//!
//! The runtime allocates its own data on the NUMA node that uses it (docs/NUMA.md). Data that a
//! program shares between all its goroutines, such as counters, queues and caches, is on the node
//! that touched it first. Every other node accesses it over the interconnect. [`NodeLocal`] stores
//! one value for each node instead.

use std::fmt;

use windlass_ground::placed::Placed;

use crate::sched::types::current;
use crate::sys::{affinity, numa};

/// One value for each NUMA node, on pages of that node.
///
/// Goroutines borrow the value of their node with [`get`](Self::get). Every value is accessible
/// from every node, so `T` must be `Sync` to be shared. A goroutine that moves to another node may
/// continue to use the value of the first node: this is slower, but correct.
///
/// Each value takes whole pages (at least 4 KiB), so use a `NodeLocal` for few, frequently used
/// objects. Only `T` itself is placed on the node. Memory that `T` owns, such as the buffer of a
/// `Vec`, comes from the global allocator; fixed arrays and atomics inside `T` are on the node.
///
/// On a machine with one node, or on a kernel without NUMA, there is one value.
///
/// # Examples
///
/// A counter without cache-line transfers between nodes:
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
/// A channel for each node: producers send to the channel of their node, so that jobs stay on it.
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
///     drop(queues); // disconnects the channels, which ends the workers
///     workers.into_iter().map(|worker| worker.join().unwrap()).sum()
/// });
/// assert_eq!(sum, 5050);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NodeLocal<T> {
    /// The kernel's node numbers, ascending, in the order of `values`.
    nodes: Vec<u32>,
    values: Placed<T>,
}

impl<T> NodeLocal<T> {
    /// Creates one value for each node.
    ///
    /// In a goroutine, these are the nodes of the runtime. On a plain thread, these are the nodes
    /// of the machine that have CPUs. `make` is called with the kernel's node number, on the calling
    /// thread, for one node after the other.
    ///
    /// # Blocking
    ///
    /// As `make` does.
    ///
    /// # Panics
    ///
    /// With `make`'s panic; the values created before are dropped. Aborts, as `Box` does, if memory
    /// allocation fails.
    ///
    /// # Examples
    ///
    /// See [`NodeLocal`].
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

    /// Returns the value of the node that the caller runs on.
    ///
    /// In a goroutine, this is the node of its P; on a plain thread, the node of the CPU. A
    /// goroutine may move to another node while it waits. Its borrowed value stays valid, and a new
    /// call returns the value of the new node.
    ///
    /// Takes some nanoseconds in a goroutine, and on a machine with one node. On other threads it
    /// makes a system call.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`NodeLocal`].
    #[must_use]
    pub fn get(&self) -> &T {
        if self.nodes.len() == 1 {
            return &self.values[0];
        }
        let node = node_here();
        // A node that was offline or unused at creation shares the value of another node.
        let position = self.nodes.binary_search(&node);
        &self.values[position.unwrap_or_else(|_| node as usize % self.nodes.len())]
    }

    /// Returns the value of a node, by the kernel's node number, or `None` if the node has none.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::numa::NodeLocal;
    ///
    /// let names = NodeLocal::new(|node| format!("node {node}"));
    /// for (node, name) in names.iter() {
    ///     assert_eq!(names.on(node), Some(name));
    /// }
    /// assert!(names.on(u32::MAX).is_none());
    /// assert_eq!(names.iter().len(), names.len());
    /// ```
    #[must_use]
    pub fn on(&self, node: u32) -> Option<&T> {
        let position = self.nodes.binary_search(&node).ok()?;
        self.values.get(position)
    }

    /// Returns all values with the kernel's numbers of their nodes, ascending by number.
    ///
    /// # Examples
    ///
    /// See [`NodeLocal::on`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &T)> {
        self.nodes.iter().copied().zip(&self.values)
    }

    /// Returns all values as [`iter`](Self::iter), by mutable reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::numa::NodeLocal;
    ///
    /// let mut hits = NodeLocal::new(|_node| 7);
    /// hits.iter_mut().for_each(|(_node, n)| *n = 0);
    /// assert_eq!(*hits.get(), 0);
    /// ```
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (u32, &mut T)> {
        self.nodes.iter().copied().zip(self.values.iter_mut())
    }

    /// Returns the number of values: one for each node, at least one.
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

/// Returns the kernel's number of the node that the caller runs on.
fn node_here() -> u32 {
    let p = current::m().and_then(|m| Some((m.sched(), m.last_p()?)));
    match p {
        Some((sched, p)) => sched.node_of(p).os_id,
        None => affinity::current_node(),
    }
}

/// Returns the kernel's numbers of the nodes to use, each with the number of the node from which its memory comes.
/// `None` leaves that to the kernel.
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
