//! The digests of a tree, with threads and with goroutines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::program::Directory;

const PROGRAMS: [&str; 2] = [
    env!("CARGO_BIN_EXE_md5_walk_threads"),
    env!("CARGO_BIN_EXE_md5_walk"),
];

/// Makes files of all kinds of lengths, some deep down. Returns what is in them.
fn make_tree(root: &Directory) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for n in 0..200_usize {
        let depth = n % 5;
        let mut path = root.0.clone();
        (0..depth).for_each(|level| path.push(format!("dir-{}-{level}", n % 7)));
        std::fs::create_dir_all(&path).unwrap();
        path.push(format!("file-{n}"));
        let bytes: Vec<u8> = (0..n * n).map(|i| (i * 31 + n) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        files.insert(path, bytes);
    }
    // Neither is a regular file.
    std::os::unix::fs::symlink("file-0", root.0.join("link")).unwrap();
    std::os::unix::fs::symlink("..", root.0.join("up")).unwrap();
    files
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn digests_are_those_of_the_files() {
    let root = Directory::new("md5-walk");
    let expected: String = make_tree(&root)
        .iter()
        .map(|(path, bytes)| format!("{:x}  {}\n", md5::compute(bytes), path.display()))
        .collect();
    let directory = root.0.to_str().unwrap();
    for program in PROGRAMS {
        for digesters in [&[][..], &["1"], &["30"]] {
            let arguments: Vec<_> = [directory].iter().chain(digesters).copied().collect();
            let output = run(program, &arguments);
            assert!(output.status.success(), "{output:?}");
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert!(stdout == expected, "{program} {digesters:?}:\n{stdout}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_reported() {
    for program in PROGRAMS {
        let output = run(program, &["/nonexistent/directory"]);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains("/nonexistent/directory: No such file"),
            "{stderr}"
        );
        for wrong in [&[][..], &["/", "0"], &["/", "many"], &["/", "1", "2"]] {
            let output = run(program, wrong);
            assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        }
    }
}
