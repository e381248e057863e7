//! The codec, and values by serde.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::codec::{read_value, write_given};
use crate::frames::{Body, Kind, next_message, write_frame};
use crate::values::{DateTime, Decimal, Object, RecordId, RecordKey, SignedDuration, Uuid, Value};
use crate::{Error, from_value, search, to_value};

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_given(&mut bytes, value).unwrap();
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Value, String> {
    read_value(&Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())
}

fn decimals() -> impl Strategy<Value = Decimal> {
    (any::<i64>(), 0u32..12).prop_map(|(digits, exponent)| format!("{digits}E-{exponent}").parse().unwrap())
}

fn keys() -> impl Strategy<Value = RecordKey> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(RecordKey::Int),
        ".*".prop_map(RecordKey::String),
        any::<[u8; 16]>().prop_map(|bytes| RecordKey::Uuid(Uuid::from_bytes(bytes))),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(RecordKey::Array))
}

fn values() -> impl Strategy<Value = Value> {
    let micros = -62_135_596_800_000_000i64..=253_402_300_799_999_999;
    let leaf = prop_oneof![
        Just(Value::None),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-300i64..300).prop_map(Value::Int),
        any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::Float),
        ".*".prop_map(Value::String),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
        decimals().prop_map(Value::Decimal),
        micros.prop_map(|micros| Value::DateTime(DateTime::from_micros(micros).unwrap())),
        any::<i64>().prop_map(|micros| Value::Duration(SignedDuration::from_micros(micros))),
        any::<[u8; 16]>().prop_map(|bytes| Value::Uuid(Uuid::from_bytes(bytes))),
        (".*", keys()).prop_map(|(table, key)| Value::Record(RecordId { table, key })),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::btree_map(".*", inner, 0..8).prop_map(Value::Object),
        ]
    })
}

proptest! {
    #[test]
    fn c30_values_are_exact_both_ways(value in values()) {
        let bytes = encoded(&value);
        prop_assert_eq!(decoded(&bytes), Ok(value.clone()));
        prop_assert_eq!(to_value(&value), Ok(value.clone()));
        prop_assert_eq!(from_value::<Value>(value.clone()), Ok(value));
        for end in 0..bytes.len() {
            prop_assert!(decoded(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn c8_any_bytes_are_a_value_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(decoded(&bytes));
        drop(next_message(&mut BytesMut::from(&bytes[..])));
    }

    #[test]
    fn texts_of_values_are_read_back(micros in any::<i64>(), bytes in any::<[u8; 16]>(), at in 0i64..4_000_000_000) {
        let duration = SignedDuration::from_micros(micros);
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        let uuid = Uuid::from_bytes(bytes);
        prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        let datetime = DateTime::from_micros(at * 61_803_399).unwrap();
        prop_assert_eq!(datetime.to_string().parse(), Ok(datetime));
    }

    #[test]
    fn decimals_compare_by_value(one in decimals(), two in decimals()) {
        let scaled = |decimal: &Decimal| {
            let (unscaled, scale) = decimal.parts();
            unscaled * 10i128.pow(12 - scale as u32)
        };
        prop_assert_eq!(one.cmp(&two), scaled(&one).cmp(&scaled(&two)));
    }
}

#[test]
fn c53_queries_and_vectors() {
    let vector = to_value(&[0.5f32, 1.0]).unwrap();
    assert_eq!(vector, Value::Array(vec![Value::Float(0.5), Value::Float(1.0)]));
    assert!(to_value(&[f32::NAN]).is_err());
    let query = search::all([search::boost("tin", 2.0), search::not(search::any(["a", "b"]))]);
    let parts = query.get("all").unwrap().as_array().unwrap();
    assert_eq!(parts[0].get("boost"), Some(&Value::Array(vec!["tin".into(), 2.0.into()])));
    assert_eq!(parts[1].get("not").unwrap().get("any"), Some(&Value::Array(vec!["a".into(), "b".into()])));
    assert_eq!(to_value(&query), Ok(query));
}

#[test]
fn c30_bytes_of_the_protocol() {
    for (value, wanted) in [
        (Value::Int(-1), vec![0xff]),
        (Value::Int(200), vec![0xcc, 200]),
        (Value::Int(i64::MAX), [&[0xcf][..], &i64::MAX.to_be_bytes()].concat()),
        (Value::Float(1.0), [&[0xcb][..], &1f64.to_be_bytes()].concat()),
        (Value::Decimal("12.30".parse().unwrap()), [&[0xc7, 5, 1][..], b"12.30"].concat()),
        (Value::Duration(SignedDuration::from_micros(180)), vec![0xd7, 2, 0, 0, 0, 0, 0, 0, 0, 180]),
        (Value::DateTime(DateTime::from_micros(1_000_000).unwrap()), vec![0xd6, 0xff, 0, 0, 0, 1]),
        (Value::None, vec![0xc7, 0, 5]),
        (Value::Record(RecordId::new("a", 1)), vec![0xd6, 4, 0x92, 0xa1, b'a', 1]),
    ] {
        assert_eq!(encoded(&value), wanted, "{value:?}");
        assert_eq!(decoded(&wanted), Ok(value));
    }
    assert_eq!(decoded(&[0xca, 0x3f, 0xc0, 0, 0]), Ok(Value::Float(1.5)));
    assert_eq!(
        decoded(&[0xd7, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]),
        Ok(Value::DateTime("1970-01-01T00:00:01Z".parse().unwrap()))
    );
}

#[test]
fn c8_malformed_values_are_refused() {
    let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    assert!(decoded(&nested(80)).is_ok());
    for (bytes, reason) in [
        (nested(81), "deeper than 80"),
        (vec![0xc1], "begins no value"),
        (vec![], "too early"),
        (vec![0xdd, 0xff, 0xff, 0xff, 0xff], "too early"),
        (vec![0xdf, 0x7f, 0xff, 0xff, 0xff], "too early"),
        (vec![0xdb, 0, 0, 0, 9, b'a'], "too early"),
        (vec![0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0], "64 bits with a sign"),
        (vec![0xa1, 0xff], "UTF-8"),
        (vec![0x81, 1, 1], "keys of an object"),
        (vec![0xd4, 9, 0], "not known to this version"),
        (vec![0xd4, 2, 0], "not known to this version"),
        (vec![0xd5, 1, b'1', b'x'], "is no decimal"),
        (vec![0xd5, 4, 0xa1, b'a'], "a table and an id"),
        (vec![0xc7, 5, 0xff, 0, 0, 0, 0, 0], "4, 8 or 12 bytes"),
        ([&[0xcb][..], &f64::NAN.to_be_bytes()].concat(), "neither NaN"),
        (vec![0xc0, 0xc0], "1 bytes stand behind it"),
    ] {
        let found = decoded(&bytes).unwrap_err();
        assert!(found.contains(reason), "{bytes:?}: {found}");
    }
}

#[test]
fn c8_frames_are_checked() {
    for (bytes, reason) in [
        (&[1, 0, 0, 1][..], "a frame of 16777217 bytes"),
        (b"HTTP/1.1 400", "HTTP is spoken there"),
        (&[0x15, 3, 1, 0, 2], "TLS is spoken there"),
        (&[0, 0, 0, 1, 0xc0], "what is no message"),
        (&[0, 0, 0, 4, 0x93, 60, 0, 0xc0], "a message of kind 60"),
        (&[0, 0, 0, 4, 0x93, 3, 1, 0xc0], "a message of kind 3"),
        (&[0, 0, 0, 4, 0x93, 36, 0xff, 0xc0], "what is no message"),
        (&[0, 0, 0, 4, 0x93, 36, 1, 1], "what is no message"),
        (&[0, 0, 0, 6, 0x93, 36, 1, 0x81, 1, 1], "the keys of an object are strings"),
        (&[0, 0, 0, 7, 0x93, 36, 1, 0x81, 0xa1, 0xff, 1], "a string is UTF-8"),
        (&[0, 0, 0, 8, 0x93, 36, 1, 0xde, 0xff, 0xff, 0xa1, b'a'], "it ends too early"),
        (&[0, 0, 0, 5, 0x93, 36, 1, 0xc0, 0xc0], "1 bytes stand behind it"),
    ] {
        let error = next_message(&mut BytesMut::from(bytes)).unwrap_err();
        let Error::ProtocolBroken(found) = error else { panic!("{error}") };
        assert!(found.contains(reason), "{found}");
    }
    assert!(next_message(&mut BytesMut::from(&[0, 0, 0, 4, 0x93, 36, 1][..])).unwrap().is_none());
}

#[test]
fn c8_a_field_is_found_by_its_name() {
    let fields = b"\x83\xa1a\x01\xd9\x01b\xa1x\xa1a\x02";
    let frame = [&[0, 0, 0, 3 + fields.len() as u8, 0x93, 36, 7][..], fields].concat();
    let mut buffer = BytesMut::from(&[&frame[..], &[0]].concat()[..]);
    let mut message = next_message(&mut buffer).unwrap().unwrap();
    assert_eq!((message.kind, message.id, message.size, buffer.len()), (Kind::Pong, 7, frame.len() - 4, 1));
    assert_eq!(message.body.get("c"), None);
    assert_eq!(message.body.get("a"), Some(&Value::Int(2)), "the last of two with one name");
    assert_eq!(message.body.remove("a"), Some(Value::Int(2)));
    assert_eq!(message.body.remove("b"), Some("x".into()));
}

#[test]
fn c31_what_is_no_value_is_refused_with_its_place() {
    #[derive(Serialize)]
    struct Item {
        sizes: Vec<f64>,
    }
    let mut params = crate::frames::Params::default();
    params.bind("item", &Item { sizes: vec![1.0, 2.0, f64::NAN] });
    assert_eq!(params.get().unwrap_err().to_string(), "$item.sizes[2]: NaN is no number of the language");
    assert!(to_value(&u64::MAX).unwrap_err().reason.contains("beyond 64 bits"));
    assert!(to_value(&BTreeMap::from([(1, 2)])).unwrap_err().reason.contains("names of fields are strings"));
    let nested = |depth| {
        (0..depth).fold(Value::Null, |inner, _| Value::Object(Object::from([("a".to_owned(), inner)])))
    };
    assert!(Body::new().value("value", &nested(64)).is_ok());
    let Err(error) = Body::new().value("value", &nested(65)) else { panic!("it was taken") };
    assert!(error.to_string().starts_with("value.a.a"), "{error}");
    assert!(to_value(&(0..200).fold(Value::Null, |inner, _| Value::Array(vec![inner]))).is_err());
}

#[test]
fn c7_requests_are_those_of_the_protocol() {
    let body = Body::new().str("script", "RETURN $n");
    let params = Object::from([("n".to_owned(), Value::Decimal("12.30".parse().unwrap()))]);
    let mut bytes = Vec::new();
    write_frame(&mut bytes, Kind::Run, 1, Some(&body.params(&params).unwrap()), None);
    let wanted = [
        &[0, 0, 0, 0x27, 0x93, 3, 1, 0x82, 0xa6][..],
        b"script\xa9RETURN $n\xa6params\x81\xa1n\xc7\x05\x0112.30",
    ];
    assert_eq!(bytes, wanted.concat());
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kinds {
    Unit,
    New(i64),
    Tuple(i64, String),
    Struct { a: bool },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    id: RecordId,
    price: Decimal,
    at: DateTime,
    took: SignedDuration,
    uuid: Uuid,
    value: Value,
    maybe: Option<i32>,
    kinds: Vec<Kinds>,
    pair: (u8, char),
    float: f64,
    #[serde(with = "crate::via::bytes")]
    bytes: Vec<u8>,
    #[serde(with = "crate::via::duration")]
    length: std::time::Duration,
    #[serde(with = "crate::via::datetime")]
    system: std::time::SystemTime,
}

fn everything() -> Everything {
    Everything {
        id: RecordId::new("item", vec![RecordKey::Int(1), RecordKey::from("a")]),
        price: "12.30".parse().unwrap(),
        at: "2026-01-02T03:04:05.123456Z".parse().unwrap(),
        took: "-3d".parse().unwrap(),
        uuid: "018f0000-0000-0000-0000-000000000000".parse().unwrap(),
        value: Value::Array(vec![Value::None, Value::Null, Value::Decimal("1".parse().unwrap())]),
        maybe: None,
        kinds: vec![Kinds::Unit, Kinds::New(1), Kinds::Tuple(2, "x".into()), Kinds::Struct { a: true }],
        pair: (7, 'ü'),
        float: 1.0,
        bytes: vec![0, 255],
        length: std::time::Duration::from_millis(5),
        system: std::time::UNIX_EPOCH + std::time::Duration::from_micros(7),
    }
}

#[test]
fn structs_are_values_and_back() {
    let value = to_value(&everything()).unwrap();
    let fields = value.as_object().unwrap();
    assert_eq!(fields["id"].to_owned(), Value::Record(everything().id));
    assert_eq!(fields["price"].type_name(), "decimal");
    assert_eq!(fields["at"].type_name(), "datetime");
    assert_eq!(fields["took"].type_name(), "duration");
    assert_eq!(fields["uuid"].type_name(), "uuid");
    assert_eq!(fields["maybe"], Value::Null);
    assert_eq!(fields["float"], Value::Float(1.0));
    assert_eq!(fields["bytes"], Value::Bytes(Bytes::from_static(&[0, 255])));
    assert_eq!(fields["length"].type_name(), "duration");
    assert_eq!(fields["system"].type_name(), "datetime");
    assert_eq!(from_value::<Everything>(decoded(&encoded(&value)).unwrap()), Ok(everything()));
}

#[test]
fn structs_are_json_and_back() {
    let mut given = everything();
    given.id = RecordId::new("item", "any text");
    given.value = Value::Array(vec![Value::Null, Value::Int(1)]);
    let text = serde_json::to_string(&given).unwrap();
    assert!(
        text.contains(r#""id":"item:`any text`""#) && text.contains(r#""at":"2026-01-02T03:04:05.123456Z""#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Everything>(&text).unwrap(), given);
}

#[test]
fn a_value_of_another_type_is_refused_with_its_place() {
    let found = from_value::<Vec<Everything>>(Value::Array(vec![Value::Object(Object::from([(
        "at".into(),
        "x".into(),
    )]))]));
    assert_eq!(found.unwrap_err().to_string(), "[0].at: it is string, and not DateTime");
    assert!(from_value::<i64>(Value::Float(1.0)).is_err());
    assert_eq!(from_value::<f64>(Value::Int(1)), Ok(1.0));
    assert_eq!(from_value::<Option<String>>(Value::None), Ok(None));
}

#[test]
fn texts_of_ids_are_those_of_the_language() {
    for (id, text) in [
        (RecordId::new("item", 1), "item:1"),
        (RecordId::new("item", "abc"), "item:abc"),
        (RecordId::new("i`m", "a b"), "`i\\`m`:`a b`"),
        (RecordId::new("item", vec![RecordKey::from("a'b\n"), RecordKey::Int(1)]), "item:['a\\'b\\n', 1]"),
    ] {
        assert_eq!(id.to_string(), text);
        if !matches!(id.key, RecordKey::Array(_)) {
            assert_eq!(text.parse(), Ok(id));
        }
    }
}

#[test]
fn decimals_have_limits_and_equal_by_value() {
    let decimal = |text: &str| text.parse::<Decimal>();
    assert_eq!(decimal("12.30").unwrap(), decimal("12.3").unwrap());
    assert_eq!(decimal("-0.0").unwrap(), decimal("0").unwrap());
    assert_eq!(decimal("1E+3").unwrap().parts(), (1, -3));
    assert_eq!(decimal("-12.30").unwrap().to_string(), "-12.30");
    for wrong in ["", "x", ".", "1..2", "1E", "NaN", "1_0", &"9".repeat(35), "1E99999"] {
        assert!(decimal(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn times_have_limits() {
    for wrong in [
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00",
        "x",
        "2026-01-01T00:00:00.1234567Z",
    ] {
        assert!(wrong.parse::<DateTime>().is_err(), "{wrong}");
    }
    assert!(DateTime::from_micros(i64::MAX).is_err());
    assert_eq!("0001-01-01T00:00:00Z".parse::<DateTime>().unwrap().to_string(), "0001-01-01T00:00:00Z");
    assert_eq!(
        "1931-01-02T03:04:05.000007Z".parse::<DateTime>().unwrap().to_string(),
        "1931-01-02T03:04:05.000007Z"
    );
    for wrong in ["", "-", "1", "1x", "h", "1h "] {
        assert!(wrong.parse::<SignedDuration>().is_err(), "{wrong}");
    }
    assert_eq!("1h30m".parse::<SignedDuration>().unwrap().as_micros(), 5_400_000_000);
}

#[cfg(all(feature = "chrono", feature = "jiff", feature = "time", feature = "uuid", feature = "bigdecimal"))]
#[test]
fn types_of_other_crates_convert() {
    let at: DateTime = "2026-01-02T03:04:05.123456Z".parse().unwrap();
    let before: DateTime = "1931-01-02T03:04:05.000007Z".parse().unwrap();
    for at in [at, before] {
        assert_eq!(chrono::DateTime::<chrono::Utc>::try_from(at).unwrap().try_into(), Ok(at));
        assert_eq!(jiff::Timestamp::try_from(at).unwrap().try_into(), Ok(at));
        assert_eq!(time::OffsetDateTime::try_from(at).unwrap().try_into(), Ok(at));
    }
    let span = SignedDuration::from_micros(-1_500_000);
    assert_eq!(chrono::TimeDelta::from(span).try_into(), Ok(span));
    assert_eq!(jiff::SignedDuration::from(span).try_into(), Ok(span));
    assert_eq!(time::Duration::from(span).try_into(), Ok(span));
    let uuid: Uuid = "018f0000-0000-0000-0000-000000000001".parse().unwrap();
    assert_eq!(Uuid::from(uuid::Uuid::from(uuid)), uuid);
    for text in ["12.30", "-0.05", "7", "1E+3"] {
        let decimal: Decimal = text.parse().unwrap();
        let back: Decimal = bigdecimal::BigDecimal::try_from(decimal.clone()).unwrap().try_into().unwrap();
        assert_eq!((back.to_string(), back), (text.to_owned(), decimal));
    }
}
