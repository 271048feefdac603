//! reqwest, which needs tokio, from goroutines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::http;
use crate::load::{self, By};
use crate::reactor::{self, Reactor};
use crate::stoppable::start_graceful;
use crate::util::{NOBODY, run};

#[test]
fn goroutines_fetch_by_reqwest() {
    let server = start_graceful(http::serve);
    run(2, || {
        let reactor = Reactor::start().unwrap();
        let client = reqwest::Client::new();
        windlass::scope(|s| {
            for i in 0..40 {
                let (path, expected) = [("plaintext", (200, 13)), ("none", (404, 0))][i / 2 % 2];
                let url = format!("http://{}/{path}", server.addr);
                let (client, reactor) = (client.clone(), &reactor);
                s.spawn(move || {
                    let page = match i % 2 {
                        0 => reactor.enter(reactor::fetch(&client, &url)),
                        _ => reactor.run(async move { reactor::fetch(&client, &url).await }),
                    };
                    assert_eq!(page.unwrap(), expected);
                });
            }
        });
        // A name that tokio's threads look up.
        let url = format!("http://localhost:{}/plaintext", server.addr.port());
        assert_eq!(
            reactor.enter(reactor::fetch(&client, &url)).unwrap(),
            (200, 13)
        );
        let url = format!("http://{NOBODY}/");
        assert!(reactor.enter(reactor::fetch(&client, &url)).is_err());
    });
}

#[test]
fn each_way_makes_all_requests() {
    let server = start_graceful(http::serve);
    let url = format!("http://{}/plaintext", server.addr);
    run(2, || {
        let reactor = Reactor::start().unwrap();
        for by in [By::Tokio, By::Spawned, By::Entered, By::Native] {
            let cost = load::measure(&reactor, by, &url, 205, 10).unwrap();
            assert_eq!(cost.n_requests, 200);
            assert!(cost.to_string().ends_with(" threads"), "{cost}");
            // An address that nobody listens on, and none.
            load::measure(&reactor, by, "http://127.0.0.1:1/", 1, 1).unwrap_err();
            load::measure(&reactor, by, "nonsense", 1, 1).unwrap_err();
        }
    });
}

/// tokio's timers run, panics come out, and what is dropped early is dropped inside the runtime.
#[test]
fn futures_of_tokio_run_to_their_end() {
    /// Needs the runtime when it is dropped.
    struct SpawnsInDrop;

    impl Drop for SpawnsInDrop {
        fn drop(&mut self) {
            drop(tokio::spawn(async {}));
        }
    }

    run(2, || {
        let reactor = Reactor::start().unwrap();
        let short = Duration::from_millis(5);
        reactor.enter(async { tokio::time::sleep(short).await });
        let seven = reactor.run(async move {
            tokio::time::sleep(short).await;
            7
        });
        assert_eq!(seven, 7);
        let inside = |future| catch_unwind(AssertUnwindSafe(|| reactor.enter(future)));
        let fails = async {
            let _guard = SpawnsInDrop;
            tokio::task::yield_now().await;
            panic!("on purpose")
        };
        let failed: Result<(), _> = inside(fails);
        let panic = failed.unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "on purpose");
        let failed: Result<(), _> = catch_unwind(AssertUnwindSafe(|| {
            reactor.run(async { panic!("there, too") })
        }));
        let panic = failed.unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "there, too");
        // No goroutine is left inside the runtime.
        assert!(tokio::runtime::Handle::try_current().is_err());
        // The run ends while goroutines wait in both ways.
        let waits = || async {
            let _guard = SpawnsInDrop;
            std::future::pending::<()>().await
        };
        let reactor = std::sync::Arc::new(reactor);
        for is_entered in [false, true] {
            let reactor = std::sync::Arc::clone(&reactor);
            windlass::spawn(move || match is_entered {
                true => reactor.enter(waits()),
                false => reactor.run(waits()),
            });
        }
        windlass::sleep(short);
    });
}
