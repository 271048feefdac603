//! Faults that are drawn from the seed: when they come, whom they meet, and how long they last.

use super::dice::Dice;
use super::faults::{DiskEvent, Fault, KINDS, Kind, Trouble};
use super::incidents::Incident;
use super::network::{Action, Event, Network};

/// The least time that a fault lasts.
const LEAST_NS: u64 = 1_000_000;

/// The time of a fault that does not come.
const NEVER: u64 = u64::MAX;

impl Network {
    /// The time of the next fault; `None` if none is drawn.
    pub fn next_fault_ns(&mut self, dice: &dyn Dice) -> Option<u64> {
        if dice.is_search() {
            return None;
        }
        for at in 0..KINDS.len() {
            let every_ns = self.faults.every_ns[at];
            if every_ns > 0 && self.faults.next_ns[at].is_none() {
                let next_ns = dice.after(gap_ns(dice, every_ns));
                let is_late = next_ns > dice.began_ns().saturating_add(self.faults.until_ns);
                self.faults.next_ns[at] = Some(if is_late { NEVER } else { next_ns });
            }
        }
        let next_ns = self.faults.next_ns.iter().copied().flatten().min();
        next_ns.filter(|&ns| ns != NEVER)
    }

    /// Lets the faults happen that are due by now.
    pub(super) fn run_faults(&mut self, dice: &dyn Dice) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, kind) in KINDS.into_iter().enumerate() {
            if self.faults.next_ns[at].is_none_or(|next_ns| next_ns > dice.now_ns()) {
                continue;
            }
            self.faults.next_ns[at] = None;
            // A shortened run leaves out what need not happen.
            if dice.below(2) == 1 {
                actions.extend(self.begin_fault(dice, kind));
            }
        }
        actions
    }

    fn begin_fault(&mut self, dice: &dyn Dice, kind: Kind) -> Option<Action> {
        match kind {
            Kind::Partition | Kind::OneWay => {
                let (from, to) = self.draw_two(dice)?;
                let is_both = kind == Kind::Partition;
                self.set_fault(from, to, is_both, true);
                self.note_partition(dice, (from, to), is_both, true);
                self.plan_probes(dice, |a, b| (a, b) == (from, to) || (b, a) == (from, to));
                self.end_later(dice, Fault::Cut { from, to, is_both });
                None
            }
            Kind::Resets => {
                let (a, b) = self.draw_two(dice)?;
                self.note(dice, Incident::Reset { a, b });
                self.reset_between(a, b);
                None
            }
            Kind::Crash => {
                let host = self.draw_one(dice)?;
                let life = self.life_of(host) + 1;
                self.end_later(dice, Fault::Down { host, life });
                Some(Action::Crash(host))
            }
            Kind::Pause => {
                let host = self.draw_one(dice)?;
                self.end_later(dice, Fault::Paused { host });
                Some(Action::Pause(host))
            }
            Kind::Disk(trouble) => {
                let host = self.draw_disk(dice)?;
                self.note_disk(dice, host, trouble, true);
                self.end_later(dice, Fault::Disk { host, trouble });
                Some(Action::Disk(host, DiskEvent::Begins(trouble)))
            }
        }
    }

    fn end_later(&mut self, dice: &dyn Dice, fault: Fault) {
        let at_most_ns = self.faults.at_most_ns.max(LEAST_NS);
        let lasts_ns = dice.between(LEAST_NS, at_most_ns);
        self.plan(dice.after(lasts_ns), Event::End(fault));
    }

    pub(super) fn end_fault(&mut self, dice: &dyn Dice, fault: Fault) -> Option<Action> {
        match fault {
            Fault::Cut { from, to, is_both } => {
                self.set_fault(from, to, is_both, false);
                self.note_partition(dice, (from, to), is_both, false);
                None
            }
            // The program may have done it meanwhile.
            Fault::Down { host, life } => {
                let is_same = self.life_of(host) == life && !self.is_up(host);
                is_same.then_some(Action::Restart(host))
            }
            Fault::Paused { host } => self.is_paused(host).then_some(Action::Resume(host)),
            Fault::Disk { host, trouble } => {
                self.note_disk(dice, host, trouble, false);
                Some(Action::Disk(host, DiskEvent::Ends(trouble)))
            }
        }
    }

    fn set_fault(&mut self, from: u32, to: u32, is_both: bool, begins: bool) {
        self.links.set_fault(from, to, begins);
        if is_both {
            self.links.set_fault(to, from, begins);
        }
    }

    /// Two different hosts.
    fn draw_two(&self, dice: &dyn Dice) -> Option<(u32, u32)> {
        let n = self.hosts.len() as u32;
        if n < 2 {
            return None;
        }
        let a = dice.below(n);
        let b = dice.below(n - 1);
        Some((a, if b < a { b } else { b + 1 }))
    }

    /// A host that runs, but not the one of the main goroutine.
    fn draw_one(&self, dice: &dyn Dice) -> Option<u32> {
        let runs = |&host: &u32| self.is_up(host) && !self.is_paused(host);
        let all: Vec<u32> = (1..self.hosts.len() as u32).filter(runs).collect();
        match all.len() {
            0 => None,
            n => Some(all[dice.below(n as u32) as usize]),
        }
    }

    /// The host whose disk has a fault: not that of the main goroutine, unless it is the only one.
    fn draw_disk(&self, dice: &dyn Dice) -> Option<u32> {
        match self.hosts.len() {
            1 => Some(0),
            _ => self.draw_one(dice),
        }
    }

    fn note_disk(&mut self, dice: &dyn Dice, host: u32, trouble: Trouble, begins: bool) {
        self.note(
            dice,
            Incident::DiskTrouble {
                host,
                trouble,
                begins,
            },
        );
    }
}

/// The time until a fault may come. Each comes with a chance of a half, so they come twice as often
/// as they happen. The plainest run waits longest.
fn gap_ns(dice: &dyn Dice, every_ns: u64) -> u64 {
    every_ns
        .saturating_sub(dice.between(0, every_ns - 1))
        .max(1)
}
