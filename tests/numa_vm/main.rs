//! Facts that only a kernel of several NUMA nodes can show: scripts/numa-vm.sh.

#[path = "../util/load.rs"]
mod load;
#[path = "../util/mod.rs"]
mod util;

mod cpus;
mod nodes;
