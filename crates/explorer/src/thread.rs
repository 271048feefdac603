//! `std::thread`: real threads, which begin when they get the baton.
#![allow(missing_docs, reason = "the names mean what they mean in `std`")]

pub mod facade {
    //! The explorer's side of `loom::thread` of windlass.

    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use crate::control::{self, Key, NEVER, me};
    use crate::fiber;
    use crate::log::What;

    pub use std::thread::ThreadId;

    #[derive(Debug)]
    pub struct Builder {
        inner: std::thread::Builder,
        name: String,
    }

    impl Builder {
        pub fn new() -> Builder {
            Builder {
                inner: std::thread::Builder::new(),
                name: String::new(),
            }
        }

        pub fn name(self, name: String) -> Builder {
            Builder {
                inner: self.inner.name(name.clone()),
                name,
            }
        }

        #[track_caller]
        pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            let id = control::announce(self.name);
            if let Some(id) = id.filter(|_| control::is_twin()) {
                return spawn_in_twin(id, f);
            }
            let spawned = self.inner.spawn(move || {
                let Some(id) = id else { return f() };
                control::enter(id);
                let outcome = catch_unwind(AssertUnwindSafe(f));
                control::leave(id);
                outcome.unwrap_or_else(|payload| resume_unwind(payload))
            });
            match (&spawned, id) {
                (Ok(handle), Some(id)) => control::started(id, Some(handle.thread().clone())),
                (Err(_), Some(id)) => control::not_started(id),
                (_, None) => {}
            }
            if id.is_some() {
                // The new thread may run before this one goes on.
                control::point(What::Start);
            }
            spawned.map(|inner| JoinHandle {
                inner: Inner::Host(inner),
                id,
            })
        }
    }

    /// Starts a thread of the twin: a fiber.
    #[track_caller]
    fn spawn_in_twin<F, T>(id: usize, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let outcome = Arc::new(Mutex::new(None));
        let result = Arc::clone(&outcome);
        let made = fiber::make(id, move || {
            let outcome = catch_unwind(AssertUnwindSafe(f));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            control::leave(id);
        });
        if !made {
            control::not_started(id);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        control::started(id, None);
        Ok(JoinHandle {
            inner: Inner::Fiber(outcome),
            id: Some(id),
        })
    }

    #[derive(Debug)]
    pub struct JoinHandle<T> {
        inner: Inner<T>,
        id: Option<usize>,
    }

    #[derive(Debug)]
    enum Inner<T> {
        Host(std::thread::JoinHandle<T>),
        Fiber(Outcome<T>),
    }

    type Outcome<T> = Arc<Mutex<Option<std::thread::Result<T>>>>;

    impl<T> JoinHandle<T> {
        #[track_caller]
        pub fn join(self) -> std::thread::Result<T> {
            if let (Some(id), Some(me)) = (self.id, me()) {
                control::point(What::Wait);
                while !control::has_ended(id) {
                    control::wait(me, Key::End(id), NEVER);
                }
            }
            match self.inner {
                Inner::Host(inner) => inner.join(),
                Inner::Fiber(outcome) => outcome
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take()
                    .expect("it has ended"),
            }
        }

        #[track_caller]
        pub fn is_finished(&self) -> bool {
            match self.id {
                Some(id) => {
                    control::point(What::Load);
                    control::has_ended(id)
                }
                None => match &self.inner {
                    Inner::Host(inner) => inner.is_finished(),
                    Inner::Fiber(_) => false,
                },
            }
        }
    }

    /// A thread that may be unparked.
    #[derive(Clone, Debug)]
    pub struct Thread {
        inner: std::thread::Thread,
        id: Option<usize>,
    }

    impl Thread {
        pub fn id(&self) -> ThreadId {
            self.inner.id()
        }

        pub fn name(&self) -> Option<&str> {
            self.inner.name()
        }

        #[track_caller]
        pub fn unpark(&self) {
            match self.id {
                Some(id) => {
                    control::point(What::Wake);
                    control::set_token(id);
                }
                None => self.inner.unpark(),
            }
        }
    }

    pub fn current() -> Thread {
        Thread {
            inner: std::thread::current(),
            id: me(),
        }
    }

    #[track_caller]
    pub fn park() {
        park_until(NEVER);
    }

    #[track_caller]
    pub fn park_timeout(timeout: Duration) {
        park_until(control::deadline(timeout.as_nanos() as u64));
    }

    #[track_caller]
    fn park_until(deadline_ns: u64) {
        let me = me().expect("threads park inside schedules only");
        control::point(What::Wait);
        if !control::take_token(me) {
            control::wait(me, Key::Park(me), deadline_ns);
            control::take_token(me);
        }
    }

    #[track_caller]
    pub fn sleep(duration: Duration) {
        control::sleep_ns(duration.as_nanos() as u64);
    }

    #[track_caller]
    pub fn yield_now() {
        control::spin_loop();
    }
}
