//! The machine as plain values, and where the processors of a runtime go on it.
//!
//! [`Topology`] says which NUMA nodes, packages, caches, cores and CPUs there are, which CPUs this
//! process may use, and how far the nodes are from one another. It comes from this machine
//! ([`Topology::detect`]), from a description ([`Topology::synthetic`]), or from a recording
//! ([`Topology::from_json`], [`Topology::from_xml_file`], [`Topology::from_sysfs`]), so that a
//! laptop can answer for a machine of eight nodes.
//!
//! [`plan`] puts Ps (the processors of a scheduler in the style of Go's) on CPUs, and lists for
//! each of them the others in the order in which it steals from them. It is a pure function: the same machine and
//! the same [`Request`] give the same [`Plan`], on any machine.
//!
//! ```
//! use windlass_topology::{LevelKind, Request, Topology, plan};
//!
//! let machine = Topology::synthetic("pack:2 [numa] l3:1 core:2 pu:2")?
//!     .with_distances(&[vec![10, 21], vec![21, 10]])?;
//! let plan = plan(&machine, &Request::default())?;
//!
//! assert_eq!(plan.ps.len(), 8);
//! let levels = &plan.ps[0].levels;
//! assert_eq!(levels[0].kind, LevelKind::Smt);
//! assert_eq!(levels[0].victims, [1]);
//! assert_eq!(levels[1].kind, LevelKind::L3);
//! assert_eq!(levels[1].victims, [2, 3]);
//! assert_eq!((levels[2].kind, levels[2].distance), (LevelKind::Remote, 21));
//! assert_eq!(levels[2].victims, [4, 5, 6, 7]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Topology::devices`] lists network cards, disks, GPUs and accelerators, and [`Topology::near`] says where
//! to run what uses one.
//!
//! [`live::Live`] holds the live figures that a running program publishes.
//!
//! The command `windlass-topology` prints all of it, for this machine or for another.
//!
//! # Cargo features
//!
//! A runtime needs `hwloc` at most: without any feature the library reads machines from sysfs and makes plans.
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cli` | yes | The command, and what only the command needs: the modules `doctor`, `diff`, `export`. Includes the others. |
//! | `hwloc` | with `cli` | Reads machines with libhwloc, to which the program is then linked: [`Topology::synthetic`], [`Topology::from_xml_file`], and a more thorough [`Topology::detect`]. |
//! | `json` | with `cli` | serde's traits for all values, [`Topology::to_json`], [`Topology::from_json`], [`live::Live::read`]. |
//! | `render` | with `cli` | The modules `render`, which writes text and pictures, and `measure`. Adds no crate. |

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/TOPOLOGY.md")]
struct Page;

mod affinity;
mod cgroup;
mod cpulist;
mod devices;
mod distances;
mod error;
mod facts;
mod files;
#[cfg(feature = "hwloc")]
mod hwloc;
mod kinds;
mod machine;
#[cfg(feature = "json")]
mod peer;
#[cfg(feature = "json")]
mod pretty;
mod sysfs;

#[cfg(feature = "cli")]
pub mod diff;
#[cfg(feature = "cli")]
pub mod doctor;
#[cfg(feature = "cli")]
pub mod export;
pub mod limits;
pub mod live;
#[cfg(feature = "render")]
pub mod measure;
pub mod placement;
#[cfg(feature = "render")]
pub mod render;
pub mod steal;

pub use cpulist::{format_cpu_list, parse_cpu_list};
pub use devices::{Device, DeviceKind, Near};
pub use error::Error;
pub use limits::{CpuLimits, cpu_limits, cpu_quota, default_processors, memory_pressure_file};
pub use machine::{
    Cache, Core, DistanceOrigin, Distances, Node, Package, Pu, SCHEMA, Source, Topology,
};
pub use placement::{
    DropReason, DroppedCpu, Level, LevelKind, Plan, PlanError, PlanNode, PlannedP, Policy, Request,
    Threads, plan,
};
