//! A reader of a log that is being written gets complete events, in order.

use super::*;
use crate::loom::models::{self, Arc, thread};

#[test]
fn loom_event_log_is_never_torn() {
    models::run(|| {
        let log = Arc::new(EventLog::new(2 * size_of::<Event>()));
        // The reader is the new thread. loom reorders an access with the last one of another thread only, and the
        // writer reads what it writes: the other way round it would try 15 orders.
        let reader = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.copy())
        };
        (1..=3).for_each(|i| log.push([i, i, i]));
        let events = reader.join().unwrap();
        for e in &events {
            assert!(e[0] > 0 && e[0] == e[1] && e[1] == e[2], "{e:?}");
        }
        for pair in events.windows(2) {
            assert_eq!(pair[0][0] + 1, pair[1][0]);
        }
        assert_eq!(log.copy(), [[2; 3], [3; 3]]);
    });
}
