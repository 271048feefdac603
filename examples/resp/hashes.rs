//! Commands on keys that hold fields with values.

use std::collections::HashMap;

use super::command::{Outcome, WRONG_TYPE};
use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;
use super::store::{Bytes, Value};

fn hash(value: &mut Value) -> Result<&mut HashMap<Bytes, Bytes>, &'static str> {
    match value {
        Value::Hash(hash) => Ok(hash),
        _ => Err(WRONG_TYPE),
    }
}

pub(super) fn hset(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'hset' command");
    }
    let mut keys = session.lock(&args[1]);
    let value = keys.get_or_insert(&args[1], || Value::Hash(HashMap::new()));
    let hash = hash(value)?;
    let mut n_new = 0;
    for (field, value) in args.from(2).step_by(2).zip(args.from(3).step_by(2)) {
        if hash.insert(field.into(), value.into()).is_none() {
            n_new += 1;
        }
    }
    keys.changed(&args[1]);
    reply.count(n_new);
    Ok(())
}

pub(super) fn hget(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    let found = match keys.get(&args[1]) {
        Some(value) => hash(value)?.get(&args[2]),
        None => None,
    };
    reply.bulk_or_null(found.map(|value| &**value));
    Ok(())
}

pub(super) fn hdel(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    let Some(value) = keys.get(&args[1]) else {
        reply.integer(0);
        return Ok(());
    };
    let hash = hash(value)?;
    let n = args.from(2).filter_map(|field| hash.remove(field)).count();
    if hash.is_empty() {
        keys.remove(&args[1]);
    } else if n > 0 {
        keys.changed(&args[1]);
    }
    reply.count(n);
    Ok(())
}

pub(super) fn hlen(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.lock(&args[1]).get(&args[1]) {
        Some(value) => reply.count(hash(value)?.len()),
        None => reply.integer(0),
    }
    Ok(())
}

pub(super) fn hgetall(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    let Some(value) = keys.get(&args[1]) else {
        reply.map(0);
        return Ok(());
    };
    let hash = hash(value)?;
    reply.map(hash.len());
    for (field, value) in hash {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}
