//! Keys of task-locals, as constants that look alike, in a program of their own: the test
//! `task_local::keys_that_look_alike_are_told_apart` builds it with fat LTO, which merges
//! them. It consists of the library's own files for keys and values; what they need of the
//! scheduler is below.
#![allow(dead_code, unused_imports, clippy::print_stdout)]

#[path = "../../src/task/local.rs"]
mod local;
#[path = "../../crates/ground/src/local_values.rs"]
mod local_values;
#[path = "../../src/g/goroutine_locals.rs"]
mod own_file;
#[path = "../../crates/ground/src/std_traits.rs"]
mod std_traits;

extern crate self as windlass_ground;

mod g {
    pub(crate) use crate::own_file as goroutine_locals;
}

mod task {
    pub(crate) use crate::local::{AccessError, LocalKey};
}

mod sched {
    pub(crate) mod wait {
        pub(crate) mod park {
            use crate::g::goroutine_locals::GoroutineLocals;

            /// State that the one thread owns.
            pub(crate) fn locals<'a>() -> Option<&'a GoroutineLocals> {
                thread_local!(static OWN: &'static GoroutineLocals = Box::leak(Box::new(GoroutineLocals::new())));
                Some(OWN.with(|own| *own))
            }
        }
    }
}

use std::cell::Cell;
use std::marker::PhantomData;

use task::LocalKey;

/// One function for each type, all of the same code.
fn nothing<T>() -> Cell<Option<Box<T>>> {
    Cell::new(None)
}

struct Keys<T>(PhantomData<T>);

impl<T: 'static> Keys<T> {
    const KEY: &'static LocalKey<Cell<Option<Box<T>>>> = &LocalKey::new(nothing::<T>);
}

fn main() {
    let (number, string, bytes) = (Keys::<u64>::KEY, Keys::<String>::KEY, Keys::<Vec<u8>>::KEY);
    let addresses = [
        std::ptr::from_ref(number).addr(),
        std::ptr::from_ref(string).addr(),
        std::ptr::from_ref(bytes).addr(),
    ];
    let merged = addresses.iter().all(|&a| a == addresses[0]);
    println!("merged: {merged}");

    number.set(Some(Box::new(0x4141)));
    bytes.set(Some(Box::new(vec![0xff; 10])));
    assert!(string.take().is_none(), "a String that nobody made");
    string.set(Some(Box::new("a string".to_owned())));
    assert_eq!(number.take().as_deref(), Some(&0x4141));
    assert_eq!(bytes.take().as_deref(), Some(&vec![0xff; 10]));
    assert_eq!(
        string.take().as_deref().map(String::as_str),
        Some("a string")
    );
    println!("told apart");
}
