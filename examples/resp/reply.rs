//! Answers, as bytes.

/// Appends answers to the output buffer.
pub(super) struct Reply<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Whether the client speaks version 3 of the protocol.
    pub(super) is_resp3: bool,
}

impl Reply<'_> {
    /// A short text without line ends.
    pub(super) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.line(text);
    }

    pub(super) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// An error. Its first word is the error code; line ends become spaces, as the text may quote
    /// the client's input.
    pub(super) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let begin = self.out.len();
        self.line(text);
        let end = self.out.len() - 2;
        for byte in &mut self.out[begin..end] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    pub(super) fn integer(&mut self, n: i64) {
        self.header(b':', n);
    }

    /// A count.
    pub(super) fn count(&mut self, n: usize) {
        self.integer(n as i64);
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null, in place of a bulk string.
    pub(super) fn null(&mut self) {
        let text: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(text);
    }

    /// Null, in place of an array.
    pub(super) fn null_array(&mut self) {
        let text: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(text);
    }

    /// The head of an array; its `n` elements follow.
    pub(super) fn array(&mut self, n: usize) {
        self.header(b'*', n as i64);
    }

    /// The head of a map; `n` keys with their values follow.
    pub(super) fn map(&mut self, n: usize) {
        match self.is_resp3 {
            true => self.header(b'%', n as i64),
            false => self.header(b'*', 2 * n as i64),
        }
    }

    /// The head of a push message, which answers no command; its `n` elements follow.
    pub(super) fn push(&mut self, n: usize) {
        self.header(if self.is_resp3 { b'>' } else { b'*' }, n as i64);
    }

    fn line(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, n: i64) {
        self.out.push(kind);
        decimal(self.out, n);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a number in decimal digits. Formatting with `write!` would take a quarter of the time of
/// a short answer.
pub(super) fn decimal(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}
