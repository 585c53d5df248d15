//! The format of an export: a header, pieces with a checksum each, and a last piece with the totals. `docs/storage-format.md`
//! describes it.

use bytes::{Buf, BufMut, Bytes};
use limina_cli::words::counted;
use limina_engine::{Name, Position, Time};
use limina_store::{Batch, Record};
use std::{
    fmt,
    io::{Read, Write},
};

const MAGIC: &[u8; 8] = b"LIMINA-X";
const FORMAT: u32 = 1;
/// A piece ends with the record with which it reaches this length. The division into pieces depends on the records alone, so
/// that the same data give the same file.
const PIECE_BYTES: usize = 256 << 10;
const CHECKSUM: usize = 4;

const COMMON: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;

const OUT_OF_ORDER: &str = "its records are out of order";

/// The origin of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The version of limina that wrote the file.
    pub(super) version: String,
    /// When the file was written, in milliseconds since the Unix epoch, by the wall clock.
    pub(super) made_at: u64,
}

/// Values of the shards, which belong to no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Common {
    /// The latest time of all shards.
    pub(super) time: Time,
    /// The highest position floor of all shards.
    pub(super) position_floor: Position,
}

/// How much a file contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) namespaces: u64,
    pub(super) records: u64,
    /// The bytes of all keys and values.
    pub(super) bytes: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = counted(self.namespaces, "namespace");
        write!(f, "{namespaces}, {}, {}", counted(self.records, "record"), counted(self.bytes, "byte"))
    }
}

impl Totals {
    fn count(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }
}

/// Writes a file.
pub(super) struct Writer<W> {
    out: W,
    pieces: u64,
    namespace: Option<Name>,
    pending: Vec<Record>,
    pending_bytes: usize,
    totals: Totals,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(mut out: W, header: &Header, common: Common) -> std::io::Result<Writer<W>> {
        let mut bytes = Vec::new();
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(FORMAT);
        bytes.put_u64_le(header.made_at);
        put_text(&mut bytes, &header.version);
        bytes.put_u32_le(crc32c::crc32c(&bytes));
        out.write_all(&bytes)?;
        let totals = Totals::default();
        let mut writer =
            Writer { out, pieces: 0, namespace: None, pending: Vec::new(), pending_bytes: 0, totals };
        let mut payload = vec![COMMON];
        payload.put_u64_le(common.time.0);
        payload.put_u64_le(common.position_floor.0);
        writer.piece(&payload)?;
        Ok(writer)
    }

    /// Adds the next record. The caller passes namespaces in the order of their names, and the records of each in the order of
    /// their keys.
    pub(super) fn record(&mut self, namespace: &Name, key: Bytes, value: Bytes) -> std::io::Result<()> {
        if self.namespace.as_ref() != Some(namespace) {
            self.flush()?;
            self.namespace = Some(namespace.clone());
            self.totals.namespaces += 1;
        }
        self.totals.count(&key, &value);
        self.pending_bytes += key.len() + value.len();
        self.pending.push(Record { key, value: Some(value) });
        match self.pending_bytes >= PIECE_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// The totals so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn finish(mut self) -> std::io::Result<Totals> {
        self.flush()?;
        let mut payload = vec![END];
        payload.put_u64_le(self.totals.namespaces);
        payload.put_u64_le(self.totals.records);
        payload.put_u64_le(self.totals.bytes);
        self.piece(&payload)?;
        self.out.flush()?;
        Ok(self.totals)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let Some(namespace) = self.namespace.as_ref().filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        let mut payload = vec![RECORDS];
        put_text(&mut payload, namespace.as_str());
        payload.put_slice(Batch::from(std::mem::take(&mut self.pending)).payload());
        self.pending_bytes = 0;
        self.piece(&payload)
    }

    fn piece(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a record is shorter than 4 GiB");
        let mut head = Vec::new();
        head.put_u32_le(length);
        head.put_u32_le(crc32c::crc32c(payload));
        head.put_u32_le(head_checksum(self.pieces, &head));
        self.pieces += 1;
        self.out.write_all(&head)?;
        self.out.write_all(payload)
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.put_u16_le(u16::try_from(text.len()).expect("names and versions are short"));
    bytes.put_slice(text.as_bytes());
}

/// The checksum of a piece's length and checksum. It includes the number of the piece, so that a missing, repeated or moved
/// piece is noticed.
fn head_checksum(number: u64, head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), head)
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("reading it at offset {offset}")]
    Read {
        offset: u64,
        #[source]
        source: std::io::Error,
    },
    #[error("it was not made by `limina export`")]
    Foreign,
    #[error("it has format {0}, and this program knows {FORMAT}")]
    Format(u32),
    #[error("it was cut off: it ends at offset {0}")]
    Cut(u64),
    #[error("it is damaged at offset {offset}: {detail}")]
    Damaged { offset: u64, detail: &'static str },
}

/// A part of a file.
#[derive(Debug)]
pub(super) enum Piece {
    /// Some records of one namespace.
    Records { namespace: Name, batch: Batch },
    /// The file is complete.
    End,
}

/// Reads a file, and checks that it is complete and in order.
pub(super) struct Reader<R> {
    input: R,
    offset: u64,
    /// The offset of the piece that was read last.
    piece_offset: u64,
    pieces: u64,
    /// Namespace and key of the last record.
    last: Option<(Name, Vec<u8>)>,
    totals: Totals,
}

impl<R: Read> Reader<R> {
    /// Reads the header and the values of the shards.
    pub(super) fn open(input: R) -> Result<(Reader<R>, Header, Common), FileError> {
        let totals = Totals::default();
        let mut reader = Reader { input, offset: 0, piece_offset: 0, pieces: 0, last: None, totals };
        let header = reader.header()?;
        let common = reader.common()?;
        Ok((reader, header, common))
    }

    fn header(&mut self) -> Result<Header, FileError> {
        let mut head = self.take(8 + 4)?;
        if !head.starts_with(MAGIC) {
            return Err(FileError::Foreign);
        }
        let format = (&head[8..]).get_u32_le();
        if format != FORMAT {
            return Err(FileError::Format(format));
        }
        head.extend(self.take(8 + 2)?);
        let version = (&head[20..]).get_u16_le();
        head.extend(self.take(usize::from(version))?);
        let said = (&self.take(CHECKSUM)?[..]).get_u32_le();
        let made_at = (&head[12..]).get_u64_le();
        match String::from_utf8(head[22..].to_vec()) {
            Ok(version) if said == crc32c::crc32c(&head) => Ok(Header { version, made_at }),
            _ => Err(FileError::Damaged { offset: 0, detail: "the header does not have its checksum" }),
        }
    }

    fn common(&mut self) -> Result<Common, FileError> {
        let (kind, mut payload) = self.piece()?;
        if kind != COMMON || payload.len() != 16 {
            return Err(self.damaged("it does not begin with what belongs to all shards"));
        }
        let time = Time(payload.get_u64_le());
        Ok(Common { time, position_floor: Position(payload.get_u64_le()) })
    }

    /// The next piece.
    pub(super) fn next(&mut self) -> Result<Piece, FileError> {
        let (kind, payload) = self.piece()?;
        match kind {
            RECORDS => self.records(payload),
            END => self.end(payload),
            _ => Err(self.damaged("a piece is of no known kind")),
        }
    }

    /// The totals so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    fn records(&mut self, payload: Bytes) -> Result<Piece, FileError> {
        let (namespace, batch) =
            parse_records(payload).ok_or_else(|| self.damaged("a piece has no records"))?;
        let mut last = match self.last.take() {
            Some((before, key)) if before == namespace => Some(key),
            Some((before, _)) if before > namespace => return Err(self.damaged(OUT_OF_ORDER)),
            _ => {
                self.totals.namespaces += 1;
                None
            }
        };
        for image in batch.images() {
            let Some(value) = image.value.filter(|_| last.as_deref() < Some(image.key)) else {
                return Err(self.damaged(OUT_OF_ORDER));
            };
            self.totals.count(image.key, value);
            last = Some(image.key.to_vec());
        }
        let key = last.ok_or_else(|| self.damaged("a piece has no records"))?;
        self.last = Some((namespace.clone(), key));
        Ok(Piece::Records { namespace, batch })
    }

    fn end(&mut self, mut payload: Bytes) -> Result<Piece, FileError> {
        if payload.len() != 24 {
            return Err(self.damaged("its last piece has another length"));
        }
        let [namespaces, records, bytes] = [(); 3].map(|()| payload.get_u64_le());
        if self.totals != (Totals { namespaces, records, bytes }) {
            return Err(self.damaged("there are not as many records as its last piece says"));
        }
        match self.read(1)?.is_empty() {
            true => Ok(Piece::End),
            false => {
                Err(FileError::Damaged { offset: self.offset - 1, detail: "more follows its last piece" })
            }
        }
    }

    /// The kind of the next piece, and its payload.
    fn piece(&mut self) -> Result<(u8, Bytes), FileError> {
        self.piece_offset = self.offset;
        let head = self.take(4 + 2 * CHECKSUM)?;
        let mut fields = &head[..];
        let [length, said, head_said] = [(); 3].map(|()| fields.get_u32_le());
        if head_said != head_checksum(self.pieces, &head[..8]) {
            return Err(self.damaged("a piece's head does not have its checksum"));
        }
        let payload = self.take(length as usize)?;
        if said != crc32c::crc32c(&payload) {
            return Err(self.damaged("a piece does not have its checksum"));
        }
        self.pieces += 1;
        let mut payload = Bytes::from(payload);
        match payload.try_get_u8() {
            Ok(kind) => Ok((kind, payload)),
            Err(_) => Err(self.damaged("a piece is empty")),
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, FileError> {
        let bytes = self.read(length)?;
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(FileError::Cut(self.offset)),
        }
    }

    /// Reads `length` bytes, or fewer if the file ends before.
    fn read(&mut self, length: usize) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match read {
            Ok(_) => Ok(bytes),
            Err(source) => Err(FileError::Read { offset: self.offset, source }),
        }
    }

    fn damaged(&self, detail: &'static str) -> FileError {
        FileError::Damaged { offset: self.piece_offset, detail }
    }
}

fn parse_records(mut payload: Bytes) -> Option<(Name, Batch)> {
    let length = usize::from(payload.try_get_u16_le().ok()?);
    let name = (payload.len() >= length).then(|| payload.split_to(length))?;
    let name = Name::new(std::str::from_utf8(&name).ok()?).ok()?;
    Some((name, Batch::decode(payload).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON_OF_ALL: Common = Common { time: Time(5), position_floor: Position(6) };

    /// Namespace, key, length of the value.
    type Given = (&'static str, &'static [u8], usize);

    fn header() -> Header {
        Header { version: "1.2.3".to_string(), made_at: 7 }
    }

    fn written(records: &[Given]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, &header(), COMMON_OF_ALL).unwrap();
        for (namespace, key, length) in records {
            let value = vec![b'v'; *length];
            writer.record(&Name::new(namespace).unwrap(), Bytes::from_static(key), value.into()).unwrap();
        }
        writer.finish().unwrap();
        out
    }

    /// A namespace, a key, and the length of a value.
    type Found = (String, Vec<u8>, usize);

    /// The records, and the number of pieces.
    fn read(bytes: &[u8]) -> Result<(Vec<Found>, usize), FileError> {
        let (mut reader, said, common) = Reader::open(bytes)?;
        assert_eq!((said, common), (header(), COMMON_OF_ALL));
        let (mut found, mut pieces) = (Vec::new(), 0);
        while let Piece::Records { namespace, batch } = reader.next()? {
            pieces += 1;
            let images = batch.images();
            let found_here =
                images.map(|image| (namespace.to_string(), image.key.to_vec(), image.value.unwrap().len()));
            found.extend(found_here);
        }
        Ok((found, pieces))
    }

    const SOME: [Given; 4] = [("a", b"1", 3), ("a", b"2", 0), ("ab", b"1", 2), ("b", b"", 1)];

    #[test]
    fn written_files_can_be_read() {
        #[track_caller]
        fn check(records: &[Given], pieces: usize) {
            let expect = records.iter().map(|(name, key, value)| (name.to_string(), key.to_vec(), *value));
            assert_eq!(read(&written(records)).unwrap(), (expect.collect(), pieces));
        }
        check(&[], 0);
        check(&SOME, 3);
        check(&[("a", b"1", PIECE_BYTES), ("a", b"2", PIECE_BYTES - 2), ("a", b"3", 0), ("a", b"4", 1)], 3);
    }

    #[test]
    fn truncated_files_are_refused() {
        let whole = written(&SOME);
        for end in 0..whole.len() {
            let error = read(&whole[..end]).unwrap_err();
            assert!(matches!(error, FileError::Cut(offset) if offset == end as u64), "at {end}: {error}");
        }
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let whole = written(&SOME);
        for place in 0..whole.len() {
            for flip in [0x01, 0x80] {
                let mut changed = whole.clone();
                changed[place] ^= flip;
                let error = read(&changed).unwrap_err();
                let is_told = match place {
                    0..8 => matches!(error, FileError::Foreign),
                    8..12 => matches!(error, FileError::Format(_)),
                    // With a greater length, the header may be longer than the file.
                    20..22 => matches!(error, FileError::Damaged { offset: 0, .. } | FileError::Cut(_)),
                    _ => matches!(error, FileError::Damaged { offset, .. } if offset <= place as u64),
                };
                assert!(is_told, "at {place}: {error}");
            }
        }
    }

    #[test]
    fn missing_repeated_and_moved_pieces_are_refused() {
        #[track_caller]
        fn check(pieces: &[&[u8]]) {
            let error = read(&pieces.concat()).unwrap_err();
            assert!(matches!(error, FileError::Damaged { .. }), "{error}");
        }
        let whole = written(&SOME);
        let head = 8 + 4 + 8 + 2 + header().version.len() + CHECKSUM;
        let (head, mut rest) = whole.split_at(head);
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let length = 4 + 2 * CHECKSUM + (&rest[..4]).get_u32_le() as usize;
            let (piece, after) = rest.split_at(length);
            pieces.push(piece);
            rest = after;
        }
        let [common, a, ab, b, end] = pieces[..] else { panic!("{} pieces", pieces.len()) };
        assert!(read(&[head, common, a, ab, b, end].concat()).is_ok());
        check(&[head, common, a, b, end]);
        check(&[head, common, a, a, ab, b, end]);
        check(&[head, common, ab, a, b, end]);
        check(&[head, a, ab, b, end]);
        check(&[head, common, a, ab, b, end, end]);
    }

    #[test]
    fn records_out_of_order_are_refused() {
        #[track_caller]
        fn check(records: &[Given]) {
            let error = read(&written(records)).unwrap_err();
            assert!(matches!(error, FileError::Damaged { detail: OUT_OF_ORDER, .. }), "{error}");
        }
        check(&[("b", b"1", 1), ("a", b"1", 1)]);
        check(&[("a", b"2", 1), ("a", b"1", 1)]);
        check(&[("a", b"1", 1), ("a", b"1", 1)]);
        check(&[("a", b"2", PIECE_BYTES), ("a", b"1", 1)]);
    }
}
