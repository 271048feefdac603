//! The replicated store, not simulated: three processes, which are killed. examples/tests/replicated.rs
//! has the simulations.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::replicated::{self, Client, Command, Config, Timing};
use crate::temp::TempDir;
use crate::util;

const TEST: &str = "replicated_servers::values_survive_processes_that_are_killed";

const N_SERVERS: usize = 3;
const N_VALUES: usize = 8;

/// The servers are processes. Those that are left are killed in the end.
struct Cluster {
    addrs: Vec<SocketAddr>,
    servers: Vec<Child>,
}

impl Cluster {
    /// Starts servers with these data, on free ports: first each takes a port, then all are told all ports.
    fn start(data: &Path) -> Cluster {
        let mut cluster = Cluster {
            addrs: Vec::new(),
            servers: Vec::new(),
        };
        for id in 0..N_SERVERS {
            let case = format!("{id} {}", data.join(id.to_string()).display());
            let mut command = util::child_command(TEST, &case);
            let server = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            cluster.servers.push(server.spawn().unwrap());
        }
        for server in &mut cluster.servers {
            let lines = BufReader::new(server.stdout.take().unwrap()).lines();
            let mut addrs =
                lines.filter_map(|line| Some(line.ok()?.split_once("serves ")?.1.parse()));
            let addr = addrs.next().expect("the server starts");
            cluster.addrs.push(addr.unwrap());
        }
        let list: Vec<String> = cluster.addrs.iter().map(SocketAddr::to_string).collect();
        for server in &mut cluster.servers {
            let stdin = server.stdin.as_mut().unwrap();
            stdin.write_all(list.join(",").as_bytes()).unwrap();
            stdin.write_all(b"\n").unwrap();
        }
        cluster
    }

    fn kill(&mut self, id: usize) {
        let _ = self.servers[id].kill();
        let _ = self.servers[id].wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..N_SERVERS).for_each(|id| self.kill(id));
    }
}

/// The work of a child. It never returns.
fn serve(case: &str) {
    let (id, data) = case.split_once(' ').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "\nserves {}", listener.local_addr().unwrap()).unwrap();
    let mut list = String::new();
    std::io::stdin().read_line(&mut list).unwrap();
    let config = Config {
        cluster: list.trim().split(',').map(|a| a.parse().unwrap()).collect(),
        id: id.parse().unwrap(),
        data: data.into(),
        timing: Timing::default(),
        seed: std::process::id().into(),
        bug: None,
    };
    let error = util::runtime(2).run(|| replicated::serve(listener.into(), config));
    panic!("{error}");
}

/// Lets a client work. Returns the server that has answered last.
fn with_client(cluster: &Cluster, id: u64, work: impl FnOnce(&mut Client) + Send) -> usize {
    util::run(2, || {
        let mut client = Client::new(cluster.addrs.clone(), id, Timing::default());
        work(&mut client);
        client.server()
    })
}

fn call(client: &mut Client, command: Command) -> Option<String> {
    client.call(command, Duration::from_secs(100)).unwrap()
}

fn key(n: usize) -> String {
    format!("key-{n}")
}

#[test]
fn values_survive_processes_that_are_killed() {
    if let Some(case) = util::child_case() {
        return serve(&case);
    }
    let data = TempDir::new();
    let mut cluster = Cluster::start(data.path());
    let primary = with_client(&cluster, 1, |client| {
        for n in 0..N_VALUES {
            let (key, value) = (key(n), format!("first {n}"));
            assert_eq!(call(client, Command::Put { key, value }), None);
        }
    });
    cluster.kill(primary);
    let later = with_client(&cluster, 2, |client| {
        for n in 0..2 * N_VALUES {
            let first = (n < N_VALUES).then(|| format!("first {n}"));
            assert_eq!(call(client, Command::Get { key: key(n) }), first);
            let swap = Command::Swap {
                key: key(n),
                expected: first.clone(),
                value: format!("second {n}"),
            };
            assert_eq!(call(client, swap), first);
        }
    });
    assert_ne!(later, primary, "a server that was killed does not answer");
    drop(cluster);
    // All begin again, with what their disks have.
    let cluster = Cluster::start(data.path());
    with_client(&cluster, 3, |client| {
        for n in 0..2 * N_VALUES {
            let second = Some(format!("second {n}"));
            assert_eq!(call(client, Command::Get { key: key(n) }), second);
        }
    });
}
