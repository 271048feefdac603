//! One listener for each NUMA node, all on one port.
//!
//! A connection begins with a packet that some CPU handles: the one that the network card
//! interrupts, which then holds what there is of the connection so far. A group of listeners
//! that share a port (`SO_REUSEPORT`) may have a program that chooses among them, and this one
//! looks at nothing but that CPU. So the connection comes to the listener of the CPU's node, is
//! accepted by a goroutine that is bound there, and served by one that begins there.
//!
//! Turned down: `SO_INCOMING_CPU`, which each listener can have for one CPU, not for a node's; and
//! accepting anywhere and then sending the connection to its node, which is a wake-up across
//! the machine for each.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::tcp::{TcpListener, TcpStream};
use super::tcp_options::TcpOptions;
use crate::sched::spawn;
use crate::sys::socket::{FromCpu, choose_listener_by_cpu, may_accept_again};
use crate::task;
use windlass_topology::Topology;

/// One TCP listener for each NUMA node of a runtime, all on the same port. Made by
/// [`TcpOptions::listen_on_each_node`].
///
/// The kernel finds a listener of the group by its number in it: dropping one of several, or
/// shutting it down, gives its number to another, and connections then come to the wrong nodes.
/// End all of them together ([`shutdown`](NodeListeners::shutdown)).
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::sync::Arc;
/// use windlass::net::{TcpOptions, TcpStream};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listeners = Arc::new(TcpOptions::new().listen_on_each_node("127.0.0.1:0")?);
///     let addr = listeners.local_addr()?;
///     let server = windlass::spawn({
///         let listeners = Arc::clone(&listeners);
///         move || listeners.serve(|mut stream, _peer| {
///             let _ = stream.write_all(b"hello");
///         })
///     });
///     let mut answer = String::new();
///     TcpStream::connect(addr)?.read_to_string(&mut answer)?;
///     assert_eq!(answer, "hello");
///     listeners.shutdown()?;
///     server.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NodeListeners {
    /// By the kernel's numbers of the nodes, in the order of the runtime's.
    listeners: Vec<(u32, TcpListener)>,
    is_steered: bool,
}

impl TcpOptions {
    /// Makes one listener for each NUMA node of the runtime that has a P in use; they share a
    /// port. The kernel gives each connection to the listener of the node whose CPU handles its
    /// first packet, or of the nearest node that has one; [`NodeListeners::serve`] accepts it
    /// there. With one node this is one listener, as [`TcpOptions::listen`] makes it.
    ///
    /// Which CPU that is says the network card: with as many queues as CPUs, each of which
    /// interrupts a CPU of its own, connections spread over all nodes; with one queue all of them
    /// come to one node. On loopback it is the CPU of who connects.
    ///
    /// Where the kernel takes no program for the choice (`SO_ATTACH_REUSEPORT_CBPF`, forbidden by
    /// some filters), it spreads connections over the nodes by a hash of their addresses, as
    /// [`TcpOptions::listen_group`] does; [`NodeListeners::is_steered`] tells.
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpOptions::listen`]; `Unsupported` on a thread outside any runtime.
    pub fn listen_on_each_node(&self, addr: impl ToSocketAddrs) -> io::Result<NodeListeners> {
        let Some(machine) = spawn::machine() else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "listen_on_each_node was called on a thread outside any windlass runtime, which \
                 has no nodes: call it from a goroutine",
            ));
        };
        let nodes = spawn::live_nodes();
        if let [node] = nodes[..] {
            let listeners = vec![(node, self.listen(addr)?)];
            return Ok(NodeListeners {
                listeners,
                is_steered: true,
            });
        }
        // In the order in which they begin to listen the kernel counts them.
        let group = self.listen_group(addr, nodes.len())?;
        let ranges = ranges(&machine, &nodes);
        let is_steered = choose_listener_by_cpu(group[0].as_fd(), &ranges).is_ok();
        Ok(NodeListeners {
            listeners: nodes.into_iter().zip(group).collect(),
            is_steered,
        })
    }
}

/// Which CPUs belong to which of `nodes`, or are nearest to it, by its position.
fn ranges(machine: &Topology, nodes: &[u32]) -> Vec<FromCpu> {
    let all = machine.nodes();
    let at = |os_id: &u32| all.iter().position(|node| node.os_id == *os_id);
    let listener_of = |node: usize| {
        let far = |os_id: &u32| at(os_id).map_or(u32::MAX, |to| machine.distance(node, to));
        let own = nodes.iter().position(|&os_id| os_id == all[node].os_id);
        let nearest = || (0..nodes.len()).min_by_key(|&i| far(&nodes[i]));
        own.or_else(nearest).unwrap_or(0) as u32
    };
    let listeners: Vec<u32> = (0..all.len()).map(listener_of).collect();
    let mut cpus: Vec<_> = machine.pus().iter().map(|pu| (pu.cpu, pu.node)).collect();
    cpus.sort_unstable();
    let mut ranges = Vec::new();
    for (cpu, node) in cpus {
        let range = FromCpu {
            // The first range begins with the first CPU, whether it is in use or not.
            cpu: if ranges.is_empty() { 0 } else { cpu as u32 },
            listener: listeners[node],
        };
        let is_same = |last: &FromCpu| last.listener == range.listener;
        if !ranges.last().is_some_and(is_same) {
            ranges.push(range);
        }
    }
    ranges
}

impl NodeListeners {
    /// The address that all of them listen on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listeners[0].1.local_addr()
    }

    /// The listener of a node, by the kernel's number; `None` if it has none.
    #[must_use]
    pub fn on(&self, node: u32) -> Option<&TcpListener> {
        self.iter().find(|&(n, _)| n == node).map(|(_, l)| l)
    }

    /// All listeners with the kernel's numbers of their nodes, in the order of the runtime's
    /// nodes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &TcpListener)> {
        self.listeners.iter().map(|(node, l)| (*node, l))
    }

    /// How many there are: one for each node, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Whether a connection comes to the node whose CPU handles it. `false` if the kernel has
    /// refused to choose so, and spreads connections by a hash.
    #[must_use]
    pub fn is_steered(&self) -> bool {
        self.is_steered
    }

    /// Accepts connections, on each node by a goroutine that is bound to it, until the listeners
    /// are [shut down](NodeListeners::shutdown). Each connection is handed to `handle`, with the
    /// address of the peer, in a goroutine of its own, which begins on that node; where it waits
    /// and is woken it stays there by the rules of [`task::Builder::node`]. A panic in it ends that
    /// goroutine, and is printed.
    ///
    /// Connections that break before they are accepted are skipped. Those that were handed out may
    /// be in use still when this returns.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine.
    ///
    /// # Errors
    ///
    /// What ends a listener otherwise: `WouldBlock` by its deadline, or the kernel's, for a
    /// descriptor that is none any more. The others are then shut down. `InvalidInput` in another
    /// runtime than the one that they were made in, if that has other nodes.
    ///
    /// # Panics
    ///
    /// Off the runtime.
    #[track_caller]
    pub fn serve<F>(&self, handle: F) -> io::Result<()>
    where
        F: Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    {
        let handle = Arc::new(handle);
        task::scope(|s| {
            let mut acceptors = Vec::with_capacity(self.listeners.len());
            let mut outcome = Ok(());
            for (node, listener) in &self.listeners {
                let handle = Arc::clone(&handle);
                let accept = move || {
                    let ended = accept_until_ended(listener, &handle);
                    if ended.is_err() {
                        // What serves a part of the machine only is not to be left running.
                        let _ = self.shutdown();
                    }
                    ended
                };
                let name = format!("accept on node {node}");
                let bound = task::Builder::new().name(name).node(*node).bound(true);
                match bound.spawn_scoped(s, accept) {
                    Ok(acceptor) => acceptors.push(acceptor),
                    Err(e) => {
                        let _ = self.shutdown();
                        outcome = Err(e);
                        break;
                    }
                }
            }
            for acceptor in acceptors {
                // Nothing in it panics; at the end of the run it is cancelled, and so is this.
                if let Ok(ended) = acceptor.join() {
                    outcome = outcome.and(ended);
                }
            }
            outcome
        })
    }

    /// Ends listening on all nodes: whoever waits in an accept gets `InvalidInput`, `serve`
    /// returns, and connections that nobody has accepted are refused.
    ///
    /// # Errors
    ///
    /// The kernel's; `NotConnected` if that was done before. The others are shut down
    /// nevertheless.
    pub fn shutdown(&self) -> io::Result<()> {
        let ends = self.listeners.iter().map(|(_, l)| l.shutdown());
        ends.fold(Ok(()), io::Result::and)
    }
}

/// `Ok` when the listener was shut down.
fn accept_until_ended<F>(listener: &TcpListener, handle: &Arc<F>) -> io::Result<()>
where
    F: Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
{
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let handle = Arc::clone(handle);
                drop(task::spawn(move || handle(stream, peer)));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Ok(()),
            Err(e) if may_accept_again(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

impl IntoIterator for NodeListeners {
    type Item = (u32, TcpListener);
    type IntoIter = std::vec::IntoIter<(u32, TcpListener)>;

    /// The listeners themselves, to be accepted from in another way than
    /// [`serve`](NodeListeners::serve) does.
    fn into_iter(self) -> Self::IntoIter {
        self.listeners.into_iter()
    }
}

impl fmt::Debug for NodeListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn from(cpu: u32, listener: u32) -> FromCpu {
        FromCpu { cpu, listener }
    }

    #[test]
    fn cpus_belong_to_the_listener_of_their_node_or_the_nearest() {
        let machine = Topology::synthetic("pack:4 [numa] core:2 pu:1").unwrap();
        let all = ranges(&machine, &[0, 1, 2, 3]);
        assert_eq!(all, [from(0, 0), from(2, 1), from(4, 2), from(6, 3)]);
        // The order is that of the listeners.
        assert_eq!(ranges(&machine, &[3, 2])[2..], [from(6, 0)]);
        // Without distances all others are equally near.
        assert_eq!(ranges(&machine, &[1, 2])[0], from(0, 0));
        assert_eq!(ranges(&machine, &[2]), [from(0, 0)]);
    }
}
