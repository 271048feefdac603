//! No bench: prints one table of what the other benches of the same `cargo bench` have measured.

fn main() {
    windlass_benches::summary::after_all();
}
