//! Opening a FIFO without a thread blocked in `open(2)`.
//!
//! A blocking `open(2)` would hold a thread until the other side opens the FIFO: either one of the
//! ring's kernel workers, which are few, or a thread of the runtime. The wait could not be ended:
//! neither by the end of a run, nor by a signal without effects on other threads. So the FIFO is
//! opened with `O_NONBLOCK`, which announces this side as the blocking call does, and the other
//! side is polled for. A writer cannot announce itself: its `open` fails with ENXIO until there is
//! a reader. A reader's descriptor shows whether a writer is, or was, connected.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::section::in_place;
use crate::poll::ready::look_for;
use crate::sys::{file, socket};

/// Opens one side of a FIFO and waits for the other. `open` must pass `O_NONBLOCK`.
pub(super) fn open(write: bool, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let fifo = if write {
        look_for(|| match in_place(&open) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            r => r.map(Some),
        })?
    } else {
        let fifo = in_place(&open)?;
        look_for(|| Ok(has_had_writer(&fifo)?.then_some(())))?;
        fifo
    };
    file::set_nonblocking(fifo.as_fd(), false)?;
    Ok(fifo)
}

/// Whether a writer has connected since the FIFO was opened, even if it has closed it again.
fn has_had_writer(fifo: &File) -> io::Result<bool> {
    // POLLHUP shows a writer that has closed the FIFO, POLLIN one that has written.
    Ok(socket::poll_now(fifo.as_fd(), libc::POLLIN)? != 0 || file::has_writer(fifo.as_fd())?)
}
