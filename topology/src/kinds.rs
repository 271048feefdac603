//! Which kinds of cores a machine has, by the kernel's files, and which of them are faster.
//!
//! A kind is a design of core, not a clock rate: cores of one design differ by a few per cent on
//! many machines (favoured cores, sockets of two batches), and Ps should not crowd on some of them
//! for that. So the sources are asked in this order, and the first that answers decides:
//!
//! 1. Intel's hybrid processors have one unit of performance counters for each design.
//! 2. Arm's register MIDR names the design; the capacity or the clock rate says which is faster.
//! 3. `cpu_capacity` says how much work a CPU does, 1024 for the fastest. Values within 5 % of one
//!    another are one kind.
//! 4. Cores whose first and second level caches differ in size are of different designs: Intel's
//!    hybrids in containers and in recordings, where the units of the first source are missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::files::{caches, read_list, read_text};

/// Capacities that differ by less than this are those of one kind.
const SAME_KIND_PERCENT: u32 = 5;

/// For each of these CPUs how fast its kind of core is: any scale, higher is faster, equal for CPUs
/// of one kind. `None` where no source answers.
pub(crate) fn read(root: &Path, cpus: &[usize]) -> Option<BTreeMap<usize, u32>> {
    let dir = root.join("sys/devices/system/cpu");
    by_counters(root, cpus)
        .or_else(|| by_part(&dir, cpus))
        .or_else(|| by_capacity(&dir, cpus))
        .or_else(|| by_caches(&dir, cpus))
}

/// Ranks values that say how fast something is: 0 for the slowest. Values that are up to 5 % below
/// the highest of a rank have that rank.
pub(crate) fn ranks(values: impl IntoIterator<Item = u32>) -> BTreeMap<u32, u32> {
    let values: BTreeSet<u32> = values.into_iter().collect();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for &value in values.iter().rev() {
        let is_near = |group: &&mut Vec<u32>| {
            let least = u64::from(group[0]) * u64::from(100 - SAME_KIND_PERCENT);
            u64::from(value) * 100 >= least
        };
        match groups.last_mut().filter(is_near) {
            Some(group) => group.push(value),
            None => groups.push(vec![value]),
        }
    }
    let ranked = groups.into_iter().rev().zip(0..);
    ranked
        .flat_map(|(group, rank)| group.into_iter().map(move |value| (value, rank)))
        .collect()
}

fn by_counters(root: &Path, cpus: &[usize]) -> Option<BTreeMap<usize, u32>> {
    let units = ["cpu_lowpower", "cpu_atom", "cpu_core"];
    let mut kinds = BTreeMap::new();
    for (unit, rank) in units.into_iter().zip(1..) {
        let members = read_list(&root.join("sys/devices").join(unit).join("cpus"));
        kinds.extend(members.into_iter().flatten().map(|cpu| (cpu, rank)));
    }
    let rank = |&cpu: &usize| (cpu, kinds.get(&cpu).copied().unwrap_or(0));
    (!kinds.is_empty()).then(|| cpus.iter().map(rank).collect())
}

fn by_part(dir: &Path, cpus: &[usize]) -> Option<BTreeMap<usize, u32>> {
    let part = |&cpu: &usize| {
        let path = dir.join(format!("cpu{cpu}/regs/identification/midr_el1"));
        let text = read_text(&path)?;
        let midr = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
        // Implementer and part number, without variant, architecture and revision.
        Some((midr >> 24 & 0xff, midr >> 4 & 0xfff))
    };
    let parts: Vec<_> = cpus.iter().map(part).collect::<Option<_>>()?;
    let speed = |cpu| capacity(dir, cpu).or_else(|| clock(dir, cpu)).unwrap_or(0);
    Some(fastest_of_each(cpus, &parts, speed))
}

fn by_capacity(dir: &Path, cpus: &[usize]) -> Option<BTreeMap<usize, u32>> {
    let capacity = |&cpu: &usize| Some((cpu, capacity(dir, cpu)?));
    let capacities: BTreeMap<usize, u32> = cpus.iter().map(capacity).collect::<Option<_>>()?;
    let ranks = ranks(capacities.values().copied());
    let ranked = capacities.into_iter();
    Some(ranked.map(|(cpu, value)| (cpu, ranks[&value])).collect())
}

fn by_caches(dir: &Path, cpus: &[usize]) -> Option<BTreeMap<usize, u32>> {
    let shape = |&cpu: &usize| {
        let cpu_dir = dir.join(format!("cpu{cpu}"));
        let [data, instructions, l2] = core_cache_sizes(&cpu_dir, cpu);
        Some((data?, instructions, l2?))
    };
    let shapes: Vec<_> = cpus.iter().map(shape).collect::<Option<_>>()?;
    if shapes.iter().all(|shape| *shape == shapes[0]) {
        return None;
    }
    let clocks: Option<Vec<u32>> = cpus.iter().map(|&cpu| clock(dir, cpu)).collect();
    Some(match clocks {
        Some(_) => fastest_of_each(cpus, &shapes, |cpu| clock(dir, cpu).unwrap_or(0)),
        // Without clock rates: the larger data cache belongs to the faster design.
        None => {
            let kib = |(data, ..): &(u64, Option<u64>, u64)| (data >> 10) as u32;
            cpus.iter().copied().zip(shapes.iter().map(kib)).collect()
        }
    })
}

/// Sizes of the first level's caches for data and for instructions, and of the second level's.
fn core_cache_sizes(cpu_dir: &Path, cpu: usize) -> [Option<u64>; 3] {
    let caches = caches(&cpu_dir.join("cache"), cpu, None);
    let size = |level, is_instruction| {
        let cache = caches.get(&(level, is_instruction))?;
        cache.size_bytes
    };
    [size(1, false), size(1, true), size(2, false)]
}

/// Each CPU's speed is that of the fastest CPU of its kind.
fn fastest_of_each<K: Ord>(
    cpus: &[usize],
    kinds: &[K],
    speed: impl Fn(usize) -> u32,
) -> BTreeMap<usize, u32> {
    let mut fastest: BTreeMap<&K, u32> = BTreeMap::new();
    for (&cpu, kind) in cpus.iter().zip(kinds) {
        let best = fastest.entry(kind).or_default();
        *best = (*best).max(speed(cpu));
    }
    let pairs = cpus.iter().zip(kinds);
    pairs.map(|(&cpu, kind)| (cpu, fastest[kind])).collect()
}

/// How much work a CPU does, 1024 for the fastest of the machine.
fn capacity(dir: &Path, cpu: usize) -> Option<u32> {
    let text = read_text(&dir.join(format!("cpu{cpu}/cpu_capacity")))?;
    text.parse().ok()
}

/// The highest clock rate of a CPU in kHz.
fn clock(dir: &Path, cpu: usize) -> Option<u32> {
    let text = read_text(&dir.join(format!("cpu{cpu}/cpufreq/cpuinfo_max_freq")))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_five_per_cent_have_one_rank() {
        let ranked = |values: &[u32]| {
            let ranks = ranks(values.iter().copied());
            values.iter().map(|value| ranks[value]).collect::<Vec<_>>()
        };
        assert_eq!(ranked(&[1024, 1017]), [0, 0]);
        assert_eq!(ranked(&[718, 731, 997, 1017, 1024]), [0, 0, 1, 1, 1]);
        assert_eq!(ranked(&[1024, 446, 750]), [2, 0, 1]);
        // A ladder of small steps is cut: nothing is more than 5 % below the top of its rank.
        assert_eq!(ranked(&[1000, 960, 940, 900]), [1, 1, 0, 0]);
        assert_eq!(ranked(&[0, 0]), [0, 0]);
        assert!(ranks([]).is_empty());
    }
}
