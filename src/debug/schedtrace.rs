//! The lines of `WINDLASS_DEBUG=schedtrace=1000`: Go's format, with the Ps grouped by node.
//!
//! ```text
//! SCHED 1011ms: windlass procs=8 idleprocs=3 threads=14 spinningthreads=0 idlethreads=4
//!   runqueue=[2 0] [0 0 1 0 | 0 5 0 0] schedticks=[..] steals=12 stolen=40 inflight=7 ..
//! ```
//!
//! (one line). The first brackets have the lengths of the nodes' queues. The second have those of
//! the Ps' queues, without runnext, as in Go.
//!
//! On a machine with several nodes there are more counters about stealing between nodes, counted
//! since the runtime was built. `denied=[..]` has the attempts that another node denied, by reason:
//! it had no surplus, its goroutines had not waited long enough, another P of the same node was
//! stealing there, or all its goroutines are bound.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use super::goroutines::{self, Goroutine};
use crate::loom::native::atomic::Ordering::{Acquire, Relaxed};
use crate::metrics::{PMetrics, RuntimeMetrics};
use crate::sched::types::m::{BLOCKING, M, RETAKEN};
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sys::signal;

/// Prints the line.
pub(crate) fn print(sched: &Sched, since: Duration) {
    let mut out = String::new();
    line(&mut out, sched, since);
    write_out(&out);
}

/// Prints the line, and one for every P, M and goroutine.
pub(crate) fn print_detail(sched: &Sched, since: Duration) {
    let mut out = String::new();
    line(&mut out, sched, since);
    for p in sched.ps_in_use() {
        p_line(&mut out, sched, p);
    }
    let mut locked = BTreeMap::new();
    for m in &sched.ms.lock().all {
        let locked_g = m.locked_g.get().and_then(|g| goroutines::id_of(sched, g));
        locked.extend(locked_g.map(|g| (g, m.id())));
        m_line(&mut out, sched, m, locked_g);
    }
    for g in goroutines::all(sched) {
        g_line(&mut out, &g, locked.get(&g.id).copied());
    }
    write_out(&out);
}

/// Writes in one piece, so that lines of several runtimes do not mix.
fn write_out(out: &str) {
    signal::write_stderr(out.as_bytes());
}

/// Appends to `out`. Writing to a string cannot fail.
fn put(out: &mut String, args: fmt::Arguments<'_>) {
    let _ = out.write_fmt(args);
}

fn line(out: &mut String, sched: &Sched, since: Duration) {
    let m = RuntimeMetrics::of(sched);
    let total = m.total();
    let idle: usize = m.nodes.iter().map(|n| n.idle_ps).sum();
    let spinning: usize = m.nodes.iter().map(|n| n.spinning).sum();
    let breaks = |c: char| c.is_whitespace() || c.is_control();
    let name = sched.config.name.replace(breaks, "_");
    put(
        out,
        format_args!(
            "SCHED {}ms: {name} procs={} idleprocs={idle} threads={} spinningthreads={spinning} \
             idlethreads={} runqueue=[",
            since.as_millis(),
            m.ps.len(),
            m.threads,
            m.threads_idle,
        ),
    );
    list(out, m.nodes.iter().map(|n| n.queue_depth as u64));
    out.push_str("] [");
    let queues: Vec<_> = sched.ps_in_use().map(|p| p.runq.len() as u64).collect();
    // If the number of Ps changes at this moment, the two lists may differ in length.
    groups(out, &m, |idx| queues.get(idx).copied().unwrap_or(0));
    out.push_str("] schedticks=[");
    groups(out, &m, |idx| m.ps.get(idx).map_or(0, |p| p.dispatches));
    put(
        out,
        format_args!(
            "] steals={} stolen={} inflight={} goroutines={} timers={} wakes={} retakes={} handoffs={}",
            total.steals.total(),
            total.stolen.total(),
            total.ring_inflight,
            m.live_goroutines,
            total.timers,
            total.wakes,
            m.retakes,
            m.handoffs,
        ),
    );
    if m.nodes.len() > 1 {
        nodes(out, &total);
    }
    out.push('\n');
}

/// The counters of steals and wakes between nodes.
fn nodes(out: &mut String, total: &PMetrics) {
    let denied = &total.gate_denials;
    put(
        out,
        format_args!(
            " remotesteals={} remotestolen={} denied=[{} {} {} {}] surplus={} homewakes={} pulled={} \
             rehomes={} runsaway={}",
            total.steals.remote,
            total.stolen.remote,
            denied.no_surplus,
            denied.too_young,
            denied.pair_busy,
            denied.bound,
            total.surplus_pushes,
            total.home_wakes,
            total.pulled,
            total.rehomes,
            total.runs_away,
        ),
    );
}

fn list(out: &mut String, values: impl Iterator<Item = u64>) {
    for (i, value) in values.enumerate() {
        let sep = if i == 0 { "" } else { " " };
        put(out, format_args!("{sep}{value}"));
    }
}

/// A value for every P, with a bar between nodes.
fn groups(out: &mut String, m: &RuntimeMetrics, value: impl Fn(usize) -> u64) {
    for (i, node) in m.nodes.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { " | " });
        list(out, node.ps.clone().map(&value));
    }
}

fn p_line(out: &mut String, sched: &Sched, p: &P) {
    let m = PMetrics::of(p);
    let status = if sched.node_of(p).idle.is_idle(p.at_in_node) {
        "idle"
    } else if p.syscall.load(Acquire) != 0 {
        "syscall"
    } else {
        "running"
    };
    let owner = sched
        .ms
        .lock()
        .all
        .iter()
        .find(|m| std::ptr::eq(p.owner(), &raw const ***m))
        .map(|m| m.id());
    put(
        out,
        format_args!(
            "  P{}: status={status} schedtick={} syscalltick={} m={} runqsize={} runnext={} timerslen={} \
             cpu={} node={} inflight={} stacks={}\n",
            p.idx,
            m.dispatches,
            m.blocking_sections,
            Id(owner),
            p.runq.len(),
            p.runq.has_runnext(),
            m.timers,
            p.cpu(),
            sched.node_of(p).os_id,
            m.ring_inflight,
            m.stacks_cached,
        ),
    );
}

fn m_line(out: &mut String, sched: &Sched, m: &M, locked_g: Option<u64>) {
    let p = sched
        .ps
        .iter()
        .find(|p| std::ptr::eq(p.owner(), m))
        .map(|p| p.idx as u64);
    let curg = m.curg.get().and_then(|g| goroutines::id_of(sched, g));
    let access = m.access.load(Relaxed);
    put(
        out,
        format_args!(
            "  M{}: p={} curg={} blocked={} lockedg={} lostp={} demoted={} tid={}\n",
            m.id(),
            Id(p),
            Id(curg),
            access == BLOCKING,
            Id(locked_g),
            access == RETAKEN,
            m.demoted.load(Relaxed),
            m.tid.load(Relaxed),
        ),
    );
}

fn g_line(out: &mut String, g: &Goroutine, locked_m: Option<u64>) {
    put(
        out,
        format_args!(
            "  G{}: status={} m={} lockedm={} p={} waiting={}s name={:?} spawned={}\n",
            g.id,
            g.status(),
            Id(g.m),
            Id(locked_m),
            Id(g.p.map(|p| p as u64)),
            g.waiting.as_secs(),
            g.name.as_deref().unwrap_or(""),
            g.spawned_at,
        ),
    );
}

/// A number, or Go's `nil`.
struct Id(Option<u64>);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => id.fmt(f),
            None => f.write_str("nil"),
        }
    }
}
