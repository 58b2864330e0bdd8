//! Memory footprint of pages and maps, for estimates before anything is stored.

use crate::index::full_segment_hints;
use crate::layout::{Class, SLAB_BYTES, SLAB_WORDS_BYTES, packed_bytes_max};

/// Maximum length of an encoding. A block that needs more is stored uncompressed.
pub fn encoding_bytes_max() -> usize {
    packed_bytes_max()
}

/// Share of a page in its slab, including words: for an uncompressed block, or an encoding of this
/// length. A store that is full of such pages uses this for each.
pub fn page_footprint_bytes(encoded_bytes: Option<usize>) -> f64 {
    let class = encoded_bytes.and_then(Class::packed_for).unwrap_or(Class::RAW);
    (SLAB_BYTES + SLAB_WORDS_BYTES) as f64 / f64::from(class.shape().slot_count)
}

/// Memory of a map node, including its words.
pub fn node_footprint_bytes() -> f64 {
    (SLAB_BYTES + SLAB_WORDS_BYTES) as f64 / f64::from(Class::NODE.shape().slot_count)
}

/// Memory of the dedup index for this many pages. Its segments split at about the same time,
/// because fingerprints are distributed evenly.
pub fn index_footprint_bytes(page_count: u64) -> u64 {
    match page_count {
        0 => 0,
        count => count.div_ceil(u64::from(full_segment_hints())).next_power_of_two() * SLAB_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_encodings_never_take_more() {
        let sizes: Vec<f64> =
            (1..=encoding_bytes_max()).map(|length| page_footprint_bytes(Some(length))).collect();
        assert!(sizes.is_sorted());
        assert!(sizes.last().is_some_and(|&largest| largest < page_footprint_bytes(None)));
    }

    #[test]
    fn a_footprint_holds_its_bytes_and_little_more() {
        for length in [200, 1000, 2000, 3600] {
            let bytes = page_footprint_bytes(Some(length));
            let length = f64::from(u16::try_from(length).expect("it is short"));
            assert!(bytes >= length && bytes <= length * 1.06 + 64.0, "{length} takes {bytes}");
        }
    }

    #[test]
    fn the_index_doubles_when_its_segments_are_full() {
        assert_eq!(index_footprint_bytes(0), 0);
        assert_eq!(index_footprint_bytes(1), SLAB_BYTES);
        let full = u64::from(full_segment_hints());
        assert_eq!(index_footprint_bytes(full), SLAB_BYTES);
        assert_eq!(index_footprint_bytes(2 * full + 1), 4 * SLAB_BYTES);
    }
}
