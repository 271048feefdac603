//! Permits that keep their semaphore alive, so that they may go wherever a value may.

use std::sync::Arc;
use std::time::Duration;

use windlass_ground::std_traits::debug_fields;

use super::semaphore::{
    AcquireError, AcquireTimeoutError, Semaphore, SemaphorePermit, TryAcquireError,
};
use super::tag::Tag;

/// Acquired permits of a [`Semaphore`] in an [`Arc`]. Dropping it returns them to the semaphore.
///
/// It borrows nothing: a goroutine that is spawned can take it along. Made by
/// [`Semaphore::acquire_owned`].
#[must_use = "if unused the permits are given back at once"]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    n: usize,
    _tag: Tag,
}

impl Semaphore {
    /// As [`Semaphore::acquire`], with a permit that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Examples
    ///
    /// The caller waits until one of two slots is free, and then spawns:
    ///
    /// ```
    /// use windlass::sync::{Arc, Semaphore};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let slots = Arc::new(Semaphore::new(2));
    ///     for _ in 0..10 {
    ///         let slot = slots.acquire_owned(1).unwrap();
    ///         windlass::spawn(move || {
    ///             windlass::yield_now();
    ///             drop(slot);
    ///         });
    ///     }
    ///     let _all = slots.acquire(2).unwrap(); // the last ones have ended
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn acquire_owned(self: &Arc<Self>, n: usize) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire(n).map(|permit| self.own(permit))
    }

    /// As [`Semaphore::try_acquire`], with a permit that borrows nothing.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Semaphore, TryAcquireError};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.try_acquire_owned(1).unwrap();
    /// assert_eq!(semaphore.try_acquire_owned(1).unwrap_err(), TryAcquireError::NoPermits);
    /// assert!(Arc::ptr_eq(permit.semaphore(), &semaphore));
    /// ```
    pub fn try_acquire_owned(
        self: &Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire(n).map(|permit| self.own(permit))
    }

    /// As [`Semaphore::acquire_timeout`], with a permit that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::{AcquireTimeoutError, Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(0));
    /// let acquired = semaphore.acquire_owned_timeout(1, Duration::from_millis(1));
    /// assert_eq!(acquired.unwrap_err(), AcquireTimeoutError::Timeout);
    /// ```
    pub fn acquire_owned_timeout(
        self: &Arc<Self>,
        n: usize,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        self.acquire_timeout(n, timeout)
            .map(|permit| self.own(permit))
    }

    /// Makes a borrowed permit of this semaphore an owned one.
    pub(crate) fn own(self: &Arc<Self>, permit: SemaphorePermit<'_>) -> OwnedSemaphorePermit {
        let n = permit.num_permits();
        permit.forget();
        OwnedSemaphorePermit {
            semaphore: Arc::clone(self),
            n,
            _tag: self.tag(),
        }
    }
}

impl OwnedSemaphorePermit {
    /// Number of permits held. See [`OwnedSemaphorePermit::split`] for an example.
    #[must_use]
    pub fn num_permits(&self) -> usize {
        self.n
    }

    /// The semaphore that the permits belong to. See [`Semaphore::try_acquire_owned`] for an
    /// example.
    #[must_use]
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// Forgets the permits: they are never returned to the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// semaphore.acquire_owned(1).unwrap().forget();
    /// assert_eq!(semaphore.available_permits(), 2);
    /// assert_eq!(Arc::strong_count(&semaphore), 1);
    /// ```
    pub fn forget(mut self) {
        self.n = 0;
    }

    /// Splits off `n` of the permits; `None` if there are fewer than `n`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// let mut permits = semaphore.acquire_owned(3).unwrap();
    /// let one = permits.split(1).unwrap();
    /// assert_eq!((permits.num_permits(), one.num_permits()), (2, 1));
    /// permits.merge(one);
    /// assert_eq!(permits.num_permits(), 3);
    /// assert!(permits.split(4).is_none());
    /// ```
    #[must_use]
    pub fn split(&mut self, n: usize) -> Option<OwnedSemaphorePermit> {
        self.n = self.n.checked_sub(n)?;
        Some(OwnedSemaphorePermit {
            semaphore: Arc::clone(&self.semaphore),
            n,
            _tag: self.semaphore.tag(),
        })
    }

    /// Merges permits of the same semaphore into these. See [`OwnedSemaphorePermit::split`] for an
    /// example.
    ///
    /// # Panics
    ///
    /// If `other` belongs to another semaphore, or if the sum exceeds `usize::MAX`.
    #[track_caller]
    pub fn merge(&mut self, mut other: OwnedSemaphorePermit) {
        assert!(
            Arc::ptr_eq(&self.semaphore, &other.semaphore),
            "merging permits of different semaphores"
        );
        let sum = self.n.checked_add(other.n);
        self.n = sum.expect("too many permits in one OwnedSemaphorePermit");
        other.n = 0;
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.semaphore.give_back(self.n);
    }
}

debug_fields!(OwnedSemaphorePermit, |this| permits: this.n, ..);
