//! Commands on keys that hold a list.

use std::collections::VecDeque;

use super::command::{NOT_INTEGER, Outcome, WRONG_TYPE};
use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;
use super::store::{Bytes, Value};

#[derive(Clone, Copy)]
enum End {
    Left,
    Right,
}

fn list(value: &mut Value) -> Result<&mut VecDeque<Bytes>, &'static str> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(WRONG_TYPE),
    }
}

pub(super) fn lpush(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    push(session, args, End::Left, reply)
}

pub(super) fn rpush(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    push(session, args, End::Right, reply)
}

fn push(session: &mut Session<'_>, args: Args<'_>, end: End, reply: &mut Reply<'_>) -> Outcome {
    let mut keys = session.lock(&args[1]);
    let value = keys.get_or_insert(&args[1], || Value::List(VecDeque::new()));
    let list = list(value)?;
    for element in args.from(2) {
        match end {
            End::Left => list.push_front(element.into()),
            End::Right => list.push_back(element.into()),
        }
    }
    reply.count(list.len());
    keys.changed(&args[1]);
    Ok(())
}

pub(super) fn lpop(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    pop(session, args, End::Left, reply)
}

pub(super) fn rpop(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    pop(session, args, End::Right, reply)
}

fn pop(session: &mut Session<'_>, args: Args<'_>, end: End, reply: &mut Reply<'_>) -> Outcome {
    let many = match args.get(2) {
        None => None,
        Some(_) => {
            let n = args.number(2).and_then(|n| usize::try_from(n).ok());
            Some(n.ok_or("ERR value is out of range, must be positive")?)
        }
    };
    let mut keys = session.lock(&args[1]);
    let Some(value) = keys.get(&args[1]) else {
        match many {
            None => reply.null(),
            Some(_) => reply.null_array(),
        }
        return Ok(());
    };
    let list = list(value)?;
    let n = many.unwrap_or(1).min(list.len());
    if many.is_some() {
        reply.array(n);
    }
    for _ in 0..n {
        let element = match end {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        };
        reply.bulk_or_null(element.as_deref());
    }
    if list.is_empty() {
        keys.remove(&args[1]);
    } else if n > 0 {
        keys.changed(&args[1]);
    }
    Ok(())
}

pub(super) fn llen(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    match session.lock(&args[1]).get(&args[1]) {
        Some(value) => reply.count(list(value)?.len()),
        None => reply.integer(0),
    }
    Ok(())
}

pub(super) fn lrange(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let first = args.number(2).ok_or(NOT_INTEGER)?;
    let last = args.number(3).ok_or(NOT_INTEGER)?;
    let mut keys = session.lock(&args[1]);
    let Some(value) = keys.get(&args[1]) else {
        reply.array(0);
        return Ok(());
    };
    let list = list(value)?;
    // A negative position counts from the end.
    let position = |n: i64| match n {
        0.. => n,
        _ => n.saturating_add(list.len() as i64),
    };
    let begin = position(first).max(0) as usize;
    let end = position(last).saturating_add(1).clamp(0, list.len() as i64) as usize;
    if begin >= end {
        reply.array(0);
        return Ok(());
    }
    reply.array(end - begin);
    list.range(begin..end)
        .for_each(|element| reply.bulk(element));
    Ok(())
}
