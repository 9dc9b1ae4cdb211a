//! RESP2 and RESP3 onto the end of a byte vector.

use super::fault::code;

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Resp2 = 2,
    Resp3 = 3,
}

/// Appends replies. Aggregates are a header and then as many elements.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    failed: Option<&'a mut Vec<Failed>>,
}

/// A command that failed after its turn had come: its name, and the code of its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub command: &'static str,
    pub code: Box<[u8]>,
}

impl<'a> Encoder<'a> {
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Encoder<'a> {
        Encoder { out, protocol, failed: None }
    }

    /// One that notes the commands that fail.
    pub fn noting(out: &'a mut Vec<u8>, protocol: Protocol, failed: &'a mut Vec<Failed>) -> Encoder<'a> {
        Encoder { out, protocol, failed: Some(failed) }
    }

    /// From here on in another version of the protocol.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Bytes that are a reply already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.number_line(b':', value);
    }

    /// A number as a bulk string.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.bulk(digits.format(value).as_bytes());
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number_line(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn bulk_or_null(&mut self, value: Option<i64>) {
        match value {
            Some(value) => self.bulk_integer(value),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Nothing where a list was asked for.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error, its code first. Line ends in it, which may come from a client's argument, become spaces.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// The error of a command.
    #[cold]
    pub fn fail(&mut self, command: &'static str, text: &[u8]) {
        if let Some(failed) = &mut self.failed {
            failed.push(Failed { command, code: code(text).into() });
        }
        self.error(text);
    }

    pub fn array(&mut self, len: usize) {
        self.number_line(b'*', len as i64);
    }

    /// `pairs` keys, each followed by its value; RESP2 knows them as an array twice as long.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number_line(b'*', 2 * pairs as i64),
            Protocol::Resp3 => self.number_line(b'%', pairs as i64),
        }
    }

    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number_line(b'*', len as i64),
            Protocol::Resp3 => self.number_line(b'~', len as i64),
        }
    }

    /// Text for a person to read.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.number_line(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    #[inline]
    fn number_line(&mut self, marker: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.out.push(marker);
        self.out.extend_from_slice(digits.format(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Encoder<'_>), resp2: &str, resp3: &str) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Vec::new();
            write(&mut Encoder::new(&mut out, protocol));
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{protocol:?}");
        }
    }

    #[test]
    fn scalars_are_the_same_in_both_protocols() {
        check(|e| e.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        check(|e| e.bulk_integer(-7), "$2\r\n-7\r\n", "$2\r\n-7\r\n");
        check(|e| e.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
        check(|e| e.simple("OK"), "+OK\r\n", "+OK\r\n");
        check(|e| e.array(3), "*3\r\n", "*3\r\n");
    }

    #[test]
    fn nothing_maps_sets_and_texts_have_their_own_types_in_resp3() {
        check(|e| e.null(), "$-1\r\n", "_\r\n");
        check(|e| e.null_array(), "*-1\r\n", "_\r\n");
        check(|e| e.map(2), "*4\r\n", "%2\r\n");
        check(|e| e.set(2), "*2\r\n", "~2\r\n");
        check(|e| e.verbatim("a\r\n"), "$3\r\na\r\n\r\n", "=7\r\ntxt:a\r\n\r\n");
    }

    #[test]
    fn a_client_cannot_smuggle_a_line_end_into_an_error() {
        check(|e| e.error(b"ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
    }
}
