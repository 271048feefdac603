//! Commands on keys with values of any type.

use super::command::{NOT_INTEGER, Outcome, SYNTAX, quoted};
use super::pattern;
use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;
use super::store::{Bytes, UnixMs, Value, now_ms};

/// In what a command gives the end of a key.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    /// The unit of an option of SET.
    pub(super) fn of_option(word: &[u8]) -> Option<Unit> {
        Some(match word {
            b"EX" => Unit::Seconds,
            b"PX" => Unit::Milliseconds,
            b"EXAT" => Unit::UnixSeconds,
            b"PXAT" => Unit::UnixMilliseconds,
            _ => return None,
        })
    }

    /// The time that is given by `n`, unless it is too far away to be a number.
    pub(super) fn end(self, n: i64) -> Option<UnixMs> {
        let n = match self {
            Unit::Seconds | Unit::UnixSeconds => n.checked_mul(1000)?,
            Unit::Milliseconds | Unit::UnixMilliseconds => n,
        };
        match self {
            Unit::Seconds | Unit::Milliseconds => n.checked_add(now_ms()),
            Unit::UnixSeconds | Unit::UnixMilliseconds => Some(n),
        }
    }
}

pub(super) fn del(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let removed: Vec<_> = {
        let mut locked = session.lock_all(args.from(1));
        args.from(1)
            .filter_map(|key| locked.of(key).remove(key))
            .collect()
    };
    reply.count(removed.len());
    Ok(())
}

pub(super) fn exists(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut locked = session.lock_all(args.from(1));
    let n = args
        .from(1)
        .filter(|key| locked.of(key).get(key).is_some())
        .count();
    reply.count(n);
    Ok(())
}

pub(super) fn expire(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let overflow = "ERR invalid expire time in 'expire' command";
    set_end(session, args, Unit::Seconds, overflow, reply)
}

pub(super) fn pexpire(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let overflow = "ERR invalid expire time in 'pexpire' command";
    set_end(session, args, Unit::Milliseconds, overflow, reply)
}

pub(super) fn expire_at(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let overflow = "ERR invalid expire time in 'expireat' command";
    set_end(session, args, Unit::UnixSeconds, overflow, reply)
}

pub(super) fn pexpire_at(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let overflow = "ERR invalid expire time in 'pexpireat' command";
    set_end(session, args, Unit::UnixMilliseconds, overflow, reply)
}

/// When a command may change the end of a key.
#[derive(Default)]
struct EndOptions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

impl EndOptions {
    fn parse(args: Args<'_>) -> Result<EndOptions, String> {
        let mut options = EndOptions::default();
        for word in args.from(3) {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => options.if_none = true,
                b"XX" => options.if_some = true,
                b"GT" => options.if_later = true,
                b"LT" => options.if_earlier = true,
                _ => return Err(format!("ERR Unsupported option {}", quoted(word))),
            }
        }
        let EndOptions {
            if_none,
            if_some,
            if_later,
            if_earlier,
        } = options;
        if if_none && (if_some || if_later || if_earlier) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            );
        }
        if if_later && if_earlier {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(options)
    }

    /// Whether a key that ends at `old` may end at `new`. No end is later than every other.
    fn allow(&self, old: Option<UnixMs>, new: UnixMs) -> bool {
        !(self.if_none && old.is_some()
            || self.if_some && old.is_none()
            || self.if_later && old.is_none_or(|old| new <= old)
            || self.if_earlier && old.is_some_and(|old| new >= old))
    }
}

fn set_end(
    session: &mut Session<'_>,
    args: Args<'_>,
    unit: Unit,
    overflow: &'static str,
    reply: &mut Reply<'_>,
) -> Outcome {
    let options = match EndOptions::parse(args) {
        Ok(options) => options,
        Err(error) => {
            reply.error(&error);
            return Ok(());
        }
    };
    let at = unit
        .end(args.number(2).ok_or(NOT_INTEGER)?)
        .ok_or(overflow)?;
    let key = &args[1];
    let mut keys = session.lock(key);
    let is_there = keys.get(key).is_some();
    let changes = is_there && options.allow(keys.expires(key), at);
    if changes && at > now_ms() {
        keys.set_expires(key, Some(at));
        keys.changed(key);
    } else if changes {
        keys.remove(key);
    }
    reply.integer(i64::from(changes));
    Ok(())
}

pub(super) fn persist(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = &args[1];
    let mut keys = session.lock(key);
    let did_end = keys.get(key).is_some() && keys.expires(key).is_some();
    if did_end {
        keys.set_expires(key, None);
        keys.changed(key);
    }
    reply.integer(i64::from(did_end));
    Ok(())
}

pub(super) fn ttl(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let left = end_of(session, &args[1]).map(time_left).map(to_seconds);
    reply.integer(left.unwrap_or_else(|none| none));
    Ok(())
}

pub(super) fn pttl(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let left = end_of(session, &args[1]).map(time_left);
    reply.integer(left.unwrap_or_else(|none| none));
    Ok(())
}

pub(super) fn expire_time(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let end = end_of(session, &args[1]).map(to_seconds);
    reply.integer(end.unwrap_or_else(|none| none));
    Ok(())
}

pub(super) fn pexpire_time(
    session: &mut Session<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    reply.integer(end_of(session, &args[1]).unwrap_or_else(|none| none));
    Ok(())
}

/// The end of a key; -1 if it does not expire, -2 if it does not exist.
fn end_of(session: &mut Session<'_>, key: &[u8]) -> Result<UnixMs, i64> {
    let mut keys = session.lock(key);
    keys.get(key).ok_or(-2)?;
    keys.expires(key).ok_or(-1)
}

fn time_left(end: UnixMs) -> i64 {
    (end - now_ms()).max(0)
}

/// Rounded to the nearest second, so that TTL returns 10 after EXPIRE 10.
fn to_seconds(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 >= 500)
}

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`. The cursor is the number of a shard, and a
/// call returns whole shards, so that a key that exists all the time is returned exactly once.
pub(super) fn scan(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let cursor = str::from_utf8(&args[1]).ok();
    let cursor = cursor.and_then(|text| text.parse::<u64>().ok());
    let mut cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut n_wanted, mut type_name) = (&b"*"[..], 10, None);
    for (i, option) in args.from(2).step_by(2).enumerate() {
        let value = args.get(2 * i + 3).ok_or(SYNTAX)?;
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = value,
            b"COUNT" => {
                let n = args.number(2 * i + 3).ok_or(NOT_INTEGER)?;
                n_wanted = usize::try_from(n).ok().filter(|&n| n > 0).ok_or(SYNTAX)?;
            }
            b"TYPE" => type_name = Some(value.to_ascii_lowercase()),
            _ => return Err(SYNTAX),
        }
    }
    let is_of_type = |value: &Value| {
        let wanted = type_name.as_deref();
        wanted.is_none_or(|name| name == value.type_name().as_bytes())
    };
    let mut n_seen = 0;
    let mut found = Vec::<Bytes>::new();
    while n_seen < n_wanted {
        let shard = usize::try_from(cursor).ok();
        let Some(keys) = shard.and_then(|at| session.lock_shard(at)) else {
            cursor = 0;
            break;
        };
        n_seen += keys.len();
        let fitting = keys
            .each()
            .filter(|(key, value)| is_of_type(value) && pattern::matches(pattern, key));
        found.extend(fitting.map(|(key, _)| key.into()));
        cursor += 1;
    }
    if cursor >= session.all_shards().len() as u64 {
        cursor = 0;
    }
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// `KEYS pattern`
pub(super) fn keys(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut found = Vec::<Bytes>::new();
    for shard in session.all_shards() {
        if let Some(keys) = session.lock_shard(shard) {
            let fitting = keys
                .each()
                .filter(|(key, _)| pattern::matches(&args[1], key));
            found.extend(fitting.map(|(key, _)| key.into()));
        }
    }
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

pub(super) fn type_of(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    reply.simple(keys.get(&args[1]).map_or("none", |value| value.type_name()));
    Ok(())
}

pub(super) fn db_size(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.count(n_keys(session));
    Ok(())
}

/// The number of all keys.
pub(super) fn n_keys(session: &mut Session<'_>) -> usize {
    let mut n = 0;
    for shard in session.all_shards() {
        n += session.lock_shard(shard).map_or(0, |keys| keys.len());
    }
    n
}

pub(super) fn flush(session: &mut Session<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    for shard in session.all_shards() {
        let removed = session.lock_shard(shard).map(|mut keys| keys.take_all());
        // Freed after the lock is released.
        drop(removed);
    }
    reply.ok();
    Ok(())
}
