//! A directory that is removed when the test is over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// Beside the build, so on a disk and not in memory. In a simulation on the disk of that.
    pub(crate) fn new() -> TempDir {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{n}", std::process::id()));
        if is_simulated() {
            windlass::fs::create_dir_all(&dir).unwrap();
            return TempDir(dir);
        }
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        TempDir(dir)
    }

    #[allow(dead_code, reason = "not every test file needs it")]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A FIFO in the directory.
    #[allow(unsafe_code, dead_code, reason = "not every test file needs one")]
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let path = self.join(name);
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a valid string.
        let r = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
        assert_eq!(r, 0, "{}", std::io::Error::last_os_error());
        path
    }
}

/// Whether the test runs in a simulation.
fn is_simulated() -> bool {
    #[cfg(feature = "sim")]
    return windlass::sim::is_simulated();
    #[cfg(not(feature = "sim"))]
    false
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if is_simulated() {
            let _ = windlass::fs::remove_dir_all(&self.0);
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
