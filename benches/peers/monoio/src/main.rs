//! Monoio's side of the programs: `bench_monoio echo_server`, `bench_monoio --help`.
//!
//! A crate of its own, so that only what compares monoio builds monoio.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use windlass_benches::per_core::{self, Lent, PerCore};

fn main() -> io::Result<()> {
    per_core::programs::main::<Monoio>()
}

/// monoio, over io_uring.
struct Monoio;

impl PerCore for Monoio {
    type Listener = monoio::net::TcpListener;
    type Stream = monoio::net::TcpStream;
    type File = monoio::fs::File;

    fn run<F: Future + 'static>(main: F) -> F::Output
    where
        F::Output: 'static,
    {
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .build()
            .expect("monoio should start")
            .block_on(main)
    }

    fn go(task: impl Future<Output = ()> + 'static) {
        drop(monoio::spawn(task));
    }

    fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> impl Future<Output = T> {
        monoio::spawn(task)
    }

    fn listener(listener: TcpListener) -> io::Result<Self::Listener> {
        monoio::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn stream(stream: TcpStream) -> io::Result<Self::Stream> {
        monoio::net::TcpStream::from_std(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: Vec<u8>) -> Lent<usize, Vec<u8>> {
        use monoio::buf::SliceMut;
        use monoio::io::AsyncReadRent;

        let (filled, capacity) = (buffer.len(), buffer.capacity());
        let (read, slice) = stream.read(SliceMut::new(buffer, filled, capacity)).await;
        (read, slice.into_inner())
    }

    async fn read_exact(stream: &mut Self::Stream, buffer: Box<[u8]>) -> Lent<(), Box<[u8]>> {
        use monoio::io::AsyncReadRentExt;

        let (read, buffer) = stream.read_exact(buffer).await;
        (read.map(drop), buffer)
    }

    async fn write_all(stream: &mut Self::Stream, buffer: Vec<u8>) -> Lent<(), Vec<u8>> {
        use monoio::io::AsyncWriteRentExt;

        let (written, buffer) = stream.write_all(buffer).await;
        (written.map(drop), buffer)
    }

    async fn open(path: &Path, flags: i32) -> io::Result<Self::File> {
        use std::os::unix::fs::OpenOptionsExt;

        let mut options = std::fs::OpenOptions::new();
        monoio::fs::File::from_std(options.read(true).custom_flags(flags).open(path)?)
    }

    async fn read_at(
        file: &Self::File,
        buffer: Box<[u8]>,
        range: std::ops::Range<usize>,
        position: u64,
    ) -> Lent<usize, Box<[u8]>> {
        let slice = monoio::buf::SliceMut::new(buffer, range.start, range.end);
        let (read, slice) = file.read_at(slice, position).await;
        (read, slice.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::Monoio;
    use windlass_benches::workloads::stream;

    /// The calls of every program: tasks, reads and writes.
    #[test]
    fn streams() {
        stream::per_core::<Monoio>(2, 20_000, 10);
    }
}
