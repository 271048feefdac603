//! Replaces `race.rs` in builds without the feature `race`, and where the sanitizer's target does not exist: these
//! functions do nothing.

use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Fiber;

#[derive(Debug)]
pub(crate) struct From;

impl Fiber {
    #[inline(always)]
    pub(crate) fn begin<'a>(&self, _: u64, _: impl FnOnce() -> Option<&'a str>) {}

    #[inline(always)]
    pub(crate) fn renew<'a>(&self, _: u64, _: impl FnOnce() -> Option<&'a str>) {}

    #[inline(always)]
    pub(crate) fn end(&self) {}

    #[inline(always)]
    pub(crate) fn enter(&self) -> From {
        From
    }
}

impl From {
    #[inline(always)]
    pub(crate) fn back(self) {}
}

#[inline(always)]
pub(crate) fn enter_runtime() {}

#[inline(always)]
pub(crate) fn leave_runtime() {}

#[derive(Debug)]
#[must_use = "its drop leaves the runtime"]
pub(crate) struct InRuntime(());

impl InRuntime {
    #[inline(always)]
    pub(crate) fn enter() -> InRuntime {
        InRuntime(())
    }
}

#[inline(always)]
pub(crate) fn begin_m<T>(_: &T) {}

#[inline(always)]
pub(crate) fn end_m() {}

#[inline(always)]
pub(crate) fn switches_out<T>(_: *mut T) {}

#[inline(always)]
pub(crate) fn commit_for<T, R>(_: *mut T, f: impl FnOnce() -> R) -> R {
    f()
}

#[inline(always)]
pub(crate) fn readies<T>(_: *mut T) {}

#[inline(always)]
pub(crate) fn goes_on<T, M>(_: *mut T, _: *const M) {}

#[inline(always)]
pub(crate) fn ends() {}

#[inline(always)]
pub(crate) fn renew(_: impl FnOnce() -> Range<usize>) {}

/// Whether the feature was asked for, and has no effect.
pub(crate) fn is_in_vain() -> bool {
    cfg!(feature = "race")
}

#[inline(always)]
pub(crate) fn sends() {}

#[derive(Debug)]
#[must_use = "its drop is the order"]
pub(crate) struct Receives;

#[inline(always)]
pub(crate) fn receives() -> Receives {
    Receives
}
