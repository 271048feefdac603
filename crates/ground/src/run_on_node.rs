//! Running work on a NUMA node: for memory that the kernel allocates where its caller runs, such as
//! a ring's, and for memory placed by first touch.

use windlass_sys::sched::on_own_thread;
use windlass_sys::{affinity, numa};

/// Runs `f` on a thread of its own that is bound to `cpu`, if given, and allocates memory of the
/// node `memory`. Runs `f` in place if no node is given, or the kernel refuses a thread.
pub fn on_node<T: Send>(
    cpu: Option<usize>,
    memory: Option<u32>,
    f: impl FnOnce() -> T + Send,
) -> T {
    let Some(node) = memory else {
        return f();
    };
    on_own_thread(|| {
        // If either is refused, the memory comes from any node.
        cpu.map(affinity::pin);
        numa::prefer_node_here(node);
        f()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn it_is_done_once_and_elsewhere() {
        let here = std::thread::current().id();
        let mut n = 0;
        let there = on_node(Some(0), Some(0), || {
            n += 1;
            std::thread::current().id()
        });
        assert_ne!(here, there);
        assert_eq!(here, on_node(None, None, || std::thread::current().id()));
        assert_eq!(n, 1);
    }

    #[test]
    fn a_panic_comes_back() {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            on_node(Some(0), Some(0), || panic!("so"))
        }));
        assert_eq!(*outcome.unwrap_err().downcast_ref::<&str>().unwrap(), "so");
    }
}
