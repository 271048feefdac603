//! Reads machines with hwloc. No other module of windlass uses `hwloc2`.
//!
//! Why not all of it through the safe half of `hwloc2` 2.2.0: its `Topology` cannot be made from a
//! description or a file, does not tell which CPUs are allowed, and panics when asked for NUMA
//! nodes (hwloc 2 gives them a negative depth, which it takes for a count). So the handle is ours,
//! a dozen functions wide, and what it hands out are `hwloc2`'s objects and bitmaps.
//!
//! Traps that earlier versions of this file fell into:
//! - A NUMA node is not an ancestor of its CPUs in hwloc 2, but a memory child somewhere above. A
//!   CPU's node comes from its node set.
//! - That set is empty for CPUs of a node without memory, and has several nodes where a cpuset is
//!   shared (a node of slow memory beside a node of fast memory).
//! - An object without an OS number says `u32::MAX`.
//! - `TopologyObject::name` frees memory of hwloc, and `Display` of a bitmap leaks: never used here.
#![allow(unsafe_code)] // `hwloc2` declares these functions but keeps them to itself

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ulong, c_void},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::{self, NonNull},
};

use hwloc2::{Bitmap, CpuSet, ObjectType, TopologyObject};

use crate::{
    Error, Source,
    facts::{Facts, GroupFacts, NodeFacts, PuFacts},
    kinds,
};

/// As many as the kernels of distributions can have; hwloc takes minutes for more.
const MAX_SYNTHETIC_CPUS: u64 = 1 << 13;

/// Reads this machine, or the one hwloc's environment variables name.
pub(crate) fn detect() -> Result<Facts, Error> {
    let mut handle = Handle::new()?;
    handle.load()?;
    let source = if handle.is_this_system() {
        Source::ThisMachine
    } else {
        Source::Recorded
    };
    handle.facts(source)
}

/// Makes a machine from a description.
pub(crate) fn synthetic(description: &str) -> Result<Facts, Error> {
    let refuse = |reason: &str| Error::Synthetic {
        description: description.to_owned(),
        reason: reason.to_owned(),
    };
    check_size(description).map_err(refuse)?;
    let text = CString::new(description).map_err(|_| refuse("it contains a zero byte"))?;
    let mut handle = Handle::new()?;
    // SAFETY: the handle is initialised and not loaded, the string lives through the call.
    if unsafe { hwloc_topology_set_synthetic(handle.raw(), text.as_ptr()) } != 0 {
        return Err(refuse("hwloc does not understand it"));
    }
    handle.load().map_err(|_| refuse("hwloc cannot build it"))?;
    handle.facts(Source::Synthetic {
        description: description.to_owned(),
    })
}

/// Reads a machine recorded by hwloc.
pub(crate) fn xml_file(path: &Path) -> Result<Facts, Error> {
    let io_error = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    // hwloc takes "-" for standard input and is silent about the cause of a failure.
    if !fs::metadata(path).map_err(io_error)?.is_file() {
        return Err(io_error(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a file",
        )));
    }
    fs::File::open(path).map_err(io_error)?;
    let not_hwloc = || {
        let path = path.display();
        Error::Hwloc(format!(
            "{path} is not hwloc's XML, or of a newer version; lstopo --export-xml-flags v2 writes \
             what all read"
        ))
    };
    let path_text = if path == OsStr::new("-") {
        b"./-"
    } else {
        path.as_os_str().as_bytes()
    };
    let text = CString::new(path_text).map_err(|_| not_hwloc())?;
    let mut handle = Handle::new()?;
    // SAFETY: the handle is initialised and not loaded, the string lives through the call.
    if unsafe { hwloc_topology_set_xml(handle.raw(), text.as_ptr()) } != 0 {
        return Err(not_hwloc());
    }
    handle.load().map_err(|_| not_hwloc())?;
    handle.facts(Source::Recorded)
}

/// Refuses descriptions of too many CPUs: hwloc would build a billion of them.
fn check_size(description: &str) -> Result<(), &'static str> {
    let mut n_cpus: u64 = 1;
    let mut depth = 0_usize;
    let outside = description.chars().filter(|&c| {
        depth += usize::from(c == '(' || c == '[');
        let outside = depth == 0;
        depth = depth.saturating_sub(usize::from(c == ')' || c == ']'));
        outside
    });
    for level in outside.collect::<String>().split_whitespace() {
        let arity = level.rsplit(':').next().unwrap_or(level);
        let digits = arity.trim_end_matches(|c: char| !c.is_ascii_digit());
        n_cpus = match digits.parse::<u64>() {
            Ok(arity) => n_cpus.saturating_mul(arity.max(1)),
            Err(_) if digits.len() > 9 => u64::MAX,
            Err(_) => n_cpus, // no number: hwloc will say what it thinks of it
        };
    }
    if n_cpus > MAX_SYNTHETIC_CPUS {
        Err("it has more than 8192 CPUs")
    } else {
        Ok(())
    }
}

/// An hwloc topology, from init to destroy.
struct Handle {
    raw: NonNull<RawTopology>,
    loaded: bool,
}

impl Handle {
    /// An empty topology that will contain disallowed CPUs too.
    fn new() -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: the place for the result is valid for a write.
        let result = unsafe { hwloc_topology_init(&mut raw) };
        let Some(raw) = NonNull::new(raw).filter(|_| result == 0) else {
            return Err(Error::Hwloc(
                "cannot start it, most likely for want of memory".into(),
            ));
        };
        let handle = Self { raw, loaded: false };
        // Without DONT_CHANGE_BINDING hwloc may move this thread over all CPUs while it looks; before
        // 2.5 it does not know the flag and refuses.
        let known = [INCLUDE_DISALLOWED | DONT_CHANGE_BINDING, INCLUDE_DISALLOWED]
            .into_iter()
            .any(|flags| handle.set_flags(flags));
        if !known {
            return Err(Error::Hwloc(
                "it refuses the flag to include disallowed CPUs".into(),
            ));
        }
        Ok(handle)
    }

    fn raw(&self) -> *mut RawTopology {
        self.raw.as_ptr()
    }

    fn set_flags(&self, flags: c_ulong) -> bool {
        assert!(!self.loaded, "flags come before loading");
        // SAFETY: the handle is initialised and not loaded; hwloc refuses flags it does not know.
        unsafe { hwloc_topology_set_flags(self.raw(), flags) == 0 }
    }

    fn load(&mut self) -> Result<(), Error> {
        assert!(!self.loaded, "hwloc loads a topology once");
        // SAFETY: the handle is initialised and not loaded.
        if unsafe { hwloc_topology_load(self.raw()) } != 0 {
            return Err(Error::Hwloc("it cannot read the machine".into()));
        }
        self.loaded = true;
        Ok(())
    }

    fn is_this_system(&self) -> bool {
        assert!(self.loaded, "only a loaded topology knows");
        // SAFETY: the handle is loaded.
        unsafe { hwloc_topology_is_thissystem(self.raw()) == 1 }
    }

    /// All objects at a depth; the depth of NUMA nodes is negative.
    fn objects(&self, depth: c_int) -> Vec<&TopologyObject> {
        assert!(self.loaded, "only a loaded topology has objects");
        // SAFETY: the handle is loaded; hwloc answers 0 for a depth that is not there.
        let count = unsafe { hwloc_get_nbobjs_by_depth(self.raw(), depth) };
        // SAFETY:
        // - The handle is loaded, and a position that is not there gives null.
        // - An object lives as long as its topology, which is never changed after loading, and the
        //   references borrow from it.
        // - `TopologyObject` is hwloc 2's `struct hwloc_obj` field by field, up to one `int` that it
        //   folds into the padding before `memory_first_child`; it reads neither.
        let object = |index| unsafe { hwloc_get_obj_by_depth(self.raw(), depth, index).as_ref() };
        (0..count).filter_map(object).collect()
    }

    /// The CPUs of the cgroup's cpuset; of a file, those of its recorder.
    fn allowed(&self) -> Option<CpuSet> {
        assert!(self.loaded, "only a loaded topology has sets");
        // SAFETY: the handle is loaded.
        let set = unsafe { hwloc_topology_get_allowed_cpuset(self.raw()) };
        // The set stays hwloc's: `false` says not to free it.
        NonNull::new(set.cast_mut()).map(|set| Bitmap::from_raw(set.as_ptr().cast(), false))
    }

    fn facts(&self, source: Source) -> Result<Facts, Error> {
        assert!(self.loaded, "only a loaded topology has facts");
        // SAFETY: the handle is loaded.
        let pu_depth = unsafe { hwloc_get_type_depth(self.raw(), ObjectType::PU) };
        let allowed = self.allowed();
        let is_allowed = |cpu| allowed.as_ref().is_none_or(|allowed| allowed.is_set(cpu));
        let kinds = self.core_kinds();
        let pus: Vec<PuFacts> = self
            .objects(pu_depth)
            .into_iter()
            .map(|pu| pu_facts(pu, is_allowed, &kinds))
            .collect();
        if pus.is_empty() {
            return Err(Error::Hwloc("it found no CPUs".into()));
        }
        let mut nodes: Vec<NodeFacts> = self
            .objects(NUMA_NODE_DEPTH)
            .into_iter()
            .map(node_facts)
            .collect();
        // A recording that gives no node any memory does not know how much there is.
        if nodes.iter().all(|node| !node.has_memory) {
            nodes.iter_mut().for_each(|node| node.has_memory = true);
        }
        Ok(Facts {
            source,
            pus,
            offline_cpus: Vec::new(),
            isolated_cpus: Vec::new(),
            limits: None,
            nodes,
            distances: self.distances(),
            devices: Vec::new(),
        })
    }

    /// The CPUs of each of hwloc's kinds of cores, and how fast they are among the machine's designs.
    /// Empty unless each kind names its design or its capacity: hwloc makes kinds of their own of equal
    /// cores that reach different clock rates.
    fn core_kinds(&self) -> Vec<(CpuSet, u32)> {
        assert!(self.loaded, "only a loaded topology has kinds of cores");
        // SAFETY: the handle is loaded.
        let count = unsafe { hwloc_cpukinds_get_nr(self.raw(), 0) };
        let kind = |index: c_uint| {
            let set = CpuSet::new();
            let (mut rank, mut n_infos, mut infos) = (-1, 0, ptr::null());
            // SAFETY:
            // - The handle is loaded, and the kind is one of those it has.
            // - `set` is a bitmap of its own, the other three are places for one value each.
            let result = unsafe {
                hwloc_cpukinds_get_info(
                    self.raw(),
                    index,
                    set.as_ptr().cast_mut().cast(),
                    &mut rank,
                    &mut n_infos,
                    &mut infos,
                    0,
                )
            };
            let is_ranked = result == 0 && rank >= 0;
            is_ranked.then(|| (set, design(n_infos, infos)))
        };
        let kinds = (0..c_uint::try_from(count).unwrap_or(0)).map(kind);
        let Some(kinds) = kinds.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let designs: Vec<Design> = kinds.iter().map(|(_, design)| design.clone()).collect();
        let ranks = ranks_of_designs(&designs).unwrap_or_default();
        let sets = kinds.into_iter().map(|(set, _)| set);
        sets.zip(ranks).collect()
    }

    /// The latencies between the nodes, in the order of [`NUMA_NODE_DEPTH`]'s objects.
    fn distances(&self) -> Option<Vec<Vec<u32>>> {
        assert!(self.loaded, "only a loaded topology has distances");
        let mut count: c_uint = 1;
        let mut raw: *mut RawDistances = ptr::null_mut();
        // SAFETY: the handle is loaded, and there is room for `count` pointers.
        let result = unsafe {
            hwloc_distances_get_by_depth(
                self.raw(),
                NUMA_NODE_DEPTH,
                &mut count,
                &mut raw,
                MEANS_LATENCY,
                0,
            )
        };
        let raw = NonNull::new(raw).filter(|_| result == 0 && count > 0)?;
        let rows = self.distance_rows(raw);
        // SAFETY: `raw` came from this topology and is not used after.
        unsafe { hwloc_distances_release(self.raw(), raw.as_ptr()) };
        rows
    }

    fn distance_rows(&self, raw: NonNull<RawDistances>) -> Option<Vec<Vec<u32>>> {
        // SAFETY: hwloc fills the structure, and keeps it until it is released.
        let RawDistances {
            n_objects,
            objects,
            values,
            ..
        } = *unsafe { raw.as_ref() };
        let n = n_objects as usize;
        if n == 0 || objects.is_null() || values.is_null() {
            return None;
        }
        // SAFETY: hwloc promises `n` objects and `n * n` values, valid until the release.
        let (objects, values) = unsafe {
            (
                std::slice::from_raw_parts(objects, n),
                std::slice::from_raw_parts(values, n * n),
            )
        };
        // The objects are in any order, and may be fewer than the nodes.
        let column = |node: &&TopologyObject| objects.iter().position(|&o| ptr::eq(o, *node));
        let order: Vec<Option<usize>> = self.objects(NUMA_NODE_DEPTH).iter().map(column).collect();
        // 0 is no distance: it says that the value is missing.
        let value = |from: Option<usize>, to: Option<usize>| match (from, to) {
            (Some(from), Some(to)) => u32::try_from(values[from * n + to]).unwrap_or(0),
            _ => 0,
        };
        let row = |&from: &Option<usize>| order.iter().map(|&to| value(from, to)).collect();
        Some(order.iter().map(row).collect())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is initialised, and nothing it handed out outlives the borrow of it.
        unsafe { hwloc_topology_destroy(self.raw()) }
    }
}

/// The attributes of one of hwloc's kinds of cores.
#[derive(Clone, Debug, Default)]
struct Design {
    /// `IntelCore` or `IntelAtom`.
    core_type: Option<String>,
    /// The kernel's `cpu_capacity`.
    capacity: Option<u32>,
}

/// For each kind, slowest first, how fast its design is; `None` if they do not all say the same.
fn ranks_of_designs(designs: &[Design]) -> Option<Vec<u32>> {
    let types = designs.iter().map(|design| design.core_type.as_ref());
    if let Some(types) = types.collect::<Option<Vec<_>>>() {
        // Two kinds of one type differ in nothing but their clock rates.
        let first = |name: &&String| types.iter().position(|other| other == name).unwrap_or(0);
        return Some(types.iter().map(|name| first(name) as u32).collect());
    }
    let capacities = designs.iter().map(|design| design.capacity);
    let capacities = capacities.collect::<Option<Vec<_>>>()?;
    let ranks = kinds::ranks(capacities.iter().copied());
    Some(capacities.iter().map(|value| ranks[value]).collect())
}

fn design(n_infos: c_uint, infos: *const RawInfo) -> Design {
    let mut design = Design::default();
    let Some(infos) = NonNull::new(infos.cast_mut()) else {
        return design;
    };
    // SAFETY: hwloc gives `n_infos` pairs of strings, which live as long as the topology.
    let infos = unsafe { std::slice::from_raw_parts(infos.as_ptr(), n_infos as usize) };
    for info in infos {
        if info.name.is_null() || info.value.is_null() {
            continue;
        }
        // SAFETY: a name and a value are strings that end with a zero byte; neither is null.
        let (name, value) = unsafe { (CStr::from_ptr(info.name), CStr::from_ptr(info.value)) };
        let value = value.to_string_lossy();
        if name == c"CoreType" {
            design.core_type = Some(value.into_owned());
        } else if name == c"LinuxCapacity" {
            design.capacity = value.parse().ok();
        }
    }
    design
}

fn pu_facts(
    pu: &TopologyObject,
    is_allowed: impl Fn(u32) -> bool,
    kinds: &[(CpuSet, u32)],
) -> PuFacts {
    let mut core = None;
    let mut package = None;
    let mut l2 = None;
    let mut l3 = None;
    let mut l1d_bytes = None;
    let mut ancestor = pu.parent();
    while let Some(object) = ancestor {
        let place = match object.object_type() {
            ObjectType::Core => Some(&mut core),
            ObjectType::Package => Some(&mut package),
            ObjectType::L2Cache => Some(&mut l2),
            ObjectType::L3Cache => Some(&mut l3),
            _ => None,
        };
        if let Some(place) = place {
            place.get_or_insert(group_facts(object));
        } else if object.object_type() == ObjectType::L1Cache {
            l1d_bytes = group_facts(object).size_bytes;
        }
        ancestor = object.parent();
    }
    let alone = GroupFacts {
        key: (1 << 32) + u64::from(pu.logical_index()),
        ..Default::default()
    };
    let whole_machine = GroupFacts {
        key: 1 << 32,
        ..Default::default()
    };
    PuFacts {
        cpu: pu.os_index() as usize,
        core: core.unwrap_or(alone),
        package: package.unwrap_or(whole_machine),
        l2,
        l3,
        nodes: pu.nodeset().map(ids).unwrap_or_default(),
        allowed: is_allowed(pu.os_index()),
        performance: kinds
            .iter()
            .find(|(kind, _)| kind.is_set(pu.os_index()))
            .map_or(0, |&(_, rank)| rank),
        l1d_bytes,
        l1i_bytes: None, // hwloc leaves out caches of instructions, unless it is asked
        model: None,
    }
}

fn group_facts(object: &TopologyObject) -> GroupFacts {
    let is_cache = matches!(
        object.object_type(),
        ObjectType::L1Cache | ObjectType::L2Cache | ObjectType::L3Cache
    );
    // The attributes are a union: only a cache has a cache's.
    let size = is_cache
        .then(|| object.cache_attributes().map(|cache| cache.size()))
        .flatten();
    GroupFacts {
        key: u64::from(object.logical_index()),
        os_id: Some(object.os_index()).filter(|&id| id != u32::MAX),
        size_bytes: size.filter(|&bytes| bytes > 0),
    }
}

fn node_facts(node: &TopologyObject) -> NodeFacts {
    let memory_bytes = node.total_memory();
    NodeFacts {
        os_id: node.os_index(),
        memory_bytes,
        free_bytes: None,
        has_memory: memory_bytes > 0,
    }
}

/// The ids in a set. An infinite set means "unknown" and has none.
fn ids(set: Bitmap) -> Vec<u32> {
    if set.weight() < 0 {
        Vec::new()
    } else {
        set.into_iter().collect()
    }
}

const INCLUDE_DISALLOWED: c_ulong = 1 << 0;
const DONT_CHANGE_BINDING: c_ulong = 1 << 6;
const MEANS_LATENCY: c_ulong = 1 << 2;
const NUMA_NODE_DEPTH: c_int = -3;

/// `struct hwloc_topology`, opaque.
#[repr(C)]
struct RawTopology {
    _opaque: [u8; 0],
}

/// `struct hwloc_distances_s`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawDistances {
    n_objects: c_uint,
    objects: *mut *mut TopologyObject,
    kind: c_ulong,
    values: *mut u64,
}

/// `struct hwloc_info_s`.
#[repr(C)]
struct RawInfo {
    name: *const c_char,
    value: *const c_char,
}

// The library is linked by `hwloc2`'s build script. Signatures: hwloc.h and hwloc/distances.h, 2.0 and
// later; hwloc/cpukinds.h, 2.4 and later.
unsafe extern "C" {
    fn hwloc_topology_init(topology: *mut *mut RawTopology) -> c_int;
    fn hwloc_topology_set_flags(topology: *mut RawTopology, flags: c_ulong) -> c_int;
    fn hwloc_topology_set_synthetic(topology: *mut RawTopology, text: *const c_char) -> c_int;
    fn hwloc_topology_set_xml(topology: *mut RawTopology, path: *const c_char) -> c_int;
    fn hwloc_topology_load(topology: *mut RawTopology) -> c_int;
    fn hwloc_topology_destroy(topology: *mut RawTopology);
    fn hwloc_topology_is_thissystem(topology: *mut RawTopology) -> c_int;
    fn hwloc_topology_get_allowed_cpuset(topology: *mut RawTopology) -> *const c_void;
    fn hwloc_get_type_depth(topology: *mut RawTopology, kind: ObjectType) -> c_int;
    fn hwloc_get_nbobjs_by_depth(topology: *mut RawTopology, depth: c_int) -> c_uint;
    fn hwloc_get_obj_by_depth(
        topology: *mut RawTopology,
        depth: c_int,
        index: c_uint,
    ) -> *mut TopologyObject;
    fn hwloc_cpukinds_get_nr(topology: *mut RawTopology, flags: c_ulong) -> c_int;
    fn hwloc_cpukinds_get_info(
        topology: *mut RawTopology,
        kind: c_uint,
        cpuset: *mut c_void,
        efficiency: *mut c_int,
        n_infos: *mut c_uint,
        infos: *mut *const RawInfo,
        flags: c_ulong,
    ) -> c_int;
    fn hwloc_distances_get_by_depth(
        topology: *mut RawTopology,
        depth: c_int,
        count: *mut c_uint,
        distances: *mut *mut RawDistances,
        kind: c_ulong,
        flags: c_ulong,
    ) -> c_int;
    fn hwloc_distances_release(topology: *mut RawTopology, distances: *mut RawDistances);
}
