use super::{
    binary::{Head, Malformed, Reader, Writer, kind, message_kind},
    messages::{
        Call, Exception, LimitChange, LimitRequest, LimitResponse, NotACall, Reply, read_call, write_reply,
    },
};

fn head(name: &str, is_strict: bool) -> Head {
    Head { name: name.to_owned(), kind: message_kind::CALL, sequence: 7, is_strict }
}

/// Writes a call as clients do, with the argument under this id, and fields that no version of the interface has.
fn write_call(head: &Head, id: i16, call: &Call) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.head(head);
    writer.field(kind::LIST, 99);
    writer.list(kind::STRUCT, 2);
    (0..2).for_each(|_| writer.stop());
    match call {
        Call::Hold(request) | Call::Commit(request) | Call::Rollback(request) | Call::Get(request) => {
            writer.field(kind::STRUCT, id);
            writer.field(kind::STRING, 1);
            writer.text(&request.operation_id);
            writer.field(kind::LIST, 2);
            writer.list(kind::STRUCT, request.limit_changes.len());
            request.limit_changes.iter().for_each(|change| write_change(&mut writer, change));
            writer.stop();
        }
        Call::GetLastLimitsValues(names) => {
            writer.field(kind::LIST, id);
            writer.list(kind::STRING, names.len());
            names.iter().for_each(|name| writer.text(name));
        }
    }
    writer.stop();
    writer.finish()
}

fn write_change(writer: &mut Writer, change: &LimitChange) {
    let LimitChange { limit_id, limit_name, value, context } = change;
    writer.field(kind::STRUCT, 98);
    writer.field(kind::MAP, 1);
    writer.map(kind::STRING, kind::I64, 1);
    writer.text("k");
    writer.i64(1);
    writer.stop();
    if let Some(limit_id) = limit_id {
        writer.field(kind::STRING, 1);
        writer.text(limit_id);
    }
    writer.field(kind::STRING, 2);
    writer.text(limit_name);
    writer.field(kind::I64, 3);
    writer.i64(*value);
    if let Some(context) = context {
        writer.field(kind::MAP, 4);
        writer.map(kind::STRING, kind::STRING, context.len());
        for (key, value) in context {
            writer.text(key);
            writer.text(value);
        }
    }
    writer.stop();
}

/// Numbers that depend on the seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn text(&mut self) -> String {
        let letters = ["a", "лимит", "🌮", "/", "", "\n"];
        (0..self.below(4)).map(|_| letters[self.below(6) as usize]).collect()
    }

    fn request(&mut self) -> LimitRequest {
        let change = |random: &mut Random| LimitChange {
            limit_id: (random.below(2) == 0).then(|| random.text()),
            limit_name: random.text(),
            value: random.below(u64::MAX).cast_signed(),
            context: (random.below(2) == 0)
                .then(|| (0..random.below(3)).map(|_| (random.text(), random.text())).collect()),
        };
        let limit_changes = (0..self.below(4)).map(|_| change(self)).collect();
        LimitRequest { operation_id: self.text(), limit_changes }
    }

    fn call(&mut self) -> (&'static str, Call) {
        match self.below(5) {
            0 => ("Hold", Call::Hold(self.request())),
            1 => ("Commit", Call::Commit(self.request())),
            2 => ("Rollback", Call::Rollback(self.request())),
            3 => ("Get", Call::Get(self.request())),
            _ => {
                let names = (0..self.below(4)).map(|_| self.text()).collect();
                ("GetLastLimitsValues", Call::GetLastLimitsValues(names))
            }
        }
    }
}

#[test]
fn a_call_is_read_as_it_was_written_and_no_part_of_it_is_a_call() {
    for seed in 1..200 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (name, call) = random.call();
        let head = head(name, seed % 2 == 0);
        let bytes = write_call(&head, if seed % 3 == 0 { 1 } else { -1 }, &call);
        assert_eq!(read_call(&bytes), Ok((head, call)), "seed {seed}");
        for end in 0..bytes.len() {
            assert!(read_call(&bytes[..end]).is_err(), "seed {seed}, the first {end} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(read_call(&longer), Err(NotACall::Malformed(Malformed::TooLong)), "seed {seed}");
    }
}

#[test]
fn damaged_bytes_are_read_or_refused() {
    for seed in 1..2_000 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (name, call) = random.call();
        let mut bytes = write_call(&head(name, seed % 2 == 0), -1, &call);
        for _ in 0..=random.below(3) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = random.below(256) as u8;
        }
        // What is read can be written, and is read as the same again.
        if let Ok((head, call)) = read_call(&bytes) {
            assert_eq!(read_call(&write_call(&head, -1, &call)), Ok((head, call)), "seed {seed}");
        }
    }
}

#[test]
fn lengths_and_depths_are_bounded() {
    #[track_caller]
    fn check(write: impl FnOnce(&mut Writer), expect: NotACall) {
        let mut writer = Writer::default();
        writer.head(&head("Hold", true));
        write(&mut writer);
        assert_eq!(read_call(&writer.finish()), Err(expect));
    }
    let malformed = NotACall::Malformed;
    let request = |writer: &mut Writer| {
        writer.field(kind::STRUCT, -1);
        writer.field(kind::STRING, 1);
        writer.text("op");
        writer.field(kind::LIST, 2);
    };
    // A list of two thousand million changes, and of a negative number of them.
    check(
        |writer| {
            request(writer);
            writer.list(kind::STRUCT, i32::MAX as usize);
        },
        malformed(Malformed::Length),
    );
    check(
        |writer| {
            writer.field(kind::STRING, 5);
            writer.list(0xff, 0xff_ffff);
        },
        malformed(Malformed::Length),
    );
    check(
        |writer| {
            writer.field(kind::MAP, 5);
            writer.map(kind::STRING, kind::STRING, i32::MAX as usize);
        },
        malformed(Malformed::Length),
    );
    check(
        |writer| {
            for _ in 0..1_000 {
                writer.field(kind::STRUCT, 5);
            }
        },
        malformed(Malformed::TooDeep),
    );
    check(|writer| writer.field(1, 5), malformed(Malformed::UnknownType));
    check(|_| {}, malformed(Malformed::TooShort));
    check(Writer::stop, NotACall::Incomplete);
    check(
        |writer| {
            request(writer);
            writer.list(kind::I64, 1);
            writer.i64(1);
        },
        NotACall::Incomplete,
    );
    // An empty list or map has any types of elements.
    let mut writer = Writer::default();
    writer.head(&head("Hold", true));
    request(&mut writer);
    writer.list(kind::I64, 0);
    (0..2).for_each(|_| writer.stop());
    let empty = LimitRequest { operation_id: "op".to_owned(), limit_changes: Vec::new() };
    assert_eq!(read_call(&writer.finish()), Ok((head("Hold", true), Call::Hold(empty))));
}

#[test]
fn messages_that_are_no_calls() {
    let junk: [(&[u8], NotACall); 5] = [
        (b"", NotACall::Malformed(Malformed::TooShort)),
        (b"GET / HTTP/1.1\r\n\r\n", NotACall::Malformed(Malformed::Length)),
        (&[0x80, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], NotACall::Malformed(Malformed::UnknownVersion)),
        (&[0x80, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0], NotACall::NoCall),
        (b"\x80\x01\x00\x01\x00\x00\x00\x04Nope\x00\x00\x00\x01\x00", NotACall::UnknownFunction),
    ];
    for (bytes, expect) in junk {
        assert_eq!(read_call(bytes), Err(expect), "{bytes:?}");
    }
}

/// The bytes were written by hand, from the description of the protocol.
#[test]
fn replies() {
    #[track_caller]
    fn check(is_strict: bool, reply: Reply, expect: &[u8]) {
        assert_eq!(write_reply(head("Get", is_strict), &reply), expect);
    }
    let strict = b"\x80\x01\x00\x02\x00\x00\x00\x03Get\x00\x00\x00\x07";
    let old = b"\x00\x00\x00\x03Get\x02\x00\x00\x00\x07";
    check(true, Reply::Nothing, &[&strict[..], b"\x00"].concat());
    check(false, Reply::Nothing, &[&old[..], b"\x00"].concat());
    let exception = Reply::Exception(Exception { id: 2, name: "OperationNotFound" });
    check(true, exception, &[&strict[..], b"\x0c\x00\x02\x00\x00"].concat());
    let value = LimitResponse {
        limit_id: Some("i".to_owned()),
        limit_name: "n".to_owned(),
        commit_value: -1,
        total_value: 2,
    };
    let fields: &[u8] = b"\x0b\x00\x01\x00\x00\x00\x01i\x0b\x00\x02\x00\x00\x00\x01n\
        \x0a\x00\x03\xff\xff\xff\xff\xff\xff\xff\xff\x0a\x00\x04\x00\x00\x00\x00\x00\x00\x00\x02\x00";
    let list = b"\x0f\x00\x00\x0c\x00\x00\x00\x01";
    check(true, Reply::Values(vec![value]), &[&strict[..], list, fields, b"\x00"].concat());
}

#[test]
fn a_reader_that_has_bytes_left_is_not_at_the_end() {
    assert_eq!(Reader::new(&[1]).end(), Err(Malformed::TooLong));
    assert_eq!(Reader::new(&[]).end(), Ok(()));
}
