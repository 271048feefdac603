//! The machine that the twin simulates: where its CPUs lie, and the price of each thing that a thread
//! does there. `docs/SCALE.md` has the source of each price.

/// Where a CPU lies: numbers that are equal for CPUs that share the thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its core.
    pub core: usize,
    /// Its level 3 cache.
    pub l3: usize,
    /// Its NUMA node.
    pub node: usize,
}

/// The distance over which a cache line comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Between hardware threads of a core.
    Core,
    /// Between cores of a level 3 cache.
    L3,
    /// Between level 3 caches of a node.
    Node,
    /// Between nodes.
    Remote,
}

/// All levels, nearest first.
pub const LEVELS: [Level; 4] = [Level::Core, Level::L3, Level::Node, Level::Remote];

/// Prices in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// The instructions between two points. Fitted, and not measured.
    pub between: u64,
    /// A read-modify-write, or a fence, on a line that the core owns.
    pub rmw: u64,
    /// A line from another CPU, by [`Level`].
    pub transfer: [u64; 4],
    /// The first access to a line.
    pub first: u64,
    /// A pause in a loop that waits.
    pub pause: u64,
    /// A reading of the clock.
    pub clock: u64,
    /// From a goroutine to its thread's stack, or back.
    pub switch: u64,
    /// A system call that does nothing: what each visit of the kernel costs at least.
    pub syscall: u64,
    /// What sending on a socket costs beyond the call, with the way of the bytes to the other end.
    pub send: u64,
    /// What receiving costs beyond the call.
    pub receive: u64,
    /// What an operation of a ring costs the kernel each time that it looks at it: to wait for the descriptor, or
    /// to be told of it and to complete it.
    pub operation: u64,
    /// What falling asleep in the kernel costs a thread, beyond the call.
    pub sleep: u64,
    /// What a wake costs the thread that wakes, beyond the call.
    pub wake: u64,
    /// From a wake to the first instruction of the thread on an idle CPU.
    pub wake_latency: u64,
    /// From one thread of a CPU to the next.
    pub thread_switch: u64,
    /// How long a thread runs before another one of its CPU has its turn.
    pub slice: u64,
    /// What starting a thread costs the one that starts it.
    pub start: u64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its CPUs, by their number.
    pub cpus: Vec<Place>,
    /// Its prices.
    pub prices: Prices,
}

impl Machine {
    /// How far a line has to go; `None` inside of a CPU.
    pub(super) fn level(&self, from: usize, to: usize) -> Option<Level> {
        let (a, b) = (self.cpus[from], self.cpus[to]);
        match () {
            () if from == to => None,
            () if a.core == b.core => Some(Level::Core),
            () if a.l3 == b.l3 => Some(Level::L3),
            () if a.node == b.node => Some(Level::Node),
            () => Some(Level::Remote),
        }
    }
}
