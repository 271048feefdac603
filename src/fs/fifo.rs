//! Opening a FIFO without a thread that waits for the other side.
//!
//! `open(2)` would have to block a thread: one of the ring's, which belong to the kernel and are
//! few, or one of the runtime's, and nothing could end that: not the end of a run, and not a signal
//! that others do not notice. So the FIFO is opened with `O_NONBLOCK`, which
//! announces this side as the blocking call does, and the other side is looked for every so often.
//! A writer cannot announce itself: its `open` fails until there is a reader. A reader is told by
//! its descriptor whether there is, or was, a writer.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::section::in_place;
use crate::sched::{ambient, park};
use crate::sys::{clock, file, socket};
use crate::task::sleep;

/// The shortest and the longest pause between two looks. Between these a pause is a part of the
/// time waited so far, [`PART`], so the other side is noticed that much later at most.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LAST_PAUSE: Duration = Duration::from_millis(50);
const PART: u32 = 8;

/// Opens a FIFO for one side and waits for the other. `open` opens it with `O_NONBLOCK`.
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

/// Whether a writer has come since the FIFO was opened, gone again or not.
fn has_had_writer(fifo: &File) -> io::Result<bool> {
    // A hang-up tells of one that has gone, bytes of one that has written.
    Ok(socket::poll_now(fifo.as_fd(), libc::POLLIN)? != 0 || file::has_writer(fifo.as_fd())?)
}

fn look_for<T>(mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let begun = clock::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        park::cancel_point()?;
        // It cuts sleeps short, and they do not say so.
        ambient::check()?;
        sleep((begun.elapsed() / PART).clamp(FIRST_PAUSE, LAST_PAUSE));
    }
}
