//! The disks of a simulated run: one for each host.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use windlass_ground::std_traits::fmt_as;
use windlass_world::disk::errno::{EIO, fail};
use windlass_world::disk::files::Files;

use super::settings::Disk;
use crate::bubble::net::faults::DiskEvent;
use crate::bubble::{self, Bubble};
use crate::loom::native::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use crate::sched::wait::{current_context, points, sleep};
use crate::sync::Semaphore;

/// The state of a disk.
#[derive(Debug)]
pub(super) struct State {
    pub(super) files: Files,
    /// The waiters for locks of files: each for a permit of its own.
    waiting: Vec<Arc<Semaphore>>,
}

/// Waits for locks that are over. The waiters are woken when the disk is no longer locked. The destructor
/// of a file does it, too, so it is no switch point.
#[derive(Debug)]
#[must_use = "somebody waits"]
pub(super) struct Woken(Vec<Arc<Semaphore>>);

impl Woken {
    pub(super) fn wake(self) {
        for waiter in self.0 {
            waiter.give_back(1);
        }
    }
}

impl State {
    /// One more that waits for a lock.
    pub(super) fn add_waiter(&mut self) -> Arc<Semaphore> {
        let waiter = Arc::new(Semaphore::new(0));
        self.waiting.push(Arc::clone(&waiter));
        waiter
    }

    /// Ends the waits of all that wait for locks.
    pub(super) fn end_waits(&mut self) -> Woken {
        Woken(std::mem::take(&mut self.waiting))
    }
}

/// A simulated disk. Locked for single steps only, never while a goroutine waits.
pub(crate) struct SimDisk {
    run: u64,
    state: Mutex<State>,
}

fmt_as!(Debug for SimDisk, "SimDisk { .. }");

impl SimDisk {
    /// The state, for one step.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A switch point, as each call is one.
    ///
    /// # Errors
    ///
    /// If the caller is not in the run of the disk, or its host has crashed: destructors that run
    /// then must not reach the disk. A goroutine that unwinds because the run is over may.
    pub(super) fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        points::switch_point();
        let _ = points::cancel_point();
        self.check_run()?;
        if bubble::is_lost() {
            return fail(EIO);
        }
        Ok(self.state())
    }

    /// # Errors
    ///
    /// If the caller is not in the run of the disk.
    pub(super) fn check_run(&self) -> io::Result<()> {
        let run = bubble::current().map(|bubble| bubble.serial());
        if run != Some(self.run) {
            return Err(io::Error::other(
                "the file belongs to a simulation that has ended, or that another thread runs",
            ));
        }
        Ok(())
    }

    /// Lets virtual time pass. The disk goes on when a context is done.
    pub(super) fn wait(&self, time: Duration) {
        if !time.is_zero() {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let until = bubble::current()
                .map_or(0, |bubble| bubble.now_ns())
                .saturating_add(ns);
            // An error means that the goroutine unwinds.
            let _ = current_context::shield(|| sleep::sleep_until(until));
        }
    }

    /// Waits for a transfer from or to the disk.
    ///
    /// # Errors
    ///
    /// The current context's, if that is done: then the transfer does not begin.
    pub(super) fn wait_for_transfer(&self) -> io::Result<()> {
        current_context::check()?;
        let time = self.state().files.transfer_time();
        self.wait(time);
        Ok(())
    }
}

/// The time of day.
pub(super) fn now() -> SystemTime {
    bubble::current().map_or(SystemTime::UNIX_EPOCH, |bubble| bubble.time_of_day())
}

/// A descriptor that was taken out of a `File`, by its own file in the kernel.
#[derive(Debug)]
enum TakenOut<T> {
    /// It has not come back.
    Out(Arc<T>),
    Back(Weak<T>),
}

/// All disks of a run.
#[derive(Debug)]
struct Drives<T> {
    settings: Disk,
    disks: BTreeMap<u32, Arc<SimDisk>>,
    taken_out: BTreeMap<(u64, u64), TakenOut<T>>,
}

impl<T> Default for Drives<T> {
    fn default() -> Drives<T> {
        Drives {
            settings: Disk::new(),
            disks: BTreeMap::new(),
            taken_out: BTreeMap::new(),
        }
    }
}

fn run_of(bubble: &Bubble) -> Rc<RefCell<Drives<Opened>>> {
    bubble.part()
}

/// The disk of a host in the run of the calling thread; `None` outside of a simulation.
fn disk_of(host: u32) -> Option<Arc<SimDisk>> {
    let bubble = bubble::current()?;
    let run = run_of(&bubble);
    let mut run = run.borrow_mut();
    let settings = run.settings.clone();
    let disk = run.disks.entry(host).or_insert_with(|| {
        let files = Files::new(u64::from(host) + 1, settings.0, now());
        Arc::new(SimDisk {
            run: bubble.serial(),
            state: Mutex::new(State {
                files,
                waiting: Vec::new(),
            }),
        })
    });
    Some(Arc::clone(disk))
}

/// The disk that the caller uses; `None` outside of a simulation.
#[inline]
pub(crate) fn here() -> Option<Arc<SimDisk>> {
    disk_of(bubble::current()?.current_host())
}

/// Sets what the disks of a run are like. Called before it begins.
pub(crate) fn install(bubble: &Bubble, settings: &Disk) {
    run_of(bubble).borrow_mut().settings = settings.clone();
}

/// Changes the settings of a host's disk. Does nothing outside of a simulation.
pub(crate) fn set(host: u32, settings: Disk) {
    if let Some(disk) = disk_of(host) {
        disk.state().files.set_quality(settings.0);
    }
}

/// The settings of a host's disk; `None` outside of a simulation.
pub(crate) fn settings(host: u32) -> Option<Disk> {
    Some(Disk(disk_of(host)?.state().files.quality()))
}

/// A line for each file that is open, host by host. A file whose descriptor was taken out is left out:
/// whether that is open is not known.
pub(crate) fn leaks(bubble: &Bubble) -> Vec<String> {
    let run = run_of(bubble);
    let run = run.borrow();
    let mut lines = Vec::new();
    for (&host, disk) in &run.disks {
        let is_out = |id: u64| {
            run.taken_out.values().any(|taken| match taken {
                TakenOut::Out(opened) => opened.id == id && Arc::ptr_eq(&opened.disk, disk),
                TakenOut::Back(_) => false,
            })
        };
        let name = bubble.net(|net, _| net.name_of(host));
        let state = disk.state();
        let open = state.files.all_open().filter(|&(id, ..)| !is_out(id));
        for (_, path, (g, step)) in open {
            let path = path.display();
            lines.push(format!(
                "file {path} on host {name}, opened by goroutine {g} at step {step}"
            ));
        }
    }
    lines
}

/// The disk of a host loses its power. The caller is a goroutine.
pub(crate) fn crash(host: u32) {
    on_event(host, DiskEvent::PowerLoss);
    if let Some(disk) = disk_of(host) {
        let woken = disk.state().end_waits();
        woken.wake();
    }
}

/// An event of a host's disk. The caller may be inside the scheduler. A host that crashes
/// ends its goroutines, which therefore need not be woken here.
pub(crate) fn on_event(host: u32, event: DiskEvent) {
    if let Some(disk) = disk_of(host) {
        disk.state().files.on_event(event);
    }
}

/// Keeps an open file alive whose descriptor leaves its `File`, so that it can come back.
pub(super) fn take_out(opened: Arc<Opened>, descriptor: &std::fs::File) {
    let (Some(bubble), Some(key)) = (bubble::current(), key(descriptor)) else {
        return;
    };
    let run = run_of(&bubble);
    run.borrow_mut()
        .taken_out
        .insert(key, TakenOut::Out(opened));
}

/// The open file of a descriptor that was taken out of a `File`.
pub(super) fn bring_back(descriptor: &std::fs::File) -> Option<Arc<Opened>> {
    let run = run_of(&*bubble::current()?);
    let mut run = run.borrow_mut();
    let place = run.taken_out.get_mut(&key(descriptor)?)?;
    let opened = match place {
        TakenOut::Out(opened) => Arc::clone(opened),
        TakenOut::Back(opened) => opened.upgrade()?,
    };
    *place = TakenOut::Back(Arc::downgrade(&opened));
    Some(opened)
}

/// The file of a descriptor in the kernel: the same for all copies of the descriptor, and for no
/// other one as long as they are open.
fn key(descriptor: &std::fs::File) -> Option<(u64, u64)> {
    let metadata = descriptor.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A descriptor that stands for an open file of a simulated disk. Calls of `std` on it fail: it is
/// the end of a pipe that has no other end.
pub(crate) fn placeholder() -> io::Result<std::fs::File> {
    let (_reader, writer) = io::pipe()?;
    Ok(std::fs::File::from(std::os::fd::OwnedFd::from(writer)))
}

/// An open file: closed with its last handle.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) disk: Arc<SimDisk>,
    pub(super) id: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        let woken = state.files.close(self.id).then(|| state.end_waits());
        drop(state);
        woken.into_iter().for_each(Woken::wake);
    }
}
