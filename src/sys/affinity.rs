//! Which CPUs a thread may run on.
#![allow(unsafe_code)]

use core_affinity::CoreId;

/// A thread's CPU mask, to give back to a thread that windlass borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::cpu_set_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask(..)")
    }
}

/// Reads the calling thread's mask; `None` on machines with more CPUs than
/// `cpu_set_t` holds (1024), whose threads are then left where they were pinned.
pub(crate) fn current() -> Option<Mask> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid place of the size given; 0 means the calling thread.
    let r = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    (r == 0).then_some(Mask(set))
}

/// Sets the calling thread's mask.
pub(crate) fn restore(mask: &Mask) {
    // SAFETY: the set is valid and of the size given. Failure (the cpuset shrank meanwhile) leaves
    // the thread pinned, which is harmless.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &mask.0) };
}

/// Pins the calling thread to one CPU; `false` if the kernel refuses (the CPU
/// went offline or left the cpuset), in which case it runs where it may.
pub(crate) fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: cpu })
}

/// The NUMA node (by the kernel's number) on which the caller runs now.
pub(crate) fn current_node() -> u32 {
    let mut cpu = 0u32;
    let mut node = 0u32;
    // SAFETY: both places are valid; the third argument is unused since Linux 2.6.24.
    unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            &raw mut cpu,
            &raw mut node,
            std::ptr::null_mut::<libc::c_void>(),
        );
    }
    node
}
