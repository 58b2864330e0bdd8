//! Authenticated encryption of data under one derived key.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Size of an authentication tag.
pub const TAG_BYTES: usize = 16;

/// Authentication tag over the sealed bytes and the associated data.
pub type Tag = [u8; TAG_BYTES];

/// Encrypts and decrypts data at positions. A position is the nonce and is used once.
pub struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the cipher's length");
        Self { key: LessSafeKey::new(key) }
    }

    /// Encrypts `bytes` in place. `beside` is associated data: authenticated, not encrypted. The
    /// caller must not seal other bytes at the same `position`.
    pub fn seal(&self, position: u64, beside: &[u8], bytes: &mut [u8]) -> Tag {
        let sealed = self.key.seal_in_place_separate_tag(nonce(position), Aad::from(beside), bytes);
        let tag = sealed.expect("what is sealed at once is far below the cipher's limit");
        tag.as_ref().try_into().expect("the cipher's tags have 16 bytes")
    }

    /// Decrypts `bytes` in place. Returns whether `bytes` and the associated data `beside` are
    /// authentic for `position`. If not, the contents of `bytes` are unspecified.
    #[must_use]
    pub fn open(&self, position: u64, beside: &[u8], bytes: &mut [u8], tag: Tag) -> bool {
        let (nonce, beside) = (nonce(position), Aad::from(beside));
        self.key.open_in_place_separate_tag(nonce, beside, tag.into(), bytes, 0..).is_ok()
    }

    /// Decrypts the ciphertext that starts at offset `from` of `bytes` and moves the plaintext to
    /// the front of `bytes`. The associated data is empty. The bytes after the plaintext are
    /// unspecified.
    #[must_use]
    pub fn open_to_front(&self, position: u64, bytes: &mut [u8], from: usize, tag: Tag) -> bool {
        let (nonce, beside) = (nonce(position), Aad::empty());
        self.key.open_in_place_separate_tag(nonce, beside, tag.into(), bytes, from..).is_ok()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

fn nonce(position: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&position.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(spoil: impl FnOnce(&mut u64, &mut Vec<u8>, &mut Vec<u8>, &mut Tag)) {
        let sealer = Sealer::new(&[7; 32]);
        let (mut position, mut beside) = (4096, b"sequence 3".to_vec());
        let mut bytes = b"contents of a block".to_vec();
        let mut tag = sealer.seal(position, &beside, &mut bytes);
        spoil(&mut position, &mut beside, &mut bytes, &mut tag);
        assert!(!sealer.open(position, &beside, &mut bytes, tag));
    }

    #[test]
    fn what_was_sealed_is_opened_at_its_position() {
        let sealer = Sealer::new(&[7; 32]);
        let mut bytes = b"contents of a block".to_vec();
        let tag = sealer.seal(4096, b"sequence 3", &mut bytes);
        assert_ne!(bytes, b"contents of a block");
        assert!(sealer.open(4096, b"sequence 3", &mut bytes, tag));
        assert_eq!(bytes, b"contents of a block");
    }

    #[test]
    fn what_was_sealed_is_opened_to_the_front() {
        let sealer = Sealer::new(&[7; 32]);
        let contents: Vec<u8> = (0..=255).cycle().take(4096).collect();
        for distance in [1, 16, 4096, 5000] {
            let mut bytes = vec![0; distance];
            bytes.extend_from_slice(&contents);
            let tag = sealer.seal(3, b"", &mut bytes[distance..]);
            assert!(sealer.open_to_front(3, &mut bytes, distance, tag), "{distance}");
            assert_eq!(bytes[..4096], contents, "{distance}");
        }
    }

    #[test]
    fn whatever_is_changed_is_refused() {
        check_refused(|position, _, _, _| *position += 1);
        check_refused(|_, beside, _, _| beside[0] ^= 1);
        check_refused(|_, _, bytes, _| bytes[3] ^= 1);
        check_refused(|_, _, bytes, _| bytes.truncate(3));
        check_refused(|_, _, _, tag| tag[15] ^= 1);
    }
}
