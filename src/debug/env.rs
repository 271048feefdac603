//! The settings in the environment variables `WINDLASS_DEBUG` and `WINDLASS_PROCS`.

use std::ffi::OsString;
use std::fmt::Write;
use std::time::Duration;

use crate::config::MAX_PROCESSORS;
use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::race;
use crate::sys::signal;

/// The variable's name.
const NAME: &str = "WINDLASS_DEBUG";

/// The settings in the variable. `None`: not set there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The interval of scheduler lines; zero means never.
    pub(crate) schedtrace: Option<Duration>,
    pub(crate) scheddetail: Option<bool>,
    pub(crate) live: Option<bool>,
    pub(crate) deadlock: Option<bool>,
}

/// Reads the variable. Invalid parts are ignored and reported on stderr, once per process.
pub(crate) fn settings() -> Settings {
    let Some(value) = std::env::var_os(NAME) else {
        return Settings::default();
    };
    let (settings, complaint) = parse(value);
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !complaint.is_empty() && !WARNED.swap(true, Ordering::Relaxed) {
        signal::report(format_args!(
            "{NAME}: {complaint}; it takes schedtrace=milliseconds, scheddetail=0 or 1, \
             live=0 or 1 and deadlock=0 or 1, with commas between them"
        ));
    }
    settings
}

/// The value of `WINDLASS_PROCS`. An invalid value is reported on stderr and ignored.
pub(crate) fn processors() -> Option<usize> {
    let value = std::env::var_os("WINDLASS_PROCS").filter(|v| !v.is_empty())?;
    let n = value.to_str().and_then(|v| v.trim().parse().ok());
    let n = n.filter(|n| (1..=MAX_PROCESSORS).contains(n));
    if n.is_none() {
        signal::report(format_args!(
            "WINDLASS_PROCS={} is not heeded: it must be a number from 1 to \
             {MAX_PROCESSORS}",
            value.to_string_lossy()
        ));
    }
    n
}

/// The variables that windlass reads, and the feature that one needs.
const NAMES: &[(&str, bool, &str)] = &[
    ("WINDLASS_CHAOS", cfg!(feature = "chaos"), "chaos"),
    (NAME, true, ""),
    ("WINDLASS_IO", true, ""),
    ("WINDLASS_PROCS", true, ""),
    ("WINDLASS_RACE", cfg!(feature = "race"), "race"),
    ("WINDLASS_SIM_SCHEDULE", cfg!(feature = "sim"), "sim"),
    ("WINDLASS_SIM_SEED", cfg!(feature = "sim"), "sim"),
    ("WINDLASS_SIM_SEEDS", cfg!(feature = "sim"), "sim"),
    ("WINDLASS_SIM_TRACE", cfg!(feature = "sim"), "sim"),
];

/// Reports variables without effect on stderr, once per process: those whose name is nearly that of
/// a variable that windlass reads, and those that need a feature. And the feature `race` without its target.
pub(crate) fn warn_of_names() {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if WARNED.swap(true, Ordering::Relaxed) {
        return;
    }
    if race::is_in_vain() {
        signal::write_stderr(
            b"windlass: the feature race has no effect: the program is not built with \
              --target x86_64-unknown-linux-gnutsan (docs/guide/data-races.md)\n",
        );
    }
    for (name, value) in std::env::vars_os() {
        if let Some(complaint) = name.to_str().and_then(complaint_of)
            && !value.is_empty()
        {
            signal::write_stderr(complaint.as_bytes());
        }
    }
}

fn complaint_of(name: &str) -> Option<String> {
    if !name.starts_with("WINDLASS_") {
        return None;
    }
    let known = NAMES.iter().find(|(known, ..)| *known == name);
    if let Some((_, is_built_in, feature)) = known {
        return (!is_built_in).then(|| {
            format!(
                "windlass: {name} has no effect: windlass was built without the feature {feature}\n"
            )
        });
    }
    let (near, ..) = NAMES.iter().find(|(known, ..)| is_near(known, name))?;
    Some(format!(
        "windlass: {name} has no effect: the variable is {near}\n"
    ))
}

/// Whether one letter too many, too few, another, or two that changed places make `b` of `a`.
fn is_near(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let n_same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[n_same..], &b[n_same..]);
    match (a, b) {
        ([], [_]) | ([_], []) => true,
        ([_, a_rest @ ..], [_, b_rest @ ..]) => {
            let swapped =
                matches!((a, b), ([p, q, x @ ..], [r, s, y @ ..]) if (p, q) == (s, r) && x == y);
            a_rest == b_rest || a == b_rest || a_rest == b || swapped
        }
        _ => false,
    }
}

/// Parses a value into settings and a complaint, which is empty if all parts are valid.
fn parse(value: OsString) -> (Settings, String) {
    let mut settings = Settings::default();
    let mut complaint = String::new();
    let Ok(value) = value.into_string() else {
        return (settings, "the value is not UTF-8 and is ignored".to_owned());
    };
    for part in value.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        if !settings.take(part) {
            let sep = if complaint.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(complaint, "{sep}{part:?}");
        }
    }
    if !complaint.is_empty() {
        complaint.push_str(" is not understood and is ignored");
    }
    (settings, complaint)
}

impl Settings {
    fn take(&mut self, part: &str) -> bool {
        let Some((key, value)) = part.split_once('=') else {
            return false;
        };
        match (key.trim(), value.trim()) {
            ("schedtrace", ms) => match ms.parse::<u32>() {
                Ok(ms) => self.schedtrace = Some(Duration::from_millis(ms.into())),
                Err(_) => return false,
            },
            ("scheddetail", "0") => self.scheddetail = Some(false),
            ("scheddetail", "1") => self.scheddetail = Some(true),
            ("live", "0") => self.live = Some(false),
            ("live", "1") => self.live = Some(true),
            ("deadlock", "0") => self.deadlock = Some(false),
            ("deadlock", "1") => self.deadlock = Some(true),
            _ => return false,
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn what_is_understood_is_taken() {
        let (settings, complaint) =
            parse(" schedtrace=1000, scheddetail=1,live=1,deadlock=0,".into());
        assert_eq!(settings.live, Some(true));
        assert_eq!(settings.deadlock, Some(false));
        assert_eq!(settings.schedtrace, Some(Duration::from_secs(1)));
        assert_eq!(settings.scheddetail, Some(true));
        assert_eq!(complaint, "");
        assert_eq!(parse(OsString::new()), (Settings::default(), String::new()));
    }

    #[test]
    fn the_rest_is_named() {
        for bad in [
            "schedtrace",
            "schedtrace=",
            "schedtrace=-1",
            "scheddetail=2",
            "gctrace=1",
            "live=yes",
            "deadlock=on",
            "==",
        ] {
            let (settings, complaint) = parse(format!("schedtrace=5,{bad}").into());
            assert_eq!(settings.schedtrace, Some(Duration::from_millis(5)));
            assert!(complaint.contains(bad), "{complaint}");
        }
        let (settings, complaint) = parse(OsString::from_vec(vec![0xff, b'=', b'1']));
        assert_eq!(settings, Settings::default());
        assert!(complaint.contains("UTF-8"));
    }

    #[test]
    fn a_name_that_is_nearly_one_is_reported_with_that_one() {
        for (name, near) in [
            ("WINDLASS_PROC", "WINDLASS_PROCS"),
            ("WINDLASS_PORCS", "WINDLASS_PROCS"),
            ("WINDLASS_PROCSS", "WINDLASS_PROCS"),
            ("WINDLASS_DEBUF", "WINDLASS_DEBUG"),
            ("WINDLASS_OI", "WINDLASS_IO"),
        ] {
            let text = complaint_of(name).unwrap();
            let says = format!("{name} has no effect: the variable is {near}\n");
            assert!(text.ends_with(&says), "{text}");
        }
        for other in ["WINDLASS_PROCS", "WINDLASS_MY_PROGRAM", "WINDLASS_", "PATH"] {
            assert_eq!(complaint_of(other), None);
        }
        let chaos = complaint_of("WINDLASS_CHAOS");
        assert_eq!(chaos.is_none(), cfg!(feature = "chaos"), "{chaos:?}");
    }
}
