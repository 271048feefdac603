//! `copy`, inside the kernel where that is possible.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use super::pipe::{PipeReader, PipeWriter};
use super::splice::{self, CopyEnd, End};
use crate::bubble;
use crate::net::{TcpStream, UnixStream};

/// Size of the buffer used before splicing. A read that fills it makes splicing worthwhile.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies all bytes from a reader to a writer until the reader ends. Returns the number of bytes,
/// as [`std::io::copy`] does.
///
/// If the reader and the writer are TCP streams, Unix streams or pipe ends of windlass, by value or
/// by reference, the bytes stay in the kernel (`splice(2)`), once a read has filled 16 KiB.
///
/// Between two sockets `splice(2)` needs a pipe. The copy holds one only while bytes are in it. All
/// such pipes together take at most an eighth of the descriptors that the process may have
/// (`RLIMIT_NOFILE`), and at most 512. A copy that gets no pipe moves its bytes through a buffer.
///
/// Timeouts and deadlines of the streams apply. While the copy splices, the sockets are in
/// non-blocking mode, which is visible through `std` descriptors of the same sockets.
///
/// # Blocking
///
/// As reading and writing: parks the goroutine; blocks a plain thread.
///
/// # Errors
///
/// As [`std::io::copy`]. Bytes that were read but not written when an error occurs are lost.
///
/// # Examples
///
/// ```
/// use windlass::io::{self, Read, Write};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let (mut from, mut writer) = io::pipe()?;
///     windlass::spawn(move || writer.write_all(b"all of it"));
///     let mut all = Vec::new();
///     assert_eq!(io::copy(&mut from, &mut all)?, 9);
///     assert_eq!(all, b"all of it");
///     Ok::<(), io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    if source(reader).is_none() || sink(writer).is_none() {
        return io::copy(reader, writer);
    }
    let mut n_copied = 0;
    if bubble::is_inside() {
        // Simulated descriptors cannot be spliced.
        return io::copy(reader, writer);
    }
    if !copy_until_full(reader, writer, &mut n_copied)? {
        return Ok(n_copied);
    }
    let outcome = match (source(reader), sink(writer)) {
        (Some(from), Some(to)) => splice::splice_all(from, to, &mut n_copied)?,
        _ => CopyEnd::Refused,
    };
    match outcome {
        CopyEnd::End => Ok(n_copied),
        CopyEnd::Refused => Ok(n_copied + io::copy(reader, writer)?),
    }
}

/// Copies through a buffer until a read fills it (`true`: splicing is worthwhile) or the reader
/// ends (`false`). For a stream of small messages this is faster than splicing.
fn copy_until_full<R, W>(reader: &mut R, writer: &mut W, n_copied: &mut u64) -> io::Result<bool>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let mut buf = vec![0; BUFFER_BYTES];
    loop {
        let n = match reader.read(&mut buf) {
            Ok(0) => return Ok(false),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        writer.write_all(&buf[..n])?;
        *n_copied += n as u64;
        if n == buf.len() {
            return Ok(true);
        }
    }
}

/// Returns the value as a `T` if that is its type, except for lifetimes.
fn cast<V: ?Sized, T>(value: &V) -> Option<&T> {
    if typeid::of::<V>() != typeid::of::<T>() {
        return None;
    }
    // SAFETY:
    // - the types are the same except for lifetimes.
    // - `T` is a type without lifetimes, or a shared reference to such a type. The result is
    //   `&'_ T`, which lives no longer than the borrow of `value`.
    Some(unsafe { &*std::ptr::from_ref(value).cast::<T>() })
}

/// Returns the value as a `T` if it is a `T` or a reference to one.
fn cast_either<'a, V: ?Sized, T: 'a>(value: &'a V) -> Option<&'a T> {
    cast::<V, T>(value).or_else(|| cast::<V, &'a T>(value).copied())
}

fn source<R: ?Sized>(reader: &R) -> Option<End<'_>> {
    socket(reader)
        .or_else(|| cast_either::<R, PipeReader>(reader).map(|end| End::Pipe(end.as_fd())))
}

fn sink<W: ?Sized>(writer: &W) -> Option<End<'_>> {
    socket(writer)
        .or_else(|| cast_either::<W, PipeWriter>(writer).map(|end| End::Pipe(end.as_fd())))
}

fn socket<S: ?Sized>(stream: &S) -> Option<End<'_>> {
    let tcp = cast_either::<S, TcpStream>(stream).map(TcpStream::fd);
    tcp.or_else(|| cast_either::<S, UnixStream>(stream).map(UnixStream::fd))
        .map(End::Socket)
}
