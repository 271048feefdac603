//! Enumerations that are stored as numbers.

/// Defines an enumeration whose variants are numbered from 0, and `ALL`, which has them in that order.
#[macro_export]
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        $visibility enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            const ALL: [$name; [$(stringify!($variant)),+].len()] = [$($name::$variant),+];
        }
    };
}
pub use numbered;
