//! Pipes whose ends park the goroutine.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use std::sync::Arc;

use windlass_ground::std_traits::{fd_traits, from_raw_fd, read_by_reference, write_by_reference};

use crate::poll::bytes::{self, Stream};
use crate::poll::op::Deadline;
use crate::poll::sim_socket::{self, SimSocket};
use crate::sys::clock::NEVER;

fn read(sim: &SimSocket, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    match bufs.iter().all(|buf| buf.is_empty()) {
        true => Ok(0),
        false => sim.read(Some(Deadline::at(NEVER)), bufs, false),
    }
}

fn write(sim: &SimSocket, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    match bufs.iter().all(|buf| buf.is_empty()) {
        true => Ok(0),
        false => sim.write(Some(Deadline::at(NEVER)), bufs, None),
    }
}

/// Makes a pipe. Both ends are close-on-exec. See [`std::io::pipe`].
///
/// # Blocking
///
/// Never.
///
/// # Errors
///
/// The errors of `pipe(2)`, if no descriptor is free.
///
/// # Examples
///
/// ```
/// use windlass::io::{self, Read, Write};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (mut reader, mut writer) = io::pipe()?;
///     windlass::spawn(move || writer.write_all(b"through the pipe"));
///     let mut text = String::new();
///     reader.read_to_string(&mut text)?;
///     assert_eq!(text, "through the pipe");
///     Ok::<(), io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    if let Some([(reader, reader_sim), (writer, sim)]) = sim_socket::pipe()? {
        let reader = PipeReader::new(reader, Some(reader_sim));
        return Ok((reader, PipeWriter::new(writer, Some(sim))));
    }
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// The reading end of a pipe. See [`std::io::PipeReader`].
///
/// It converts from and to `std`'s type and [`OwnedFd`], and into [`Stdio`] for a child process.
/// For an example of reading see [`pipe`].
///
/// # Blocking
///
/// Reading parks the goroutine until bytes arrive or all writers are closed; it blocks a plain
/// thread.
///
/// # Examples
///
/// ```
/// use std::process::Stdio;
/// use windlass::io;
///
/// let (reader, writer) = io::pipe()?;
/// let reader: std::io::PipeReader = reader.into();
/// let stdin = Stdio::from(io::PipeReader::from(reader));
/// # drop((stdin, writer));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PipeReader {
    fd: OwnedFd,
    /// It need not be a pipe.
    is_device: bool,
    sim: Option<Arc<SimSocket>>,
}

/// The writing end of a pipe. See [`std::io::PipeWriter`].
///
/// It converts from and to `std`'s type and [`OwnedFd`], and into [`Stdio`] for a child process.
/// For an example of writing see [`pipe`].
///
/// # Blocking
///
/// Writing parks the goroutine while the pipe is full; it blocks a plain thread.
pub struct PipeWriter {
    fd: OwnedFd,
    /// It need not be a pipe.
    is_device: bool,
    sim: Option<Arc<SimSocket>>,
}

impl PipeReader {
    /// Returns another handle to the same end.
    ///
    /// # Errors
    ///
    /// The errors of `fcntl(2)`, if no descriptor is free.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::io::{self, Read, Write};
    ///
    /// let (reader, mut writer) = io::pipe()?;
    /// let mut other = reader.try_clone()?;
    /// writer.write_all(b"!")?;
    /// other.read_exact(&mut [0])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        Ok(PipeReader {
            fd: self.fd.try_clone()?,
            sim: self.sim.clone(),
            ..*self
        })
    }
}

impl PipeWriter {
    /// Returns another handle to the same end. Readers see the end of the stream when all handles
    /// are dropped.
    ///
    /// # Errors
    ///
    /// The errors of `fcntl(2)`, if no descriptor is free.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::io::{self, Read, Write};
    ///
    /// let (mut reader, writer) = io::pipe()?;
    /// let mut other = writer.try_clone()?;
    /// other.write_all(b"!")?;
    /// reader.read_exact(&mut [0])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        Ok(PipeWriter {
            fd: self.fd.try_clone()?,
            sim: self.sim.clone(),
            ..*self
        })
    }
}

impl Read for &PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(sim) = &self.sim {
            return read(sim, &mut [IoSliceMut::new(buf)]);
        }
        bytes::read(self.stream(), buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(sim) = &self.sim {
            return read(sim, bufs);
        }
        bytes::read_vectored(self.stream(), bufs)
    }
}

impl Write for &PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if let Some(sim) = &self.sim {
            return write(sim, &[IoSlice::new(buf)]);
        }
        bytes::write(self.stream(), buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(sim) = &self.sim {
            return write(sim, bufs);
        }
        bytes::write_vectored(self.stream(), bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

read_by_reference!(PipeReader);
write_by_reference!(PipeWriter);

/// Traits of both ends.
macro_rules! end {
    ($type:ident) => {
        impl $type {
            fn new(fd: OwnedFd, sim: Option<SimSocket>) -> $type {
                $type {
                    is_device: bytes::is_device(fd.as_fd()),
                    sim: sim.map(Arc::new),
                    fd,
                }
            }

            fn stream(&self) -> Stream<'_> {
                Stream {
                    fd: self.as_fd(),
                    is_device: self.is_device,
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($type)).field(&self.fd).finish()
            }
        }

        fd_traits!($type, |this| this.fd);
        from_raw_fd!($type);

        impl From<OwnedFd> for $type {
            fn from(fd: OwnedFd) -> $type {
                let sim = sim_socket::adopt(fd.as_fd());
                $type::new(fd, sim)
            }
        }

        impl From<$type> for OwnedFd {
            fn from(end: $type) -> OwnedFd {
                if let Some(sim) = &end.sim {
                    sim.give_away(end.fd.as_fd());
                }
                end.fd
            }
        }

        impl From<io::$type> for $type {
            fn from(end: io::$type) -> $type {
                $type::from(OwnedFd::from(end))
            }
        }

        impl From<$type> for io::$type {
            fn from(end: $type) -> io::$type {
                OwnedFd::from(end).into()
            }
        }

        impl From<$type> for Stdio {
            fn from(end: $type) -> Stdio {
                OwnedFd::from(end).into()
            }
        }
    };
}

end!(PipeReader);
end!(PipeWriter);
