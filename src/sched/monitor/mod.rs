//! The monitor thread and what it serves: stopping the world, the number of Ps, changes of CPUs,
//! starved nodes, stalls; and debugging from outside.

pub(crate) mod rebalance;
pub(crate) mod resize;
pub(crate) mod retake;
pub(crate) mod world;
pub(crate) mod freeze_stack;
pub(crate) mod stall;
pub(crate) mod cpu_mask;
pub(crate) mod due_work;
pub(crate) mod scavenge;
pub(crate) mod sysmon;
pub(crate) mod stack_overflow;
