//! [`Select`], a select over a list of operations built at run time; and the functions that the
//! `select!` macros expand to.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::fmt_as;

use super::chan::note_disconnect;
use super::choice::{self, Arm, Decision};
use super::core::{Refused, SelectWait};
use super::err::{
    ReadyTimeoutError, RecvError, SelectTimeoutError, SendError, TryReadyError, TrySelectError,
};
use super::receiver::{self, Receiver};
use super::sender::Sender;
use crate::sys::clock::{self, NEVER};

/// Waits for one of several channel operations.
///
/// Operations are added to a list. Then one of the methods waits until one of them is *possible*:
/// it would complete without waiting, or would fail because the other side of its channel was
/// dropped. Use [`select!`] if the operations are known at compile time.
///
/// [`select!`]: crate::select!
///
/// # Examples
///
/// ```
/// use windlass::channel::{Select, unbounded};
///
/// let (s1, r1) = unbounded();
/// let (s2, r2) = unbounded();
/// s2.send("two").unwrap();
///
/// let mut select = Select::new();
/// let first = select.recv(&r1);
/// let second = select.recv(&r2);
///
/// let chosen = select.select();
/// match chosen.index() {
///     i if i == first => println!("{}", chosen.recv(&r1).unwrap()),
///     i if i == second => assert_eq!(chosen.recv(&r2), Ok("two")),
///     _ => unreachable!(),
/// }
/// # let _s1: windlass::channel::Sender<&str> = s1;
/// ```
#[derive(Clone)]
pub struct Select<'a> {
    arms: Vec<Arm<'a>>,
    next_index: usize,
    biased: bool,
}

// SAFETY: it holds references to senders and receivers and uses their channels only under the
// channels' locks; a choice neither makes nor drops a message.
unsafe impl Send for Select<'_> {}
// SAFETY: as above.
unsafe impl Sync for Select<'_> {}

impl<'a> Select<'a> {
    /// Creates an empty list. If several operations are possible, one of them is selected at
    /// random.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// let mut select = Select::new();
    /// let index = select.recv(&r);
    /// s.send(1).unwrap();
    /// let chosen = select.select_timeout(Duration::from_secs(60)).unwrap();
    /// assert_eq!(chosen.index(), index);
    /// assert_eq!(chosen.recv(&r), Ok(1));
    /// ```
    pub fn new() -> Select<'a> {
        Select {
            arms: Vec::with_capacity(4),
            next_index: 0,
            biased: false,
        }
    }

    /// Creates an empty list. If several operations are possible, the one added first is selected.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, unbounded};
    ///
    /// let (s1, r1) = unbounded();
    /// let (s2, r2) = unbounded();
    /// s1.send(1).unwrap();
    /// s2.send(2).unwrap();
    ///
    /// let mut select = Select::new_biased();
    /// select.recv(&r1);
    /// select.recv(&r2);
    /// assert_eq!(select.ready(), 0);
    /// ```
    pub fn new_biased() -> Select<'a> {
        Select {
            biased: true,
            ..Select::new()
        }
    }

    /// Adds a send operation to the list and returns its index. The message is given later, to
    /// [`SelectedOperation::send`].
    ///
    /// ```
    /// let (s, _r) = windlass::channel::unbounded::<i32>();
    /// let mut select = windlass::channel::Select::new();
    /// assert_eq!(select.send(&s), 0);
    /// assert_eq!(select.send(&s), 1);
    /// ```
    pub fn send<T>(&mut self, s: &'a Sender<T>) -> usize {
        self.add(Arm::send(s))
    }

    /// Adds a receive operation to the list and returns its index.
    ///
    /// ```
    /// let (_s, r) = windlass::channel::unbounded::<i32>();
    /// let mut select = windlass::channel::Select::new();
    /// assert_eq!(select.recv(&r), 0);
    /// ```
    pub fn recv<T>(&mut self, r: &'a Receiver<T>) -> usize {
        self.add(Arm::recv(r))
    }

    fn add(&mut self, arm: Arm<'a>) -> usize {
        let index = self.next_index;
        self.arms.push(arm.called(index));
        self.next_index += 1;
        index
    }

    /// Removes an operation from the list. The indices of the other operations do not change.
    ///
    /// # Panics
    ///
    /// If the list has no operation with this index.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, unbounded};
    ///
    /// let (s1, r1) = unbounded::<i32>();
    /// let (_s2, r2) = unbounded::<i32>();
    /// let mut select = Select::new();
    /// let first = select.recv(&r1);
    /// let second = select.recv(&r2);
    ///
    /// drop(s1);
    /// let chosen = select.select();
    /// assert_eq!(chosen.index(), first);
    /// assert!(chosen.recv(&r1).is_err());
    /// // `r1` is disconnected: stop selecting it.
    /// select.remove(first);
    /// assert!(select.try_select().is_err());
    /// # let _ = second;
    /// ```
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        assert!(
            index < self.next_index,
            "index out of bounds; {index} >= {}",
            self.next_index
        );
        let at = self.arms.iter().position(|arm| arm.index == index);
        self.arms.remove(at.expect("no operation with this index"));
    }

    /// Selects an operation that is possible now.
    ///
    /// The operation must be completed: see [`SelectedOperation`].
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TrySelectError`] if no operation is possible.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, TrySelectError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
    /// s.send(1).unwrap();
    /// assert_eq!(select.try_select().unwrap().recv(&r), Ok(1));
    /// ```
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        try_select(&mut self.arms, self.biased)
    }

    /// Selects an operation, waiting until one is possible.
    ///
    /// The operation must be completed: see [`SelectedOperation`].
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Waits forever if the list is empty. An ambient
    /// [context](crate::context) does not end the wait: add a receive from
    /// [`Context::done`](crate::context::Context::done) instead. If the runtime shuts down, a
    /// waiting goroutine unwinds. In a destructor that runs during this unwinding, an operation is
    /// selected that fails.
    ///
    /// # Panics
    ///
    /// In a destructor that runs during a shutdown, if the list is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, bounded};
    ///
    /// let (s, r) = bounded(0);
    /// let sender = std::thread::spawn(move || {
    ///     let mut select = Select::new();
    ///     select.send(&s);
    ///     select.select().send(&s, "met")
    /// });
    /// assert_eq!(r.recv(), Ok("met"));
    /// assert_eq!(sender.join().unwrap(), Ok(()));
    /// ```
    pub fn select(&mut self) -> SelectedOperation<'a> {
        select(&mut self.arms, self.biased)
    }

    /// Selects an operation, waiting for at most `timeout`.
    ///
    /// The operation must be completed: see [`SelectedOperation`].
    ///
    /// # Blocking
    ///
    /// As [`Select::select`].
    ///
    /// # Errors
    ///
    /// [`SelectTimeoutError`] if no operation became possible in time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{Select, SelectTimeoutError, bounded};
    ///
    /// let (s, _r) = bounded::<i32>(0);
    /// let mut select = Select::new();
    /// select.send(&s);
    /// let selected = select.select_timeout(Duration::from_millis(5));
    /// assert_eq!(selected.unwrap_err(), SelectTimeoutError);
    /// ```
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        select_timeout(&mut self.arms, timeout, self.biased)
    }

    /// Selects an operation, waiting until `deadline` at the latest.
    ///
    /// The operation must be completed: see [`SelectedOperation`].
    ///
    /// # Blocking
    ///
    /// As [`Select::select`].
    ///
    /// # Errors
    ///
    /// As [`Select::select_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use windlass::channel::{Select, SelectTimeoutError, bounded};
    ///
    /// let (_s, r) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// assert_eq!(select.select_deadline(deadline).unwrap_err(), SelectTimeoutError);
    /// ```
    pub fn select_deadline(
        &mut self,
        deadline: impl Into<Instant>,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        let deadline_ns = clock::instant_ns(deadline.into());
        select_until(&mut self.arms, deadline_ns, self.biased)
    }

    /// Returns the index of an operation that is ready now: it would complete without waiting, or
    /// fail.
    ///
    /// Another goroutine or thread may make it unready again, so perform it with a `try_` method.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TryReadyError`] if no operation is ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, TryReadyError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// let mut select = Select::new();
    /// let index = select.recv(&r);
    /// assert_eq!(select.try_ready(), Err(TryReadyError));
    /// s.send(1).unwrap();
    /// assert_eq!(select.try_ready(), Ok(index));
    /// assert_eq!(r.try_recv(), Ok(1));
    /// ```
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        choice::try_once(&mut self.arms, SelectWait::Readiness, self.biased)
            .map(|(at, _)| self.arms[at].index)
            .ok_or(TryReadyError)
    }

    /// Waits until an operation is ready and returns its index: see [`Select::try_ready`].
    ///
    /// # Blocking
    ///
    /// As [`Select::select`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// std::thread::spawn(move || s.send(1).unwrap());
    /// let mut select = Select::new();
    /// let index = select.recv(&r);
    /// assert_eq!(select.ready(), index);
    /// assert_eq!(r.try_recv(), Ok(1));
    /// ```
    #[allow(
        clippy::missing_panics_doc,
        reason = "a wait without a deadline has an end"
    )]
    pub fn ready(&mut self) -> usize {
        self.ready_for_ever()
    }

    fn ready_for_ever(&mut self) -> usize {
        self.ready_until(NEVER)
            .expect("a wait without a deadline ends when an operation is ready")
    }

    /// Returns the index of an operation that is ready, waiting for at most `timeout`: see
    /// [`Select::try_ready`].
    ///
    /// # Blocking
    ///
    /// As [`Select::select`].
    ///
    /// # Errors
    ///
    /// [`ReadyTimeoutError`] if no operation became ready in time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{ReadyTimeoutError, Select, bounded};
    ///
    /// let (_s, r) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let ready = select.ready_timeout(Duration::from_millis(5));
    /// assert_eq!(ready, Err(ReadyTimeoutError));
    /// ```
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.ready_until(clock::deadline_ns(timeout))
            .ok_or(ReadyTimeoutError)
    }

    /// Returns the index of an operation that is ready, waiting until `deadline` at the latest: see
    /// [`Select::try_ready`].
    ///
    /// # Blocking
    ///
    /// As [`Select::select`].
    ///
    /// # Errors
    ///
    /// As [`Select::ready_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use windlass::channel::{Select, ReadyTimeoutError, bounded};
    ///
    /// let (_s, r) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// assert_eq!(select.ready_deadline(deadline), Err(ReadyTimeoutError));
    /// ```
    pub fn ready_deadline(
        &mut self,
        deadline: impl Into<Instant>,
    ) -> Result<usize, ReadyTimeoutError> {
        let deadline = deadline.into();
        self.ready_until(clock::instant_ns(deadline))
            .ok_or(ReadyTimeoutError)
    }

    fn ready_until(&mut self, deadline_ns: u64) -> Option<usize> {
        choice::wait(
            &mut self.arms,
            SelectWait::Readiness,
            self.biased,
            deadline_ns,
        )
        .map(|(at, _)| self.arms[at].index)
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Select::new()
    }
}

fmt_as!(Debug for Select<'_>, "Select { .. }");

/// A selected operation, which can be completed without waiting.
///
/// It must be completed by [`SelectedOperation::send`] or [`SelectedOperation::recv`], with the
/// same sender or receiver that was added to the [`Select`].
///
/// # Panics
///
/// Dropping it without completing it panics. If the thread is already unwinding, the drop instead
/// gives the selection back: a receiver that was promised this message waits for another one.
///
/// Forgetting it (`mem::forget`) gives nothing back: a message or a place of the channel is lost, and
/// a receiver that was promised the message waits for it until its deadline.
#[must_use = "it must be completed"]
pub struct SelectedOperation<'a> {
    arm: Arm<'a>,
    token: Decision,
    /// Makes the type `!Send`: the goroutine or thread that selected must complete the operation.
    _marker: PhantomData<*const ()>,
}

impl SelectedOperation<'_> {
    /// Returns the index of the selected operation.
    ///
    /// ```
    /// use windlass::channel::{Select, unbounded};
    ///
    /// let (s, _r) = unbounded();
    /// let mut select = Select::new();
    /// let index = select.send(&s);
    /// let chosen = select.select();
    /// assert_eq!(chosen.index(), index);
    /// chosen.send(&s, 1).unwrap();
    /// ```
    pub fn index(&self) -> usize {
        self.arm.index
    }

    /// Completes a send operation with `msg`.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the message, if all receivers were dropped.
    ///
    /// # Panics
    ///
    /// If `s` is not the sender that was selected.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// let mut select = Select::new();
    /// select.send(&s);
    /// select.select().send(&s, "message").unwrap();
    /// assert_eq!(r.recv(), Ok("message"));
    /// ```
    #[track_caller]
    pub fn send<T>(self, s: &Sender<T>, msg: T) -> Result<(), SendError<T>> {
        let is_same = ptr::addr_eq(s, self.arm.handle);
        assert!(is_same, "passed a sender that wasn't selected");
        let sent = match self.into_token() {
            Decision::Chosen => s.chan().complete_send(msg),
            Decision::Instant(_) | Decision::Disconnected => Err(msg),
        };
        sent.map_err(|msg| {
            note_disconnect();
            SendError(msg)
        })
    }

    /// Completes a receive operation and returns the message.
    ///
    /// # Blocking
    ///
    /// Only if the sender is a select, too: waits until that select has produced its message.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the channel is empty and all senders were dropped.
    ///
    /// # Panics
    ///
    /// If `r` is not the receiver that was selected.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{Select, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// s.send("message").unwrap();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.select().recv(&r), Ok("message"));
    /// ```
    #[track_caller]
    pub fn recv<T>(self, r: &Receiver<T>) -> Result<T, RecvError> {
        let is_same = ptr::addr_eq(r, self.arm.handle);
        assert!(is_same, "passed a receiver that wasn't selected");
        let received = match (self.into_token(), r.chan()) {
            (Decision::Instant(instant), _) => Ok(receiver::from_instant(instant)),
            (Decision::Chosen, Some(chan)) => chan.complete_recv(NEVER),
            _ => Err(Refused::Disconnected),
        };
        received.map_err(|_| {
            note_disconnect();
            RecvError
        })
    }

    fn into_token(self) -> Decision {
        let token = self.token;
        std::mem::forget(self);
        token
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if let Decision::Chosen = self.token {
            self.arm.handle.abandon();
        }
        if !std::thread::panicking() {
            panic!("dropped `SelectedOperation` without completing the operation");
        }
    }
}

fmt_as!(Debug for SelectedOperation<'_>, "SelectedOperation { .. }");

// Used by the macros.

impl<'a> Arm<'a> {
    #[doc(hidden)]
    pub fn send<T>(s: &'a Sender<T>) -> Arm<'a> {
        Arm {
            handle: s,
            index: 0,
        }
    }

    #[doc(hidden)]
    pub fn recv<T>(r: &'a Receiver<T>) -> Arm<'a> {
        Arm {
            handle: r,
            index: 0,
        }
    }

    #[doc(hidden)]
    pub fn called(self, index: usize) -> Arm<'a> {
        Arm { index, ..self }
    }
}

fn selected<'a>(arms: &[Arm<'a>], (at, token): (usize, Decision)) -> SelectedOperation<'a> {
    SelectedOperation {
        arm: arms[at],
        token,
        _marker: PhantomData,
    }
}

#[doc(hidden)]
pub fn try_select<'a>(
    arms: &mut [Arm<'a>],
    biased: bool,
) -> Result<SelectedOperation<'a>, TrySelectError> {
    match choice::try_once(arms, SelectWait::Choice, biased) {
        Some(chosen) => Ok(selected(arms, chosen)),
        None => Err(TrySelectError),
    }
}

#[doc(hidden)]
pub fn select<'a>(arms: &mut [Arm<'a>], biased: bool) -> SelectedOperation<'a> {
    select_until(arms, NEVER, biased).expect("a wait without a deadline ends with a choice")
}

#[doc(hidden)]
pub fn select_timeout<'a>(
    arms: &mut [Arm<'a>],
    timeout: Duration,
    biased: bool,
) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
    select_until(arms, clock::deadline_ns(timeout), biased)
}

fn select_until<'a>(
    arms: &mut [Arm<'a>],
    deadline_ns: u64,
    biased: bool,
) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
    match choice::wait(arms, SelectWait::Choice, biased, deadline_ns) {
        Some(chosen) => Ok(selected(arms, chosen)),
        None => Err(SelectTimeoutError),
    }
}
