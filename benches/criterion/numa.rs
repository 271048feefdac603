//! The policies for NUMA nodes: see `windlass_benches::numa`.

fn main() {
    windlass_benches::numa::main();
}
