//! Frames: messages between client and node.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;

use crate::codec::{
    Field, read_message, write_array_head, write_duration, write_given, write_int, write_map_head, write_str,
};
use crate::convert::to_value;
use crate::errors::{Error, InvalidArgument, Result};
use crate::values::{Object, SignedDuration, Value};

/// Longest frame that either side takes.
pub(crate) const FRAME_MOST: usize = 16 << 20;
/// Room that is made for a body.
const BODY_ROOM: usize = 128;

macro_rules! kinds {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The kind of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($name = $number,)*
        }

        impl Kind {
            pub(crate) fn of(number: i64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    Hello = 1, "HELLO";
    Auth = 2, "AUTH";
    Run = 3, "RUN";
    Cancel = 4, "CANCEL";
    Ping = 5, "PING";
    Bye = 6, "BYE";
    Kv = 7, "KV";
    Topic = 8, "TOPIC";
    Watch = 9, "WATCH";
    Unwatch = 10, "UNWATCH";
    Vault = 11, "VAULT";
    Welcome = 32, "WELCOME";
    Refused = 33, "REFUSED";
    Answer = 34, "ANSWER";
    Error = 35, "ERROR";
    Pong = 36, "PONG";
    Value = 37, "VALUE";
    Change = 38, "CHANGE";
    Part = 39, "PART";
}

/// The fields of a body, encoded in the order in which they are given.
#[derive(Clone, Default)]
pub(crate) struct Body {
    count: usize,
    bytes: Vec<u8>,
}

/// Without the fields: they may be secret.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Body {
    /// Return an empty body, with room for a small request.
    pub(crate) fn new() -> Self {
        Self { count: 0, bytes: Vec::with_capacity(BODY_ROOM) }
    }

    /// Return the body of an operation on what `names` name.
    pub(crate) fn of(op: &str, names: &Result<Self>) -> Result<Self> {
        let names = names.as_ref().map_err(Error::clone)?;
        let mut body = Self::new().str("op", op);
        body.count += names.count;
        body.bytes.extend_from_slice(&names.bytes);
        Ok(body)
    }

    fn name(&mut self, name: &str) {
        self.count += 1;
        write_str(&mut self.bytes, name);
    }

    pub(crate) fn str(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        write_str(&mut self.bytes, text);
        self
    }

    pub(crate) fn str_if(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.str(name, text),
            None => self,
        }
    }

    pub(crate) fn int(mut self, name: &str, value: i64) -> Self {
        self.name(name);
        write_int(&mut self.bytes, value);
        self
    }

    pub(crate) fn int_if(self, name: &str, value: Option<i64>) -> Self {
        match value {
            Some(value) => self.int(name, value),
            None => self,
        }
    }

    /// Add a flag that is true.
    pub(crate) fn flag_if(mut self, name: &str, is_set: bool) -> Self {
        if is_set {
            self.name(name);
            self.bytes.push(0xc3);
        }
        self
    }

    pub(crate) fn bool(mut self, name: &str, value: bool) -> Self {
        self.name(name);
        self.bytes.push(if value { 0xc3 } else { 0xc2 });
        self
    }

    pub(crate) fn duration_if(mut self, name: &str, value: Option<SignedDuration>) -> Self {
        if let Some(value) = value {
            self.name(name);
            write_duration(&mut self.bytes, value);
        }
        self
    }

    pub(crate) fn strings<T: AsRef<str>>(mut self, name: &str, texts: &[T]) -> Self {
        self.name(name);
        write_array_head(&mut self.bytes, texts.len());
        for text in texts {
            write_str(&mut self.bytes, text.as_ref());
        }
        self
    }

    pub(crate) fn value(mut self, name: &str, value: &Value) -> Result<Self> {
        self.name(name);
        write_given(&mut self.bytes, value).map_err(|error| error.under(name))?;
        Ok(self)
    }

    /// Add an array, each item of which is a value by itself.
    pub(crate) fn values(mut self, name: &str, values: &[Value]) -> Result<Self> {
        self.name(name);
        write_array_head(&mut self.bytes, values.len());
        for (n, value) in values.iter().enumerate() {
            write_given(&mut self.bytes, value).map_err(|error| error.under(format_args!("{name}[{n}]")))?;
        }
        Ok(self)
    }

    pub(crate) fn params(mut self, params: &Object) -> Result<Self> {
        if params.is_empty() {
            return Ok(self);
        }
        self.name("params");
        write_map_head(&mut self.bytes, params.len());
        for (name, value) in params {
            write_str(&mut self.bytes, name);
            write_given(&mut self.bytes, value).map_err(|error| error.under(format_args!("${name}")))?;
        }
        Ok(self)
    }
}

/// Values of `$name` in a script, with the first error of those that are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    values: Object,
    error: Option<InvalidArgument>,
}

impl Params {
    pub(crate) fn bind<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        match to_value(value) {
            Ok(value) => {
                self.values.insert(name.to_owned(), value);
            }
            Err(error) => self.fail(error.under(format_args!("${name}"))),
        }
    }

    /// Bind the fields of a struct or a map.
    pub(crate) fn bind_all<T: Serialize + ?Sized>(&mut self, fields: &T) {
        match to_value(fields) {
            Ok(Value::Object(fields)) => self.values.extend(fields),
            Ok(other) => {
                let reason =
                    format!("parameters are the fields of a struct or a map, not {}", other.type_name());
                self.fail(InvalidArgument::new(reason));
            }
            Err(error) => self
                .fail(InvalidArgument { path: format!("${}", error.path.trim_start_matches('.')), ..error }),
        }
    }

    pub(crate) fn fail(&mut self, error: InvalidArgument) {
        self.error.get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Result<&Object, InvalidArgument> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(&self.values),
        }
    }
}

/// Append the frame of a message. Return its size without the length in front.
pub(crate) fn write_frame(
    to: &mut Vec<u8>,
    kind: Kind,
    id: u64,
    body: Option<&Body>,
    after: Option<i64>,
) -> usize {
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    write_array_head(to, 3);
    write_int(to, kind as i64);
    write_int(to, id as i64);
    match body {
        Some(body) => {
            write_map_head(to, body.count + usize::from(after.is_some()));
            if let Some(after) = after {
                write_str(to, "after");
                write_int(to, after);
            }
            to.extend_from_slice(&body.bytes);
        }
        None => to.push(0xc0),
    }
    let size = to.len() - start - 4;
    to[start..start + 4].copy_from_slice(&(size as u32).to_be_bytes());
    size
}

/// A message of the node.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) body: Fields,
    pub(crate) size: usize,
}

/// Fields of a message's body by name. The names stay where they are in the frame.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    frame: Bytes,
    fields: Vec<Field>,
}

impl Fields {
    /// Return the index of a field: of two with one name, the last.
    fn find(&self, name: &str) -> Option<usize> {
        self.fields.iter().rposition(|(place, _)| self.frame[place.clone()] == *name.as_bytes())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.find(name).map(|at| &self.fields[at].1)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Value> {
        self.find(name).map(|at| self.fields.swap_remove(at).1)
    }
}

/// Take the next message off a buffer; `None`: more has to come.
pub(crate) fn next_message(buffer: &mut BytesMut) -> Result<Option<Message>> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_be_bytes(*head) as usize;
    if size > FRAME_MOST {
        return Err(too_large(*head, size));
    }
    if buffer.len() < 4 + size {
        buffer.reserve(4 + size - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    to_message(buffer.split_to(size).freeze()).map(Some)
}

fn too_large(head: [u8; 4], size: usize) -> Error {
    Error::broken(match head {
        [b'H', b'T', b'T', b'P'] => {
            "HTTP is spoken there: the wire protocol has a port of its own, that of the node's --serve"
                .to_owned()
        }
        [0x15, 0x03, ..] => "TLS is spoken there: connect with tls".to_owned(),
        _ => format!("the node sent a frame of {size} bytes"),
    })
}

fn to_message(frame: Bytes) -> Result<Message> {
    let none = || Error::broken("the node sent what is no message");
    let (kind, id, fields) = match read_message(&frame) {
        Ok(found) => found.ok_or_else(none)?,
        Err(error) => return Err(Error::broken(format!("the node sent what is no message: {error}"))),
    };
    let (Ok(id), true) = (u64::try_from(id), id < 1 << 53) else { return Err(none()) };
    match Kind::of(kind) {
        Some(kind) if kind as i64 >= Kind::Welcome as i64 || kind == Kind::Bye => {
            Ok(Message { kind, id, size: frame.len(), body: Fields { frame, fields } })
        }
        _ => Err(Error::broken(format!("the node sent a message of kind {kind}"))),
    }
}
