//! Password hashes with Argon2id (RFC 9106).

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use crate::access::attempts::network_of;
use crate::shares::Shares;

/// Argon2id parameters that OWASP recommends: 19 MiB, two passes, one lane. Less memory than the
/// second recommended option of RFC 9106.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Minimum length, against brute force.
const PASSWORD_CHARACTERS_MIN: usize = 10;

/// Maximum length. Longer passwords add no security but cost time.
const PASSWORD_BYTES_MAX: usize = 1024;

/// Limits for unauthenticated clients: concurrent hashes, queued ones, and queued ones per network.
/// An attacker with many networks can fill the queue.
const HASHED_AT_ONCE_MAX: usize = 2;
const WAITING_MAX: usize = 32;
const WAITING_OF_ONE_MAX: usize = 8;

/// Limits for users and returning clients, which unauthenticated clients do not affect.
const HASHED_OF_KNOWN_MAX: usize = 1;
const WAITING_OF_KNOWN_MAX: usize = 16;
const WAITING_OF_ONE_KNOWN_MAX: usize = 8;

/// Hash of a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    /// Salt and hash, in base64.
    salt: String,
    hash: String,
}

impl PasswordHash {
    fn of(password: &str) -> anyhow::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).context("cannot get random bytes")?;
        let hash = argon2id(password, &salt, (MEMORY_KIB, PASSES))?;
        Ok(Self {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: STANDARD_NO_PAD.encode(salt),
            hash: STANDARD_NO_PAD.encode(hash),
        })
    }

    fn is_of(&self, password: &str) -> anyhow::Result<bool> {
        let salt = STANDARD_NO_PAD.decode(&self.salt).context("a salt is corrupt")?;
        let kept = STANDARD_NO_PAD.decode(&self.hash).context("a hash is corrupt")?;
        let hash = argon2id(password, &salt, (self.memory_kib, self.passes))?;
        Ok(hash.as_slice().ct_eq(&kept).into())
    }
}

fn argon2id(
    password: &str,
    salt: &[u8],
    (memory_kib, passes): (u32, u32),
) -> anyhow::Result<[u8; HASH_BYTES]> {
    let failed = |error| anyhow::anyhow!("cannot hash a password: {error}");
    let params = Params::new(memory_kib, passes, 1, Some(HASH_BYTES)).map_err(failed)?;
    let mut hash = [0; HASH_BYTES];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(password.as_bytes(), salt, &mut hash)
        .map_err(failed)?;
    Ok(hash)
}

/// Client on whose behalf a password is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// An unauthenticated client, by network.
    Stranger(IpAddr),
    /// A user name that has logged in from this network before.
    Returning(String, IpAddr),
    User(String),
}

impl Asker {
    pub(crate) fn at(address: IpAddr) -> Self {
        Self::Stranger(network_of(address))
    }

    pub(crate) fn returning(name: &str, address: IpAddr) -> Self {
        Self::Returning(name.to_owned(), network_of(address))
    }
}

/// A queue with its concurrency limit.
#[derive(Debug)]
struct Lane {
    turns: Arc<Semaphore>,
    places: Arc<Shares<Asker>>,
}

impl Lane {
    fn new(turns: usize, waiting: usize, waiting_of_one: usize) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(turns)),
            places: Shares::new(waiting, waiting_of_one),
        }
    }
}

/// Password hashing with limited concurrency: each hash takes tens of milliseconds and 19 MiB.
#[derive(Debug)]
pub(crate) struct Passwords {
    of_strangers: Lane,
    of_known: Lane,
    /// Dummy hash, verified for unknown users so that response times do not reveal which users
    /// exist.
    nobody: PasswordHash,
}

impl Passwords {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            of_strangers: Lane::new(HASHED_AT_ONCE_MAX, WAITING_MAX, WAITING_OF_ONE_MAX),
            of_known: Lane::new(
                HASHED_OF_KNOWN_MAX,
                WAITING_OF_KNOWN_MAX,
                WAITING_OF_ONE_KNOWN_MAX,
            ),
            nobody: PasswordHash::of("nobody has this password")?,
        })
    }

    /// Hashes a new password.
    ///
    /// # Errors
    /// The password is too short or too long, with a message for the user; or the queue is full.
    pub(crate) async fn hash(
        &self,
        asker: &Asker,
        password: String,
    ) -> Result<PasswordHash, NotHashed> {
        check(&password).map_err(NotHashed::Refused)?;
        self.in_turn(asker, move || PasswordHash::of(&password)).await
    }

    /// Verifies a password. Without a hash (an unknown user) the result is always `false`.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) async fn verify(
        &self,
        asker: &Asker,
        password: String,
        kept: Option<PasswordHash>,
    ) -> Result<bool, NotHashed> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let is_somebody = kept.is_some();
        let kept = kept.unwrap_or_else(|| self.nobody.clone());
        let is_right = self.in_turn(asker, move || kept.is_of(&password)).await?;
        Ok(is_right && is_somebody)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        asker: &Asker,
        work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, NotHashed> {
        let lane = match asker {
            Asker::Stranger(_) => &self.of_strangers,
            Asker::Returning(..) | Asker::User(_) => &self.of_known,
        };
        let mut place = lane.places.enter(asker).map_err(|_| NotHashed::Busy)?;
        let turn = tokio::select! {
            turn = Arc::clone(&lane.turns).acquire_owned() => turn,
            () = place.taken() => return Err(NotHashed::Busy),
        };
        let turn = turn.context("turns never end").map_err(NotHashed::Failed)?;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        let done = tokio::task::spawn_blocking(work).await.context("a thread failed");
        done.flatten().map_err(NotHashed::Failed)
    }
}

/// Reason for which a password was not hashed.
#[derive(Debug)]
pub(crate) enum NotHashed {
    /// Invalid password, with a message for the user.
    Refused(String),
    /// The queue is full.
    Busy,
    Failed(anyhow::Error),
}

fn check(password: &str) -> Result<(), String> {
    if password.chars().count() < PASSWORD_CHARACTERS_MIN {
        return Err(format!("a password has {PASSWORD_CHARACTERS_MIN} characters or more"));
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has {PASSWORD_BYTES_MAX} bytes at most"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference value from the Argon2 command line: `echo -n password | argon2 somesalt -id -t 2
    /// -m 16 -p 1 -l 32`.
    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        let hash = argon2id("password", b"somesalt", (1 << 16, 2)).expect("it is hashed");
        let hex: String = hash.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(hex, "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7");
    }

    #[tokio::test]
    async fn the_right_password_is_known_again_and_others_are_not() {
        let passwords = Passwords::new().expect("there is memory");
        let asker = Asker::at(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
        let kept =
            passwords.hash(&asker, "four words are good".to_owned()).await.expect("it is long");
        let stored = serde_json::to_string(&kept).expect("it is plain data");
        assert!(!stored.contains("four words"));
        let verify = async |it: &str, kept| {
            passwords.verify(&asker, it.to_owned(), kept).await.expect("there is room")
        };
        assert!(verify("four words are good", Some(kept.clone())).await);
        assert!(!verify("four words are bad", Some(kept.clone())).await);
        assert!(!verify("nobody has this password", None).await);
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert!(!verify(&long, Some(kept)).await);
        let short = passwords.hash(&asker, "123456789".to_owned()).await.expect_err("it is short");
        assert!(format!("{short:?}").contains("10 characters"), "{short:?}");
        passwords.hash(&asker, long).await.expect_err("it is long");
    }
}
