//! Waits of pipes, FIFOs, terminals, children and signals.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use windlass::context::Error;
use windlass::fs::File;
use windlass::io::{
    Async, PipeReader, PipeWriter, copy, pipe, wait_readable, wait_readable_timeout, wait_writable,
    wait_writable_timeout,
};
use windlass::process::{Child, Command, Stdio};
use windlass::signal::Signals;
use windlass::time::Instant;

use super::{FOREVER, Row, Wait, cut, ended, until, wait};
use crate::temp::TempDir;
use crate::util;

fn of_reader(call: impl FnOnce(&mut PipeReader, Error) + Send + 'static) -> Wait {
    let (mut reader, writer) = pipe().unwrap();
    wait(writer, move |why| call(&mut reader, why))
}

/// Of a pipe that is full.
fn of_writer(call: impl FnOnce(&mut PipeWriter, Error) + Send + 'static) -> Wait {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&[0; 1 << 16]).unwrap();
    wait(reader, move |why| call(&mut writer, why))
}

/// The open of a FIFO that nobody else opens.
fn of_opened(open: fn(&Path) -> io::Result<File>) -> Wait {
    let dir = TempDir::new();
    let path = dir.fifo("fifo");
    wait(dir, move |why| cut(open(&path), why))
}

/// A FIFO that its own reader may write to.
fn of_fifo(call: impl FnOnce(&mut File, Error) + Send + 'static) -> Wait {
    let dir = TempDir::new();
    let path = dir.fifo("fifo");
    let mut file = File::options().read(true).write(true).open(path).unwrap();
    wait(dir, move |why| call(&mut file, why))
}

fn of_child(call: impl FnOnce(Child, Error) + Send + 'static) -> Wait {
    let mut command = Command::new("sleep");
    command
        .arg("1000")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id() as i32;
    // SAFETY: takes plain integers. Nobody has waited for the child, or it was killed just now.
    let release = move || assert!(unsafe { libc::kill(pid, libc::SIGKILL) } <= 0);
    until(release, move |why| call(child, why))
}

fn of_terminal(call: impl FnOnce(&mut File, Error) + Send + 'static) -> Wait {
    let (master, mut slave) = util::terminal();
    wait(master, move |why| call(&mut slave, why))
}

pub(crate) const ROWS: &[Row] = &[
    ended("pipe read", || {
        of_reader(|r, why| cut(r.read(&mut [0; 9]), why))
    }),
    ended("pipe read_vectored", || {
        of_reader(|r, why| {
            let (mut a, mut b) = ([0; 4], [0; 4]);
            cut(
                r.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]),
                why,
            );
        })
    }),
    ended("pipe read_to_end", || {
        of_reader(|r, why| cut(r.read_to_end(&mut Vec::new()), why))
    }),
    ended("pipe write", || {
        of_writer(|w, why| cut(w.write(&[0; 9]), why))
    }),
    ended("pipe write of more than it holds", || {
        of_writer(|w, why| cut(w.write(&[0; 1 << 20]), why))
    }),
    ended("pipe write_vectored", || {
        of_writer(|w, why| {
            cut(
                w.write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")]),
                why,
            )
        })
    }),
    ended("File read of a pipe", || {
        of_reader(|r, why| {
            let mut file = File::from(OwnedFd::from(r.try_clone().unwrap()));
            cut(file.read(&mut [0; 9]), why);
        })
    }),
    ended("File read with a deadline of its own", || {
        of_reader(|r, why| {
            let mut file = File::from(OwnedFd::from(r.try_clone().unwrap()));
            file.set_read_deadline(Some(Instant::now() + FOREVER));
            cut(file.read(&mut [0; 9]), why);
        })
    }),
    ended("File write to a pipe", || {
        of_writer(|w, why| {
            let mut file = File::from(OwnedFd::from(w.try_clone().unwrap()));
            cut(file.write(&[0; 9]), why);
        })
    }),
    ended("FIFO open for reading", || {
        of_opened(|path| File::open(path))
    }),
    ended("FIFO open for writing", || {
        of_opened(|path| File::options().write(true).open(path))
    }),
    ended("FIFO read", || {
        of_fifo(|f, why| cut(f.read(&mut [0; 9]), why))
    }),
    ended("FIFO write", || {
        of_fifo(|f, why| cut(f.write_all(&[0; 1 << 20]), why))
    }),
    ended("terminal read", || {
        of_terminal(|f, why| cut(f.read(&mut [0; 9]), why))
    }),
    ended("terminal write", || {
        of_terminal(|f, why| cut(f.write_all(&vec![b'x'; 1 << 20]), why))
    }),
    ended("copy from a pipe", || {
        of_reader(|r, why| cut(copy(r, &mut Vec::new()), why))
    }),
    ended("copy from a pipe to a pipe", || {
        let ((mut from, a), (b, mut to)) = (pipe().unwrap(), pipe().unwrap());
        wait((a, b), move |why| cut(copy(&mut from, &mut to), why))
    }),
    ended("copy to a pipe that is full", || {
        of_writer(|w, why| cut(copy(&mut std::io::repeat(0), w), why))
    }),
    ended("child wait", || {
        of_child(|mut child, why| {
            cut(child.wait(), why);
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
        })
    }),
    ended("child wait_with_output", || {
        of_child(|child, why| cut(child.wait_with_output(), why))
    }),
    ended("read of a child's output", || {
        of_child(|mut child, why| cut(child.stdout.as_mut().unwrap().read(&mut [0; 9]), why))
    }),
    ended("write to a child's input", || {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        wait(child, move |why| {
            cut(stdin.write_all(&vec![0; 1 << 20]), why)
        })
    }),
    ended("Command::output", || {
        wait((), |why| {
            cut(Command::new("sleep").arg("1000").output(), why)
        })
    }),
    ended("Command::status", || {
        wait((), |why| {
            cut(Command::new("sleep").arg("1000").status(), why)
        })
    }),
    ended("Signals::recv", || {
        let signals = Signals::new([libc::SIGUSR2]).unwrap();
        wait((), move |why| cut(signals.recv(), why))
    }),
    ended("Async read", || {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut reader = Async::new(reader).unwrap();
        wait(writer, move |why| cut(reader.read(&mut [0; 9]), why))
    }),
    ended("Async read_with", || {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Async::new(reader).unwrap();
        wait(writer, move |why| {
            cut(reader.read_with(|mut r| r.read(&mut [0; 9])), why)
        })
    }),
    ended("Async readable", || {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Async::new(reader).unwrap();
        wait(writer, move |why| cut(reader.readable(), why))
    }),
    ended("Async write", || {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut writer = Async::new(writer).unwrap();
        wait(reader, move |why| cut(writer.write_all(&[0; 1 << 20]), why))
    }),
    ended("wait_readable of a pipe", || {
        of_reader(|r, why| cut(wait_readable(&*r), why))
    }),
    ended("wait_readable_timeout of a pipe", || {
        of_reader(|r, why| cut(wait_readable_timeout(&*r, FOREVER), why))
    }),
    ended("wait_writable of a pipe", || {
        of_writer(|w, why| cut(wait_writable(&*w), why))
    }),
    ended("wait_writable_timeout of a pipe", || {
        of_writer(|w, why| cut(wait_writable_timeout(&*w, FOREVER), why))
    }),
];
