//! What to start, and how.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process as std_process;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

use super::child::Child;
use crate::sched::offload::offload;
use crate::sched::park;

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
pub struct Command {
    command: std_process::Command,
    /// Which of stdin, stdout, stderr were set: `output` has its own idea of the others.
    is_set: [bool; 3],
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As `std`: the command line.
        self.command.fmt(f)
    }
}

impl Command {
    /// The program, without arguments, with this process's environment, directory and streams.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command {
            command: std_process::Command::new(program),
            is_set: [false; 3],
        }
    }

    /// Adds an argument.
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

    /// Sets a variable of the environment.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.env(key, val);
        self
    }

    /// Sets variables of the environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.envs(vars);
        self
    }

    /// Takes a variable out of the environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.command.env_remove(key);
        self
    }

    /// Empties the environment.
    pub fn env_clear(&mut self) -> &mut Command {
        self.command.env_clear();
        self
    }

    /// The directory to start in.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.command.current_dir(dir);
        self
    }

    /// The child's standard input.
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stdin(cfg);
        self.is_set[0] = true;
        self
    }

    /// The child's standard output.
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stdout(cfg);
        self.is_set[1] = true;
        self
    }

    /// The child's standard error.
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.command.stderr(cfg);
        self.is_set[2] = true;
        self
    }

    /// The child's user.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.command.uid(id);
        self
    }

    /// The child's group.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.command.gid(id);
        self
    }

    /// What the child sees as its own name.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.command.arg0(arg);
        self
    }

    /// The child's process group; 0 for one of its own.
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.command.process_group(pgroup);
        self
    }

    /// Adds a function that runs in the child before it becomes the program.
    ///
    /// # Safety
    ///
    /// As `std::os::unix::process::CommandExt::pre_exec`: the function runs in a copy of a
    /// process with many threads, of which only its own is there: it must not allocate, lock,
    /// or call windlass.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.command.pre_exec(f) };
        self
    }

    /// Becomes the program: this process ends, and its number goes on. Gives only errors.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until it has failed.
    #[must_use]
    pub fn exec(&mut self) -> io::Error {
        offload(|| self.command.exec())
    }

    /// Starts the program.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the program has been started, or could not be; blocks a
    /// plain thread.
    ///
    /// # Errors
    ///
    /// As `std::process::Command::spawn`.
    pub fn spawn(&mut self) -> io::Result<Child> {
        park::cancel_point()?;
        offload(|| self.command.spawn().map(Child::new))
    }

    /// Starts the program, reads all it writes, and waits until it ends. What was not set: its
    /// outputs are read, its input is empty.
    ///
    /// # Blocking
    ///
    /// As [`Child::wait`].
    ///
    /// # Errors
    ///
    /// As `std::process::Command::output`.
    pub fn output(&mut self) -> io::Result<Output> {
        self.set_unset(Stdio::null, Stdio::piped);
        let child = self.spawn();
        self.set_unset(Stdio::inherit, Stdio::inherit);
        child?.wait_with_output()
    }

    fn set_unset(&mut self, stdin: fn() -> Stdio, outputs: fn() -> Stdio) {
        if !self.is_set[0] {
            self.command.stdin(stdin());
        }
        if !self.is_set[1] {
            self.command.stdout(outputs());
        }
        if !self.is_set[2] {
            self.command.stderr(outputs());
        }
    }

    /// Starts the program and waits until it ends.
    ///
    /// # Blocking
    ///
    /// As [`Child::wait`].
    ///
    /// # Errors
    ///
    /// As `std::process::Command::status`.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.command.get_program()
    }

    /// The arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.command.get_args()
    }

    /// What is set or taken out in the environment.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.command.get_envs()
    }

    /// The directory to start in.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.command.get_current_dir()
    }
}
