//! A floor plan of the machine: boxes in boxes, with a cell for each CPU.
//!
//! [`blocks`] says which boxes there are, [`place`] where they go. The unit of length is the caller's:
//! a character for [`art`](super::art), a pixel for [`svg`](super::svg).

use super::{
    tree::grouped,
    words::{bytes, core_title, devices_of, memory, name, package_name},
};
use crate::{Cache, Device, Pu, Topology};

/// A box with a title, with CPUs or with boxes inside.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    pub(crate) title: String,
    /// OS ids of the CPUs that it shows itself.
    pub(crate) cpus: Vec<usize>,
    pub(crate) inside: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Package,
    Node,
    /// A node that has memory only.
    Memory,
    Cache,
    Core,
    Device,
}

/// The packages of a machine, then the nodes without CPUs, then the devices of which no node is known.
pub(crate) fn blocks(topology: &Topology) -> Vec<Block> {
    let pus: Vec<&Pu> = topology.pus().iter().collect();
    let packages = grouped(&pus, |pu| Some(pu.package));
    let mut blocks: Vec<Block> = packages
        .into_iter()
        .map(|(package, pus)| {
            let package = package.expect("every CPU has a package");
            Block {
                kind: BlockKind::Package,
                title: format!("package {}", package_name(topology, package)),
                cpus: Vec::new(),
                inside: nodes(topology, &pus),
            }
        })
        .collect();
    let memory_only = topology.nodes().iter().filter(|node| node.cpus.is_empty());
    blocks.extend(memory_only.map(|node| Block {
        kind: BlockKind::Memory,
        title: format!("node {} · {} · no CPUs", node.os_id, memory(node)),
        cpus: Vec::new(),
        inside: devices(topology, Some(node.os_id)),
    }));
    blocks.extend(devices(topology, None));
    blocks
}

fn nodes(topology: &Topology, pus: &[&Pu]) -> Vec<Block> {
    let nodes = grouped(pus, |pu| Some(pu.node));
    let block = |(node, pus): (Option<usize>, Vec<&Pu>)| {
        let node = &topology.nodes()[node.expect("every CPU has a node")];
        let mut inside = l3s(topology, &pus);
        // Of a node in several packages, in the first.
        if node.cpus[0] == pus[0].cpu {
            inside.extend(devices(topology, Some(node.os_id)));
        }
        Block {
            kind: BlockKind::Node,
            title: format!("node {} · {}", node.os_id, memory(node)),
            cpus: Vec::new(),
            inside,
        }
    };
    nodes.into_iter().map(block).collect()
}

fn devices(topology: &Topology, node: Option<u32>) -> Vec<Block> {
    let block = |device: &Device| Block {
        kind: BlockKind::Device,
        title: format!("{} · {}", device.name, device.kind),
        cpus: Vec::new(),
        inside: Vec::new(),
    };
    devices_of(topology, node).map(block).collect()
}

fn l3s(topology: &Topology, pus: &[&Pu]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (l3, pus) in grouped(pus, |pu| pu.l3) {
        let inside = l2s(topology, &pus);
        match l3 {
            Some(l3) => blocks.push(Block {
                kind: BlockKind::Cache,
                title: cache("L3", topology.l3s(), l3),
                cpus: Vec::new(),
                inside,
            }),
            None => blocks.extend(inside),
        }
    }
    blocks
}

/// A level 2 cache of one core is a part of that core's title.
fn l2s(topology: &Topology, pus: &[&Pu]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (l2, pus) in grouped(pus, |pu| pu.l2) {
        let mut inside: Vec<Block> = grouped(&pus, |pu| Some(pu.core))
            .into_iter()
            .map(|(core, pus)| Block {
                kind: BlockKind::Core,
                title: core_title(topology, core.expect("every CPU has a core")),
                cpus: pus.iter().map(|pu| pu.cpu).collect(),
                inside: Vec::new(),
            })
            .collect();
        match l2 {
            Some(l2) if inside.len() > 1 => blocks.push(Block {
                kind: BlockKind::Cache,
                title: cache("L2", topology.l2s(), l2),
                cpus: Vec::new(),
                inside,
            }),
            _ => blocks.append(&mut inside),
        }
    }
    blocks
}

fn cache(kind: &str, caches: &[Cache], position: usize) -> String {
    let cache = &caches[position];
    let size = cache.size_bytes.map(|size| format!(" · {}", bytes(size)));
    format!(
        "{kind} {}{}",
        name(cache.os_id, position),
        size.unwrap_or_default()
    )
}

/// The length of the longest title of a core.
pub(crate) fn longest_core_title(topology: &Topology) -> usize {
    let titles = (0..topology.cores().len()).map(|core| core_title(topology, core));
    titles.map(|title| title.chars().count()).max().unwrap_or(0)
}

/// How large things are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metrics {
    /// Of a CPU's cell.
    pub(crate) cell: (usize, usize),
    /// Between neighbours.
    pub(crate) gap: (usize, usize),
    /// From a box's left or right edge to what is inside.
    pub(crate) side: usize,
    /// From its upper edge, the title being there, and from its lower one.
    pub(crate) top: usize,
    pub(crate) bottom: usize,
    /// A title of so many characters needs at least this width.
    pub(crate) title_width: fn(usize) -> usize,
    /// Cores are equally wide: as wide as a title of so many characters.
    pub(crate) core_title: usize,
    /// No row is wider, unless one thing alone is.
    pub(crate) max_width: usize,
}

/// A box with its place, relative to the picture.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) block: &'a Block,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Left upper corners of the cells, in the order of [`Block::cpus`].
    pub(crate) cells: Vec<(usize, usize)>,
    pub(crate) inside: Vec<Placed<'a>>,
}

/// Puts boxes into rows; gives their places, and width and height of the whole.
pub(crate) fn place<'a>(blocks: &'a [Block], metrics: &Metrics) -> (Vec<Placed<'a>>, usize, usize) {
    let mut placed: Vec<Placed<'a>> = blocks
        .iter()
        .map(|block| measure(block, metrics, metrics.max_width))
        .collect();
    let (width, height) = rows(&mut placed, metrics, metrics.max_width, usize::MAX);
    (placed, width, height)
}

/// A box at the origin.
fn measure<'a>(block: &'a Block, metrics: &Metrics, max_width: usize) -> Placed<'a> {
    let inner_max = max_width.saturating_sub(2 * metrics.side);
    let mut inside: Vec<Placed<'a>> = block
        .inside
        .iter()
        .map(|block| measure(block, metrics, inner_max))
        .collect();
    let (mut width, mut height) = rows(&mut inside, metrics, inner_max, columns(&block.inside));
    let mut cells = Vec::new();
    for nth in 0..block.cpus.len() {
        let x = nth * (metrics.cell.0 + metrics.gap.0);
        cells.push((metrics.side + x, metrics.top));
        width = width.max(x + metrics.cell.0);
        height = height.max(metrics.cell.1);
    }
    let mut letters = block.title.chars().count();
    if block.kind == BlockKind::Core {
        letters = letters.max(metrics.core_title);
    }
    let title = (metrics.title_width)(letters);
    inside
        .iter_mut()
        .for_each(|inner| inner.shift(metrics.side, metrics.top));
    Placed {
        block,
        x: 0,
        y: 0,
        width: (width + 2 * metrics.side).max(title),
        height: height + metrics.top + metrics.bottom,
        cells,
        inside,
    }
}

/// How many boxes side by side look well: cores make a block wider than high.
fn columns(blocks: &[Block]) -> usize {
    let are_cores = blocks.iter().all(|block| block.kind == BlockKind::Core);
    match blocks.len() {
        n if are_cores && n > 4 => (4..n)
            .find(|columns| columns * columns >= 2 * n)
            .unwrap_or(n),
        _ => usize::MAX,
    }
}

/// Lays boxes out row by row, those of a row equally high, but for devices.
fn rows(
    placed: &mut [Placed<'_>],
    metrics: &Metrics,
    max_width: usize,
    columns: usize,
) -> (usize, usize) {
    let (mut y, mut width) = (0, 0);
    let mut start = 0;
    while start < placed.len() {
        let (mut x, mut end) = (0, start);
        while end < placed.len() && end - start < columns {
            let right = x + placed[end].width;
            if right > max_width && end > start {
                break;
            }
            x = right + metrics.gap.0;
            end += 1;
        }
        let row = &mut placed[start..end];
        let height = row.iter().map(|placed| placed.height).max().unwrap_or(0);
        let mut x = 0;
        for placed in row {
            // A device has nothing inside that could be spread.
            if placed.block.kind != BlockKind::Device {
                placed.height = height;
            }
            placed.shift(x, y);
            x += placed.width + metrics.gap.0;
        }
        width = width.max(x - metrics.gap.0);
        y += height + metrics.gap.1;
        start = end;
    }
    (width, y.saturating_sub(metrics.gap.1))
}

impl Placed<'_> {
    fn shift(&mut self, dx: usize, dy: usize) {
        self.x += dx;
        self.y += dy;
        self.cells.iter_mut().for_each(|(x, y)| {
            *x += dx;
            *y += dy;
        });
        self.inside.iter_mut().for_each(|inner| inner.shift(dx, dy));
    }
}

#[cfg(all(test, feature = "hwloc"))]
mod tests {
    use super::*;

    const METRICS: Metrics = Metrics {
        cell: (3, 1),
        gap: (1, 0),
        side: 2,
        top: 1,
        bottom: 1,
        title_width: |n| n + 4,
        core_title: 7,
        max_width: 60,
    };

    /// Nothing sticks out of its box, and neighbours do not overlap.
    fn check(placed: &[Placed<'_>], x: usize, y: usize, width: usize, height: usize) {
        for (i, a) in placed.iter().enumerate() {
            assert!(a.x >= x && a.y >= y, "{a:?}");
            assert!(
                a.x + a.width <= x + width && a.y + a.height <= y + height,
                "{a:?}"
            );
            for b in &placed[..i] {
                let apart = a.x >= b.x + b.width
                    || b.x >= a.x + a.width
                    || a.y >= b.y + b.height
                    || b.y >= a.y + a.height;
                assert!(apart, "{a:?} {b:?}");
            }
            for &(cell_x, cell_y) in &a.cells {
                assert!(cell_x + 3 < a.x + a.width && cell_y + 1 < a.y + a.height);
            }
            check(&a.inside, a.x, a.y, a.width, a.height);
        }
    }

    #[test]
    fn boxes_hold_what_is_in_them() {
        for description in [
            "pu:1",
            "pack:2 [numa] l3:2 core:9 pu:2",
            "pack:2 group:2 [numa] l3:1 l2:2 core:2 pu:1",
            "numa:8 core:16 pu:1",
        ] {
            let machine = Topology::synthetic(description).unwrap();
            let blocks = blocks(&machine);
            let (placed, width, height) = place(&blocks, &METRICS);
            check(&placed, 0, 0, width, height);
        }
    }

    #[test]
    fn every_cpu_has_one_cell() {
        fn cpus(blocks: &[Block]) -> Vec<usize> {
            let inside = |block: &Block| [block.cpus.clone(), cpus(&block.inside)].concat();
            blocks.iter().flat_map(inside).collect()
        }
        let machine = Topology::synthetic("pack:2 [numa] l3:2 l2:2 core:2 pu:2").unwrap();
        assert_eq!(cpus(&blocks(&machine)), (0..32).collect::<Vec<_>>());
    }
}
