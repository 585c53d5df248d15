//! Finds all damage of a journal. Opening stops at the first damage, which is enough for a server; a check of the
//! directory reports the rest too.

use super::{
    frame::{self, BLOCK},
    header::{self, Header, Problem},
    segment,
};
use crate::{
    StoreError,
    disk::{Disk, DiskFile},
};

/// Every damaged header and frame. Each segment is checked on its own, so contradictions between segments are left to
/// opening.
pub(crate) fn find_all_damage<D: Disk>(disk: &D) -> Vec<StoreError> {
    let mut numbers: Vec<u64> =
        disk.list().unwrap_or_default().iter().filter_map(|name| segment::number(name)).collect();
    numbers.sort_unstable();
    let mut found = Vec::new();
    // From the newest to the oldest, because the header of each segment says where the previous one ends.
    let mut end = Some(u64::MAX);
    for number in numbers.into_iter().rev() {
        let path = disk.path(&segment::name(number));
        let bytes = match read(disk, number) {
            Ok(bytes) => bytes,
            Err(error) => {
                found.push(StoreError::io("reading", path, error));
                end = None;
                continue;
            }
        };
        let corrupt = |offset: usize, detail: String| StoreError::Corrupt {
            path: path.clone(),
            offset: offset as u64,
            detail,
        };
        let decoded = Header::decode(&bytes);
        if let Err(Problem::Version(_)) = decoded {
            // It is not damaged: opening says which version it has.
            end = None;
            continue;
        }
        let Some(header) = decoded.ok().filter(|header| header.number == number) else {
            // The newest file may never have been used.
            if end != Some(u64::MAX) {
                found.push(corrupt(0, "the header is damaged".to_string()));
            }
            end = None;
            continue;
        };
        let damaged = damaged_frames(&bytes, &header, end);
        found.extend(
            damaged
                .into_iter()
                .rev()
                .map(|(offset, frame)| corrupt(offset, format!("frame {frame} is damaged"))),
        );
        end = Some(end.unwrap_or(u64::MAX).min(header.first_frame));
    }
    found.reverse();
    found
}

fn read<D: Disk>(disk: &D, number: u64) -> std::io::Result<Vec<u8>> {
    let file = disk.open(&segment::name(number))?;
    let mut bytes = vec![0; file.len()? as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Offsets and numbers of frames that are damaged. An incomplete frame counts as damaged if a complete one follows, or
/// if it lies before `end`, the first frame of the next segment (`None` if that is not known).
fn damaged_frames(bytes: &[u8], header: &Header, end: Option<u64>) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    let mut offset = header::data_start(header.next_seqs.len());
    let mut number = header.first_frame;
    let whole =
        |offset: usize| bytes.get(offset..).and_then(frame::check).filter(|head| head.salt == header.salt);
    while number < end.unwrap_or(u64::MAX) {
        if let Some(head) = whole(offset).filter(|head| head.number == number) {
            offset += head.size();
            number += 1;
            continue;
        }
        let later = (offset + BLOCK..bytes.len()).step_by(BLOCK).find_map(|later| {
            whole(later).filter(|head| head.number > number).map(|head| (later, head.number))
        });
        match later {
            Some((later, next)) => {
                found.push((offset, number));
                (offset, number) = (later, next);
            }
            None => {
                if end.is_some_and(|end| end != u64::MAX) {
                    found.push((offset, number));
                }
                break;
            }
        }
    }
    found
}
