//! The monitor thread and its duties: it takes Ps from threads that are stuck, stops the world, changes the number of
//! Ps, follows the usable CPUs, helps starved nodes, finds stalls; and debugging from outside.

pub(crate) mod rebalance;
pub(crate) mod resize;
pub(crate) mod retake;
pub(crate) mod world;
pub(crate) mod freeze_stack;
pub(crate) mod p_record;
pub(crate) mod stall;
pub(crate) mod cpu_mask;
pub(crate) mod due_work;
pub(crate) mod stragglers;
pub(crate) mod ps;
pub(crate) mod scavenge;
pub(crate) mod page_out;
pub(crate) mod sysmon;
pub(crate) mod stack_overflow;
