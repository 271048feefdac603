//! The pipes between this process and a child.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::process as std_process;

use windlass_ground::std_traits::{fd_traits, write_by_reference};

use crate::fs::{File, Kind};

/// The writing end of a child's standard input. The child reads the end of its input when this is
/// dropped.
///
/// # Blocking
///
/// A write parks the goroutine while the pipe is full; it blocks a plain thread.
///
/// # Examples
///
/// See [`Child`](super::Child).
#[derive(Debug)]
pub struct ChildStdin(File);

/// The reading end of a child's standard output.
///
/// # Blocking
///
/// A read parks the goroutine until there are bytes or the end; it blocks a plain thread.
///
/// # Examples
///
/// See [`Child`](super::Child).
#[derive(Debug)]
pub struct ChildStdout(File);

/// The reading end of a child's standard error.
///
/// # Blocking
///
/// As [`ChildStdout`].
#[derive(Debug)]
pub struct ChildStderr(File);

impl Write for &ChildStdin {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&self.0).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

write_by_reference!(ChildStdin);

macro_rules! reading_end {
    ($name:ident) => {
        impl Read for $name {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                (&self.0).read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&self.0).read_vectored(bufs)
            }
        }
    };
}

reading_end!(ChildStdout);
reading_end!(ChildStderr);

macro_rules! pipe_end {
    ($name:ident) => {
        fd_traits!($name, |this| this.0);

        impl From<OwnedFd> for $name {
            /// Wraps one end of a pipe, or any other descriptor.
            fn from(fd: OwnedFd) -> $name {
                $name(File::from(fd))
            }
        }

        impl From<std_process::$name> for $name {
            fn from(end: std_process::$name) -> $name {
                $name(File::with_kind(OwnedFd::from(end), Kind::Stream))
            }
        }

        impl From<$name> for OwnedFd {
            fn from(end: $name) -> OwnedFd {
                end.0.into()
            }
        }

        impl From<$name> for std_process::$name {
            fn from(end: $name) -> std_process::$name {
                OwnedFd::from(end).into()
            }
        }

        impl From<$name> for std_process::Stdio {
            fn from(end: $name) -> std_process::Stdio {
                OwnedFd::from(end).into()
            }
        }

        impl From<$name> for File {
            /// Converts the pipe to a file, which supports deadlines.
            fn from(end: $name) -> File {
                end.0
            }
        }
    };
}

pipe_end!(ChildStdin);
pipe_end!(ChildStdout);
pipe_end!(ChildStderr);
