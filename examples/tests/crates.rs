//! Tests of the examples over crates of others, in this process, with the examples' own code. The clients are those
//! crates, other programs, and raw bytes. They are a program of their own, as those crates take long to build.

#[path = "../../tests/util/mod.rs"]
mod util;
#[path = "../../tests/util/temp.rs"]
mod temp;

#[path = "../axum/mod.rs"]
mod board;
#[path = "../fetch/mod.rs"]
mod fetch;
#[path = "../grpc/mod.rs"]
mod words;
#[path = "../http/mod.rs"]
mod http;
#[path = "../logging/mod.rs"]
mod logging;
#[path = "../reqwest/load.rs"]
mod load;
#[path = "../reqwest/mod.rs"]
mod reactor;
#[path = "../support/finish.rs"]
mod finish;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/routes.rs"]
mod routes;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../tls/client.rs"]
mod client;
#[path = "../tls/mod.rs"]
mod tls;
#[path = "../websocket/mod.rs"]
mod websocket;

#[path = "crates/autobahn.rs"]
mod autobahn;
#[path = "crates/axum.rs"]
mod axum_server;
#[path = "crates/fetch.rs"]
mod fetch_client;
#[path = "crates/grpc.rs"]
mod grpc_server;
#[path = "crates/https.rs"]
mod https_server;
#[path = "crates/logging.rs"]
mod log_lines;
#[path = "crates/reqwest.rs"]
mod reqwest_client;
#[path = "crates/until.rs"]
mod until;
#[path = "crates/websocket.rs"]
mod websocket_server;
#[path = "examples/server.rs"]
mod server;
#[path = "examples/stoppable.rs"]
mod stoppable;
