//! The machine as the kernel shows it below `/sys/devices/system`.
//!
//! Completes what hwloc leaves out (nodes without memory, free memory, distances), stands in where
//! hwloc fails, and checks it in the tests. Every file may be missing: containers hide some, and so
//! do kernels without NUMA. All paths are below a root, so that a test can bring its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use crate::{
    Error, Source,
    cpulist::parse_cpu_list,
    devices,
    facts::{Facts, GroupFacts, NodeFacts, PuFacts},
    files::{caches, meminfo_bytes, numbered_entries, read_list, read_text},
    kinds,
};

/// Reads a whole machine.
pub(crate) fn read(root: &Path) -> Result<Facts, Error> {
    let cpu_dir = root.join("sys/devices/system/cpu");
    let online = online_cpus(&cpu_dir).map_err(|source| Error::Io {
        path: cpu_dir.join("online"),
        source,
    })?;
    let is_online: BTreeSet<usize> = online.iter().copied().collect();
    let pus = online
        .iter()
        .map(|&cpu| pu_facts(&cpu_dir, cpu, &is_online))
        .collect();
    let source = if root == Path::new("/") {
        Source::ThisMachine
    } else {
        Source::Recorded
    };
    let mut facts = Facts {
        source,
        pus,
        offline_cpus: Vec::new(),
        isolated_cpus: Vec::new(),
        limits: None,
        nodes: Vec::new(),
        distances: None,
        devices: Vec::new(),
    };
    complete(root, &mut facts);
    Ok(facts)
}

/// Adds what only sysfs knows: every node with its memory, which CPUs are where, the distances, the
/// offline and the isolated CPUs, how fast a kind of core is, and the devices.
pub(crate) fn complete(root: &Path, facts: &mut Facts) {
    let online: BTreeSet<usize> = facts.pus.iter().map(|pu| pu.cpu).collect();
    let cpu_dir = root.join("sys/devices/system/cpu");
    let present = read_list(&cpu_dir.join("present")).unwrap_or_default();
    facts.offline_cpus = present
        .into_iter()
        .filter(|cpu| !online.contains(cpu))
        .collect();
    facts.isolated_cpus = read_list(&cpu_dir.join("isolated")).unwrap_or_default();
    let cpus: Vec<usize> = facts.pus.iter().map(|pu| pu.cpu).collect();
    if let Some(speeds) = kinds::read(root, &cpus) {
        for pu in &mut facts.pus {
            pu.performance = speeds[&pu.cpu];
        }
    }
    facts.devices = devices::read(root);
    let mut models = models(root);
    for pu in &mut facts.pus {
        let dir = cpu_dir.join(format!("cpu{}/cache", pu.cpu));
        let caches = caches(&dir, pu.cpu, Some(&online));
        let size = |is_instruction| caches.get(&(1, is_instruction))?.size_bytes;
        pu.l1d_bytes = size(false).or(pu.l1d_bytes);
        pu.l1i_bytes = size(true);
        pu.model = models.remove(&pu.cpu);
    }

    let node_dir = root.join("sys/devices/system/node");
    let ids = node_ids(&node_dir);
    if ids.is_empty() {
        if facts.nodes.is_empty() {
            facts.nodes.push(whole_machine(root)); // a kernel without NUMA
        }
        return;
    }
    facts.distances = distances(&node_dir, &ids);
    facts.nodes = ids.iter().map(|&id| node_facts(&node_dir, id)).collect();
    let mut nodes_of_cpu: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for &id in &ids {
        let cpus = read_list(&node_dir.join(format!("node{id}/cpulist"))).unwrap_or_default();
        cpus.into_iter()
            .for_each(|cpu| nodes_of_cpu.entry(cpu).or_default().push(id));
    }
    for pu in &mut facts.pus {
        if let Some(nodes) = nodes_of_cpu.remove(&pu.cpu) {
            pu.nodes = nodes;
        }
    }
}

/// The maker's name of each CPU, by `/proc/cpuinfo`; Arm's kernels do not say.
fn models(root: &Path) -> BTreeMap<usize, String> {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let mut models = BTreeMap::new();
    let mut cpu = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let words: Vec<&str> = value.split_whitespace().collect();
        match name.trim() {
            "processor" => cpu = value.trim().parse::<usize>().ok(),
            // The second is POWER's.
            "model name" | "cpu" if !words.is_empty() => {
                models.extend(cpu.map(|cpu| (cpu, words.join(" "))));
            }
            _ => {}
        }
    }
    models
}

fn pu_facts(cpu_dir: &Path, cpu: usize, online: &BTreeSet<usize>) -> PuFacts {
    let dir = cpu_dir.join(format!("cpu{cpu}"));
    let topology = dir.join("topology");
    let number = |name: &str| read_text(&topology.join(name))?.parse::<u32>().ok();
    // A group is known by its lowest online CPU; older kernels have the second name only.
    let lowest = |names: [&str; 2]| {
        let lists = names
            .iter()
            .filter_map(|name| read_list(&topology.join(name)));
        let lists = lists.filter(|list| list.contains(&cpu));
        lists
            .flat_map(|list| list.into_iter().find(|cpu| online.contains(cpu)))
            .next()
    };
    let core = lowest(["core_cpus_list", "thread_siblings_list"]).unwrap_or(cpu);
    let package_id = number("physical_package_id");
    // The id where there are no lists: above any CPU's key. Neither: the whole machine.
    let package = lowest(["package_cpus_list", "core_siblings_list"]).map_or_else(
        || (1 << 32) + package_id.map_or(0, |id| 1 + u64::from(id)),
        |lowest| lowest as u64,
    );
    let caches = caches(&dir.join("cache"), cpu, Some(online));
    PuFacts {
        cpu,
        core: GroupFacts {
            key: core as u64,
            os_id: number("core_id"),
            size_bytes: None,
        },
        package: GroupFacts {
            key: package,
            os_id: package_id,
            size_bytes: None,
        },
        l2: caches.get(&(2, false)).copied(),
        l3: caches.get(&(3, false)).copied(),
        nodes: Vec::new(),
        allowed: true,
        performance: 0,
        l1d_bytes: None,
        l1i_bytes: None,
        model: None,
    }
}

fn node_facts(node_dir: &Path, os_id: u32) -> NodeFacts {
    let meminfo = read_text(&node_dir.join(format!("node{os_id}/meminfo")));
    let value = |key| meminfo.as_deref().and_then(|text| meminfo_bytes(text, key));
    let total = value("MemTotal:");
    NodeFacts {
        os_id,
        memory_bytes: total.unwrap_or(0),
        free_bytes: value("MemFree:"),
        has_memory: total != Some(0),
    }
}

/// The only node of a kernel without NUMA.
fn whole_machine(root: &Path) -> NodeFacts {
    let meminfo = read_text(&root.join("proc/meminfo")).unwrap_or_default();
    NodeFacts {
        os_id: 0,
        memory_bytes: meminfo_bytes(&meminfo, "MemTotal:").unwrap_or(0),
        free_bytes: meminfo_bytes(&meminfo, "MemFree:"),
        has_memory: true,
    }
}

/// One row per node, in the order of `ids`; the kernel lists the online nodes in that order too.
/// 0 for a value that is no number, an empty row for a file that is missing; `None` where all are.
fn distances(node_dir: &Path, ids: &[u32]) -> Option<Vec<Vec<u32>>> {
    let row = |id: &u32| {
        let text = read_text(&node_dir.join(format!("node{id}/distance"))).unwrap_or_default();
        let values = text.split_whitespace();
        values.map(|value| value.parse().unwrap_or(0)).collect()
    };
    let rows: Vec<Vec<u32>> = ids.iter().map(row).collect();
    rows.iter().any(|row| !row.is_empty()).then_some(rows)
}

fn online_cpus(cpu_dir: &Path) -> io::Result<Vec<usize>> {
    let cpus = match fs::read_to_string(cpu_dir.join("online")) {
        Ok(text) => parse_cpu_list(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a list of CPUs"))?,
        // Without the list, a CPU is online unless its own file says no.
        Err(_) => numbered_entries(cpu_dir, "cpu")
            .filter(|cpu| {
                let switch = read_text(&cpu_dir.join(format!("cpu{cpu}/online")));
                switch.as_deref() != Some("0")
            })
            .map(|cpu| cpu as usize)
            .collect(),
    };
    if cpus.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no online CPUs"));
    }
    Ok(cpus)
}

fn node_ids(node_dir: &Path) -> Vec<u32> {
    let online = read_list(&node_dir.join("online")).unwrap_or_default();
    let ids = online.into_iter().filter_map(|id| u32::try_from(id).ok());
    let ids: Vec<u32> = ids
        .filter(|id| node_dir.join(format!("node{id}")).is_dir())
        .collect();
    if ids.is_empty() {
        numbered_entries(node_dir, "node").collect()
    } else {
        ids
    }
}
