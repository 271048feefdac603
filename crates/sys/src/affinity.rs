//! The CPU affinity of threads.
#![allow(unsafe_code)]

use core_affinity::CoreId;

/// The most CPUs that any kernel can be built for.
const MAX_CPUS: usize = 8192;
const WORDS: usize = MAX_CPUS / u64::BITS as usize;

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask(Box<[u64; WORDS]>);

impl Mask {
    /// Every possible CPU. The kernel intersects it with the cpuset, now and whenever that changes,
    /// so a thread with this mask follows its cpuset.
    pub fn all() -> Mask {
        Mask(Box::new([u64::MAX; WORDS]))
    }

    /// The kernel's numbers of the CPUs, ascending.
    pub fn cpus(&self) -> Vec<usize> {
        (0..MAX_CPUS).filter(|&cpu| self.has(cpu)).collect()
    }

    /// Whether the set contains the CPU.
    pub fn has(&self, cpu: usize) -> bool {
        let bits = u64::BITS as usize;
        cpu < MAX_CPUS && self.0[cpu / bits] >> (cpu % bits) & 1 == 1
    }

    /// Writes the mask in the kernel's form, cut to the length of `bytes`.
    pub fn write_to(&self, bytes: &mut [u8]) {
        let mut mine = self.0.iter().flat_map(|word| word.to_ne_bytes());
        bytes.fill_with(|| mine.next().unwrap_or(0));
    }

    fn of_one(cpu: usize) -> Option<Mask> {
        let bits = u64::BITS as usize;
        let mut words = Box::new([0; WORDS]);
        *words.get_mut(cpu / bits)? = 1 << (cpu % bits);
        Some(Mask(words))
    }

    /// Whether it contains this CPU only.
    pub fn is_just(&self, cpu: usize) -> bool {
        Mask::of_one(cpu).is_some_and(|one| one == *self)
    }
}

/// Reads the calling thread's mask, without CPUs that are offline; `None` where a sandbox denies
/// it.
pub fn current() -> Option<Mask> {
    of_thread(0)
}

/// As [`current`], for the thread with this kernel id; also `None` if it has ended.
pub fn of_thread(tid: i32) -> Option<Mask> {
    let mut words = Box::new([0_u64; WORDS]);
    read_words(tid, &mut words).then_some(Mask(words))
}

/// By a direct system call: libc's function is wrapped, see `wrap`.
fn read_words(tid: i32, words: &mut [u64; WORDS]) -> bool {
    let (len, place) = (size_of_val(words), words.as_mut_ptr());
    // SAFETY: `place` is writable for the size given, and the kernel writes no more than that.
    let n = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, len, place) };
    // The system call returns the number of bytes written.
    n > 0
}

/// Whether the calling thread may run on this CPU only. Does not allocate: see `children`.
pub fn is_just_here(cpu: usize) -> bool {
    let mut words = [0; WORDS];
    let bits = u64::BITS as usize;
    read_words(0, &mut words)
        && words.iter().map(|word| word.count_ones()).sum::<u32>() == 1
        && words
            .get(cpu / bits)
            .is_some_and(|word| word >> (cpu % bits) & 1 == 1)
}

/// Sets the calling thread's mask. On failure (the cpuset has shrunk) the mask stays as it was,
/// which is harmless.
pub fn restore(mask: &Mask) {
    set(0, mask);
}

/// As [`restore`], for another thread of this process.
pub fn restore_thread(tid: i32, mask: &Mask) {
    set(tid, mask);
}

fn set(tid: i32, mask: &Mask) -> bool {
    let words = std::ptr::from_ref(&*mask.0).cast::<libc::cpu_set_t>();
    // SAFETY: the words are readable for the size given; the kernel ignores CPUs that it does not
    // know.
    unsafe { libc::sched_setaffinity(tid, size_of::<[u64; WORDS]>(), words) == 0 }
}

/// Pins the calling thread to one CPU. `false` if the kernel refuses (the CPU went offline or left
/// the cpuset); then the mask is unchanged.
pub fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: cpu })
}

/// As [`pin`], for another thread of this process.
pub fn pin_thread(tid: i32, cpu: usize) -> bool {
    Mask::of_one(cpu).is_some_and(|mask| set(tid, &mask))
}

/// The NUMA node (by the kernel's number) on which the caller is running.
pub fn current_node() -> u32 {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_may_run_anywhere_gets_what_there_is() {
        let before = current().unwrap();
        let cpus = before.cpus();
        assert!(!cpus.is_empty());
        std::thread::spawn(move || {
            let first = cpus[0];
            assert!(pin_thread(0, first));
            let one = current().unwrap();
            assert!(one.is_just(first) && one.cpus() == [first]);
            restore(&Mask::all());
            let all = current().unwrap();
            assert!(cpus.iter().all(|&cpu| all.has(cpu)));
            restore(&before);
            assert_eq!(current().unwrap(), before);
            assert!(!pin_thread(0, MAX_CPUS - 1), "no machine has that many");
            assert!(!pin_thread(0, MAX_CPUS));
        })
        .join()
        .unwrap();
    }
}
