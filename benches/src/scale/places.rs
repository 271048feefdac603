//! On which CPUs throughput is measured: 1, 2, 4, .. all, the nearest first or spread over sockets.

use windlass::topology::{Policy, Request, Topology, plan};

/// In which order CPUs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The nearest first: a node is full before the next one has any.
    Near,
    /// Over sockets, nodes and caches evenly.
    Spread,
}

impl Order {
    /// For a table.
    pub fn word(self) -> &'static str {
        match self {
            Order::Near => "near",
            Order::Spread => "spread",
        }
    }
}

/// So many CPUs, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which order they were taken.
    pub order: Order,
    /// Their numbers, ascending.
    pub cpus: Vec<usize>,
}

/// The places of a machine, by order and then by their size. A spread one is left out where it has the
/// same CPUs as the near one.
///
/// # Errors
///
/// Why there is no CPU to be had.
pub fn places(machine: &Topology) -> Result<Vec<Place>, String> {
    let on = |order, n_ps| {
        let policy = match order {
            Order::Near => Policy::Pack,
            Order::Spread => Policy::Spread,
        };
        let request = Request {
            n_ps,
            policy,
            ..Request::default()
        };
        let plan = plan(machine, &request).map_err(|e| e.to_string())?;
        let mut cpus: Vec<_> = plan.ps.iter().map(|p| p.cpu).collect();
        cpus.sort_unstable();
        Ok(Place { order, cpus })
    };
    let all = on(Order::Near, None)?.cpus.len();
    let counts = || counts(all).into_iter().map(Some);
    let near: Vec<_> = counts()
        .map(|n| on(Order::Near, n))
        .collect::<Result<_, String>>()?;
    let spread: Vec<_> = counts()
        .map(|n| on(Order::Spread, n))
        .collect::<Result<_, String>>()?;
    let differs = |place: &Place| near.iter().all(|near| near.cpus != place.cpus);
    let spread: Vec<_> = spread.into_iter().filter(differs).collect();
    Ok(near.into_iter().chain(spread).collect())
}

/// Powers of two below the number of CPUs, and that number.
fn counts(all: usize) -> Vec<usize> {
    let powers = (0..).map(|i| 1 << i).take_while(|n| *n < all);
    powers.chain([all]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_double_up_to_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(512).len(), 10);
    }

    #[test]
    fn two_sockets_have_near_and_spread_places() {
        let machine = Topology::synthetic("pack:2 [numa] core:4 pu:1").unwrap();
        let places = places(&machine).unwrap();
        let texts: Vec<_> = places
            .iter()
            .map(|place| format!("{} {:?}", place.order.word(), place.cpus))
            .collect();
        assert_eq!(
            texts,
            [
                "near [0]",
                "near [0, 1]",
                "near [0, 1, 2, 3]",
                "near [0, 1, 2, 3, 4, 5, 6, 7]",
                "spread [0, 4]",
                "spread [0, 1, 4, 5]",
            ]
        );
    }

    #[test]
    fn one_node_has_one_order() {
        let machine = Topology::synthetic("[numa] core:2 pu:1").unwrap();
        let places = places(&machine).unwrap();
        assert_eq!(places.len(), 2);
        assert!(places.iter().all(|place| place.order == Order::Near));
    }
}
