//! Page-aligned memory, as required for direct I/O.

const ALIGNMENT: usize = 4096;

/// A buffer aligned to 4096 bytes.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Creates a zeroed buffer.
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "a page begins within each 4096 bytes");
        Self { bytes, start, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_on_a_page_and_has_its_length() {
        for length in [0, 1, 4096, 65536] {
            let mut buffer = Aligned::new(length);
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.bytes_mut().len(), length);
        }
    }
}
