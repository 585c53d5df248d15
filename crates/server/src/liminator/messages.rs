//! Liminator's functions, arguments, results and exceptions.

use super::binary::{Head, Malformed, Reader, Writer, kind, message_kind};
use std::collections::BTreeMap;

/// The id of a function's one argument. The interface gives none, for which Thrift takes −1; some clients send 1.
const ARGUMENT: [i16; 2] = [-1, 1];

/// A function with its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Hold(LimitRequest),
    Commit(LimitRequest),
    Rollback(LimitRequest),
    Get(LimitRequest),
    GetLastLimitsValues(Vec<String>),
}

/// An operation and what it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitRequest {
    pub(crate) operation_id: String,
    pub(crate) limit_changes: Vec<LimitChange>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitChange {
    pub(crate) limit_id: Option<String>,
    pub(crate) limit_name: String,
    pub(crate) value: i64,
    pub(crate) context: Option<BTreeMap<String, String>>,
}

/// The values of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitResponse {
    pub(crate) limit_id: Option<String>,
    pub(crate) limit_name: String,
    pub(crate) commit_value: i64,
    pub(crate) total_value: i64,
}

/// What a function returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Values(Vec<LimitResponse>),
    Nothing,
    Exception(Exception),
}

/// An exception that the function declares: its id among them, and the name of its struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exception {
    pub(crate) id: i16,
    pub(crate) name: &'static str,
}

/// Why bytes are not a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotACall {
    #[error("must be a message of Thrift's binary protocol: {0}")]
    Malformed(#[from] Malformed),
    #[error("must be a call")]
    NoCall,
    #[error("must name one of the functions Hold, Commit, Rollback, Get and GetLastLimitsValues")]
    UnknownFunction,
    #[error("must have the argument of its function, with all required fields")]
    Incomplete,
}

/// Reads a call. The head is needed for the answer.
pub(crate) fn read_call(bytes: &[u8]) -> Result<(Head, Call), NotACall> {
    let mut reader = Reader::new(bytes);
    let head = reader.head()?;
    if head.kind != message_kind::CALL {
        return Err(NotACall::NoCall);
    }
    let call = match head.name.as_str() {
        "Hold" => Call::Hold(argument(&mut reader, kind::STRUCT, limit_request)?),
        "Commit" => Call::Commit(argument(&mut reader, kind::STRUCT, limit_request)?),
        "Rollback" => Call::Rollback(argument(&mut reader, kind::STRUCT, limit_request)?),
        "Get" => Call::Get(argument(&mut reader, kind::STRUCT, limit_request)?),
        "GetLastLimitsValues" => Call::GetLastLimitsValues(argument(&mut reader, kind::LIST, names)?),
        _ => return Err(NotACall::UnknownFunction),
    };
    reader.end()?;
    Ok((head, call))
}

/// The one argument of a function.
fn argument<'a, T>(
    reader: &mut Reader<'a>,
    expected: u8,
    read: impl Fn(&mut Reader<'a>) -> Result<T, NotACall>,
) -> Result<T, NotACall> {
    let mut found = None;
    while let Some((kind, id)) = reader.field()? {
        match kind == expected && ARGUMENT.contains(&id) {
            true => found = Some(read(reader)?),
            false => reader.skip(kind)?,
        }
    }
    found.ok_or(NotACall::Incomplete)
}

fn limit_request(reader: &mut Reader<'_>) -> Result<LimitRequest, NotACall> {
    let (mut operation_id, mut limit_changes) = (None, None);
    while let Some(field) = reader.field()? {
        match field {
            (kind::STRING, 1) => operation_id = Some(reader.text()?.to_owned()),
            (kind::LIST, 2) => limit_changes = Some(structs(reader, limit_change)?),
            (kind, _) => reader.skip(kind)?,
        }
    }
    match (operation_id, limit_changes) {
        (Some(operation_id), Some(limit_changes)) => Ok(LimitRequest { operation_id, limit_changes }),
        _ => Err(NotACall::Incomplete),
    }
}

fn limit_change(reader: &mut Reader<'_>) -> Result<LimitChange, NotACall> {
    let (mut limit_id, mut limit_name, mut value, mut context) = (None, None, None, None);
    while let Some(field) = reader.field()? {
        match field {
            (kind::STRING, 1) => limit_id = Some(reader.text()?.to_owned()),
            (kind::STRING, 2) => limit_name = Some(reader.text()?.to_owned()),
            (kind::I64, 3) => value = Some(reader.i64()?),
            (kind::MAP, 4) => context = Some(texts(reader)?),
            (kind, _) => reader.skip(kind)?,
        }
    }
    match (limit_name, value) {
        (Some(limit_name), Some(value)) => Ok(LimitChange { limit_id, limit_name, value, context }),
        _ => Err(NotACall::Incomplete),
    }
}

fn structs<'a, T>(
    reader: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, NotACall>,
) -> Result<Vec<T>, NotACall> {
    let (kind, count) = reader.list()?;
    if kind != kind::STRUCT && count > 0 {
        return Err(NotACall::Incomplete);
    }
    (0..count).map(|_| read(reader)).collect()
}

fn names(reader: &mut Reader<'_>) -> Result<Vec<String>, NotACall> {
    let (kind, count) = reader.list()?;
    if kind != kind::STRING && count > 0 {
        return Err(NotACall::Incomplete);
    }
    (0..count).map(|_| Ok(reader.text()?.to_owned())).collect()
}

fn texts(reader: &mut Reader<'_>) -> Result<BTreeMap<String, String>, NotACall> {
    let (key, value, count) = reader.map()?;
    if (key, value) != (kind::STRING, kind::STRING) && count > 0 {
        return Err(NotACall::Incomplete);
    }
    (0..count).map(|_| Ok((reader.text()?.to_owned(), reader.text()?.to_owned()))).collect()
}

/// Writes the answer to the call with this head.
pub(crate) fn write_reply(head: Head, reply: &Reply) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.head(&Head { kind: message_kind::REPLY, ..head });
    match reply {
        Reply::Nothing => {}
        Reply::Values(values) => {
            writer.field(kind::LIST, 0);
            writer.list(kind::STRUCT, values.len());
            values.iter().for_each(|value| write_value(&mut writer, value));
        }
        Reply::Exception(Exception { id, .. }) => {
            writer.field(kind::STRUCT, *id);
            writer.stop();
        }
    }
    writer.stop();
    writer.finish()
}

fn write_value(writer: &mut Writer, value: &LimitResponse) {
    let LimitResponse { limit_id, limit_name, commit_value, total_value } = value;
    if let Some(limit_id) = limit_id {
        writer.field(kind::STRING, 1);
        writer.text(limit_id);
    }
    writer.field(kind::STRING, 2);
    writer.text(limit_name);
    writer.field(kind::I64, 3);
    writer.i64(*commit_value);
    writer.field(kind::I64, 4);
    writer.i64(*total_value);
    writer.stop();
}
