//! The protocol of a server: what it knows, and what it does with each message. It waits for nothing,
//! and knows neither sockets nor files.
//!
//! Time is divided into *terms*, each with at most one primary: a server votes once in a term, and a
//! primary has the votes of a majority. A server that sees a higher term takes it over, and is a backup
//! then. The rules that make it safe:
//!
//! 1. A server answers nobody before its term, its vote and its log are on disk as the answer says
//!    ([`Replica::queued`], [`Replica::saved`]).
//! 2. It votes only for candidates whose log is at least as new as its own. So a primary has all
//!    entries that a majority had on disk.
//! 3. An entry is committed when a majority has it on disk and it is of the primary's own term. Those
//!    before it are committed with it.

use std::mem;

use windlass::time::Instant;

use super::log::{Found, Record};
use super::protocol::{Command, Entry, Position, Request, Response};
use super::store::Store;
use super::{Bug, Config, Timing};

/// The most entries of one message.
const MAX_ENTRIES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Backup {
        /// The primary of the term, if it is known.
        primary: Option<usize>,
    },
    Candidate {
        /// The number of the record with its term and its vote for itself.
        record: u64,
    },
    Primary {
        /// The index of its first entry.
        first: u64,
    },
}

/// A server's knowledge of another one.
#[derive(Clone, Debug)]
struct Peer {
    /// Its vote for this candidate, if it has answered.
    vote: Option<bool>,
    /// The index of the entry that it is sent next.
    next: u64,
    /// It has the primary's log on disk up to here.
    matched: u64,
    /// The last read for which it has confirmed that the primary still is one.
    read: u64,
    /// When the primary sent the last message that was answered.
    reached: Instant,
    /// When it is sent something even if there is nothing new.
    due: Instant,
}

/// A task for a peer.
#[derive(Debug)]
pub(super) enum Task {
    Send(Request),
    WaitUntil(Instant),
    Wait,
}

/// Events that others wait for. The server looks after each step.
#[derive(Debug, Default)]
pub(super) struct News {
    /// There may be something to send.
    pub(super) to_send: bool,
    /// Something was saved, committed, confirmed, or there is another primary.
    pub(super) progress: bool,
}

/// A command that waits for its entry to be committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal {
    term: u64,
    client: u64,
    number: u64,
}

/// A read that waits for a majority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    term: u64,
    number: u64,
}

#[derive(Debug)]
pub(super) struct Replica {
    id: usize,
    timing: Timing,
    bug: Option<Bug>,
    random: u64,

    pub(super) term: u64,
    vote: Option<usize>,
    role: Role,
    /// When it stands for election, or, as primary, looks whether it still reaches a majority.
    deadline: Instant,
    /// All servers, by their place in the cluster. Its own one is not used.
    peers: Vec<Peer>,
    /// The number of the last read.
    read: u64,

    /// The entries, each with the number of its record.
    log: Vec<(Entry, u64)>,
    commit: u64,
    store: Store,

    /// Records that have to be saved, in order.
    records: Vec<Record>,
    /// How many records there have been, and how many of them are on disk.
    pub(super) queued: u64,
    pub(super) saved: u64,

    pub(super) news: News,
}

impl Replica {
    /// A server that has found this on its disk.
    pub(super) fn new(config: &Config, found: Found, now: Instant) -> Replica {
        let peer = Peer {
            vote: None,
            next: 1,
            matched: 0,
            read: 0,
            reached: now,
            due: now,
        };
        let mut replica = Replica {
            id: config.id,
            timing: config.timing,
            bug: config.bug,
            random: first_random(config.seed, config.id),
            term: found.term,
            vote: found.vote,
            role: Role::Backup { primary: None },
            deadline: now,
            peers: vec![peer; config.cluster.len()],
            read: 0,
            log: found.entries.into_iter().map(|entry| (entry, 0)).collect(),
            commit: 0,
            store: Store::default(),
            records: Vec::new(),
            queued: 0,
            saved: 0,
            news: News::default(),
        };
        replica.wait_for_primary(now);
        replica
    }

    // The log.

    fn last_index(&self) -> u64 {
        self.log.len() as u64
    }

    fn position(&self, index: u64) -> Position {
        let term = match index {
            0 => 0,
            _ => self.log[index as usize - 1].0.term,
        };
        Position { index, term }
    }

    fn add_entry(&mut self, entry: Entry) {
        self.save(Record::Entry(self.last_index() + 1, entry.clone()));
        self.log.push((entry, self.queued));
    }

    /// The index up to which the log is on its own disk.
    fn saved_index(&self) -> u64 {
        self.log
            .partition_point(|&(_, record)| record <= self.saved) as u64
    }

    fn commit_to(&mut self, index: u64) {
        while self.commit < index {
            self.store.apply(&self.log[self.commit as usize].0);
            self.commit += 1;
            self.news.progress = true;
        }
    }

    // The disk.

    fn save(&mut self, record: Record) {
        self.records.push(record);
        self.queued += 1;
    }

    fn save_term(&mut self) {
        self.save(Record::Term {
            term: self.term,
            vote: self.vote,
        });
    }

    pub(super) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// The records to save, and the number of the last one.
    pub(super) fn take_records(&mut self) -> (Vec<Record>, u64) {
        (mem::take(&mut self.records), self.queued)
    }

    /// The disk has all records up to this number.
    pub(super) fn note_saved(&mut self, record: u64, now: Instant) {
        self.saved = record;
        self.news.progress = true;
        if let Role::Candidate { .. } = self.role {
            self.news.to_send = true;
            self.count_votes(now);
        }
        self.count_copies();
    }

    // Terms and elections.

    fn majority(&self) -> usize {
        self.peers.len() / 2 + 1
    }

    fn others(&self) -> impl Iterator<Item = &Peer> {
        let peers = self.peers.iter().enumerate();
        peers.filter(|&(id, _)| id != self.id).map(|(_, peer)| peer)
    }

    fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary { .. })
    }

    /// The primary, as far as this server knows.
    fn primary(&self) -> Option<usize> {
        match self.role {
            Role::Backup { primary } => primary,
            Role::Candidate { .. } => None,
            Role::Primary { .. } => Some(self.id),
        }
    }

    /// Waits for a primary for the time of an election, or up to twice as long: another time each time, so
    /// that not all servers stand for election at once.
    fn wait_for_primary(&mut self, now: Instant) {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 32) as u32 % 1024;
        self.deadline = now + self.timing.election + self.timing.election * part / 1024;
    }

    fn become_backup(&mut self, primary: Option<usize>) {
        let role = Role::Backup { primary };
        self.news.progress |= self.role != role;
        self.role = role;
    }

    /// Takes over a term that is higher than its own.
    fn enter_term(&mut self, term: u64) {
        self.term = term;
        self.vote = None;
        self.save_term();
        self.become_backup(None);
    }

    /// Does what is due. Returns when to call it again.
    pub(super) fn tick(&mut self, now: Instant) -> Instant {
        if now < self.deadline {
            return self.deadline;
        }
        if self.is_primary() {
            let resigns = self.reached_majority(now) + 2 * self.timing.election;
            if now < resigns {
                self.deadline = resigns;
            } else {
                // Its clients try the others, and its backups may be waiting for it in vain.
                self.become_backup(None);
                self.wait_for_primary(now);
            }
        } else {
            self.term += 1;
            self.vote = Some(self.id);
            self.save_term();
            let record = self.queued;
            self.role = Role::Candidate { record };
            self.peers.iter_mut().for_each(|peer| peer.vote = None);
            self.wait_for_primary(now);
        }
        self.deadline
    }

    /// When a majority, itself included, was last reached.
    fn reached_majority(&self, now: Instant) -> Instant {
        let mut times: Vec<Instant> = self.others().map(|peer| peer.reached).collect();
        times.push(now);
        nth_largest(times, self.majority())
    }

    /// As a candidate: becomes the primary if it has the votes.
    fn count_votes(&mut self, now: Instant) {
        let Role::Candidate { record } = self.role else {
            return;
        };
        let votes = self.others().filter(|peer| peer.vote == Some(true)).count();
        if self.saved < record || votes + 1 < self.majority() {
            return;
        }
        let next = self.last_index() + 1;
        for peer in &mut self.peers {
            (peer.next, peer.matched, peer.read) = (next, 0, 0);
            (peer.reached, peer.due) = (now, now);
        }
        self.role = Role::Primary { first: next };
        self.deadline = now + self.timing.election;
        self.add_entry(Entry {
            term: self.term,
            client: 0,
            number: 0,
            command: Command::Nothing,
        });
        self.news.to_send = true;
        self.news.progress = true;
    }

    // Requests of a server to others.

    /// The message for a peer.
    pub(super) fn task_for(&mut self, peer: usize, now: Instant) -> Task {
        match self.role {
            Role::Backup { .. } => Task::Wait,
            Role::Candidate { record } => {
                if self.saved < record || self.peers[peer].vote.is_some() {
                    return Task::Wait;
                }
                Task::Send(Request::Vote {
                    term: self.term,
                    candidate: self.id,
                    last: self.position(self.last_index()),
                })
            }
            Role::Primary { .. } => {
                let to = &self.peers[peer];
                let is_complete = to.next > self.last_index() && to.read == self.read;
                if is_complete && now < to.due {
                    return Task::WaitUntil(to.due);
                }
                let first = to.next as usize - 1;
                let entries = self.log[first..].iter().take(MAX_ENTRIES);
                let entries = entries.map(|(entry, _)| entry.clone()).collect();
                let previous = self.position(first as u64);
                self.peers[peer].due = now + self.timing.heartbeat;
                Task::Send(Request::Append {
                    term: self.term,
                    primary: self.id,
                    previous,
                    entries,
                    commit: self.commit,
                    read: self.read,
                })
            }
        }
    }

    /// The answer of a peer to what it was sent at `sent`.
    pub(super) fn take_response(
        &mut self,
        peer: usize,
        request: &Request,
        response: &Response,
        sent: Instant,
        now: Instant,
    ) {
        let (Response::Vote { term, .. } | Response::Append { term, .. }) = response else {
            return;
        };
        if *term > self.term {
            self.enter_term(*term);
            self.wait_for_primary(now);
            return;
        }
        match (request, response) {
            (Request::Vote { term, .. }, Response::Vote { granted, .. }) if *term == self.term => {
                self.peers[peer].vote = Some(*granted);
                self.count_votes(now);
            }
            (Request::Append { term, read, .. }, Response::Append { matched, .. })
                if *term == self.term && self.is_primary() =>
            {
                let last = self.last_index();
                let to = &mut self.peers[peer];
                to.reached = sent;
                if to.read < *read {
                    to.read = *read;
                    self.news.progress = true;
                }
                match *matched {
                    Ok(index) => {
                        to.matched = index.min(last).max(to.matched);
                        to.next = to.matched + 1;
                    }
                    Err(index) => to.next = index.min(last) + 1,
                }
                self.count_copies();
            }
            _ => {}
        }
    }

    /// As primary: commits what a majority has on disk.
    fn count_copies(&mut self) {
        if !self.is_primary() {
            return;
        }
        let mut copies: Vec<u64> = self.others().map(|peer| peer.matched).collect();
        copies.push(self.saved_index());
        let index = nth_largest(copies, self.majority());
        // Entries of earlier terms may be replaced even if a majority has them.
        if self.position(index).term == self.term {
            self.commit_to(index);
        }
    }

    // Requests of others.

    /// A candidate asks for a vote. Returns whether it has it.
    pub(super) fn give_vote(
        &mut self,
        term: u64,
        candidate: usize,
        last: Position,
        now: Instant,
    ) -> bool {
        if term > self.term {
            self.enter_term(term);
        }
        let own = self.position(self.last_index());
        let is_new = (last.term, last.index) >= (own.term, own.index);
        let is_free = self.vote.is_none_or(|id| id == candidate);
        let granted = term == self.term && is_new && is_free;
        if granted {
            if self.vote.is_none() {
                self.vote = Some(candidate);
                self.save_term();
            }
            self.wait_for_primary(now);
        }
        granted
    }

    /// The primary sends entries. Returns what [`Response::Append`] has.
    pub(super) fn append(
        &mut self,
        term: u64,
        primary: usize,
        previous: Position,
        entries: Vec<Entry>,
        commit: u64,
        now: Instant,
    ) -> Result<u64, u64> {
        if term < self.term {
            return Err(self.last_index());
        }
        if term > self.term {
            self.enter_term(term);
        }
        self.become_backup(Some(primary));
        self.wait_for_primary(now);
        let last = self.last_index();
        if previous.index > last || self.position(previous.index) != previous {
            return Err(last.min(previous.index.saturating_sub(1)));
        }
        let mut index = previous.index;
        for entry in entries {
            index += 1;
            if index <= self.last_index() {
                if self.position(index).term == entry.term {
                    continue;
                }
                assert!(index > self.commit, "a committed entry is never replaced");
                self.log.truncate(index as usize - 1);
            }
            self.add_entry(entry);
        }
        self.commit_to(commit.min(index));
        Ok(index)
    }

    /// A client's command comes into the log, if this is the primary.
    pub(super) fn propose(&mut self, client: u64, number: u64, command: Command) -> Proposal {
        if self.is_primary() && !self.store.is_past(client, number) {
            self.add_entry(Entry {
                term: self.term,
                client,
                number,
                command,
            });
            self.news.to_send = true;
        }
        Proposal {
            term: self.term,
            client,
            number,
        }
    }

    /// The answer to a command, if there is one already.
    pub(super) fn outcome(&self, proposal: &Proposal) -> Option<Response> {
        if let Some(before) = self.store.answer(proposal.client, proposal.number) {
            return Some(Response::Done(before));
        }
        let is_past = self.store.is_past(proposal.client, proposal.number);
        let is_waiting = self.is_primary() && self.term == proposal.term && !is_past;
        (!is_waiting).then(|| Response::Elsewhere(self.primary()))
    }

    /// A client wants to read. The next message to each backup asks for its confirmation, too.
    pub(super) fn begin_read(&mut self) -> Reading {
        if self.is_primary() {
            self.read += 1;
            self.news.to_send = true;
        }
        Reading {
            term: self.term,
            number: self.read,
        }
    }

    /// The value of a key, when it is known to be no older than the read.
    ///
    /// A majority has answered a message of this term that was sent after the read began. So no
    /// primary of a later term was elected before the read began: a majority would have had to vote for
    /// it. Records that earlier primaries have committed are in the log before the primary's first entry.
    pub(super) fn read(&self, reading: &Reading, key: &str) -> Option<Response> {
        let Role::Primary { first } = self.role else {
            return Some(Response::Elsewhere(self.primary()));
        };
        if self.term != reading.term {
            return Some(Response::Elsewhere(None));
        }
        let confirmed = self.others().filter(|peer| peer.read >= reading.number);
        let is_confirmed = confirmed.count() + 1 >= self.majority() && self.commit >= first;
        (is_confirmed || self.bug == Some(Bug::StaleRead))
            .then(|| Response::Done(self.store.get(key)))
    }
}

/// Seeds and places that are similar give numbers that are not: the finisher of SplitMix64 (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). None is 0.
fn first_random(seed: u64, id: usize) -> u64 {
    // Seeds that differ in the same bits as the places, as process ids do, must not become equal.
    mix(mix(seed).wrapping_add(id as u64)) | 1
}

fn mix(mut n: u64) -> u64 {
    n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

fn nth_largest<T: Ord + Copy>(mut values: Vec<T>, n: usize) -> T {
    values.sort_unstable();
    values[values.len() - n]
}
