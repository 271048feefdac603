//! In the place of `turn` without the feature `sim`.

use crate::g::header::GRef;
use crate::sched::types::m::M;
use crate::sched::types::simulation::Simulation;

#[inline(always)]
pub(crate) fn must_switch(_: &M, sim: &Simulation) -> bool {
    match *sim {}
}

#[inline(always)]
pub(crate) fn count_late(sim: &Simulation, _: GRef, _: u64) {
    match *sim {}
}

#[inline(always)]
pub(crate) fn block_thread(_: u64) -> bool {
    false
}
