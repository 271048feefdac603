//! The table of commands, and what the commands have in common.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;
use super::store::Value;
use super::{hashes, keys, lists, messages, texts, transaction};

/// The result of a command: its answer was written, or this error must be.
pub(super) type Outcome = Result<(), &'static str>;

pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const SYNTAX: &str = "ERR syntax error";

/// The longest name of a command.
const MAX_NAME_BYTES: usize = 16;

type Run = fn(&mut Session<'_>, Args<'_>, &mut Reply<'_>) -> Outcome;

/// A command.
#[derive(Clone)]
pub(super) struct Command {
    /// The number of its arguments, including its name.
    n_args: RangeInclusive<usize>,
    pub(super) place: Place,
    pub(super) run: Run,
}

/// Which keys a command uses.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Nowhere,
    /// The first argument behind its name.
    First,
    /// All of them.
    Each,
    /// The first, the third and so on.
    EverySecond,
    /// All that there are.
    Everywhere,
}

const ANY: usize = usize::MAX;

fn find(name: &[u8]) -> Option<Command> {
    let (n_args, place, run): (_, _, Run) = match name {
        b"GET" => (2..=2, Place::First, texts::get),
        b"SET" => (3..=ANY, Place::First, texts::set),
        b"INCR" => (2..=2, Place::First, texts::incr),
        b"DECR" => (2..=2, Place::First, texts::decr),
        b"INCRBY" => (3..=3, Place::First, texts::incr_by),
        b"DECRBY" => (3..=3, Place::First, texts::decr_by),
        b"APPEND" => (3..=3, Place::First, texts::append),
        b"STRLEN" => (2..=2, Place::First, texts::strlen),
        b"MSET" => (3..=ANY, Place::EverySecond, texts::mset),
        b"MGET" => (2..=ANY, Place::Each, texts::mget),
        b"DEL" | b"UNLINK" => (2..=ANY, Place::Each, keys::del),
        b"EXISTS" => (2..=ANY, Place::Each, keys::exists),
        b"EXPIRE" => (3..=ANY, Place::First, keys::expire),
        b"PEXPIRE" => (3..=ANY, Place::First, keys::pexpire),
        b"EXPIREAT" => (3..=ANY, Place::First, keys::expire_at),
        b"PEXPIREAT" => (3..=ANY, Place::First, keys::pexpire_at),
        b"EXPIRETIME" => (2..=2, Place::First, keys::expire_time),
        b"PEXPIRETIME" => (2..=2, Place::First, keys::pexpire_time),
        b"SCAN" => (2..=ANY, Place::Everywhere, keys::scan),
        b"KEYS" => (2..=2, Place::Everywhere, keys::keys),
        b"PERSIST" => (2..=2, Place::First, keys::persist),
        b"TTL" => (2..=2, Place::First, keys::ttl),
        b"PTTL" => (2..=2, Place::First, keys::pttl),
        b"TYPE" => (2..=2, Place::First, keys::type_of),
        b"DBSIZE" => (1..=1, Place::Everywhere, keys::db_size),
        b"FLUSHDB" | b"FLUSHALL" => (1..=2, Place::Everywhere, keys::flush),
        b"LPUSH" => (3..=ANY, Place::First, lists::lpush),
        b"RPUSH" => (3..=ANY, Place::First, lists::rpush),
        b"LPOP" => (2..=3, Place::First, lists::lpop),
        b"RPOP" => (2..=3, Place::First, lists::rpop),
        b"LLEN" => (2..=2, Place::First, lists::llen),
        b"LRANGE" => (4..=4, Place::First, lists::lrange),
        b"HSET" => (4..=ANY, Place::First, hashes::hset),
        b"HGET" => (3..=3, Place::First, hashes::hget),
        b"HDEL" => (3..=ANY, Place::First, hashes::hdel),
        b"HLEN" => (2..=2, Place::First, hashes::hlen),
        b"HGETALL" => (2..=2, Place::First, hashes::hgetall),
        b"PUBLISH" => (3..=3, Place::Nowhere, messages::publish),
        b"SUBSCRIBE" => (2..=ANY, Place::Nowhere, messages::subscribe),
        b"UNSUBSCRIBE" => (1..=ANY, Place::Nowhere, messages::unsubscribe),
        b"PING" => (1..=2, Place::Nowhere, messages::ping),
        b"ECHO" => (2..=2, Place::Nowhere, messages::echo),
        b"HELLO" => (1..=ANY, Place::Nowhere, messages::hello),
        b"QUIT" => (1..=ANY, Place::Nowhere, messages::quit),
        b"SELECT" => (2..=2, Place::Nowhere, messages::select),
        b"CLIENT" => (2..=ANY, Place::Nowhere, messages::client),
        b"CONFIG" => (2..=ANY, Place::Nowhere, messages::config),
        b"COMMAND" => (1..=ANY, Place::Nowhere, messages::command),
        b"INFO" => (1..=ANY, Place::Everywhere, messages::info),
        b"MULTI" => (1..=1, Place::Nowhere, transaction::multi),
        b"EXEC" => (1..=1, Place::Nowhere, transaction::exec),
        b"DISCARD" => (1..=1, Place::Nowhere, transaction::discard),
        b"WATCH" => (2..=ANY, Place::Nowhere, transaction::watch),
        b"UNWATCH" => (1..=1, Place::Nowhere, transaction::unwatch),
        _ => return None,
    };
    Some(Command { n_args, place, run })
}

/// Carries out one request, and writes its answer.
pub(super) fn execute(session: &mut Session<'_>, args: Args<'_>, reply: &mut Reply<'_>) {
    let Some(name) = args.get(0) else {
        return;
    };
    let mut upper = [0; MAX_NAME_BYTES];
    let upper = match upper.get_mut(..name.len()) {
        Some(place) => {
            place.copy_from_slice(name);
            place.make_ascii_uppercase();
            &*place
        }
        None => name,
    };
    if matches!(upper, b"POST" | b"HOST:") {
        // A web page can make a browser send requests to this port; such requests must fail.
        session.is_over = true;
        return;
    }
    if let Err(error) = run(session, upper, args, reply) {
        reply.error(&error);
    }
}

/// Carries out one command, or puts it into the queue of a transaction.
fn run(
    session: &mut Session<'_>,
    upper: &[u8],
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Cow<'static, str>> {
    let command = match accept(session, upper, args) {
        Ok(command) => command,
        Err(error) if upper == b"EXEC" => return Err(transaction::abort(session, &error).into()),
        Err(error) => {
            if let Some(queue) = &mut session.queue {
                queue.is_broken = true;
            }
            return Err(error.into());
        }
    };
    match &mut session.queue {
        Some(queue) if !matches!(upper, b"MULTI" | b"EXEC" | b"DISCARD" | b"WATCH" | b"QUIT") => {
            queue.push(command, args)?;
            reply.simple("QUEUED");
        }
        _ => (command.run)(session, args, reply)?,
    }
    Ok(())
}

/// Finds the command, unless it is not allowed.
fn accept(session: &Session<'_>, upper: &[u8], args: Args<'_>) -> Result<Command, String> {
    let name = || quoted(&args[0]);
    let Some(command) = find(upper) else {
        return Err(format!("ERR unknown command '{}'", name()));
    };
    if !command.n_args.contains(&args.len()) {
        let name = name().to_lowercase();
        return Err(format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }
    let only_listens = !session.channels.is_empty() && !session.is_resp3;
    if only_listens && !matches!(upper, b"SUBSCRIBE" | b"UNSUBSCRIBE" | b"PING" | b"QUIT") {
        let name = name().to_lowercase();
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        ));
    }
    Ok(command)
}

/// The start of what a client sent, in printable form.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(64)];
    shown.escape_ascii().to_string()
}

/// The text value of a key.
pub(super) fn text(value: &mut Value) -> Result<&mut Vec<u8>, &'static str> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(WRONG_TYPE),
    }
}
