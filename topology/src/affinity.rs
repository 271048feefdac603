//! Which CPUs the kernel lets this thread run on, and how to choose one of them.
#![allow(unsafe_code)] // two system calls that have no safe wrapper in our dependencies

use std::{ffi::c_ulong, io, mem};

/// Ids of the CPUs in the affinity mask of the calling thread, ascending.
///
/// The kernel keeps the mask inside the cgroup's cpuset and drops CPUs that are offline, so this
/// is what the thread can have. New threads inherit it.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // The kernel refuses a mask shorter than its own (EINVAL) and does not say how long that is.
    let mut words = 1024 / c_ulong::BITS as usize;
    loop {
        let mut mask: Vec<c_ulong> = vec![0; words];
        // SAFETY:
        // - `mask` owns `size_of_val(mask)` writable bytes, the length that is passed.
        // - cpu_set_t is an array of unsigned long, so alignment and any bit pattern are fine.
        let result = unsafe {
            libc::sched_getaffinity(
                0,
                mem::size_of_val(mask.as_slice()),
                mask.as_mut_ptr().cast(),
            )
        };
        if result == 0 {
            return Ok(ids(&mask));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words > 1 << 14 {
            return Err(error);
        }
        words *= 2;
    }
}

/// Moves the calling thread to one CPU and keeps it there.
#[cfg(any(test, feature = "render"))]
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let bits = c_ulong::BITS as usize;
    let mut mask: Vec<c_ulong> = vec![0; cpu / bits + 1];
    mask[cpu / bits] = 1 << (cpu % bits);
    // SAFETY:
    // - `mask` owns `size_of_val(mask)` bytes, the length that is passed; the kernel only reads them.
    // - cpu_set_t is an array of unsigned long, so alignment is fine.
    let result = unsafe {
        libc::sched_setaffinity(0, mem::size_of_val(mask.as_slice()), mask.as_ptr().cast())
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn ids(mask: &[c_ulong]) -> Vec<usize> {
    let bits = c_ulong::BITS as usize;
    (0..mask.len() * bits)
        .filter(|id| mask[id / bits] >> (id % bits) & 1 == 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_cpu_is_allowed() {
        assert!(!allowed_cpus().unwrap().is_empty());
    }

    #[test]
    fn a_thread_is_pinned_to_one_cpu() {
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin(cpu).unwrap();
            allowed_cpus().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), [cpu]);
        assert!(pin(1 << 19).is_err());
    }

    #[test]
    fn bits_become_ids() {
        assert_eq!(ids(&[0b101, 1]), [0, 2, c_ulong::BITS as usize]);
    }
}
