//! Skynet: a million goroutines in a tree of fan-out ten, each leaf gives its
//! number, each node the sum of its children.
//!
//! ```text
//! cargo run --release --example skynet [LEAVES] [PROCS]
//! ```

use std::time::Instant;

fn skynet(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let part = leaves / 10;
    let children: [_; 10] = std::array::from_fn(|i| {
        let first = first + i as u64 * part;
        windlass::spawn(move || skynet(first, part))
    });
    children.into_iter().map(|c| c.join().expect("a child ends")).sum()
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1).map(|a| a.parse().expect("a number"));
    let leaves: u64 = args.next().unwrap_or(1_000_000);
    let mut builder = windlass::Builder::new();
    if let Some(n) = args.next() {
        builder = builder.processors(n as usize);
    }
    // SAFETY: nothing here keeps a thread-local borrow across a call that parks.
    #[allow(unsafe_code)]
    let rt = unsafe { builder.build()? };
    rt.run(|| {
        for _ in 0..5 {
            let start = Instant::now();
            let sum = skynet(0, leaves);
            println!("sum {sum} in {:?}", start.elapsed());
        }
    });
    println!("{:?}", rt.metrics().total());
    println!("stacks {}", rt.metrics().stacks);
    Ok(())
}
