//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! EXEC locks the shards of all keys that its commands use or the client watches, in order as any
//! command on several keys. Then it carries the commands out, which use what is locked already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::command::{Command, Outcome, Place};
use super::protocol::{Args, MAX_REQUEST_BYTES, OwnedArgs};
use super::reply::Reply;
use super::session::Session;
use super::store::Bytes;

/// The commands that wait for EXEC.
#[derive(Default)]
pub(super) struct Queue {
    commands: Vec<(Command, OwnedArgs)>,
    n_bytes: usize,
    /// Whether a command could not be queued, so that EXEC must fail.
    pub(super) is_broken: bool,
}

impl Queue {
    pub(super) fn push(&mut self, command: Command, args: Args<'_>) -> Outcome {
        let args = OwnedArgs::from(args);
        self.n_bytes += args.n_bytes();
        if self.n_bytes > MAX_REQUEST_BYTES {
            self.is_broken = true;
            // They will not be carried out.
            self.commands = Vec::new();
            return Err("ERR too big transaction");
        }
        if !self.is_broken {
            self.commands.push((command, args));
        }
        Ok(())
    }
}

/// The keys that must not change until EXEC.
#[derive(Default)]
pub(super) struct Watch {
    keys: Vec<Bytes>,
    /// Whether one of them has changed; `None` until there is one. Ordering: relaxed, as [`super::store`] says.
    is_touched: Option<Arc<AtomicBool>>,
}

impl Watch {
    pub(super) fn keys(&self) -> &[Bytes] {
        &self.keys
    }
}

impl Session<'_> {
    /// Ends the watch of all keys.
    pub(super) fn unwatch(&mut self) {
        let id = self.id;
        for key in std::mem::take(&mut self.watch).keys {
            self.lock(&key).unwatch(&key, id);
        }
    }

    /// The shards that EXEC needs.
    fn shards_of(&self, queue: &Queue) -> Vec<usize> {
        let mut shards = Vec::new();
        let mut add = |key: &[u8]| shards.push(self.store().shard_of(key));
        self.watch.keys.iter().for_each(|key| add(key));
        for (command, args) in &queue.commands {
            let args = args.args();
            match command.place {
                Place::Nowhere => {}
                Place::First => add(&args[1]),
                Place::Each => args.from(1).for_each(&mut add),
                Place::EverySecond => args.from(1).step_by(2).for_each(&mut add),
                Place::Everywhere => return self.all_shards().collect(),
            }
        }
        shards
    }
}

pub(super) fn multi(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if session.queue.is_some() {
        return Err("ERR MULTI calls can not be nested");
    }
    session.queue = Some(Queue::default());
    reply.ok();
    Ok(())
}

pub(super) fn discard(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    session.queue.take().ok_or("ERR DISCARD without MULTI")?;
    session.unwatch();
    reply.ok();
    Ok(())
}

pub(super) fn exec(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let queue = session.queue.take().ok_or("ERR EXEC without MULTI")?;
    if queue.is_broken {
        session.unwatch();
        return Err("EXECABORT Transaction discarded because of previous errors.");
    }
    session.hold(session.shards_of(&queue));
    let is_touched = session.is_touched();
    session.unwatch();
    if is_touched {
        reply.null_array();
    } else {
        reply.array(queue.commands.len());
        for (command, args) in &queue.commands {
            if let Err(error) = (command.run)(session, args.args(), reply) {
                reply.error(error);
            }
        }
    }
    session.release();
    Ok(())
}

/// Ends the transaction because its EXEC is malformed, and returns the error for it.
pub(super) fn abort(session: &mut Session<'_>, why: &str) -> String {
    session.queue = None;
    session.unwatch();
    let why = why.strip_prefix("ERR ").unwrap_or(why);
    format!("EXECABORT Transaction discarded because of: {why}")
}

impl Session<'_> {
    /// Whether a key has changed that this client watches; its shard is locked.
    fn is_touched(&mut self) -> bool {
        for key in std::mem::take(&mut self.watch.keys) {
            // The end of a key's time is a change, too.
            self.lock(&key).end_if_due(&key);
            self.watch.keys.push(key);
        }
        let flag = self.watch.is_touched.as_ref();
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

pub(super) fn watch(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if session.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed");
    }
    for key in args.from(1) {
        if session.watch.keys.iter().all(|other| **other != *key) {
            let (id, flag) = (session.id, session.watch.is_touched.get_or_insert_default());
            let flag = Arc::clone(flag);
            session.lock(key).watch(key, id, &flag);
            session.watch.keys.push(key.into());
        }
    }
    reply.ok();
    Ok(())
}

pub(super) fn unwatch(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    session.unwatch();
    reply.ok();
    Ok(())
}
