//! Contexts, and the waits that they end.

#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod context;
mod ended_waits;

#[cfg(feature = "sim")]
inside::files! {
    context
    ended_waits
}
