//! Tests of the example servers, in this process, with the examples' own code. The clients are
//! other programs and libraries, and raw bytes.

#[path = "../../tests/util/random.rs"]
mod random;
#[path = "../../tests/util/temp.rs"]
mod temp;
#[path = "../../tests/util/mod.rs"]
mod util;

#[allow(dead_code, reason = "the tests have no command line")]
#[path = "../support/args.rs"]
mod args;
#[path = "../axum/mod.rs"]
mod board;
#[path = "../tls/client.rs"]
mod client;
#[allow(dead_code, reason = "its main function is not called")]
#[path = "../echo/main.rs"]
mod echo;
#[path = "../fetch/mod.rs"]
mod fetch;
#[path = "../files/mod.rs"]
mod files;
#[path = "../support/finish.rs"]
mod finish;
#[path = "../http/mod.rs"]
mod http;
#[path = "../httpd/mod.rs"]
mod httpd;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../logging/mod.rs"]
mod logging;
#[path = "../proxy/mod.rs"]
mod proxy;
#[path = "../replicated/mod.rs"]
mod replicated;
#[path = "../reqwest/load.rs"]
mod load;
#[path = "../reqwest/mod.rs"]
mod reactor;
#[path = "../resp/mod.rs"]
mod resp;
#[path = "../support/routes.rs"]
mod routes;
#[path = "../support/serve.rs"]
mod serve;
#[allow(dead_code, reason = "only httpd waits for signals")]
#[path = "../support/signals.rs"]
mod signals;
#[path = "../tls/mod.rs"]
mod tls;
#[path = "../websocket/mod.rs"]
mod websocket;
#[path = "../grpc/mod.rs"]
mod words;

#[path = "examples/autobahn.rs"]
mod autobahn;
#[path = "examples/axum.rs"]
mod axum_server;
#[path = "examples/echo.rs"]
mod echo_server;
#[path = "examples/fetch.rs"]
mod fetch_client;
#[path = "examples/files.rs"]
mod files_server;
#[path = "examples/graceful.rs"]
mod graceful_server;
#[path = "examples/grpc.rs"]
mod grpc_server;
#[path = "examples/http.rs"]
mod http_server;
#[path = "examples/https.rs"]
mod https_server;
#[path = "examples/logging.rs"]
mod log_lines;
#[path = "examples/pages.rs"]
mod pages;
#[path = "examples/proxy.rs"]
mod proxy_server;
#[path = "examples/replicated.rs"]
mod replicated_servers;
#[path = "examples/reqwest.rs"]
mod reqwest_client;
#[path = "examples/resp_redis.rs"]
mod resp_redis;
#[path = "examples/resp.rs"]
mod resp_server;
#[path = "examples/server.rs"]
mod server;
#[path = "examples/websocket.rs"]
mod websocket_server;
