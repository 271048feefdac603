//! The state of the runtime as the page shows it, as JSON: counters, from which the page makes rates, and
//! the goroutines that stand out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass::Handle;
use windlass::debug::Goroutine;
use windlass::metrics::{Histogram, NodeMetrics, PMetrics, PPlace, RuntimeMetrics};

use crate::json::{array, quoted, quoted_or_null};
use crate::prometheus::status_value;

/// The time between two readings.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// With many goroutines, reading takes at most one part in so many of the time.
const SHARE: u32 = 20;
/// How many goroutines a list has.
const TOP: usize = 12;

/// Reads the state, once for all that watch it.
#[derive(Debug)]
pub(crate) struct Sampler {
    handle: Handle,
    begin: Instant,
    last: Mutex<Option<Reading>>,
}

/// A reading.
#[derive(Debug)]
struct Reading {
    at: Instant,
    /// How long it is the latest one.
    lasts: Duration,
    json: Arc<str>,
    /// The CPU times of the goroutines.
    cpu: HashMap<u64, Duration>,
}

impl Sampler {
    pub(crate) fn new(handle: Handle) -> Sampler {
        Sampler {
            handle,
            begin: Instant::now(),
            last: Mutex::new(None),
        }
    }

    /// The state, as of less than a second ago, if there are not millions of goroutines.
    pub(crate) fn state(&self) -> Arc<str> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = &*last
            && reading.at.elapsed() < reading.lasts
        {
            return Arc::clone(&reading.json);
        }
        let reading = self.read(last.as_ref());
        Arc::clone(&last.insert(reading).json)
    }

    fn read(&self, last: Option<&Reading>) -> Reading {
        let at = Instant::now();
        let m = self.handle.metrics();
        let all = self.handle.goroutines();
        let since = last.map_or(Duration::ZERO, |last| at - last.at);
        let nothing = HashMap::new();
        let before = last.map_or(&nothing, |last| &last.cpu);
        let json = format!(
            "{{\"runtime\":{},\"pid\":{},\"at\":{},\"accounting\":{},{},{},{}}}",
            quoted(self.handle.name()),
            std::process::id(),
            at.duration_since(self.begin).as_secs_f64(),
            m.cpu_accounting,
            counters(&m),
            places(&m, &all),
            goroutines(&all, before, since),
        );
        let timed = all.iter().filter_map(|g| Some((g.id, g.cpu_time?)));
        Reading {
            cpu: timed.collect(),
            json: json.into(),
            // A little less than the interval of those that ask.
            lasts: (INTERVAL * 9 / 10).max(at.elapsed() * SHARE),
            at,
        }
    }
}

fn counters(m: &RuntimeMetrics) -> String {
    let total = m.total();
    // Retakes for a timer or a completion come after a fraction of a millisecond, and are no fault.
    let slow = total.retakes_hogs.saturating_sub(total.retakes_due) + total.preemptions;
    let label = |label: &windlass::metrics::LabelMetrics| {
        format!(
            "{{\"name\":{},\"spawned\":{},\"cpu\":{}}}",
            quoted(&label.name),
            label.spawned,
            label.cpu_time.as_secs_f64()
        )
    };
    format!(
        "\"poller\":\"{}\",\"goroutines\":{},\"threads\":{},\"threads_idle\":{},\"stacks\":{},\
         \"rss\":{},\"spawned\":{},\"dispatches\":{},\"parks\":{},\"stolen\":{},\"slow\":{},\
         \"panics\":{},\"sections\":{},\"sections_retaken\":{},\"io_timeouts\":{},\
         \"enters\":{},\"completed\":{},\"labels\":{},\
         \"histograms\":{{\"queue\":{},\"slice\":{},\"gap\":{}}}",
        m.poller,
        m.live_goroutines,
        m.threads,
        m.threads_idle,
        m.stacks,
        status_value("VmRSS:").unwrap_or(0) * 1024,
        total.spawned + m.spawned_outside,
        total.dispatches,
        total.parks,
        total.stolen.total(),
        slow,
        m.detached_panics,
        total.blocking_sections,
        total.retakes_blocking,
        total.io_timeouts,
        total.ring_enters,
        total.ring_completed,
        array(m.labels.iter().map(label)),
        histogram(&total.queue_delays),
        histogram(&total.run_slices),
        histogram(&total.poll_gaps),
    )
}

/// Pairs of the lower bound of a bucket and its count.
fn histogram(histogram: &Histogram) -> String {
    array(
        histogram
            .buckets()
            .map(|(range, n)| format!("[{},{n}]", range.start)),
    )
}

fn places(m: &RuntimeMetrics, all: &[Goroutine]) -> String {
    let node = |node: &NodeMetrics| {
        format!(
            "{{\"id\":{},\"queue\":{},\"idle\":{},\"searching\":{},\"stacks\":{},\"free\":{}}}",
            node.os_id,
            node.queue_depth,
            node.idle_ps,
            node.spinning,
            node.stacks,
            node.stacks_free
        )
    };
    let on: HashMap<usize, &Goroutine> = all.iter().filter_map(|g| Some((g.p?, g))).collect();
    let p = |(place, p): (&PPlace, &PMetrics)| {
        let running = on.get(&place.index).map(|g| one(g, ""));
        format!(
            "{{\"p\":{},\"cpu\":{},\"node\":{},\"idle\":{},\"dispatches\":{},\"stolen\":{},\
             \"queue\":{},\"inflight\":{},\"armed\":{},\"timers\":{},\"running\":{}}}",
            place.index,
            place.cpu,
            place.node,
            p.idle_time.as_secs_f64(),
            p.dispatches,
            p.stolen.total(),
            p.queue_depth,
            p.ring_inflight,
            p.ring_armed,
            p.timers,
            running.unwrap_or_else(|| "null".to_owned()),
        )
    };
    format!(
        "\"nodes\":{},\"ps\":{}",
        array(m.nodes.iter().map(node)),
        array(m.places.iter().zip(&m.ps).map(p))
    )
}

fn goroutines(all: &[Goroutine], before: &HashMap<u64, Duration>, since: Duration) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for g in all {
        *states.entry(g.status()).or_default() += 1;
    }
    let states = states.iter();
    let states = states.map(|(state, n)| format!("[{},{n}]", quoted(state)));
    let used = |g: &Goroutine| {
        let now = g.cpu_time.unwrap_or_default();
        now.saturating_sub(before.get(&g.id).copied().unwrap_or_default())
    };
    let by_cpu = top(all, |g| used(g)).into_iter().map(|g| {
        let share = match since.is_zero() {
            true => 0.0,
            false => used(g).as_secs_f64() / since.as_secs_f64(),
        };
        let cpu = g.cpu_time.unwrap_or_default().as_secs_f64();
        one(g, &format!(",\"share\":{share},\"cpu\":{cpu}"))
    });
    let by_wait = top(all, |g| g.waiting);
    let by_wait = by_wait
        .into_iter()
        .map(|g| one(g, &format!(",\"wait\":{}", g.waiting.as_secs_f64())));
    format!(
        "\"states\":{},\"by_cpu\":{},\"by_wait\":{}",
        array(states),
        array(by_cpu),
        array(by_wait)
    )
}

/// The goroutines with the largest values above zero, the largest first.
fn top(all: &[Goroutine], value: impl Fn(&Goroutine) -> Duration) -> Vec<&Goroutine> {
    let mut found: Vec<_> = all.iter().filter(|g| !value(g).is_zero()).collect();
    let order = |g: &&Goroutine| (Reverse(value(g)), g.id);
    if found.len() > TOP {
        found.select_nth_unstable_by_key(TOP, order);
        found.truncate(TOP);
    }
    found.sort_by_key(order);
    found
}

fn one(g: &Goroutine, more: &str) -> String {
    format!(
        "{{\"id\":{},\"name\":{},\"label\":{},\"state\":{},\"at\":{}{more}}}",
        g.id,
        quoted_or_null(g.name.as_deref()),
        quoted_or_null(g.label.as_deref()),
        quoted(g.status()),
        quoted(&g.spawned_at.to_string()),
    )
}
