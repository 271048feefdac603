//! A server that runs for the time of a test.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

/// Longer than any test takes.
pub(crate) const FOREVER: Duration = Duration::from_secs(300);

/// Serves by `serve` while `client` runs; then the server must end at once.
pub(crate) fn serve_while(
    serve: impl FnOnce(TcpListener, &Graceful) -> io::Result<()> + Send + 'static,
    client: impl FnOnce(SocketAddr, &Graceful),
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = Graceful::new();
    let serving = server.clone();
    let served = windlass::spawn(move || serve(listener, &serving));
    client(addr, &server);
    assert_eq!(server.shutdown(FOREVER), Ok(()));
    served.join().unwrap().unwrap();
}
