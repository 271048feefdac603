//! `Debug` and `Display` as a text: of errors, and of types whose parts say nothing or cannot be read
//! without a lock.

/// Implements `Debug` or `Display` for a type as a text, which may depend on the value. Generic
/// parameters stand before it, in brackets.
macro_rules! fmt_as {
    ($([$($param:tt)*])? $trait:ident for $type:ty, |$this:ident| $text:expr) => {
        impl<$($($param)*)?> std::fmt::$trait for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.pad($text)
            }
        }
    };
    ($([$($param:tt)*])? $trait:ident for $type:ty, $text:expr) => {
        $crate::util::fmt_as::fmt_as!($([$($param)*])? $trait for $type, |_this| $text);
    };
}
pub(crate) use fmt_as;
