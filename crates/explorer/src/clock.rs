//! The clocks of the twin's threads, and the CPUs on which they run.
//!
//! A discrete-event simulation. Each thread has a clock of its own, and the one furthest behind
//! runs next, up to the next point at which another is behind it. So accesses to memory happen
//! in the order of time. A thread needs a CPU: its own if it is pinned, else an idle one. Those
//! that find theirs taken queue for it, and take turns by slices; an idle CPU takes a thread
//! that is not pinned from another's queue.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::machine::Machine;

/// A thread's.
#[derive(Debug, Default)]
struct Timeline {
    now_ps: u64,
    /// The CPU on which it runs, or for which it queues, or on which it ran last.
    cpu: usize,
    is_pinned: bool,
    /// When its stores are done.
    drained_ps: u64,
    /// For how long it has had a CPU, up to when it left it last.
    ran_ps: u64,
    /// The number of its valid event: earlier ones count no more.
    epoch: u64,
}

/// A CPU.
#[derive(Debug, Default)]
struct Cpu {
    running: Option<usize>,
    since_ps: u64,
    /// When the last one left it.
    free_ps: u64,
    queue: VecDeque<usize>,
}

/// Clocks and CPUs.
#[derive(Debug)]
pub(super) struct Clocks {
    pub(super) machine: Machine,
    threads: Vec<Timeline>,
    cpus: Vec<Cpu>,
    idle: BTreeSet<usize>,
    /// Time, thread and epoch of what comes: a thread goes on, or its deadline comes.
    events: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Threads that queue for a CPU without being pinned to it.
    n_movable: usize,
}

impl Clocks {
    pub(super) fn new(machine: Machine) -> Clocks {
        let n = machine.cpus.len();
        Clocks {
            cpus: (0..n).map(|_| Cpu::default()).collect(),
            idle: (0..n).collect(),
            machine,
            threads: Vec::new(),
            events: BinaryHeap::new(),
            n_movable: 0,
        }
    }

    /// A thread that does not run as yet.
    pub(super) fn add(&mut self, now_ps: u64) {
        self.threads.push(Timeline {
            now_ps,
            ..Timeline::default()
        });
    }

    pub(super) fn now_ps(&self, thread: usize) -> u64 {
        self.threads[thread].now_ps
    }

    pub(super) fn cpu(&self, thread: usize) -> usize {
        self.threads[thread].cpu
    }

    /// For how long the thread has had a CPU.
    pub(super) fn ran_ps(&self, thread: usize) -> u64 {
        let Timeline {
            cpu,
            now_ps,
            ran_ps,
            ..
        } = self.threads[thread];
        match self.cpus[cpu].running == Some(thread) {
            true => ran_ps + now_ps - self.cpus[cpu].since_ps,
            false => ran_ps,
        }
    }

    /// The thread computes, or waits for memory.
    pub(super) fn charge(&mut self, thread: usize, ps: u64) {
        self.threads[thread].now_ps += ps;
    }

    pub(super) fn goes_on_at(&mut self, thread: usize, ps: u64) {
        let now_ps = &mut self.threads[thread].now_ps;
        *now_ps = ps.max(*now_ps);
    }

    pub(super) fn stores_until(&mut self, thread: usize, ps: u64) {
        let drained_ps = &mut self.threads[thread].drained_ps;
        *drained_ps = ps.max(*drained_ps);
    }

    /// The thread waits until its stores are done.
    pub(super) fn drain(&mut self, thread: usize) {
        self.goes_on_at(thread, self.threads[thread].drained_ps);
    }

    fn push(&mut self, thread: usize, at_ps: u64) {
        let epoch = &mut self.threads[thread].epoch;
        *epoch += 1;
        self.events.push(Reverse((at_ps, thread, *epoch)));
    }

    /// The thread waits, at most until then.
    pub(super) fn sleep(&mut self, thread: usize, until_ps: u64) {
        self.threads[thread].epoch += 1;
        if until_ps != u64::MAX {
            self.push(thread, until_ps);
        }
        self.leave_cpu(thread);
    }

    /// The thread has ended.
    pub(super) fn end(&mut self, thread: usize) {
        self.sleep(thread, u64::MAX);
    }

    /// The thread can run from then on, and needs a CPU.
    pub(super) fn ready(&mut self, thread: usize, at_ps: u64) {
        self.threads[thread].epoch += 1;
        self.goes_on_at(thread, at_ps);
        let timeline = &self.threads[thread];
        let last = timeline.cpu;
        let cpu = match timeline.is_pinned || self.idle.contains(&last) {
            true => last,
            false => self
                .idle
                .first()
                .copied()
                .unwrap_or_else(|| self.shortest()),
        };
        self.threads[thread].cpu = cpu;
        match self.cpus[cpu].running {
            None => self.enter_cpu(thread, cpu, 0),
            Some(_) => {
                self.n_movable += usize::from(!self.threads[thread].is_pinned);
                self.cpus[cpu].queue.push_back(thread);
            }
        }
    }

    fn shortest(&self) -> usize {
        let cpus = 0..self.cpus.len();
        cpus.min_by_key(|&cpu| self.cpus[cpu].queue.len())
            .unwrap_or(0)
    }

    fn enter_cpu(&mut self, thread: usize, cpu: usize, switch_ps: u64) {
        self.idle.remove(&cpu);
        let free_ps = self.cpus[cpu].free_ps + switch_ps;
        self.goes_on_at(thread, free_ps);
        let now_ps = self.threads[thread].now_ps;
        self.threads[thread].cpu = cpu;
        self.cpus[cpu].running = Some(thread);
        self.cpus[cpu].since_ps = now_ps;
        self.push(thread, now_ps);
    }

    fn leave_cpu(&mut self, thread: usize) {
        let ran_ps = self.ran_ps(thread);
        let Timeline { cpu, now_ps, .. } = self.threads[thread];
        self.threads[thread].ran_ps = ran_ps;
        self.cpus[cpu].running = None;
        self.cpus[cpu].free_ps = now_ps;
        let next = self.cpus[cpu]
            .queue
            .pop_front()
            .or_else(|| self.take_movable());
        match next {
            Some(next) => {
                self.n_movable -= usize::from(!self.threads[next].is_pinned);
                self.enter_cpu(next, cpu, self.machine.prices.thread_switch);
            }
            None => {
                self.idle.insert(cpu);
            }
        }
    }

    /// A thread that queues elsewhere.
    fn take_movable(&mut self) -> Option<usize> {
        if self.n_movable == 0 {
            return None;
        }
        let threads = &self.threads;
        self.cpus.iter_mut().find_map(|cpu| {
            let at = cpu.queue.iter().position(|&t| !threads[t].is_pinned)?;
            cpu.queue.remove(at)
        })
    }

    /// The running thread is pinned to a CPU. `true` if it is not the one on which it runs: it
    /// has left that, and has to wait for its turn.
    pub(super) fn pin(&mut self, thread: usize, cpu: usize) -> bool {
        self.threads[thread].is_pinned = true;
        if self.threads[thread].cpu == cpu {
            return false;
        }
        self.charge(thread, self.machine.prices.thread_switch);
        self.leave_cpu(thread);
        self.threads[thread].cpu = cpu;
        self.ready(thread, 0);
        true
    }

    /// Whether another thread is to run before `thread`, which runs: then it has its event.
    pub(super) fn gives_way(&mut self, thread: usize) -> bool {
        let Timeline { cpu, now_ps, .. } = self.threads[thread];
        let on = &self.cpus[cpu];
        if !on.queue.is_empty() && now_ps - on.since_ps >= self.machine.prices.slice {
            self.leave_cpu(thread);
            self.ready(thread, 0);
            return true;
        }
        let is_behind = self.first().is_some_and(|(at_ps, _)| at_ps < now_ps);
        if is_behind {
            self.push(thread, now_ps);
        }
        is_behind
    }

    fn first(&mut self) -> Option<(u64, usize)> {
        while let Some(&Reverse((at_ps, thread, epoch))) = self.events.peek() {
            if self.threads[thread].epoch == epoch {
                return Some((at_ps, thread));
            }
            self.events.pop();
        }
        None
    }

    /// What comes next: the time, and the thread that goes on or whose deadline it is.
    pub(super) fn next(&mut self) -> Option<(u64, usize)> {
        let first = self.first();
        self.events.pop();
        first
    }
}
