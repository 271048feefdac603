// The traits of the types of `std`. tests/std_names.rs includes this file twice: with `std` as
// `api`, and with windlass.

/// Compiles if the type has all of the traits.
macro_rules! has {
    ($type:ty: $($bounds:tt)*) => {
        const _: fn() = || {
            fn check<T: $($bounds)* + ?Sized>() {}
            check::<$type>();
        };
    };
}

mod traits {
    use std::error::Error;
    use std::fmt::{Debug, Display};
    use std::hash::Hash;
    use std::iter::FusedIterator;
    use std::ops::{Deref, DerefMut};
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::api::fs::*;
    use super::api::io::{BufRead, IsTerminal, Read, Seek, Write};
    use super::api::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    use super::api::{fs, io, net, os, process, sync, thread};

    has!(DirBuilder: Debug + os::unix::fs::DirBuilderExt);
    has!(DirEntry: Debug + os::unix::fs::DirEntryExt);
    has!(File: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd> + Debug);
    has!(File: os::unix::fs::FileExt + Into<process::Stdio> + IsTerminal + Read + Seek + Write);
    has!(&'static File: Read + Seek + Write + AsFd);
    has!(OpenOptions: Clone + Debug + os::unix::fs::OpenOptionsExt);
    has!(ReadDir: Debug + Iterator<Item = io::Result<DirEntry>>);
    has!(Metadata: os::unix::fs::MetadataExt + os::linux::fs::MetadataExt);
    has!(Permissions: os::unix::fs::PermissionsExt);
    has!(FileType: os::unix::fs::FileTypeExt);

    has!(io::PipeReader: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(io::PipeReader: Debug + Read + Into<process::Stdio>);
    has!(&'static io::PipeReader: Read);
    has!(io::PipeWriter: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(io::PipeWriter: Debug + Write + Into<process::Stdio>);
    has!(&'static io::PipeWriter: Write);
    has!(io::Stdin: AsFd + AsRawFd + Debug + IsTerminal + Read);
    has!(&'static io::Stdin: Read);
    has!(io::StdinLock<'static>: AsFd + AsRawFd + BufRead + Debug + IsTerminal + Read);
    has!(io::Stdout: AsFd + AsRawFd + Debug + IsTerminal + Write + Into<process::Stdio>);
    has!(io::Stdout: RefUnwindSafe + UnwindSafe);
    has!(&'static io::Stdout: Write);
    has!(io::StdoutLock<'static>: AsFd + AsRawFd + Debug + IsTerminal + Write);
    has!(io::StdoutLock<'static>: RefUnwindSafe + UnwindSafe);
    has!(io::Stderr: AsFd + AsRawFd + Debug + IsTerminal + Write + Into<process::Stdio>);
    has!(io::Stderr: RefUnwindSafe + UnwindSafe);
    has!(&'static io::Stderr: Write);
    has!(io::StderrLock<'static>: AsFd + AsRawFd + Debug + IsTerminal + Write);
    has!(io::StderrLock<'static>: RefUnwindSafe + UnwindSafe);

    has!(net::Incoming<'static>: Debug + FusedIterator<Item = io::Result<net::TcpStream>>);
    has!(net::TcpListener: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(net::TcpListener: Debug);
    has!(net::TcpStream: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(net::TcpStream: Debug + Read + Write + os::linux::net::TcpStreamExt);
    has!(&'static net::TcpStream: Read + Write);
    has!(net::UdpSocket: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(net::UdpSocket: Debug);

    use super::api::os::unix::net as unix_net;
    has!(unix_net::UnixDatagram: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd>);
    has!(unix_net::UnixDatagram: Debug + Into<OwnedFd>);
    has!(unix_net::UnixListener: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd>);
    has!(unix_net::UnixListener: Debug + Into<OwnedFd>);
    has!(&'static unix_net::UnixListener: IntoIterator<Item = io::Result<unix_net::UnixStream>>);
    has!(unix_net::UnixStream: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd>);
    has!(unix_net::UnixStream: Debug + Into<OwnedFd> + Read + Write);
    has!(&'static unix_net::UnixStream: Read + Write);
    has!(unix_net::Incoming<'static>: Debug + Iterator<Item = io::Result<unix_net::UnixStream>>);
    has!(unix_net::SocketAddr: Clone + Debug + os::linux::net::SocketAddrExt);

    has!(process::Child: Debug);
    has!(process::ChildStdin: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(process::ChildStdin: Debug + Write + Into<process::Stdio>);
    has!(&'static process::ChildStdin: Write);
    has!(process::ChildStdout: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(process::ChildStdout: Debug + Read + Into<process::Stdio>);
    has!(process::ChildStderr: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd>);
    has!(process::ChildStderr: Debug + Read + Into<process::Stdio>);
    has!(process::Command: Debug + os::unix::process::CommandExt);
    has!(process::ExitStatus: os::unix::process::ExitStatusExt);
    has!(process::ExitCode: process::Termination);

    has!(sync::Barrier: Debug + RefUnwindSafe);
    has!(sync::BarrierWaitResult: Debug);
    has!(sync::Condvar: Debug + Default + RefUnwindSafe + UnwindSafe);
    has!(sync::LazyLock<u8>: Debug + Default + DerefMut<Target = u8> + RefUnwindSafe + UnwindSafe);
    has!(sync::Mutex<u8>: Debug + Default + From<u8> + Send + Sync + RefUnwindSafe + UnwindSafe);
    has!(sync::MutexGuard<'static, u8>: Debug + DerefMut<Target = u8> + Display + Sync);
    has!(sync::Once: Debug + RefUnwindSafe + UnwindSafe);
    has!(sync::OnceLock<u8>: Clone + Debug + Default + Eq + From<u8> + PartialEq + Send + Sync);
    has!(sync::OnceLock<u8>: RefUnwindSafe + UnwindSafe);
    has!(sync::OnceState: Debug);
    has!(sync::RwLock<u8>: Debug + Default + From<u8> + Send + Sync + RefUnwindSafe + UnwindSafe);
    has!(sync::RwLockReadGuard<'static, u8>: Debug + Deref<Target = u8> + Display + Sync);
    has!(sync::RwLockWriteGuard<'static, u8>: Debug + DerefMut<Target = u8> + Display + Sync);
    has!(sync::WaitTimeoutResult: Clone + Copy + Debug + Eq + PartialEq);

    use super::api::sync::mpsc;
    has!(mpsc::IntoIter<u8>: Debug + Iterator<Item = u8>);
    has!(mpsc::Iter<'static, u8>: Debug + Iterator<Item = u8>);
    has!(mpsc::TryIter<'static, u8>: Debug + Iterator<Item = u8>);
    has!(mpsc::Receiver<u8>: Debug + IntoIterator<Item = u8> + Send);
    has!(&'static mpsc::Receiver<u8>: IntoIterator<Item = u8>);
    has!(mpsc::Sender<u8>: Clone + Debug + Send + Sync);
    has!(mpsc::SyncSender<u8>: Clone + Debug + Send + Sync);
    has!(mpsc::SendError<u8>: Clone + Copy + Debug + Display + Eq + Error);
    has!(mpsc::TrySendError<u8>: Clone + Copy + Debug + Display + Eq + Error);
    has!(mpsc::RecvError: Clone + Copy + Debug + Display + Eq + Error);

    has!(thread::Builder: Debug);
    has!(thread::JoinHandle<u8>: Debug + Send + Sync);
    has!(thread::Scope<'static, 'static>: Debug + Sync);
    has!(thread::ScopedJoinHandle<'static, u8>: Debug + Send + Sync);
    has!(thread::Thread: Clone + Debug + Send + Sync);
    has!(thread::ThreadId: Clone + Copy + Debug + Eq + Hash + Send + Sync);
    has!(thread::AccessError: Clone + Copy + Debug + Display + Eq + Error);
    has!(thread::LocalKey<u8>: Debug);
}

/// A longer lifetime may take the place of a shorter one, in each of these types of `std`.
#[allow(dead_code, reason = "it is enough that it compiles")]
mod variance {
    use super::api::io::{StderrLock, StdinLock, StdoutLock};
    use super::api::net::Incoming;
    use super::api::os::unix::net::Incoming as UnixIncoming;
    use super::api::process::{CommandArgs, CommandEnvs};
    use super::api::sync::mpsc::{Iter, TryIter};
    use super::api::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use super::api::thread::ScopedJoinHandle;

    type Text = &'static str;

    fn value<'a, 'short>(x: RwLockReadGuard<'a, Text>) -> RwLockReadGuard<'a, &'short str> {
        x
    }

    macro_rules! lifetime {
        ($($name:ident: $long:ty => $short:ty;)*) => {
            $(fn $name<'short>(x: $long) -> $short { x })*
        };
    }

    lifetime! {
        read: RwLockReadGuard<'static, Text> => RwLockReadGuard<'short, Text>;
        write: RwLockWriteGuard<'static, Text> => RwLockWriteGuard<'short, Text>;
        lock: MutexGuard<'static, Text> => MutexGuard<'short, Text>;
        stdin: StdinLock<'static> => StdinLock<'short>;
        stdout: StdoutLock<'static> => StdoutLock<'short>;
        stderr: StderrLock<'static> => StderrLock<'short>;
        incoming: Incoming<'static> => Incoming<'short>;
        unix_incoming: UnixIncoming<'static> => UnixIncoming<'short>;
        arguments: CommandArgs<'static> => CommandArgs<'short>;
        variables: CommandEnvs<'static> => CommandEnvs<'short>;
        iter: Iter<'static, Text> => Iter<'short, Text>;
        try_iter: TryIter<'static, Text> => TryIter<'short, Text>;
        scoped: ScopedJoinHandle<'static, Text> => ScopedJoinHandle<'short, Text>;
    }
}
