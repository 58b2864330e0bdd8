//! Validation of names and secrets, and SCRAM's escaping of names.

use crate::error::{SaslError, SaslErrorKind};

/// Maximum length of a user name.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a secret.
pub const SECRET_BYTES_MAX: usize = 1024;

/// Validates a user name: 1 to [`NAME_BYTES_MAX`] printable ASCII characters.
pub fn check_name(name: &str) -> Result<(), SaslError> {
    check("the user's name", name, NAME_BYTES_MAX)
}

/// Validates a secret: 1 to [`SECRET_BYTES_MAX`] printable ASCII characters.
pub fn check_secret(secret: &str) -> Result<(), SaslError> {
    check("the secret", secret, SECRET_BYTES_MAX)
}

fn check(what: &str, text: &str, bytes_max: usize) -> Result<(), SaslError> {
    let refused = |why: String| Err(SaslError::new(SaslErrorKind::Text, why));
    if text.is_empty() {
        return refused(format!("{what} is empty"));
    }
    if text.len() > bytes_max {
        return refused(format!("{what} is longer than {bytes_max} bytes"));
    }
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return refused(format!(
            "{what} has characters other than printable ASCII, which clients encode differently"
        ));
    }
    Ok(())
}

/// Escapes a name for SCRAM's messages (saslname): `,` and `=` are replaced.
pub(crate) fn escape(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// Unescapes a saslname. A `=` that begins no escape sequence is an error.
pub(crate) fn unescape(escaped: &str) -> Result<String, SaslError> {
    let wrong = |what: &str| Err(SaslError::malformed(what));
    let mut parts = escaped.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(rest) = part.strip_prefix("2C") {
            name.push(',');
            name.push_str(rest);
        } else if let Some(rest) = part.strip_prefix("3D") {
            name.push('=');
            name.push_str(rest);
        } else {
            return wrong("invalid escape in the name of the SCRAM message; use =2C or =3D");
        }
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return wrong("a name in the SCRAM message is empty, too long or has a NUL");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_from_its_escaped_form() {
        for name in ["alice", "a=b,c", "=", ",", "=2C", "==3D,,"] {
            let escaped = escape(name);
            assert!(!escaped.contains(','), "{escaped}");
            assert_eq!(unescape(&escaped).expect(name), name);
        }
    }

    #[test]
    fn escapes_other_than_the_two_are_refused() {
        for escaped in ["a=", "a=b", "=2c", "=3d", "=3", "", "a\0b", &"a".repeat(256)] {
            let error = unescape(escaped).expect_err(escaped);
            assert_eq!(error.kind, SaslErrorKind::Malformed, "{escaped}");
        }
    }

    #[test]
    fn what_saslprep_would_change_or_forbid_is_refused() {
        for name in ["", "a\u{7f}", "a\nb", "\u{aa}", "\u{fb03}", "a\u{ad}b", &"a".repeat(256)] {
            assert_eq!(check_name(name).expect_err(name).kind, SaslErrorKind::Text);
        }
        check_name("CN=a b, O=c~").expect("it is printable");
        check_secret(&"s".repeat(1025)).expect_err("it is too long");
    }
}
