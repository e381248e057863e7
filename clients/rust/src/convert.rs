//! Values by serde, in both directions.
//!
//! Types of the language that serde does not know travel as newtype structs with reserved names. The
//! serializer and the deserializer of this module know these names; for other formats they are text.

use std::fmt;

use bytes::Bytes;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::ser::{self, Serialize};
use serde::{Deserialize, Deserializer, Serializer};

use crate::errors::{DecodeError, InvalidArgument};
use crate::values::{DateTime, Decimal, Object, RecordId, RecordKey, SignedDuration, Uuid, Value};

const VALUE: &str = "$storenode::Value";
const NONE: &str = "$storenode::None";
const DECIMAL: &str = "$storenode::Decimal";
const DATETIME: &str = "$storenode::DateTime";
const DURATION: &str = "$storenode::Duration";
const UUID: &str = "$storenode::Uuid";
const RECORD: &str = "$storenode::RecordId";

/// Levels that a value may have.
pub(crate) const DEPTH: usize = 64;

/// Convert to a value of the language.
///
/// Structs and maps become objects, sequences and tuples arrays, `()` and `None` null, enums their name or
/// an object of one field. NaN, infinite floats and integers beyond 64 bits are refused.
pub fn to_value<T: Serialize + ?Sized>(from: &T) -> Result<Value, InvalidArgument> {
    from.serialize(ToValue { depth: 0 })
}

/// Convert a value of the language to a type.
///
/// An int does as a float, and no float as an int. Fields that a struct does not name are ignored.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, DecodeError> {
    T::deserialize(FromValue(value))
}

impl ser::Error for InvalidArgument {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

// --- to values ---------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
struct ToValue {
    depth: usize,
}

impl ToValue {
    fn deeper(self) -> Result<Self, InvalidArgument> {
        match self.depth < DEPTH + 1 {
            true => Ok(Self { depth: self.depth + 1 }),
            false => Err(InvalidArgument::new(format!("it nests deeper than {DEPTH}"))),
        }
    }
}

fn beyond(number: impl fmt::Display) -> InvalidArgument {
    InvalidArgument::new(format!("{number} is beyond 64 bits with a sign"))
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = InvalidArgument;
    type SerializeSeq = ToArray;
    type SerializeTuple = ToArray;
    type SerializeTupleStruct = ToArray;
    type SerializeTupleVariant = ToArray;
    type SerializeMap = ToObject;
    type SerializeStruct = ToObject;
    type SerializeStructVariant = ToObject;

    fn serialize_bool(self, v: bool) -> Result<Value, InvalidArgument> {
        Ok(Value::Bool(v))
    }

    fn serialize_i8(self, v: i8) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_i16(self, v: i16) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_i32(self, v: i32) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_i64(self, v: i64) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v))
    }

    fn serialize_i128(self, v: i128) -> Result<Value, InvalidArgument> {
        i64::try_from(v).map(Value::Int).map_err(|_| beyond(v))
    }

    fn serialize_u8(self, v: u8) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_u16(self, v: u16) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_u32(self, v: u32) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v.into()))
    }

    fn serialize_u64(self, v: u64) -> Result<Value, InvalidArgument> {
        i64::try_from(v).map(Value::Int).map_err(|_| beyond(v))
    }

    fn serialize_u128(self, v: u128) -> Result<Value, InvalidArgument> {
        i64::try_from(v).map(Value::Int).map_err(|_| beyond(v))
    }

    fn serialize_f32(self, v: f32) -> Result<Value, InvalidArgument> {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Result<Value, InvalidArgument> {
        match v.is_finite() {
            true => Ok(Value::Float(v)),
            false => Err(InvalidArgument::new(format!("{v} is no number of the language"))),
        }
    }

    fn serialize_char(self, v: char) -> Result<Value, InvalidArgument> {
        Ok(Value::String(v.into()))
    }

    fn serialize_str(self, v: &str) -> Result<Value, InvalidArgument> {
        Ok(Value::String(v.into()))
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<Value, InvalidArgument> {
        Ok(Value::Bytes(Bytes::copy_from_slice(v)))
    }

    fn serialize_none(self) -> Result<Value, InvalidArgument> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, InvalidArgument> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, InvalidArgument> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Value, InvalidArgument> {
        Ok(if name == NONE { Value::None } else { Value::Null })
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, InvalidArgument> {
        Ok(Value::String(variant.into()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, InvalidArgument> {
        if !name.starts_with("$storenode::") {
            return value.serialize(self);
        }
        let misfit = || InvalidArgument::new(format!("{name} is a name of this client"));
        match (name, value.serialize(Payload)?) {
            (DECIMAL, Value::String(text)) => Ok(Value::Decimal(text.parse()?)),
            (DATETIME, Value::Int(micros)) => Ok(Value::DateTime(DateTime::from_micros(micros)?)),
            (DURATION, Value::Int(micros)) => Ok(Value::Duration(SignedDuration::from_micros(micros))),
            (UUID, Value::Bytes(bytes)) => {
                Ok(Value::Uuid(Uuid::from_bytes(bytes.as_ref().try_into().map_err(|_| misfit())?)))
            }
            (RECORD, Value::Array(parts)) => record_of(parts).map(Value::Record).ok_or_else(misfit),
            _ => Err(misfit()),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, InvalidArgument> {
        let inner =
            value.serialize(self.deeper()?).map_err(|error| error.under(format_args!(".{variant}")))?;
        Ok(Value::Object(Object::from([(variant.into(), inner)])))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ToArray, InvalidArgument> {
        Ok(ToArray { inner: self.deeper()?, items: Vec::new(), variant: None })
    }

    fn serialize_tuple(self, _: usize) -> Result<ToArray, InvalidArgument> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<ToArray, InvalidArgument> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ToArray, InvalidArgument> {
        Ok(ToArray { inner: self.deeper()?.deeper()?, items: Vec::new(), variant: Some(variant) })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<ToObject, InvalidArgument> {
        Ok(ToObject { inner: self.deeper()?, fields: Object::new(), key: None, variant: None })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<ToObject, InvalidArgument> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ToObject, InvalidArgument> {
        let inner = self.deeper()?.deeper()?;
        Ok(ToObject { inner, fields: Object::new(), key: None, variant: Some(variant) })
    }
}

fn of_variant(value: Value, variant: Option<&'static str>) -> Value {
    match variant {
        Some(name) => Value::Object(Object::from([(name.into(), value)])),
        None => value,
    }
}

struct ToArray {
    inner: ToValue,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl ToArray {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        let place = self.items.len();
        self.items.push(value.serialize(self.inner).map_err(|error| error.under(format_args!("[{place}]")))?);
        Ok(())
    }

    fn whole(self) -> Result<Value, InvalidArgument> {
        Ok(of_variant(Value::Array(self.items), self.variant))
    }
}

impl ser::SerializeSeq for ToArray {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        self.push(value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        self.whole()
    }
}

impl ser::SerializeTuple for ToArray {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        self.push(value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        self.whole()
    }
}

impl ser::SerializeTupleStruct for ToArray {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        self.push(value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        self.whole()
    }
}

impl ser::SerializeTupleVariant for ToArray {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        self.push(value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        self.whole()
    }
}

struct ToObject {
    inner: ToValue,
    fields: Object,
    key: Option<String>,
    variant: Option<&'static str>,
}

impl ToObject {
    fn put<T: Serialize + ?Sized>(&mut self, name: String, value: &T) -> Result<(), InvalidArgument> {
        let value = value.serialize(self.inner).map_err(|error| error.under(format_args!(".{name}")))?;
        self.fields.insert(name, value);
        Ok(())
    }
}

impl ser::SerializeMap for ToObject {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), InvalidArgument> {
        match key.serialize(self.inner)? {
            Value::String(name) => self.key = Some(name),
            other => {
                let reason = format!("the names of fields are strings, not {}", other.type_name());
                return Err(InvalidArgument::new(reason));
            }
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), InvalidArgument> {
        let name =
            self.key.take().ok_or_else(|| InvalidArgument::new("a value of a map comes behind its key"))?;
        self.put(name, value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        Ok(of_variant(Value::Object(self.fields), self.variant))
    }
}

impl ser::SerializeStruct for ToObject {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), InvalidArgument> {
        self.put(name.into(), value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        Ok(of_variant(Value::Object(self.fields), self.variant))
    }
}

impl ser::SerializeStructVariant for ToObject {
    type Ok = Value;
    type Error = InvalidArgument;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), InvalidArgument> {
        self.put(name.into(), value)
    }

    fn end(self) -> Result<Value, InvalidArgument> {
        Ok(of_variant(Value::Object(self.fields), self.variant))
    }
}

/// Serializer of the contents of a reserved newtype struct: text, an integer, bytes, or the parts of a record.
struct Payload;

fn no_payload<T>() -> Result<T, InvalidArgument> {
    Err(InvalidArgument::new("a name of this client has other contents"))
}

macro_rules! refused {
    ($($name:ident($($type:ty),*) -> $found:ty;)*) => {$(
        fn $name(self, $(_: $type),*) -> Result<$found, InvalidArgument> {
            no_payload()
        }
    )*};
}

impl Serializer for Payload {
    type Ok = Value;
    type Error = InvalidArgument;
    type SerializeSeq = ser::Impossible<Value, InvalidArgument>;
    type SerializeTuple = ToArray;
    type SerializeTupleStruct = ser::Impossible<Value, InvalidArgument>;
    type SerializeTupleVariant = ser::Impossible<Value, InvalidArgument>;
    type SerializeMap = ser::Impossible<Value, InvalidArgument>;
    type SerializeStruct = ser::Impossible<Value, InvalidArgument>;
    type SerializeStructVariant = ser::Impossible<Value, InvalidArgument>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_i64(self, v: i64) -> Result<Value, InvalidArgument> {
        Ok(Value::Int(v))
    }

    fn serialize_str(self, v: &str) -> Result<Value, InvalidArgument> {
        Ok(Value::String(v.into()))
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<Value, InvalidArgument> {
        Ok(Value::Bytes(Bytes::copy_from_slice(v)))
    }

    fn serialize_tuple(self, len: usize) -> Result<ToArray, InvalidArgument> {
        ToValue { depth: 0 }.serialize_tuple(len)
    }

    refused! {
        serialize_bool(bool) -> Value;
        serialize_i8(i8) -> Value;
        serialize_i16(i16) -> Value;
        serialize_i32(i32) -> Value;
        serialize_u8(u8) -> Value;
        serialize_u16(u16) -> Value;
        serialize_u32(u32) -> Value;
        serialize_u64(u64) -> Value;
        serialize_f32(f32) -> Value;
        serialize_f64(f64) -> Value;
        serialize_char(char) -> Value;
        serialize_none() -> Value;
        serialize_unit() -> Value;
        serialize_unit_struct(&'static str) -> Value;
        serialize_unit_variant(&'static str, u32, &'static str) -> Value;
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Value, InvalidArgument> {
        no_payload()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: &T,
    ) -> Result<Value, InvalidArgument> {
        no_payload()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Value, InvalidArgument> {
        no_payload()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit_struct(NONE),
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::String(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::Decimal(value) => value.serialize(serializer),
            Self::DateTime(value) => value.serialize(serializer),
            Self::Duration(value) => value.serialize(serializer),
            Self::Uuid(value) => value.serialize(serializer),
            Self::Record(value) => value.serialize(serializer),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(fields) => serializer.collect_map(fields),
        }
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DECIMAL, self.as_str())
    }
}

/// Contents that are text for people, and something shorter for others.
struct Either<'a, T>(T, &'a dyn fmt::Display);

impl<T: Serialize> Serialize for Either<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self.1)
        } else {
            self.0.serialize(serializer)
        }
    }
}

struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DATETIME, &Either(self.as_micros(), self))
    }
}

impl Serialize for SignedDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DURATION, &Either(self.as_micros(), self))
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(UUID, &Either(Raw(self.as_bytes()), self))
    }
}

impl Serialize for RecordId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(RECORD, &Either((self.table.as_str(), &self.key), self))
    }
}

impl Serialize for RecordKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(key) => serializer.serialize_i64(*key),
            Self::String(key) => serializer.serialize_str(key),
            Self::Uuid(key) => key.serialize(serializer),
            Self::Array(keys) => serializer.collect_seq(keys),
        }
    }
}

fn record_of(parts: Vec<Value>) -> Option<RecordId> {
    let [Value::String(table), key] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    Some(RecordId { table, key: key_of(key)? })
}

/// Return the id of a record that a value is.
pub(crate) fn key_of(value: Value) -> Option<RecordKey> {
    match value {
        Value::Int(key) => Some(RecordKey::Int(key)),
        Value::String(key) => Some(RecordKey::String(key)),
        Value::Uuid(key) => Some(RecordKey::Uuid(key)),
        Value::Array(keys) => keys.into_iter().map(key_of).collect::<Option<_>>().map(RecordKey::Array),
        _ => None,
    }
}

fn of_key(key: RecordKey) -> Value {
    match key {
        RecordKey::Int(key) => Value::Int(key),
        RecordKey::String(key) => Value::String(key),
        RecordKey::Uuid(key) => Value::Uuid(key),
        RecordKey::Array(keys) => Value::Array(keys.into_iter().map(of_key).collect()),
    }
}

// --- from values -------------------------------------------------------------------------------------

struct FromValue(Value);

impl<'de> IntoDeserializer<'de, DecodeError> for Value {
    type Deserializer = FromValueDeserializer;

    fn into_deserializer(self) -> FromValueDeserializer {
        FromValueDeserializer(FromValue(self))
    }
}

/// Deserializer of a [`Value`].
pub struct FromValueDeserializer(FromValue);

impl fmt::Debug for FromValueDeserializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromValueDeserializer").field(&self.0.0).finish()
    }
}

impl<'de> Deserializer<'de> for FromValueDeserializer {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.0.deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.0.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items {
    items: std::vec::IntoIter<Value>,
    place: usize,
}

impl<'de> de::SeqAccess<'de> for Items {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(item) = self.items.next() else { return Ok(None) };
        self.place += 1;
        let found = seed.deserialize(FromValue(item));
        found.map(Some).map_err(|error| error.under(format_args!("[{}]", self.place - 1)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields {
    fields: std::collections::btree_map::IntoIter<String, Value>,
    current: Option<(String, Value)>,
}

impl<'de> de::MapAccess<'de> for Fields {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.current = self.fields.next();
        match &self.current {
            Some((name, _)) => seed.deserialize(name.as_str().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let (name, value) =
            self.current.take().ok_or_else(|| DecodeError::new("a value of a map comes behind its key"))?;
        seed.deserialize(FromValue(value)).map_err(|error| error.under(format_args!(".{name}")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// Access to a value as an enum: by its name alone, or as an object of one field.
struct Variant {
    name: String,
    value: Option<Value>,
}

impl<'de> de::EnumAccess<'de> for Variant {
    type Error = DecodeError;
    type Variant = VariantValue;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantValue), DecodeError> {
        Ok((seed.deserialize(self.name.into_deserializer())?, VariantValue(self.value)))
    }
}

struct VariantValue(Option<Value>);

impl VariantValue {
    fn value(self) -> Result<FromValue, DecodeError> {
        self.0.map(FromValue).ok_or_else(|| DecodeError::new("the variant has a value"))
    }
}

impl<'de> de::VariantAccess<'de> for VariantValue {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.0 {
            None | Some(Value::Null | Value::None) => Ok(()),
            Some(other) => {
                Err(DecodeError::new(format!("the variant has no value, and not {}", other.type_name())))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.value()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.value()?.deserialize_any(visitor)
    }
}

/// Hands a value of a type that serde does not know to the visitor of [`Value`].
struct Whole(Value);

impl<'de> de::EnumAccess<'de> for Whole {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        Ok((seed.deserialize(self.0.type_name().into_deserializer())?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Whole {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(Contents(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        Contents(self.0).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        Contents(self.0).deserialize_any(visitor)
    }
}

/// Deserializer of the contents of a reserved newtype struct.
struct Contents(Value);

impl<'de> Deserializer<'de> for Contents {
    type Error = DecodeError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::Decimal(value) => visitor.visit_str(value.as_str()),
            Value::DateTime(value) => visitor.visit_i64(value.as_micros()),
            Value::Duration(value) => visitor.visit_i64(value.as_micros()),
            Value::Uuid(value) => visitor.visit_bytes(value.as_bytes()),
            Value::Bytes(value) => visitor.visit_byte_buf(value.into()),
            Value::Record(value) => {
                let parts = vec![Value::String(value.table), of_key(value.key)];
                visitor.visit_seq(Items { items: parts.into_iter(), place: 0 })
            }
            other => FromValue(other).deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for FromValue {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::None | Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i64(value),
            Value::Float(value) => visitor.visit_f64(value),
            Value::String(value) => visitor.visit_string(value),
            Value::Bytes(value) => visitor.visit_byte_buf(value.into()),
            Value::Decimal(value) => visitor.visit_str(value.as_str()),
            Value::DateTime(value) => visitor.visit_string(value.to_string()),
            Value::Duration(value) => visitor.visit_string(value.to_string()),
            Value::Uuid(value) => visitor.visit_string(value.to_string()),
            Value::Record(value) => visitor.visit_string(value.to_string()),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), place: 0 }),
            Value::Object(fields) => visitor.visit_map(Fields { fields: fields.into_iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::None | Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match (name, &self.0) {
            (
                VALUE,
                Value::None
                | Value::Decimal(_)
                | Value::DateTime(_)
                | Value::Duration(_)
                | Value::Uuid(_)
                | Value::Record(_),
            ) => visitor.visit_enum(Whole(self.0)),
            (VALUE, _) => self.deserialize_any(visitor),
            (DECIMAL, Value::Decimal(_))
            | (DATETIME, Value::DateTime(_))
            | (DURATION, Value::Duration(_))
            | (UUID, Value::Uuid(_))
            | (RECORD, Value::Record(_)) => visitor.visit_newtype_struct(Contents(self.0)),
            (DECIMAL | DATETIME | DURATION | UUID | RECORD, other) => {
                let found = other.type_name();
                Err(DecodeError::new(format!(
                    "it is {found}, and not {}",
                    name.trim_start_matches("$storenode::")
                )))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, value: None }),
            Value::Object(fields) if fields.len() == 1 => match fields.into_iter().next() {
                Some((name, value)) => visitor.visit_enum(Variant { name, value: Some(value) }),
                None => Err(DecodeError::new("an enum is a name, or an object of one field")),
            },
            other => Err(DecodeError::new(format!(
                "an enum is a name, or an object of one field, and not {}",
                other.type_name()
            ))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(VALUE, ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the language")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        i64::try_from(v).map(Value::Int).map_err(|_| E::custom(beyond(v)))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.into()))
    }

    fn visit_string<E: de::Error>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(Bytes::copy_from_slice(v)))
    }

    fn visit_byte_buf<E: de::Error>(self, v: Vec<u8>) -> Result<Value, E> {
        Ok(Value::Bytes(v.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(4096));
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Object::new();
        while let Some((name, value)) = map.next_entry()? {
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        use de::VariantAccess;
        let (name, contents) = data.variant::<String>()?;
        match name.as_str() {
            "none" => contents.unit_variant().map(|()| Value::None),
            "decimal" => contents.newtype_variant_seed(Of(DecimalVisitor)).map(Value::Decimal),
            "datetime" => contents.newtype_variant_seed(Of(DateTimeVisitor)).map(Value::DateTime),
            "duration" => contents.newtype_variant_seed(Of(DurationVisitor)).map(Value::Duration),
            "uuid" => contents.newtype_variant_seed(Of(UuidVisitor)).map(Value::Uuid),
            "record" => contents.newtype_variant_seed(Of(RecordVisitor)).map(Value::Record),
            _ => Err(de::Error::custom(format!("{name} is no type of the language"))),
        }
    }
}

/// Seed that has a visitor read the contents of a value.
struct Of<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Of<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_any(self.0)
    }
}

macro_rules! visitors {
    ($($visitor:ident of $type:ident, $name:ident, $expecting:literal { $($method:item)* })*) => {$(
        struct $visitor;

        impl<'de> Visitor<'de> for $visitor {
            type Value = $type;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expecting)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<$type, E> {
                v.parse().map_err(E::custom)
            }

            $($method)*
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_newtype_struct($name, $visitor)
            }
        }
    )*};
}

visitors! {
    DecimalVisitor of Decimal, DECIMAL, "a decimal" {}
    DateTimeVisitor of DateTime, DATETIME, "a datetime" {
        fn visit_i64<E: de::Error>(self, v: i64) -> Result<DateTime, E> {
            DateTime::from_micros(v).map_err(E::custom)
        }
    }
    DurationVisitor of SignedDuration, DURATION, "a duration" {
        fn visit_i64<E: de::Error>(self, v: i64) -> Result<SignedDuration, E> {
            Ok(SignedDuration::from_micros(v))
        }
    }
    UuidVisitor of Uuid, UUID, "a uuid" {
        fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Uuid, E> {
            let bytes = v.try_into().map_err(|_| E::invalid_length(v.len(), &self))?;
            Ok(Uuid::from_bytes(bytes))
        }
    }
    RecordVisitor of RecordId, RECORD, "the id of a record" {
        fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<RecordId, A::Error> {
            let (Some(table), Some(key)) = (seq.next_element::<String>()?, seq.next_element::<Value>()?) else {
                return Err(de::Error::custom("the id of a record has a table and a key"));
            };
            let key = key_of(key).ok_or_else(|| de::Error::custom("a key is an int, text, a uuid or an array"))?;
            Ok(RecordId { table, key })
        }
    }
}

// --- fields of foreign types -------------------------------------------------------------------------

/// Serialize a field of a foreign type as a value of the language.
///
/// `#[serde(with = "storenode::via::datetime")]` and its siblings take any type that converts to and from the type of
/// this crate: [`std::time::SystemTime`], and with the features of this crate those of chrono, jiff, time,
/// uuid and bigdecimal.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Visit {
///     #[serde(with = "storenode::via::datetime")]
///     at: std::time::SystemTime,
///     #[serde(with = "storenode::via::duration")]
///     length: std::time::Duration,
/// }
/// ```
pub mod via {
    macro_rules! modules {
        ($($(#[$doc:meta])* $module:ident of $type:ident;)*) => {$(
            $(#[$doc])*
            pub mod $module {
                use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

                use crate::values::$type;

                /// Serialize as the type of the language.
                pub fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
                where
                    T: Clone + TryInto<$type>,
                    T::Error: std::fmt::Display,
                    S: Serializer,
                {
                    let found: $type = value.clone().try_into().map_err(ser::Error::custom)?;
                    found.serialize(serializer)
                }

                /// Deserialize from the type of the language.
                pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
                where
                    $type: TryInto<T>,
                    <$type as TryInto<T>>::Error: std::fmt::Display,
                    D: Deserializer<'de>,
                {
                    $type::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
                }
            }
        )*};
    }

    modules! {
        /// As a datetime.
        datetime of DateTime;
        /// As a duration.
        duration of SignedDuration;
        /// As a decimal.
        decimal of Decimal;
        /// As a uuid.
        uuid of Uuid;
    }

    /// As bytes; serde alone makes an array of a `Vec<u8>`.
    pub mod bytes {
        use std::fmt;

        use serde::de::{Error, SeqAccess, Visitor};
        use serde::{Deserializer, Serializer};

        /// Serialize as bytes.
        pub fn serialize<T: AsRef<[u8]>, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(value.as_ref())
        }

        /// Deserialize from bytes.
        pub fn deserialize<'de, T: From<Vec<u8>>, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<T, D::Error> {
            deserializer.deserialize_byte_buf(BytesVisitor).map(T::from)
        }

        struct BytesVisitor;

        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }

            fn visit_byte_buf<E: Error>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut found = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    found.push(byte);
                }
                Ok(found)
            }
        }
    }
}
