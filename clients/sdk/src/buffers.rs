//! The caller's memory, contiguous or vectored, and copies between it and slots.

use std::io::{IoSlice, IoSliceMut};

use shared_ring::{ClientLane, Slot};

/// Source or destination of data.
pub(crate) enum Buffers<'a, 'b> {
    Nothing,
    From(&'a [u8]),
    Into(&'a mut [u8]),
    FromMany(&'a [IoSlice<'b>]),
    IntoMany(&'a mut [IoSliceMut<'b>]),
}

impl Buffers<'_, '_> {
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::From(bytes) => bytes.len(),
            Self::Into(bytes) => bytes.len(),
            Self::FromMany(parts) => parts.iter().map(|part| part.len()).sum(),
            Self::IntoMany(parts) => parts.iter().map(|part| part.len()).sum(),
        }
    }

    /// Copies `length` bytes from `start` on to the slot, if the request writes.
    #[inline]
    pub(crate) fn put(&self, lane: &ClientLane, slot: Slot, start: usize, length: usize) {
        match self {
            Self::From(bytes) => lane.copy_in(slot, 0, &bytes[start..start + length]),
            Self::FromMany(parts) => {
                let lengths = parts.iter().map(|part| part.len());
                for cut in cuts(lengths, start, length) {
                    lane.copy_in(slot, cut.at, &parts[cut.part][cut.start..cut.start + cut.length]);
                }
            }
            Self::Nothing | Self::Into(_) | Self::IntoMany(_) => {}
        }
    }

    /// Copies `length` bytes of the slot to `start`, if the request reads.
    #[inline]
    pub(crate) fn get(&mut self, lane: &ClientLane, slot: Slot, start: usize, length: usize) {
        match self {
            Self::Into(bytes) => lane.copy_out(slot, 0, &mut bytes[start..start + length]),
            Self::IntoMany(parts) => {
                let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
                for cut in cuts(lengths.into_iter(), start, length) {
                    let part = &mut parts[cut.part];
                    lane.copy_out(slot, cut.at, &mut part[cut.start..cut.start + cut.length]);
                }
            }
            Self::Nothing | Self::From(_) | Self::FromMany(_) => {}
        }
    }
}

/// A contiguous range inside one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    part: usize,
    start: usize,
    length: usize,
    /// Offset of the range in the copied data.
    at: usize,
}

/// Splits the bytes from `start` on into ranges inside parts of these lengths.
fn cuts(lengths: impl Iterator<Item = usize>, start: usize, length: usize) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let (mut begin, end) = (0, start + length);
    for (part, part_length) in lengths.enumerate() {
        let (first, last) = (begin.max(start), (begin + part_length).min(end));
        if first < last {
            cuts.push(Cut { part, start: first - begin, length: last - first, at: first - start });
        }
        begin += part_length;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lengths: &[usize], start: usize, length: usize, expected: &[[usize; 4]]) {
        let found: Vec<_> = cuts(lengths.iter().copied(), start, length)
            .iter()
            .map(|cut| [cut.part, cut.start, cut.length, cut.at])
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn runs_are_cut_where_parts_end() {
        check(&[10, 10], 0, 10, &[[0, 0, 10, 0]]);
        check(&[10, 10], 5, 10, &[[0, 5, 5, 0], [1, 0, 5, 5]]);
        check(&[10, 0, 10], 10, 10, &[[2, 0, 10, 0]]);
        check(&[3, 3, 3], 2, 5, &[[0, 2, 1, 0], [1, 0, 3, 1], [2, 0, 1, 4]]);
        check(&[10], 3, 0, &[]);
    }
}
