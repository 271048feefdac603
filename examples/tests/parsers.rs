//! Properties of the examples' parsers, checked with nearly valid bytes. tests/fuzz checks them
//! with a fuzzer, for as long as it runs.

#[path = "parsers/mod.rs"]
mod parsers;
#[path = "../../tests/util/random.rs"]
mod random;
#[path = "../../tests/util/temp.rs"]
mod temp;

use std::os::fd::OwnedFd;

use random::Random;

/// Optimised code is tested with more inputs.
const N_CASES: usize = if cfg!(debug_assertions) {
    4_000
} else {
    40_000
};

#[test]
fn resp_requests_that_are_nearly_sound() {
    let sound: &[&[u8]] = &[
        b"*1\r\n$4\r\nPING\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10\r\n0123456789\r\n",
        b"*0\r\n*-1\r\n\r\n\n",
        b"SET a  1\r\nGET\ta\n",
        b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        b"*1048576\r\n$67108864\r\nx",
    ];
    let mut random = Random::new(1);
    for _ in 0..N_CASES {
        let bytes = random.nearly(sound, b"*$\r\n-+0129x \0\xff");
        let steps: Vec<_> = (0..=random.below(5)).map(|_| random.byte()).collect();
        parsers::resp_requests(&bytes, &steps);
    }
}

#[test]
fn request_heads_that_are_nearly_sound() {
    let sound: &[&[u8]] = &[
        b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST http://x/a HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n",
        b"PUT / HTTP/1.0\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nhost:x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\nConnection: close, keep-alive\nExpect: 100-continue\n\n",
    ];
    let mut random = Random::new(2);
    for _ in 0..N_CASES {
        parsers::request_head(&random.nearly(sound, b"\r\n :,/?-0129Ax\t\0\xff"));
    }
}

#[test]
fn ranges_of_all_kinds() {
    let sound: &[&[u8]] = &[
        b"bytes=0-0",
        b"bytes=-5",
        b"bytes = 5- ",
        b"bytes=18446744073709551615-99999999999999999999",
        b"bytes=1-2,4-5",
    ];
    let mut random = Random::new(3);
    let edges = [0, 1, 2, 9, 10, 11, 1 << 32, u64::MAX - 1, u64::MAX];
    for _ in 0..N_CASES {
        parsers::range_header(&random.nearly(sound, b"bytes=-0129, +\xff"));
        let mut edge = || edges[random.below(edges.len())];
        let (first, last, len) = (edge(), edge(), edge());
        let ends = [
            (Some(first), Some(last)),
            (Some(first), None),
            (None, Some(last)),
            (None, None),
        ];
        for (first, last) in ends {
            parsers::range_of(first, last, len);
        }
    }
}

#[test]
fn paths_that_are_nearly_sound() {
    let dir = temp::TempDir::new();
    std::fs::create_dir_all(dir.join("root/a/b")).unwrap();
    for file in ["secret", "root/c", "root/a/c", "root/a/b/c"] {
        std::fs::write(dir.join(file), b"").unwrap();
    }
    std::os::unix::fs::symlink("../../secret", dir.join("root/a/out")).unwrap();
    std::os::unix::fs::symlink("/proc/self/root", dir.join("root/a/up")).unwrap();
    std::os::unix::fs::symlink("b/../c", dir.join("root/a/in")).unwrap();
    let place = std::fs::canonicalize(dir.join("root")).unwrap();
    let root = OwnedFd::from(std::fs::File::open(&place).unwrap());
    let sound: &[&[u8]] = &[
        b"/",
        b"/a/b/c",
        b"/a//b/../../c/",
        b"/%61/%2e%2E/c",
        b"/a/out",
        b"/a/in",
        b"/a/up/etc/passwd",
        b"/a/../../secret",
        b"//x/.well-known/%00",
    ];
    let mut random = Random::new(4);
    for _ in 0..N_CASES {
        let bytes = random.nearly(sound, b"/.%2eabc\0\\");
        parsers::opened_file(&root, &place, &String::from_utf8_lossy(&bytes));
    }
}
