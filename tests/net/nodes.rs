//! A listener for each NUMA node.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use windlass::time::{Duration, Instant};

use crate::util::{
    build, child_case, child_passes, hang_guard, runtime, set_processors, wait_until,
};
use crate::{filter, util};
use windlass::net::{NodeListeners, TcpOptions, TcpStream};
use windlass::topology::Topology;
use windlass::{Builder, Runtime, spawn, task};

/// A machine with a node for each CPU, up to the last that this process may use: what the kernel
/// says of CPUs then says of nodes.
fn a_node_for_each_cpu() -> Topology {
    let n = util::affinity().last().unwrap() + 1;
    Topology::synthetic(&format!("pack:{n} [numa] core:1 pu:1")).unwrap()
}

/// Two nodes of two Ps each.
fn two_nodes() -> Runtime {
    let machine = Topology::synthetic("pack:2 [numa] core:2 pu:1").unwrap();
    build(Builder::new().topology(machine).processors(4)).unwrap()
}

fn listen() -> NodeListeners {
    TcpOptions::new()
        .listen_on_each_node(util::own_addr())
        .unwrap()
}

/// Connects from a CPU; gives the address that the server will see.
fn connect_from(cpu: usize, addr: SocketAddr) -> (std::net::TcpStream, SocketAddr) {
    let connect = move || {
        util::pin(&[cpu]);
        let stream = std::net::TcpStream::connect(addr).unwrap();
        let here = stream.local_addr().unwrap();
        (stream, here)
    };
    let connected = task::offload(|| std::thread::spawn(connect).join());
    connected.unwrap()
}

#[test]
fn one_node_has_one_listener() {
    let _guard = hang_guard();
    let machine = Topology::synthetic("pack:1 [numa] core:2 pu:1").unwrap();
    let rt = build(Builder::new().topology(machine).processors(2)).unwrap();
    rt.run(|| {
        let listeners = listen();
        assert_eq!(listeners.len(), 1);
        assert!(listeners.is_steered());
        let addr = listeners.local_addr().unwrap();
        // It does not share its port.
        let e = TcpOptions::new().reuse_port(true).listen(addr).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
        let client = spawn(move || TcpStream::connect(addr).unwrap());
        let (node, listener) = listeners.into_iter().next().unwrap();
        assert_eq!(Some(node), task::current_node());
        listener.accept().unwrap();
        client.join().unwrap();
    });
}

#[test]
fn a_connection_comes_to_the_node_whose_cpu_handles_it() {
    let _guard = hang_guard();
    let machine = a_node_for_each_cpu();
    let n = machine.nodes().len();
    let rt = build(Builder::new().topology(machine).processors(n)).unwrap();
    rt.run(|| {
        let listeners = listen();
        assert_eq!(listeners.len(), n);
        if n > 1 && !listeners.is_steered() {
            return eprintln!("skipped: this kernel takes no program that chooses a listener");
        }
        let addr = listeners.local_addr().unwrap();
        for _ in 0..20 {
            for cpu in util::affinity() {
                let (_client, from) = connect_from(cpu, addr);
                // By now it is in the queue of its listener: nobody else has it.
                let (_, peer) = listeners.on(cpu as u32).unwrap().accept().unwrap();
                assert_eq!(peer, from, "of CPU {cpu}");
            }
        }
    });
}

/// CPUs of nodes without a P belong to the next node that has one.
#[test]
fn nodes_without_ps_have_no_listener() {
    let _guard = hang_guard();
    let machine = Topology::synthetic("pack:4 [numa] core:1 pu:1").unwrap();
    let rt = build(Builder::new().topology(machine).processors(4)).unwrap();
    rt.run(|| {
        assert_eq!(listen().len(), 4);
        set_processors(&rt, 2);
        let listeners = listen();
        let nodes: Vec<u32> = listeners.iter().map(|(node, _)| node).collect();
        assert_eq!(nodes, [0, 1]);
        assert!(listeners.on(2).is_none());
        let addr = listeners.local_addr().unwrap();
        assert!(
            listeners
                .iter()
                .all(|(_, l)| l.local_addr().unwrap() == addr)
        );
        set_processors(&rt, 1);
        assert_eq!(listen().len(), 1);
    });
}

#[test]
fn serve_accepts_on_each_node_until_it_is_ended() {
    let _guard = hang_guard();
    let rt = two_nodes();
    rt.run(|| {
        let listeners = Arc::new(listen());
        assert_eq!(listeners.len(), 2);
        let addr = listeners.local_addr().unwrap();
        let peers = Arc::new(Mutex::new(BTreeSet::new()));
        let (served, seen) = (Arc::clone(&listeners), Arc::clone(&peers));
        let server = spawn(move || {
            served.serve(move |mut stream, peer| {
                assert!(seen.lock().unwrap().insert(peer));
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                assert_ne!(byte, [13], "this one panics, on purpose");
                stream.write_all(&byte).unwrap();
            })
        });
        let clients: Vec<_> = (0..200_u32)
            .map(|i| {
                spawn(move || {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    stream.write_all(&[i as u8]).unwrap();
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).unwrap();
                    let expected = [i as u8];
                    assert_eq!(back, if i == 13 { &[][..] } else { &expected[..] });
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(peers.lock().unwrap().len(), 200);
        assert!(!server.is_finished());
        listeners.shutdown().unwrap();
        server.join().unwrap().unwrap();
        let e = TcpStream::connect(addr).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        // And once more it is over at once.
        listeners.serve(|_, _| ()).unwrap();
    });
}

#[test]
fn who_accepts_is_bound_to_the_node() {
    let _guard = hang_guard();
    let machine = a_node_for_each_cpu();
    let n_nodes = machine.nodes().len();
    let rt = build(Builder::new().topology(machine).processors(n_nodes)).unwrap();
    rt.run(|| {
        let listeners = listen();
        let addr = listeners.local_addr().unwrap();
        let ends: Vec<_> = listeners
            .iter()
            .map(|(_, l)| l.try_clone().unwrap())
            .collect();
        let n_accepted = Arc::new(AtomicUsize::new(0));
        let acceptors: Vec<_> = listeners
            .into_iter()
            .map(|(node, listener)| {
                let n_accepted = Arc::clone(&n_accepted);
                let accept = move || {
                    while listener.accept().is_ok() {
                        assert_eq!(task::current_node(), Some(node));
                        n_accepted.fetch_add(1, Ordering::Relaxed);
                    }
                };
                let bound = task::Builder::new().node(node).bound(true);
                bound.spawn(accept).unwrap()
            })
            .collect();
        let cpus = util::affinity();
        for &cpu in &cpus {
            for _ in 0..10 {
                drop(connect_from(cpu, addr));
            }
        }
        wait_until(|| n_accepted.load(Ordering::Relaxed) == 10 * cpus.len());
        ends.iter()
            .for_each(|listener| listener.shutdown().unwrap());
        acceptors.into_iter().for_each(|a| a.join().unwrap());
    });
}

#[test]
fn a_deadline_of_one_ends_the_service_with_an_error() {
    let _guard = hang_guard();
    two_nodes().run(|| {
        let listeners = Arc::new(listen());
        let served = Arc::clone(&listeners);
        let server = spawn(move || served.serve(|_, _| ()));
        let (_, last) = listeners.iter().last().unwrap();
        last.set_deadline(Some(Instant::now() + Duration::from_millis(20)));
        let e = server.join().unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        let addr = listeners.local_addr().unwrap();
        let e = TcpStream::connect(addr).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn another_runtime_may_lack_the_nodes() {
    let _guard = hang_guard();
    let listeners = two_nodes().run(listen);
    let machine = Topology::synthetic("pack:1 [numa] core:2 pu:1").unwrap();
    let one_node = build(Builder::new().topology(machine).processors(2)).unwrap();
    one_node.run(|| {
        let e = listeners.serve(|_, _| ()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        assert!(e.to_string().contains("node(1)"), "{e}");
    });
}

#[test]
fn outside_a_runtime_there_are_no_nodes() {
    let e = TcpOptions::new()
        .listen_on_each_node("127.0.0.1:0")
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("outside any windlass runtime"));
}

#[test]
fn the_end_of_a_run_ends_the_service() {
    let _guard = hang_guard();
    let rt = two_nodes();
    for _ in 0..3 {
        rt.run(|| {
            let listeners = listen();
            let addr = listeners.local_addr().unwrap();
            drop(spawn(move || listeners.serve(|_, _| ())));
            TcpStream::connect(addr).unwrap();
        });
    }
    assert_eq!(rt.metrics().live_goroutines, 0);
}

#[test]
fn a_kernel_that_takes_no_program_spreads_by_hash() {
    if child_case().is_none() {
        child_passes("a_kernel_that_takes_no_program_spreads_by_hash", "filter");
        return;
    }
    filter::deny_option(libc::SO_ATTACH_REUSEPORT_CBPF, libc::EPERM);
    runtime(1).run(|| assert!(listen().is_steered()));
    two_nodes().run(|| {
        let listeners = Arc::new(listen());
        assert_eq!(listeners.len(), 2);
        assert!(!listeners.is_steered());
        let addr = listeners.local_addr().unwrap();
        let served = Arc::clone(&listeners);
        let server = spawn(move || served.serve(|mut stream, _| stream.write_all(&[7]).unwrap()));
        for _ in 0..100 {
            let mut byte = [0];
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [7]);
        }
        listeners.shutdown().unwrap();
        server.join().unwrap().unwrap();
    });
}
