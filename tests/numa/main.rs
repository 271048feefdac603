//! Several NUMA nodes, on machines that are made up.

#[path = "../util/mod.rs"]
mod util;

mod node_local;
mod numa;
mod topology;
