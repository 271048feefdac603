//! The ported programs and what they were before do the same, and differ as the guide says.

#[path = "ports/chat.rs"]
mod chat;
#[path = "ports/diff.rs"]
mod diff;
#[path = "ports/kv.rs"]
mod kv;
#[path = "ports/md5_walk.rs"]
mod md5_walk;
#[path = "ports/program.rs"]
mod program;
