//! tonic on goroutines: calls, streams in both directions, errors, the health service, deadlines and
//! the end.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use windlass::channel;

use crate::server::{Server, foreign, foreign_prints};
use crate::until::start_until;
use crate::util::run;
use crate::words;
use crate::words::client::{Channel, Words, health, within};

/// A time limit that only a hanging call reaches.
const LONG: Duration = Duration::from_secs(60);

fn start() -> Server {
    Server::start(|listener| {
        let never = channel::never::<()>();
        let _ = words::serve(listener, move || {
            let _ = never.recv();
            Ok(())
        });
    })
}

fn counts(words: &[(&str, u64)]) -> HashMap<String, u64> {
    words.iter().map(|(w, n)| ((*w).to_owned(), *n)).collect()
}

/// Many goroutines on one connection.
#[test]
fn calls_are_answered() {
    let server = start();
    run(2, || {
        let channel = Channel::connect(server.addr).unwrap();
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let mut client = Words::new(channel.clone());
                windlass::spawn(move || {
                    for _ in 0..10 {
                        let answer = client.count("to be or not to be").unwrap();
                        let right = counts(&[("to", 2), ("be", 2), ("or", 1), ("not", 1)]);
                        assert_eq!(answer.words, right);
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|c| c.join().unwrap());
        // A message of a megabyte.
        let mut client = Words::new(channel);
        let answer = client.count(&"word ".repeat(200_000)).unwrap();
        assert_eq!(answer.words, counts(&[("word", 200_000)]));
    });
}

#[test]
fn streams_flow_in_both_directions() {
    let server = start();
    run(2, || {
        let mut client = Words::new(Channel::connect(server.addr).unwrap());
        let texts: Result<Vec<_>, _> = client.split("three more words").unwrap().collect();
        assert_eq!(texts.unwrap(), ["three", "more", "words"]);
        // Each answer arrives before the next request is made.
        let (shouts, mut answers) = client.shout().unwrap();
        for text in ["one", "two", "three"] {
            shouts.send(text).unwrap();
            let answer = answers.next().unwrap().unwrap();
            assert_eq!(answer, text.to_uppercase());
        }
        drop(shouts);
        assert!(answers.next().is_none());
        // More than fits into the connection: both sides wait for each other.
        let (shouts, answers) = client.shout().unwrap();
        let sender = windlass::spawn(move || {
            let text = "x".repeat(10_000);
            (0..300).for_each(|_| shouts.send(&text).unwrap());
        });
        windlass::sleep(Duration::from_millis(5));
        let n_bytes: usize = answers.map(|answer| answer.unwrap().len()).sum();
        assert_eq!(n_bytes, 3_000_000);
        sender.join().unwrap();
    });
}

#[test]
fn errors_have_their_code() {
    let server = start();
    run(2, || {
        let channel = Channel::connect(server.addr).unwrap();
        let mut client = Words::new(channel.clone());
        let error = client.count(" ").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.message(), "no words");
        assert_eq!(client.mistake().unwrap_err().code(), Code::Unimplemented);
        // In the middle of a stream.
        let (shouts, mut answers) = client.shout().unwrap();
        shouts.send("a").unwrap();
        shouts.send("").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "A");
        let error = answers.next().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        // The connection is as good as before.
        assert_eq!(client.count("a").unwrap().words, counts(&[("a", 1)]));
        // A call that gets no answer: nothing is sent to be answered.
        let never = within(
            Duration::from_millis(5),
            std::future::pending::<Result<(), _>>(),
        );
        assert_eq!(never.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(health(channel, LONG).unwrap(), ServingStatus::Serving);
    });
}

/// A client that goes away in the middle of a stream leaves no goroutine behind that keeps the
/// server from its end.
#[test]
fn a_server_that_stops_finishes_its_calls() {
    let (server, stop, ended) = start_until(words::serve);
    let addr = server.addr;
    run(2, || {
        let mut gone = Words::new(Channel::connect(addr).unwrap());
        let (shouts, mut answers) = gone.shout().unwrap();
        shouts.send("a").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "A");
        drop((shouts, answers, gone));
        let channel = Channel::connect(addr).unwrap();
        assert_eq!(
            health(channel.clone(), LONG).unwrap(),
            ServingStatus::Serving
        );
        let mut client = Words::new(channel);
        let (shouts, mut answers) = client.shout().unwrap();
        shouts.send("before").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "BEFORE");
        stop.send(()).unwrap();
        // The connection ends when this stream has.
        shouts.send("after").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "AFTER");
        drop(shouts);
        assert!(answers.next().is_none());
    });
    ended.recv().unwrap();
}

/// The frame of gRPC around a message by hand: a flag, the length, the message.
#[test]
fn curl_calls_it() {
    let server = start();
    let Some(version) = foreign_prints("curl", &["--version"]) else {
        return;
    };
    if !version.contains("HTTP2") {
        eprintln!("SKIPPED: this curl does not know HTTP/2");
        return;
    }
    let dir = crate::temp::TempDir::new();
    let (call, trailers) = (dir.path().join("call"), dir.path().join("trailers"));
    std::fs::write(&call, b"\0\0\0\0\x04\x0a\x02hi").unwrap();
    let data = format!("@{}", call.display());
    let url = format!("http://{}{}", server.addr, words::messages::COUNT);
    let output = foreign(
        "curl",
        &[
            "--silent",
            "--show-error",
            "--http2-prior-knowledge",
            "--header",
            "content-type: application/grpc",
            "--header",
            "te: trailers",
            "--dump-header",
            trailers.to_str().unwrap(),
            "--data-binary",
            &data,
            &url,
        ],
    )
    .unwrap();
    // The map's entry: a key, and 1.
    assert_eq!(output.stdout, b"\0\0\0\0\x08\x0a\x06\x0a\x02hi\x10\x01");
    let mut heads = String::new();
    let mut file = std::fs::File::open(trailers).unwrap();
    file.read_to_string(&mut heads).unwrap();
    assert!(heads.contains("grpc-status: 0"), "{heads}");
}
