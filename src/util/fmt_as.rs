//! `Debug` and `Display` of errors, and of types whose parts say nothing or cannot be read without a
//! lock: as a text, or as a struct of a few values.

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

/// Implements `Debug` for a type as a struct of the named values. Two dots at the end say that it has
/// more. Generic parameters stand before it, in brackets.
macro_rules! debug_fields {
    (@$finish:ident $(($($param:tt)*))? $name:ident $(<$($arg:tt),+>)?, $this:ident,
     $($field:ident: $value:expr),+) => {
        impl $(<$($param)*>)? std::fmt::Debug for $name $(<$($arg),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut fields = f.debug_struct(stringify!($name));
                $(fields.field(stringify!($field), &$value);)+
                fields.$finish()
            }
        }
    };
    ($([$($param:tt)*])? $name:ident $(<$($arg:tt),+>)?, |$this:ident|
     $($field:ident: $value:expr),+ , ..) => {
        $crate::util::fmt_as::debug_fields!(@finish_non_exhaustive
            $(($($param)*))? $name $(<$($arg),+>)?, $this, $($field: $value),+);
    };
    ($([$($param:tt)*])? $name:ident $(<$($arg:tt),+>)?, |$this:ident|
     $($field:ident: $value:expr),+) => {
        $crate::util::fmt_as::debug_fields!(@finish
            $(($($param)*))? $name $(<$($arg),+>)?, $this, $($field: $value),+);
    };
}
pub(crate) use debug_fields;
