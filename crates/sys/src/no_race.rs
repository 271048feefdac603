//! Replaces `race.rs` in builds without the feature `race`, and where the sanitizer's target does not exist: these
//! functions do nothing.
#![allow(missing_docs, reason = "that of `race.rs`")]

use std::ops::Range;

#[derive(Debug)]
pub struct Fiber;

#[derive(Debug)]
pub struct From;

impl Fiber {
    #[inline(always)]
    pub fn begin<'a>(&self, _: u64, _: impl FnOnce() -> Option<&'a str>) {}

    #[inline(always)]
    pub fn renew<'a>(&self, _: u64, _: impl FnOnce() -> Option<&'a str>) {}

    #[inline(always)]
    pub fn end(&self) {}

    #[inline(always)]
    pub fn enter(&self) -> From {
        From
    }
}

impl From {
    #[inline(always)]
    pub fn back(self) {}
}

#[inline(always)]
pub fn enter_runtime() {}

#[inline(always)]
pub fn leave_runtime() {}

#[derive(Debug)]
#[must_use = "its drop leaves the runtime"]
pub struct InRuntime(());

impl InRuntime {
    #[inline(always)]
    pub fn enter() -> InRuntime {
        InRuntime(())
    }
}

#[inline(always)]
pub fn begin_m<T>(_: &T) {}

#[inline(always)]
pub fn end_m() {}

#[inline(always)]
pub fn switches_out<T>(_: *mut T) {}

#[inline(always)]
pub fn commit_for<T, R>(_: *mut T, f: impl FnOnce() -> R) -> R {
    f()
}

#[inline(always)]
pub fn readies<T>(_: *mut T) {}

#[inline(always)]
pub fn goes_on<T, M>(_: *mut T, _: *const M) {}

#[inline(always)]
pub fn ends() {}

#[inline(always)]
pub fn renew(_: impl FnOnce() -> Range<usize>) {}

/// Whether the feature was asked for, and has no effect.
pub fn is_in_vain() -> bool {
    cfg!(feature = "race")
}

#[inline(always)]
pub fn sends() {}

#[derive(Debug)]
#[must_use = "its drop is the order"]
pub struct Receives;

#[inline(always)]
pub fn receives() -> Receives {
    Receives
}
