//! Draws among alternatives that are equally correct.
//!
//! In a simulation its seed decides, so that the run can be repeated. Elsewhere a fair draw takes the
//! generator of the caller's P ([`below`]), and a choice with a usual alternative takes that one
//! ([`unusual`]); the feature `chaos` perturbs points of its own ([`super::chaos`]).

use windlass_ground::random::{self, Random};

use crate::bubble;

/// A number below `n`, which is not 0. `own` is the generator of the caller's P, if it has one.
#[inline]
pub(crate) fn below(n: usize, own: Option<&Random>) -> usize {
    bubble::below(n).unwrap_or_else(|| match own {
        Some(own) => own.below(n),
        None => random::shared_below(n),
    })
}

/// One of `n` alternatives, `n` not 0, of which 0 is the usual one: another one in simulations only.
#[inline]
pub(crate) fn unusual(n: usize) -> usize {
    bubble::below(n).unwrap_or(0)
}
