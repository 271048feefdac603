//! `std`'s locks: a thread that finds a lock taken waits in the controller, which passes the baton on.
#![allow(missing_docs, reason = "the names mean what they mean in `std`")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::control::{self, Key, NEVER, me};
use super::lines::Use;
use super::log::What;

fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

fn lock_key<T: ?Sized>(of: &T) -> Key {
    Key::Lock(address(of))
}

/// Takes a lock by trying until it is free.
#[track_caller]
fn take<L: ?Sized, G>(lock: &L, attempt: impl Fn() -> TryLockResult<G>) -> LockResult<G> {
    control::point_at(What::Lock, Use::Rmw, address(lock));
    loop {
        match attempt() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(e)) => return Err(e),
            Err(TryLockError::WouldBlock) => match me() {
                Some(me) => {
                    control::wait(me, lock_key(lock), NEVER);
                }
                None => std::thread::yield_now(),
            },
        }
    }
}

fn given_back<L: ?Sized>(lock: &L) {
    if me().is_some() {
        control::with(|c| c.wake(lock_key(lock), usize::MAX));
    }
}

#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            lock: self,
            inner: Some(inner),
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match take(self, || self.0.try_lock()) {
            Ok(guard) => Ok(self.guard(guard)),
            Err(e) => Err(PoisonError::new(self.guard(e.into_inner()))),
        }
    }

    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        control::point_at(What::Lock, Use::Rmw, address(&self.0));
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::Poisoned(e)) => {
                Err(PoisonError::new(self.guard(e.into_inner())).into())
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }
}

pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        given_back(self.lock);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Known by its address, which a thread's own byte gives it.
#[derive(Debug, Default)]
pub struct Condvar {
    _place: u8,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { _place: 0 }
    }

    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let lock = guard.lock;
        let me = me().expect("conditions are waited for inside schedules only");
        control::begin_wait(me, Key::Address(address(self)), NEVER);
        drop(guard);
        control::end_wait(me);
        lock.lock()
    }

    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    #[track_caller]
    fn notify(&self, n: usize) {
        control::point(What::Wake);
        if me().is_some() {
            control::with(|c| c.wake(Key::Address(address(self)), n));
        }
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    #[track_caller]
    pub fn read(&self) -> LockResult<RwGuard<'_, T, std::sync::RwLockReadGuard<'_, T>>> {
        match take(self, || self.0.try_read()) {
            Ok(guard) => Ok(RwGuard(self, Some(guard))),
            Err(e) => Err(PoisonError::new(RwGuard(self, Some(e.into_inner())))),
        }
    }

    #[track_caller]
    pub fn write(&self) -> LockResult<RwGuard<'_, T, std::sync::RwLockWriteGuard<'_, T>>> {
        match take(self, || self.0.try_write()) {
            Ok(guard) => Ok(RwGuard(self, Some(guard))),
            Err(e) => Err(PoisonError::new(RwGuard(self, Some(e.into_inner())))),
        }
    }
}

/// A guard of either kind.
#[derive(Debug)]
pub struct RwGuard<'a, T: ?Sized, G>(&'a RwLock<T>, Option<G>);

impl<T: ?Sized, G: Deref> Deref for RwGuard<'_, T, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        self.1.as_ref().expect("held")
    }
}

impl<T: ?Sized, G: DerefMut> DerefMut for RwGuard<'_, T, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.1.as_mut().expect("held")
    }
}

impl<T: ?Sized, G> Drop for RwGuard<'_, T, G> {
    fn drop(&mut self) {
        self.1 = None;
        given_back(self.0);
    }
}

/// Written once, under a lock of its own.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    turn: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            value: std::sync::OnceLock::new(),
            turn: Mutex::new(()),
        }
    }

    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        control::point_at(What::Load, Use::Read, address(&self.value));
        self.value.get()
    }

    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        control::point_at(What::Store, Use::Rmw, address(&self.value));
        self.value.set(value)
    }

    #[track_caller]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.value.get().is_none() {
            let _ = self.value.set(f());
        }
        self.value.get().expect("set above")
    }

    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }
}

pub mod sync_mpsc {
    //! A channel for one answer.

    use std::sync::mpsc::{RecvError, SendError};
    use std::sync::{Arc, PoisonError};

    use crate::lock::{Condvar, Mutex};

    #[derive(Debug)]
    struct Shared<T> {
        /// The value; and whether one may come yet.
        state: Mutex<(Option<T>, bool)>,
        changed: Condvar,
    }

    #[derive(Debug)]
    pub struct SyncSender<T>(Arc<Shared<T>>);

    #[derive(Debug)]
    pub struct Receiver<T>(Arc<Shared<T>>);

    pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
        assert_eq!(bound, 1, "only channels for one value are used");
        let shared = Arc::new(Shared {
            state: Mutex::new((None, true)),
            changed: Condvar::new(),
        });
        (SyncSender(Arc::clone(&shared)), Receiver(shared))
    }

    impl<T> SyncSender<T> {
        #[track_caller]
        pub fn send(&self, value: T) -> Result<(), SendError<T>> {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(state.0.is_none(), "one value is sent");
            state.0 = Some(value);
            drop(state);
            self.0.changed.notify_all();
            Ok(())
        }
    }

    impl<T> Drop for SyncSender<T> {
        fn drop(&mut self) {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.1 = false;
            drop(state);
            self.0.changed.notify_all();
        }
    }

    impl<T> Receiver<T> {
        #[track_caller]
        pub fn recv(&self) -> Result<T, RecvError> {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(value) = state.0.take() {
                    return Ok(value);
                }
                if !state.1 {
                    return Err(RecvError);
                }
                state = self
                    .0
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
