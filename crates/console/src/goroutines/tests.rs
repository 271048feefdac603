#![allow(unsafe_code)]

use super::*;

/// However many goroutines there are, a list has a size, and says what it leaves out.
#[windlass::test(unsafe(no_thread_local_across_waits))]
fn lists_are_bounded() {
    let handle = windlass::Handle::current();
    for i in 0..50 {
        let named = windlass::task::Builder::new().label(format!("label {i}"));
        drop(named.spawn(windlass::task::park).unwrap());
    }
    let is_parked = |g: &Goroutine| g.wait_reason == Some("park");
    while handle.goroutines().into_iter().filter(is_parked).count() < 50 {
        windlass::yield_now();
    }
    let list =
        |list: fn(Dump, usize, usize) -> String, limit, most| list(handle.dump(), limit, most);
    const ALL: usize = usize::MAX;
    for f in [grouped, one_by_one, json] {
        let whole = list(f, ALL, ALL);
        assert!(
            whole.contains("label 0") && whole.contains("label 49"),
            "{whole}"
        );
        assert!(!whole.contains("left out"), "{whole}");
        let limited = list(f, 3, ALL);
        assert!(limited.len() < whole.len() / 3, "{limited}");
        // A line more says so.
        let most = whole.len() / 2;
        let cut = list(f, ALL, most);
        assert!(most / 2 < cut.len() && cut.len() < most + 200, "{cut}");
    }
    for (f, what) in [
        (grouped as fn(_, _, _) -> _, "stacks"),
        (one_by_one, "goroutines"),
    ] {
        let text = list(f, 3, ALL);
        assert!(
            text.contains(&format!("48 more {what} are left out")),
            "{text}"
        );
        let cut = list(f, ALL, 40);
        assert!(
            cut.contains(&format!("51 more {what} are left out")),
            "{cut}"
        );
    }
    let cut: serde_json::Value = serde_json::from_str(&list(json, ALL, 5_000)).unwrap();
    let n_shown = cut["goroutines"].as_array().unwrap().len();
    assert!((1..50).contains(&n_shown), "{cut}");
    assert_eq!(cut["total"], 51);
}

/// The name of the runtime is whatever the program says.
#[test]
fn entries_are_not_taken_from_names() {
    let name = "odd\u{1b}\n\ngoroutine 1 [running]:\n\ngoroutine 2";
    let builder = windlass::Builder::new().name(name).processors(1);
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    let rt = unsafe { builder.build() }.unwrap();
    let handle = rt.handle();
    rt.run(|| {
        for most in [0, 10, name.len(), name.len() + 20, usize::MAX] {
            let n_left = if most == usize::MAX { 0 } else { 1 };
            let list = one_by_one(handle.dump(), usize::MAX, most);
            let says = list.contains(&format!("\n{n_left} more goroutines are left out"));
            assert_eq!(says, n_left > 0, "{most}: {list}");
            assert!(!list.contains('\u{1b}'), "{list}");
        }
    });
}

/// Calls itself so often, and parks.
#[inline(never)]
fn parks_deep(depth: usize) {
    match depth {
        0 => windlass::task::park(),
        _ => parks_deep(std::hint::black_box(depth - 1)),
    }
    std::hint::black_box(depth);
}

/// The calls of a recursion have the same address, as functions have that were inlined into one another.
#[windlass::test(unsafe(no_thread_local_across_waits))]
fn each_call_of_a_recursion_is_a_location() {
    let handle = windlass::Handle::current();
    for depth in [3, 30] {
        let parks = windlass::spawn(move || parks_deep(depth));
        let is_parked = |g: &&Goroutine| g.wait_reason == Some("park");
        let dump = loop {
            let dump = handle.dump();
            if dump.goroutines.iter().any(|g| is_parked(&g)) {
                break dump;
            }
            windlass::yield_now();
        };
        let g = dump.goroutines.iter().find(is_parked).unwrap();
        let is_call = |frame: &Frame| {
            let name = frame.function.as_deref();
            name.is_some_and(|name| name.ends_with("parks_deep"))
        };
        let sizes: Vec<_> = calls(g.frames())
            .map(|frames| frames.iter().filter(|frame| is_call(frame)).count())
            .filter(|&n| n > 0)
            .collect();
        assert_eq!(sizes, vec![1; depth + 1], "{dump}");
        assert_eq!(calls(g.frames()).flatten().count(), g.frames().len());
        parks.task().unpark();
        parks.join().unwrap();
    }
}
