//! Where Ps may be placed: which CPUs this process may use now, and what a plan makes of them.
//!
//! What counts is the affinity mask of sysmon, which is never pinned: the kernel keeps it inside
//! the cpuset of the control group and without CPUs that are offline, and who restricts the whole
//! process (`taskset -ap`) restricts sysmon, too. The masks of all other threads say nothing, as
//! they are pinned.
//!
//! A thread whose mask was never set follows its cpuset when that grows again; one whose mask was
//! set is cut to what was set. So where the affinity of the thread that builds the runtime
//! is no narrower than its cpuset, sysmon's is set to all CPUs that there may ever be.
//! Where it is narrower, somebody wants it so.

use std::io;

use windlass_topology::{
    CpuLimits, Plan, PlanError, Request, Source, Topology, cpu_limits, default_processors, plan,
};

use crate::config::Config;
use crate::loom::native::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::loom::native::{Arc, Mutex, MutexGuard, PoisonError};
use crate::sys::affinity::{self, Mask};
use crate::sys::sched as threads;

/// Where Ps may be placed: asked again whenever their number, or the CPUs, change.
#[derive(Debug)]
pub(crate) struct UsableCpus {
    /// The machine as it was when the runtime was built.
    pub(crate) topology: Topology,
    nodes: Option<Vec<u32>>,
    /// Whether the number of Ps is the default one, which changes with the CPUs and their quota.
    /// Ordering: relaxed, a setting.
    pub(crate) is_default: AtomicBool,
    /// Whether there is a P for every CPU of the machine, also those that may not be used now.
    has_all: bool,
    /// What is known of the CPUs now; `None` where they are not followed.
    now: Option<Mutex<Now>>,
    /// The thread that built the runtime: of all threads that may run it, its mask says most
    /// about the process.
    builder: i32,
    /// Plans made because the CPUs had changed. Ordering: relaxed, statistics.
    pub(crate) replans: AtomicU64,
    /// Ps in use whose CPU is on another node than their memory. Ordering: relaxed, statistics.
    pub(crate) n_away: AtomicUsize,
}

/// The CPUs that plans are made for.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    /// Sysmon's, or that of the thread that built the runtime.
    pub(crate) mask: Mask,
    /// The machine with these CPUs allowed.
    pub(crate) topology: Arc<Topology>,
    /// The mask of threads that shall not be pinned: see [`free`].
    pub(crate) free: Mask,
}

impl UsableCpus {
    /// Finds out what there is. CPUs are followed only on this machine, as it was found here,
    /// and where threads are pinned.
    ///
    /// # Errors
    ///
    /// What keeps the machine from being read.
    pub(crate) fn new(config: &Config, is_default: bool) -> io::Result<UsableCpus> {
        let (topology, mask) = match config.topology.clone() {
            Some(topology) => (topology, None),
            None => (
                Topology::detect().map_err(io::Error::other)?,
                affinity::current().filter(|_| config.pin),
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
            nodes: config.nodes.clone(),
            is_default: AtomicBool::new(is_default),
            has_all: now.is_some() && config.max_processors.is_none(),
            now: now.map(Mutex::new),
            builder: threads::gettid(),
            replans: AtomicU64::new(0),
            n_away: AtomicUsize::new(0),
        })
    }

    /// Whether changes of the CPUs are followed.
    pub(crate) fn follows_cpus(&self) -> bool {
        self.now.is_some()
    }

    fn lock(&self) -> Option<MutexGuard<'_, Now>> {
        let now = self.now.as_ref()?;
        Some(now.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The CPUs that the last plan was made for.
    pub(crate) fn now(&self) -> Option<Now> {
        self.with_now(Now::clone)
    }

    /// Calls `f` with what the last plan was made for.
    pub(crate) fn with_now<T>(&self, f: impl FnOnce(&Now) -> T) -> Option<T> {
        self.lock().map(|now| f(&now))
    }

    /// Plans are made for these CPUs from now on. Gives those before.
    pub(crate) fn replace(&self, new: Now) -> Option<Now> {
        let mut now = self.lock()?;
        Some(std::mem::replace(&mut *now, new))
    }

    /// The machine with the CPUs that may be used now.
    pub(crate) fn machine(&self) -> Arc<Topology> {
        let now = self.lock().map(|now| Arc::clone(&now.topology));
        now.unwrap_or_else(|| Arc::new(self.topology.clone()))
    }

    /// What may be used when a thread's mask is `mask`; `None` if the machine cannot be read. Reads
    /// the machine anew if it has got CPUs that it did not have.
    pub(crate) fn with_mask(&self, mask: Mask) -> Option<Now> {
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

    /// For a run that the calling thread, with the mask `caller`, begins: the mask of sysmon and
    /// of other threads that are not pinned, `None` to leave it as it is; and the one that the
    /// caller is to have afterwards. A thread that may use whatever the process may shall still do
    /// so if the cpuset grows meanwhile. Another thread than the one that built the runtime
    /// may have a mask of its own, which says nothing of the process.
    pub(crate) fn masks_of_run(&self, caller: Option<Mask>) -> (Option<Mask>, Option<Mask>) {
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

    /// How many Ps there are unless somebody says, on this machine: as many as the CPUs allowed
    /// on the nodes chosen, up to the CPU quota.
    pub(crate) fn default_processors(&self, machine: &Topology) -> usize {
        default_processors(machine).min(self.n_cpus(machine)).max(1)
    }

    /// CPUs that may be used.
    fn n_cpus(&self, machine: &Topology) -> usize {
        let request = Request {
            nodes: self.nodes_left(machine),
            ..Request::default()
        };
        plan(machine, &request).map_or(1, |plan| plan.ps.len())
    }

    /// How many Ps there may be unless somebody says.
    pub(crate) fn max_processors(&self) -> usize {
        match self.has_all {
            true => self.plan_all(None).map_or(1, |plan| plan.ps.len()),
            false => self.n_cpus(&self.topology),
        }
    }

    /// The nodes chosen, as far as CPUs of them may be used; all others, too, if none may.
    fn nodes_left(&self, machine: &Topology) -> Option<Vec<u32>> {
        let mut nodes = self.nodes.clone()?;
        let is_left = |os_id: &u32| {
            let mut allowed = machine.pus().iter().filter(|pu| pu.allowed);
            allowed.any(|pu| machine.nodes()[pu.node].os_id == *os_id)
        };
        nodes.retain(is_left);
        (!nodes.is_empty()).then_some(nodes)
    }

    /// Where `n` Ps go, as things are now.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: no Ps, or too many.
    pub(crate) fn plan(&self, n: usize) -> io::Result<Plan> {
        let machine = self.machine();
        let request = Request {
            n_ps: Some(n),
            nodes: self.nodes_left(&machine),
            ..Request::default()
        };
        plan(&machine, &request).map_err(invalid)
    }

    /// As [`UsableCpus::plan`], when the runtime is built: nodes chosen must be there.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: there is no such node, or no Ps, or too many.
    pub(crate) fn check(&self, n: usize) -> io::Result<Plan> {
        let request = Request {
            n_ps: Some(n),
            nodes: self.nodes.clone(),
            ..Request::default()
        };
        plan(&self.topology, &request).map_err(invalid)
    }

    /// Where the Ps belong that are made with the runtime, `max` of them.
    ///
    /// # Errors
    ///
    /// As [`UsableCpus::check`].
    pub(crate) fn structure(&self, max: usize) -> io::Result<Plan> {
        match self.has_all {
            true => self.plan_all(Some(max)).map_err(invalid),
            false => self.check(max),
        }
    }

    /// A plan for all CPUs that this process might get.
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

/// The mask of a thread that may use whatever the process may: `mask`, or all CPUs if it leaves
/// out none that the cpuset has, so that it follows that.
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
        // Offline CPUs stay in some lists.
        assert!(is_free(Some(&limits(&cpus, Some(&more)))));
        assert!(!is_free(Some(&limits(&more, None))));
        assert!(!is_free(Some(&limits(&more, Some(&more)))));
        assert!(!is_free(Some(&limits(&[], None))));
        assert!(!is_free(None));
        assert_eq!(free(&here, None), here);
    }
}
