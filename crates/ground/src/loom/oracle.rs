//! Reports of the runtime to the explorer's oracle; empty in normal builds.

#[cfg(explore)]
pub(crate) use windlass_explorer::oracle::{
    commit_is_over, commits, committed, dies, forgets, holds, lives, may_help, must, ran, runs,
    runs_on, slots, stacks, touches,
};

#[cfg(not(explore))]
pub(crate) use silent::{
    commit_is_over, commits, committed, holds, lives, may_help, ran, runs, runs_on, slots, stacks,
    touches,
};

#[cfg(not(explore))]
mod silent {
    #[inline(always)]
    pub(crate) fn holds<M, A, P>(_: *const M, _: &A, _: *const P) {}

    #[inline(always)]
    pub(crate) fn runs_on(_: impl FnOnce() -> usize) {}

    #[inline(always)]
    pub(crate) fn runs<M, P, G>(
        _: *const M,
        _: impl FnOnce() -> (*const P, *const G, bool),
        _: &[u32],
    ) {
    }

    #[inline(always)]
    pub(crate) fn ran<M>(_: *const M) {}

    #[inline(always)]
    pub(crate) fn commits<M, G>(_: *const M, _: *const G) {}

    #[inline(always)]
    pub(crate) fn committed<M>(_: *const M) {}

    #[inline(always)]
    pub(crate) fn commit_is_over<G>(_: *const G) {}

    #[inline(always)]
    pub(crate) fn may_help() -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn lives<T>(_: *const T) {}

    #[inline(always)]
    pub(crate) fn touches<T>(_: *const T) {}

    #[inline(always)]
    pub(crate) fn stacks(_: isize) {}

    #[inline(always)]
    pub(crate) fn slots(_: isize) {}
}
