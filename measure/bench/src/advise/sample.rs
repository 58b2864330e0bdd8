//! Estimate of the reduction of the server's files in a pool, from a sample.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use codec::BLOCK_BYTES;
use page_store::index_footprint_bytes;
use system::{Interruption, Random};

use crate::reduction::{Estimate, Estimator};

/// Size of a contiguous sample.
const PIECE_BYTES: u64 = 1 << 20;
/// Memory for the duplicate detection.
const MEMORY_BYTES: u64 = 64 << 20;
/// Maximum folder depth. Tablespaces have three levels.
const DEPTH_MAX: u32 = 8;

/// Result for a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) file_bytes: u64,
    pub(super) read_bytes: u64,
    /// `None` if there is nothing to read.
    pub(super) reduction: Option<f64>,
}

/// Reads `bytes_max` of the files below the folders, at positions determined by the seed.
pub(super) fn sample(folders: &[PathBuf], bytes_max: u64, seed: u64) -> Result<Sampled> {
    let mut files = Vec::new();
    for folder in folders {
        list(folder, DEPTH_MAX, &mut files)
            .with_context(|| format!("cannot list {}", folder.display()))?;
    }
    files.sort();
    let file_bytes = files.iter().map(|(_, bytes)| bytes).sum();
    let pieces = match file_bytes <= bytes_max {
        true => all_pieces(&files),
        false => chosen_pieces(&files, (bytes_max / PIECE_BYTES).max(1), &mut Random::new(seed)),
    };
    let mut estimator = Estimator::new(MEMORY_BYTES, seed);
    let mut piece = vec![0; usize::try_from(PIECE_BYTES).context("a piece fits in memory")?];
    let mut read_bytes = 0;
    for (file, offset) in pieces {
        ensure!(!Interruption::is_asked_for(), "interrupted while reading data");
        let read = read_piece(&files[file].0, offset, &mut piece)?;
        estimator.note(&piece[..read]);
        read_bytes += read as u64;
    }
    let reduction = reduction_of_all(&estimator.finish(), file_bytes);
    Ok(Sampled { file_bytes, read_bytes, reduction })
}

/// Extrapolates the sample to all files. The index is that of all pages, because it grows in steps
/// and would otherwise be charged to a small sample.
fn reduction_of_all(sample: &Estimate, file_bytes: u64) -> Option<f64> {
    if sample.data_bytes == 0 {
        return None;
    }
    let times = file_bytes as f64 / sample.data_bytes as f64;
    let pages = (sample.page_bytes + sample.map_bytes) as f64 * times;
    let distinct_share = 1.0 - sample.fill_share - sample.duplicate_share;
    let distinct = file_bytes as f64 / BLOCK_BYTES as f64 * distinct_share.max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a count")]
    let index_bytes = index_footprint_bytes(distinct.round() as u64) as f64;
    let used_bytes = pages + index_bytes;
    (used_bytes > 0.0).then(|| file_bytes as f64 / used_bytes)
}

/// Reads a piece of a file. A file removed meanwhile is empty.
fn read_piece(path: &Path, offset: u64, piece: &mut [u8]) -> Result<usize> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut filled = 0;
    while filled < piece.len() {
        let read = file.read_at(&mut piece[filled..], offset + filled as u64);
        match read.with_context(|| format!("cannot read {}", path.display()))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Lists files with their sizes. Files removed meanwhile are skipped.
fn list(folder: &Path, depth: u32, files: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Tablespaces are symbolic links.
        let Ok(data) = fs::metadata(entry.path()) else { continue };
        if data.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, files)?;
        } else if data.is_file() && data.len() > 0 {
            files.push((entry.path(), data.len()));
        }
    }
    Ok(())
}

/// Returns each piece as a file and an offset.
fn all_pieces(files: &[(PathBuf, u64)]) -> Vec<(usize, u64)> {
    let of_file = |(index, (_, bytes)): (usize, &(PathBuf, u64))| {
        (0..bytes.div_ceil(PIECE_BYTES)).map(move |piece| (index, piece * PIECE_BYTES))
    };
    files.iter().enumerate().flat_map(of_file).collect()
}

/// Returns at most `count` pieces at equal distances in all bytes of the files, from a random
/// start, so that large files have more pieces.
fn chosen_pieces(files: &[(PathBuf, u64)], count: u64, random: &mut Random) -> Vec<(usize, u64)> {
    let all: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let distance = (all / count).max(PIECE_BYTES);
    let mut due = random.below(distance);
    let (mut before, mut places) = (0, Vec::new());
    for (index, (_, bytes)) in files.iter().enumerate() {
        while due < before + bytes {
            // Aligned, so that the sample's blocks equal those of a volume.
            let offset = (due - before) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            places.push((index, offset));
            due += distance;
        }
        before += bytes;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_bytes() {
        let file = |name: &str, mib: u64| (PathBuf::from(name), mib << 20);
        let files = [file("small", 1), file("large", 98), file("last", 1)];
        let places = chosen_pieces(&files, 10, &mut Random::new(7));
        assert_eq!(places.len(), 10);
        let of_large = places.iter().filter(|(index, _)| *index == 1).count();
        assert!(of_large >= 9, "{places:?}");
        let in_order = |a: &(usize, u64), b: &(usize, u64)| a < b;
        assert!(places.is_sorted_by(in_order), "{places:?}");
        assert!(places.iter().all(|(_, offset)| offset.is_multiple_of(BLOCK_BYTES as u64)));
        assert_eq!(all_pieces(&files).len(), 100);
        assert_eq!(chosen_pieces(&[], 4, &mut Random::new(7)), []);
    }

    #[test]
    fn a_small_sample_does_not_pay_for_a_whole_index() {
        let mut estimator = Estimator::new(MEMORY_BYTES, 1);
        let mut noise = vec![0; 1 << 16];
        Random::new(3).fill(&mut noise);
        estimator.note(&noise);
        let sample = estimator.finish();
        assert!(sample.reduction < 0.6, "{sample:?}");
        let all = reduction_of_all(&sample, 1 << 34).expect("something was read");
        assert!((0.9..1.0).contains(&all), "{all}");
    }

    #[test]
    fn files_are_read_in_part_and_reduced() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let below = folder.path().join("below");
        fs::create_dir(&below).expect("it can be made");
        let text = "The same words again. ".repeat(1 << 16);
        for name in ["a", "b", "c", "d"] {
            fs::write(below.join(name), format!("{name}{text}")).expect("it can be written");
        }
        let folders = [folder.path().to_owned()];
        let all = sample(&folders, 1 << 30, 1).expect("it can be read");
        assert_eq!(all.read_bytes, all.file_bytes);
        assert!(all.reduction.is_some_and(|it| it > 1.2), "{all:?}");
        let some = sample(&folders, 2 << 20, 1).expect("it can be read");
        assert!(some.read_bytes < some.file_bytes && some.read_bytes > 0, "{some:?}");
    }

    #[test]
    fn nothing_to_read_has_no_reduction() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let found = sample(&[folder.path().to_owned()], 1 << 20, 1).expect("it is empty");
        assert_eq!(found, Sampled { file_bytes: 0, read_bytes: 0, reduction: None });
        let error = sample(&[PathBuf::from("/nowhere")], 1 << 20, 1).expect_err("it is not there");
        assert!(error.to_string().contains("/nowhere"), "{error:#}");
    }
}
