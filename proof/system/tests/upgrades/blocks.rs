//! Contents of volumes as text, one block per line: `VOLUME BLOCK KIND NUMBER`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use sdk::ByteRange;
use system::{BLOCK_BYTES, Random};

use crate::place::Place;

const VOLUME_BYTES: usize = 8 << 20;

type Block = Vec<u8>;

struct Line<'a> {
    volume: &'a str,
    block: usize,
    /// `None` for zeros.
    contents: Option<Block>,
}

fn line(text: &str) -> Result<Line<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [volume, block, ref contents @ ..] = words[..] else { bail!("{text:?} is no block") };
    let contents = match contents {
        ["nothing"] => None,
        [kind, number] => Some(contents_of(kind, number.parse()?)?),
        _ => bail!("{text:?} has no contents"),
    };
    Ok(Line { volume, block: block.parse()?, contents })
}

fn contents_of(kind: &str, number: u64) -> Result<Block> {
    Ok(match kind {
        "noise" => {
            let mut bytes = vec![0; BLOCK_BYTES];
            Random::new(number).fill(&mut bytes);
            bytes
        }
        "text" => format!("line {number} of a text; ").bytes().cycle().take(BLOCK_BYTES).collect(),
        "fill" => number.to_le_bytes().into_iter().cycle().take(BLOCK_BYTES).collect(),
        _ => bail!("{kind:?} is no kind of contents"),
    })
}

fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>>> {
    text.lines().filter(|it| !it.is_empty() && !it.starts_with('#')).map(line)
}

/// Writes or discards the blocks of a text, and flushes.
pub(crate) fn write(place: &Place, text: &str) -> Result<()> {
    for line in lines(text) {
        let Line { volume, block, contents } = line?;
        let (device, offset) = (place.volume(volume)?, (block * BLOCK_BYTES) as u64);
        match contents {
            Some(bytes) => device.write(offset, &bytes)?,
            None => device.discard(ByteRange::new(offset, BLOCK_BYTES as u64))?,
        }
        device.flush()?;
    }
    Ok(())
}

/// Checks that the volumes of a text contain its blocks, and zeros in all others.
pub(crate) fn check(place: &Place, text: &str) -> Result<()> {
    let mut expected = BTreeMap::<&str, Vec<u8>>::new();
    for line in lines(text) {
        let Line { volume, block, contents } = line?;
        let bytes = expected.entry(volume).or_insert_with(|| vec![0; VOLUME_BYTES]);
        let at = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        bytes[at].copy_from_slice(&contents.unwrap_or_else(|| vec![0; BLOCK_BYTES]));
    }
    for (volume, bytes) in &expected {
        let device = place.volume(volume)?;
        ensure!(device.geometry()?.size_bytes == bytes.len() as u64, "{volume} has another size");
        let mut found = vec![0xEE; bytes.len()];
        device.read(0, &mut found).with_context(|| format!("cannot read {volume}"))?;
        let both = found.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES));
        let others: BTreeSet<usize> =
            both.enumerate().filter(|(_, (a, b))| a != b).map(|(block, _)| block).collect();
        ensure!(others.is_empty(), "blocks of {volume} hold something else: {others:?}");
    }
    Ok(())
}
