//! Which CPUs the kernel lets this thread run on.
#![allow(unsafe_code)] // one system call that has no safe wrapper in our dependencies

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
    fn bits_become_ids() {
        assert_eq!(ids(&[0b101, 1]), [0, 2, c_ulong::BITS as usize]);
    }
}
