//! Simulated hosts: machines with an address and a name, which crash and restart, stop and go on.

use std::fmt;
use std::net::IpAddr;
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use super::link::nanoseconds;
use crate::bubble::net::hosts::Main;
use crate::bubble::net::incidents::Incident;
use crate::bubble::net::network::Network as Net;
use crate::bubble::{self, Bubble};
use crate::fs::memory::settings::Disk;
use crate::fs::memory::sim_disk;
use crate::loom::native::Arc;
use crate::sched::types::m::M;
use crate::sched::types::simulation::Simulation;
use crate::sched::wait::handoff::Section;
use crate::sched::wait::hosts;
use crate::sched::wait::park;
use crate::sched::wait::points;

/// The calling thread's bubble.
///
/// # Panics
///
/// Outside of a simulation.
#[track_caller]
pub(super) fn bubble(what: &str) -> Rc<Bubble> {
    match bubble::current() {
        Some(bubble) => bubble,
        None => {
            panic!("windlass: {what} outside of a simulation: call it in the closure of sim::check")
        }
    }
}

/// Adds a host to the simulated network, and starts `main` as its first goroutine.
///
/// A host is a group of goroutines: all that `main` spawns, and those that they spawn. Its sockets
/// have its address, and other hosts connect to it by the address or the name. It has its own
/// loopback interface, its own ports, and its own names of Unix sockets. Its goroutines share no
/// memory with those of other hosts, except what the program hands them: a test usually hands them
/// what it looks at in the end.
///
/// The main goroutine of the run is on a host of its own, with the name `main` and the address
/// 192.0.2.1.
///
/// The host stays when `main` returns. It may be called again, after a crash: see
/// [`Host::restart`]. When the main goroutine of the run has ended, and the others have ended or are
/// about to, `main` is dropped.
///
/// # Blocking
///
/// Never. `main` runs when the schedule chooses it.
///
/// # Panics
///
/// Outside of a simulation; if another host has the name or the address; if the name is empty, has
/// a colon or is that of an address; if the address is not one of a single machine.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use windlass::io::{Read, Write};
/// use windlass::net::{TcpListener, TcpStream};
/// use windlass::sim;
///
/// sim::check(PROMISE, || {
///     let _server = sim::host("server", [10, 0, 0, 1], || {
///         let listener = TcpListener::bind("0.0.0.0:80").unwrap();
///         for stream in listener.incoming() {
///             stream.unwrap().write_all(b"hello").unwrap();
///         }
///     });
///     sim::settle(); // it listens
///     let mut text = String::new();
///     TcpStream::connect("server:80").unwrap().read_to_string(&mut text).unwrap();
///     assert_eq!(text, "hello");
/// });
/// ```
#[track_caller]
pub fn host<I, F>(name: &str, ip: I, main: F) -> Host
where
    I: Into<IpAddr>,
    F: Fn() + Send + Sync + 'static,
{
    let site = Location::caller();
    let bubble = bubble("sim::host was called");
    let serial = bubble.serial();
    let main: Main = Arc::new(main);
    // If the network refuses the host, the closure is dropped out here: it may own sockets.
    let added = bubble.net(|net, _| net.add_host(name.to_owned(), ip.into(), Arc::clone(&main)));
    let id = match added {
        Ok(id) => id,
        Err(why) => panic!("windlass: {why}"),
    };
    in_scheduler(|m, sim| hosts::start(m, sim, id, site));
    Host { id, serial }
}

/// The simulated host on which the calling goroutine runs.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// windlass::sim::check(PROMISE, || assert_eq!(windlass::sim::this_host().name(), "main"));
/// ```
#[track_caller]
#[must_use]
pub fn this_host() -> Host {
    let bubble = bubble("sim::this_host was called");
    Host {
        id: bubble.current_host(),
        serial: bubble.serial(),
    }
}

/// Calls `f` inside the scheduler. While the caller unwinds, and in the tear-down of a run, as
/// well.
fn in_scheduler<T>(f: impl FnOnce(&M, &Simulation) -> T) -> T {
    let section = Section::enter().expect("a goroutine of a simulation has its P");
    let m = section.m();
    let sim = m.simulation().expect("the M carries out a simulation");
    f(m, sim)
}

/// A simulated host. Copies name the same one.
///
/// # Panics
///
/// All methods panic outside of the run that the host belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host {
    id: u32,
    serial: u64,
}

impl Host {
    #[track_caller]
    fn net<T>(self, f: impl FnOnce(&mut Net, u32) -> T) -> T {
        self.check().net(|net, _| f(net, self.id))
    }

    #[track_caller]
    fn check(self) -> Rc<Bubble> {
        let bubble = bubble("a method of sim::Host was called");
        assert!(
            bubble.serial() == self.serial,
            "windlass: a simulated host was used in another run: make it in the closure of the run"
        );
        bubble
    }

    /// Its number, for what the network keeps by hosts.
    #[track_caller]
    pub(super) fn id(self) -> u32 {
        self.check();
        self.id
    }

    /// The main goroutine's host does none of what the others may.
    #[track_caller]
    fn check_not_main(self, what: &str) {
        self.check();
        assert!(
            self.id != 0,
            "windlass: the host of the main goroutine cannot {what}: run the code under test on a \
             host of its own"
        );
    }

    /// The name.
    #[track_caller]
    #[must_use]
    pub fn name(self) -> String {
        self.net(|net, id| net.name_of(id))
    }

    /// The address.
    #[track_caller]
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.net(|net, id| net.ip_of(id))
    }

    /// Whether it has its power: it has not crashed, or was restarted.
    #[track_caller]
    #[must_use]
    pub fn is_up(self) -> bool {
        self.net(|net, id| net.is_up(id))
    }

    /// How often it was restarted.
    #[track_caller]
    #[must_use]
    pub fn restarts(self) -> u32 {
        self.net(|net, id| net.n_restarts(id))
    }

    /// Takes the power from the host, as if someone had pulled the plug.
    ///
    /// Its sockets are gone at once, and nobody is told: who waits for bytes from it waits on.
    /// After a restart the host answers what comes for its old connections with a reset. Its
    /// goroutines end: they unwind at their next call into windlass, or where they wait.
    /// Destructors run, for the memory has to be freed, but sockets fail in them. What the
    /// goroutines do to memory or channels that they share with other hosts does happen.
    ///
    /// Its disk loses its power as well: see [`Host::crash_disk`].
    ///
    /// Does nothing if the host is down. If the caller runs on the host, the call unwinds.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until those of the host have ended, in no virtual time. A caller that
    /// unwinds does not wait.
    ///
    /// # Panics
    ///
    /// On the host of the main goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::io::Read;
    /// use windlass::net::{TcpListener, TcpStream};
    /// use windlass::sim;
    /// use windlass::time::{Duration, sleep};
    ///
    /// sim::check(PROMISE, || {
    ///     let server = sim::host("server", [10, 0, 0, 1], || {
    ///         let listener = TcpListener::bind("server:80").unwrap();
    ///         let _stream = listener.accept().unwrap();
    ///         sleep(Duration::from_secs(3600));
    ///     });
    ///     sim::settle();
    ///     let mut stream = TcpStream::connect("server:80").unwrap();
    ///     sim::settle();
    ///     server.crash();
    ///     // Nobody says that it is gone.
    ///     stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ///     assert!(stream.read(&mut [0]).is_err());
    /// });
    /// ```
    #[track_caller]
    pub fn crash(self) {
        self.check_not_main("crash");
        in_scheduler(|m, sim| hosts::crash(m, sim, self.id));
        self.await_end();
    }

    /// Waits until the goroutines have ended that a crash has to end.
    fn await_end(self) {
        if self.check().current_host() != self.id {
            while in_scheduler(|m, sim| hosts::is_any_lost(m, sim, self.id)) {
                if std::thread::panicking() || park::yield_now().is_err() {
                    return;
                }
            }
        }
        // The caller may be one of them. An error means that it unwinds already.
        let _ = points::cancel_point();
    }

    /// Gives a host that has crashed its power back: what it runs is called again, in a new
    /// goroutine.
    ///
    /// Does nothing if the host is up.
    ///
    /// # Blocking
    ///
    /// As [`Host::crash`].
    ///
    /// # Panics
    ///
    /// On the host of the main goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim;
    /// use windlass::sync::Arc;
    /// use windlass::sync::atomic::{AtomicU32, Ordering};
    ///
    /// sim::check(PROMISE, || {
    ///     let n = Arc::new(AtomicU32::new(0));
    ///     let starts = Arc::clone(&n);
    ///     let host = sim::host("a", [10, 0, 0, 1], move || {
    ///         starts.fetch_add(1, Ordering::Relaxed);
    ///         windlass::task::park();
    ///     });
    ///     sim::settle();
    ///     host.crash();
    ///     host.restart();
    ///     sim::settle();
    ///     assert_eq!((n.load(Ordering::Relaxed), host.restarts()), (2, 1));
    /// });
    /// ```
    #[track_caller]
    pub fn restart(self) {
        self.check_not_main("restart");
        self.await_end();
        in_scheduler(|m, sim| hosts::restart(m, sim, self.id));
    }

    /// Stops all goroutines of the host, as SIGSTOP stops a process. Its sockets stay, and take
    /// what comes. Time passes for it: a timer that comes due meanwhile is seen after
    /// [`Host::resume`].
    ///
    /// # Blocking
    ///
    /// Never, unless the caller runs on the host: then it stops as well.
    ///
    /// # Panics
    ///
    /// On the host of the main goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim;
    /// use windlass::time::{Duration, Instant, sleep};
    ///
    /// sim::check(PROMISE, || {
    ///     let host = sim::host("a", [10, 0, 0, 1], || {
    ///         let start = Instant::now();
    ///         sleep(Duration::from_secs(1));
    ///         assert_eq!(start.elapsed(), Duration::from_secs(60));
    ///     });
    ///     sim::settle();
    ///     host.pause();
    ///     sleep(Duration::from_secs(60));
    ///     host.resume();
    ///     sim::settle();
    /// });
    /// ```
    #[track_caller]
    pub fn pause(self) {
        self.check_not_main("be paused");
        in_scheduler(|_, sim| {
            sim.bubble.net(|net, dice| {
                let is_up = net.is_up(self.id);
                net.set_paused(dice, self.id, is_up);
            });
        });
        // The caller may be one of those that stop.
        points::switch_point();
    }

    /// Lets a host go on that [`Host::pause`] has stopped.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// On the host of the main goroutine.
    #[track_caller]
    pub fn resume(self) {
        self.check_not_main("be paused");
        in_scheduler(|_, sim| hosts::resume(sim, self.id));
    }

    /// Changes the settings of the host's disk, from now on.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use std::io::ErrorKind;
    /// use windlass::{fs, sim};
    ///
    /// sim::check(PROMISE, || {
    ///     fs::write("/full", [1; 4096]).unwrap();
    ///     let host = sim::this_host();
    ///     host.set_disk(host.disk().capacity(0)); // from now on there is no room
    ///     assert_eq!(fs::write("/more", [1]).unwrap_err().kind(), ErrorKind::StorageFull);
    ///     assert!(fs::read("/full").is_ok());
    /// });
    /// ```
    #[track_caller]
    pub fn set_disk(self, settings: Disk) {
        self.check();
        sim_disk::set(self.id, settings);
    }

    /// The settings of the host's disk, without what drawn faults change for a while.
    ///
    /// # Panics
    ///
    /// Panics outside the simulation that the host belongs to.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`Host::set_disk`].
    #[track_caller]
    pub fn disk(self) -> Disk {
        self.check();
        sim_disk::settings(self.id).expect("the caller is in the run of the host")
    }

    /// Cuts the power of the host's disk alone, and turns it on again. [`Host::crash`] does the
    /// same to the disk of the host that crashes.
    ///
    /// All that was synced is there afterwards. The rest is lost, kept, or in part both, by the
    /// seed: a new name needs a sync of its directory, opened with
    /// [`File::open`](crate::fs::File::open). Open files are dead: each call on one
    /// fails with EIO. Locks are gone.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use std::io::Write;
    /// use windlass::fs::{self, File};
    /// use windlass::sim;
    ///
    /// sim::check(PROMISE, || {
    ///     let mut file = File::create("/log").unwrap();
    ///     file.write_all(b"begin ").unwrap();
    ///     file.sync_all().unwrap(); // the bytes
    ///     File::open("/").unwrap().sync_all().unwrap(); // the name
    ///     file.write_all(b"end").unwrap();
    ///     sim::this_host().crash_disk();
    ///     let left = fs::read("/log").unwrap();
    ///     assert!(left.starts_with(b"begin "));
    ///     assert!(left.len() <= 9);
    ///     file.write_all(b"more").unwrap_err();
    /// });
    /// ```
    #[track_caller]
    pub fn crash_disk(self) {
        let bubble = self.check();
        points::switch_point();
        bubble.net(|net, dice| net.note(dice, Incident::DiskPowerLoss(self.id)));
        sim_disk::crash(self.id);
    }

    /// Sets the host's [`SystemTime`](crate::time::SystemTime) ahead of the run's by `time`. A
    /// crash does not change it. [`Instant`](crate::time::Instant) is the same on all hosts.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim;
    /// use windlass::time::{Duration, SystemTime};
    ///
    /// sim::check(PROMISE, || {
    ///     let before = SystemTime::now();
    ///     sim::this_host().set_clock_ahead(Duration::from_secs(2));
    ///     assert_eq!(before.elapsed().unwrap(), Duration::from_secs(2));
    /// });
    /// ```
    #[track_caller]
    pub fn set_clock_ahead(self, time: Duration) {
        let ns = i64::try_from(nanoseconds(time)).unwrap_or(i64::MAX);
        self.net(|net, id| net.set_skew_ns(id, ns));
    }

    /// As [`Host::set_clock_ahead`], behind the run's time.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim;
    /// use windlass::time::{Duration, SystemTime};
    ///
    /// sim::check(PROMISE, || {
    ///     let before = SystemTime::now();
    ///     sim::this_host().set_clock_behind(Duration::from_secs(2));
    ///     assert_eq!(before.duration_since(SystemTime::now()).unwrap(), Duration::from_secs(2));
    /// });
    /// ```
    #[track_caller]
    pub fn set_clock_behind(self, time: Duration) {
        let ns = i64::try_from(nanoseconds(time)).unwrap_or(i64::MAX);
        self.net(|net, id| net.set_skew_ns(id, -ns));
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bubble = bubble::current().filter(|bubble| bubble.serial() == self.serial);
        let name = bubble.map(|bubble| bubble.net(|net, _| net.name_of(self.id)));
        f.debug_struct("Host")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}
