//! msgpack, with the extensions and limits of the wire protocol.

use std::ops::Range;

use bytes::Bytes;

use crate::convert::{DEPTH, key_of};
use crate::errors::InvalidArgument;
use crate::values::{DateTime, Object, RecordId, RecordKey, SignedDuration, Uuid, Value};

/// Levels of a frame of the node: a value, and at most sixteen around it.
const FRAME_DEPTH: usize = DEPTH + 16;
/// Items for which room is made before they are read.
const ROOM_MOST: usize = 1024;

const TIMESTAMP: i8 = -1;
const DECIMAL: i8 = 1;
const DURATION: i8 = 2;
const UUID: i8 = 3;
const RECORD: i8 = 4;
const NOTHING: i8 = 5;

// --- encoding ----------------------------------------------------------------------------------------

/// Write a head: a short form for up to `most`, else one of the codes, 0 of which is none.
fn write_head(to: &mut Vec<u8>, fix: u8, most: usize, codes: [u8; 3], count: usize) {
    if count <= most {
        to.push(fix | count as u8);
    } else if codes[0] != 0 && count <= 0xff {
        to.extend_from_slice(&[codes[0], count as u8]);
    } else if count <= 0xffff {
        to.push(codes[1]);
        to.extend_from_slice(&(count as u16).to_be_bytes());
    } else {
        to.push(codes[2]);
        to.extend_from_slice(&(count as u32).to_be_bytes());
    }
}

pub(crate) fn write_array_head(to: &mut Vec<u8>, count: usize) {
    write_head(to, 0x90, 15, [0, 0xdc, 0xdd], count);
}

pub(crate) fn write_map_head(to: &mut Vec<u8>, count: usize) {
    write_head(to, 0x80, 15, [0, 0xde, 0xdf], count);
}

pub(crate) fn write_int(to: &mut Vec<u8>, value: i64) {
    match value {
        0..=0x7f => to.push(value as u8),
        0x80..=0xff => to.extend_from_slice(&[0xcc, value as u8]),
        0x100..=0xffff => {
            to.push(0xcd);
            to.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            to.push(0xce);
            to.extend_from_slice(&(value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            to.push(0xcf);
            to.extend_from_slice(&value.to_be_bytes());
        }
        -32..=-1 => to.push(value as u8),
        -0x80..=-33 => to.extend_from_slice(&[0xd0, value as u8]),
        -0x8000..=-0x81 => {
            to.push(0xd1);
            to.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            to.push(0xd2);
            to.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            to.push(0xd3);
            to.extend_from_slice(&value.to_be_bytes());
        }
    }
}

pub(crate) fn write_str(to: &mut Vec<u8>, text: &str) {
    write_head(to, 0xa0, 31, [0xd9, 0xda, 0xdb], text.len());
    to.extend_from_slice(text.as_bytes());
}

fn write_extension(to: &mut Vec<u8>, code: i8, content: &[u8]) {
    match content.len() {
        n @ (1 | 2 | 4 | 8 | 16) => to.push(0xd4 + n.trailing_zeros() as u8),
        n => write_sized(to, [0xc7, 0xc8, 0xc9], n),
    }
    to.push(code as u8);
    to.extend_from_slice(content);
}

/// Write a code and a length, without a short form.
fn write_sized(to: &mut Vec<u8>, codes: [u8; 3], count: usize) {
    match count {
        0 => to.extend_from_slice(&[codes[0], 0]),
        _ => write_head(to, 0, 0, codes, count),
    }
}

fn too_deep() -> InvalidArgument {
    InvalidArgument::new(format!("it nests deeper than {DEPTH}"))
}

/// Write a value of a request: a parameter, a message, the value of a key. Items of an array are values by
/// themselves: the node says if they are rows.
pub(crate) fn write_given(to: &mut Vec<u8>, value: &Value) -> Result<(), InvalidArgument> {
    match value {
        Value::Array(items) => write_items(to, items, 0),
        _ => write_value(to, value, 0),
    }
}

fn write_items(to: &mut Vec<u8>, items: &[Value], depth: usize) -> Result<(), InvalidArgument> {
    write_array_head(to, items.len());
    for (n, item) in items.iter().enumerate() {
        write_value(to, item, depth).map_err(|error| error.under(format_args!("[{n}]")))?;
    }
    Ok(())
}

fn write_value(to: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), InvalidArgument> {
    match value {
        Value::None => to.extend_from_slice(&[0xc7, 0, NOTHING as u8]),
        Value::Null => to.push(0xc0),
        Value::Bool(value) => to.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Int(value) => write_int(to, *value),
        Value::Float(value) => {
            if !value.is_finite() {
                return Err(InvalidArgument::new(format!("{value} is no number of the language")));
            }
            to.push(0xcb);
            to.extend_from_slice(&value.to_be_bytes());
        }
        Value::String(value) => write_str(to, value),
        Value::Bytes(value) => {
            write_sized(to, [0xc4, 0xc5, 0xc6], value.len());
            to.extend_from_slice(value);
        }
        Value::Decimal(value) => write_extension(to, DECIMAL, value.as_str().as_bytes()),
        Value::DateTime(value) => write_time(to, *value),
        Value::Duration(value) => write_extension(to, DURATION, &value.as_micros().to_be_bytes()),
        Value::Uuid(value) => write_extension(to, UUID, value.as_bytes()),
        Value::Record(value) => write_record(to, value)?,
        Value::Array(items) => {
            if depth >= DEPTH {
                return Err(too_deep());
            }
            write_items(to, items, depth + 1)?;
        }
        Value::Object(fields) => {
            if depth >= DEPTH {
                return Err(too_deep());
            }
            write_map_head(to, fields.len());
            for (name, item) in fields {
                write_str(to, name);
                write_value(to, item, depth + 1).map_err(|error| error.under(format_args!(".{name}")))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn write_duration(to: &mut Vec<u8>, value: SignedDuration) {
    write_extension(to, DURATION, &value.as_micros().to_be_bytes());
}

fn write_time(to: &mut Vec<u8>, at: DateTime) {
    let (seconds, micros) = (at.as_micros().div_euclid(1_000_000), at.as_micros().rem_euclid(1_000_000));
    let nanos = micros as u32 * 1000;
    match u64::try_from(seconds) {
        Ok(seconds) if nanos == 0 && seconds <= u64::from(u32::MAX) => {
            write_extension(to, TIMESTAMP, &(seconds as u32).to_be_bytes());
        }
        Ok(seconds) if seconds < 1 << 34 => {
            write_extension(to, TIMESTAMP, &(u64::from(nanos) << 34 | seconds).to_be_bytes());
        }
        _ => {
            to.extend_from_slice(&[0xc7, 12, TIMESTAMP as u8]);
            to.extend_from_slice(&nanos.to_be_bytes());
            to.extend_from_slice(&seconds.to_be_bytes());
        }
    }
}

fn write_record(to: &mut Vec<u8>, record: &RecordId) -> Result<(), InvalidArgument> {
    let mut inner = Vec::with_capacity(record.table.len() + 16);
    write_array_head(&mut inner, 2);
    write_str(&mut inner, &record.table);
    write_key(&mut inner, &record.key, 0)?;
    write_extension(to, RECORD, &inner);
    Ok(())
}

fn write_key(to: &mut Vec<u8>, key: &RecordKey, depth: usize) -> Result<(), InvalidArgument> {
    match key {
        RecordKey::Int(key) => write_int(to, *key),
        RecordKey::String(key) => write_str(to, key),
        RecordKey::Uuid(key) => write_extension(to, UUID, key.as_bytes()),
        RecordKey::Array(keys) => {
            if depth >= DEPTH {
                return Err(too_deep());
            }
            write_array_head(to, keys.len());
            for key in keys {
                write_key(to, key, depth + 1)?;
            }
        }
    }
    Ok(())
}

// --- decoding ----------------------------------------------------------------------------------------

/// The bytes are no value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) String);

fn malformed<T>(reason: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(reason.into()))
}

/// Read the one value that a buffer is.
#[cfg(test)]
pub(crate) fn read_value(bytes: &Bytes) -> Result<Value, Malformed> {
    Reader::new(bytes).whole()
}

/// A field of a message: the place of its name in the frame, and its value.
pub(crate) type Field = (Range<usize>, Value);

/// Read a frame: the kind of a message, its id, and the fields of its body; `None`: it is no message.
pub(crate) fn read_message(frame: &Bytes) -> Result<Option<(i64, i64, Vec<Field>)>, Malformed> {
    let mut reader = Reader::new(frame);
    if reader.count(0x90, 0xdc)? != Some(3) {
        return Ok(None);
    }
    let (Value::Int(kind), Value::Int(id)) = (reader.value(1)?, reader.value(1)?) else { return Ok(None) };
    let Some(fields) = reader.fields()? else { return Ok(None) };
    reader.check_end()?;
    Ok(Some((kind, id, fields)))
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
    end: usize,
    in_key: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0, end: bytes.len(), in_key: false }
    }

    fn whole(mut self) -> Result<Value, Malformed> {
        let value = self.value(0)?;
        self.check_end()?;
        Ok(value)
    }

    fn check_end(&self) -> Result<(), Malformed> {
        match self.end - self.at {
            0 => Ok(()),
            left => malformed(format!("{left} bytes stand behind it")),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        if count > self.end - self.at {
            return malformed("it ends too early");
        }
        let found = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(found)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut found = [0; N];
        found.copy_from_slice(self.take(N)?);
        Ok(found)
    }

    fn length(&mut self, width: usize) -> Result<usize, Malformed> {
        let count = self.take(width)?.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        if count > self.end - self.at {
            return malformed("it ends too early");
        }
        Ok(count)
    }

    /// Read the head of an array or of an object, by its codes; `None`: something else is there.
    fn count(&mut self, fix: u8, wide: u8) -> Result<Option<usize>, Malformed> {
        let [head] = self.fixed()?;
        match head.checked_sub(wide) {
            Some(width @ 0..=1) => self.length(2 << width).map(Some),
            _ if head & 0xf0 == fix => Ok(Some((head & 0x0f).into())),
            _ => Ok(None),
        }
    }

    /// Read the fields of a body, which may be nil; `None`: something else is there.
    fn fields(&mut self) -> Result<Option<Vec<Field>>, Malformed> {
        if self.bytes[self.at..self.end].first() == Some(&0xc0) {
            self.at += 1;
            return Ok(Some(Vec::new()));
        }
        let Some(count) = self.count(0x80, 0xde)? else { return Ok(None) };
        self.check_room(2 * count, 1)?;
        let mut found = Vec::with_capacity(count.min(ROOM_MOST));
        for _ in 0..count {
            let name = self.name()?.len();
            found.push((self.at - name..self.at, self.value(2)?));
        }
        Ok(Some(found))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        let [head] = self.fixed()?;
        match head {
            0..=0x7f => Ok(Value::Int(head.into())),
            0x80..=0x8f => self.object((head & 0x0f).into(), depth),
            0x90..=0x9f => self.array((head & 0x0f).into(), depth),
            0xa0..=0xbf => self.text((head & 0x1f).into()).map(|text| Value::String(text.to_owned())),
            0xc0 => Ok(Value::Null),
            0xc2 => Ok(Value::Bool(false)),
            0xc3 => Ok(Value::Bool(true)),
            0xc4..=0xc6 => {
                let count = self.length(1 << (head - 0xc4))?;
                self.raw(count)
            }
            0xc7..=0xc9 => {
                let count = self.length(1 << (head - 0xc7))?;
                self.extension(count)
            }
            0xca => float(f32::from_be_bytes(self.fixed()?).into()),
            0xcb => float(f64::from_be_bytes(self.fixed()?)),
            0xcc => Ok(Value::Int(u8::from_be_bytes(self.fixed()?).into())),
            0xcd => Ok(Value::Int(u16::from_be_bytes(self.fixed()?).into())),
            0xce => Ok(Value::Int(u32::from_be_bytes(self.fixed()?).into())),
            0xcf => match i64::try_from(u64::from_be_bytes(self.fixed()?)) {
                Ok(value) => Ok(Value::Int(value)),
                Err(_) => malformed("an integer has 64 bits with a sign"),
            },
            0xd0 => Ok(Value::Int(i8::from_be_bytes(self.fixed()?).into())),
            0xd1 => Ok(Value::Int(i16::from_be_bytes(self.fixed()?).into())),
            0xd2 => Ok(Value::Int(i32::from_be_bytes(self.fixed()?).into())),
            0xd3 => Ok(Value::Int(i64::from_be_bytes(self.fixed()?))),
            0xd4..=0xd8 => self.extension(1 << (head - 0xd4)),
            0xd9..=0xdb => {
                let count = self.length(1 << (head - 0xd9))?;
                self.text(count).map(|text| Value::String(text.to_owned()))
            }
            0xdc | 0xdd => {
                let count = self.length(2 << (head - 0xdc))?;
                self.array(count, depth)
            }
            0xde | 0xdf => {
                let count = self.length(2 << (head - 0xde))?;
                self.object(count, depth)
            }
            0xe0..=0xff => Ok(Value::Int((head as i8).into())),
            0xc1 => malformed("0xc1 begins no value"),
        }
    }

    /// Read bytes. They share the memory of the frame if they are most of it.
    fn raw(&mut self, count: usize) -> Result<Value, Malformed> {
        let found = self.take(count)?;
        Ok(Value::Bytes(match count > self.bytes.len() / 2 {
            true => self.bytes.slice_ref(found),
            false => Bytes::copy_from_slice(found),
        }))
    }

    fn text(&mut self, count: usize) -> Result<&'a str, Malformed> {
        match std::str::from_utf8(self.take(count)?) {
            Ok(text) => Ok(text),
            Err(_) => malformed("a string is UTF-8"),
        }
    }

    /// Read the name of a field.
    fn name(&mut self) -> Result<&'a str, Malformed> {
        let [head] = self.fixed()?;
        let count = match head {
            0xa0..=0xbf => (head & 0x1f).into(),
            0xd9..=0xdb => self.length(1 << (head - 0xd9))?,
            _ => return malformed("the keys of an object are strings"),
        };
        self.text(count)
    }

    fn check_room(&self, least: usize, depth: usize) -> Result<(), Malformed> {
        if depth >= FRAME_DEPTH {
            return malformed(format!("it nests deeper than {FRAME_DEPTH}"));
        }
        if least > self.end - self.at {
            return malformed("it ends too early");
        }
        Ok(())
    }

    fn array(&mut self, count: usize, depth: usize) -> Result<Value, Malformed> {
        self.check_room(count, depth)?;
        let mut found = Vec::with_capacity(count.min(ROOM_MOST));
        for _ in 0..count {
            found.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(found))
    }

    fn object(&mut self, count: usize, depth: usize) -> Result<Value, Malformed> {
        self.check_room(2 * count, depth)?;
        let mut found = Object::new();
        for _ in 0..count {
            let name = self.name()?.to_owned();
            found.insert(name, self.value(depth + 1)?);
        }
        Ok(Value::Object(found))
    }

    fn extension(&mut self, count: usize) -> Result<Value, Malformed> {
        let code = i8::from_be_bytes(self.fixed()?);
        let start = self.at;
        let content = self.take(count)?;
        match (code, count) {
            (TIMESTAMP, _) => self.time(content),
            (DECIMAL, _) => match std::str::from_utf8(content).map(str::parse) {
                Ok(Ok(found)) => Ok(Value::Decimal(found)),
                Ok(Err(error)) => malformed(error.reason),
                Err(_) => malformed("a decimal is ASCII"),
            },
            (DURATION, 8) => {
                Ok(Value::Duration(SignedDuration::from_micros(i64::from_be_bytes(eight(content)))))
            }
            (UUID, 16) => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(content);
                Ok(Value::Uuid(Uuid::from_bytes(bytes)))
            }
            (NOTHING, 0) => Ok(Value::None),
            (RECORD, _) if !self.in_key => {
                let inner = Reader { bytes: self.bytes, at: start, end: start + count, in_key: true };
                record(inner.whole()?)
            }
            _ => malformed(format!(
                "an extension {code} of {count} bytes is not known to this version of the client"
            )),
        }
    }

    fn time(&self, content: &[u8]) -> Result<Value, Malformed> {
        let (seconds, nanos) = match content.len() {
            4 => (content.iter().fold(0i64, |sum, byte| sum << 8 | i64::from(*byte)), 0),
            8 => {
                let both = u64::from_be_bytes(eight(content));
                ((both & ((1 << 34) - 1)) as i64, both >> 34)
            }
            12 => {
                let nanos = content[..4].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
                (i64::from_be_bytes(eight(&content[4..])), nanos)
            }
            _ => return malformed("a timestamp has 4, 8 or 12 bytes"),
        };
        let micros =
            seconds.checked_mul(1_000_000).and_then(|micros| micros.checked_add(nanos as i64 / 1000));
        match micros.map(DateTime::from_micros) {
            Some(Ok(found)) if nanos < 1_000_000_000 => Ok(Value::DateTime(found)),
            _ => malformed("a datetime is within the years 1 to 9999"),
        }
    }
}

fn eight(content: &[u8]) -> [u8; 8] {
    let mut found = [0; 8];
    found.copy_from_slice(content);
    found
}

fn float(value: f64) -> Result<Value, Malformed> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => malformed("a float is neither NaN nor infinite"),
    }
}

fn record(value: Value) -> Result<Value, Malformed> {
    let Value::Array(parts) = value else { return malformed("a record is a table and an id") };
    match <[Value; 2]>::try_from(parts) {
        Ok([Value::String(table), key]) => match key_of(key) {
            Some(key) => Ok(Value::Record(RecordId { table, key })),
            None => malformed("the id of a record is a string, an int, a uuid or an array of these"),
        },
        _ => malformed("a record is a table and an id"),
    }
}
