//! Ten thousand connections at once. In a file of its own: it raises the process's
//! limit on descriptors.
#![allow(unsafe_code)]

mod util;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use util::{hang_guard, runtime, wait_until};
use windlass::net::{TcpListener, TcpStream};
use windlass::{spawn, task};

#[test]
fn ten_thousand_connections() {
    let _guard = hang_guard();
    let (soft, hard) = util::nofile_limits();
    util::set_nofile_limit(hard.clamp(soft, soft.max(21_000)));
    // Two descriptors a connection, and some for everything else.
    let n = ((util::nofile_limits().0 as usize).saturating_sub(200) / 2).min(10_000);
    if n < 10_000 {
        eprintln!("{n} connections only: the hard limit on descriptors is {hard}");
    }
    assert!(n >= 100);
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            for stream in listener.incoming().take(n) {
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut buf = [0; 16];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            n => stream.write_all(&buf[..n]).unwrap(),
                        }
                    }
                });
            }
        });
        let connected = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..n)
            .map(|i| {
                let connected = Arc::clone(&connected);
                spawn(move || {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    connected.fetch_add(1, Ordering::SeqCst);
                    // Nobody goes on before all are there.
                    task::park();
                    while connected.load(Ordering::SeqCst) < n {
                        task::park();
                    }
                    for round in 0..3 {
                        let sent = (i * 3 + round).to_le_bytes();
                        let mut got = [0; 8];
                        stream.write_all(&sent).unwrap();
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                })
            })
            .collect();
        wait_until(|| connected.load(Ordering::SeqCst) == n);
        server.join().unwrap();
        clients.iter().for_each(|j| j.task().unpark());
        clients.into_iter().for_each(|j| j.join().unwrap());
    });
}
