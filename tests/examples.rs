//! The servers among the examples, each in this process with the code that the example
//! has, against clients of other makers and against raw bytes.

mod util;

#[path = "../examples/support/accept.rs"]
mod accept;
#[path = "../examples/support/linger.rs"]
mod linger;
#[path = "../examples/resp/mod.rs"]
mod resp;

#[path = "examples/resp.rs"]
mod resp_server;
#[path = "examples/server.rs"]
mod server;
