//! Thread pools of other crates, used first by a goroutine: they have as many threads as the
//! process has CPUs, and these may run on all of them, though the goroutine's thread is pinned.

use std::fs;
use std::thread::available_parallelism;

use windlass::Builder;

/// The CPUs that the calling thread may run on, in the kernel's words.
fn cpus() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("Cpus_allowed_list:"));
    line.unwrap().to_owned()
}

#[test]
#[allow(unsafe_code)]
fn pools_that_a_goroutine_uses_first_have_all_cpus() {
    let (n, all) = (available_parallelism().unwrap().get(), cpus());
    // SAFETY: the test keeps no borrow of a thread-local across a call that parks.
    let rt = unsafe { Builder::new().processors(1).build() }.unwrap();
    rt.run(|| {
        assert_eq!(rayon::current_num_threads(), n);
        for there in rayon::broadcast(|_| cpus()) {
            assert_eq!(there, all);
        }
        let tokio = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        assert_eq!(tokio.metrics().num_workers(), n);
        let there = tokio.block_on(async { tokio::spawn(async { cpus() }).await.unwrap() });
        assert_eq!(there, all);
    });
}
