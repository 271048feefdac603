//! Whether io_uring can be had, and which of its operations.

use io_uring::{IoUring, Probe, opcode};
use serde::Serialize;

/// The features of io_uring that this kernel and this container allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Uring {
    /// Why there is no ring, in the system's words; `None` where there is one.
    pub error: Option<String>,
    /// The operations that windlass uses.
    pub operations: Vec<Operation>,
}

/// An operation of io_uring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// Its name in the kernel's header, without `IORING_OP_` and in lower case.
    pub name: &'static str,
    /// The Linux that brought it.
    pub since: &'static str,
    /// Whether a runtime cannot start over io_uring without it; the others have a fallback.
    pub is_required: bool,
    /// Whether this kernel has it.
    pub is_supported: bool,
}

/// Name, code, the first Linux with it, and whether nothing goes without it.
const OPERATIONS: [(&str, u8, &str, bool); 15] = [
    ("recv", opcode::Recv::CODE, "5.6", true),
    ("send", opcode::Send::CODE, "5.6", true),
    ("recvmsg", opcode::RecvMsg::CODE, "5.3", true),
    ("sendmsg", opcode::SendMsg::CODE, "5.3", true),
    ("accept", opcode::Accept::CODE, "5.5", true),
    ("connect", opcode::Connect::CODE, "5.5", true),
    ("read", opcode::Read::CODE, "5.6", true),
    ("write", opcode::Write::CODE, "5.6", false),
    ("readv", opcode::Readv::CODE, "5.1", false),
    ("writev", opcode::Writev::CODE, "5.1", false),
    ("poll_add", opcode::PollAdd::CODE, "5.1", false),
    ("openat", opcode::OpenAt::CODE, "5.6", false),
    ("fsync", opcode::Fsync::CODE, "5.1", false),
    ("fallocate", opcode::Fallocate::CODE, "5.6", false),
    ("splice", opcode::Splice::CODE, "5.7", false),
];

/// Makes a ring as a P does, and asks it what it can.
pub(super) fn probe() -> Uring {
    let mut builder = IoUring::builder();
    builder.setup_coop_taskrun().setup_taskrun_flag();
    let mut probe = Probe::new();
    let asked = builder
        .build(8)
        .and_then(|ring: IoUring| ring.submitter().register_probe(&mut probe));
    let operation = |(name, code, since, is_required)| Operation {
        name,
        since,
        is_required,
        is_supported: asked.is_ok() && probe.is_supported(code),
    };
    let operations = OPERATIONS.into_iter().map(operation).collect();
    Uring {
        error: asked.err().map(|error| error.to_string()),
        operations,
    }
}

impl Uring {
    /// The names of the operations that are missing, required or not.
    pub(super) fn missing(&self, is_required: bool) -> Vec<&'static str> {
        let missing = self
            .operations
            .iter()
            .filter(|operation| operation.is_required == is_required && !operation.is_supported);
        missing.map(|operation| operation.name).collect()
    }

    /// `works, 17 of 17 operations`, or why it does not.
    #[must_use]
    pub fn verdict(&self) -> String {
        let n_supported = self.operations.iter().filter(|op| op.is_supported).count();
        match &self.error {
            None => format!(
                "works, {n_supported} of {} operations",
                self.operations.len()
            ),
            Some(error) => format!("does not work: {error}"),
        }
    }
}
