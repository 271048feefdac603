//! Changing the number of Ps, and the CPUs that they are on: in a stopped world, or without a run.
//!
//! All Ps that there may ever be are created with the runtime; most of their resources are
//! allocated at first use. [`PStatus`](crate::sched::queue::p_status::PStatus) says which Ps are in use. A P
//! stays on the node that it was created for, with its memory; only the CPU that its Ms are pinned
//! to may change.
//!
//! A P that leaves use loses its goroutines to the node queue and its timers to another P at once:
//! the world is stopped, so no other thread touches either. Waiting for its operations in flight
//! would keep the world stopped. Instead its M asks the kernel to cancel them when the world
//! restarts. A goroutine whose operation is cancelled that way submits it again, on the P where it
//! then runs (`poll::op`).

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;

use windlass_ground::run_on_node;
use windlass_ground::usable_cpus::Now;
use windlass_topology::Plan;

use crate::g::list::GList;
use crate::loom::Ordering;
use crate::sched::proc::leave::{take_queue, try_to_end};
use crate::sched::types::extra_work::NUMA;
use crate::sched::types::p::P;
use crate::sched::types::state::{Node, Sched};
use crate::sched::wait::wake;
use crate::sys::{affinity, sched as threads};

/// Changes which Ps are in use to those on the CPUs that the plan for `n` chooses. The world is
/// stopped, or there is no run.
///
/// # Errors
///
/// The plan's errors, and those of creating a ring; then nothing has changed.
pub(crate) fn resize(sched: &Sched, n: usize) -> io::Result<()> {
    if n > sched.ps.len() {
        return Err(too_many(n, sched.ps.len()));
    }
    let plan = sched.place.plan(n)?;
    let cpus = assign(sched, &plan);
    let all = || sched.ps.iter().zip(&cpus);
    for node in &sched.nodes {
        let used = node
            .ps
            .clone()
            .filter_map(|i| Some((&sched.ps[i], cpus[i]?)));
        open_pollers(node, used.collect())?;
    }
    let leaving: Vec<&P> = all()
        .filter(|&(p, cpu)| cpu.is_none() && p.status.is_in_use())
        .map(|(p, _)| p)
        .collect();
    let (mut has_changed, mut has_moved) = (false, false);
    for (p, cpu) in all() {
        match *cpu {
            Some(cpu) => {
                has_moved |= p.cpu() != cpu;
                p.set_cpu(cpu);
                p.status.come_into_use();
                has_changed |= sched.in_use.insert(p.idx);
                sched.were_in_use.insert(p.idx);
            }
            None => {
                p.status.begin_leaving();
                has_changed |= sched.in_use.remove(p.idx);
            }
        }
    }
    for node in &sched.nodes {
        let n_live = node.ps.clone().filter(|&i| sched.in_use.contains(i));
        node.n_live.store(n_live.count(), Ordering::SeqCst);
    }
    sched.n_procs.store(n, Ordering::SeqCst);
    if has_changed {
        look_at_live(sched);
    }
    sched
        .place
        .n_away
        .store(n_away(sched, &plan, &cpus), Ordering::Relaxed);
    for p in leaving {
        hand_over(sched, p, heir_of(sched, p));
        p.local.caches.flush(&sched.node_of(p).stacks);
    }
    rescue_queues(sched);
    if has_moved {
        pin_owners(sched);
    }
    Ok(())
}

/// Makes a new plan for a changed set of CPUs, for `n` Ps, in a stopped world.
///
/// # Errors
///
/// As [`resize`].
pub(crate) fn replan(sched: &Sched, now: Now, n: usize) -> io::Result<()> {
    let free = now.free.clone();
    let before = sched.place.replace(now);
    if let Err(e) = resize(sched, n) {
        before.map(|before| sched.place.replace(before));
        return Err(e);
    }
    sched.place.replans.fetch_add(1, Ordering::Relaxed);
    sched.offload.set_mask(Some(free));
    pin_owners(sched);
    Ok(())
}

/// Assigns a CPU to each P that is to be in use. A P gets the CPU that it was created for, if
/// the plan has that CPU. The rest of the plan (more Ps than CPUs, or CPUs that no P was
/// created for) goes to the remaining Ps, of the same node if possible.
fn assign(sched: &Sched, plan: &Plan) -> Vec<Option<usize>> {
    let mut cpus = vec![None; sched.ps.len()];
    let mut left = Vec::new();
    for planned in &plan.ps {
        let is_own = |&i: &usize| cpus[i].is_none() && sched.ps[i].own_cpu == planned.cpu;
        match (0..sched.ps.len()).find(is_own) {
            Some(i) => cpus[i] = Some(planned.cpu),
            None => left.push(planned),
        }
    }
    for planned in left {
        let os_id = plan.nodes[planned.node].os_id;
        let rank = |&i: &usize| {
            let p = &sched.ps[i];
            let is_near = sched.node_of(p).os_id == os_id;
            let stays = p.status.is_in_use() && p.cpu() == planned.cpu;
            (!is_near, !stays, !p.status.is_in_use())
        };
        let free = (0..sched.ps.len()).filter(|&i| cpus[i].is_none());
        let best = free.min_by_key(rank).expect("there are enough");
        cpus[best] = Some(planned.cpu);
    }
    cpus
}

/// Number of Ps on a CPU of another node than their own.
fn n_away(sched: &Sched, plan: &Plan, cpus: &[Option<usize>]) -> usize {
    let nodes: HashMap<usize, u32> = plan
        .ps
        .iter()
        .map(|p| (p.cpu, plan.nodes[p.node].os_id))
        .collect();
    let is_away = |&(p, cpu): &(&P, &Option<usize>)| {
        cpu.is_some_and(|cpu| nodes.get(&cpu) != Some(&sched.node_of(p).os_id))
    };
    sched.ps.iter().zip(cpus).filter(is_away).count()
}

/// Updates the steal levels to the Ps in use, and the NUMA flag: goroutines have a home only
/// while several nodes have Ps in use.
fn look_at_live(sched: &Sched) {
    let live = sched.nodes.iter();
    let n_live = live.filter(|node| node.n_live.load(Ordering::Relaxed) != 0);
    let is_numa = n_live.count() > 1;
    for p in &sched.ps {
        p.local.extra.set(NUMA, is_numa);
        if p.status.is_in_use() {
            let is_in_use = |i| sched.in_use.contains(i);
            // SAFETY: the world is stopped, or there is no run: no other thread changes which
            // Ps are in use.
            unsafe { p.levels.keep(is_in_use, |i| sched.ps[i].node_idx) };
        }
    }
}

/// Pins the M of each P in use to the P's CPU, in a stopped world, even if the thread's mask
/// has been changed. An M that a goroutine has locked may have been given another mask on
/// purpose: it is left alone unless its P has moved.
pub(crate) fn pin_owners(sched: &Sched) {
    if !sched.pin {
        return;
    }
    let owners: HashMap<_, _> = sched.ps_in_use().map(|p| (p.owner(), p.cpu())).collect();
    let ms = sched.ms.lock();
    for m in &ms.all {
        let tid = m.tid.load(Ordering::Relaxed);
        match owners.get(&std::ptr::from_ref(&**m).cast_mut()) {
            Some(&cpu) if tid != 0 => {
                let is_left_alone = m.is_locked() && m.cpu() == Some(cpu);
                if m.is_widened.load(Ordering::SeqCst) {
                    // It pins itself to this CPU in a moment.
                    m.set_cpu(Some(cpu));
                } else if !is_left_alone {
                    m.set_cpu(affinity::pin_thread(tid, cpu).then_some(cpu));
                }
            }
            _ => m.doubt_pin(),
        }
    }
}

/// Opens the pollers that are not open yet, on a thread of their node: the kernel allocates a
/// ring's memory where the caller runs. The thread ends with that, as a thread of the program
/// would be interrupted when the rings are closed.
fn open_pollers(node: &Node, ps: Vec<(&P, usize)>) -> io::Result<()> {
    let Some(&(p, cpu)) = ps.iter().find(|(p, _)| !p.poller.is_open()) else {
        return Ok(());
    };
    let open = || ps.iter().try_for_each(|(p, _)| p.poller.open());
    match node.memory {
        None if p.poller.is_epoll() => open(),
        None => threads::on_own_thread(open),
        memory => run_on_node::on_node(Some(cpu), memory, open),
    }
}

/// Ends all Ps that are leaving. Called while there is no run: then no M holds a P, so none has to be waited for.
pub(crate) fn end_all_leaving(sched: &Sched) {
    sched.ps.iter().for_each(|p| {
        try_to_end(p);
    });
}

/// Moves the goroutines of a P that sysmon holds, or that is stopped, to the node queue, and its timers to `heir`.
pub(super) fn hand_over(sched: &Sched, p: &P, heir: &P) {
    let mut gs = GList::new();
    take_queue(p, &mut gs);
    sched.publish(p);
    sched.live_node(p.node_idx).queue.push_all(gs);
    let [begun, ended] = &sched.timer_moves;
    begun.fetch_add(1, Ordering::SeqCst);
    heir.timers.adopt(p.timers.take_all());
    ended.fetch_add(1, Ordering::SeqCst);
}

/// The P in use that is nearest to `p`.
fn heir_of<'a>(sched: &'a Sched, p: &P) -> &'a P {
    let near = p.levels.all().iter().flat_map(|l| l.victims.iter());
    near.map(|&i| &sched.ps[i])
        .chain(&sched.ps)
        .find(|p| p.status.is_in_use())
        .expect("at least one P is in use")
}

/// Moves goroutines out of the queues of nodes that have no P in use: a pusher from outside may
/// have read an old `n_live`.
pub(crate) fn rescue_queues(sched: &Sched) {
    for (i, node) in sched.nodes.iter().enumerate() {
        if node.queue.len() == 0 || node.n_live.load(Ordering::Relaxed) != 0 {
            continue;
        }
        let to = sched.live_node(i);
        to.queue.push_all(node.queue.pop_batch(1, usize::MAX));
        wake::wake_in(sched, to, None);
    }
}

fn too_many(n: usize, max: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "set_processors({n}): this runtime was built for at most {max}; \
             Builder::max_processors raises that"
        ),
    )
}
