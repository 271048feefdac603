//! Throughput on more and more CPUs: see `windlass_benches::scale`.

fn main() {
    windlass_benches::scale::main();
}
