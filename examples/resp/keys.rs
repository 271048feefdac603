//! Commands on keys with values of any type.

use std::time::{Duration, Instant};

use super::command::{NOT_INTEGER, Outcome};
use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;

/// The longest lifetime of a key: long enough for every use, and small enough to be added to the
/// current time.
const MAX_SECONDS: u64 = 1000 * 365 * 24 * 3600;

/// The instant that many seconds or milliseconds from now, unless it is too far away.
pub(super) fn end_in(n: i64, is_seconds: bool) -> Option<Instant> {
    let n = u64::try_from(n).ok()?;
    let time = match is_seconds {
        true => Duration::from_secs(n),
        false => Duration::from_millis(n),
    };
    (time.as_secs() <= MAX_SECONDS).then(|| Instant::now() + time)
}

pub(super) fn del(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let removed: Vec<_> = {
        let mut locked = session.store().lock_all(args.from(1));
        args.from(1)
            .filter_map(|key| locked.of(key).remove(key))
            .collect()
    };
    reply.count(removed.len());
    Ok(())
}

pub(super) fn exists(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut locked = session.store().lock_all(args.from(1));
    let n = args
        .from(1)
        .filter(|key| locked.of(key).get(key).is_some())
        .count();
    reply.count(n);
    Ok(())
}

pub(super) fn expire(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    expire_in(session, args, true, reply)
}

pub(super) fn pexpire(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    expire_in(session, args, false, reply)
}

fn expire_in(
    session: &Session,
    args: Args<'_>,
    is_seconds: bool,
    reply: &mut Reply<'_>,
) -> Outcome {
    let n = args.number(2).ok_or(NOT_INTEGER)?;
    // A time in the past means now.
    let at = end_in(n.max(0), is_seconds).ok_or("ERR invalid expire time in 'expire' command")?;
    let key = &args[1];
    let mut keys = session.store().lock(key);
    let is_there = keys.get(key).is_some();
    if n > 0 {
        keys.set_expires(key, Some(at));
    } else {
        keys.remove(key);
    }
    reply.integer(i64::from(is_there));
    Ok(())
}

pub(super) fn persist(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = &args[1];
    let mut keys = session.store().lock(key);
    let did_end = keys.get(key).is_some() && keys.expires(key).is_some();
    keys.set_expires(key, None);
    reply.integer(i64::from(did_end));
    Ok(())
}

pub(super) fn ttl(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let left = time_left(session, &args[1]);
    // Rounded to the nearest second, so that TTL returns 10 after EXPIRE 10.
    reply.integer(left.map_or_else(|none| none, |left| (left.as_millis() as i64 + 500) / 1000));
    Ok(())
}

pub(super) fn pttl(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let left = time_left(session, &args[1]);
    reply.integer(left.map_or_else(|none| none, |left| left.as_millis() as i64));
    Ok(())
}

/// The remaining lifetime of a key; -1 if it does not expire, -2 if it does not exist.
fn time_left(session: &Session, key: &[u8]) -> Result<Duration, i64> {
    let mut keys = session.store().lock(key);
    keys.get(key).ok_or(-2)?;
    let at = keys.expires(key).ok_or(-1)?;
    Ok(at.saturating_duration_since(Instant::now()))
}

pub(super) fn type_of(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.store().lock(&args[1]);
    reply.simple(keys.get(&args[1]).map_or("none", |value| value.type_name()));
    Ok(())
}

pub(super) fn db_size(session: &mut Session, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.count(session.store().len());
    Ok(())
}

pub(super) fn flush(session: &mut Session, _: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    session.store().clear();
    reply.ok();
    Ok(())
}
