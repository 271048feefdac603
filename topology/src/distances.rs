//! Decides how much of the firmware's distance matrix to believe.
//!
//! Firmware writes nonsense into this table on some machines, and 255 ("no path") on others where
//! that is true. A few wrong values do not spoil the others:
//!
//! - The matrix is judged by the values between nodes that have CPUs, because Ps are placed and
//!   steal by these. It is refused if it is not square, or if more than half of them are wrong.
//! - A single wrong value is replaced: by the value of the opposite direction, else by the largest
//!   value of its row, else by what the kernel assumes.
//! - Either is said in [`Distances::note`].

use crate::{
    DistanceOrigin, Distances, Node, Package,
    machine::{check_distances, is_distance},
};

/// The kernel's values for two nodes when the firmware has none.
const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;

/// The distance that firmware gives for two nodes of one package on many machines (EPYC with several nodes per
/// socket).
const PACKAGE_DISTANCE: u32 = 12;

/// How many replaced values a note names.
const MAX_NAMED: usize = 3;

/// The distances between these nodes, from the matrix that the firmware gave, if any.
pub(crate) fn settle(firmware: Option<Vec<Vec<u32>>>, nodes: &[Node]) -> Distances {
    match firmware.map(|rows| repair(rows, nodes)) {
        None => assumed(nodes.len(), None),
        Some(Err(reason)) => assumed(nodes.len(), Some(reason)),
        Some(Ok((rows, note))) => Distances {
            origin: DistanceOrigin::Firmware,
            rows,
            note,
        },
    }
}

/// 10 inside a node and 20 between any two.
fn assumed(n_nodes: usize, note: Option<String>) -> Distances {
    let value = |from, to| match from == to {
        true => LOCAL_DISTANCE,
        false => REMOTE_DISTANCE,
    };
    let row = |from| (0..n_nodes).map(|to| value(from, to)).collect();
    Distances {
        origin: DistanceOrigin::Assumed,
        rows: (0..n_nodes).map(row).collect(),
        note,
    }
}

/// The distances of a described machine, where some package has several nodes and there are several packages:
/// 12 inside a package, 20 between packages. `None` elsewhere: all other nodes are equally far.
pub(crate) fn by_package(nodes: &[Node], packages: &[Package]) -> Option<Distances> {
    // A node is in the package of its first CPU; one without CPUs is in none.
    let package = |node: &Node| {
        let cpu = node.cpus.first()?;
        packages
            .iter()
            .position(|package| package.cpus.contains(cpu))
    };
    let package_of: Vec<Option<usize>> = nodes.iter().map(package).collect();
    let is_together =
        |from: usize, to: usize| package_of[from].is_some() && package_of[from] == package_of[to];
    let value = |from: usize, to: usize| match (from == to, is_together(from, to)) {
        (true, _) => LOCAL_DISTANCE,
        (false, true) => PACKAGE_DISTANCE,
        (false, false) => REMOTE_DISTANCE,
    };
    let n = nodes.len();
    let rows: Vec<Vec<u32>> = (0..n)
        .map(|from| (0..n).map(|to| value(from, to)).collect())
        .collect();
    let has = |wanted: u32| rows.iter().flatten().any(|&value| value == wanted);
    (has(PACKAGE_DISTANCE) && has(REMOTE_DISTANCE)).then(|| Distances {
        origin: DistanceOrigin::Assumed,
        note: Some(format!(
            "derived from the packages: {PACKAGE_DISTANCE} inside, {REMOTE_DISTANCE} between them; \
             --slit says others"
        )),
        rows,
    })
}

/// A matrix that passes [`check_distances`], and what was changed to make it so; or why the whole
/// is refused.
fn repair(
    mut rows: Vec<Vec<u32>>,
    nodes: &[Node],
) -> Result<(Vec<Vec<u32>>, Option<String>), String> {
    let n = nodes.len();
    let refused = |reason: String| format!("the firmware's distances were refused: {reason}");
    if rows.len() != n || rows.iter().any(|row| row.len() != n) {
        let reason = check_distances(&rows, n).err().unwrap_or_default();
        return Err(refused(reason));
    }
    let wrong = wrong_values(&rows);
    let has_cpus = |node: usize| !nodes[node].cpus.is_empty();
    let is_judged = |&&(from, to): &&(usize, usize)| has_cpus(from) && has_cpus(to);
    let n_judged = (0..n).filter(|&node| has_cpus(node)).count().pow(2);
    let n_wrong = wrong.iter().filter(is_judged).count();
    if n_wrong * 2 > n_judged {
        return Err(refused(format!(
            "{n_wrong} of {n_judged} values between nodes with CPUs are wrong, {}",
            names(&wrong, &rows, nodes)
        )));
    }
    if wrong.is_empty() {
        return Ok((rows, None));
    }
    let note = format!(
        "{} of the firmware's {} values replaced, {}",
        wrong.len(),
        n * n,
        names(&wrong, &rows, nodes)
    );
    let original = rows.clone();
    for &(from, to) in &wrong {
        rows[from][to] = replacement(&original, &wrong, from, to);
    }
    check_distances(&rows, n).map_err(refused)?;
    Ok((rows, Some(note)))
}

/// Positions of the values that cannot be: out of range, or nearer than the node itself.
fn wrong_values(rows: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let is_wrong = |from: usize, to: usize| {
        let local = rows[from][from];
        let value = rows[from][to];
        !is_distance(value) || (is_distance(local) && value < local)
    };
    let all = (0..rows.len()).flat_map(|from| (0..rows.len()).map(move |to| (from, to)));
    all.filter(|&(from, to)| is_wrong(from, to)).collect()
}

/// The distance that replaces a wrong value.
fn replacement(rows: &[Vec<u32>], wrong: &[(usize, usize)], from: usize, to: usize) -> u32 {
    if from == to {
        return LOCAL_DISTANCE;
    }
    let is_good = |from, to| wrong.binary_search(&(from, to)).is_err();
    let local = Some(rows[from][from]).filter(|_| is_good(from, from));
    let local = local.unwrap_or(LOCAL_DISTANCE);
    let opposite = rows[to][from];
    if is_good(to, from) && opposite >= local {
        return opposite;
    }
    // As far as the farthest that can be reached, lest an unknown node be taken for a near one.
    let others = (0..rows.len()).filter(|&other| other != from && is_good(from, other));
    let farthest = others.map(|other| rows[from][other]).filter(|&d| d < 255);
    farthest.max().unwrap_or(REMOTE_DISTANCE.max(local))
}

/// `such as 0 from node 0 to node 2`.
fn names(wrong: &[(usize, usize)], rows: &[Vec<u32>], nodes: &[Node]) -> String {
    let name = |&(from, to): &(usize, usize)| {
        let (value, from, to) = (rows[from][to], nodes[from].os_id, nodes[to].os_id);
        format!("{value} from node {from} to node {to}")
    };
    let named: Vec<String> = wrong.iter().take(MAX_NAMED).map(name).collect();
    let such_as = match wrong.len() > MAX_NAMED {
        true => "such as ",
        false => "",
    };
    format!("{such_as}{}", named.join(", "))
}
