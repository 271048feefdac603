//! `/debug/profile` and `/debug/contention`: profiles in pprof's format, a compressed message of protobuf.
//!
//! The message is google/pprof's `profile.proto`. Few kinds of fields occur in it, so they are written
//! here: a tag, then a number of variable length, or a length and bytes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use windlass::debug::{Frame, Profile, Sample, WaitProfile, WaitSample};

use crate::goroutines::calls;

/// The function that stands for the runtime between two goroutines: it calls one for the part of its work.
const RUNTIME: &str = "[windlass scheduler]";
/// The function of a goroutine whose stack was not found.
const UNKNOWN: &str = "[unknown]";

/// A profile, as it is written.
pub(crate) struct Contents<'a> {
    runtime: &'a str,
    duration: Duration,
    period: Duration,
    /// The second of the two values of a sample, in nanoseconds; the first is a count.
    value: &'static str,
    samples: Vec<Row<'a>>,
}

struct Row<'a> {
    stack: &'a [Frame],
    /// Functions around the stack that are none of the program, the innermost first.
    around: Vec<String>,
    tags: Vec<(&'static str, &'a str)>,
    values: [u64; 2],
}

/// The tags of goroutines.
fn tags<'a>(name: &'a Option<String>, label: &'a Option<String>) -> Vec<(&'static str, &'a str)> {
    let tags = [("goroutine", name), ("label", label)];
    let given = |(key, value): (_, &'a Option<String>)| Some((key, value.as_deref()?));
    tags.into_iter().filter_map(given).collect()
}

impl<'a> From<&'a Profile> for Contents<'a> {
    fn from(profile: &'a Profile) -> Contents<'a> {
        let row = |sample: &'a Sample| Row {
            stack: &sample.stack,
            around: match sample.is_goroutine {
                true if sample.stack.is_empty() => vec![UNKNOWN.to_owned()],
                true => Vec::new(),
                false => {
                    let work = sample.runtime.map(|work| format!("[{work}]"));
                    work.into_iter().chain([RUNTIME.to_owned()]).collect()
                }
            },
            tags: tags(&sample.name, &sample.label),
            values: [sample.count, sample.cpu_time.as_nanos() as u64],
        };
        Contents {
            runtime: &profile.runtime,
            duration: profile.duration,
            period: profile.period,
            value: "cpu",
            samples: profile.samples.iter().map(row).collect(),
        }
    }
}

impl<'a> From<&'a WaitProfile> for Contents<'a> {
    fn from(profile: &'a WaitProfile) -> Contents<'a> {
        let row = |sample: &'a WaitSample| {
            let mut tags = tags(&sample.name, &sample.label);
            tags.push(("reason", sample.reason));
            let is_unknown = sample.stack.is_empty();
            Row {
                stack: &sample.stack,
                around: is_unknown.then(|| UNKNOWN.to_owned()).into_iter().collect(),
                tags,
                values: [sample.count, sample.waited.as_nanos() as u64],
            }
        };
        Contents {
            runtime: &profile.runtime,
            duration: profile.duration,
            period: profile.period,
            value: "delay",
            samples: profile.samples.iter().map(row).collect(),
        }
    }
}

/// Writes a profile that was taken until now.
pub(crate) fn write<'a>(profile: impl Into<Contents<'a>>, writer: impl Write) -> io::Result<()> {
    let mut writer = GzEncoder::new(writer, Compression::fast());
    writer.write_all(&encoded(&profile.into()))?;
    writer.finish()?.flush()
}

/// The numbers of the message's fields, in `profile.proto`.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
}

fn encoded(profile: &Contents<'_>) -> Vec<u8> {
    let mut tables = Tables::default();
    // The first string is the empty one.
    tables.string("");
    let mut out = Message::default();
    for (kind, unit) in [("samples", "count"), (profile.value, "nanoseconds")] {
        out.message(field::SAMPLE_TYPE, &tables.value_type(kind, unit));
    }
    for sample in &profile.samples {
        out.message(field::SAMPLE, &tables.sample(sample));
    }
    let ended = SystemTime::now().duration_since(UNIX_EPOCH);
    let began = ended.unwrap_or_default().saturating_sub(profile.duration);
    out.number(field::TIME_NANOS, began.as_nanos() as u64);
    out.number(field::DURATION_NANOS, profile.duration.as_nanos() as u64);
    out.message(
        field::PERIOD_TYPE,
        &tables.value_type(profile.value, "nanoseconds"),
    );
    out.number(field::PERIOD, profile.period.as_nanos() as u64);
    let comment = tables.string(&format!("runtime {}", profile.runtime));
    out.number(field::COMMENT, comment);
    for location in &tables.locations {
        out.message(field::LOCATION, location);
    }
    for function in &tables.functions {
        out.message(field::FUNCTION, function);
    }
    for text in &tables.strings {
        out.bytes(field::STRING, text.as_bytes());
    }
    out.0
}

/// Tables that samples refer to by number: strings from 0, locations and functions from 1.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, u64>,
    functions: Vec<Message>,
    function_ids: HashMap<(String, String), u64>,
    locations: Vec<Message>,
    /// By address, and by the innermost function: the places without an address have none.
    location_ids: HashMap<(usize, String), u64>,
}

impl Tables {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        let id = self.strings.len() as u64;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut out = Message::default();
        out.number(1, self.string(kind));
        out.number(2, self.string(unit));
        out
    }

    fn sample(&mut self, sample: &Row<'_>) -> Message {
        let mut locations = Vec::new();
        for frames in calls(sample.stack) {
            locations.push(self.location(frames));
        }
        for name in &sample.around {
            locations.push(self.place(name));
        }
        let mut out = Message::default();
        out.packed(1, &locations);
        out.packed(2, &sample.values);
        for (key, value) in &sample.tags {
            let mut label = Message::default();
            label.number(1, self.string(key));
            label.number(2, self.string(value));
            out.message(3, &label);
        }
        out
    }

    /// The location of an address with its functions, the innermost first.
    fn location(&mut self, frames: &[Frame]) -> u64 {
        let address = frames.first().map_or(0, |frame| frame.address);
        let innermost = frames.first().and_then(|frame| frame.function.as_deref());
        let key = (address, innermost.unwrap_or_default().to_owned());
        if let Some(&id) = self.location_ids.get(&key) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        let mut out = Message::default();
        out.number(1, id);
        out.number(3, address as u64);
        for frame in frames {
            let name = match &frame.function {
                Some(name) => name.to_string(),
                None => format!("{:#x}", frame.address),
            };
            let function = self.function(&name, frame.file.as_deref().unwrap_or_default());
            let mut line = Message::default();
            line.number(1, function);
            line.number(2, frame.line.unwrap_or(0).into());
            out.message(4, &line);
        }
        self.locations.push(out);
        self.location_ids.insert(key, id);
        id
    }

    /// A location that is no address.
    fn place(&mut self, name: &str) -> u64 {
        let key = (0, name.to_owned());
        if let Some(&id) = self.location_ids.get(&key) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        let mut line = Message::default();
        line.number(1, self.function(name, ""));
        let mut out = Message::default();
        out.number(1, id);
        out.message(4, &line);
        self.locations.push(out);
        self.location_ids.insert(key, id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        if let Some(&id) = self.function_ids.get(&key) {
            return id;
        }
        let id = self.functions.len() as u64 + 1;
        let mut out = Message::default();
        let name = self.string(name);
        out.number(1, id);
        out.number(2, name);
        out.number(3, name);
        out.number(4, self.string(file));
        self.functions.push(out);
        self.function_ids.insert(key, id);
        id
    }
}

/// A message of protobuf.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field that is a number. 0 is what a missing field means.
    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// A field that is a string or bytes.
    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// A repeated field of numbers.
    fn packed(&mut self, field: u32, values: &[u64]) {
        let mut all = Message::default();
        values.iter().for_each(|&value| all.varint(value));
        self.message(field, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_length_that_they_need() {
        let mut out = Message::default();
        out.number(1, 0);
        out.number(1, 150);
        out.bytes(2, b"testing");
        out.packed(4, &[3, 270, 86942]);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07],
            b"testing",
            &[0x22, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
        ];
        assert_eq!(out.0, expected.concat());
    }
}
