//! A machine in hwloc's formats: XML for `lstopo -i FILE`, and the synthetic description.
//!
//! Written from the plain values, not by libhwloc: its own XML has the names of the host and serial
//! numbers in it.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{Cache, Pu, Topology};

/// The machine as hwloc's XML, format 2.0.
///
/// It holds what windlass knows: packages, nodes with their memory and distances, caches, cores, CPUs,
/// and which CPUs are allowed. Kinds of cores, offline and isolated CPUs and limits have no place in it.
///
/// # Errors
///
/// If the groups of the machine are no tree, such as a cache that spans halves of two packages.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, export};
///
/// let machine = Topology::synthetic("pack:2 [numa] l3:1 core:2 pu:2")?;
/// let xml = export::xml(&machine)?;
/// assert!(xml.contains("<object type=\"L3Cache\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn xml(topology: &Topology) -> Result<String, String> {
    let mut objects = objects(topology);
    // Outer objects come before inner ones: more CPUs, then the order of hwloc's types.
    objects.sort_by_key(|object| (std::cmp::Reverse(object.cpus.len()), object.rank));
    let mut root = Tree::new(Object::new("Machine", 0, all_cpus(topology)));
    for object in objects {
        root.insert(object)?;
    }
    for (position, node) in topology.nodes().iter().enumerate() {
        root.attach(position, &node.cpus);
    }
    let mut writer = Writer {
        topology,
        out: String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n",
        ),
        next_id: 1,
    };
    writer.tree(&root, 1);
    writer.distances();
    writer.out.push_str("</topology>\n");
    Ok(writer.out)
}

/// The machine in the words that `Topology::synthetic` and `lstopo -i` read.
///
/// Every node gets the memory of the smallest one, as the description cannot tell them apart.
/// Distances, kinds of cores and what is not allowed are not part of it.
///
/// # Errors
///
/// If the machine is not regular: its groups are no tree, groups of one kind differ in size, or a node
/// has no CPUs.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, export};
///
/// let machine = Topology::synthetic("pack:2 [numa(memory=8GiB)] l3:1(size=16MiB) core:2 pu:2")?;
/// assert_eq!(
///     export::synthetic(&machine)?,
///     "pack:2 [numa(memory=8589934592)] l3:1(size=16777216) core:2 pu:2"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn synthetic(topology: &Topology) -> Result<String, String> {
    if topology.nodes().iter().any(|node| node.cpus.is_empty()) {
        return Err("a node has no CPUs".to_owned());
    }
    let mut levels: Vec<SyntheticLevel> = levels(topology);
    levels.sort_by_key(|level| (level.n_groups, level.rank));
    let mut pus: Vec<&Pu> = topology.pus().iter().collect();
    let path = |pu: &Pu| -> Vec<Option<usize>> {
        levels.iter().map(|level| (level.group_of)(pu)).collect()
    };
    pus.sort_by_key(|pu| (path(pu), pu.cpu));
    let mut words = Vec::new();
    let mut n_outer = 1;
    for (depth, level) in levels.iter().enumerate() {
        let mut sizes: BTreeMap<Vec<Option<usize>>, usize> = BTreeMap::new();
        for pu in &pus {
            *sizes.entry(path(pu)[..=depth].to_vec()).or_default() += 1;
        }
        let is_even = sizes
            .values()
            .all(|&size| size * level.n_groups == pus.len());
        if sizes.len() != level.n_groups || !is_even || !level.n_groups.is_multiple_of(n_outer) {
            return Err(format!(
                "the groups of kind {:?} are not regular",
                level.word
            ));
        }
        let arity = level.n_groups / n_outer;
        n_outer = level.n_groups;
        words.push(match (level.word, arity) {
            ("numa", 1) => format!("[numa{}]", level.attributes),
            ("numa", _) => format!("group:{arity} [numa{}]", level.attributes),
            (word, _) => format!("{word}:{arity}{}", level.attributes),
        });
    }
    let ids: Vec<usize> = pus.iter().map(|pu| pu.cpu).collect();
    let indexes = match ids.iter().copied().eq(0..ids.len()) {
        true => String::new(),
        false => {
            let ids: Vec<String> = ids.iter().map(usize::to_string).collect();
            format!("(indexes={})", ids.join(","))
        }
    };
    words.push(format!("pu:{}{indexes}", pus.len() / n_outer));
    Ok(words.join(" "))
}

/// A level of a synthetic description.
struct SyntheticLevel {
    word: &'static str,
    /// Among levels with as many groups: outer ones first.
    rank: u8,
    n_groups: usize,
    attributes: String,
    group_of: fn(&Pu) -> Option<usize>,
}

fn levels(topology: &Topology) -> Vec<SyntheticLevel> {
    let memory = topology.nodes().iter().map(|node| node.memory_bytes);
    let memory = memory.min().filter(|&bytes| bytes > 0);
    let cache_size = |caches: &[Cache]| {
        let size = caches.iter().filter_map(|cache| cache.size_bytes).min();
        size.map_or(String::new(), |bytes| format!("(size={bytes})"))
    };
    let all = [
        SyntheticLevel {
            word: "pack",
            rank: 0,
            n_groups: topology.packages().len(),
            attributes: String::new(),
            group_of: |pu| Some(pu.package),
        },
        SyntheticLevel {
            word: "numa",
            rank: 1,
            n_groups: topology.nodes().len(),
            attributes: memory.map_or(String::new(), |bytes| format!("(memory={bytes})")),
            group_of: |pu| Some(pu.node),
        },
        SyntheticLevel {
            word: "l3",
            rank: 2,
            n_groups: topology.l3s().len(),
            attributes: cache_size(topology.l3s()),
            group_of: |pu| pu.l3,
        },
        SyntheticLevel {
            word: "l2",
            rank: 3,
            n_groups: topology.l2s().len(),
            attributes: cache_size(topology.l2s()),
            group_of: |pu| pu.l2,
        },
        SyntheticLevel {
            word: "core",
            rank: 4,
            n_groups: topology.cores().len(),
            attributes: String::new(),
            group_of: |pu| Some(pu.core),
        },
    ];
    all.into_iter().filter(|level| level.n_groups > 0).collect()
}

/// An object of hwloc's tree.
struct Object {
    kind: &'static str,
    /// Among objects with the same CPUs: outer ones first.
    rank: u8,
    cpus: Vec<usize>,
    os_id: Option<usize>,
    cache: Option<(u8, u64)>,
}

impl Object {
    fn new(kind: &'static str, rank: u8, cpus: Vec<usize>) -> Self {
        Self {
            kind,
            rank,
            cpus,
            os_id: None,
            cache: None,
        }
    }
}

fn all_cpus(topology: &Topology) -> Vec<usize> {
    topology.pus().iter().map(|pu| pu.cpu).collect()
}

/// Every object but the machine and the nodes. A node gets a group of its own if no other object has
/// exactly its CPUs.
fn objects(topology: &Topology) -> Vec<Object> {
    let mut objects = Vec::new();
    for package in topology.packages() {
        objects.push(Object {
            os_id: package.os_id.map(|id| id as usize),
            ..Object::new("Package", 1, package.cpus.clone())
        });
    }
    for (kind, rank, depth, caches) in [
        ("L3Cache", 3, 3, topology.l3s()),
        ("L2Cache", 4, 2, topology.l2s()),
    ] {
        objects.extend(caches.iter().map(|cache| Object {
            os_id: cache.os_id.map(|id| id as usize),
            cache: Some((depth, cache.size_bytes.unwrap_or(0))),
            ..Object::new(kind, rank, cache.cpus.clone())
        }));
    }
    for core in topology.cores() {
        objects.push(Object {
            os_id: core.os_id.map(|id| id as usize),
            ..Object::new("Core", 6, core.cpus.clone())
        });
        if let Some(size) = core.l1d_bytes {
            objects.push(Object {
                cache: Some((1, size)),
                ..Object::new("L1Cache", 5, core.cpus.clone())
            });
        }
    }
    for pu in topology.pus() {
        objects.push(Object {
            os_id: Some(pu.cpu),
            ..Object::new("PU", 7, vec![pu.cpu])
        });
    }
    let all = all_cpus(topology);
    for node in topology.nodes() {
        let is_known = node.cpus == all || objects.iter().any(|object| object.cpus == node.cpus);
        if !node.cpus.is_empty() && !is_known {
            objects.push(Object::new("Group", 2, node.cpus.clone()));
        }
    }
    objects
}

struct Tree {
    object: Object,
    children: Vec<Tree>,
    /// Positions of the nodes that are attached here.
    nodes: Vec<usize>,
}

impl Tree {
    fn new(object: Object) -> Self {
        Self {
            object,
            children: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Puts an object below the innermost one that holds its CPUs.
    fn insert(&mut self, object: Object) -> Result<(), String> {
        let cpu = object.cpus[0];
        let holds = |child: &&mut Tree| child.object.cpus.binary_search(&cpu).is_ok();
        if let Some(child) = self.children.iter_mut().find(holds) {
            return child.insert(object);
        }
        let outer = &self.object;
        if let Some(cpu) = object.cpus.iter().find(|cpu| !outer.cpus.contains(cpu)) {
            let (kind, outer) = (object.kind, outer.kind);
            return Err(format!(
                "no tree: CPU {cpu} is in a {kind} that is only in part inside its {outer}"
            ));
        }
        self.children.push(Self::new(object));
        Ok(())
    }

    /// Attaches a node to the outermost object with exactly its CPUs; one without CPUs to the machine.
    fn attach(&mut self, position: usize, cpus: &[usize]) {
        if cpus.is_empty() || self.object.cpus == cpus {
            self.nodes.push(position);
            return;
        }
        let holds = |child: &&mut Tree| child.object.cpus.binary_search(&cpus[0]).is_ok();
        if let Some(child) = self.children.iter_mut().find(holds) {
            child.attach(position, cpus);
        }
    }
}

struct Writer<'a> {
    topology: &'a Topology,
    out: String,
    next_id: usize,
}

impl Writer<'_> {
    fn tree(&mut self, tree: &Tree, depth: usize) {
        let object = &tree.object;
        let nodes = self.nodes_of(object);
        let mut attributes = self.attributes(object.kind, object.os_id, &object.cpus, &nodes);
        if object.kind == "Machine" {
            let _ = write!(
                attributes,
                " allowed_cpuset=\"{}\" allowed_nodeset=\"{}\"",
                bitmap(&self.topology.allowed_cpus()),
                bitmap(&nodes)
            );
        }
        if let Some((depth, size)) = object.cache {
            let kind = if depth == 1 { 1 } else { 0 }; // of data; unified
            let _ = write!(
                attributes,
                " cache_size=\"{size}\" depth=\"{depth}\" cache_linesize=\"64\" \
                 cache_associativity=\"0\" cache_type=\"{kind}\""
            );
        }
        if object.kind == "Group" {
            attributes.push_str(" kind=\"0\" subkind=\"0\"");
        }
        let indent = "  ".repeat(depth);
        if object.kind == "PU" && tree.nodes.is_empty() {
            let _ = writeln!(self.out, "{indent}<object {attributes}/>");
            return;
        }
        let _ = writeln!(self.out, "{indent}<object {attributes}>");
        for &position in &tree.nodes {
            let node = &self.topology.nodes()[position];
            let os_id = node.os_id as usize;
            let attributes = self.attributes("NUMANode", Some(os_id), &node.cpus, &[os_id]);
            let memory = node.memory_bytes;
            let _ = writeln!(
                self.out,
                "{indent}  <object {attributes} local_memory=\"{memory}\"/>"
            );
        }
        for child in &tree.children {
            self.tree(child, depth + 1);
        }
        let _ = writeln!(self.out, "{indent}</object>");
    }

    fn attributes(
        &mut self,
        kind: &str,
        os_id: Option<usize>,
        cpus: &[usize],
        nodes: &[usize],
    ) -> String {
        let id = self.next_id;
        self.next_id += 1;
        let os_index = os_id.map_or(String::new(), |id| format!(" os_index=\"{id}\""));
        let (cpus, nodes) = (bitmap(cpus), bitmap(nodes));
        format!(
            "type=\"{kind}\"{os_index} cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" \
             nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\" gp_index=\"{id}\""
        )
    }

    /// OS ids of the nodes that an object has CPUs of; of the machine all.
    fn nodes_of(&self, object: &Object) -> Vec<usize> {
        let is_machine = object.kind == "Machine";
        let has_any = |cpus: &[usize]| {
            cpus.iter()
                .any(|cpu| object.cpus.binary_search(cpu).is_ok())
        };
        let nodes = self.topology.nodes().iter();
        let nodes = nodes.filter(|node| is_machine || has_any(&node.cpus));
        nodes.map(|node| node.os_id as usize).collect()
    }

    fn distances(&mut self) {
        let nodes = self.topology.nodes();
        if nodes.len() < 2 {
            return;
        }
        let ids: Vec<String> = nodes.iter().map(|node| node.os_id.to_string()).collect();
        let values = self.topology.distances().rows.iter().flatten();
        let values: Vec<String> = values.map(u32::to_string).collect();
        let (ids, values) = (ids.join(" ") + " ", values.join(" ") + " ");
        let _ = writeln!(
            self.out,
            "  <distances2 type=\"NUMANode\" nbobjs=\"{}\" kind=\"5\" name=\"NUMALatency\" \
             indexing=\"os\">\n    <indexes length=\"{}\">{ids}</indexes>\n    \
             <u64values length=\"{}\">{values}</u64values>\n  </distances2>",
            nodes.len(),
            ids.len(),
            values.len()
        );
    }
}

/// hwloc's way to write a set: words of 32 bits, the highest first, `0x00000001,0xffff0000`.
fn bitmap(ids: &[usize]) -> String {
    let n_words = ids.iter().max().map_or(1, |max| max / 32 + 1);
    let mut words = vec![0_u32; n_words];
    ids.iter().for_each(|id| words[id / 32] |= 1 << (id % 32));
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("0x{word:08x}"))
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_hwlocs() {
        assert_eq!(bitmap(&[0, 1, 7]), "0x00000083");
        assert_eq!(bitmap(&[31, 32]), "0x00000001,0x80000000");
        assert_eq!(bitmap(&[]), "0x00000000");
    }
}
