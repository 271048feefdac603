//! One listener for each NUMA node, all on one port.
//!
//! A connection begins with a packet. The network card interrupts one CPU for it, and that CPU's
//! caches then hold the kernel's state of the connection. Listeners that share a port
//! (`SO_REUSEPORT`) form a group, and a BPF program may choose the listener within the group. The
//! program used here looks at nothing but the CPU: it gives the connection to the listener of that
//! CPU's node. A goroutine bound to the node accepts it, and the goroutine that serves it starts
//! there.
//!
//! Alternatives that were rejected:
//!
//! - `SO_INCOMING_CPU`: a listener can have it for one CPU only, not for a node's CPUs.
//! - Accepting on any node and sending the connection to its node: each connection then costs a
//!   wake-up across the machine.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::tcp::{TcpListener, TcpStream};
use super::tcp_options::TcpOptions;
use crate::sched::wait::spawn;
use crate::sys::socket::{FromCpu, choose_listener_by_cpu, may_accept_again};
use crate::task;
use windlass_topology::Topology;

/// One TCP listener for each NUMA node of a runtime, all on the same port. Made by
/// [`TcpOptions::listen_on_each_node`].
///
/// The kernel addresses a listener by its index in the group. Dropping or shutting down one of
/// several listeners gives its index to another one, and connections then arrive on the wrong
/// nodes. So end all of them together ([`shutdown`](NodeListeners::shutdown)).
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
    /// The kernel's number of each node, and its listener, in the runtime's order of nodes.
    listeners: Vec<(u32, TcpListener)>,
    is_steered: bool,
}

impl TcpOptions {
    /// Makes one listener for each NUMA node of the runtime that has a P in use. They share a port.
    ///
    /// The kernel gives each connection to the listener of the node whose CPU handles its first
    /// packet, or of the nearest node that has a listener. [`NodeListeners::serve`] accepts it
    /// there. With one node the result is one listener, as [`TcpOptions::listen`] makes it.
    ///
    /// The network card decides which CPU handles a packet. If it has as many queues as CPUs, and
    /// each queue interrupts its own CPU, connections spread over all nodes. If it has one queue,
    /// all connections arrive on one node. On loopback it is the CPU of the connecting thread.
    ///
    /// If the kernel refuses the program that makes the choice (`SO_ATTACH_REUSEPORT_CBPF`, which
    /// some seccomp filters forbid), connections spread over the nodes by a hash of their
    /// addresses, as with [`TcpOptions::listen_group`]; [`NodeListeners::is_steered`] reports that.
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpOptions::listen`]; `Unsupported` on a thread outside any runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listeners = TcpOptions::new().backlog(64).listen_on_each_node("127.0.0.1:0")?;
    ///     assert!(listeners.len() >= 1);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
        // The kernel numbers the listeners in the order in which they begin to listen.
        let group = self.listen_group(addr, nodes.len())?;
        let ranges = ranges(&machine, &nodes);
        let is_steered = choose_listener_by_cpu(group[0].as_fd(), &ranges).is_ok();
        Ok(NodeListeners {
            listeners: nodes.into_iter().zip(group).collect(),
            is_steered,
        })
    }
}

/// Maps ranges of CPUs to listeners. A CPU maps to the listener of its own node, or else to that
/// of the nearest of `nodes`; a listener is given by its position in `nodes`.
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
            // The first range begins with CPU 0, even if CPU 0 is not in use.
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
    /// Returns the address that all listeners are bound to.
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    ///
    /// # Examples
    ///
    /// All methods that describe the listeners:
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listeners = TcpOptions::new().listen_on_each_node("127.0.0.1:0")?;
    ///     let addr = listeners.local_addr()?;
    ///     println!("{} listeners, steered: {}", listeners.len(), listeners.is_steered());
    ///     for (node, listener) in listeners.iter() {
    ///         assert_eq!(listener.local_addr()?, addr);
    ///         assert!(listeners.on(node).is_some());
    ///     }
    ///     assert!(listeners.on(1_000_000).is_none());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listeners[0].1.local_addr()
    }

    /// Returns the listener of a node, given by the kernel's number of the node. `None` if the node
    /// has no listener. For an example see [`NodeListeners::local_addr`].
    #[must_use]
    pub fn on(&self, node: u32) -> Option<&TcpListener> {
        self.iter().find(|&(n, _)| n == node).map(|(_, l)| l)
    }

    /// Returns an iterator over all listeners, each with the kernel's number of its node, in the
    /// runtime's order of nodes. For an example see [`NodeListeners::local_addr`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &TcpListener)> {
        self.listeners.iter().map(|(node, l)| (*node, l))
    }

    /// Returns the number of listeners: one for each node, at least one. For an example see
    /// [`NodeListeners::local_addr`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Returns whether a connection arrives on the node whose CPU handles its first packet.
    /// `false` if the kernel refused the program for it, and spreads connections by a hash. For an
    /// example see [`NodeListeners::local_addr`].
    #[must_use]
    pub fn is_steered(&self) -> bool {
        self.is_steered
    }

    /// Accepts connections until the listeners are [shut down](NodeListeners::shutdown), on each
    /// node by a goroutine that is bound to it.
    ///
    /// `handle` is called for each connection, with the peer's address, in a new goroutine that
    /// starts on that node. After a wait the goroutine stays there by the rules of
    /// [`task::Builder::node`]. A panic in `handle` ends that goroutine, and is printed.
    ///
    /// Connections that break before they are accepted are skipped. Goroutines that run `handle`
    /// may still be running when `serve` returns.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the listeners are shut down.
    ///
    /// # Errors
    ///
    /// Errors that end a listener otherwise: `WouldBlock` at its deadline, or those of `accept(2)`
    /// if the descriptor is not valid any more. The other listeners are then shut down.
    /// `InvalidInput` if it is called in a runtime other than the one that made the listeners, and
    /// that runtime lacks one of the nodes.
    ///
    /// # Panics
    ///
    /// On a thread outside the runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::sync::Arc;
    /// use windlass::net::{TcpOptions, TcpStream};
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listeners = Arc::new(TcpOptions::new().listen_on_each_node("127.0.0.1:0")?);
    ///     let server = windlass::spawn({
    ///         let listeners = Arc::clone(&listeners);
    ///         move || listeners.serve(|mut stream, peer| {
    ///             let _ = write!(stream, "hello {peer}");
    ///         })
    ///     });
    ///     let mut client = TcpStream::connect(listeners.local_addr()?)?;
    ///     let mut answer = String::new();
    ///     client.read_to_string(&mut answer)?;
    ///     assert_eq!(answer, format!("hello {}", client.local_addr()?));
    ///     listeners.shutdown()?;
    ///     server.join().unwrap()
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
                        // Listeners on a part of the nodes must not go on alone.
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
                // An acceptor does not panic. At the end of the run it is cancelled, and so is
                // this goroutine.
                if let Ok(ended) = acceptor.join() {
                    outcome = outcome.and(ended);
                }
            }
            outcome
        })
    }

    /// Ends listening on all nodes. Calls that wait in `accept` fail with `InvalidInput`, `serve`
    /// returns, and connections that are not accepted yet are refused.
    ///
    /// # Errors
    ///
    /// The errors of `shutdown(2)`; `NotConnected` if the listeners are shut down already. After an
    /// error the other listeners are shut down as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use windlass::net::TcpOptions;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listeners = TcpOptions::new().listen_on_each_node("127.0.0.1:0")?;
    ///     listeners.shutdown()?;
    ///     for (_, listener) in listeners {
    ///         let error = listener.accept().unwrap_err();
    ///         assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    ///     }
    ///     Ok::<(), io::Error>(())
    /// })?;
    /// # Ok::<(), io::Error>(())
    /// ```
    pub fn shutdown(&self) -> io::Result<()> {
        let ends = self.listeners.iter().map(|(_, l)| l.shutdown());
        ends.fold(Ok(()), io::Result::and)
    }
}

/// Accepts and spawns until the listener is shut down, which is `Ok`.
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

    /// Returns the listeners themselves, for a server that accepts in another way than
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
        // Without distances all other nodes are equally near.
        assert_eq!(ranges(&machine, &[1, 2])[0], from(0, 0));
        assert_eq!(ranges(&machine, &[2]), [from(0, 0)]);
    }
}
