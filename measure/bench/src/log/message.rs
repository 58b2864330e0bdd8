//! Messages in the log: numbered, checksummed, 128 per batch.
//!
//! ```text
//! 0        8                                            504        512
//! | number | payload                                    | checksum |
//! ```
//!
//! The checksum is the XXH3 of the number and of the payload's own XXH3. The latter is precomputed,
//! so that creating a batch costs a few nanoseconds per message, while verification reads all
//! bytes.

use thiserror::Error;
use twox_hash::XxHash3_64;

use crate::aligned::Aligned;
use crate::contents::{Contents, Data};

pub(crate) const MESSAGE_BYTES: usize = 512;
pub(crate) const BATCH_MESSAGES: usize = 128;
pub(crate) const BATCH_BYTES: usize = MESSAGE_BYTES * BATCH_MESSAGES;

const PAYLOAD_START: usize = 8;
const CHECKSUM_START: usize = MESSAGE_BYTES - 8;

/// Number of batches with prepared payloads. They fit into the second-level cache, like data just
/// received from clients.
const READY_BATCHES: usize = 8;

type Message = [u8; MESSAGE_BYTES];

/// A generator of batches with unique messages.
pub(crate) struct Batches {
    ready: Aligned,
    payload_hashes: Vec<u64>,
    next: usize,
}

impl Batches {
    /// Creates a generator with payloads of kind `data`. Different seeds give different payloads.
    pub(crate) fn new(data: Data, seed: u64) -> Self {
        let mut ready = Aligned::new(READY_BATCHES * BATCH_BYTES);
        let mut contents = Contents::new(data, BATCH_BYTES, seed);
        for batch in ready.bytes_mut().chunks_exact_mut(BATCH_BYTES) {
            batch.copy_from_slice(contents.next());
        }
        let messages = ready.bytes().as_chunks::<MESSAGE_BYTES>().0;
        let payload_hashes = messages.iter().map(hash_payload).collect();
        Self { ready, payload_hashes, next: 0 }
    }

    /// Returns the batch with this number. Its messages are numbered from `batch * BATCH_MESSAGES`.
    pub(crate) fn make(&mut self, batch: u64) -> &[u8] {
        let index = self.next;
        self.next = (index + 1) % READY_BATCHES;
        let bytes = &mut self.ready.bytes_mut()[index * BATCH_BYTES..][..BATCH_BYTES];
        let hashes = &self.payload_hashes[index * BATCH_MESSAGES..];
        let messages = bytes.as_chunks_mut::<MESSAGE_BYTES>().0;
        for ((message, hash), number) in messages.iter_mut().zip(hashes).zip(first_number(batch)..)
        {
            message[..PAYLOAD_START].copy_from_slice(&number.to_le_bytes());
            message[CHECKSUM_START..].copy_from_slice(&checksum(number, *hash).to_le_bytes());
        }
        bytes
    }
}

/// Corruption of a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Damage {
    #[error("checksum mismatch of message {expected} (its number is {found})")]
    Checksum { expected: u64, found: u64 },
    #[error("found message {found} instead of message {expected}")]
    Number { expected: u64, found: u64 },
}

/// Verifies each message of a batch.
pub(crate) fn verify(bytes: &[u8], batch: u64) -> Result<(), Damage> {
    assert_eq!(bytes.len(), BATCH_BYTES, "a batch is looked at whole");
    for (message, expected) in
        bytes.as_chunks::<MESSAGE_BYTES>().0.iter().zip(first_number(batch)..)
    {
        let found = number_at(message, 0);
        if checksum(found, hash_payload(message)) != number_at(message, CHECKSUM_START) {
            return Err(Damage::Checksum { expected, found });
        }
        if found != expected {
            return Err(Damage::Number { expected, found });
        }
    }
    Ok(())
}

fn first_number(batch: u64) -> u64 {
    batch * BATCH_MESSAGES as u64
}

fn hash_payload(message: &Message) -> u64 {
    XxHash3_64::oneshot(&message[PAYLOAD_START..CHECKSUM_START])
}

fn checksum(number: u64, payload_hash: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&number.to_le_bytes());
    both[8..].copy_from_slice(&payload_hash.to_le_bytes());
    XxHash3_64::oneshot(&both)
}

fn number_at(message: &Message, start: usize) -> u64 {
    let bytes = message[start..start + 8].try_into().expect("the range has 8 bytes");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_every_kind_are_read_as_they_were_written() {
        for data in Data::ALL {
            let mut batches = Batches::new(data, 1);
            for batch in [0, 1, 2, 1000, u64::from(u32::MAX)] {
                assert_eq!(verify(batches.make(batch), batch), Ok(()), "{data:?} {batch}");
            }
        }
    }

    #[test]
    fn each_flipped_bit_is_detected() {
        let mut bytes = Batches::new(Data::Random, 1).make(7).to_vec();
        // Each bit of the first, a middle and the last message.
        for message in [0, BATCH_MESSAGES / 2, BATCH_MESSAGES - 1] {
            for bit in 0..MESSAGE_BYTES * 8 {
                let at = message * MESSAGE_BYTES + bit / 8;
                bytes[at] ^= 1 << (bit % 8);
                assert!(verify(&bytes, 7).is_err(), "bit {bit} of message {message}");
                bytes[at] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(verify(&bytes, 7), Ok(()));
    }

    #[test]
    fn a_whole_batch_in_the_wrong_place_is_detected() {
        let mut batches = Batches::new(Data::Random, 1);
        let damage = verify(batches.make(3), 4);
        assert_eq!(damage, Err(Damage::Number { expected: 512, found: 384 }));
    }

    #[test]
    fn zeros_are_not_a_batch() {
        let damage = verify(&vec![0; BATCH_BYTES], 0);
        assert_eq!(damage, Err(Damage::Checksum { expected: 0, found: 0 }));
    }

    #[test]
    fn no_block_comes_again() {
        let mut batches = Batches::new(Data::Zero, 1);
        let mut seen = std::collections::HashSet::new();
        for batch in 0..3 * READY_BATCHES as u64 {
            for block in batches.make(batch).as_chunks::<4096>().0 {
                assert!(seen.insert(*block), "batch {batch}");
            }
        }
    }
}
