//! Commands without a key: messages between clients, and requests about the server.

use super::command::{NOT_INTEGER, Outcome, SYNTAX, quoted};
use super::hub::Outbox;
use super::keys;
use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;

use std::sync::Arc;

pub(super) fn publish(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let n = session.hub().publish(&args[1], &args[2]);
    reply.count(n);
    Ok(())
}

pub(super) fn subscribe(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let outbox = match &session.outbox {
        Some(outbox) => Arc::clone(outbox),
        None => {
            let stream = session.stream.try_clone();
            let stream = Arc::new(stream.map_err(|_| "ERR the server has no descriptors left")?);
            Outbox::new(stream, session.is_resp3, session.member())
        }
    };
    session.outbox = Some(Arc::clone(&outbox));
    // The answers to earlier commands must come first.
    if !reply.out.is_empty() {
        outbox.push(reply.out.as_slice().into());
        reply.out.clear();
    }
    for channel in args.from(1) {
        session.channels.insert(channel.into());
        confirm(b"subscribe", Some(channel), session.channels.len(), reply);
        let hub = session.hub();
        hub.subscribe(channel, session.id, &outbox, reply.out);
        reply.out.clear();
    }
    Ok(())
}

pub(super) fn unsubscribe(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let mut channels: Vec<_> = args.from(1).map(Box::from).collect();
    if args.len() == 1 {
        channels.extend(session.channels.iter().cloned());
    }
    if channels.is_empty() {
        confirm(b"unsubscribe", None, 0, reply);
    }
    for channel in channels {
        if session.channels.remove(&channel) {
            session.hub().unsubscribe(&channel, session.id);
        }
        confirm(
            b"unsubscribe",
            Some(&channel),
            session.channels.len(),
            reply,
        );
    }
    Ok(())
}

fn confirm(what: &[u8], channel: Option<&[u8]>, n_channels: usize, reply: &mut Reply<'_>) {
    reply.push(3);
    reply.bulk(what);
    reply.bulk_or_null(channel);
    reply.count(n_channels);
}

pub(super) fn ping(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !session.channels.is_empty() && !session.is_resp3 {
        // In version 2 a subscriber's answer must have the form of a message.
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    match args.get(1) {
        Some(text) => reply.bulk(text),
        None => reply.simple("PONG"),
    }
    Ok(())
}

pub(super) fn echo(_: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.bulk(&args[1]);
    Ok(())
}

/// `HELLO [version [AUTH name password] [SETNAME name]]`
pub(super) fn hello(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if let Some(version) = args.get(1) {
        // Messages that are queued already stay in the version in which they were formatted.
        let can_change = session.outbox.is_none();
        match version {
            b"2" if can_change || !session.is_resp3 => session.is_resp3 = false,
            b"3" if can_change || session.is_resp3 => session.is_resp3 = true,
            _ => return Err("NOPROTO unsupported protocol version"),
        }
        reply.is_resp3 = session.is_resp3;
    }
    let mut i = 2;
    while let Some(word) = args.get(i) {
        if !word.eq_ignore_ascii_case(b"setname") {
            return Err("ERR Syntax error in HELLO: there are no passwords here");
        }
        session.name = args.get(i + 1).ok_or(SYNTAX)?.into();
        i += 2;
    }
    reply.map(5);
    reply.bulk(b"server");
    reply.bulk(b"windlass");
    reply.bulk(b"version");
    reply.bulk(env!("CARGO_PKG_VERSION").as_bytes());
    reply.bulk(b"proto");
    reply.integer(if session.is_resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(session.id as i64);
    reply.bulk(b"role");
    reply.bulk(b"master");
    Ok(())
}

pub(super) fn quit(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    session.is_over = true;
    reply.ok();
    Ok(())
}

/// There is only one database.
pub(super) fn select(_: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match args.number(1).ok_or(NOT_INTEGER)? {
        0 => reply.ok(),
        _ => return Err("ERR DB index is out of range"),
    }
    Ok(())
}

pub(super) fn client(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match (args[1].to_ascii_uppercase().as_slice(), args.get(2)) {
        (b"ID", None) => reply.integer(session.id as i64),
        (b"GETNAME", None) => reply.bulk(&session.name),
        (b"SETNAME", Some(name)) => {
            session.name = name.into();
            reply.ok();
        }
        // Client libraries send their name and version.
        (b"SETINFO", Some(_)) => reply.ok(),
        _ => unknown_subcommand(args, reply),
    }
    Ok(())
}

/// There is nothing to configure. Benchmarks ask whether persistence is on; the answer says no.
pub(super) fn config(_: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
        (b"GET", 3..) => {
            let known = |name: &&[u8]| matches!(*name, b"save" | b"appendonly");
            let names: Vec<_> = args.from(2).filter(known).collect();
            reply.map(names.len());
            for name in names {
                reply.bulk(name);
                reply.bulk(if name == b"save" { b"" } else { b"no" });
            }
        }
        _ => unknown_subcommand(args, reply),
    }
    Ok(())
}

/// redis-cli asks for its hints; it works without them.
pub(super) fn command(_: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref() {
        Some(b"DOCS") => reply.map(0),
        Some(b"COUNT") => reply.integer(0),
        None | Some(b"INFO" | b"LIST") => reply.array(0),
        Some(_) => unknown_subcommand(args, reply),
    }
    Ok(())
}

pub(super) fn info(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let text = format!(
        "# Server\r\nserver_name:windlass\r\nserver_version:{}\r\nprocess_id:{}\r\n\
         # Keyspace\r\ndb0:keys={}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        keys::n_keys(session),
    );
    reply.bulk(text.as_bytes());
    Ok(())
}

fn unknown_subcommand(args: Args<'_>, reply: &mut Reply<'_>) {
    let name = quoted(&args[1]);
    reply.error(&format!("ERR unknown subcommand '{name}'"));
}
