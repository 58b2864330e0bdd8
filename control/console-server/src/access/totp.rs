//! Time-based one-time passwords (TOTP, RFC 6238): SHA-1, six digits, steps of 30 s, the defaults
//! of authenticator apps.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

const STEP_SECONDS: u64 = 30;
const DIGITS: u32 = 6;

/// Tolerated clock skew, in steps.
const SKEW_STEPS: u64 = 1;

/// Length of a SHA-1 digest, as RFC 4226, section 4, recommends.
const SECRET_BYTES: usize = 20;

/// Base32 alphabet (RFC 4648, section 6).
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const LETTER_BITS: usize = 5;

/// Secret shared with an authenticator app, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotpSecret(String);

impl TotpSecret {
    /// Generates a secret.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).context("cannot get random bytes")?;
        Ok(Self(STANDARD_NO_PAD.encode(bytes)))
    }

    /// Returns the secret in base32, for manual entry into an app.
    ///
    /// # Errors
    /// The secret is corrupt.
    pub(crate) fn reveal(&self) -> anyhow::Result<String> {
        Ok(base32(&self.bytes()?))
    }

    /// Returns the `otpauth` URI for a QR code, for a user of the console at `host`.
    ///
    /// # Errors
    /// The secret is corrupt.
    pub(crate) fn uri(&self, user: &str, host: &str) -> anyhow::Result<String> {
        let (issuer, user) = (escaped(&format!("Memlane {host}")), escaped(user));
        let secret = self.reveal()?;
        Ok(format!("otpauth://totp/{issuer}:{user}?secret={secret}&issuer={issuer}"))
    }

    /// Returns the time step whose code this is, if it is valid and later than `used`.
    ///
    /// # Errors
    /// The secret is corrupt.
    pub(crate) fn step_of(
        &self,
        code: &str,
        now: u64,
        used: Option<u64>,
    ) -> anyhow::Result<Option<u64>> {
        let bytes = self.bytes()?;
        let step = now / STEP_SECONDS;
        let mut near = step.saturating_sub(SKEW_STEPS)..=step + SKEW_STEPS;
        Ok(near.find(|it| {
            let is_it: bool = code_at(&bytes, *it).as_bytes().ct_eq(code.as_bytes()).into();
            is_it && used.is_none_or(|used| *it > used)
        }))
    }

    /// # Errors
    /// The secret is corrupt, for example empty, which would make every code predictable.
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let bytes = STANDARD_NO_PAD.decode(&self.0).context("a second factor is corrupt")?;
        anyhow::ensure!(bytes.len() == SECRET_BYTES, "a second factor is corrupt");
        Ok(bytes)
    }
}

impl std::fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TotpSecret(…)")
    }
}

fn code_at(secret: &[u8], step: u64) -> String {
    let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag[tag.len() - 1] & 0xf);
    let number = u32::from_be_bytes([tag[at] & 0x7f, tag[at + 1], tag[at + 2], tag[at + 3]]);
    format!("{:06}", number % 10_u32.pow(DIGITS))
}

/// Encodes base32 without padding. The number of bits must be a multiple of 5.
pub(super) fn base32(bytes: &[u8]) -> String {
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let letter = |first: usize| {
        let index = (first..first + LETTER_BITS).fold(0, |sum, at| sum << 1 | bit(at));
        char::from(LETTERS[usize::from(index)])
    };
    (0..bytes.len() * 8 / LETTER_BITS).map(|it| letter(it * LETTER_BITS)).collect()
}

fn escaped(text: &str) -> String {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~".contains(&it);
    let escape = |it: u8| match is_plain(it) {
        true => char::from(it).to_string(),
        false => format!("%{it:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_THE_RFC: &[u8; SECRET_BYTES] = b"12345678901234567890";

    /// Test vectors of RFC 6238, appendix B: the last six of eight digits.
    #[test]
    fn codes_are_those_of_the_rfc_and_count_for_a_step_before_and_after_and_once() {
        let secret = TotpSecret(STANDARD_NO_PAD.encode(OF_THE_RFC));
        for (time, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = time / STEP_SECONDS;
            let step_of =
                |clock, used| secret.step_of(code, clock, used).expect("the secret is whole");
            assert_eq!(code_at(OF_THE_RFC, step), code);
            for clock in [time - STEP_SECONDS, time, time + STEP_SECONDS] {
                assert_eq!(step_of(clock, None), Some(step));
                assert_eq!(step_of(clock, Some(step - 1)), Some(step));
                assert_eq!(step_of(clock, Some(step)), None, "it was used");
                assert_eq!(step_of(clock, Some(step + 1)), None, "a later one was used");
            }
            assert_eq!(step_of(time + 2 * STEP_SECONDS, None), None);
            if let Some(early) = time.checked_sub(2 * STEP_SECONDS) {
                assert_eq!(step_of(early, None), None);
            }
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        let secret = TotpSecret(STANDARD_NO_PAD.encode(OF_THE_RFC));
        for wrong in ["", "28708", "2870822", "94287082", "287083", "２８７０８２"] {
            assert_eq!(secret.step_of(wrong, 59, None).expect("whole"), None, "{wrong}");
        }
    }

    #[test]
    fn a_damaged_secret_takes_no_code() {
        for damaged in ["", "AAAA", "not base64!"] {
            let secret = TotpSecret(damaged.to_owned());
            secret.step_of("287082", 59, None).expect_err("it is damaged");
        }
    }

    #[test]
    fn secrets_are_told_as_authenticators_read_them_and_never_in_logs() {
        let secret = TotpSecret(STANDARD_NO_PAD.encode(OF_THE_RFC));
        let base32 = secret.reveal().expect("it is whole");
        assert_eq!(base32, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        let uri = secret.uri("ann@example", "host.example:8443").expect("it is whole");
        let expected = "otpauth://totp/Memlane%20host.example%3A8443:ann%40example\
                        ?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
                        &issuer=Memlane%20host.example%3A8443";
        assert_eq!(uri, expected);
        assert_eq!(format!("{secret:?}"), "TotpSecret(…)");
        let (one, other) = (TotpSecret::make().expect("random"), TotpSecret::make());
        assert_ne!(one, other.expect("random"));
    }
}
