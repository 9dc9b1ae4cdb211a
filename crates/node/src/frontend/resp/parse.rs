//! Requests out of bytes: an array of bulk strings, or a line of words as a person types it.
//!
//! The parser borrows: a command is a list of spans over the input, and the list is reused. It reads each byte once,
//! however the network cuts the stream: what it knows of an unfinished command stays with it, so a command that
//! arrives in a million pieces costs no more than one that arrives whole. Errors are worded as Redis words them, and
//! after one the connection must be closed, because nobody knows where the next command begins.

use super::inline;
use super::integer::parse_i64;
use tally_core::limits;

/// Where one argument stands.
#[derive(Clone, Copy, Debug)]
struct TextSpan {
    start: u32,
    len: u32,
}

/// One command and its arguments, the name first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [TextSpan],
}

impl<'a> Args<'a> {
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let TextSpan { start, len } = self.spans[index];
        &self.bytes[start as usize..][..len as usize]
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans[index.min(self.spans.len())..]
            .iter()
            .map(move |span| &bytes[span.start as usize..][..span.len as usize])
    }
}

/// Commands that are carried out later, with bytes of their own.
#[derive(Default)]
pub struct KeptCommand {
    bytes: Vec<u8>,
    spans: Vec<TextSpan>,
    /// Where the spans of each command end.
    ends: Vec<u32>,
}

impl KeptCommand {
    pub fn push(&mut self, args: Args<'_>) {
        for argument in args.from(0) {
            self.spans.push(TextSpan { start: self.bytes.len() as u32, len: argument.len() as u32 });
            self.bytes.extend_from_slice(argument);
        }
        self.ends.push(self.spans.len() as u32);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory that it takes once another command is in it.
    pub fn bytes_with(&self, args: Args<'_>) -> usize {
        self.bytes()
            + args.from(0).map(|argument| argument.len() + size_of::<TextSpan>()).sum::<usize>()
            + size_of::<u32>()
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans) + size_of_val(&*self.ends)
    }

    pub fn iter(&self) -> impl Iterator<Item = Args<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| Args { bytes: &self.bytes, spans: &self.spans[start as usize..*end as usize] })
    }
}

/// What stood at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum ParseStep {
    /// The input ends before the command does.
    Incomplete,
    /// A command of that many bytes; [`Parser::args`] has it until the next call.
    Command(usize),
    /// That many bytes without a command in them, such as an empty line.
    Nothing(usize),
}

/// What is allowed on this connection now.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    arguments: i64,
    bulk_bytes: i64,
    authenticated: bool,
}

impl Allowance {
    /// Strangers may send just enough to introduce themselves.
    pub fn new(authenticated: bool) -> Allowance {
        match authenticated {
            true => Allowance {
                arguments: limits::RESP_ARGUMENTS_MAX,
                bulk_bytes: limits::RESP_BULK_BYTES_MAX,
                authenticated,
            },
            false => Allowance {
                arguments: limits::RESP_ARGUMENTS_STRANGER_MAX,
                bulk_bytes: limits::RESP_BULK_BYTES_STRANGER_MAX,
                authenticated,
            },
        }
    }

    /// One command with all its arguments, in bytes.
    pub fn query_bytes_max(self) -> usize {
        match self.authenticated {
            true => limits::RESP_QUERY_BYTES_MAX,
            false => limits::RESP_QUERY_BYTES_STRANGER_MAX,
        }
    }

    pub fn too_big_a_request(self) -> ProtocolError {
        match self.authenticated {
            true => ProtocolError::TooBigRequest,
            false => ProtocolError::StrangersRequest,
        }
    }

    fn too_many_arguments(self, count: i64) -> ProtocolError {
        match self.authenticated || count > limits::RESP_ARGUMENTS_MAX {
            true => ProtocolError::InvalidMultibulkLength,
            false => ProtocolError::StrangersMultibulkLength,
        }
    }

    fn too_long_a_bulk(self, len: i64) -> ProtocolError {
        match self.authenticated || len > limits::RESP_BULK_BYTES_MAX {
            true => ProtocolError::InvalidBulkLength,
            false => ProtocolError::StrangersBulkLength,
        }
    }
}

/// The stream makes no sense. The texts are Redis'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("invalid multibulk length")]
    InvalidMultibulkLength,
    #[error("unauthenticated multibulk length")]
    StrangersMultibulkLength,
    #[error("too big mbulk count string")]
    TooBigCountLine,
    #[error("invalid bulk length")]
    InvalidBulkLength,
    #[error("unauthenticated bulk length")]
    StrangersBulkLength,
    #[error("too big bulk count string")]
    TooBigLengthLine,
    #[error("expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    #[error("too big inline request")]
    TooBigInline,
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("too big request: the arguments of one command must fit into {} bytes", limits::RESP_QUERY_BYTES_MAX)]
    TooBigRequest,
    #[error("unauthenticated request of more than {} bytes", limits::RESP_QUERY_BYTES_STRANGER_MAX)]
    StrangersRequest,
}

#[derive(Default)]
pub struct Parser {
    spans: Vec<TextSpan>,
    /// Arguments of the current command that are still to come.
    missing: usize,
    /// How far the current command has been read, from its first byte on.
    at: usize,
    /// The length of the argument at `at`, if its length line has been read.
    bulk: Option<usize>,
    /// The words of an inline command, unquoted; unused by arrays.
    words: Vec<u8>,
    is_inline: bool,
}

impl Parser {
    /// Reads on in `input`, which begins with the first byte of the current command.
    #[inline]
    pub fn step(&mut self, input: &[u8], allowance: Allowance) -> Result<ParseStep, ProtocolError> {
        if self.missing > 0 {
            return self.arguments(input, allowance);
        }
        match input.first() {
            None => Ok(ParseStep::Incomplete),
            Some(b'*') => self.array(input, allowance),
            Some(_) => self.line(input),
        }
    }

    /// Takes in by far the most frequent command at a glance: the id of a complete `INCR` at the front of `input`, and
    /// the length of the command. Whatever it does not recognise, [`Self::step`] reads.
    #[inline]
    pub fn glance<'a>(&self, input: &'a [u8]) -> Option<(&'a [u8], usize)> {
        let (head, rest) = input.split_first_chunk::<14>()?;
        let is_incr = head[..8] == *b"*2\r\n$4\r\n" && is_incr(&head[8..12]) && head[12..] == *b"\r\n";
        if !is_incr || !self.is_idle() {
            return None;
        }
        let (len, line_len) = short_bulk_line(rest)?;
        let argument = rest.get(line_len..line_len + len + 2)?;
        Some((&argument[..len], head.len() + line_len + len + 2))
    }

    /// The command that the last [`ParseStep::Command`] found in `input`.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { bytes: if self.is_inline { &self.words } else { input }, spans: &self.spans }
    }

    /// Whether nothing of a command has been read yet.
    pub fn is_idle(&self) -> bool {
        self.missing == 0
    }

    /// What it takes of the memory.
    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<TextSpan>() + self.words.capacity()
    }

    /// Forgets what it knows of an unfinished command, which is going to be read again.
    pub fn forget(&mut self) {
        self.missing = 0;
    }

    /// Gives back memory that only an unusually large command needed.
    pub fn shrink(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(limits::RESP_ARGUMENTS_KEPT);
        self.words.clear();
        self.words.shrink_to(limits::RESP_ARGUMENTS_KEPT);
    }

    #[inline]
    fn array(&mut self, input: &[u8], allowance: Allowance) -> Result<ParseStep, ProtocolError> {
        let (count, len) = match length_line(input) {
            ParsedLine::Number(count, len) => (count, len),
            ParsedLine::Incomplete => return Ok(ParseStep::Incomplete),
            ParsedLine::TooLong => return Err(ProtocolError::TooBigCountLine),
            ParsedLine::Invalid => return Err(ProtocolError::InvalidMultibulkLength),
        };
        if count <= 0 {
            return Ok(ParseStep::Nothing(len));
        }
        if count > allowance.arguments {
            return Err(allowance.too_many_arguments(count));
        }
        self.spans.clear();
        self.is_inline = false;
        self.missing = count as usize;
        self.at = len;
        self.bulk = None;
        self.arguments(input, allowance)
    }

    #[inline]
    fn arguments(&mut self, input: &[u8], allowance: Allowance) -> Result<ParseStep, ProtocolError> {
        // The hot loop: what is known of an unfinished command is put away only when the input ends.
        let mut at = self.at;
        while self.missing > 0 {
            let rest = &input[at..];
            let (len, line_len) = match self.bulk.take() {
                Some(len) => (len, 0),
                None => match bulk_line(rest, allowance)? {
                    Some(line) => line,
                    None => break,
                },
            };
            at += line_len;
            // As in Redis, the two bytes behind an argument are not looked at.
            if rest.len() - line_len < len + 2 {
                self.bulk = Some(len);
                break;
            }
            self.spans.push(TextSpan { start: at as u32, len: len as u32 });
            at += len + 2;
            self.missing -= 1;
        }
        self.at = at;
        Ok(if self.missing == 0 { ParseStep::Command(at) } else { ParseStep::Incomplete })
    }

    fn line(&mut self, input: &[u8]) -> Result<ParseStep, ProtocolError> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            return match input.len() > limits::RESP_INLINE_BYTES_MAX {
                true => Err(ProtocolError::TooBigInline),
                false => Ok(ParseStep::Incomplete),
            };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.words.clear();
        self.spans.clear();
        self.is_inline = true;
        let spans = &mut self.spans;
        let balanced = inline::split(line, &mut self.words, |start, end| {
            spans.push(TextSpan { start: start as u32, len: (end - start) as u32 });
        });
        match (balanced, self.spans.is_empty()) {
            (false, _) => Err(ProtocolError::UnbalancedQuotes),
            (true, true) => Ok(ParseStep::Nothing(end + 1)),
            (true, false) => Ok(ParseStep::Command(end + 1)),
        }
    }
}

enum ParsedLine {
    /// The number, and the length of its line with its end.
    Number(i64, usize),
    Incomplete,
    Invalid,
    TooLong,
}

/// Whether a name is `INCR`, in capitals or not.
#[inline]
fn is_incr(name: &[u8]) -> bool {
    // Setting this bit makes letters small, and makes a letter of nothing else.
    name.try_into().is_ok_and(|name| u32::from_ne_bytes(name) | 0x2020_2020 == u32::from_ne_bytes(*b"incr"))
}

/// Reads the line before an argument, `$7`: the length of the argument, and that of the line.
#[inline]
fn bulk_line(input: &[u8], allowance: Allowance) -> Result<Option<(usize, usize)>, ProtocolError> {
    match short_bulk_line(input) {
        Some(line) => Ok(Some(line)),
        None => any_bulk_line(input, allowance),
    }
}

/// The same for arguments of up to 99 bytes, which nearly all are and everybody may send.
#[inline]
fn short_bulk_line(input: &[u8]) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte - b'0');
    match *input {
        [b'$', units @ b'0'..=b'9', b'\r', _, ..] => Some((digit(units), 4)),
        [b'$', tens @ b'1'..=b'9', units @ b'0'..=b'9', b'\r', _, ..] => Some((digit(tens) * 10 + digit(units), 5)),
        _ => None,
    }
}

#[cold]
fn any_bulk_line(input: &[u8], allowance: Allowance) -> Result<Option<(usize, usize)>, ProtocolError> {
    let line = length_line(input);
    match line {
        ParsedLine::Incomplete => return Ok(None),
        ParsedLine::TooLong => return Err(ProtocolError::TooBigLengthLine),
        ParsedLine::Number(..) | ParsedLine::Invalid => {}
    }
    match (input[0], line) {
        (b'$', ParsedLine::Number(len @ 0.., _)) if len > allowance.bulk_bytes => Err(allowance.too_long_a_bulk(len)),
        (b'$', ParsedLine::Number(len @ 0.., line_len)) => Ok(Some((len as usize, line_len))),
        (b'$', _) => Err(ProtocolError::InvalidBulkLength),
        (other, _) => Err(ProtocolError::ExpectedBulk(other)),
    }
}

/// Reads a marker byte, a number and a line end.
#[inline]
fn length_line(input: &[u8]) -> ParsedLine {
    match *input {
        [_, digit @ b'0'..=b'9', b'\r', _, ..] => ParsedLine::Number(i64::from(digit - b'0'), 4),
        _ => any_length_line(input),
    }
}

#[cold]
fn any_length_line(input: &[u8]) -> ParsedLine {
    match input.iter().position(|&byte| byte == b'\r') {
        None if input.len() > limits::RESP_INLINE_BYTES_MAX => ParsedLine::TooLong,
        None => ParsedLine::Incomplete,
        Some(end) if end + 1 == input.len() => ParsedLine::Incomplete,
        Some(end) => match input.get(1..end).and_then(parse_i64) {
            Some(number) => ParsedLine::Number(number, end + 2),
            None => ParsedLine::Invalid,
        },
    }
}

#[cfg(test)]
mod tests;
