//! Cache lines: who has each, what an access to it costs, and what it has cost so far.
//!
//! The protocol is MESI's, seen from outside. A line has an owner, which wrote it last, or sharers. A
//! read by a CPU that has no copy brings one from the owner, else from the nearest sharer. A write
//! takes the line from all who have it, and costs what the farthest of them costs. While a line
//! is on its way to a writer, or from an owner to a reader, others wait for it; copies of a line
//! that nobody owns are handed out side by side.
//!
//! A plain store does not wait for its line: the CPU goes on, and the next read-modify-write or
//! fence of the same CPU waits until the store is done. So does everybody who wants the line.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

use super::machine::{LEVELS, Level, Machine};

/// How an operation uses a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    /// A store that need not be seen at once.
    Store,
    /// A read-modify-write, also one that fails, or a sequentially consistent store.
    Rmw,
}

/// An access: its CPU, the line, and the time at which it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) cpu: usize,
    pub(super) address: usize,
    pub(super) how: Use,
    pub(super) at_ps: u64,
    pub(super) place: &'static Location<'static>,
}

/// A place in the source: file, line and column.
pub type At = (&'static str, u32, u32);

/// Attempts to bring work from another node: the lines that came from other nodes meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thefts {
    /// Of those that brought some, by the place of the access.
    pub lines: BTreeMap<At, u64>,
    /// Of those in vain.
    pub n_lines_in_vain: u64,
}

/// The time when the thread can go on, and the time when the line has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) thread_ps: u64,
    pub(super) line_ps: u64,
}

/// What a line, or a place in the source, has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often the line came from another CPU.
    pub transfers: u64,
    /// The time it took to come, in picoseconds.
    pub moved_ps: u64,
    /// The time for which CPUs waited because it was on its way to another.
    pub waited_ps: u64,
}

impl Cost {
    fn add(&mut self, moved_ps: u64, waited_ps: u64) {
        self.transfers += 1;
        self.moved_ps += moved_ps;
        self.waited_ps += waited_ps;
    }

    /// All the time that it has cost.
    pub fn total_ps(&self) -> u64 {
        self.moved_ps + self.waited_ps
    }
}

/// Bytes of a line.
const LINE_BYTES: usize = 64;

const WORDS: usize = 8;
/// The most CPUs of a machine.
pub(super) const MOST_CPUS: usize = WORDS * 64;

/// A set of CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Cpus([u64; WORDS]);

impl Cpus {
    fn only(cpu: usize) -> Cpus {
        let mut set = Cpus::default();
        set.add(cpu);
        set
    }

    fn add(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    fn has(&self, cpu: usize) -> bool {
        self.0[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        (0..WORDS).flat_map(|word| {
            let mut bits = self.0[word];
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

#[derive(Debug, Default)]
struct Line {
    /// Those who have a copy.
    holders: Cpus,
    /// The one holder may write.
    is_owned: bool,
    busy_until_ps: u64,
    cost: Cost,
    places: BTreeMap<At, Cost>,
}

/// A multiplication: the keys are addresses, and nobody chooses them to collide.
#[derive(Debug, Default)]
struct ByAddress(u64);

impl Hasher for ByAddress {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are words");
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = (n as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(20);
    }
}

/// All lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    all: HashMap<usize, Line, BuildHasherDefault<ByAddress>>,
    /// Transfers by level.
    pub(super) by_level: [u64; LEVELS.len()],
    /// The places of transfers from other nodes, of the CPUs for which somebody asks.
    from_nodes: BTreeMap<usize, Vec<At>>,
}

impl Lines {
    /// Does an access, and says when it is done.
    pub(super) fn access(&mut self, machine: &Machine, access: &Access) -> Done {
        let line = self.all.entry(access.address / LINE_BYTES).or_default();
        let prices = &machine.prices;
        let own_ps = match access.how {
            Use::Rmw => prices.rmw,
            Use::Read | Use::Store => 0,
        };
        let Some((level, moved_ps)) = line.way(machine, access) else {
            let end = access.at_ps + own_ps;
            return Done {
                thread_ps: end,
                line_ps: end,
            };
        };
        let begin_ps = access.at_ps.max(line.busy_until_ps);
        let end_ps = begin_ps + moved_ps + own_ps;
        if access.how != Use::Read || line.is_owned {
            line.busy_until_ps = end_ps;
        }
        line.moves_to(access);
        if let Some(level) = level {
            self.by_level[level] += 1;
            if level == Level::Remote as usize {
                let at = access.place;
                if let Some(asked) = self.from_nodes.get_mut(&access.cpu) {
                    asked.push((at.file(), at.line(), at.column()));
                }
            }
            let waited_ps = begin_ps - access.at_ps;
            line.cost.add(moved_ps, waited_ps);
            let at = access.place;
            let place = (at.file(), at.line(), at.column());
            line.places
                .entry(place)
                .or_default()
                .add(moved_ps, waited_ps);
        }
        Done {
            thread_ps: match access.how {
                Use::Store => access.at_ps,
                Use::Read | Use::Rmw => end_ps,
            },
            line_ps: end_ps,
        }
    }

    /// From now on transfers from other nodes to this CPU are recorded.
    pub(super) fn begin_record(&mut self, cpu: usize) {
        self.from_nodes.insert(cpu, Vec::new());
    }

    /// The places of those since.
    pub(super) fn end_record(&mut self, cpu: usize) -> Vec<At> {
        self.from_nodes.remove(&cpu).unwrap_or_default()
    }

    /// Forgets the costs, and keeps who has which line.
    pub(super) fn forget_costs(&mut self) {
        self.by_level = [0; LEVELS.len()];
        for line in self.all.values_mut() {
            line.cost = Cost::default();
            line.places.clear();
        }
    }

    /// The costs of each line: of itself, and by place. The dearest first.
    pub(super) fn costs(&self) -> Vec<LineCost> {
        let with_cost = self.all.iter().filter(|(_, line)| line.cost.transfers > 0);
        let mut costs: Vec<_> = with_cost
            .map(|(number, line)| LineCost {
                address: number * LINE_BYTES,
                cost: line.cost,
                places: line.places.iter().map(|(at, cost)| (*at, *cost)).collect(),
            })
            .collect();
        costs.sort_by_key(|line| (std::cmp::Reverse(line.cost.total_ps()), line.address));
        costs
    }
}

/// The cost of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// Its first byte.
    pub address: usize,
    /// All of it.
    pub cost: Cost,
    /// By place of the access.
    pub places: Vec<(At, Cost)>,
}

impl Line {
    /// The level from which the line must come, if it is another CPU's, and how long that takes. `None` if the CPU
    /// has what it needs.
    fn way(&self, machine: &Machine, access: &Access) -> Option<(Option<usize>, u64)> {
        let cpu = access.cpu;
        let has = self.holders.has(cpu);
        if has && (self.is_owned || access.how == Use::Read) {
            return None;
        }
        let levels = self
            .holders
            .iter()
            .filter_map(|from| machine.level(from, cpu));
        let level = match access.how {
            Use::Read => levels.min(),
            Use::Store | Use::Rmw => levels.max(),
        };
        match level {
            Some(level) => Some((
                Some(level as usize),
                machine.prices.transfer[level as usize],
            )),
            // Nobody else has it.
            None if has => Some((None, 0)),
            None => Some((None, machine.prices.first)),
        }
    }

    fn moves_to(&mut self, access: &Access) {
        match access.how {
            Use::Read => {
                self.holders.add(access.cpu);
                self.is_owned = false;
            }
            Use::Store | Use::Rmw => {
                self.holders = Cpus::only(access.cpu);
                self.is_owned = true;
            }
        }
    }
}
