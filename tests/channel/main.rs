//! Channels and select.

#[path = "../util/both.rs"]
mod both;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod broadcast;
mod channel;
mod leaks;
mod oneshot;
mod select;
mod watch;

#[cfg(feature = "sim")]
inside::files! {
    broadcast
    channel
    leaks
    oneshot
    select
    watch
}
