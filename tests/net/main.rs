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

mod accept_stream;
mod deadlines;
mod error_queue;
mod faults;
mod graceful;
mod limits;
mod lookup;
mod lossy_networks;
mod many_connections;
mod multishot_poll;
mod nodes;
mod options;
mod recv_owned;
mod requests;
mod signals;
mod tcp;
mod udp;
mod udp_many;
mod unix;

#[cfg(feature = "sim")]
inside::files! {
    accept_stream
    deadlines
    faults
    graceful
    limits
    lookup
    many_connections
    multishot_poll
    options
    recv_owned
    requests
    tcp
    udp
    udp_many
    unix
}
