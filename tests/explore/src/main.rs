//! Scenarios for the explorer: small programs of the public interface, whose threads it runs in
//! orders of its own (`make explore`; crates/explorer/src/lib.rs tells how).

#[cfg(explore)]
mod freed;
#[cfg(explore)]
mod scenarios;

#[cfg(explore)]
#[global_allocator]
static MEMORY: freed::Freed = freed::Freed;

#[cfg(explore)]
fn main() -> std::process::ExitCode {
    windlass::explore::main(scenarios::ALL, &scenarios::BROKEN, scenarios::prepare)
}

#[cfg(not(explore))]
fn main() -> std::process::ExitCode {
    eprintln!("explore: build this with RUSTFLAGS=\"--cfg explore\", as `make explore` does");
    std::process::ExitCode::from(2)
}
