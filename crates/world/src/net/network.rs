//! The network of a run: its hosts, links and sockets, and what is on its way between them.
//!
//! Nothing here waits or wakes a goroutine. A call that would have to wait fails with `WouldBlock`,
//! and the numbers of waits that have come to an end are collected for the scheduler
//! (`take_woken`). An effect that takes time is an `Event`: the scheduler moves the clock to the next one,
//! as it does for timers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::SockRef;

use super::address::{Id, Port, error};
use super::dice::Dice;
use super::faults::{DiskEvent, Fault, Faults};
use super::hosts::{Host, MAIN_IP, MAIN_NAME, Main};
use super::incidents::{Incident, Note, Notes};
use super::links::{Links, Quality};
use super::socket::{Kind, PIPE_ATOMIC, Pipe, Side, Socket, State, Ticket, UnixState};

/// Something that happens at a later time. It names sockets by their numbers; they may be gone by
/// then.
#[derive(Debug)]
pub(super) enum Event {
    /// The first packet of a connect, or the answer to it.
    Syn {
        client: Id,
        n_tries: u32,
    },
    SynAck {
        client: Id,
        server: Id,
    },
    /// The listener's host learns that the connection stands, after so many packets in vain.
    Established {
        server: Id,
        n_tries: u32,
    },
    /// Nobody has answered the first packet for a while.
    SynTimer {
        client: Id,
        n_tries: u32,
    },
    /// A connect fails.
    Refused {
        client: Id,
        errno: i32,
    },
    /// The first segment of a sender's outbox arrives.
    Arrive {
        sender: Id,
        epoch: u32,
    },
    /// A sender tries again what was lost.
    Retransmit {
        sender: Id,
        epoch: u32,
    },
    /// A reset of a connection.
    Reset {
        target: Id,
    },
    /// A sender learns that bytes were read, from its peer's host.
    Read {
        sender: Id,
        by_host: u32,
        n: usize,
        n_tries: u32,
    },
    /// A host asks whether the peer of a silent connection is still there, after so many times in
    /// vain.
    Probe {
        id: Id,
        n_tries: u32,
    },
    /// A datagram.
    Datagram {
        from_host: u32,
        to_host: u32,
        sender: Id,
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A sender of datagrams learns that nobody has the port.
    Unreachable {
        sender: Id,
        to: SocketAddr,
        by_host: u32,
    },
    /// The end of a drawn fault.
    End(Fault),
}

/// The scheduler's task for the goroutines of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A host loses its power.
    Crash(u32),
    /// A host is started again.
    Restart(u32),
    /// A host stands still.
    Pause(u32),
    /// A host goes on.
    Resume(u32),
    /// Something happens to the disk of a host.
    Disk(u32, DiskEvent),
}

/// The network of one run.
#[derive(Debug)]
pub struct Network {
    pub(super) hosts: Vec<Host>,
    n_paused: usize,
    pub(super) links: Links,
    pub(super) sockets: BTreeMap<Id, Socket>,
    next_id: Id,
    /// Sockets by the numbers that the kernel gives their descriptors' files. The numbers
    /// differ from run to run, so they serve look-ups only.
    by_cookie: BTreeMap<u64, Id>,
    /// Sockets of TCP and UDP by their ports.
    pub(super) by_port: BTreeSet<(Port, Id)>,
    /// The planned events, by their time and the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    n_events: u64,
    woken: Vec<Ticket>,
    pub(super) notes: Notes,
    /// The goroutine that makes a call, and the step.
    caller: (u64, u64),
    /// The number of sockets with descriptors that windlass does not watch.
    n_given_away: usize,
    pub(super) faults: Faults,
    /// The probability that a look-up of a name fails, in millionths.
    lookup_failures: u32,
}

impl Network {
    /// A network of one host, with the quality of all links, and the share of lookups that fail, in millionths.
    pub fn new(default: Quality, faults: Faults, lookup_failures: u32) -> Network {
        let mut links = Links::default();
        links.set_all(default);
        Network {
            hosts: vec![Host::new(MAIN_NAME.to_owned(), MAIN_IP, None)],
            n_paused: 0,
            links,
            sockets: BTreeMap::new(),
            next_id: 1,
            by_cookie: BTreeMap::new(),
            by_port: BTreeSet::new(),
            events: BTreeMap::new(),
            n_events: 0,
            woken: Vec::new(),
            notes: Notes::default(),
            caller: (0, 0),
            n_given_away: 0,
            faults,
            lookup_failures,
        }
    }

    /// Which goroutine makes the calls that follow, and at which step.
    pub(crate) fn set_caller(&mut self, id: u64, step: u64) {
        self.caller = (id, step);
    }

    // Events.

    pub(super) fn plan(&mut self, at_ns: u64, event: Event) {
        self.n_events += 1;
        self.events.insert((at_ns, self.n_events), event);
    }

    /// When something happens next, drawn faults apart: these come only while something else is
    /// still to come, or a run in which nothing can happen any more would not end.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Lets happen what is due by now.
    pub fn run_due(&mut self, dice: &dyn Dice) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(first) = self.events.first_entry()
            && first.key().0 <= dice.now_ns()
        {
            match first.remove() {
                Event::Syn { client, n_tries } => self.on_syn(dice, client, n_tries),
                Event::SynAck { client, server } => self.on_syn_ack(dice, client, server),
                Event::Established { server, n_tries } => {
                    self.on_established(dice, server, n_tries)
                }
                Event::SynTimer { client, n_tries } => self.on_syn_timer(dice, client, n_tries),
                Event::Refused { client, errno } => self.on_refused(client, errno),
                Event::Arrive { sender, epoch } => self.on_arrive(dice, sender, epoch),
                Event::Retransmit { sender, epoch } => self.on_retransmit(dice, sender, epoch),
                Event::Reset { target } => self.reset(target, libc::ECONNRESET),
                Event::Read {
                    sender,
                    by_host,
                    n,
                    n_tries,
                } => self.on_read(dice, sender, by_host, n, n_tries),
                Event::Probe { id, n_tries } => self.on_probe(dice, id, n_tries),
                Event::Datagram {
                    from_host,
                    to_host,
                    sender,
                    from,
                    to,
                    bytes,
                } => {
                    if !self.links.is_cut(from_host, to_host) {
                        self.on_datagram(dice, (sender, from_host), to_host, from, to, bytes);
                    }
                }
                Event::Unreachable {
                    sender,
                    to,
                    by_host,
                } => self.on_unreachable(sender, to, by_host),
                Event::End(fault) => actions.extend(self.end_fault(dice, fault)),
            }
        }
        actions.extend(self.run_faults(dice));
        actions
    }

    // Notes.

    /// From now on notes are kept.
    pub fn keep_notes(&mut self) {
        self.notes.list.get_or_insert_default();
    }

    /// The notes from the `first`-th on.
    pub fn notes(&self, first: usize) -> &[Note] {
        let all = self.notes.list.as_deref().unwrap_or_default();
        all.get(first..).unwrap_or_default()
    }

    /// Notes what happens to hosts and links, if that is asked for.
    pub fn note(&mut self, dice: &dyn Dice, incident: Incident) {
        if let Some(list) = &mut self.notes.list {
            list.push(Note {
                step: dice.step(),
                at_ns: dice.now_ns(),
                incident,
            });
        }
    }

    /// A partition has begun or ended.
    pub(super) fn note_partition(
        &mut self,
        dice: &dyn Dice,
        (from, to): (u32, u32),
        is_both: bool,
        begins: bool,
    ) {
        self.note(
            dice,
            Incident::Partition {
                from,
                to,
                is_both,
                begins,
            },
        );
        if self.notes.list.is_none() {
            return;
        }
        let cuts = self.links.cuts();
        let before = std::mem::replace(&mut self.notes.cuts, cuts.clone());
        let no_longer = before.iter().filter(|cut| !cuts.contains(cut));
        let newly = cuts.iter().filter(|cut| !before.contains(cut));
        let changes = no_longer.map(|cut| (cut, false));
        for (&(from, to), is_cut) in changes.chain(newly.map(|cut| (cut, true))) {
            self.note(dice, Incident::Cut { from, to, is_cut });
        }
    }

    /// An incident in words; `None` for one that another incident implies.
    pub fn describe(&self, incident: Incident) -> Option<String> {
        let name = |host| self.name_of(host);
        Some(match incident {
            Incident::Crash(host) => format!("host {} crashes", name(host)),
            Incident::Restart(host) => format!("host {} restarts", name(host)),
            Incident::Pause(host) => format!("host {} stands still", name(host)),
            Incident::Resume(host) => format!("host {} goes on", name(host)),
            Incident::DiskPowerLoss(host) => format!("the disk of {} loses its power", name(host)),
            Incident::DiskTrouble {
                host,
                trouble,
                begins,
            } => {
                let no_longer = if begins { "" } else { " no longer" };
                format!(
                    "the disk of {} is{no_longer} {}",
                    name(host),
                    trouble.name()
                )
            }
            Incident::Partition {
                from,
                to,
                is_both,
                begins,
            } => {
                let what = if begins { "is cut" } else { "stands again" };
                let (from, to) = (name(from), name(to));
                match is_both {
                    true => format!("the link between {from} and {to} {what}"),
                    false => format!("the link from {from} to {to} {what}"),
                }
            }
            Incident::Reset { a, b } => {
                format!("connections between {} and {} are reset", name(a), name(b))
            }
            Incident::Cut { .. } => return None,
        })
    }

    // Waits.

    /// Adds the wait `ticket`.
    pub fn wait(&mut self, id: Id, side: Side, ticket: Ticket) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.waiters(side).push(ticket);
        }
    }

    /// Ends a wait for a socket, which nothing has ended.
    pub fn end_wait(&mut self, id: Id, side: Side, ticket: Ticket) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.waiters(side).retain(|&other| other != ticket);
        }
    }

    pub(super) fn wake(&mut self, id: Id, side: Side) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            self.woken.append(socket.waiters(side));
        }
    }

    pub(super) fn wake_all(&mut self, id: Id) {
        for side in [Side::Read, Side::Write, Side::Inbox] {
            self.wake(id, side);
        }
    }

    /// Takes the list of waits that have ended.
    pub(crate) fn take_woken(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.woken)
    }

    /// Whether a call would not have to wait. A socket that is gone answers at once.
    pub fn is_ready(&self, id: Id, side: Side) -> bool {
        let Some(socket) = self.sockets.get(&id) else {
            return true;
        };
        if socket.error.is_some() {
            return true;
        }
        match (&socket.kind, side) {
            (Kind::Tcp(tcp), Side::Read) => match &tcp.state {
                State::Listening { queue, .. } => !queue.is_empty(),
                State::Connecting { .. } => false,
                State::Closed | State::Reset => true,
                State::Connected => !tcp.inbox.is_empty() || tcp.got_fin || tcp.shut_read,
            },
            (Kind::Tcp(tcp), _) => match tcp.state {
                State::Connecting { .. } => false,
                _ => tcp.room > 0 || tcp.shut_write || !matches!(tcp.state, State::Connected),
            },
            (Kind::Udp(udp), Side::Read) => !udp.inbox.is_empty(),
            (Kind::Udp(_), _) => true,
            (Kind::UnixStream(unix), Side::Read) => match &unix.state {
                UnixState::Closed => true,
                UnixState::Listening { queue, .. } => !queue.is_empty() || unix.shut_read,
                UnixState::Connected(peer) => {
                    let ends = unix.shut_read || !self.unix_sends(*peer);
                    ends || !unix.inbox.is_empty()
                }
            },
            (Kind::UnixStream(unix), Side::Write) => match unix.state {
                UnixState::Connected(peer) => unix.shut_write || self.unix_room(peer) != Some(0),
                _ => true,
            },
            // A connect waits for room in the listener's queue.
            (Kind::UnixStream(unix), Side::Inbox) => match &unix.state {
                UnixState::Listening { backlog, queue } => queue.len() <= *backlog,
                _ => true,
            },
            (Kind::UnixDatagram(unix), Side::Read) => !unix.inbox.is_empty() || unix.shut_read,
            (Kind::UnixDatagram(unix), Side::Write) => match unix.peer {
                Some((peer, _)) => self.is_ready(peer, Side::Inbox),
                None => true,
            },
            (Kind::UnixDatagram(unix), Side::Inbox) => unix.has_room() || unix.shut_read,
            (Kind::Pipe(Pipe::Reader { writer, bytes }), _) => {
                !bytes.is_empty() || !self.sockets.contains_key(writer)
            }
            (Kind::Pipe(Pipe::Writer { reader }), _) => {
                let room = self.pipe_room(*reader);
                room.is_none_or(|room| room >= PIPE_ATOMIC)
            }
        }
    }

    // Sockets.

    pub(super) fn add(&mut self, socket: Socket) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.sockets.insert(id, socket);
        id
    }

    /// Adds a socket that has the descriptor `placeholder`, and one handle.
    pub(super) fn add_with(
        &mut self,
        host: u32,
        placeholder: OwnedFd,
        kind: Kind,
    ) -> io::Result<Id> {
        let id = self.add(Socket::new(host, kind));
        self.attach(id, placeholder)?;
        Ok(id)
    }

    /// Gives a socket its descriptor, and a handle.
    pub(super) fn attach(&mut self, id: Id, placeholder: OwnedFd) -> io::Result<()> {
        let cookie = SockRef::from(&placeholder).cookie()?;
        self.by_cookie.insert(cookie, id);
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.cookie = cookie;
            socket.opened = self.caller;
            socket.placeholder = Some(placeholder);
            socket.n_handles = 1;
        }
        Ok(())
    }

    /// The socket whose descriptor has this cookie.
    pub fn find(&self, cookie: u64) -> Option<Id> {
        self.by_cookie.get(&cookie).copied()
    }

    /// Counts another handle of a socket that the program has adopted from a descriptor `fd`.
    pub fn adopt(&mut self, id: Id, fd: RawFd) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.n_handles += 1;
            if let Some(at) = socket.given_away.iter().position(|&given| given == fd) {
                socket.given_away.swap_remove(at);
                self.n_given_away -= 1;
            }
        }
    }

    /// A descriptor of the socket leaves windlass, which learns of its end only by looking.
    pub fn give_away(&mut self, id: Id, fd: RawFd) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.given_away.push(fd);
            self.n_given_away += 1;
        }
    }

    /// A handle is gone. The last one closes the socket, unless the program has its descriptor
    /// elsewhere.
    pub fn release(&mut self, dice: &dyn Dice, id: Id) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        socket.n_handles -= 1;
        if socket.n_handles == 0 && socket.given_away.is_empty() {
            self.close(dice, id);
        }
    }

    /// Closes sockets whose descriptors were given away and have been closed since.
    pub(crate) fn sweep(&mut self, dice: &dyn Dice) {
        if self.n_given_away == 0 {
            return;
        }
        let mut closed = Vec::new();
        for (&id, socket) in &mut self.sockets {
            let Some(placeholder) = socket
                .placeholder
                .as_ref()
                .filter(|_| !socket.given_away.is_empty())
            else {
                continue;
            };
            let own = placeholder.as_raw_fd();
            let Some(file) = file_of(own) else { continue };
            let before = socket.given_away.len();
            socket
                .given_away
                .retain(|&fd| file_of(fd).as_ref() == Some(&file));
            // It may have been duplicated, or received from a Unix socket.
            if socket.given_away.is_empty() && socket.n_handles == 0 {
                socket.given_away = duplicates(own, &file);
            }
            self.n_given_away = self.n_given_away + socket.given_away.len() - before;
            if socket.given_away.is_empty() && socket.n_handles == 0 {
                closed.push(id);
            }
        }
        closed.into_iter().for_each(|id| self.close(dice, id));
    }

    /// Takes a socket out, and ends the waits for it.
    pub(super) fn take(&mut self, id: Id) -> Option<Socket> {
        self.wake_all(id);
        let socket = self.sockets.remove(&id)?;
        self.n_given_away -= socket.given_away.len();
        if socket.placeholder.is_some() {
            self.by_cookie.remove(&socket.cookie);
        }
        if let Some(port) = socket.port() {
            self.by_port.remove(&(port, id));
        }
        Some(socket)
    }

    /// The program has closed its descriptor, and the socket goes on sending.
    pub(super) fn forget_descriptor(&mut self, id: Id) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && socket.placeholder.take().is_some()
        {
            self.by_cookie.remove(&socket.cookie);
        }
    }

    pub(super) fn get(&self, id: Id) -> io::Result<&Socket> {
        self.sockets.get(&id).ok_or_else(|| error(libc::EBADF))
    }

    pub(super) fn get_mut(&mut self, id: Id) -> io::Result<&mut Socket> {
        self.sockets.get_mut(&id).ok_or_else(|| error(libc::EBADF))
    }

    /// Returns the error that the next call would report, and takes it.
    pub fn take_error(&mut self, id: Id) -> io::Result<Option<io::Error>> {
        Ok(self.get_mut(id)?.error.take().map(error))
    }

    // Hosts.

    /// Adds a host.
    ///
    /// # Errors
    ///
    /// The fault in its name or its address.
    pub fn add_host(&mut self, name: String, ip: IpAddr, main: Main) -> Result<u32, String> {
        if name.is_empty()
            || name.contains(':')
            || name == "localhost"
            || name.parse::<IpAddr>().is_ok()
        {
            return Err(format!("a host cannot have the name {name:?}"));
        }
        if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) {
            return Err(format!("a host cannot have the address {ip}"));
        }
        if let Some(host) = self
            .hosts
            .iter()
            .find(|host| host.name == name || host.ip == ip)
        {
            return Err(format!(
                "the host {:?} has this name or address: {name:?}, {ip}",
                host.name
            ));
        }
        self.hosts
            .push(Host::new(name, ip.to_canonical(), Some(main)));
        Ok(self.hosts.len() as u32 - 1)
    }

    fn host(&self, host: u32) -> &Host {
        &self.hosts[host as usize]
    }

    pub(super) fn host_mut(&mut self, host: u32) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    /// The number of hosts.
    pub fn n_hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    pub(crate) fn find_host(&self, name: &str) -> Option<u32> {
        let at = self.hosts.iter().position(|host| host.name == name)?;
        Some(at as u32)
    }

    /// The name of a host.
    pub fn name_of(&self, host: u32) -> String {
        self.host(host).name.clone()
    }

    /// The address of a host.
    pub fn ip_of(&self, host: u32) -> IpAddr {
        self.host(host).ip
    }

    /// The program of a host, if it has one.
    pub fn main_of(&self, host: u32) -> Option<Main> {
        self.host(host).main.clone()
    }

    /// The programs of the hosts, for the caller to drop: they may own sockets. No host starts again.
    pub fn take_mains(&mut self) -> Vec<Main> {
        let hosts = self.hosts.iter_mut();
        hosts.filter_map(|host| host.main.take()).collect()
    }

    /// How often a host was started again.
    pub fn n_restarts(&self, host: u32) -> u32 {
        self.host(host).n_restarts
    }

    /// Whether a host has power.
    pub fn is_up(&self, host: u32) -> bool {
        self.host(host).is_up
    }

    pub(crate) fn is_paused(&self, host: u32) -> bool {
        self.host(host).is_paused
    }

    /// Stops a host, or lets it go on.
    pub fn set_paused(&mut self, dice: &dyn Dice, host: u32, paused: bool) {
        let was = std::mem::replace(&mut self.host_mut(host).is_paused, paused);
        if was != paused {
            self.n_paused = self.n_paused + usize::from(paused) - usize::from(was);
            let note = if paused {
                Incident::Pause
            } else {
                Incident::Resume
            };
            self.note(dice, note(host));
        }
    }

    /// Whether a host stands still.
    pub fn is_any_paused(&self) -> bool {
        self.n_paused > 0
    }

    pub(crate) fn life_of(&self, host: u32) -> u32 {
        self.host(host).life
    }

    pub(crate) fn skew_ns(&self, host: u32) -> i64 {
        self.host(host).skew_ns
    }

    /// Sets how far the clock of a host goes before the others.
    pub fn set_skew_ns(&mut self, host: u32, ns: i64) {
        self.host_mut(host).skew_ns = ns;
    }

    /// Takes the power from a host: its sockets are gone, and nobody is told. `false` if it has
    /// none.
    pub fn crash(&mut self, dice: &dyn Dice, host: u32) -> bool {
        let lost = self.host_mut(host);
        if !lost.is_up {
            return false;
        }
        lost.is_up = false;
        lost.life += 1;
        let was_paused = std::mem::take(&mut lost.is_paused);
        self.n_paused -= usize::from(was_paused);
        self.note(dice, Incident::Crash(host));
        let of_host = |(&id, socket): (&Id, &Socket)| (socket.host == host).then_some(id);
        let ids: Vec<Id> = self.sockets.iter().filter_map(of_host).collect();
        for id in ids {
            self.take(id);
        }
        self.plan_probes(dice, |_, to| to == host);
        // Files stay, and so do the names of sockets that are paths.
        self.host_mut(host)
            .names
            .retain(|name, _| name.first() != Some(&0));
        true
    }

    /// Gives a host its power back. `false` if it has it.
    pub fn restart(&mut self, dice: &dyn Dice, host: u32) -> bool {
        let its = self.host_mut(host);
        let was_down = !std::mem::replace(&mut its.is_up, true);
        its.n_restarts += u32::from(was_down);
        if was_down {
            self.note(dice, Incident::Restart(host));
        }
        was_down
    }

    // Links.

    /// Sets the quality of all links.
    pub fn set_all_links(&mut self, quality: Quality) {
        self.links.set_all(quality);
    }

    /// Sets the quality of a link.
    pub fn set_link(&mut self, from: u32, to: u32, quality: Quality) {
        self.links.set(from, to, quality);
    }

    /// Cuts a link, or mends it.
    pub fn set_cut(&mut self, dice: &dyn Dice, from: u32, to: u32, cut: bool) {
        self.links.set_cut(from, to, cut);
        self.note_partition(dice, (from, to), false, cut);
        self.plan_probes(dice, |a, b| (a, b) == (from, to) || (b, a) == (from, to));
    }

    /// Mends all links.
    pub fn heal_all(&mut self, dice: &dyn Dice) {
        let cuts = self.links.cuts();
        self.links.heal_all();
        for &(from, to) in &cuts {
            let is_both = cuts.contains(&(to, from));
            if from < to || !is_both {
                self.note_partition(dice, (from, to), is_both, false);
            }
        }
    }

    /// Sets the share of lookups that fail.
    pub fn set_lookup_failures(&mut self, millionths: u32) {
        self.lookup_failures = millionths;
    }

    // Names.

    /// The addresses of a host by its name.
    pub fn look_up(&self, dice: &dyn Dice, name: &str) -> io::Result<Vec<IpAddr>> {
        if dice.chance(self.lookup_failures) {
            return Err(io::Error::other(
                "failed to lookup address information: Temporary failure in name resolution",
            ));
        }
        if name == "localhost" {
            return Ok(vec![IpAddr::from([127, 0, 0, 1])]);
        }
        match self.find_host(name) {
            Some(host) => Ok(vec![self.host(host).ip]),
            None => Err(io::Error::other(
                "failed to lookup address information: Name or service not known",
            )),
        }
    }

    /// The host to which packets from `from` to the address `to` go.
    pub(super) fn route(&self, from: u32, to: IpAddr) -> Option<u32> {
        if self.host(from).owns(to) {
            return Some(from);
        }
        let at = self.hosts.iter().position(|host| host.ip == to)?;
        Some(at as u32)
    }
}

pub(super) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// The kernel's name for the file of a descriptor; `None` if it is closed.
fn file_of(fd: RawFd) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

/// All descriptors of `file` but `own`.
fn duplicates(own: RawFd, file: &std::path::Path) -> Vec<RawFd> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&fd| fd != own && file_of(fd).as_deref() == Some(file))
        .collect()
}
