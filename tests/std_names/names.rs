// The names of `std`, as `use` lines. tests/std_names.rs includes this file twice: with `std` as
// `api`, and with windlass.

mod names {
    mod fs {
        use super::super::api::fs::{
            self, DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions,
            Permissions, ReadDir, TryLockError, canonicalize, copy, create_dir, create_dir_all,
            exists, hard_link, metadata, read, read_dir, read_link, read_to_string, remove_dir,
            remove_dir_all, remove_file, rename, set_permissions, symlink_metadata, write,
        };
    }

    mod io {
        use super::super::api::io::prelude::*;
        use super::super::api::io::{
            self, BufRead, BufReader, BufWriter, Bytes, Chain, Cursor, Empty, Error, ErrorKind,
            IntoInnerError, IoSlice, IoSliceMut, IsTerminal, LineWriter, Lines, PipeReader,
            PipeWriter, Read, Repeat, Result, Seek, SeekFrom, Sink, Split, Stderr, StderrLock,
            Stdin, StdinLock, Stdout, StdoutLock, Take, Write, WriterPanicked, copy, empty, pipe,
            read_to_string, repeat, sink, stderr, stdin, stdout,
        };
    }

    mod net {
        use super::super::api::net::{
            self, AddrParseError, Incoming, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr,
            SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
        };
    }

    mod process {
        use super::super::api::process::{
            self, Child, ChildStderr, ChildStdin, ChildStdout, Command, CommandArgs, CommandEnvs,
            ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
        };
    }

    mod sync {
        use super::super::api::sync::{
            self, Arc, Barrier, BarrierWaitResult, Condvar, LazyLock, LockResult, Mutex,
            MutexGuard, Once, OnceLock, OnceState, PoisonError, RwLock, RwLockReadGuard,
            RwLockWriteGuard, TryLockError, TryLockResult, WaitTimeoutResult, Weak, atomic,
        };
    }

    mod mpsc {
        use super::super::api::sync::mpsc::{
            self, IntoIter, Iter, Receiver, RecvError, RecvTimeoutError, SendError, Sender,
            SyncSender, TryIter, TryRecvError, TrySendError, channel, sync_channel,
        };
    }

    mod thread {
        use super::super::api::thread::{
            self, AccessError, Builder, JoinHandle, LocalKey, Result, Scope, ScopedJoinHandle,
            Thread, ThreadId, available_parallelism, current, panicking, park, park_timeout,
            scope, sleep, spawn, yield_now,
        };
    }

    mod time {
        use super::super::api::time::{
            self, Duration, Instant, SystemTime, SystemTimeError, TryFromFloatSecsError,
            UNIX_EPOCH,
        };
    }

    mod os {
        use super::super::api::os::fd::{
            self, AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd,
        };
        use super::super::api::os::linux::fs::MetadataExt as LinuxMetadataExt;
        use super::super::api::os::linux::net::{SocketAddrExt, TcpStreamExt};
        use super::super::api::os::unix::ffi::{OsStrExt, OsStringExt};
        use super::super::api::os::unix::fs::{
            self, DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt, chown, chroot, fchown, lchown, symlink,
        };
        use super::super::api::os::unix::io as unix_io;
        use super::super::api::os::unix::net::{
            self, Incoming, SocketAddr, UnixDatagram, UnixListener, UnixStream,
        };
        use super::super::api::os::unix::prelude::*;
        use super::super::api::os::unix::process::{self, CommandExt, ExitStatusExt, parent_id};
    }
}
