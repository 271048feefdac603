//! Tests of the example servers, in this process, with the examples' own code. The clients are
//! other programs, and raw bytes. Examples over other crates are tested in crates.rs.

#[path = "../../tests/util/random.rs"]
mod random;
#[path = "../../tests/util/temp.rs"]
mod temp;
#[path = "../../tests/util/mod.rs"]
mod util;

#[allow(dead_code, reason = "the tests have no command line")]
#[path = "../support/args.rs"]
mod args;
#[allow(dead_code, reason = "its main function is not called")]
#[path = "../echo/main.rs"]
mod echo;
#[path = "../files/mod.rs"]
mod files;
#[path = "../http/mod.rs"]
mod http;
#[path = "../httpd/mod.rs"]
mod httpd;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../proxy/mod.rs"]
mod proxy;
#[path = "../replicated/mod.rs"]
mod replicated;
#[path = "../resp/mod.rs"]
mod resp;
#[path = "../support/serve.rs"]
mod serve;
#[allow(dead_code, reason = "only httpd waits for signals")]
#[path = "../support/signals.rs"]
mod signals;

#[path = "examples/echo.rs"]
mod echo_server;
#[path = "examples/files.rs"]
mod files_server;
#[path = "examples/graceful.rs"]
mod graceful_server;
#[path = "examples/http.rs"]
mod http_server;
#[path = "examples/pages.rs"]
mod pages;
#[path = "examples/proxy.rs"]
mod proxy_server;
#[path = "examples/replicated.rs"]
mod replicated_servers;
#[path = "examples/resp_redis.rs"]
mod resp_redis;
#[path = "examples/resp.rs"]
mod resp_server;
#[path = "examples/server.rs"]
mod server;
#[path = "examples/stoppable.rs"]
mod stoppable;
