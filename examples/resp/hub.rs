//! Channels: their subscribers, and the messages that wait to be written to each.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass::channel::{Receiver, Sender, unbounded};
use windlass::net::{Member, TcpStream};
use windlass::sync::RwLock;

use super::reply::Reply;
use super::store::Bytes;

/// The most bytes that may wait for a subscriber; a slower one is disconnected.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The most bytes written at once.
const BATCH_BYTES: usize = 64 << 10;

/// The queue of messages to one connection.
#[derive(Debug)]
pub(super) struct Outbox {
    sender: Sender<Arc<[u8]>>,
    /// Ordering: relaxed, a bound that need not be exact.
    n_waiting: AtomicUsize,
    stream: Arc<TcpStream>,
    is_resp3: bool,
}

impl Outbox {
    /// Makes a queue, and a goroutine that writes its messages until the queue is dropped. `member`
    /// is for the goroutine: a server that stops waits for it, too.
    pub(super) fn new(stream: Arc<TcpStream>, is_resp3: bool, member: Member) -> Arc<Outbox> {
        let (sender, receiver) = unbounded();
        let outbox = Arc::new(Outbox {
            sender,
            n_waiting: AtomicUsize::new(0),
            stream: Arc::clone(&stream),
            is_resp3,
        });
        let weak = Arc::downgrade(&outbox);
        windlass::spawn(move || {
            let written = |n| {
                if let Some(outbox) = weak.upgrade() {
                    outbox.n_waiting.fetch_sub(n, Ordering::Relaxed);
                }
            };
            let ctx = member.context();
            if ctx.run(|| write_all(&stream, &receiver, written)).is_err() {
                // This wakes the connection's own goroutine, which is reading.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        outbox
    }

    /// Queues bytes for the writer. Disconnects a client that reads too slowly.
    pub(super) fn push(&self, bytes: Arc<[u8]>) -> bool {
        let n_bytes = bytes.len();
        let before = self.n_waiting.fetch_add(n_bytes, Ordering::Relaxed);
        let fits = before == 0 || before + n_bytes <= MAX_WAITING_BYTES;
        if !fits || self.sender.send(bytes).is_err() {
            self.n_waiting.fetch_sub(n_bytes, Ordering::Relaxed);
            let _ = self.stream.shutdown(Shutdown::Both);
            return false;
        }
        true
    }
}

/// Writes the queued messages, several at once if there are several.
fn write_all(
    mut stream: &TcpStream,
    receiver: &Receiver<Arc<[u8]>>,
    written: impl Fn(usize),
) -> std::io::Result<()> {
    use std::io::Write;

    let mut batch = Vec::new();
    while let Ok(first) = receiver.recv() {
        batch.clear();
        batch.extend_from_slice(&first);
        while batch.len() < BATCH_BYTES
            && let Ok(next) = receiver.try_recv()
        {
            batch.extend_from_slice(&next);
        }
        stream.write_all(&batch)?;
        written(batch.len());
        batch.shrink_to(BATCH_BYTES);
    }
    Ok(())
}

type Subscribers = HashMap<u64, Arc<Outbox>>;

/// All channels that have subscribers.
#[derive(Debug, Default)]
pub(super) struct Hub {
    channels: RwLock<HashMap<Bytes, Subscribers>>,
}

impl Hub {
    /// Subscribes the connection `id`, and queues the confirmation. Every message that is published
    /// after the client has read `confirmation` reaches it, and no message comes before it.
    pub(super) fn subscribe(
        &self,
        channel: &[u8],
        id: u64,
        outbox: &Arc<Outbox>,
        confirmation: &[u8],
    ) {
        let mut channels = self.channels.write().unwrap();
        outbox.push(confirmation.into());
        if !channels.contains_key(channel) {
            channels.insert(channel.into(), Subscribers::new());
        }
        if let Some(subscribers) = channels.get_mut(channel) {
            subscribers.insert(id, Arc::clone(outbox));
        }
    }

    pub(super) fn unsubscribe(&self, channel: &[u8], id: u64) {
        let mut channels = self.channels.write().unwrap();
        if let Some(subscribers) = channels.get_mut(channel) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                channels.remove(channel);
            }
        }
    }

    /// Queues a message for all subscribers of a channel, and returns their number.
    pub(super) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let channels = self.channels.read().unwrap();
        let Some(subscribers) = channels.get(channel) else {
            return 0;
        };
        // All clients with the same protocol version share one copy.
        let mut packed: [Option<Arc<[u8]>>; 2] = [None, None];
        subscribers
            .values()
            .filter(|outbox| {
                let bytes = packed[usize::from(outbox.is_resp3)]
                    .get_or_insert_with(|| pack(channel, message, outbox.is_resp3));
                outbox.push(Arc::clone(bytes))
            })
            .count()
    }
}

fn pack(channel: &[u8], message: &[u8], is_resp3: bool) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(channel.len() + message.len() + 64);
    let out_ref = &mut out;
    let mut reply = Reply {
        out: out_ref,
        is_resp3,
    };
    reply.push(3);
    reply.bulk(b"message");
    reply.bulk(channel);
    reply.bulk(message);
    out.into()
}
