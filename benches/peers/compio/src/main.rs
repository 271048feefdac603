//! Compio's side of the programs: `bench_compio echo_server`, `bench_compio --help`.
//!
//! A crate of its own, so that only what compares compio builds compio.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use windlass_benches::per_core::{self, Lent, PerCore};

fn main() -> io::Result<()> {
    per_core::programs::main::<Compio>()
}

/// compio, over io_uring.
struct Compio;

impl PerCore for Compio {
    type Listener = compio::net::TcpListener;
    type Stream = compio::net::TcpStream;
    type File = compio::fs::File;

    fn run<F: Future + 'static>(main: F) -> F::Output
    where
        F::Output: 'static,
    {
        let runtime = compio::runtime::Runtime::new().expect("compio should start");
        assert!(
            runtime.driver_type().is_iouring(),
            "compio is to be measured over io_uring"
        );
        runtime.block_on(main)
    }

    fn go(task: impl Future<Output = ()> + 'static) {
        compio::runtime::spawn(task).detach();
    }

    fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> impl Future<Output = T> {
        let handle = compio::runtime::spawn(task);
        async move {
            match handle.await {
                Ok(result) => result,
                Err(_) => panic!("a task should not panic"),
            }
        }
    }

    fn listener(listener: TcpListener) -> io::Result<Self::Listener> {
        compio::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn stream(stream: TcpStream) -> io::Result<Self::Stream> {
        compio::net::TcpStream::from_std(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: Vec<u8>) -> Lent<usize, Vec<u8>> {
        use compio::io::AsyncReadExt;

        stream.append(buffer).await.into()
    }

    async fn read_exact(stream: &mut Self::Stream, buffer: Box<[u8]>) -> Lent<(), Box<[u8]>> {
        use compio::io::AsyncReadExt;

        stream.read_exact(buffer).await.into()
    }

    async fn write_all(stream: &mut Self::Stream, buffer: Vec<u8>) -> Lent<(), Vec<u8>> {
        use compio::io::AsyncWriteExt;

        stream.write_all(buffer).await.into()
    }

    async fn open(path: &Path, flags: i32) -> io::Result<Self::File> {
        let mut options = compio::fs::OpenOptions::new();
        options.read(true).custom_flags(flags).open(path).await
    }

    async fn read_at(
        file: &Self::File,
        buffer: Box<[u8]>,
        range: std::ops::Range<usize>,
        position: u64,
    ) -> Lent<usize, Box<[u8]>> {
        use compio::buf::{IntoInner, IoBuf};
        use compio::io::AsyncReadAt;

        let (read, slice) = file.read_at(buffer.slice(range), position).await.into();
        (read, slice.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::Compio;
    use windlass_benches::workloads::stream;

    /// The calls of every program: tasks, reads and writes.
    #[test]
    fn streams() {
        stream::per_core::<Compio>(2, 20_000, 10);
    }
}
