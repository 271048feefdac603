//! The table of commands, and what the commands have in common.

use super::protocol::Args;
use super::reply::Reply;
use super::session::Session;
use super::store::Value;
use super::{hashes, keys, lists, messages, texts};

/// The result of a command: its answer was written, or this error must be.
pub(super) type Outcome = Result<(), &'static str>;

pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const SYNTAX: &str = "ERR syntax error";

/// The longest name of a command.
const MAX_NAME_BYTES: usize = 16;

type Run = fn(&mut Session, Args<'_>, &mut Reply<'_>) -> Outcome;

/// A command: the number of its arguments, including its name, and its function.
struct Command(std::ops::RangeInclusive<usize>, Run);

const ANY: usize = usize::MAX;

fn find(name: &[u8]) -> Option<Command> {
    Some(match name {
        b"GET" => Command(2..=2, texts::get),
        b"SET" => Command(3..=ANY, texts::set),
        b"INCR" => Command(2..=2, texts::incr),
        b"DECR" => Command(2..=2, texts::decr),
        b"INCRBY" => Command(3..=3, texts::incr_by),
        b"DECRBY" => Command(3..=3, texts::decr_by),
        b"APPEND" => Command(3..=3, texts::append),
        b"STRLEN" => Command(2..=2, texts::strlen),
        b"MSET" => Command(3..=ANY, texts::mset),
        b"MGET" => Command(2..=ANY, texts::mget),
        b"DEL" | b"UNLINK" => Command(2..=ANY, keys::del),
        b"EXISTS" => Command(2..=ANY, keys::exists),
        b"EXPIRE" => Command(3..=3, keys::expire),
        b"PEXPIRE" => Command(3..=3, keys::pexpire),
        b"PERSIST" => Command(2..=2, keys::persist),
        b"TTL" => Command(2..=2, keys::ttl),
        b"PTTL" => Command(2..=2, keys::pttl),
        b"TYPE" => Command(2..=2, keys::type_of),
        b"DBSIZE" => Command(1..=1, keys::db_size),
        b"FLUSHDB" | b"FLUSHALL" => Command(1..=2, keys::flush),
        b"LPUSH" => Command(3..=ANY, lists::lpush),
        b"RPUSH" => Command(3..=ANY, lists::rpush),
        b"LPOP" => Command(2..=3, lists::lpop),
        b"RPOP" => Command(2..=3, lists::rpop),
        b"LLEN" => Command(2..=2, lists::llen),
        b"LRANGE" => Command(4..=4, lists::lrange),
        b"HSET" => Command(4..=ANY, hashes::hset),
        b"HGET" => Command(3..=3, hashes::hget),
        b"HDEL" => Command(3..=ANY, hashes::hdel),
        b"HLEN" => Command(2..=2, hashes::hlen),
        b"HGETALL" => Command(2..=2, hashes::hgetall),
        b"PUBLISH" => Command(3..=3, messages::publish),
        b"SUBSCRIBE" => Command(2..=ANY, messages::subscribe),
        b"UNSUBSCRIBE" => Command(1..=ANY, messages::unsubscribe),
        b"PING" => Command(1..=2, messages::ping),
        b"ECHO" => Command(2..=2, messages::echo),
        b"HELLO" => Command(1..=ANY, messages::hello),
        b"QUIT" => Command(1..=ANY, messages::quit),
        b"SELECT" => Command(2..=2, messages::select),
        b"CLIENT" => Command(2..=ANY, messages::client),
        b"CONFIG" => Command(2..=ANY, messages::config),
        b"COMMAND" => Command(1..=ANY, messages::command),
        b"INFO" => Command(1..=ANY, messages::info),
        _ => return None,
    })
}

/// Carries out one request, and writes its answer.
pub(super) fn execute(session: &mut Session, args: Args<'_>, reply: &mut Reply<'_>) {
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
    let Some(Command(n_args, run)) = find(upper) else {
        return reply.error(&format!("ERR unknown command '{}'", quoted(name)));
    };
    if !n_args.contains(&args.len()) {
        let name = quoted(name).to_lowercase();
        return reply.error(&format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }
    let only_listens = !session.channels.is_empty() && !session.is_resp3;
    if only_listens && !matches!(upper, b"SUBSCRIBE" | b"UNSUBSCRIBE" | b"PING" | b"QUIT") {
        let name = quoted(name).to_lowercase();
        return reply.error(&format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        ));
    }
    if let Err(error) = run(session, args, reply) {
        reply.error(error);
    }
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
