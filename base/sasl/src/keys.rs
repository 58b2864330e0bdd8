//! Salted keys that a server stores for a user. The secret cannot be recovered from them.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

use crate::error::{SaslError, SaslErrorKind};
use crate::mechanism::ScramHash;

/// Minimum iteration count (RFC 7677, section 4; Kafka has the same minimum).
pub const ITERATIONS_MIN: u32 = 4096;
pub const ITERATIONS_DEFAULT: u32 = 8192;
/// Maximum iteration count. Bounds the CPU time that a server can demand from a client.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Length of the salt of a new user.
pub const SALT_BYTES: usize = 16;
pub const SALT_BYTES_MIN: usize = 8;
pub const SALT_BYTES_MAX: usize = 64;

/// Salt, iteration count, StoredKey and ServerKey of one user and hash (RFC 5802, section 3).
///
/// The text form is PostgreSQL's: `SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY`, in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    hash: ScramHash,
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ScramKeys {
    /// Derives the keys of `secret`. Computes two hashes for each iteration, which takes
    /// milliseconds.
    pub fn derive(
        hash: ScramHash,
        secret: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, SaslError> {
        check_bounds(salt, iterations)?;
        let client_key = ClientKeys::derive(hash, secret, salt, iterations)?;
        Ok(Self {
            hash,
            iterations,
            salt: salt.to_vec(),
            stored_key: client_key.stored_key,
            server_key: client_key.server_key,
        })
    }

    /// Derives the keys from a SaltedPassword that the client computed (RFC 5802, section 3).
    pub fn of_salted_password(
        hash: ScramHash,
        salted_password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, SaslError> {
        check_bounds(salt, iterations)?;
        if salted_password.len() != hash.key_bytes() {
            let (has, takes) = (salted_password.len(), hash.key_bytes());
            let what = format!("a salted password has {has} bytes instead of {takes}");
            return Err(SaslError::new(SaslErrorKind::Keys, what));
        }
        let keys = ClientKeys::of_salted_password(hash, salted_password);
        let (stored_key, server_key) = (keys.stored_key, keys.server_key);
        Ok(Self { hash, iterations, salt: salt.to_vec(), stored_key, server_key })
    }

    /// Returns keys that match no secret, for the answer to an unknown user name. A client cannot
    /// distinguish them from a user's keys, and no proof is accepted for them.
    pub fn without_secret(
        hash: ScramHash,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, SaslError> {
        check_bounds(salt, iterations)?;
        let nothing = vec![0; hash.key_bytes()];
        let salt = salt.to_vec();
        Ok(Self { hash, iterations, salt, stored_key: nothing.clone(), server_key: nothing })
    }

    pub fn hash(&self) -> ScramHash {
        self.hash
    }

    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns whether these are the keys of `secret`. Takes as long as [`ScramKeys::derive`],
    /// independent of the result.
    pub fn are_of(&self, secret: &[u8]) -> bool {
        let derived = ClientKeys::derive(self.hash, secret, &self.salt, self.iterations);
        derived.is_ok_and(|derived| derived.stored_key.ct_eq(&self.stored_key).into())
    }

    /// Verifies the ClientProof for `auth_message`. It proves that the client knows the secret.
    pub fn accept_proof(&self, auth_message: &[u8], proof: &[u8]) -> bool {
        if proof.len() != self.hash.key_bytes() {
            return false;
        }
        let signature = sign(self.hash, &self.stored_key, auth_message);
        let client_key: Vec<u8> =
            proof.iter().zip(&signature).map(|(proof, mask)| proof ^ mask).collect();
        let stored_key = digest::digest(self.hash.digest(), &client_key);
        stored_key.as_ref().ct_eq(&self.stored_key).into()
    }

    /// Computes the ServerSignature, which proves to the client that the server knows the user's
    /// keys.
    pub fn server_signature(&self, auth_message: &[u8]) -> Vec<u8> {
        sign(self.hash, &self.server_key, auth_message)
    }
}

/// Keys that a client derives from the secret for one login.
pub(crate) struct ClientKeys {
    hash: ScramHash,
    client_key: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ClientKeys {
    pub(crate) fn derive(
        hash: ScramHash,
        secret: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, SaslError> {
        check_bounds(salt, iterations)?;
        let rounds = NonZeroU32::new(iterations).expect("the bounds exclude zero");
        let mut salted_password = vec![0; hash.key_bytes()];
        pbkdf2::derive(hash.pbkdf2(), rounds, salt, secret, &mut salted_password);
        Ok(Self::of_salted_password(hash, &salted_password))
    }

    fn of_salted_password(hash: ScramHash, salted_password: &[u8]) -> Self {
        let client_key = sign(hash, salted_password, b"Client Key");
        let stored_key = digest::digest(hash.digest(), &client_key).as_ref().to_vec();
        let server_key = sign(hash, salted_password, b"Server Key");
        Self { hash, client_key, stored_key, server_key }
    }

    pub(crate) fn proof(&self, auth_message: &[u8]) -> Vec<u8> {
        let signature = sign(self.hash, &self.stored_key, auth_message);
        self.client_key.iter().zip(&signature).map(|(key, mask)| key ^ mask).collect()
    }

    pub(crate) fn accept_server(&self, auth_message: &[u8], signature: &[u8]) -> bool {
        let key = hmac::Key::new(self.hash.hmac(), &self.server_key);
        hmac::verify(&key, auth_message, signature).is_ok()
    }
}

fn sign(hash: ScramHash, key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hash.hmac(), key), message).as_ref().to_vec()
}

fn check_bounds(salt: &[u8], iterations: u32) -> Result<(), SaslError> {
    let refused = |what: String| Err(SaslError::new(SaslErrorKind::Keys, what));
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return refused(format!(
            "invalid SCRAM iterations {iterations}; use {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        ));
    }
    if !(SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&salt.len()) {
        return refused(format!(
            "a SCRAM salt of {} bytes is not between {SALT_BYTES_MIN} and {SALT_BYTES_MAX}",
            salt.len()
        ));
    }
    Ok(())
}

/// Omits the keys.
impl fmt::Debug for ScramKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ScramKeys")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ScramKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}${}:{}${}:{}",
            self.hash.mechanism_name(),
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(&self.stored_key),
            BASE64.encode(&self.server_key)
        )
    }
}

impl FromStr for ScramKeys {
    type Err = SaslError;

    /// Parses PostgreSQL's form. Errors never contain the text, as they may be logged.
    fn from_str(text: &str) -> Result<Self, SaslError> {
        let wrong = || {
            let form = "SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY";
            SaslError::new(SaslErrorKind::Keys, format!("a secret does not have the form {form}"))
        };
        let mut parts = text.split('$');
        let (Some(name), Some(salting), Some(keys), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let hash = ScramHash::ALL.into_iter().find(|hash| hash.mechanism_name() == name);
        let hash = hash.ok_or_else(wrong)?;
        let (iterations, salt) = salting.split_once(':').ok_or_else(wrong)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or_else(wrong)?;
        let bytes = |text: &str| BASE64.decode(text).map_err(|_| wrong());
        let keys = Self {
            hash,
            iterations: iterations.parse().map_err(|_| wrong())?,
            salt: bytes(salt)?,
            stored_key: bytes(stored_key)?,
            server_key: bytes(server_key)?,
        };
        check_bounds(&keys.salt, keys.iterations)?;
        let lengths = [keys.stored_key.len(), keys.server_key.len()];
        if lengths.iter().any(|length| *length != hash.key_bytes()) {
            return Err(wrong());
        }
        Ok(keys)
    }
}
