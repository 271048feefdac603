//! Bodies that come bit by bit: of an answer, from an iterator or a reader; of a request, as a reader.
//!
//! hyper polls bodies, handlers block. Between the two is a [`Pipe`] with room for one value: a handler that is ahead
//! waits until hyper, and so the client, has taken what it has made.

use std::fmt;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Buf, Bytes, Frame, Incoming, SizeHint};

use windlass::future::block_on;
use windlass::sync::{Condvar, Mutex};

use crate::lock;
use crate::serve::{Activity, Counted, Working, within};

/// The bytes of a chunk that is read from a reader.
const CHUNK_BYTES: usize = 16 << 10;

/// The body of an answer: bytes, or chunks that are made while it is sent. `String`, `Vec<u8>`, `&'static str` and
/// `Bytes` convert into one.
///
/// # Examples
///
/// ```
/// use windlass_hyper::Body;
///
/// let whole = Body::from("hello");
/// let counted = Body::chunks((0..1_000_000).map(|i| Ok(format!("{i}\n"))));
/// let of_file = Body::reader(std::io::Cursor::new(vec![0; 1 << 20]));
/// # drop((whole, counted, of_file));
/// ```
pub struct Body(Kind);

enum Kind {
    Whole(Bytes),
    Chunks(Chunks),
}

/// What makes the chunks of a body.
type Chunks = Box<dyn Iterator<Item = io::Result<Bytes>> + Send>;

impl Body {
    /// A body of chunks. Each is made when the client has taken enough of those before, on a goroutine of its own, so the
    /// iterator may wait: the items of a `windlass::channel::Receiver`, mapped by `Ok`, are a body, too. After an error the
    /// answer is cut off, so that the client sees that it is not whole.
    ///
    /// If the client goes away, the iterator is dropped when it has made its next chunk.
    pub fn chunks<I, C>(chunks: I) -> Body
    where
        I: IntoIterator<Item = io::Result<C>>,
        I::IntoIter: Send + 'static,
        C: Into<Bytes>,
    {
        let chunks = chunks.into_iter().map(|chunk| chunk.map(Into::into));
        Body(Kind::Chunks(Box::new(chunks)))
    }

    /// A body that is read from `reader`, in chunks of up to 16 KiB, as [`Body::chunks`] are made.
    pub fn reader(mut reader: impl Read + Send + 'static) -> Body {
        let mut is_over = false;
        Body::chunks(std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = loop {
                match reader.read(&mut chunk) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
            is_over = !matches!(read, Ok(1..));
            match read {
                Ok(0) => None,
                Ok(n) => {
                    chunk.truncate(n);
                    Some(Ok(chunk))
                }
                Err(e) => Some(Err(e)),
            }
        }))
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        Body(Kind::Whole(bytes.into()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(bytes) => f.debug_tuple("Body").field(&bytes.len()).finish(),
            Kind::Chunks(_) => f.write_str("Body(..)"),
        }
    }
}

/// A body as hyper wants it.
#[derive(Debug)]
pub(crate) struct Answer {
    kind: AnswerKind,
    /// Until hyper has taken all of it; that which has not been sent is counted by its [`Part`]s.
    exchange: Option<Counted>,
}

#[derive(Debug)]
enum AnswerKind {
    Whole(Full<Bytes>),
    Chunks(Taker<io::Result<Bytes>>),
}

impl Answer {
    fn new(kind: AnswerKind) -> Answer {
        let exchange = None;
        Answer { kind, exchange }
    }

    /// Keeps `exchange` open until the body has been sent.
    pub(crate) fn until_sent(&mut self, exchange: Counted) {
        self.exchange = Some(exchange);
    }
}

impl From<Full<Bytes>> for Answer {
    fn from(whole: Full<Bytes>) -> Answer {
        Answer::new(AnswerKind::Whole(whole))
    }
}

/// Bytes of an answer. HTTP/2 takes them ahead of its client, and drops them when the last one has been sent.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: Bytes,
    exchange: Option<Counted>,
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, n: usize) {
        self.bytes.advance(n);
        if let Some(exchange) = &self.exchange {
            exchange.goes_on();
        }
    }
}

/// Makes the chunks of an answer, if it has any, until there are no more or nobody takes them.
#[must_use]
pub(crate) struct Work(Option<(Chunks, Giver<io::Result<Bytes>>)>);

impl Body {
    /// The body for hyper, and what is to be done for it meanwhile.
    pub(crate) fn split(self) -> (Answer, Work) {
        match self.0 {
            Kind::Whole(bytes) => (Answer::from(Full::new(bytes)), Work(None)),
            Kind::Chunks(chunks) => {
                let (giver, taker) = pipe();
                let answer = Answer::new(AnswerKind::Chunks(taker));
                (answer, Work(Some((chunks, giver))))
            }
        }
    }
}

impl Work {
    /// Whether there is something to do.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the chunks. The connection counts as working, except while its client has to take a chunk first.
    pub(crate) fn run(self, activity: &Arc<Activity>, working: Working) {
        let Some((mut chunks, giver)) = self.0 else {
            return;
        };
        let mut working = Some(working);
        loop {
            working.get_or_insert_with(|| Working::new(activity));
            match chunks.next() {
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(chunk) => {
                    let is_last = chunk.is_err();
                    if !giver.give(chunk, || drop(working.take())) || is_last {
                        return;
                    }
                }
                None => return giver.end(),
            }
        }
    }
}

impl HttpBody for Answer {
    type Data = Part;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Part>>>> {
        let Answer { kind, exchange } = self.get_mut();
        let part = |bytes| {
            let exchange = exchange.as_ref().map(Counted::another);
            Part { bytes, exchange }
        };
        match kind {
            AnswerKind::Whole(whole) => Pin::new(whole).poll_frame(cx).map(|frame| {
                frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(part)),
                    Err(never) => match never {},
                })
            }),
            AnswerKind::Chunks(taker) => taker.poll(cx).map(|taken| match taken {
                Taken::Value(chunk) => Some(chunk.map(|bytes| Frame::data(part(bytes)))),
                Taken::End => None,
                Taken::Lost => Some(Err(io::Error::other("the body's producer panicked"))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            AnswerKind::Whole(whole) => whole.is_end_stream(),
            AnswerKind::Chunks(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            AnswerKind::Whole(whole) => whole.size_hint(),
            AnswerKind::Chunks(_) => SizeHint::default(),
        }
    }
}

/// The body of a request, which [`Http::serve_streams`](crate::Http::serve_streams) passes on while it arrives. The
/// client sends no more than a few chunks ahead of the reader.
///
/// # Blocking
///
/// A read parks the goroutine until bytes have come.
///
/// # Errors
///
/// A read fails with `FileTooLarge` beyond the limit of [`Http::max_body`](crate::Http::max_body), with `TimedOut` if
/// the client has sent nothing for as long as [`Http::body_timeout`](crate::Http::body_timeout) says, and otherwise if
/// the client goes away or breaks the protocol.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// What is left of the last chunk.
    chunk: Bytes,
    n_left: usize,
    patience: Duration,
    is_over: bool,
    activity: Arc<Activity>,
}

impl RequestBody {
    pub(crate) fn new(
        body: Incoming,
        max_body: usize,
        patience: Duration,
        activity: Arc<Activity>,
    ) -> RequestBody {
        RequestBody {
            body,
            chunk: Bytes::new(),
            n_left: max_body,
            patience,
            is_over: false,
            activity,
        }
    }

    /// The next bytes as they came, without a copy; `None` at the end of the body.
    ///
    /// # Errors
    ///
    /// As a read.
    ///
    /// # Blocking
    ///
    /// As a read.
    pub fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        if !self.chunk.is_empty() {
            return Ok(Some(std::mem::take(&mut self.chunk)));
        }
        loop {
            let frame = match block_on(within(self.patience, self.body.frame())) {
                None => return Err(io::ErrorKind::TimedOut.into()),
                Some(None) => {
                    self.is_over = true;
                    return Ok(None);
                }
                Some(Some(frame)) => frame.map_err(io::Error::other)?,
            };
            // Trailers are dropped.
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let Some(n_left) = self.n_left.checked_sub(chunk.len()) else {
                self.n_left = 0;
                return Err(io::ErrorKind::FileTooLarge.into());
            };
            self.n_left = n_left;
            self.activity.goes_on();
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            self.activity.leave_unread();
        }
    }
}

impl Read for RequestBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.chunk.is_empty() {
            match self.chunk()? {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.chunk.len());
        buf[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}

/// A channel with room for one value, from a goroutine that blocks to a future.
pub(crate) fn pipe<T>() -> (Giver<T>, Taker<T>) {
    let pipe = Arc::new(Pipe {
        state: Mutex::new(PipeState {
            value: None,
            end: None,
            is_gone: false,
            taker: None,
        }),
        room: Condvar::new(),
    });
    (Giver(Arc::clone(&pipe)), Taker(pipe))
}

struct Pipe<T> {
    state: Mutex<PipeState<T>>,
    /// The value was taken, or the taker is gone.
    room: Condvar,
}

struct PipeState<T> {
    value: Option<T>,
    /// What a taker gets once there is no value any more.
    end: Option<End>,
    is_gone: bool,
    /// Waits for a value.
    taker: Option<Waker>,
}

#[derive(Clone, Copy)]
enum End {
    Whole,
    Lost,
}

impl<T> Pipe<T> {
    fn end(&self, end: End) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(end);
        let taker = state.taker.take();
        drop(state);
        taker.inspect(Waker::wake_by_ref);
    }
}

pub(crate) struct Giver<T>(Arc<Pipe<T>>);

impl<T> Giver<T> {
    /// Waits until there is room, and calls `before` if it has to. `false` if nobody takes it.
    pub(crate) fn give(&self, value: T, mut before: impl FnMut()) -> bool {
        let mut state = lock(&self.0.state);
        while state.value.is_some() && !state.is_gone {
            before();
            state = self.0.room.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        if state.is_gone {
            return false;
        }
        state.value = Some(value);
        let taker = state.taker.take();
        drop(state);
        taker.inspect(Waker::wake_by_ref);
        true
    }

    /// There are no more values, as planned.
    pub(crate) fn end(self) {
        self.0.end(End::Whole);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        self.0.end(End::Lost);
    }
}

/// What comes out of a pipe.
pub(crate) enum Taken<T> {
    Value(T),
    End,
    /// The giver was dropped without [`Giver::end`].
    Lost,
}

pub(crate) struct Taker<T>(Arc<Pipe<T>>);

impl<T> Taker<T> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Taken<T>> {
        let mut state = lock(&self.0.state);
        if let Some(value) = state.value.take() {
            drop(state);
            self.0.room.notify_one();
            return Poll::Ready(Taken::Value(value));
        }
        match state.end {
            Some(End::Whole) => Poll::Ready(Taken::End),
            Some(End::Lost) => Poll::Ready(Taken::Lost),
            None => {
                state.taker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Taker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Taker(..)")
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_gone = true;
        let value = state.value.take();
        drop(state);
        self.0.room.notify_one();
        drop(value);
    }
}
