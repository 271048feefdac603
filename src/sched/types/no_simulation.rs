//! In the place of `simulation` without the feature `sim`: no M carries one out.

use super::events::Event;
use crate::bubble::absent;
use crate::g::header::GRef;

absent! { Simulation {
    fn is_over() -> bool;
    fn is_late() -> bool;
    fn record(Event) -> bool;
    fn introduce(GRef);
} }
