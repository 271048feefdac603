//! The CPUs that this process may use now, and plans that place threads on them.
//!
//! The usable CPUs are those of the affinity mask of a witness: a thread that is never pinned, so the kernel keeps
//! its mask inside the cpuset of the control group and free of offline CPUs, and a user who
//! restricts the whole process (`taskset -ap`) restricts the witness, too. The masks of pinned threads
//! carry no information.
//!
//! A thread whose mask was never set follows its cpuset when that grows again; a thread whose mask
//! was set is limited to that mask. So if the affinity of the thread that makes a [`UsableCpus`] is no
//! narrower than its cpuset, the mask of the witness is to be set to all CPUs that could exist. If it is narrower,
//! the restriction is assumed to be intended.

use std::io;

use windlass_sys::affinity::{self, Mask};
use windlass_sys::sched as threads;
use windlass_topology::{
    CpuLimits, Plan, PlanError, Request, Source, Topology, cpu_limits, default_processors, plan,
};

use crate::loom::native::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::loom::native::{Arc, Mutex, MutexGuard, PoisonError};

/// What is asked of a [`UsableCpus`].
#[derive(Debug)]
pub struct Wanted {
    /// Another machine than this one.
    pub topology: Option<Topology>,
    /// Whether threads are pinned.
    pub pin: bool,
    /// The nodes that may be used; all if it is `None`.
    pub nodes: Option<Vec<u32>>,
    /// Whether there may be as many Ps as the machine has CPUs.
    pub grows: bool,
}

/// Where Ps may be placed: consulted whenever their number, or the usable CPUs, change.
#[derive(Debug)]
pub struct UsableCpus {
    /// The machine as it was first.
    pub topology: Topology,
    nodes: Option<Vec<u32>>,
    /// Whether the number of Ps is the default one, which changes with the CPUs and their quota.
    /// Ordering: relaxed, a setting.
    pub is_default: AtomicBool,
    /// Whether there is a P for every CPU of the machine, including CPUs that may not be used now.
    has_all: bool,
    /// The CPUs usable now; `None` where changes are not followed.
    now: Option<Mutex<Now>>,
    /// The thread that made this: of all threads that ask, its mask says most about the process.
    builder: i32,
    /// Plans made because the CPUs had changed. Ordering: relaxed, statistics.
    pub replans: AtomicU64,
    /// Ps in use whose CPU is on another node than their memory. Ordering: relaxed, statistics.
    pub n_away: AtomicUsize,
}

/// The CPUs that plans are made for.
#[derive(Clone, Debug)]
pub struct Now {
    /// The mask of the witness, or of the thread that made this.
    pub mask: Mask,
    /// The machine with these CPUs allowed.
    pub topology: Arc<Topology>,
    /// The mask for threads that are not pinned: see `free`.
    pub free: Mask,
}

impl UsableCpus {
    /// Detects the machine. Changes of the CPUs are followed only if the topology was detected
    /// here, on this machine, and threads are pinned.
    ///
    /// # Errors
    ///
    /// An error of reading the machine's topology.
    pub fn new(wanted: Wanted, is_default: bool) -> io::Result<UsableCpus> {
        let (topology, mask) = match wanted.topology {
            Some(topology) => (topology, None),
            None => (
                Topology::detect().map_err(io::Error::other)?,
                affinity::current().filter(|_| wanted.pin),
            ),
        };
        let now = mask.filter(|_| *topology.source() == Source::ThisMachine);
        let now = now.map(|mask| Now {
            free: free(&mask, topology.limits()),
            topology: Arc::new(topology.clone()),
            mask,
        });
        Ok(UsableCpus {
            topology,
            nodes: wanted.nodes,
            is_default: AtomicBool::new(is_default),
            has_all: now.is_some() && wanted.grows,
            now: now.map(Mutex::new),
            builder: threads::gettid(),
            replans: AtomicU64::new(0),
            n_away: AtomicUsize::new(0),
        })
    }

    /// Whether changes of the CPUs are followed.
    pub fn follows_cpus(&self) -> bool {
        self.now.is_some()
    }

    fn lock(&self) -> Option<MutexGuard<'_, Now>> {
        let now = self.now.as_ref()?;
        Some(now.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The CPUs that the last plan was made for.
    pub fn now(&self) -> Option<Now> {
        self.with_now(Now::clone)
    }

    /// Calls `f` with the CPUs that the last plan was made for.
    pub fn with_now<T>(&self, f: impl FnOnce(&Now) -> T) -> Option<T> {
        self.lock().map(|now| f(&now))
    }

    /// Sets the CPUs for later plans. Returns the previous ones.
    pub fn replace(&self, new: Now) -> Option<Now> {
        let mut now = self.lock()?;
        Some(std::mem::replace(&mut *now, new))
    }

    /// The machine with the CPUs that may be used now.
    pub fn machine(&self) -> Arc<Topology> {
        let now = self.lock().map(|now| Arc::clone(&now.topology));
        now.unwrap_or_else(|| Arc::new(self.topology.clone()))
    }

    /// The usable CPUs for a thread mask `mask`; `None` if the machine cannot be read. Reads the
    /// machine again if the mask has CPUs that are not yet known.
    pub fn with_mask(&self, mask: Mask) -> Option<Now> {
        let cpus = mask.cpus();
        let known = self.machine();
        let is_new = cpus.iter().any(|&cpu| known.pu(cpu).is_none());
        let machine = match is_new {
            true => Topology::detect().ok()?,
            false => (*known).clone(),
        };
        Some(Now {
            topology: Arc::new(machine.with_allowed_cpus(&cpus).ok()?),
            free: free(&mask, Some(&cpu_limits())),
            mask,
        })
    }

    /// Masks for a run that the calling thread, with the mask `caller`, begins. The first is for
    /// sysmon and other threads that are not pinned, `None` to leave it unchanged. The second is
    /// the one that the caller gets back afterwards.
    ///
    /// A thread that may use all of the process's CPUs must still be able to if the cpuset grows
    /// meanwhile. A thread other than the one that built the runtime may have a mask of its own,
    /// which says nothing about the process.
    pub fn masks_of_run(&self, caller: Option<Mask>) -> (Option<Mask>, Option<Mask>) {
        let Some(now) = self.now() else {
            return (None, caller);
        };
        match caller {
            Some(mask) if mask == now.mask => (Some(now.free.clone()), Some(now.free)),
            Some(mask) if threads::gettid() == self.builder => {
                let free = free(&mask, Some(&cpu_limits()));
                (Some(free.clone()), Some(free))
            }
            other => (Some(now.free), other),
        }
    }

    /// The default number of Ps on this machine: one for each allowed CPU on the chosen nodes, up
    /// to the CPU quota.
    pub fn default_processors(&self, machine: &Topology) -> usize {
        default_processors(machine).min(self.n_cpus(machine)).max(1)
    }

    /// Number of usable CPUs.
    fn n_cpus(&self, machine: &Topology) -> usize {
        let request = Request {
            nodes: self.nodes_left(machine),
            ..Request::default()
        };
        plan(machine, &request).map_or(1, |plan| plan.ps.len())
    }

    /// The default for the maximum number of Ps.
    pub fn max_processors(&self) -> usize {
        match self.has_all {
            true => self.plan_all(None).map_or(1, |plan| plan.ps.len()),
            false => self.n_cpus(&self.topology),
        }
    }

    /// The chosen nodes that have usable CPUs; `None` (all nodes) if there is no such node.
    fn nodes_left(&self, machine: &Topology) -> Option<Vec<u32>> {
        let mut nodes = self.nodes.clone()?;
        let is_left = |os_id: &u32| {
            let mut allowed = machine.pus().iter().filter(|pu| pu.allowed);
            allowed.any(|pu| machine.nodes()[pu.node].os_id == *os_id)
        };
        nodes.retain(is_left);
        (!nodes.is_empty()).then_some(nodes)
    }

    /// A plan for `n` Ps on the CPUs usable now.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: no Ps, or too many.
    pub fn plan(&self, n: usize) -> io::Result<Plan> {
        let machine = self.machine();
        let request = Request {
            n_ps: Some(n),
            nodes: self.nodes_left(&machine),
            ..Request::default()
        };
        plan(&machine, &request).map_err(invalid)
    }

    /// As [`UsableCpus::plan`], when the runtime is built: the chosen nodes must exist.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: there is no such node, or no Ps, or too many.
    pub fn check(&self, n: usize) -> io::Result<Plan> {
        let request = Request {
            n_ps: Some(n),
            nodes: self.nodes.clone(),
            ..Request::default()
        };
        plan(&self.topology, &request).map_err(invalid)
    }

    /// A plan for the `max` Ps that are created with the runtime.
    ///
    /// # Errors
    ///
    /// As [`UsableCpus::check`].
    pub fn structure(&self, max: usize) -> io::Result<Plan> {
        match self.has_all {
            true => self.plan_all(Some(max)).map_err(invalid),
            false => self.check(max),
        }
    }

    /// A plan for all CPUs that this process might ever use.
    fn plan_all(&self, n_ps: Option<usize>) -> Result<Plan, PlanError> {
        let all: Vec<usize> = self.topology.pus().iter().map(|pu| pu.cpu).collect();
        let machine = self.topology.with_allowed_cpus(&all);
        let request = Request {
            n_ps,
            nodes: self.nodes.clone(),
            isolated: true,
            ..Request::default()
        };
        plan(&machine.expect("these are its CPUs"), &request)
    }
}

/// The mask of a thread that may use all of the process's CPUs: `mask` if it is narrower than the
/// cpuset, otherwise all CPUs, so that it follows the cpuset.
fn free(mask: &Mask, limits: Option<&CpuLimits>) -> Mask {
    let is_restricted = limits.is_none_or(|limits| {
        let has = |cpu: &&usize| limits.cpuset.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        let mut usable = limits.online.iter().filter(has);
        limits.online.is_empty() || !usable.all(|&cpu| mask.has(cpu))
    });
    match is_restricted {
        true => mask.clone(),
        false => Mask::all(),
    }
}

fn invalid(e: PlanError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, e)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn limits(online: &[usize], cpuset: Option<&[usize]>) -> CpuLimits {
        CpuLimits {
            online: online.to_vec(),
            cpuset: cpuset.map(<[usize]>::to_vec),
            ..CpuLimits::default()
        }
    }

    #[test]
    fn a_mask_that_restricts_nothing_is_let_go() {
        let here = affinity::current().unwrap();
        let cpus = here.cpus();
        let more: Vec<usize> = cpus.iter().copied().chain([8000]).collect();
        let is_free = |limits: Option<&CpuLimits>| free(&here, limits) == Mask::all();
        assert!(is_free(Some(&limits(&cpus, None))));
        assert!(is_free(Some(&limits(&cpus, Some(&cpus)))));
        assert!(is_free(Some(&limits(&more, Some(&cpus)))));
        // Offline CPUs remain in some lists.
        assert!(is_free(Some(&limits(&cpus, Some(&more)))));
        assert!(!is_free(Some(&limits(&more, None))));
        assert!(!is_free(Some(&limits(&more, Some(&more)))));
        assert!(!is_free(Some(&limits(&[], None))));
        assert!(!is_free(None));
        assert_eq!(free(&here, None), here);
    }
}
