//! Waits for locks, permits and notifications.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass::context::{Context, Error};
use windlass::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, Notify, Once, OnceLock, RwLock, Semaphore,
    SingleFlight, WaitGroup,
};

use super::{FOREVER, Row, Wait, ended, not_ended, until, wait};
use crate::util::{Gate, wait_until};

const NO_CONTEXT: Context = Context::background();

/// A call that waits until another thread has left `stay`.
fn behind<T: Send + Sync + 'static>(
    of: T,
    stay: impl FnOnce(&T, &dyn Fn()) + Send + 'static,
    call: impl FnOnce(&T, Error) + Send + 'static,
) -> Wait {
    let (of, gate, is_in) = (
        Arc::new(of),
        Gate::default(),
        Arc::new(AtomicBool::new(false)),
    );
    let (its, its_gate, flag) = (Arc::clone(&of), gate.clone(), Arc::clone(&is_in));
    std::thread::spawn(move || {
        stay(&its, &|| {
            flag.store(true, Ordering::SeqCst);
            its_gate.wait();
        });
    });
    wait_until(|| is_in.load(Ordering::SeqCst));
    until(move || gate.open(), move |why| call(&of, why))
}

/// A call that waits for a mutex which is locked.
fn locked(call: impl FnOnce(&Mutex<()>, Error) + Send + 'static) -> Wait {
    behind(
        Mutex::new(()),
        |mutex, stay| {
            let _guard = mutex.lock();
            stay();
        },
        call,
    )
}

/// A call that waits for a lock which is locked for writing.
fn write_locked(call: impl FnOnce(&RwLock<()>, Error) + Send + 'static) -> Wait {
    behind(
        RwLock::new(()),
        |lock, stay| {
            let _guard = lock.write();
            stay();
        },
        call,
    )
}

fn running(call: impl FnOnce(&Once, Error) + Send + 'static) -> Wait {
    behind(Once::new(), |once, stay| once.call_once(stay), call)
}

fn filling(call: impl FnOnce(&OnceLock<u8>, Error) + Send + 'static) -> Wait {
    behind(
        OnceLock::new(),
        |cell, stay| {
            cell.get_or_init(|| {
                stay();
                1
            });
        },
        call,
    )
}

fn flying(call: impl FnOnce(&SingleFlight<u8, u8>, Error) + Send + 'static) -> Wait {
    behind(
        SingleFlight::new(),
        |flight, stay| {
            flight.run(1, || {
                stay();
                2
            });
        },
        call,
    )
}

/// A call that waits for permits.
fn no_permits(call: impl FnOnce(&Semaphore, Error) + Send + 'static) -> Wait {
    let semaphore = Arc::new(Semaphore::new(0));
    let its = Arc::clone(&semaphore);
    until(move || semaphore.add_permits(9), move |why| call(&its, why))
}

type Flag = (Mutex<bool>, Condvar);

/// A call that waits until the flag is set.
fn unset(call: impl FnOnce(&Flag, Error) + Send + 'static) -> Wait {
    let flag: Arc<Flag> = Arc::default();
    let its = Arc::clone(&flag);
    let release = move || {
        *flag.0.lock().unwrap() = true;
        flag.1.notify_all();
    };
    until(release, move |why| call(&its, why))
}

fn unnotified(call: impl FnOnce(&Notify, Error) + Send + 'static) -> Wait {
    let notify = Arc::new(Notify::new());
    let its = Arc::clone(&notify);
    until(move || notify.notify_one(), move |why| call(&its, why))
}

/// A notification for all reaches a listener that has begun before.
fn unheard(call: impl FnOnce(&Notify, Error) + Send + 'static) -> Wait {
    let notify = Arc::new(Notify::new());
    let its = Arc::clone(&notify);
    until(move || notify.notify_waiters(), move |why| call(&its, why))
}

fn not_done(call: impl FnOnce(&WaitGroup, Error) + Send + 'static) -> Wait {
    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let its = Arc::clone(&group);
    until(move || group.done(), move |why| call(&its, why))
}

pub(crate) const ROWS: &[Row] = &[
    ended("Mutex::lock_context", || {
        locked(|mutex, why| assert_eq!(mutex.lock_context(&NO_CONTEXT).err(), Some(why)))
    }),
    ended("RwLock::read_context", || {
        write_locked(|lock, why| assert_eq!(lock.read_context(&NO_CONTEXT).err(), Some(why)))
    }),
    ended("RwLock::write_context", || {
        write_locked(|lock, why| assert_eq!(lock.write_context(&NO_CONTEXT).err(), Some(why)))
    }),
    ended("Condvar::wait_timeout", || {
        unset(|(lock, changed), _| {
            let waited = changed.wait_timeout(lock.lock().unwrap(), FOREVER).unwrap();
            assert!(waited.1.timed_out());
        })
    }),
    ended("Condvar::wait_timeout_while", || {
        unset(|(lock, changed), _| {
            let guard = lock.lock().unwrap();
            let waited = changed
                .wait_timeout_while(guard, FOREVER, |set| !*set)
                .unwrap();
            assert!(waited.1.timed_out());
        })
    }),
    ended("Condvar::wait_context", || {
        unset(|(lock, changed), why| {
            let waited = changed
                .wait_context(lock.lock().unwrap(), &NO_CONTEXT)
                .unwrap();
            assert_eq!(waited.1, Err(why));
        })
    }),
    ended("Condvar::wait_while_context", || {
        unset(|(lock, changed), why| {
            let guard = lock.lock().unwrap();
            let waited = changed
                .wait_while_context(guard, &NO_CONTEXT, |set| !*set)
                .unwrap();
            assert_eq!(waited.1, Err(why));
        })
    }),
    ended("Semaphore::acquire", || {
        no_permits(|semaphore, why| {
            let e = semaphore.acquire(1).unwrap_err();
            let source = e.source().and_then(|e| e.downcast_ref::<Error>());
            assert_eq!(source, Some(&why));
        })
    }),
    ended("Semaphore::acquire_timeout", || {
        no_permits(|semaphore, _| assert!(semaphore.acquire_timeout(1, FOREVER).is_err()))
    }),
    ended("Semaphore::acquire_context", || {
        no_permits(|semaphore, why| {
            assert_eq!(semaphore.acquire_context(1, &NO_CONTEXT).err(), Some(why));
        })
    }),
    ended("Notify::wait_timeout", || {
        unnotified(|notify, _| assert!(!notify.wait_timeout(FOREVER)))
    }),
    ended("Notify::wait_context", || {
        unnotified(|notify, why| assert_eq!(notify.wait_context(&NO_CONTEXT), Err(why)))
    }),
    ended("Listener::wait_timeout", || {
        unheard(|notify, _| assert!(!notify.listen().wait_timeout(FOREVER)))
    }),
    ended("Listener::wait_context", || {
        unheard(|notify, why| assert_eq!(notify.listen().wait_context(&NO_CONTEXT), Err(why)))
    }),
    ended("Barrier::wait_context", || {
        let barrier = Barrier::new(2);
        wait((), move |why| {
            assert_eq!(barrier.wait_context(&NO_CONTEXT).err(), Some(why))
        })
    }),
    ended("WaitGroup::wait_context", || {
        not_done(|group, why| assert_eq!(group.wait_context(&NO_CONTEXT), Err(why)))
    }),
    ended("Once::call_once_context", || {
        running(|once, why| {
            let called = once.call_once_context(&NO_CONTEXT, || panic!("it ran twice"));
            assert_eq!(called, Err(why));
        })
    }),
    ended("Once::wait_context", || {
        running(|once, why| assert_eq!(once.wait_context(&NO_CONTEXT), Err(why)))
    }),
    ended("OnceLock::get_or_init_context", || {
        filling(|cell, why| {
            let got = cell.get_or_init_context(&NO_CONTEXT, || panic!("it was made twice"));
            assert_eq!(got, Err(why));
        })
    }),
    ended("OnceLock::wait_context", || {
        filling(|cell, why| assert_eq!(cell.wait_context(&NO_CONTEXT), Err(why)))
    }),
    ended("LazyLock::force_context", || {
        let (gate, is_in) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        let (its_gate, flag) = (gate.clone(), Arc::clone(&is_in));
        let lazy = Arc::new(LazyLock::new(move || {
            flag.store(true, Ordering::SeqCst);
            its_gate.wait();
        }));
        let its = Arc::clone(&lazy);
        std::thread::spawn(move || LazyLock::force(&its).to_owned());
        wait_until(|| is_in.load(Ordering::SeqCst));
        let call = move |why| assert_eq!(LazyLock::force_context(&lazy, &NO_CONTEXT), Err(why));
        until(move || gate.open(), call)
    }),
    ended("SingleFlight::run_context", || {
        flying(|flight, why| {
            let got = flight.run_context(&NO_CONTEXT, 1, || panic!("it ran twice"));
            assert_eq!(got, Err(why));
        })
    }),
    not_ended("Mutex::lock", || locked(|mutex, _| drop(mutex.lock()))),
    not_ended("RwLock::read", || write_locked(|lock, _| drop(lock.read()))),
    not_ended("RwLock::write", || {
        write_locked(|lock, _| drop(lock.write()))
    }),
    not_ended("Condvar::wait_while", || {
        unset(|(lock, changed), _| {
            let guard = lock.lock().unwrap();
            assert!(*changed.wait_while(guard, |set| !*set).unwrap());
        })
    }),
    not_ended("Notify::wait", || unnotified(|notify, _| notify.wait())),
    not_ended("Listener::wait", || {
        let notify = Arc::new(Notify::new());
        let its = Arc::clone(&notify);
        let is_there = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_there);
        let release = move || {
            wait_until(|| is_there.load(Ordering::SeqCst));
            notify.notify_waiters();
        };
        until(release, move |_| {
            let listener = its.listen();
            flag.store(true, Ordering::SeqCst);
            listener.wait();
        })
    }),
    not_ended("Barrier::wait", || {
        let barrier = Arc::new(Barrier::new(2));
        let its = Arc::clone(&barrier);
        let release = move || {
            barrier.wait();
        };
        until(release, move |_| {
            its.wait();
        })
    }),
    not_ended("WaitGroup::wait", || not_done(|group, _| group.wait())),
    not_ended("Once::call_once", || {
        running(|once, _| once.call_once(|| panic!("it ran twice")))
    }),
    not_ended("Once::wait", || running(|once, _| once.wait())),
    not_ended("OnceLock::get_or_init", || {
        filling(|cell, _| assert_eq!(cell.get_or_init(|| panic!("it was made twice")), &1))
    }),
    not_ended("OnceLock::wait", || {
        filling(|cell, _| assert_eq!(cell.wait(), &1))
    }),
    not_ended("SingleFlight::run", || {
        flying(|flight, _| assert_eq!(flight.run(1, || panic!("it ran twice")), 2))
    }),
    ended("a permit of a semaphore that others wait for", || {
        let semaphore = Arc::new(Semaphore::new(1));
        let permit = semaphore.acquire_owned(1).unwrap();
        let its = Arc::clone(&semaphore);
        wait(permit, move |_| assert!(its.acquire_owned(1).is_err()))
    }),
];
