//! Commands on keys that hold a text.

use super::command::{NOT_INTEGER, Outcome, SYNTAX, text};
use super::keys::Unit;
use super::protocol::{Args, number};
use super::reply::{Reply, decimal};
use super::session::Session;
use super::store::{UnixMs, Value};

pub(super) fn get(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.lock(&args[1]).get(&args[1]) {
        Some(value) => reply.bulk(text(value)?),
        None => reply.null(),
    }
    Ok(())
}

/// The options of SET.
#[derive(Default)]
struct SetOptions {
    expires: Option<UnixMs>,
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
        let mut end: Option<(Unit, &[u8])> = None;
        let mut i = 3;
        while let Some(word) = args.get(i) {
            let word = word.to_ascii_uppercase();
            // An option may be repeated, and the last one counts.
            match (word.as_slice(), Unit::of_option(&word)) {
                (b"NX", _) if options.only_if != Some(OnlyIf::Present) => {
                    options.only_if = Some(OnlyIf::Absent);
                }
                (b"XX", _) if options.only_if != Some(OnlyIf::Absent) => {
                    options.only_if = Some(OnlyIf::Present);
                }
                (b"GET", _) => options.gives_old = true,
                (b"KEEPTTL", _) if end.is_none() => options.keeps_end = true,
                (_, Some(unit))
                    if !options.keeps_end && end.is_none_or(|(other, _)| other == unit) =>
                {
                    i += 1;
                    end = Some((unit, args.get(i).ok_or(SYNTAX)?));
                }
                _ => return Err(SYNTAX),
            }
            i += 1;
        }
        if let Some((unit, n)) = end {
            let n = number(n).ok_or(NOT_INTEGER)?;
            let at = (n > 0).then(|| unit.end(n)).flatten();
            options.expires = Some(at.ok_or("ERR invalid expire time in 'set' command")?);
        }
        Ok(options)
    }
}

pub(super) fn set(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = SetOptions::parse(args)?;
    let (key, new) = (&args[1], &args[2]);
    let value = Value::Text(new.to_vec());
    let mut keys = session.lock(key);
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

pub(super) fn incr(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(session, &args[1], 1, reply)
}

pub(super) fn decr(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(session, &args[1], -1, reply)
}

pub(super) fn incr_by(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let n = args.number(2).ok_or(NOT_INTEGER)?;
    add(session, &args[1], n, reply)
}

pub(super) fn decr_by(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let n = args.number(2).ok_or(NOT_INTEGER)?;
    let n = n.checked_neg().ok_or("ERR decrement would overflow")?;
    add(session, &args[1], n, reply)
}

fn add(session: &mut Session<'_>, key: &[u8], n: i64, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(key);
    let value = keys.get_or_insert(key, || Value::Text(b"0".to_vec()));
    let text = text(value)?;
    let old = number(text).ok_or(NOT_INTEGER)?;
    let new = old
        .checked_add(n)
        .ok_or("ERR increment or decrement would overflow")?;
    text.clear();
    decimal(text, new);
    keys.changed(key);
    drop(keys);
    reply.integer(new);
    Ok(())
}

pub(super) fn append(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    let value = keys.get_or_insert(&args[1], || Value::Text(Vec::new()));
    let text = text(value)?;
    text.extend_from_slice(&args[2]);
    reply.count(text.len());
    keys.changed(&args[1]);
    Ok(())
}

pub(super) fn strlen(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.lock(&args[1]).get(&args[1]) {
        Some(value) => reply.count(text(value)?.len()),
        None => reply.integer(0),
    }
    Ok(())
}

pub(super) fn mset(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command");
    }
    let mut locked = session.lock_all(args.from(1).step_by(2));
    for (key, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        locked.of(key).set(key, Value::Text(value.to_vec()), None);
    }
    reply.ok();
    Ok(())
}

pub(super) fn mget(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut locked = session.lock_all(args.from(1));
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
