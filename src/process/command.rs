//! `Command`: builds and starts child processes.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process as std_process;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

use super::child::{Child, reap_orphans};
use crate::bubble;
use crate::sched::wait::offload::offload_unless_locked;
use crate::sched::wait::{current_context, points};

/// A program to start: `std::process::Command`, with the methods of its `CommandExt`.
///
/// # Examples
///
/// ```
/// use windlass::process::Command;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let output = Command::new("echo").arg("hello").output()?;
///     assert!(output.status.success());
///     assert_eq!(output.stdout, b"hello\n");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The environment, the directory and the streams of the child:
///
/// ```
/// use windlass::process::{Command, Stdio};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let mut command = Command::new("/bin/sh");
///     command
///         .arg0("my-shell")
///         .args(["-c", "echo $0 $GREETING; pwd"])
///         .env_clear()
///         .env("GREETING", "hello")
///         .current_dir("/proc")
///         .stdin(Stdio::null())
///         .process_group(0);
///     assert_eq!(command.get_program(), "/bin/sh");
///     assert_eq!(command.output()?.stdout, b"my-shell hello\n/proc\n");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Command {
    command: std_process::Command,
    /// Which of stdin, stdout, stderr were set. `output` has other defaults than `spawn`. `None` if
    /// only `std`, which has made the command, knows it.
    is_set: Option<[bool; 3]>,
    kills_on_drop: bool,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As `std`: prints the command line.
        self.command.fmt(f)
    }
}

impl Command {
    /// Creates a command that starts `program` without arguments.
    ///
    /// The child inherits the environment, the working directory and the standard streams.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command {
            command: std_process::Command::new(program),
            is_set: Some([false; 3]),
            kills_on_drop: false,
        }
    }

    /// Sets whether a child that [`spawn`](Command::spawn) starts is killed with SIGKILL when its
    /// [`Child`] is dropped before it has ended. The default is no, as in `std`.
    ///
    /// That also holds when the goroutine that owns it unwinds, because of a panic or because the run
    /// ends. Only the child itself is killed, not the processes that it has started. See
    /// [`Child::kill_on_drop`] for what becomes of the killed child.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::process::{Command, Stdio};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let mut sleeper = Command::new("sleep");
    ///     sleeper.arg("1000").stdout(Stdio::piped()).kill_on_drop(true);
    ///     let mut child = sleeper.spawn()?;
    ///     let mut stdout = child.stdout.take().unwrap();
    ///     drop(child);
    ///     // Its end of the pipe is closed when it is dead.
    ///     assert_eq!(stdout.read(&mut [0; 10])?, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_on_drop(&mut self, yes: bool) -> &mut Command {
        self.kills_on_drop = yes;
        self
    }

    /// Adds one argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Sets one environment variable of the child.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.env(key, val);
        self
    }

    /// Sets environment variables of the child.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.envs(vars);
        self
    }

    /// Removes one variable from the child's environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.command.env_remove(key);
        self
    }

    /// Clears the child's environment.
    pub fn env_clear(&mut self) -> &mut Command {
        self.command.env_clear();
        self
    }

    /// Sets the working directory of the child.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.command.current_dir(dir);
        self
    }

    /// Sets the child's standard input.
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stdin(cfg);
        self.note_set(0);
        self
    }

    /// Sets the child's standard output.
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stdout(cfg);
        self.note_set(1);
        self
    }

    /// Sets the child's standard error.
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stderr(cfg);
        self.note_set(2);
        self
    }

    /// Sets the user id of the child.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.command.uid(id);
        self
    }

    /// Sets the group id of the child.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.command.gid(id);
        self
    }

    /// Sets `argv[0]` of the child, which is the program's path by default.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.command.arg0(arg);
        self
    }

    /// Sets the process group of the child. 0 creates a new group.
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.command.process_group(pgroup);
        self
    }

    /// Adds a function that the child calls between `fork` and `exec`.
    ///
    /// # Safety
    ///
    /// As `std::os::unix::process::CommandExt::pre_exec`. The child is a copy of a multi-threaded
    /// process with only one thread, so the function must be async-signal-safe. It must not
    /// allocate, lock, or call windlass.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use windlass::process::Command;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let mut command = Command::new("true");
    ///     // SAFETY: the function calls only `umask`, which is async-signal-safe.
    ///     unsafe {
    ///         command.pre_exec(|| {
    ///             libc::umask(0o077);
    ///             Ok(())
    ///         })
    ///     };
    ///     assert!(command.status()?.success());
    ///     io::Result::Ok(())
    /// })?;
    /// # Ok::<(), io::Error>(())
    /// ```
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.command.pre_exec(f) };
        self
    }

    /// Replaces this process with the program (`execve(2)`). Returns only on an error.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the call has failed; blocks a plain thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use windlass::process::Command;
    ///
    /// let error = Command::new("/no/such/program").exec();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// ```
    #[must_use]
    pub fn exec(&mut self) -> io::Error {
        refuse();
        offload_unless_locked(|| self.command.exec())
    }

    /// Starts the program as a child process.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the program has started or has failed to start; blocks a plain
    /// thread.
    ///
    /// # Errors
    ///
    /// As `std::process::Command::spawn`.
    ///
    /// # Examples
    ///
    /// See [`Child`].
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        refuse();
        points::cancel_point()?;
        reap_orphans();
        let mut child = offload_unless_locked(|| self.command.spawn().map(Child::new))?;
        child.kill_on_drop(self.kills_on_drop);
        Ok(child)
    }

    /// Starts the program, collects its output, and waits until it ends.
    ///
    /// Streams that were not set default to an empty standard input and captured outputs.
    ///
    /// A timeout, a context or the end of the run that ends the call also kills the child, as in
    /// [`Child::wait_with_output`]. If the context is done before, nothing is started.
    ///
    /// # Blocking
    ///
    /// As [`Child::wait_with_output`].
    ///
    /// # Errors
    ///
    /// As `std::process::Command::output`; as [`Child::wait_with_output`].
    ///
    /// # Examples
    ///
    /// See [`Command`].
    pub fn output(&mut self) -> io::Result<Output> {
        if self.is_set.is_none() {
            refuse();
            points::cancel_point()?;
            return offload_unless_locked(|| self.command.output());
        }
        current_context::check()?;
        self.set_unset(Stdio::null, Stdio::piped);
        let child = self.spawn();
        self.set_unset(Stdio::inherit, Stdio::inherit);
        child?.wait_with_output()
    }

    fn set_unset(&mut self, stdin: fn() -> Stdio, outputs: fn() -> Stdio) {
        let [is_stdin_set, is_stdout_set, is_stderr_set] = self.is_set.unwrap_or([true; 3]);
        if !is_stdin_set {
            self.command.stdin(stdin());
        }
        if !is_stdout_set {
            self.command.stdout(outputs());
        }
        if !is_stderr_set {
            self.command.stderr(outputs());
        }
    }

    fn note_set(&mut self, stream: usize) {
        if let Some(is_set) = &mut self.is_set {
            is_set[stream] = true;
        }
    }

    /// Starts the program and waits until it ends.
    ///
    /// A timeout, a context or the end of the run that ends the call also kills the child, as in
    /// [`Child::wait_with_output`]. If the context is done before, nothing is started.
    ///
    /// # Blocking
    ///
    /// As [`Child::wait_with_output`].
    ///
    /// # Errors
    ///
    /// As `std::process::Command::status`; as [`Child::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::process::Command;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     assert!(Command::new("true").status()?.success());
    ///     assert!(!Command::new("false").status()?.success());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        current_context::check()?;
        self.spawn()?.end_with(Child::wait)
    }

    /// Returns the program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.command.get_program()
    }

    /// Returns the arguments, without the program.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.command.get_args()
    }

    /// Returns the environment variables that are set, or removed (`None`), for the child.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.command.get_envs()
    }

    /// Returns the working directory, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.command.get_current_dir()
    }
}

/// Refuses to start a program in a simulation.
#[track_caller]
fn refuse() {
    bubble::refuse(
        "a child process",
        "in a simulation, spawn a goroutine that does its work",
    );
}

impl From<std_process::Command> for Command {
    /// Takes over a command of `std` with its arguments, environment and streams.
    ///
    /// [`output`](Command::output) of such a command occupies a spare thread until the child ends, and
    /// no timeout or context ends it. Set the streams and call [`spawn`](Command::spawn) and
    /// [`wait_with_output`](Child::wait_with_output) instead where that matters.
    /// After it, [`spawn`](Command::spawn) starts a child with the streams that were set.
    fn from(command: std_process::Command) -> Command {
        let is_set = None;
        Command {
            command,
            is_set,
            kills_on_drop: false,
        }
    }
}

/// The methods of `std::os::unix::process::CommandExt`, which only `std`'s command can have. They
/// are methods of [`Command`] itself, too.
pub trait CommandExt {
    /// See [`Command::uid`].
    fn uid(&mut self, id: u32) -> &mut Self;

    /// See [`Command::gid`].
    fn gid(&mut self, id: u32) -> &mut Self;

    /// See [`Command::pre_exec`].
    ///
    /// # Safety
    ///
    /// As [`Command::pre_exec`].
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// See [`Command::exec`].
    fn exec(&mut self) -> io::Error;

    /// See [`Command::arg0`].
    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self;

    /// See [`Command::process_group`].
    fn process_group(&mut self, pgroup: i32) -> &mut Self;
}

impl CommandExt for Command {
    fn uid(&mut self, id: u32) -> &mut Command {
        self.uid(id)
    }

    fn gid(&mut self, id: u32) -> &mut Command {
        self.gid(id)
    }

    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.pre_exec(f) }
    }

    fn exec(&mut self) -> io::Error {
        self.exec()
    }

    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.arg0(arg)
    }

    fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.process_group(pgroup)
    }
}
