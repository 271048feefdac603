//! The links between simulated hosts, while a run goes on.

use super::host::{Host, bubble};
use super::link::{Link, millionths};
use crate::bubble::net::dice::Dice;
use crate::bubble::net::incidents::Incident;
use crate::bubble::net::network::Network as Net;

/// The simulated network of the run: its links can be changed at any time.
///
/// # Panics
///
/// All methods panic outside of a simulation, and if a host belongs to another run.
///
/// # Blocking
///
/// No method blocks.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use windlass::io::{Read, Write};
/// use windlass::net::{TcpListener, TcpStream};
/// use windlass::sim::{self, Network};
/// use windlass::time::{Duration, Instant, sleep};
///
/// sim::check(PROMISE, || {
///     let server = sim::host("server", [10, 0, 0, 1], || {
///         let listener = TcpListener::bind("0.0.0.0:80").unwrap();
///         let (mut stream, _) = listener.accept().unwrap();
///         sleep(Duration::from_secs(1));
///         stream.write_all(b"x").unwrap();
///     });
///     sim::settle();
///     let start = Instant::now();
///     let mut stream = TcpStream::connect("server:80").unwrap();
///     Network::partition(server, sim::this_host());
///     let healer = windlass::spawn(|| {
///         sleep(Duration::from_secs(2));
///         Network::heal_all();
///     });
///     // TCP sends it again, each time after twice the pause: 0.2 s, 0.4 s, 0.8 s.
///     stream.read_exact(&mut [0]).unwrap();
///     assert_eq!(start.elapsed(), Duration::from_millis(1000 + 200 + 400 + 800));
///     healer.join().unwrap();
/// });
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Network;

#[track_caller]
fn net<T>(f: impl FnOnce(&mut Net, &dyn Dice) -> T) -> T {
    bubble("a function of sim::Network was called").net(f)
}

impl Network {
    /// Sets the properties of the link between two hosts, in both directions.
    #[track_caller]
    pub fn set_link(a: Host, b: Host, link: Link) {
        Network::set_link_one_way(a, b, link);
        Network::set_link_one_way(b, a, link);
    }

    /// Sets the properties of the link from one host to another. Those of the way back stay.
    #[track_caller]
    pub fn set_link_one_way(from: Host, to: Host, link: Link) {
        let (from, to) = (from.id(), to.id());
        net(|net, _| net.set_link(from, to, link.quality()));
    }

    /// Sets the properties of all links, also to hosts that are added later.
    #[track_caller]
    pub fn set_all_links(link: Link) {
        net(|net, _| net.set_all_links(link.quality()));
    }

    /// Cuts the link between two hosts: what is sent from now on, and what is on its way, is lost.
    /// TCP sends it again, after 200 ms, and then each time after twice the pause; a connection on
    /// which nothing gets through 16 times in a row (about a quarter of an hour) fails with
    /// `TimedOut`.
    #[track_caller]
    pub fn partition(a: Host, b: Host) {
        Network::partition_one_way(a, b);
        Network::partition_one_way(b, a);
    }

    /// Cuts the link from one host to another. The way back stays.
    #[track_caller]
    pub fn partition_one_way(from: Host, to: Host) {
        let (from, to) = (from.id(), to.id());
        net(|net, dice| net.set_cut(dice, from, to, true));
    }

    /// Ends all partitions between two hosts, also those that were drawn.
    #[track_caller]
    pub fn heal(a: Host, b: Host) {
        let (a, b) = (a.id(), b.id());
        net(|net, dice| {
            net.set_cut(dice, a, b, false);
            net.set_cut(dice, b, a, false);
        });
    }

    /// Ends all partitions.
    #[track_caller]
    pub fn heal_all() {
        net(|net, dice| net.heal_all(dice));
    }

    /// Resets all TCP connections between two hosts.
    #[track_caller]
    pub fn reset(a: Host, b: Host) {
        let (a, b) = (a.id(), b.id());
        net(|net, dice| {
            net.note(dice, Incident::Reset { a, b });
            net.reset_between(a, b);
        });
        wake();
    }

    /// Sets the probability that a look-up of a host's name fails.
    ///
    /// # Panics
    ///
    /// If it is not between 0 and 1.
    #[track_caller]
    pub fn fail_lookups(probability: f64) {
        let failures = millionths(probability);
        net(|net, _| net.set_lookup_failures(failures));
    }
}

/// Makes those runnable whose waits have ended.
fn wake() {
    if let Some(sim) =
        crate::sched::types::current::m().and_then(crate::sched::types::m::Carrier::simulation)
    {
        sim.wake_network();
    }
}
