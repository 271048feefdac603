//! A crate that needs tokio, in blocking code on goroutines: reqwest beside a tokio runtime with one
//! thread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle, Runtime};
use windlass::future::block_on;

/// A tokio runtime with one thread of its own, which waits for sockets and timers. Goroutines wait for
/// futures that need it.
#[derive(Debug)]
pub(crate) struct Reactor(Option<Runtime>);

impl Reactor {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Reactor> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        Ok(Reactor(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("only `drop` takes it").handle()
    }

    /// Runs the future on tokio's thread, while the goroutine waits for its output. The first choice:
    /// nothing of tokio runs on the goroutine.
    ///
    /// # Panics
    ///
    /// With the future's panic.
    pub(crate) fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match block_on(self.handle().spawn(future)) {
            Ok(output) => output,
            // The runtime lives as long as `self`, so the future was not given up.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Polls the future on the goroutine, inside the tokio runtime. For futures that borrow, or are
    /// not `Send`. Values that need the runtime when they are dropped, such as a response that was
    /// not read to its end, must not be part of the output.
    ///
    /// # Panics
    ///
    /// With the future's panic.
    pub(crate) fn enter<F: Future>(&self, future: F) -> F::Output {
        block_on(Entered {
            handle: self.handle().clone(),
            future: Some(Box::pin(future)),
        })
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // Dropping the runtime itself would block the thread until its tasks have ended.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A future that is polled and dropped inside a tokio runtime.
struct Entered<F> {
    handle: Handle,
    future: Option<Pin<Box<F>>>,
}

impl<F> Entered<F> {
    /// The guard of `enter` belongs to the thread, and a goroutine may continue on another thread
    /// after any call into windlass, which each waker makes. Only in a blocking section does it
    /// stay. So adapters that enter and poll, such as tokio-util's `TokioContext` and async-compat,
    /// must not be polled by goroutines outside of one.
    fn inside<T>(&mut self, f: impl FnOnce(&mut Option<Pin<Box<F>>>) -> T) -> T {
        windlass::blocking(|| {
            let _entered = self.handle.enter();
            f(&mut self.future)
        })
    }
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.inside(|future| {
            let polled = future.as_mut().expect("not polled again").as_mut().poll(cx);
            if polled.is_ready() {
                *future = None;
            }
            polled
        })
    }
}

impl<F> Drop for Entered<F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            self.inside(|future| *future = None);
        }
    }
}

/// A page's status and length.
pub(crate) async fn fetch(
    client: &reqwest::Client,
    url: &str,
) -> Result<(u16, usize), reqwest::Error> {
    let answer = client.get(url).send().await?;
    let status = answer.status().as_u16();
    Ok((status, answer.bytes().await?.len()))
}
