//! `std::thread`: real threads, which begin when they get the baton.
#![allow(missing_docs, reason = "the names mean what they mean in `std`")]

pub mod facade {
    //! The explorer's side of `loom::thread` of windlass.

    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::time::Duration;

    use crate::control::{self, Key, NEVER, me};
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
            let spawned = self.inner.spawn(move || {
                let Some(id) = id else { return f() };
                control::enter(id);
                let outcome = catch_unwind(AssertUnwindSafe(f));
                control::leave(id);
                outcome.unwrap_or_else(|payload| resume_unwind(payload))
            });
            match (&spawned, id) {
                (Ok(handle), Some(id)) => control::started(id, handle.thread()),
                (Err(_), Some(id)) => control::not_started(id),
                (_, None) => {}
            }
            if id.is_some() {
                // The new thread may run before this one goes on.
                control::point(What::Start);
            }
            spawned.map(|inner| JoinHandle { inner, id })
        }
    }

    #[derive(Debug)]
    pub struct JoinHandle<T> {
        inner: std::thread::JoinHandle<T>,
        id: Option<usize>,
    }

    impl<T> JoinHandle<T> {
        #[track_caller]
        pub fn join(self) -> std::thread::Result<T> {
            if let (Some(id), Some(me)) = (self.id, me()) {
                control::point(What::Wait);
                while !control::has_ended(id) {
                    control::wait(me, Key::End(id), NEVER);
                }
            }
            self.inner.join()
        }

        #[track_caller]
        pub fn is_finished(&self) -> bool {
            match self.id {
                Some(id) => {
                    control::point(What::Load);
                    control::has_ended(id)
                }
                None => self.inner.is_finished(),
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
