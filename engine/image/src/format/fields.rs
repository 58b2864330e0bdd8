//! Little-endian fields in sequence.

/// Reads fields from the front of bytes that may end early.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// Skips padding. Returns `None` unless it is all zeros.
    pub(crate) fn zeros(&mut self, count: usize) -> Option<()> {
        self.bytes(count)?.iter().all(|&byte| byte == 0).then_some(())
    }
}

/// Appends fields.
pub(crate) trait PutFields {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn put_u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }

    fn put_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.put_u8(0);
        }
    }
}

impl PutFields for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_put() {
        let mut bytes = Vec::new();
        bytes.put_u8(1);
        bytes.put_u16(2);
        bytes.put_u32(3);
        bytes.put_u64(4);
        bytes.put_u128(5);
        bytes.put_zeros(3);
        let mut fields = Fields::new(&bytes);
        assert_eq!((fields.u8(), fields.u16(), fields.u32()), (Some(1), Some(2), Some(3)));
        assert_eq!((fields.u64(), fields.u128(), fields.zeros(3)), (Some(4), Some(5), Some(())));
        assert!(fields.is_empty());
    }

    #[test]
    fn a_field_that_the_bytes_do_not_hold_is_none() {
        let mut fields = Fields::new(&[1, 2, 3]);
        assert_eq!(fields.u32(), None);
        assert_eq!(fields.zeros(1), None);
        assert_eq!(fields.bytes(4), None);
    }
}
