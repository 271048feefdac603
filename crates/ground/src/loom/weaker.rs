//! loom's atomics, of which one access can be made weaker than the code says (`cfg(orders)`): `make orders` so finds the
//! model that notices.
//!
//! `WINDLASS_WEAKER` names the access and its order: `src/g/status.rs:290:14 swap AcqRel`, and `None` for a fence that
//! is left out. A compare-exchange is two accesses, of which the second is called `failure`. With `list` the
//! accesses that run are printed instead.
//!
//! `WINDLASS_CPU=x86` models what the code rests on there: a sequentially consistent store, and each read-modify-write that
//! both acquires and releases, is a full barrier, and [`super::after_seq_cst`] is none.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::panic::Location;
use std::sync::{LazyLock, Mutex};

use ::loom::sync::atomic as strong;
use strong::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

struct Change {
    file: String,
    line: u32,
    column: u32,
    access: String,
    order: Option<Ordering>,
}

static CHANGE: LazyLock<Option<Change>> = LazyLock::new(|| {
    let text = std::env::var("WINDLASS_WEAKER").ok()?;
    let mut words = text.split([':', ' ']);
    let mut next = || words.next().map(str::to_owned);
    Some(Change {
        file: next()?,
        line: next()?.parse().ok()?,
        column: next()?.parse().ok()?,
        access: next()?,
        order: match next()?.as_str() {
            "SeqCst" => Some(SeqCst),
            "AcqRel" => Some(AcqRel),
            "Acquire" => Some(Acquire),
            "Release" => Some(Release),
            "Relaxed" => Some(Relaxed),
            _ => None,
        },
    })
});
static LISTS: LazyLock<bool> =
    LazyLock::new(|| std::env::var("WINDLASS_WEAKER").is_ok_and(|v| v == "list"));
static IS_X86: LazyLock<bool> =
    LazyLock::new(|| std::env::var("WINDLASS_CPU").is_ok_and(|v| v == "x86"));
static LISTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The order of an access of the caller; `None` for a fence that is left out.
#[track_caller]
fn order(access: &str, named: Ordering) -> Option<Ordering> {
    let at = Location::caller();
    if *LISTS && LISTED.lock().unwrap().insert(format!("{at} {access}")) {
        println!("order {at} {access} {named:?}");
    }
    let is_changed = |c: &&Change| {
        (c.line, c.column) == (at.line(), at.column()) && c.access == access && c.file == at.file()
    };
    match CHANGE.as_ref().filter(is_changed) {
        Some(change) => change.order,
        None => Some(named),
    }
}

#[track_caller]
fn order_of(access: &str, named: Ordering) -> Ordering {
    order(access, named).expect("only fences can be left out")
}

/// A fence.
#[track_caller]
pub fn fence(named: Ordering) {
    order("fence", named).into_iter().for_each(strong::fence);
}

pub(super) fn is_x86() -> bool {
    *IS_X86
}

fn x86_barrier(is_barrier: bool) {
    if is_x86() && is_barrier {
        strong::fence(SeqCst);
    }
}

/// A read-modify-write.
#[track_caller]
fn update<R>(access: &str, named: Ordering, f: impl FnOnce(Ordering) -> R) -> R {
    let order = order_of(access, named);
    let is_barrier = matches!(order, AcqRel | SeqCst);
    x86_barrier(is_barrier);
    let result = f(order);
    x86_barrier(is_barrier);
    result
}

/// An atomic of the back end.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Weaker<A>(A);

impl<A> Deref for Weaker<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

macro_rules! exchange {
    ($exchange:ident, $value:ty) => {
        #[track_caller]
        pub fn $exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            let failure = order_of("failure", failure);
            update(stringify!($exchange), success, |order| {
                self.0.$exchange(current, new, order, failure)
            })
        }
    };
}

macro_rules! atomic {
    ($name:ident $(<$T:ident>)?, $value:ty, $($update:ident)*) => {
        pub type $name $(<$T>)? = Weaker<strong::$name $(<$T>)?>;

        #[allow(dead_code)]
        impl $(<$T>)? Weaker<strong::$name $(<$T>)?> {
            pub fn new(value: $value) -> Self {
                Weaker(strong::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, named: Ordering) -> $value {
                self.0.load(order_of("load", named))
            }

            #[track_caller]
            pub fn store(&self, value: $value, named: Ordering) {
                let order = order_of("store", named);
                self.0.store(value, order);
                x86_barrier(order == SeqCst);
            }

            exchange!(compare_exchange, $value);
            exchange!(compare_exchange_weak, $value);

            $(
                #[track_caller]
                pub fn $update(&self, value: $value, named: Ordering) -> $value {
                    update(stringify!($update), named, |order| self.0.$update(value, order))
                }
            )*
        }
    };
}

atomic!(AtomicU32, u32, swap fetch_add fetch_sub fetch_or fetch_and);
atomic!(AtomicU64, u64, swap fetch_add fetch_sub fetch_or fetch_and);
atomic!(AtomicUsize, usize, fetch_add fetch_sub);
atomic!(AtomicPtr<T>, *mut T, swap);
