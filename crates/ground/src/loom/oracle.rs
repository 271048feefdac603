//! Reports of the runtime to the explorer's oracle; empty in normal builds.

#[cfg(explore)]
pub use windlass_explorer::oracle::{
    commit_is_over, commits, committed, dies, forgets, holds, lives, may_help, must, ran, runs,
    runs_on, slots, stacks, theft, touches,
};

#[cfg(not(explore))]
pub use silent::{
    commit_is_over, commits, committed, holds, lives, may_help, ran, runs, runs_on, slots, stacks,
    theft, touches,
};

#[cfg(not(explore))]
#[allow(missing_docs, reason = "the explorer's functions have it")]
mod silent {
    #[inline(always)]
    #[allow(
        unsafe_code,
        clippy::missing_safety_doc,
        reason = "the explorer's function has it"
    )]
    pub unsafe fn holds<M, A, P>(_: *const M, _: &A, _: *const P) {}

    #[inline(always)]
    pub fn runs_on(_: impl FnOnce() -> usize) {}

    #[inline(always)]
    pub fn runs<M, P, G>(_: *const M, _: impl FnOnce() -> (*const P, *const G, bool), _: &[u32]) {}

    #[inline(always)]
    pub fn ran<M>(_: *const M) {}

    #[inline(always)]
    pub fn commits<M, G>(_: *const M, _: *const G) {}

    #[inline(always)]
    pub fn committed<M>(_: *const M) {}

    #[inline(always)]
    pub fn commit_is_over<G>(_: *const G) {}

    #[inline(always)]
    pub fn may_help() -> bool {
        true
    }

    #[inline(always)]
    pub fn lives<T>(_: *const T) {}

    #[inline(always)]
    pub fn touches<T>(_: *const T) {}

    #[inline(always)]
    pub fn theft<T>(attempt: impl FnOnce() -> Option<T>) -> Option<T> {
        attempt()
    }

    #[inline(always)]
    pub fn stacks(_: isize) {}

    #[inline(always)]
    pub fn slots(_: isize) {}
}
