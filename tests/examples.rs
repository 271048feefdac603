//! The servers among the examples, each in this process with the code that the example
//! has, against clients of other makers and against raw bytes.

#[path = "util/random.rs"]
mod random;
#[path = "util/temp.rs"]
mod temp;
mod util;

#[path = "../examples/support/accept.rs"]
mod accept;
#[path = "../examples/tls/client.rs"]
mod client;
#[path = "../examples/echo/mod.rs"]
mod echo;
#[path = "../examples/fetch/mod.rs"]
mod fetch;
#[path = "../examples/files/mod.rs"]
mod files;
#[path = "../examples/http/mod.rs"]
mod http;
#[path = "../examples/support/linger.rs"]
mod linger;
#[path = "../examples/proxy/mod.rs"]
mod proxy;
#[path = "../examples/resp/mod.rs"]
mod resp;
#[path = "../examples/tls/mod.rs"]
mod tls;
#[path = "../examples/websocket/mod.rs"]
mod websocket;

#[path = "examples/echo.rs"]
mod echo_server;
#[path = "examples/fetch.rs"]
mod fetch_client;
#[path = "examples/files.rs"]
mod files_server;
#[path = "examples/http.rs"]
mod http_server;
#[path = "examples/https.rs"]
mod https_server;
#[path = "examples/proxy.rs"]
mod proxy_server;
#[path = "examples/resp.rs"]
mod resp_server;
#[path = "examples/server.rs"]
mod server;
#[path = "examples/websocket.rs"]
mod websocket_server;
