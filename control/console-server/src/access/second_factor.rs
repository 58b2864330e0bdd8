//! Second factor of a user: one-time codes of an authenticator app, and recovery codes. It is
//! stored in the file of accounts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::access::secret::Secret;
use crate::access::totp::{TotpSecret, base32};
use crate::clock::Now;

const RECOVERY_CODES: usize = 10;

/// Size of a recovery code. It has enough entropy for a plain hash without salt.
const RECOVERY_BYTES: usize = 10;
const RECOVERY_GROUP_LETTERS: usize = 4;

/// Maximum length of an entered code.
const CODE_BYTES_MAX: usize = 64;

/// Time limit for entering the first code of an enrolment.
const ENROLMENT_SECONDS_MAX: u64 = 10 * 60;

/// An enabled second factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecondFactor {
    secret: TotpSecret,
    /// Time step of the last accepted code. Codes of this step and earlier ones are rejected.
    used_step: u64,
    /// Hashes of unused recovery codes.
    recovery_codes: Vec<String>,
}

/// Type of an accepted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeKind {
    OfAuthenticator,
    /// A recovery code, with the number of unused ones.
    Recovery(usize),
}

impl SecondFactor {
    /// Enables a second factor after its first code. Returns `None` if the code is wrong. The
    /// recovery codes are returned once; only their hashes are kept.
    ///
    /// # Errors
    /// The secret is corrupt, or the system provides no random bytes.
    pub(crate) fn confirm(
        secret: TotpSecret,
        code: &str,
        now: u64,
    ) -> anyhow::Result<Option<(Self, Vec<String>)>> {
        let Some(used_step) = secret.step_of(&plain(code), now, None)? else { return Ok(None) };
        let codes = (0..RECOVERY_CODES).map(|_| recovery_code()).collect::<Result<Vec<_>, _>>()?;
        let recovery_codes = codes.iter().map(|it| hash_of(it)).collect();
        Ok(Some((Self { secret, used_step, recovery_codes }, codes)))
    }

    /// Verifies and consumes a code. Returns `None` if it is not valid now.
    ///
    /// # Errors
    /// The secret is corrupt.
    pub(crate) fn take(&mut self, code: &str, now: u64) -> anyhow::Result<Option<CodeKind>> {
        if code.len() > CODE_BYTES_MAX {
            return Ok(None);
        }
        if let Some(step) = self.secret.step_of(&plain(code), now, Some(self.used_step))? {
            self.used_step = step;
            return Ok(Some(CodeKind::OfAuthenticator));
        }
        let hash = hash_of(code);
        let Some(index) = self.recovery_codes.iter().position(|it| *it == hash) else {
            return Ok(None);
        };
        self.recovery_codes.remove(index);
        Ok(Some(CodeKind::Recovery(self.recovery_codes.len())))
    }

    /// Number of unused recovery codes.
    pub(crate) fn recovery_codes_left(&self) -> usize {
        self.recovery_codes.len()
    }
}

fn recovery_code() -> anyhow::Result<String> {
    let mut bytes = [0; RECOVERY_BYTES];
    getrandom::fill(&mut bytes).context("cannot get random bytes")?;
    let letters = base32(&bytes).to_ascii_lowercase();
    let groups: Vec<_> = letters.as_bytes().chunks(RECOVERY_GROUP_LETTERS).collect();
    let groups = groups.iter().map(|it| String::from_utf8_lossy(it).into_owned());
    Ok(groups.collect::<Vec<_>>().join("-"))
}

fn hash_of(code: &str) -> String {
    Secret::shown(&plain(code)).hash()
}

/// Normalizes an entered code: removes spaces and hyphens, converts to lower case.
fn plain(code: &str) -> String {
    let kept = code.chars().filter(|it| !it.is_whitespace() && *it != '-');
    kept.map(|it| it.to_ascii_lowercase()).collect()
}

/// Pending enrolments, at most one per user, with their times by the steady clock. In
/// memory only.
#[derive(Debug, Default)]
pub(crate) struct Enrolments(Mutex<HashMap<String, (TotpSecret, u64)>>);

impl Enrolments {
    /// Starts an enrolment, which replaces an earlier one of the user.
    pub(crate) fn begin(&self, user: &str, secret: TotpSecret, now: Now) {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|_, (_, since)| now.steady_seconds < *since + ENROLMENT_SECONDS_MAX);
        begun.insert(user.to_owned(), (secret, now.steady_seconds));
    }

    /// Returns the secret of the user's pending enrolment.
    pub(crate) fn begun(&self, user: &str, now: Now) -> Option<TotpSecret> {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (secret, since) = begun.get(user)?;
        (now.steady_seconds < since + ENROLMENT_SECONDS_MAX).then(|| secret.clone())
    }

    pub(crate) fn end(&self, user: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secret of RFC 6238, appendix B, in base64.
    const SECRET: &str = "\"MTIzNDU2Nzg5MDEyMzQ1Njc4OTA\"";

    fn at(steady_seconds: u64) -> Now {
        Now { steady_seconds, unix_seconds: 0 }
    }

    fn secret() -> TotpSecret {
        serde_json::from_str(SECRET).expect("it is one")
    }

    fn enrolled() -> (SecondFactor, Vec<String>) {
        let confirmed = SecondFactor::confirm(secret(), "081804", 1_111_111_109);
        confirmed.expect("it is whole").expect("it is its code")
    }

    #[test]
    fn a_code_counts_once_also_the_one_of_the_enrolment_and_none_before_it() {
        let wrong = SecondFactor::confirm(secret(), "081805", 1_111_111_109);
        assert_eq!(wrong.expect("it is whole"), None);
        let (mut factor, _) = enrolled();
        let mut take = |code, now| factor.take(code, now).expect("it is whole");
        assert_eq!(take("081804", 1_111_111_109), None);
        assert_eq!(take("050 471", 1_111_111_111), Some(CodeKind::OfAuthenticator));
        assert_eq!(take("050471", 1_111_111_111), None);
        assert_eq!(take("081804", 1_111_111_111), None, "it is older");
        assert_eq!(take("279037", 2_000_000_000), Some(CodeKind::OfAuthenticator));
    }

    #[test]
    fn a_recovery_code_counts_once_and_is_kept_as_a_hash() {
        let (mut factor, codes) = enrolled();
        assert_eq!(codes.len(), RECOVERY_CODES);
        assert!(codes.iter().all(|it| it.len() == 19), "{codes:?}");
        let stored = serde_json::to_string(&factor).expect("it is plain data");
        assert!(codes.iter().all(|it| !stored.contains(it.as_str())), "{stored}");
        let read: SecondFactor = serde_json::from_str(&stored).expect("it is read back");
        assert_eq!(read, factor);
        let capital = codes[3].to_uppercase().replace('-', " ");
        let mut take = |code: &str| factor.take(code, 5).expect("it is whole");
        assert_eq!(take(&capital), Some(CodeKind::Recovery(RECOVERY_CODES - 1)));
        assert_eq!(take(&codes[3]), None);
        assert_eq!(take(&codes[0]), Some(CodeKind::Recovery(RECOVERY_CODES - 2)));
        assert_eq!(take(&"-".repeat(CODE_BYTES_MAX + 1)), None);
        assert_eq!(take(""), None);
        assert_eq!(factor.recovery_codes_left(), RECOVERY_CODES - 2);
    }

    #[test]
    fn an_enrolment_waits_ten_minutes_and_gives_way_to_the_next() {
        let enrolments = Enrolments::default();
        enrolments.begin("ann", secret(), at(100));
        assert_eq!(enrolments.begun("ann", at(699)), Some(secret()));
        assert_eq!(enrolments.begun("ann", at(700)), None);
        assert_eq!(enrolments.begun("bob", at(100)), None);
        let next = TotpSecret::make().expect("random");
        enrolments.begin("ann", next.clone(), at(101));
        assert_eq!(enrolments.begun("ann", at(101)), Some(next));
        enrolments.end("ann");
        assert_eq!(enrolments.begun("ann", at(101)), None);
    }
}
