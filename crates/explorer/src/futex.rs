//! Futexes: waits and wakes of the controller, named by the address of a word.

use super::atomic::sync_atomic::AtomicU32;
use super::control::{Key, deadline, me, point, wait, with};
use super::log::What;

/// `FUTEX_WAIT`.
#[track_caller]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    point(What::Wait);
    let Some(me) = me() else {
        return std::thread::yield_now();
    };
    if word.peek() == expected {
        let key = Key::Address(std::ptr::from_ref(word).addr());
        wait(me, key, deadline(timeout_ns));
    }
}

/// `FUTEX_WAKE` of one.
#[track_caller]
pub fn futex_wake_one(word: *const AtomicU32) {
    point(What::Wake);
    if me().is_some() {
        with(|c| c.wake(Key::Address(word.addr()), 1));
    }
}
