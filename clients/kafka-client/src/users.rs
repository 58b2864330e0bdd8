//! SCRAM users. Only the salted password is sent to the broker, never the password itself.

use std::num::NonZeroU32;

use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
};
use ring::pbkdf2;
use ring::rand::{SecureRandom, SystemRandom};
use sasl::{ITERATIONS_DEFAULT, ScramHash};

use crate::client::{Client, text};
use crate::error::{ClientError, check};
use crate::topics::no_result;

/// Code of a mechanism in requests.
fn code_of(hash: ScramHash) -> i8 {
    match hash {
        ScramHash::Sha256 => 1,
        ScramHash::Sha512 => 2,
    }
}

/// SCRAM credential as a broker stores it.
#[derive(Clone)]
pub struct ScramCredential {
    pub user: String,
    pub hash: ScramHash,
    pub iterations: i32,
    pub salt: Vec<u8>,
    pub salted_password: Vec<u8>,
}

/// A user with one of its mechanisms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserScram {
    pub user: String,
    pub hash: ScramHash,
    pub iterations: i32,
}

impl ScramCredential {
    /// Derives the credential of `password` with a new random salt. Takes milliseconds.
    pub fn new(user: &str, password: &str, hash: ScramHash) -> Result<Self, ClientError> {
        let unusable = || ClientError::invalid(format!("cannot set the password of {user:?}"));
        sasl::check_name(user).map_err(|error| unusable().because(error))?;
        sasl::check_secret(password).map_err(|error| unusable().because(error))?;
        let mut salt = vec![0; sasl::SALT_BYTES];
        SystemRandom::new()
            .fill(&mut salt)
            .map_err(|_| unusable().because("cannot get random bytes"))?;
        let algorithm = match hash {
            ScramHash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramHash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(ITERATIONS_DEFAULT).expect("it is not zero");
        let mut salted_password = vec![0; hash.key_bytes()];
        pbkdf2::derive(algorithm, iterations, &salt, password.as_bytes(), &mut salted_password);
        let iterations = i32::try_from(ITERATIONS_DEFAULT).expect("it is small");
        Ok(Self { user: user.to_owned(), hash, iterations, salt, salted_password })
    }
}

impl Client {
    /// Lists all users, or one.
    pub async fn users(&self, user: Option<&str>) -> Result<Vec<UserScram>, ClientError> {
        let named = user.map(|user| vec![UserName::default().with_name(text(user))]);
        let request = DescribeUserScramCredentialsRequest::default().with_users(named);
        let response = self.ask(&request).await?;
        check(response.error_code, response.error_message.as_deref(), "list users")?;
        let mut users = Vec::new();
        for result in &response.results {
            let attempt = format_args!("look up user {:?}", result.user.as_str());
            check(result.error_code, result.error_message.as_deref(), attempt)?;
            users.extend(result.credential_infos.iter().filter_map(|info| {
                let is_it = |&hash: &ScramHash| code_of(hash) == info.mechanism;
                let hash = ScramHash::ALL.into_iter().find(is_it)?;
                let user = result.user.to_string();
                Some(UserScram { user, hash, iterations: info.iterations })
            }));
        }
        users.sort_by(|a, b| a.user.cmp(&b.user));
        Ok(users)
    }

    /// Creates a user or changes its password.
    pub async fn set_user(&self, credential: &ScramCredential) -> Result<(), ClientError> {
        let upsertion = ScramCredentialUpsertion::default()
            .with_name(text(&credential.user))
            .with_mechanism(code_of(credential.hash))
            .with_iterations(credential.iterations)
            .with_salt(Bytes::copy_from_slice(&credential.salt))
            .with_salted_password(Bytes::copy_from_slice(&credential.salted_password));
        let request = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]);
        self.alter_users(&request, &format!("set user {:?}", credential.user)).await
    }

    /// Deletes a user's credential for one mechanism. A user without credentials ceases to exist.
    pub async fn delete_user(&self, user: &str, hash: ScramHash) -> Result<(), ClientError> {
        let deletion =
            ScramCredentialDeletion::default().with_name(text(user)).with_mechanism(code_of(hash));
        let request = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
        self.alter_users(&request, &format!("delete user {user:?}")).await
    }

    async fn alter_users(
        &self,
        request: &AlterUserScramCredentialsRequest,
        attempt: &str,
    ) -> Result<(), ClientError> {
        let response = self.ask(request).await?;
        let result = response.results.first().ok_or_else(|| no_result(attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use ring::{digest, hmac};
    use sasl::ScramKeys;

    use super::*;

    #[test]
    fn the_salted_password_gives_the_keys_that_a_broker_keeps() {
        let credential =
            ScramCredential::new("u", "secret", ScramHash::Sha512).expect("a good password");
        let key = hmac::Key::new(hmac::HMAC_SHA512, &credential.salted_password);
        let client_key = hmac::sign(&key, b"Client Key");
        let stored_key = digest::digest(&digest::SHA512, client_key.as_ref());
        let iterations = credential.iterations.unsigned_abs();
        let keys = ScramKeys::derive(ScramHash::Sha512, b"secret", &credential.salt, iterations);
        let text = keys.expect("good keys").to_string();
        assert!(text.contains(&BASE64.encode(stored_key)), "{text}");
    }

    #[test]
    fn names_and_passwords_that_no_login_can_have_are_refused() {
        for (user, password) in [("", "secret"), ("u", ""), ("u", "pass\u{7}")] {
            let credential = ScramCredential::new(user, password, ScramHash::Sha256);
            assert!(credential.is_err(), "{user:?} {password:?}");
        }
    }
}
