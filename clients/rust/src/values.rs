//! Values of the language.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::errors::InvalidArgument;

/// An object or a record, by its fields.
pub type Object = BTreeMap<String, Value>;

/// A value of the language.
///
/// Values convert to and from Rust types by serde: see [`to_value`](crate::to_value) and
/// [`from_value`](crate::from_value).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// NONE: an absent value.
    None,
    /// Null.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer of 64 bits.
    Int(i64),
    /// A float, neither NaN nor infinite.
    Float(f64),
    /// Text.
    String(String),
    /// Bytes.
    Bytes(Bytes),
    /// An exact decimal number.
    Decimal(Decimal),
    /// A point in time.
    DateTime(DateTime),
    /// A time span.
    Duration(SignedDuration),
    /// A uuid.
    Uuid(Uuid),
    /// The id of a record.
    Record(RecordId),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// Return the name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Decimal(_) => "decimal",
            Self::DateTime(_) => "datetime",
            Self::Duration(_) => "duration",
            Self::Uuid(_) => "uuid",
            Self::Record(_) => "record",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Return a field of an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(fields) => fields.get(name),
            _ => None,
        }
    }

    /// Return the integer, if the value is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(found) => Some(*found),
            _ => None,
        }
    }

    /// Return the text, if the value is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(found) => Some(found),
            _ => None,
        }
    }

    /// Return the items, if the value is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(found) => Some(found),
            _ => None,
        }
    }

    /// Return the fields, if the value is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(found) => Some(found),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(from: $type) -> Self {
                Self::$variant(from.into())
            }
        }
    )*};
}

from!(
    bool => Bool, i8 => Int, i16 => Int, i32 => Int, i64 => Int, u8 => Int, u16 => Int, u32 => Int,
    f32 => Float, f64 => Float, &str => String, String => String, Bytes => Bytes, Decimal => Decimal,
    DateTime => DateTime, SignedDuration => Duration, Uuid => Uuid, RecordId => Record,
    Vec<Value> => Array, Object => Object,
);

const DECIMAL_DIGITS: usize = 34;
const DECIMAL_EXPONENT: i32 = 6143;

/// An exact decimal number of at most 34 digits.
///
/// It keeps its scale: 12.30 prints as 12.30, and equals 12.3.
#[derive(Clone)]
pub struct Decimal {
    text: Box<str>,
}

/// Sign, digits without leading and trailing zeros, and the exponent of 0.digits.
struct Normal<'a> {
    negative: bool,
    digits: Vec<&'a u8>,
    exponent: i64,
}

impl Decimal {
    /// Return the digits without the point, and the number of digits behind it: 12.30 is 1230 and 2.
    pub fn parts(&self) -> (i128, i32) {
        let (negative, whole, fraction, exponent) = split_decimal(&self.text).unwrap_or((false, "0", "", 0));
        let digits = whole.bytes().chain(fraction.bytes());
        let unscaled = digits.fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        (if negative { -unscaled } else { unscaled }, fraction.len() as i32 - exponent)
    }

    /// Return the nearest float.
    pub fn to_f64(&self) -> f64 {
        self.text.parse().unwrap_or(f64::NAN)
    }

    /// Return the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn normal(&self) -> Normal<'_> {
        let (negative, whole, fraction, exponent) = split_decimal(&self.text).unwrap_or((false, "0", "", 0));
        let mut digits: Vec<&u8> = whole.as_bytes().iter().chain(fraction.as_bytes()).collect();
        let zeros = digits.iter().take_while(|digit| ***digit == b'0').count();
        digits.drain(..zeros);
        while digits.last() == Some(&&b'0') {
            digits.pop();
        }
        let exponent =
            if digits.is_empty() { 0 } else { whole.len() as i64 - zeros as i64 + i64::from(exponent) };
        Normal { negative: negative && !digits.is_empty(), digits, exponent }
    }
}

/// Split a decimal into sign, digits before and behind the point, and exponent.
fn split_decimal(text: &str) -> Option<(bool, &str, &str, i32)> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (number, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], rest[at + 1..].parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |part: &str| part.bytes().all(|one| one.is_ascii_digit());
    (!whole.is_empty() && all_digits(whole) && all_digits(fraction))
        .then_some((negative, whole, fraction, exponent))
}

impl FromStr for Decimal {
    type Err = InvalidArgument;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((_, whole, fraction, exponent)) = split_decimal(text) else {
            return Err(InvalidArgument::new(format!("{:?} is no decimal", head(text))));
        };
        let digits = whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0').count();
        if digits > DECIMAL_DIGITS || whole.len() + fraction.len() > 2 * DECIMAL_DIGITS {
            return Err(InvalidArgument::new(format!(
                "{} has more than {DECIMAL_DIGITS} digits",
                head(text)
            )));
        }
        if exponent.unsigned_abs() > 2 * DECIMAL_EXPONENT as u32 {
            return Err(InvalidArgument::new(format!(
                "the exponent of {} is beyond {DECIMAL_EXPONENT}",
                head(text)
            )));
        }
        Ok(Self { text: text.into() })
    }
}

impl From<i64> for Decimal {
    fn from(from: i64) -> Self {
        Self { text: from.to_string().into() }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, two) = (self.normal(), other.normal());
        let size = || match (one.digits.is_empty(), two.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => one.exponent.cmp(&two.exponent).then_with(|| one.digits.cmp(&two.digits)),
        };
        match (one.negative, two.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => size(),
            (true, true) => size().reverse(),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let normal = self.normal();
        (normal.negative, normal.exponent, normal.digits).hash(state);
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({})", self.text)
    }
}

const UNITS: [(&str, u64); 7] = [
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A time span in microseconds, which may be negative.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignedDuration {
    micros: i64,
}

impl SignedDuration {
    /// Return a span of so many microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self { micros }
    }

    /// Return the microseconds.
    pub const fn as_micros(self) -> i64 {
        self.micros
    }
}

impl From<Duration> for SignedDuration {
    /// Convert to whole microseconds. A span beyond 292 thousand years becomes the longest there is.
    fn from(from: Duration) -> Self {
        Self { micros: i64::try_from(from.as_micros()).unwrap_or(i64::MAX) }
    }
}

impl TryFrom<SignedDuration> for Duration {
    type Error = InvalidArgument;

    fn try_from(from: SignedDuration) -> Result<Self, Self::Error> {
        match u64::try_from(from.micros) {
            Ok(micros) => Ok(Self::from_micros(micros)),
            Err(_) => Err(InvalidArgument::new(format!("{from} is negative"))),
        }
    }
}

impl FromStr for SignedDuration {
    type Err = InvalidArgument;

    /// Read text of the language, such as `1h30m`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            InvalidArgument::new(format!("{:?} is no duration: write 1h30m, 250ms and the like", head(text)))
        };
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut sum = 0i128;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let unit_end = rest[digits..].bytes().position(|one| one.is_ascii_digit());
            let end = unit_end.map_or(rest.len(), |at| digits + at);
            let count: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            let unit = if &rest[digits..end] == "µs" { "us" } else { &rest[digits..end] };
            let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            sum += i128::from(count) * i128::from(*size);
            rest = &rest[end..];
        }
        let micros = i64::try_from(if negative { -sum } else { sum }).map_err(|_| wrong())?;
        Ok(Self { micros })
    }
}

impl fmt::Display for SignedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.micros.unsigned_abs();
        if rest == 0 {
            return f.write_str("0s");
        }
        if self.micros < 0 {
            f.write_str("-")?;
        }
        for (unit, size) in UNITS {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
            }
            rest %= size;
        }
        Ok(())
    }
}

impl fmt::Debug for SignedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignedDuration({self})")
    }
}

const EARLIEST: i64 = -62_135_596_800_000_000;
const LATEST: i64 = 253_402_300_799_999_999;
const MILLION: i64 = 1_000_000;

/// A point in time, to the microsecond, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime {
    micros: i64,
}

impl DateTime {
    /// Return the point so many microseconds after 1970, in the years 1 to 9999.
    pub fn from_micros(micros: i64) -> Result<Self, InvalidArgument> {
        match (EARLIEST..=LATEST).contains(&micros) {
            true => Ok(Self { micros }),
            false => Err(InvalidArgument::new("a datetime is within the years 1 to 9999")),
        }
    }

    /// Return the microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.micros
    }

    /// Return the time of this machine's clock.
    pub fn now() -> Self {
        Self { micros: signed_micros(SystemTime::now()).clamp(EARLIEST.into(), LATEST.into()) as i64 }
    }
}

fn signed_micros(at: SystemTime) -> i128 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i128,
        // Rounded down, as everything else is.
        Err(before) => -(before.duration().as_nanos().div_ceil(1000) as i128),
    }
}

impl TryFrom<SystemTime> for DateTime {
    type Error = InvalidArgument;

    fn try_from(from: SystemTime) -> Result<Self, Self::Error> {
        Self::from_micros(signed_micros(from).clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

impl From<DateTime> for SystemTime {
    fn from(from: DateTime) -> Self {
        let size = Duration::from_micros(from.micros.unsigned_abs());
        if from.micros < 0 { UNIX_EPOCH - size } else { UNIX_EPOCH + size }
    }
}

/// Return year, month and day of a day after 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// Return the day after 1970-01-01 of a date.
fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

impl FromStr for DateTime {
    type Err = InvalidArgument;

    /// Read ISO 8601 in UTC, such as `2026-01-31T12:00:00.000001Z`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidArgument::new(format!("{:?} is no datetime in UTC", head(text)));
        let body = text.strip_suffix('Z').filter(|body| body.is_ascii()).ok_or_else(wrong)?;
        let (whole, fraction) = body.split_once('.').unwrap_or((body, "0"));
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        let bytes = whole.as_bytes();
        if bytes.len() != 19 || separators.iter().any(|(at, sign)| bytes[*at] != *sign) {
            return Err(wrong());
        }
        let part = |from: usize, to: usize| -> Result<i64, InvalidArgument> {
            match bytes[from..to].iter().all(u8::is_ascii_digit) {
                true => whole[from..to].parse().map_err(|_| wrong()),
                false => Err(wrong()),
            }
        };
        let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
        let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
        let micros_in_range =
            (1..=6).contains(&fraction.len()) && fraction.bytes().all(|one| one.is_ascii_digit());
        let days = day_of(year, month, day);
        if civil(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 || !micros_in_range {
            return Err(wrong());
        }
        let micros: i64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
        Self::from_micros(((days * 24 + hour) * 3600 + minute * 60 + second) * MILLION + micros)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.micros.div_euclid(MILLION), self.micros.rem_euclid(MILLION));
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

impl fmt::Debug for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DateTime({self})")
    }
}

/// A uuid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    bytes: [u8; 16],
}

impl Uuid {
    /// Return the uuid of 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self { bytes }
    }

    /// Return the bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.bytes
    }
}

impl FromStr for Uuid {
    type Err = InvalidArgument;

    /// Read 32 hexadecimal digits, with hyphens or without.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidArgument::new(format!("{:?} is no uuid", head(text)));
        let hyphens: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
        if !(hyphens.is_empty() || hyphens == [8, 13, 18, 23]) || text.len() - hyphens.len() != 32 {
            return Err(wrong());
        }
        let digits = text.bytes().filter(|one| *one != b'-').map(|one| (one as char).to_digit(16));
        let digits: Vec<u8> =
            digits.map(|one| one.map(|digit| digit as u8)).collect::<Option<_>>().ok_or_else(wrong)?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self { bytes })
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.bytes.iter().enumerate() {
            let hyphen = if matches!(n, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// The id of a record within its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecordKey {
    /// An integer.
    Int(i64),
    /// Text.
    String(String),
    /// A uuid.
    Uuid(Uuid),
    /// Several keys, compared one by one.
    Array(Vec<RecordKey>),
}

impl From<i64> for RecordKey {
    fn from(from: i64) -> Self {
        Self::Int(from)
    }
}

impl From<i32> for RecordKey {
    fn from(from: i32) -> Self {
        Self::Int(from.into())
    }
}

impl From<u32> for RecordKey {
    fn from(from: u32) -> Self {
        Self::Int(from.into())
    }
}

impl From<&str> for RecordKey {
    fn from(from: &str) -> Self {
        Self::String(from.into())
    }
}

impl From<String> for RecordKey {
    fn from(from: String) -> Self {
        Self::String(from)
    }
}

impl From<Uuid> for RecordKey {
    fn from(from: Uuid) -> Self {
        Self::Uuid(from)
    }
}

impl<T: Into<RecordKey>> From<Vec<T>> for RecordKey {
    fn from(from: Vec<T>) -> Self {
        Self::Array(from.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(key) => write!(f, "{key}"),
            Self::Uuid(key) => write!(f, "u'{key}'"),
            Self::String(key) => {
                f.write_str("'")?;
                for one in key.chars() {
                    match one {
                        '\n' => f.write_str("\\n")?,
                        '\t' => f.write_str("\\t")?,
                        '\r' => f.write_str("\\r")?,
                        '\\' => f.write_str("\\\\")?,
                        '\'' => f.write_str("\\'")?,
                        '\0' => f.write_str("\\u{0}")?,
                        _ => write!(f, "{one}")?,
                    }
                }
                f.write_str("'")
            }
            Self::Array(keys) => {
                f.write_str("[")?;
                for (n, key) in keys.iter().enumerate() {
                    write!(f, "{}{key}", if n > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The id of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Name of the table.
    pub table: String,
    /// Id within the table.
    pub key: RecordKey,
}

impl RecordId {
    /// Return the id of a record of a table.
    pub fn new(table: impl Into<String>, key: impl Into<RecordKey>) -> Self {
        Self { table: table.into(), key: key.into() }
    }
}

impl fmt::Display for RecordId {
    /// Write the form of the language, such as `` person:1 `` or `` person:`any text` ``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bare(f, &self.table)?;
        f.write_str(":")?;
        match &self.key {
            RecordKey::String(key) => write_bare(f, key),
            key => write!(f, "{key}"),
        }
    }
}

fn is_bare(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|one| one.is_ascii_alphabetic() || one == b'_');
    begins && name.bytes().all(|one| one.is_ascii_alphanumeric() || one == b'_')
}

fn write_bare(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_bare(name) {
        return f.write_str(name);
    }
    f.write_str("`")?;
    for one in name.chars() {
        write!(f, "{}{one}", if matches!(one, '\\' | '`') { "\\" } else { "" })?;
    }
    f.write_str("`")
}

impl FromStr for RecordId {
    type Err = InvalidArgument;

    /// Read `table:1`, `table:name` or `` table:`any text` ``. Other ids are parsed by the node alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidArgument::new(format!("{:?} is no id of a record", head(text)));
        let (table, rest) = read_bare(text).ok_or_else(wrong)?;
        let rest = rest.strip_prefix(':').ok_or_else(wrong)?;
        if let Ok(key) = rest.parse::<i64>() {
            return Ok(Self { table, key: RecordKey::Int(key) });
        }
        match read_bare(rest) {
            Some((key, "")) => Ok(Self { table, key: RecordKey::String(key) }),
            _ => Err(wrong()),
        }
    }
}

/// Read a name, plain or in back-quotes. Return it and the text behind it.
fn read_bare(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('`') {
        let mut name = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, one)) = chars.next() {
            match one {
                '`' => return Some((name, &quoted[at + 1..])),
                '\\' => name.push(chars.next()?.1),
                _ => name.push(one),
            }
        }
        return None;
    }
    let end = text.find(':').unwrap_or(text.len());
    is_bare(&text[..end]).then(|| (text[..end].to_owned(), &text[end..]))
}

/// Return the beginning of a text, for a message.
pub(crate) fn head(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Check a name of the store.
pub(crate) fn check_name(name: &str) -> Result<(), InvalidArgument> {
    let begins = name.bytes().next().is_some_and(|one| one.is_ascii_alphabetic() || one == b'_');
    let rest = name.bytes().all(|one| one.is_ascii_alphanumeric() || matches!(one, b'_' | b'-'));
    if begins && rest && name.len() <= 64 {
        return Ok(());
    }
    let text: String = name.chars().take(80).collect();
    Err(InvalidArgument::new(format!("{text:?} is no name: it must match ^[A-Za-z_][A-Za-z0-9_-]{{0,63}}$")))
}

/// Quote a checked name for a statement. Values are parameters and never quoted.
pub(crate) fn quote(name: &str) -> Result<String, InvalidArgument> {
    check_name(name)?;
    Ok(format!("`{name}`"))
}

#[cfg(feature = "uuid")]
mod of_uuid {
    use super::Uuid;

    impl From<uuid::Uuid> for Uuid {
        fn from(from: uuid::Uuid) -> Self {
            Self::from_bytes(from.into_bytes())
        }
    }

    impl From<Uuid> for uuid::Uuid {
        fn from(from: Uuid) -> Self {
            Self::from_bytes(*from.as_bytes())
        }
    }
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use super::{DateTime, InvalidArgument, SignedDuration};
    use chrono::{TimeDelta, TimeZone, Utc};

    impl<Tz: TimeZone> TryFrom<chrono::DateTime<Tz>> for DateTime {
        type Error = InvalidArgument;

        fn try_from(from: chrono::DateTime<Tz>) -> Result<Self, Self::Error> {
            Self::from_micros(from.timestamp_micros())
        }
    }

    impl TryFrom<DateTime> for chrono::DateTime<Utc> {
        type Error = InvalidArgument;

        fn try_from(from: DateTime) -> Result<Self, Self::Error> {
            Self::from_timestamp_micros(from.as_micros())
                .ok_or_else(|| InvalidArgument::new(format!("{from} is beyond chrono")))
        }
    }

    impl TryFrom<TimeDelta> for SignedDuration {
        type Error = InvalidArgument;

        fn try_from(from: TimeDelta) -> Result<Self, Self::Error> {
            let micros = from.num_microseconds();
            micros.map(Self::from_micros).ok_or_else(|| InvalidArgument::new(format!("{from} is too long")))
        }
    }

    impl From<SignedDuration> for TimeDelta {
        fn from(from: SignedDuration) -> Self {
            Self::microseconds(from.as_micros())
        }
    }
}

#[cfg(feature = "jiff")]
mod of_jiff {
    use super::{DateTime, InvalidArgument, SignedDuration};

    impl TryFrom<jiff::Timestamp> for DateTime {
        type Error = InvalidArgument;

        fn try_from(from: jiff::Timestamp) -> Result<Self, Self::Error> {
            Self::from_micros(from.as_nanosecond().div_euclid(1000) as i64)
        }
    }

    impl TryFrom<DateTime> for jiff::Timestamp {
        type Error = InvalidArgument;

        fn try_from(from: DateTime) -> Result<Self, Self::Error> {
            Self::from_microsecond(from.as_micros())
                .map_err(|_| InvalidArgument::new(format!("{from} is beyond jiff")))
        }
    }

    impl TryFrom<jiff::SignedDuration> for SignedDuration {
        type Error = InvalidArgument;

        fn try_from(from: jiff::SignedDuration) -> Result<Self, Self::Error> {
            let micros = i64::try_from(from.as_micros());
            micros.map(Self::from_micros).map_err(|_| InvalidArgument::new(format!("{from:?} is too long")))
        }
    }

    impl From<SignedDuration> for jiff::SignedDuration {
        fn from(from: SignedDuration) -> Self {
            Self::from_micros(from.as_micros())
        }
    }
}

#[cfg(feature = "time")]
mod of_time {
    use super::{DateTime, InvalidArgument, SignedDuration};

    impl TryFrom<time::OffsetDateTime> for DateTime {
        type Error = InvalidArgument;

        fn try_from(from: time::OffsetDateTime) -> Result<Self, Self::Error> {
            Self::from_micros(from.unix_timestamp_nanos().div_euclid(1000) as i64)
        }
    }

    impl TryFrom<DateTime> for time::OffsetDateTime {
        type Error = InvalidArgument;

        fn try_from(from: DateTime) -> Result<Self, Self::Error> {
            Self::from_unix_timestamp_nanos(i128::from(from.as_micros()) * 1000)
                .map_err(|_| InvalidArgument::new(format!("{from} is beyond time")))
        }
    }

    impl TryFrom<time::Duration> for SignedDuration {
        type Error = InvalidArgument;

        fn try_from(from: time::Duration) -> Result<Self, Self::Error> {
            let micros = i64::try_from(from.whole_microseconds());
            micros.map(Self::from_micros).map_err(|_| InvalidArgument::new(format!("{from} is too long")))
        }
    }

    impl From<SignedDuration> for time::Duration {
        fn from(from: SignedDuration) -> Self {
            Self::microseconds(from.as_micros())
        }
    }
}

#[cfg(feature = "bigdecimal")]
mod of_bigdecimal {
    use super::{Decimal, InvalidArgument};
    use bigdecimal::BigDecimal;

    impl TryFrom<BigDecimal> for Decimal {
        type Error = InvalidArgument;

        fn try_from(from: BigDecimal) -> Result<Self, Self::Error> {
            let (unscaled, scale) = from.as_bigint_and_scale();
            match scale {
                0 => unscaled.to_string().parse(),
                _ => {
                    format!("{unscaled}E{:+}", -i128::from(scale)).parse::<Self>().map(|found| found.plain())
                }
            }
        }
    }

    impl TryFrom<Decimal> for BigDecimal {
        type Error = InvalidArgument;

        fn try_from(from: Decimal) -> Result<Self, Self::Error> {
            from.as_str().parse().map_err(|_| InvalidArgument::new(format!("{from} is beyond bigdecimal")))
        }
    }

    impl Decimal {
        /// Return the same number without an exponent, where that takes few digits.
        fn plain(self) -> Self {
            let (unscaled, scale) = self.parts();
            if !(1..=34).contains(&scale) {
                return self;
            }
            let (sign, digits) = (if unscaled < 0 { "-" } else { "" }, unscaled.unsigned_abs().to_string());
            let digits = format!("{digits:0>width$}", width = scale as usize + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
            Self { text: format!("{sign}{whole}.{fraction}").into() }
        }
    }
}
