//! Messages of clients and servers, and their bytes.
//!
//! Numbers are little-endian and have eight bytes, a text has its length before it, an optional value
//! begins with a byte that is 0 or 1, and so does a choice with the number of its variant.

/// The most bytes of the texts of a command.
pub(super) const MAX_COMMAND_BYTES: usize = 32 << 10;

/// A request of a client. The answer to each command is the value that the key had before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Changes nothing. It is the first entry of each primary, which cannot know how much of the log of
    /// its predecessor is committed until an entry of its own is.
    Nothing,
    Get {
        key: String,
    },
    Put {
        key: String,
        value: String,
    },
    /// Sets the value if the one before is as expected.
    Swap {
        key: String,
        expected: Option<String>,
        value: String,
    },
}

impl Command {
    /// The bytes of its texts.
    pub(super) fn len(&self) -> usize {
        match self {
            Command::Nothing => 0,
            Command::Get { key } => key.len(),
            Command::Put { key, value } => key.len() + value.len(),
            Command::Swap {
                key,
                expected,
                value,
            } => key.len() + value.len() + expected.as_ref().map_or(0, String::len),
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The term of the primary that has made the entry.
    pub(super) term: u64,
    pub(super) client: u64,
    /// The client's number for the command.
    pub(super) number: u64,
    pub(super) command: Command,
}

/// A place in the log: the number of an entry, counted from 1, and the entry's term. Two logs that have
/// an entry with the same position are the same up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u64,
    pub(super) term: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A candidate asks for a vote.
    Vote {
        term: u64,
        candidate: usize,
        /// The end of its log.
        last: Position,
    },
    /// The primary sends entries, or none as a heartbeat.
    Append {
        term: u64,
        primary: usize,
        /// The position before the entries.
        previous: Position,
        entries: Vec<Entry>,
        /// The entries up to this one are committed.
        commit: u64,
        /// The number of the primary's last read.
        read: u64,
    },
    /// A client's command.
    Command {
        client: u64,
        number: u64,
        command: Command,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Vote {
        term: u64,
        granted: bool,
    },
    Append {
        term: u64,
        /// The backup has the primary's log on disk up to here; or, if it does not have the entry
        /// before those that were sent, where the primary should look for one that it has.
        matched: Result<u64, u64>,
    },
    /// The value before the command.
    Done(Option<String>),
    /// This server is not the primary. Maybe that one is.
    Elsewhere(Option<usize>),
}

/// Writes bytes.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Encoder, &T)) {
        self.byte(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn position(&mut self, position: Position) {
        self.number(position.index);
        self.number(position.term);
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Nothing => self.byte(0),
            Command::Get { key } => {
                self.byte(1);
                self.text(key);
            }
            Command::Put { key, value } => {
                self.byte(2);
                self.text(key);
                self.text(value);
            }
            Command::Swap {
                key,
                expected,
                value,
            } => {
                self.byte(3);
                self.text(key);
                self.option(expected.as_ref(), |to, text| to.text(text));
                self.text(value);
            }
        }
    }

    pub(super) fn entry(&mut self, entry: &Entry) {
        self.number(entry.term);
        self.number(entry.client);
        self.number(entry.number);
        self.command(&entry.command);
    }

    pub(super) fn request(&mut self, request: &Request) {
        match request {
            Request::Vote {
                term,
                candidate,
                last,
            } => {
                self.byte(0);
                self.number(*term);
                self.number(*candidate as u64);
                self.position(*last);
            }
            Request::Append {
                term,
                primary,
                previous,
                entries,
                commit,
                read,
            } => {
                self.byte(1);
                self.number(*term);
                self.number(*primary as u64);
                self.position(*previous);
                self.number(*commit);
                self.number(*read);
                self.number(entries.len() as u64);
                entries.iter().for_each(|entry| self.entry(entry));
            }
            Request::Command {
                client,
                number,
                command,
            } => {
                self.byte(2);
                self.number(*client);
                self.number(*number);
                self.command(command);
            }
        }
    }

    pub(super) fn response(&mut self, response: &Response) {
        match response {
            Response::Vote { term, granted } => {
                self.byte(0);
                self.number(*term);
                self.byte((*granted).into());
            }
            Response::Append { term, matched } => {
                self.byte(1);
                self.number(*term);
                self.byte(matched.is_ok().into());
                let (Ok(index) | Err(index)) = matched;
                self.number(*index);
            }
            Response::Done(value) => {
                self.byte(2);
                self.option(value.as_ref(), |to, text| to.text(text));
            }
            Response::Elsewhere(primary) => {
                self.byte(3);
                self.option(primary.as_ref(), |to, id| to.number(*id as u64));
            }
        }
    }
}

/// Reads what an [`Encoder`] has written. Each method returns `None` if the bytes are something else.
#[derive(Debug)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl Decoder<'_> {
    fn bytes(&mut self, n: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn bool(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        let n = self.size()?;
        Some(str::from_utf8(self.bytes(n)?).ok()?.to_owned())
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        Some(match self.bool()? {
            true => Some(read(self)?),
            false => None,
        })
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position {
            index: self.number()?,
            term: self.number()?,
        })
    }

    fn command(&mut self) -> Option<Command> {
        Some(match self.byte()? {
            0 => Command::Nothing,
            1 => Command::Get { key: self.text()? },
            2 => Command::Put {
                key: self.text()?,
                value: self.text()?,
            },
            3 => Command::Swap {
                key: self.text()?,
                expected: self.option(Decoder::text)?,
                value: self.text()?,
            },
            _ => return None,
        })
    }

    pub(super) fn entry(&mut self) -> Option<Entry> {
        Some(Entry {
            term: self.number()?,
            client: self.number()?,
            number: self.number()?,
            command: self.command()?,
        })
    }

    pub(super) fn request(&mut self) -> Option<Request> {
        Some(match self.byte()? {
            0 => Request::Vote {
                term: self.number()?,
                candidate: self.size()?,
                last: self.position()?,
            },
            1 => Request::Append {
                term: self.number()?,
                primary: self.size()?,
                previous: self.position()?,
                commit: self.number()?,
                read: self.number()?,
                entries: {
                    let n = self.number()?;
                    (0..n).map(|_| self.entry()).collect::<Option<_>>()?
                },
            },
            2 => Request::Command {
                client: self.number()?,
                number: self.number()?,
                command: self.command()?,
            },
            _ => return None,
        })
    }

    pub(super) fn response(&mut self) -> Option<Response> {
        Some(match self.byte()? {
            0 => Response::Vote {
                term: self.number()?,
                granted: self.bool()?,
            },
            1 => Response::Append {
                term: self.number()?,
                matched: match self.bool()? {
                    true => Ok(self.number()?),
                    false => Err(self.number()?),
                },
            },
            2 => Response::Done(self.option(Decoder::text)?),
            3 => Response::Elsewhere(self.option(Decoder::size)?),
            _ => return None,
        })
    }
}
