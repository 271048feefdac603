//! The settings in the environment variable `WINDLASS_DEBUG`.

use std::ffi::OsString;
use std::fmt::Write;
use std::io::Write as _;
use std::time::Duration;

use crate::loom::native::atomic::{AtomicBool, Ordering};

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
        let line = format!(
            "windlass: {NAME}: {complaint}; it takes schedtrace=milliseconds, scheddetail=0 or 1, \
             live=0 or 1 and deadlock=0 or 1, with commas between them\n"
        );
        // If stderr is closed, the report is lost.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    settings
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
}
