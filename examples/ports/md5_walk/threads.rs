//! The MD5 digests of all files below a directory, as `md5sum` prints them, in the order of their
//! paths.
//!
//! ```text
//! md5_walk DIRECTORY [DIGESTERS]
//! ```
//!
//! A pipeline: one thread walks the tree, and some threads (8 unless it is said) read and digest the
//! files, so that no more files are open at a time. A file that cannot be read is reported at the end.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

const USAGE: &str = "usage: md5_walk DIRECTORY [DIGESTERS]";

/// A file, and its digest or why it has none.
type Digested = (PathBuf, io::Result<md5::Digest>);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (root, n_digesters) = match &arguments[..] {
        [root] => (root.as_str(), Ok(8)),
        [root, n] => (root.as_str(), n.parse()),
        _ => ("", Ok(0)),
    };
    let Ok(n_digesters @ 1..=1000) = n_digesters else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut status = ExitCode::SUCCESS;
    for (path, digest) in digest_all(Path::new(root), n_digesters) {
        match digest {
            Ok(digest) => println!("{digest:x}  {}", path.display()),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}

/// Runs the pipeline to its end.
fn digest_all(root: &Path, n_digesters: usize) -> BTreeMap<PathBuf, io::Result<md5::Digest>> {
    let (paths, paths_out) = sync_channel(n_digesters);
    let (digests, digests_out) = sync_channel(n_digesters);
    let root = root.to_owned();
    let failures = digests.clone();
    thread::spawn(move || {
        if let Err(error) = walk(&root, &paths) {
            let _ = failures.send((root, Err(error)));
        }
    });
    let paths_out = Arc::new(Mutex::new(paths_out));
    for _ in 0..n_digesters {
        let (paths, digests) = (Arc::clone(&paths_out), digests.clone());
        thread::spawn(move || digest_paths(&paths, &digests));
    }
    // The digesters and the walker have the other senders.
    drop(digests);
    digests_out.into_iter().collect()
}

/// Sends the path of each regular file below a directory.
fn walk(directory: &Path, paths: &SyncSender<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), paths)?;
        } else if kind.is_file() && paths.send(entry.path()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Takes one path after the other, until the walk is over.
fn digest_paths(paths: &Mutex<Receiver<PathBuf>>, digests: &SyncSender<Digested>) {
    loop {
        let path = paths.lock().unwrap().recv();
        let Ok(path) = path else { return };
        let digest = digest(&path);
        if digests.send((path, digest)).is_err() {
            return;
        }
    }
}

fn digest(path: &Path) -> io::Result<md5::Digest> {
    let mut file = File::open(path)?;
    let mut context = md5::Context::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(context.finalize()),
            n => context.consume(&buffer[..n]),
        }
    }
}
