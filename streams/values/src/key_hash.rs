//! Keyed hashes of 104 bits, which represent keys in memory.
//!
//! Two keys with equal hashes would be treated as one. With a thousand million keys, that happens
//! in one of 10^13 logs. The secret prevents producers from constructing collisions.

use std::fmt;

use siphasher::sip128::SipHasher13;

/// Random key of the hash. Never revealed to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Hash of a key: the number of its shard, and the rest, by which a shard is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash {
    pub(crate) shard: u8,
    pub(crate) rest: [u32; 3],
}

impl KeyHash {
    pub(crate) fn of(secret: &Secret, key: &[u8]) -> Self {
        let hash = SipHasher13::new_with_key(&secret.0).hash(key).as_u128();
        let [shard, rest @ ..] = hash.to_be_bytes();
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        Self { shard, rest: [word(0), word(4), word(8)] }
    }
}
