//! Commands on keys that hold a text.

use std::time::Instant;

use super::command::{NOT_INTEGER, Outcome, SYNTAX, text};
use super::keys;
use super::protocol::{Args, number};
use super::reply::{Reply, decimal};
use super::session::Session;
use super::store::Value;

pub(super) fn get(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.store().lock(&args[1]).get(&args[1]) {
        Some(value) => reply.bulk(text(value)?),
        None => reply.null(),
    }
    Ok(())
}

/// The options of SET.
#[derive(Default)]
struct SetOptions {
    expires: Option<Instant>,
    keeps_end: bool,
    only_if: Option<OnlyIf>,
    gives_old: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum OnlyIf {
    Absent,
    Present,
}

impl SetOptions {
    fn parse(args: Args<'_>) -> Result<SetOptions, &'static str> {
        let mut options = SetOptions::default();
        let mut i = 3;
        while let Some(word) = args.get(i) {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if options.only_if.is_none() => options.only_if = Some(OnlyIf::Absent),
                b"XX" if options.only_if.is_none() => options.only_if = Some(OnlyIf::Present),
                b"GET" => options.gives_old = true,
                b"KEEPTTL" if options.expires.is_none() => options.keeps_end = true,
                unit @ (b"EX" | b"PX") if options.expires.is_none() && !options.keeps_end => {
                    i += 1;
                    let n = number(args.get(i).ok_or(SYNTAX)?).ok_or(NOT_INTEGER)?;
                    let at = (n > 0).then(|| keys::end_in(n, unit == b"EX")).flatten();
                    let at = at.ok_or("ERR invalid expire time in 'set' command")?;
                    options.expires = Some(at);
                }
                _ => return Err(SYNTAX),
            }
            i += 1;
        }
        Ok(options)
    }
}

pub(super) fn set(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = SetOptions::parse(args)?;
    let (key, new) = (&args[1], &args[2]);
    let value = Value::Text(new.to_vec());
    let mut keys = session.store().lock(key);
    if args.len() == 3 {
        // Overwriting a text, the most frequent case, allocates nothing.
        keys.set(key, value, None);
        reply.ok();
        return Ok(());
    }
    let old = match keys.get(key) {
        Some(value) if options.gives_old => Some(Some(text(value)?.clone())),
        Some(_) => Some(None),
        None => None,
    };
    let goes = match options.only_if {
        None => true,
        Some(OnlyIf::Absent) => old.is_none(),
        Some(OnlyIf::Present) => old.is_some(),
    };
    if goes {
        let kept = options.keeps_end.then(|| keys.expires(key)).flatten();
        keys.set(key, value, options.expires.or(kept));
    }
    drop(keys);
    match (options.gives_old, goes) {
        (true, _) => reply.bulk_or_null(old.flatten().as_deref()),
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

pub(super) fn incr(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(session, &args[1], 1, reply)
}

pub(super) fn decr(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(session, &args[1], -1, reply)
}

pub(super) fn incr_by(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let n = args.number(2).ok_or(NOT_INTEGER)?;
    add(session, &args[1], n, reply)
}

pub(super) fn decr_by(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let n = args.number(2).ok_or(NOT_INTEGER)?;
    let n = n.checked_neg().ok_or("ERR decrement would overflow")?;
    add(session, &args[1], n, reply)
}

fn add(session: &Session, key: &[u8], n: i64, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.store().lock(key);
    let value = keys.get_or_insert(key, || Value::Text(b"0".to_vec()));
    let text = text(value)?;
    let old = number(text).ok_or(NOT_INTEGER)?;
    let new = old
        .checked_add(n)
        .ok_or("ERR increment or decrement would overflow")?;
    text.clear();
    decimal(text, new);
    drop(keys);
    reply.integer(new);
    Ok(())
}

pub(super) fn append(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.store().lock(&args[1]);
    let value = keys.get_or_insert(&args[1], || Value::Text(Vec::new()));
    let text = text(value)?;
    text.extend_from_slice(&args[2]);
    reply.count(text.len());
    Ok(())
}

pub(super) fn strlen(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.store().lock(&args[1]).get(&args[1]) {
        Some(value) => reply.count(text(value)?.len()),
        None => reply.integer(0),
    }
    Ok(())
}

pub(super) fn mset(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command");
    }
    let mut locked = session.store().lock_all(args.from(1).step_by(2));
    for (key, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        locked.of(key).set(key, Value::Text(value.to_vec()), None);
    }
    reply.ok();
    Ok(())
}

pub(super) fn mget(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut locked = session.store().lock_all(args.from(1));
    reply.array(args.len() - 1);
    for key in args.from(1) {
        match locked.of(key).get(key) {
            Some(Value::Text(text)) => reply.bulk(text),
            // For this command, a value of another type counts as no value.
            _ => reply.null(),
        }
    }
    Ok(())
}
