//! Passwords, as Argon2id (RFC 9106) keeps them.

use std::sync::Arc;

use anyhow::{Context, ensure};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// The second choice of RFC 9106 with less memory: OWASP's 19 MiB and two passes, one lane.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Shorter ones can be tried.
const PASSWORD_CHARACTERS_MIN: usize = 10;

/// Longer ones are no better, and cost time.
const PASSWORD_BYTES_MAX: usize = 1024;

/// So many are hashed at a time, and so many more wait for that; who comes then is refused.
const HASHED_AT_ONCE_MAX: usize = 2;
const WAITING_MAX: usize = 62;

/// What is kept of a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    /// Both in base64.
    salt: String,
    hash: String,
}

impl PasswordHash {
    fn of(password: &str) -> anyhow::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).context("the system gives no random bytes")?;
        let hash = argon2id(password, &salt, (MEMORY_KIB, PASSES))?;
        Ok(Self {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: STANDARD_NO_PAD.encode(salt),
            hash: STANDARD_NO_PAD.encode(hash),
        })
    }

    fn is_of(&self, password: &str) -> anyhow::Result<bool> {
        let salt = STANDARD_NO_PAD.decode(&self.salt).context("a salt is damaged")?;
        let kept = STANDARD_NO_PAD.decode(&self.hash).context("a hash is damaged")?;
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

/// Hashes passwords, a few at a time: each takes tens of milliseconds and 19 MiB.
#[derive(Debug)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// Verified where there is no such user, so that an answer takes as long.
    nobody: PasswordHash,
}

impl Passwords {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let turns = Arc::new(Semaphore::new(HASHED_AT_ONCE_MAX));
        let places = Arc::new(Semaphore::new(HASHED_AT_ONCE_MAX + WAITING_MAX));
        Ok(Self { turns, places, nobody: PasswordHash::of("nobody has this password")? })
    }

    /// What is to be kept of a new password.
    ///
    /// # Errors
    /// It is too short or too long, in words for its owner.
    pub(crate) async fn hash(&self, password: String) -> anyhow::Result<PasswordHash> {
        ensure!(
            password.chars().count() >= PASSWORD_CHARACTERS_MIN,
            "a password has {PASSWORD_CHARACTERS_MIN} characters or more"
        );
        ensure!(
            password.len() <= PASSWORD_BYTES_MAX,
            "a password has {PASSWORD_BYTES_MAX} bytes at most"
        );
        self.in_turn(move || PasswordHash::of(&password)).await
    }

    /// Whether it is the password of which `kept` is known; `None`: of nobody, and never.
    ///
    /// # Errors
    /// Too many wait already.
    pub(crate) async fn verify(
        &self,
        password: String,
        kept: Option<PasswordHash>,
    ) -> anyhow::Result<bool> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let is_somebody = kept.is_some();
        let kept = kept.unwrap_or_else(|| self.nobody.clone());
        let is_right = self.in_turn(move || kept.is_of(&password)).await?;
        Ok(is_right && is_somebody)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let _place = self.places.try_acquire().context("too many log in at once; try again")?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.context("turns never end")?;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(work).await.context("a thread failed")?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Argon2id of RFC 9106 as the reference implementation's command line gives it:
    /// `echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1 -l 32`.
    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        let hash = argon2id("password", b"somesalt", (1 << 16, 2)).expect("it is hashed");
        let hex: String = hash.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(hex, "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7");
    }

    #[tokio::test]
    async fn the_right_password_is_known_again_and_others_are_not() {
        let passwords = Passwords::new().expect("there is memory");
        let kept = passwords.hash("four words are good".to_owned()).await.expect("it is long");
        let stored = serde_json::to_string(&kept).expect("it is plain data");
        assert!(!stored.contains("four words"));
        let verify = async |it: &str, kept| {
            passwords.verify(it.to_owned(), kept).await.expect("there is room")
        };
        assert!(verify("four words are good", Some(kept.clone())).await);
        assert!(!verify("four words are bad", Some(kept.clone())).await);
        assert!(!verify("nobody has this password", None).await);
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert!(!verify(&long, Some(kept)).await);
        let short = passwords.hash("123456789".to_owned()).await.expect_err("it is short");
        assert!(short.to_string().contains("10 characters"), "{short}");
        passwords.hash(long).await.expect_err("it is long");
    }
}
