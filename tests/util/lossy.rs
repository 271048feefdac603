//! A network that loses, delays, doubles and reorders packets: a TUN device in a network
//! namespace of the test's own, and a thread at its other end.
//!
//! ```text
//!  10.99.0.1:p  <-- kernel's TCP -->  tun0  <-- this thread swaps the two addresses -->
//! ```
//!
//! A packet to 10.99.0.2 comes back as if that had sent it to 10.99.0.1, so one machine
//! talks to itself, and every packet goes through here. The sums of the headers stay right,
//! as they do not depend on the order of the addresses.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other end is a plain thread, unknown to any runtime"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;

/// Where listeners are.
pub(crate) const HERE: &str = "10.99.0.1:0";
/// Under which address they are reached.
pub(crate) const THERE: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 99, 0, 2);

/// Makes a command begin in a network namespace of its own, as root of a user namespace if
/// that takes one. Starting it fails where neither may be made.
pub(crate) fn isolate(command: &mut Command) {
    // SAFETY: neither has preconditions.
    let ids = unsafe { [("uid", libc::getuid()), ("gid", libc::getgid())] };
    let maps = ids.map(|(what, id)| {
        let path = format!("/proc/self/{what}_map\0");
        (path, format!("0 {id} 1\n"))
    });
    let enter = move || {
        // SAFETY: system calls with plain numbers and with strings that live as long as this.
        unsafe {
            if libc::unshare(libc::CLONE_NEWNET) == 0 {
                return Ok(());
            }
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
                return Err(io::Error::last_os_error());
            }
            let deny = c"/proc/self/setgroups";
            write_once(deny.as_ptr(), b"deny");
            for (path, text) in &maps {
                write_once(path.as_ptr().cast(), text.as_bytes());
            }
        }
        Ok(())
    };
    // SAFETY: only system calls are made between fork and exec.
    unsafe { command.pre_exec(enter) };
}

/// # Safety
///
/// `path` is a string that ends with a zero.
unsafe fn write_once(path: *const libc::c_char, bytes: &[u8]) {
    // SAFETY: by this function's contract, and the bytes are valid.
    unsafe {
        let fd = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        libc::close(fd);
    }
}

/// How bad the network is.
#[derive(Debug)]
struct Weather {
    /// Of a thousand packets.
    n_lost: AtomicU32,
    is_over: AtomicBool,
}

/// The network, as long as this lives.
#[derive(Debug)]
pub(crate) struct Link {
    weather: Arc<Weather>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Link {
    /// Makes the device.
    pub(crate) fn new() -> io::Result<Link> {
        let device = tun()?;
        let weather = Arc::new(Weather {
            n_lost: AtomicU32::new(20),
            is_over: AtomicBool::new(false),
        });
        let seen = Arc::clone(&weather);
        let thread = std::thread::spawn(move || carry(device, &seen));
        Ok(Link {
            weather,
            thread: Some(thread),
        })
    }

    /// Loses so many of a thousand packets from now on.
    pub(crate) fn lose(&self, n_per_thousand: u32) {
        self.weather.n_lost.store(n_per_thousand, Ordering::Relaxed);
    }

    /// Takes the network down. Gives how many packets it has lost.
    pub(crate) fn end(mut self) -> u64 {
        self.weather.is_over.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .map_or(0, |thread| thread.join().unwrap())
    }
}

/// A TUN device that is up and has the address [`HERE`].
fn tun() -> io::Result<File> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: plain numbers and addresses, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lossy") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let set = |fd: i32, what: libc::c_ulong, request: &libc::ifreq| {
        // SAFETY: all of these requests read such a structure.
        match unsafe { libc::ioctl(fd, what as _, std::ptr::from_ref(request)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    set(device.as_raw_fd(), TUNSETIFF, &request)?;
    request.ifr_ifru.ifru_addr = address([10, 99, 0, 1]);
    set(socket.as_raw_fd(), libc::SIOCSIFADDR, &request)?;
    request.ifr_ifru.ifru_netmask = address([255, 255, 255, 0]);
    set(socket.as_raw_fd(), libc::SIOCSIFNETMASK, &request)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    set(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request)?;
    Ok(device)
}

fn address(bytes: [u8; 4]) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as u16,
        sa_data: data,
    }
}

/// A packet on its way: when it is due, its number, and what it is.
type OnItsWay = Reverse<(Instant, u64, Vec<u8>)>;

/// Carries packets to and fro. Gives how many were lost.
fn carry(mut device: File, weather: &Weather) -> u64 {
    let mut random = Random::new(9);
    let mut on_their_way: BinaryHeap<OnItsWay> = BinaryHeap::new();
    let mut buf = vec![0; 65_536];
    let (mut n_lost, mut n_seen) = (0, 0);
    while !weather.is_over.load(Ordering::Relaxed) {
        while on_their_way
            .peek()
            .is_some_and(|first| first.0.0 <= Instant::now())
        {
            if let Some(Reverse((_, _, packet))) = on_their_way.pop() {
                // A device whose queue is full loses it: so do networks.
                let _ = device.write(&packet);
            }
        }
        if !is_readable(&device, Duration::from_millis(1)) {
            continue;
        }
        let n = device.read(&mut buf).unwrap_or(0);
        // Only what is IPv4 and whole enough to have addresses.
        if n < 20 || buf[0] >> 4 != 4 {
            continue;
        }
        let (front, back) = buf[12..20].split_at_mut(4);
        front.swap_with_slice(back);
        if random.below(1000) < weather.n_lost.load(Ordering::Relaxed) as usize {
            n_lost += 1;
            continue;
        }
        // Some twice. Each has its own delay, so they overtake each other.
        for _ in 0..=usize::from(random.below(100) == 0) {
            let delay = Duration::from_micros(random.below(3_000) as u64);
            n_seen += 1;
            on_their_way.push(Reverse((Instant::now() + delay, n_seen, buf[..n].to_vec())));
        }
    }
    n_lost
}

fn is_readable(device: &File, timeout: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: device.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure is given, which lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) > 0 }
}

/// Makes the loopback device of this namespace lose and delay packets by netem, if the kernel
/// has it and `tc` is installed. Says what is in the way if not.
pub(crate) fn netem_on_loopback() -> Result<(), String> {
    let run = |program: &str, args: &[&str]| match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(e) => Err(format!("{program}: {e}")),
    };
    run("ip", &["link", "set", "lo", "up"])?;
    let netem = "qdisc add dev lo root netem delay 1ms 1ms loss 2% duplicate 1%";
    run("tc", &netem.split(' ').collect::<Vec<_>>())
}
