//! Which types may go to other threads, or be shared with them. A type that is too free there makes
//! data races of safe code, so this does not compile then.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::MutexGuard as Stays;

use windlass::channel::{broadcast, oneshot, watch};
use windlass::context::{self, Canceller, Context};
use windlass::debug::Region;
use windlass::net::{Graceful, Member, TcpOptions, UdpOptions};
use windlass::process::Child;
use windlass::signal::Signals;
use windlass::sync::{
    Barrier, LazyLock, Listener, Mutex, MutexGuard, Notify, Once, OnceLock, OwnedMutexGuard,
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, Pool, Pooled, RwLock,
    RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, SingleFlight,
};
use windlass::task::{
    CancelOnDrop, Group, JoinHandle, JoinSet, LockedThread, Scope, ScopedJoinHandle, Task,
};
use windlass::time;

/// Both.
type Both = u8;
/// `Send`, and not `Sync`.
type Sends = Cell<u8>;
/// `Sync`, and not `Send`.
type Shares = Stays<'static, u8>;
/// Neither.
type Neither = Rc<u8>;

/// Whether a type implements a trait, as a method: one of the type itself has precedence.
struct Of<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized + Send> Of<T> {
    const SEND: bool = true;
}

impl<T: ?Sized + Sync> Of<T> {
    const SYNC: bool = true;
}

trait IsNot {
    const SEND: bool = false;
    const SYNC: bool = false;
}

impl<T: ?Sized> IsNot for Of<T> {}

/// `type: send, sync;`
macro_rules! are {
    ($($type:ty: $send:literal, $sync:literal;)*) => {
        $(const _: () = assert!(
            Of::<$type>::SEND == $send && Of::<$type>::SYNC == $sync,
            stringify!($type)
        );)*
    };
}

are! {
    Both: true, true;
    Sends: true, false;
    Shares: false, true;
    Neither: false, false;
}

// Channels: a message goes from thread to thread, and is cloned or looked at by several.
are! {
    oneshot::Sender<Sends>: true, true;
    oneshot::Receiver<Sends>: true, true;
    oneshot::Sender<Shares>: false, false;
    oneshot::Receiver<Shares>: false, false;
    broadcast::Sender<Both>: true, true;
    broadcast::Receiver<Both>: true, true;
    broadcast::Sender<Sends>: false, false;
    broadcast::Receiver<Sends>: false, false;
    broadcast::Sender<Shares>: false, false;
    broadcast::Receiver<Shares>: false, false;
    broadcast::Iter<'static, Sends>: false, false;
    watch::Sender<Both>: true, true;
    watch::Receiver<Both>: true, true;
    watch::Sender<Sends>: false, false;
    watch::Receiver<Sends>: false, false;
    watch::Sender<Shares>: false, false;
    watch::Receiver<Shares>: false, false;
    watch::Ref<'static, Both>: true, true;
    watch::Ref<'static, Sends>: false, false;
}

// Locks and their guards.
are! {
    Mutex<Sends>: true, true;
    Mutex<Shares>: false, false;
    MutexGuard<'static, Sends>: true, false;
    MutexGuard<'static, Shares>: false, true;
    OwnedMutexGuard<Both>: true, true;
    OwnedMutexGuard<Sends>: true, false;
    OwnedMutexGuard<Neither>: false, false;
    RwLock<Both>: true, true;
    RwLock<Sends>: true, false;
    RwLock<Shares>: false, false;
    RwLockReadGuard<'static, Sends>: false, false;
    RwLockReadGuard<'static, Shares>: true, true;
    RwLockWriteGuard<'static, Sends>: false, false;
    RwLockWriteGuard<'static, Shares>: false, true;
    OwnedRwLockReadGuard<Both>: true, true;
    OwnedRwLockReadGuard<Sends>: false, false;
    OwnedRwLockReadGuard<Neither>: false, false;
    OwnedRwLockWriteGuard<Both>: true, true;
    OwnedRwLockWriteGuard<Sends>: false, false;
    OwnedRwLockWriteGuard<Neither>: false, false;
    SemaphorePermit<'static>: true, true;
    OwnedSemaphorePermit: true, true;
    Notify: true, true;
    Listener<'static>: true, true;
    Barrier: true, true;
    Once: true, true;
    OnceLock<Sends>: true, false;
    OnceLock<Shares>: false, false;
    LazyLock<Sends>: true, false;
    LazyLock<Shares>: false, false;
    LazyLock<Both, Shares>: false, false;
    LazyLock<Both, Sends>: true, true;
}

// Objects and results that go to others.
are! {
    SingleFlight<Sends, Both>: true, true;
    SingleFlight<Shares, Both>: false, false;
    SingleFlight<u8, Sends>: false, false;
    SingleFlight<u8, Shares>: false, false;
    Pool<Sends>: true, true;
    Pool<Shares>: false, false;
    Pool<Both, Sends>: true, false;
    Pool<Both, Shares>: false, true;
    Pooled<'static, Both>: true, true;
    Pooled<'static, Sends>: true, false;
    Pooled<'static, Shares>: false, false;
    JoinHandle<Sends>: true, true;
    JoinHandle<Shares>: false, false;
    CancelOnDrop<Sends>: true, true;
    CancelOnDrop<Neither>: false, false;
    ScopedJoinHandle<'static, Sends>: true, true;
    ScopedJoinHandle<'static, Shares>: false, false;
    Scope<'static, 'static>: true, true;
    JoinSet<Sends>: true, true;
    JoinSet<Shares>: false, false;
    Group<Sends>: true, true;
    Group<Shares>: false, false;
    Task: true, true;
    LockedThread: false, false;
    Region: false, false;
}

// Types without a parameter.
are! {
    Context: true, true;
    Canceller: true, true;
    context::AfterFunc: true, true;
    time::AfterFunc: true, true;
    Graceful: true, true;
    Member: true, true;
    TcpOptions: true, true;
    UdpOptions: true, true;
    Signals: true, true;
    Child: true, true;
}
