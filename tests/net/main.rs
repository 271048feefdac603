//! Sockets.

#[path = "../util/both.rs"]
mod both;
#[path = "../util/filter.rs"]
mod filter;
#[path = "../util/lossy.rs"]
mod lossy;
#[path = "../util/random.rs"]
mod random;
#[path = "../util/mod.rs"]
mod util;

mod many_connections;
mod net;
mod net_accept_stream;
mod net_deadlines;
mod net_faults;
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
