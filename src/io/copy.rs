//! `copy`, inside the kernel where it can be.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use super::pipe::{PipeReader, PipeWriter};
use super::splice::{self, End, Outcome};
use crate::net::{TcpStream, UnixStream};

/// What is read at a time before bytes are worth splicing.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies all that comes from a reader to a writer, and gives the number of bytes, as
/// [`std::io::copy`].
///
/// Between two of windlass's TCP and Unix streams and ends of pipes (also by reference)
/// the bytes stay in the kernel, once a read has filled 16 KiB: `splice(2)`. Between two
/// sockets that takes a pipe, which the copy holds only while bytes are in it. All such pipes
/// together take at most an eighth of the descriptors that the process may have
/// (`RLIMIT_NOFILE`), and at most 512. A copy that gets no pipe moves its bytes through a buffer.
/// Timeouts and deadlines of the streams hold. While that goes on the sockets are in
/// non-blocking mode, which shows on descriptors of `std` for the same sockets.
///
/// # Blocking
///
/// As reading and writing.
///
/// # Errors
///
/// As [`std::io::copy`]. What was read and not written at an error is lost.
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
    if !copy_until_full(reader, writer, &mut n_copied)? {
        return Ok(n_copied);
    }
    let outcome = match (source(reader), sink(writer)) {
        (Some(from), Some(to)) => splice::splice_all(from, to, &mut n_copied)?,
        _ => Outcome::Refused,
    };
    match outcome {
        Outcome::End => Ok(n_copied),
        Outcome::Refused => Ok(n_copied + io::copy(reader, writer)?),
    }
}

/// Copies until a read fills the buffer (`true`: there is much) or the end. A stream of
/// small messages is best served so.
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

/// The value as a `T`, if that is its type, lifetimes aside.
fn cast<V: ?Sized, T>(value: &V) -> Option<&T> {
    if typeid::of::<V>() != typeid::of::<T>() {
        return None;
    }
    // SAFETY: the types are the same but for lifetimes; `T` is one without, or a shared reference
    // to one, which as `&'_ T` lives no longer than the borrow of `value`.
    Some(unsafe { &*std::ptr::from_ref(value).cast::<T>() })
}

/// The value as a `T`, by value or by reference.
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
