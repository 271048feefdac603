//! Sockets.

#[path = "../util/both.rs"]
mod both;
#[path = "../util/filter.rs"]
mod filter;
#[path = "../util/lossy.rs"]
mod lossy;
#[path = "../util/random.rs"]
mod random;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod many_connections;
mod net;
mod net_accept_stream;
mod net_deadlines;
mod net_error_queue;
mod net_faults;
mod net_graceful;
mod net_limits;
mod net_lookup;
mod net_lossy;
mod net_nodes;
mod net_options;
mod net_recv_owned;
mod net_signals;
mod net_udp;
mod net_unix;
mod net_watch;

/// Each file's tests, once more in simulations.
#[cfg(feature = "sim")]
mod simulated {
    #[test]
    fn net() {
        crate::inside::run(&crate::net::INSIDE, include_str!("net.rs"));
    }
    #[test]
    fn net_deadlines() {
        crate::inside::run(
            &crate::net_deadlines::INSIDE,
            include_str!("net_deadlines.rs"),
        );
    }
    #[test]
    fn net_udp() {
        crate::inside::run(&crate::net_udp::INSIDE, include_str!("net_udp.rs"));
    }
    #[test]
    fn net_graceful() {
        crate::inside::run(
            &crate::net_graceful::INSIDE,
            include_str!("net_graceful.rs"),
        );
    }
    #[test]
    fn net_unix() {
        crate::inside::run(&crate::net_unix::INSIDE, include_str!("net_unix.rs"));
    }
    #[test]
    fn net_options() {
        crate::inside::run(&crate::net_options::INSIDE, include_str!("net_options.rs"));
    }
    #[test]
    fn net_faults() {
        crate::inside::run(&crate::net_faults::INSIDE, include_str!("net_faults.rs"));
    }
    #[test]
    fn net_limits() {
        crate::inside::run(&crate::net_limits::INSIDE, include_str!("net_limits.rs"));
    }
    #[test]
    fn net_lookup() {
        crate::inside::run(&crate::net_lookup::INSIDE, include_str!("net_lookup.rs"));
    }
    #[test]
    fn net_recv_owned() {
        crate::inside::run(
            &crate::net_recv_owned::INSIDE,
            include_str!("net_recv_owned.rs"),
        );
    }
    #[test]
    fn net_accept_stream() {
        crate::inside::run(
            &crate::net_accept_stream::INSIDE,
            include_str!("net_accept_stream.rs"),
        );
    }
    #[test]
    fn net_watch() {
        crate::inside::run(&crate::net_watch::INSIDE, include_str!("net_watch.rs"));
    }
    #[test]
    fn many_connections() {
        crate::inside::run(
            &crate::many_connections::INSIDE,
            include_str!("many_connections.rs"),
        );
    }
}
