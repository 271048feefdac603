//! The programs in which runtimes of one thread for each core take part: one executable for each
//! of these runtimes, whose first argument is the program.
//!
//! `bench_monoio echo_server --workers 2 127.0.0.1:0` is what `echo_server windlass --workers 2
//! 127.0.0.1:0` is for windlass.
#![expect(
    clippy::print_stdout,
    reason = "the address of a server is for whoever started it"
)]

use std::io;
use std::net::SocketAddr;

use clap::{Parser, Subcommand, ValueEnum};

use super::PerCore;
use crate::micro::{self, STREAM_16K, STREAM_512, Size};
use crate::random_reads::{self, Reading};
use crate::workloads::{echo, stream};
use crate::{http, runtimes, stalls};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    program: Program,
    #[arg(long, global = true, default_value_t = runtimes::workers())]
    workers: usize,
}

#[derive(Subcommand)]
#[command(rename_all = "snake_case")]
enum Program {
    /// A TCP echo server.
    EchoServer {
        #[arg(default_value = "127.0.0.1:0")]
        address: SocketAddr,
    },
    /// An HTTP/1.1 server.
    HttpServer {
        #[arg(default_value = "127.0.0.1:0")]
        address: SocketAddr,
    },
    /// The server of the program `stalls`.
    StallServer {
        #[arg(default_value = "127.0.0.1:0")]
        address: SocketAddr,
    },
    /// A workload, repeated.
    Micro { workload: Workload },
    /// Random reads of 4 KiB from one file.
    RandomReads {
        #[command(flatten)]
        reading: Reading,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    /// Per message: 16 KiB, streamed over each of 4 connections.
    #[value(name = "stream-16k")]
    Stream16k,
    /// Per message: 512 bytes, streamed over each of 4 connections.
    #[value(name = "stream-512")]
    Stream512,
}

/// Runs the program that the command line names.
///
/// # Errors
///
/// Those of the program.
pub fn main<R: PerCore>() -> io::Result<()> {
    let Args { program, workers } = Args::parse();
    let listening = |address| println!("{address}");
    match program {
        Program::EchoServer { address } => {
            super::serve::<R, _>(address, workers, listening, echo::serve_per_core::<R>)
        }
        Program::HttpServer { address } => {
            super::serve::<R, _>(address, workers, listening, http::serve_per_core::<R>)
        }
        Program::StallServer { address } => {
            stalls::calibrate();
            super::serve::<R, _>(address, workers, listening, stalls::serve_per_core::<R>)
        }
        Program::Micro { workload } => {
            let (bytes, size) = match workload {
                Workload::Stream16k => STREAM_16K,
                Workload::Stream512 => STREAM_512,
            };
            measure::<R>(workers, bytes, size);
            Ok(())
        }
        Program::RandomReads { reading } => {
            random_reads::measure(reading, |job| random_reads::per_core::<R>(&job, workers))
        }
    }
}

/// The runtimes begin and end with each repetition.
fn measure<R: PerCore>(workers: usize, bytes: usize, size: Size) {
    micro::measure(size, |n| stream::per_core::<R>(workers, bytes, n));
}
