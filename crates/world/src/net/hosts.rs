//! The hosts of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::address::{Id, Name};

/// The program of a host's first goroutine, run again after each restart.
pub type Main = Arc<dyn Fn() + Send + Sync>;

/// The name and the address of host 0, on which the main goroutine runs.
pub(crate) const MAIN_NAME: &str = "main";
pub(crate) const MAIN_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The first port that the system chooses, as on Linux.
const FIRST_PORT: u16 = 32_768;
const LAST_PORT: u16 = 60_999;

/// A simulated machine.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    /// The number of crashes. Goroutines that were spawned before the last one must end.
    pub(super) life: u32,
    pub(super) is_up: bool,
    pub(super) is_paused: bool,
    pub(super) n_restarts: u32,
    /// The time by which its clock is ahead of the run's.
    pub(super) skew_ns: i64,
    next_port: u16,
    /// The names of its Unix sockets. A path stays when its socket is closed, as a file does.
    pub(super) names: BTreeMap<Name, Id>,
    /// The program of its first goroutine; none on host 0.
    pub(super) main: Option<Main>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("Host");
        s.field("name", &self.name).field("ip", &self.ip);
        s.field("is_up", &self.is_up).finish_non_exhaustive()
    }
}

impl Host {
    pub(super) fn new(name: String, ip: IpAddr, main: Option<Main>) -> Host {
        Host {
            name,
            ip,
            life: 0,
            is_up: true,
            is_paused: false,
            n_restarts: 0,
            skew_ns: 0,
            next_port: FIRST_PORT,
            names: BTreeMap::new(),
            main,
        }
    }

    /// Whether packets to `ip` that it sends stay on the host.
    pub(super) fn owns(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || ip.is_unspecified() || ip == self.ip
    }

    /// The port after the one that was chosen last.
    pub(super) fn next_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port == LAST_PORT {
            FIRST_PORT
        } else {
            port + 1
        };
        port
    }

    /// How many ports the system chooses from.
    pub(super) const N_PORTS: u16 = LAST_PORT - FIRST_PORT + 1;

    /// The address from which a packet to `to` leaves; `None` if the host has no address of that
    /// family.
    pub(super) fn source_for(&self, to: SocketAddr) -> Option<IpAddr> {
        match to.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
            ip if ip.is_loopback() => Some(ip),
            ip if ip.is_ipv4() == self.ip.is_ipv4() => Some(self.ip),
            _ => None,
        }
    }
}
