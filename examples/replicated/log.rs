//! The log on disk: one file, to whose end records are written.
//!
//! A record is its length, its checksum, and its bytes. Of the records that were not synced when the
//! power went, any part may be there. So the first one that is not whole ends the log: nothing after
//! it was acknowledged.
//!
//! An entry whose index is there already replaces that entry, and all after it. Recovery writes what
//! counts into a new file, which takes the place of the old one. This has three uses: it removes the broken
//! tail; it removes what was replaced; and it syncs what was found. A process that was killed may have
//! written records and not synced them. The next one reads them from the page cache, and must not take them
//! for durable.

use std::path::Path;

use windlass::fs::{self, File};
use windlass::io::{self, ErrorKind, Write};

use super::protocol::{Decoder, Encoder, Entry};

/// A fact that has to be on disk before a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The server is in this term, and has voted for that server in it.
    Term { term: u64, vote: Option<usize> },
    /// An entry and its index.
    Entry(u64, Entry),
}

/// The state that was found on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) term: u64,
    pub(super) vote: Option<usize>,
    pub(super) entries: Vec<Entry>,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Log(File);

impl Log {
    /// Opens the log in a directory, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// Those of the file system. `InvalidData` if the file was not written by this program.
    pub(super) fn open(dir: &Path) -> io::Result<(Log, Found)> {
        fs::create_dir_all(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| *parent != Path::new("")) {
            sync_dir(parent)?;
        }
        let (path, new_path) = (dir.join("log"), dir.join("log.new"));
        let found = match fs::read(&path) {
            Ok(bytes) => read_records(&bytes)?,
            Err(e) if e.kind() == ErrorKind::NotFound => Found::default(),
            Err(e) => return Err(e),
        };
        let mut log = Log(File::create(&new_path)?);
        let (term, vote) = (found.term, found.vote);
        let mut records = vec![Record::Term { term, vote }];
        let entries = found.entries.iter().cloned();
        records.extend((1..).zip(entries).map(|(n, entry)| Record::Entry(n, entry)));
        log.write(&records)?;
        log.sync()?;
        fs::rename(&new_path, &path)?;
        sync_dir(dir)?;
        Ok((log, found))
    }

    /// Writes records to the end of the file. They are durable after [`Log::sync`].
    pub(super) fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        records
            .iter()
            .for_each(|record| write_record(&mut bytes, record));
        self.0.write_all(&bytes)
    }

    /// Waits until the disk has all that was written. After an error nobody knows what the disk has, and
    /// another sync would not tell: the server has to start again.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// The names in a directory are durable after this.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The length and the checksum.
const HEAD_BYTES: usize = 8;

fn write_record(to: &mut Vec<u8>, record: &Record) {
    let mut body = Encoder::default();
    match record {
        Record::Term { term, vote } => {
            body.byte(0);
            body.number(*term);
            body.option(vote.as_ref(), |to, id| to.number(*id as u64));
        }
        Record::Entry(index, entry) => {
            body.byte(1);
            body.number(*index);
            body.entry(entry);
        }
    }
    to.extend_from_slice(&(body.0.len() as u32).to_le_bytes());
    to.extend_from_slice(&crc32fast::hash(&body.0).to_le_bytes());
    to.extend_from_slice(&body.0);
}

/// The state that records give, up to the first that is not whole.
fn read_records(mut bytes: &[u8]) -> io::Result<Found> {
    let mut found = Found::default();
    while let Some((record, rest)) = read_record(bytes) {
        bytes = rest;
        match record {
            Record::Term { term, vote } => (found.term, found.vote) = (term, vote),
            Record::Entry(index, entry) => {
                let n_before = index as usize - 1;
                if n_before > found.entries.len() {
                    let why = format!("the log has entry {index}, and not the one before it");
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
                found.entries.truncate(n_before);
                found.entries.push(entry);
            }
        }
    }
    Ok(found)
}

fn read_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (n_bytes, sum) = head.split_at(4);
    let n_bytes = u32::from_le_bytes(n_bytes.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(sum.try_into().ok()?);
    let (body, rest) = rest.split_at_checked(n_bytes)?;
    // Bytes that were lost are zeros, and 0 is the checksum of nothing.
    if body.is_empty() || crc32fast::hash(body) != sum {
        return None;
    }
    let mut body = Decoder(body);
    let record = match body.byte()? {
        0 => Record::Term {
            term: body.number()?,
            vote: body.option(Decoder::size)?,
        },
        1 => Record::Entry(body.number().filter(|&index| index > 0)?, body.entry()?),
        _ => return None,
    };
    body.0.is_empty().then_some((record, rest))
}
