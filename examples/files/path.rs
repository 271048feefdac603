//! From the path of a request to an open file.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use windlass::fs::File;

/// The path of a request, split into its segments.
pub(super) struct Name<'a> {
    /// As received, with escapes.
    raw: Vec<&'a str>,
    decoded: Vec<Vec<u8>>,
    /// Whether it ends with a slash.
    pub(super) is_directory: bool,
}

/// A path that cannot name a file.
pub(super) struct Malformed;

impl<'a> Name<'a> {
    pub(super) fn parse(path: &'a str) -> Result<Name<'a>, Malformed> {
        let rest = path.strip_prefix('/').ok_or(Malformed)?;
        let raw: Vec<_> = rest.split('/').filter(|part| !part.is_empty()).collect();
        let decoded = raw
            .iter()
            .map(|part| decode(part).ok_or(Malformed))
            .collect::<Result<Vec<_>, _>>()?;
        // A decoded slash would make it another path than the client sees.
        let is_odd = |part: &Vec<u8>| {
            part == b"." || part == b".." || part.iter().any(|b| matches!(b, b'/' | 0))
        };
        match decoded.iter().any(is_odd) {
            true => Err(Malformed),
            false => Ok(Name {
                is_directory: path.ends_with('/'),
                raw,
                decoded,
            }),
        }
    }

    /// Whether it is hidden by a leading dot. `.well-known` is not: standards define it.
    pub(super) fn is_hidden(&self) -> bool {
        let hidden = |part: &Vec<u8>| part.starts_with(b".") && part != b".well-known";
        self.decoded.iter().any(hidden)
    }

    /// The path relative to the root.
    pub(super) fn path(&self) -> Vec<u8> {
        match self.decoded.is_empty() {
            true => b".".to_vec(),
            false => self.decoded.join(&b'/'),
        }
    }

    /// The request path of the directory of this name. It begins with only one slash: after two a
    /// browser would take the rest for another server's name.
    pub(super) fn as_directory(&self) -> String {
        match self.raw.is_empty() {
            true => "/".to_owned(),
            false => format!("/{}/", self.raw.join("/")),
        }
    }
}

/// Decodes escapes like `%41`.
fn decode(part: &str) -> Option<Vec<u8>> {
    let mut bytes = part.bytes();
    let mut decoded = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                (16 * high + low) as u8
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// Opens a file for reading beneath a directory. Does not wait for a FIFO or a device.
pub(super) fn open_beneath(root: &OwnedFd, path: &[u8]) -> io::Result<File> {
    let path = CString::new(path)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // A disk may be slow.
    let fd = windlass::blocking(|| openat2(root, &path, flags as u64))?;
    Ok(File::from(fd))
}

#[expect(unsafe_code, reason = "std has no name for this system call")]
fn openat2(root: &OwnedFd, path: &CString, flags: u64) -> io::Result<OwnedFd> {
    // SAFETY: the fields are plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    loop {
        // SAFETY: the path ends with a zero byte, `how` has the given size, and both live until the
        // call returns.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                root.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of_val(&how),
            )
        };
        if fd >= 0 {
            // SAFETY: the call has just made this descriptor, which has no other owner.
            let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
            // Only the open must not wait; reads may.
            let flags = flags as i32 & !libc::O_NONBLOCK;
            // SAFETY: sets the flags of an open descriptor.
            let r = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) };
            return if r < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(fd)
            };
        }
        let error = io::Error::last_os_error();
        // EAGAIN: something was renamed meanwhile, so the kernel cannot be sure that the path
        // stayed inside.
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            _ => return Err(error),
        }
    }
}
