//! Readings that are added.

use std::time::Duration;

/// A reading of counters, to which another is added.
pub(super) trait Sum {
    fn add(&mut self, other: &Self);
}

impl Sum for u64 {
    fn add(&mut self, other: &u64) {
        *self += other;
    }
}

impl Sum for Duration {
    fn add(&mut self, other: &Duration) {
        *self += *other;
    }
}

/// A struct of readings, which is added field by field.
macro_rules! sums {
    (
        $(#[$attribute:meta])*
        pub struct $type:ident {
            $($(#[$doc:meta])* pub $field:ident: $of:ty,)+
        }
    ) => {
        $(#[$attribute])*
        pub struct $type {
            $($(#[$doc])* pub $field: $of,)+
        }

        impl Sum for $type {
            fn add(&mut self, other: &$type) {
                $(self.$field.add(&other.$field);)+
            }
        }
    };
}
pub(super) use sums;
