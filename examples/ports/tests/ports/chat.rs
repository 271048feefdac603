//! The chat server, and the Go program that it was, where Go is installed.

use std::process::Command;

use crate::program::{Directory, Server};

/// More than the socket buffers of a connection hold: 24 MB.
const N_LINES: usize = 1_000;
const LINE_BYTES: usize = 24_000;

fn does_what_it_should(program: &str) {
    let server = Server::start(program, &[], 2);
    let mut alice = server.connect();
    alice.write("alice");
    alice.expect("* alice is here");
    let mut bob = server.connect();
    bob.write("bob");
    for client in [&mut alice, &mut bob] {
        client.expect("* bob is here");
    }
    bob.write("hello");
    alice.write("welcome, bob");
    // The two lines may come in any order, but in the same for both.
    let mut said = [&mut alice, &mut bob]
        .map(|client| [0, 1].map(|_| client.next().unwrap().expect("both are in the room")));
    assert_eq!(said[0], said[1]);
    said[0].sort();
    assert_eq!(said[0], ["alice: welcome, bob", "bob: hello"]);
    drop(bob);
    alice.expect("* bob has left");

    // Does not read, and is sent away.
    let mut carol = server.connect();
    carol.write("carol");
    alice.expect("* carol is here");
    let long = "x".repeat(LINE_BYTES);
    let mut has_left = false;
    for _ in 0..N_LINES {
        alice.write(&long);
        let mut line = alice.next().unwrap().unwrap();
        // It may come before the last lines.
        if line == "* carol has left" {
            has_left = true;
            line = alice.next().unwrap().unwrap();
        }
        assert_eq!(line.len(), "alice: ".len() + long.len());
    }
    carol.expect("* carol is here");
    let mut n_lines = 0;
    // Closing with unread data of hers may reset the connection.
    while let Ok(Some(_)) = carol.next() {
        n_lines += 1;
    }
    assert!((1..N_LINES).contains(&n_lines), "{n_lines}");
    if !has_left {
        alice.expect("* carol has left");
    }
}

#[test]
fn the_port_does_what_it_should() {
    does_what_it_should(env!("CARGO_BIN_EXE_chat"));
}

#[test]
fn the_go_program_does_the_same() {
    let version = Command::new("go").arg("version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        eprintln!("go is not installed: the original is not tested");
        return;
    }
    let directory = Directory::new("chat");
    let program = directory.0.join("chat");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/chat/chat.go");
    let built = Command::new("go")
        .args(["build", "-o", program.to_str().unwrap(), source])
        // Kept, as Go's standard library takes long to compile.
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .env("GOTOOLCHAIN", "local")
        .status();
    assert!(built.unwrap().success());
    does_what_it_should(program.to_str().unwrap());
}
