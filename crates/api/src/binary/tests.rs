use super::*;
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt::Debug, net::IpAddr};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(i64);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Tuple(i8, String);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    a: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kinds {
    Unit,
    Newtype(Inner),
    Nothing(()),
    Tuple(u8, Option<bool>),
    Struct { x: f32, inner: Vec<Inner> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i64),
    Inner(Inner),
    Kinds(Kinds),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    first: bool,
    #[serde(flatten)]
    inner: Inner,
    last: Option<u8>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tagged {
    Empty,
    Fields { n: u64 },
    Other(Inner),
}

#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
    let bytes = encode(&value).unwrap();
    assert_eq!(decode::<T>(&bytes).as_ref(), Ok(&value), "{bytes:x?}");
    for length in 0..bytes.len() {
        assert_eq!(decode::<T>(&bytes[..length]), Err(Malformed), "{length} of {bytes:x?}");
    }
    assert_eq!(decode::<T>(&[&bytes[..], &[0]].concat()), Err(Malformed), "a byte to spare: {bytes:x?}");
    // Damage never panics: whatever is read from it can be written.
    for place in 0..bytes.len() {
        for byte in 0..=u8::MAX {
            let mut damaged = bytes.clone();
            damaged[place] = byte;
            if let Ok(read) = decode::<T>(&damaged) {
                encode(&read).unwrap();
            }
        }
    }
    // As a value that an older program does not know.
    assert_eq!(decode::<OnlyA>(&encode(&WithExtra { a: 3, extra: value }).unwrap()), Ok(OnlyA { a: 3 }));
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyA {
    a: i16,
}

#[derive(Serialize)]
struct WithExtra<T> {
    extra: T,
    a: i16,
}

fn inner(b: Option<&str>) -> Inner {
    Inner { a: -300, b: b.map(Into::into) }
}

#[test]
fn every_shape_is_read_as_it_was_written() {
    check(());
    check(Unit);
    check(true);
    check(Newtype(-1));
    check(Tuple(-128, "x".repeat(63)));
    check("🌮".to_owned());
    check("x".repeat(64));
    check('🌮');
    check(1.5_f32);
    check(-0.1_f64);
    check(None::<u8>);
    check([None, Some(None), Some(Some(()))]);
    check([None, Some(None), Some(Some(None)), Some(Some(Some(7)))]);
    check(["10.0.0.1", "::1"].map(|address| address.parse::<IpAddr>().unwrap()));
    check((0..40).collect::<Vec<u16>>());
    check([7_u8; 16]);
    check(BTreeMap::from([(-5, inner(None)), (5, inner(Some("x")))]));
    check(Kinds::Unit);
    check(Kinds::Newtype(inner(Some(""))));
    check(Kinds::Nothing(()));
    check(Kinds::Tuple(9, Some(false)));
    check(Kinds::Struct { x: 0.5, inner: vec![inner(None), inner(Some("x"))] });
    check([Ok(3), Err("x".to_owned())]);
    check(Untagged::Number(-7));
    check(Untagged::Inner(inner(None)));
    check(vec![Untagged::Kinds(Kinds::Tuple(1, None)), Untagged::Kinds(Kinds::Unit)]);
    check(Flat { first: true, inner: inner(Some("x")), last: Some(7) });
    check(vec![Tagged::Empty, Tagged::Fields { n: 1 << 40 }, Tagged::Other(inner(None))]);
    check(serde_json::json!({"a": [1, -1, 1.5, "x", null, true, {"b": {}}]}));
}

#[test]
fn numbers() {
    for number in [0, 1, 127, 128, 255, 256, 65_535, 65_536, 1 << 32, i64::MAX] {
        check(number);
        check(-number);
        check(-number - 1);
    }
    check(u64::MAX);
    let checked = |number: u64| decode::<u8>(&encode(&number).unwrap());
    assert_eq!((checked(255), checked(256)), (Ok(255), Err(Malformed)));
    assert_eq!(decode::<u8>(&encode(&-1).unwrap()), Err(Malformed));
}

#[test]
fn bytes_are_borrowed() {
    let text = encode("text").unwrap();
    assert_eq!(decode::<&str>(&text), Ok("text"));

    struct Raw<'b>(&'b [u8]);
    impl Serialize for Raw<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    let raw = encode(&Raw(&[0xff; 200])).unwrap();
    assert_eq!(decode::<&[u8]>(&raw), Ok(&[0xff; 200][..]));
}

/// What is written does not change: replies that were kept yesterday are read today.
#[test]
fn the_bytes() {
    #[track_caller]
    fn check(value: impl Serialize, expect: &[&[u8]]) {
        assert_eq!(encode(&value).unwrap(), expect.concat());
    }
    check((7, 200, -1, 1_u64 << 40), &[&[0xd4, 7, 0xe8, 200, 0xf0, 0, 0xed, 0, 0, 0, 0, 0, 1]]);
    check((true, (), Some("ab")), &[&[0xd3, 0xe3, 0xe0, 0x82], b"ab"]);
    check([Kinds::Unit, Kinds::Unit], &[&[0xd2, 0xe7, 0xc4], b"Unit", &[0xe7, 0]]);
    let inner = || Inner { a: 1, b: Some(String::new()) };
    // The names are written once.
    let first: &[&[u8]] = &[&[0xd2, 0xc2, 0xc1], b"a", &[1, 0xc1], b"b", &[0x80]];
    check([inner(), inner()], &[first, &[&[0xc2, 0, 1, 1, 0x80]]].concat());
    check(Kinds::Newtype(Inner { a: 2, b: None }), &[&[0xe6, 0xc7], b"Newtype", &[0xc1, 0xc1], b"a", &[2]]);
    check(BTreeMap::from([(1, 2)]), &[&[0xfc, 1, 1, 2]]);
    check([None, Some(None), Some(Some(5))], &[&[0xd3, 0xe0, 0xe1, 0xe0, 5]]);
}

/// An older and a newer version of the same types.
mod old {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Request {
        pub name: String,
        pub command: Command,
        pub items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(super) enum Command {
        Stop,
        Start(Item),
        Move { to: u64 },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Item {
        pub hits: u64,
        #[serde(alias = "Label")]
        pub label: Option<String>,
    }
}

mod new {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Request {
        pub name: String,
        pub dry_run: Option<Vec<Item>>,
        pub command: Command,
        pub items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(super) enum Command {
        Pause,
        Stop,
        Start(Item),
        Move {
            #[serde(default)]
            from: u64,
            to: u64,
        },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Item {
        #[serde(default)]
        pub weights: Vec<(i32, Option<f64>)>,
        pub hits: Option<u64>,
        pub label: Option<String>,
    }
}

#[test]
fn an_older_program_reads_a_newer_one() {
    let item = |hits| new::Item { weights: vec![(1, None), (-2, Some(0.5))], hits, label: Some("l".into()) };
    let old_item = |hits| old::Item { hits, label: Some("l".into()) };
    let check = |command, expect: Option<old::Command>| {
        // The unknown field brings the names of items, which later items have too.
        let dry_run = Some(vec![item(Some(8)), item(Some(9))]);
        let sent =
            new::Request { name: "n".into(), dry_run, command, items: vec![item(Some(1)), item(Some(2))] };
        let expect = expect.map(|command| old::Request {
            name: "n".into(),
            command,
            items: vec![old_item(1), old_item(2)],
        });
        assert_eq!(decode::<old::Request>(&encode(&sent).unwrap()).ok(), expect);
    };
    check(new::Command::Stop, Some(old::Command::Stop));
    check(new::Command::Start(item(Some(3))), Some(old::Command::Start(old_item(3))));
    check(new::Command::Move { from: 1, to: 2 }, Some(old::Command::Move { to: 2 }));
    check(new::Command::Pause, None);
    check(new::Command::Start(item(None)), None);
}

#[test]
fn a_newer_program_reads_an_older_one() {
    let old_item = || old::Item { hits: 1, label: None };
    let item = || new::Item { weights: Vec::new(), hits: Some(1), label: None };
    let check = |command, expect| {
        let sent = old::Request { name: "n".into(), command, items: vec![old_item(), old_item()] };
        let expect =
            new::Request { name: "n".into(), dry_run: None, command: expect, items: vec![item(), item()] };
        assert_eq!(decode(&encode(&sent).unwrap()), Ok(expect));
    };
    check(old::Command::Stop, new::Command::Stop);
    check(old::Command::Start(old_item()), new::Command::Start(item()));
    check(old::Command::Move { to: 2 }, new::Command::Move { from: 0, to: 2 });
}

/// More names than have a number, and names that are too long for one byte.
#[test]
fn a_message_may_have_any_number_of_names() {
    struct Named(Vec<&'static str>);

    impl Serialize for Named {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeStruct;
            let mut fields = serializer.serialize_struct("Named", self.0.len())?;
            for (value, name) in self.0.iter().enumerate() {
                fields.serialize_field(name, &value)?;
            }
            fields.end()
        }
    }
    let names: Vec<&'static str> = (0..300).map(|number| &*format!("name {number}").leak()).collect();
    let names =
        [&names[..], &["", &*"x".repeat(62).leak(), &*"x".repeat(63).leak(), &*"x".repeat(300).leak()]];
    let names = names.concat();
    let twice = encode(&[Named(names.clone()), Named(names.clone())]).unwrap();
    let read: [BTreeMap<String, usize>; 2] = decode(&twice).unwrap();
    let expect: BTreeMap<String, usize> = names.iter().map(|name| (*name).to_owned()).zip(0..).collect();
    assert_eq!(read, [expect.clone(), expect]);
}

#[test]
fn hostile_bytes_are_refused() {
    #[track_caller]
    fn check<T: DeserializeOwned + Debug>(bytes: &[u8]) {
        assert_eq!(decode::<T>(bytes).err(), Some(Malformed));
    }
    // Lengths beyond the end: of a list, a text, a name, and of lists that each promise as much as is there.
    check::<Vec<u8>>(&[0xfa, 0xef, 255, 255, 255, 255, 255, 255, 255, 255]);
    check::<Vec<()>>(&[0xfa, 0xeb, 0, 0, 0, 0x7f, 0xe0]);
    check::<String>(&[0xf8, 0xeb, 0, 0, 0, 0x7f, 0x61]);
    check::<Kinds>(&[0xe7, 0xff, 0xe8, 200]);
    check::<Vec<Vec<u8>>>(&[0xfa, 5, 0xfa, 5, 0xfa, 5]);
    // Names that do not exist, that are not UTF-8, and a field that comes twice.
    check::<Kinds>(&[0xe7, 0]);
    check::<Kinds>(&[0xe7, 0xc1, 0xff]);
    check::<Inner>(&[0xc2, 0xc1, b'a', 1, 0, 1]);
    // Values within values.
    for byte in [0xe1, 0xd1] {
        let deep = |depth| [vec![byte; depth], vec![0xe0]].concat();
        assert!(decode::<de::IgnoredAny>(&deep(64)).is_ok());
        check::<de::IgnoredAny>(&deep(65));
        check::<de::IgnoredAny>(&deep(1 << 20));
    }
    // Every byte, as the beginning of every kind of value.
    for bytes in (0..=u16::MAX).map(u16::to_le_bytes) {
        let _ = decode::<de::IgnoredAny>(&bytes);
        let _ = decode::<Kinds>(&bytes);
        let _ = decode::<Flat>(&bytes);
    }
}
