//! Work that the servers of the program `stalls` do for a request.

use std::hint::black_box;
use std::io;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::per_core::PerCore;

/// The size of a request, and of its answer.
pub const MESSAGE_BYTES: usize = 64;

/// How long a request asks the server to compute, in µs.
pub fn compute_us_of(bytes: &[u8; MESSAGE_BYTES]) -> u32 {
    let [a, b, c, d, ..] = *bytes;
    u32::from_le_bytes([a, b, c, d])
}

/// Steps of computing in a µs of CPU time.
static STEPS_PER_US: OnceLock<f64> = OnceLock::new();

fn steps(n: u64) {
    let mut x = n;
    for _ in 0..n {
        x = black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
    black_box(x);
}

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Measures once how long a step takes.
pub fn calibrate() {
    STEPS_PER_US.get_or_init(steps_per_us);
}

fn steps_per_us() -> f64 {
    const STEPS: u64 = 5_000_000;
    (0..10)
        .map(|_| {
            let begin_us = cpu_us();
            steps(STEPS);
            STEPS as f64 / (cpu_us() - begin_us)
        })
        .fold(0.0, f64::max)
}

/// Work of so many µs of CPU time. Not until the clock says so: then threads that compute
/// beside each other would do the same work at once.
///
/// # Panics
///
/// Before [`calibrate`].
pub fn compute(us: u32) {
    steps((f64::from(us) * STEPS_PER_US.get().expect("calibrated")) as u64);
}

/// Serves a connection.
///
/// # Errors
///
/// Those of the connection.
pub async fn serve_per_core<R: PerCore>(mut stream: R::Stream) -> io::Result<()> {
    let mut bytes = vec![0; MESSAGE_BYTES].into_boxed_slice();
    loop {
        let (read, filled) = R::read_exact(&mut stream, bytes).await;
        read?;
        compute(filled.first_chunk().map_or(0, compute_us_of));
        let (written, back) = R::write_all(&mut stream, filled.into_vec()).await;
        written?;
        bytes = back.into_boxed_slice();
    }
}
