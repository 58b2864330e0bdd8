//! Contents of a checkpoint's frames: shards of the index, then runs of live offsets.
//!
//! ```text
//! 256 shards:  count u32, then for each: hash 12 bytes, offset i64
//! runs:        count u32, then for each: number i64, oldest time i64, offsets u32,
//!              then as many u16, or 8 KiB of bits where the count is 0xFFFFFFFF
//! ```

use block_device::BlockDevice;

use super::frames::{FrameReader, FrameWriter};
use crate::error::ValuesError;
use crate::index::{Index, SHARD_COUNT};
use crate::live::{Live, Offsets, Run};
use crate::shard::{ENTRY_BYTES, Shard, put_entry, read_entry};

/// Marker in place of a count: a bitmap follows.
const BITS: u32 = u32::MAX;

pub(super) fn put_shard(
    frames: &mut FrameWriter,
    device: &dyn BlockDevice,
    shard: &Shard,
) -> Result<(), ValuesError> {
    put_count(frames, device, shard.count())?;
    let mut bytes = Vec::with_capacity(ENTRY_BYTES);
    for entry in shard.entries() {
        bytes.clear();
        put_entry(entry, &mut bytes);
        frames.put(device, &bytes)?;
    }
    Ok(())
}

pub(super) fn put_count(
    frames: &mut FrameWriter,
    device: &dyn BlockDevice,
    count: usize,
) -> Result<(), ValuesError> {
    let count = u32::try_from(count).expect("a shard, and a log, have fewer parts");
    frames.put(device, &count.to_le_bytes())
}

pub(super) fn put_run(
    frames: &mut FrameWriter,
    device: &dyn BlockDevice,
    (number, run): (i64, &Run),
    oldest_ms: i64,
) -> Result<(), ValuesError> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(oldest_ms.to_le_bytes());
    match &run.offsets {
        Offsets::List(list) => {
            bytes.extend(u32::try_from(list.len()).expect("a short list").to_le_bytes());
            list.iter().for_each(|it| bytes.extend(it.to_le_bytes()));
        }
        Offsets::Bits { words, .. } => {
            bytes.extend(BITS.to_le_bytes());
            words.iter().for_each(|it| bytes.extend(it.to_le_bytes()));
        }
    }
    // Written as two items because the first one determines the length of the second.
    let (head, rest) = bytes.split_at(20);
    frames.put(device, head)?;
    frames.put(device, rest)
}

/// Reads the index. Returns `None` if anything is invalid.
pub(super) fn take_index(frames: &mut FrameReader<'_>) -> Option<Index> {
    let mut index = Index::default();
    let mut entries = Vec::new();
    for number in 0..SHARD_COUNT {
        let count = u32::from_le_bytes(frames.array()?);
        entries.clear();
        for _ in 0..count {
            let bytes = frames.take(ENTRY_BYTES)?;
            let entry = read_entry(bytes.try_into().expect("as long as was asked for"));
            if entry.1 < 0 {
                return None;
            }
            entries.push(entry);
        }
        index.set_shard(number, Shard::from_sorted(&entries)?);
    }
    Some(index)
}

pub(super) fn take_live(frames: &mut FrameReader<'_>) -> Option<Live> {
    let mut live = Live::default();
    for _ in 0..u32::from_le_bytes(frames.array()?) {
        let head: [u8; 20] = frames.array()?;
        let (number, rest) = head.split_first_chunk()?;
        let (oldest_ms, count) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(count.try_into().ok()?);
        let offsets = if count == BITS {
            let bytes = frames.take(8 << 10)?;
            let words: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|it| u64::from_le_bytes(it.try_into().expect("8 bytes")))
                .collect();
            Offsets::from_words(words.into_boxed_slice().try_into().ok()?)
        } else {
            let bytes = frames.take(2 * usize::try_from(count).ok()?)?;
            let list: Vec<u16> = bytes
                .chunks_exact(2)
                .map(|it| u16::from_le_bytes(it.try_into().expect("2 bytes")))
                .collect();
            if !list.is_sorted_by(|one, next| one < next) {
                return None;
            }
            Offsets::from_sorted(list)
        };
        let run = Run { offsets, oldest_ms: i64::from_le_bytes(*oldest_ms) };
        let number = i64::from_le_bytes(*number);
        if number < 0 || !live.put_run(number, run) {
            return None;
        }
    }
    Some(live)
}
