//! API tokens of a console.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hyper::header::HeaderValue;

/// Limit on the length of a token, far more than one has.
const TOKEN_BYTES_MAX: usize = 1024;

/// Permission bits of other users.
const FOR_OTHERS: u32 = 0o007;

/// A token of a console. It is visible only in the `Authorization` header.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Reads the first line of the file, which other users must not be able to access.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file. It does not quote the file's contents.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        let refuse =
            |why: &str| Err(format!("cannot use the token file {}: {why}", path.display()));
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => return refuse(&error.to_string()),
        };
        // Check the opened file, because the path may refer to another file later.
        let mode = match file.metadata() {
            Ok(status) if status.is_dir() => return refuse("it is a directory"),
            Ok(status) => status.permissions().mode(),
            Err(error) => return refuse(&error.to_string()),
        };
        if mode & FOR_OTHERS != 0 {
            let path = path.display();
            return refuse(&format!(
                "other users can access it (mode {:o}); run chmod 600 {path}, and create a new \
                 token if others may have read this one",
                mode & 0o777
            ));
        }
        let mut text = Vec::new();
        let limit = TOKEN_BYTES_MAX as u64 + 1;
        if let Err(error) = Read::by_ref(&mut file).take(limit).read_to_end(&mut text) {
            return refuse(&error.to_string());
        }
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        match line.len() {
            0 => return refuse("its first line is empty"),
            1..=TOKEN_BYTES_MAX => {}
            _ => return refuse("its first line is too long for a token"),
        }
        if !line.iter().all(u8::is_ascii_graphic) {
            return refuse("its first line has characters that are invalid in a token");
        }
        Ok(Self(hidden(&[b"Bearer ", line].concat()).expect("visible characters are a value")))
    }

    pub(crate) fn authorization(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Returns a header value marked as sensitive, or `None` if the bytes are not valid in a header.
pub(crate) fn hidden(value: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn token(contents: &[u8], mode: u32) -> Result<Token, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, contents).expect("there is room");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        Token::of_file(&path).inspect_err(|why| {
            assert!(why.contains(&path.display().to_string()), "{why}");
        })
    }

    #[test]
    fn the_first_line_is_the_token_and_is_not_shown() {
        let token = token(b"mlt.secret \nnot this\n", 0o640).expect("a token");
        assert_eq!(token.authorization().as_bytes(), b"Bearer mlt.secret");
        assert_eq!(format!("{token:?}"), "Token");
        assert!(!format!("{:?}", token.authorization()).contains("secret"));
    }

    #[test]
    fn a_file_that_is_no_secret_or_holds_no_token_is_refused() {
        for (contents, mode, why) in [
            (&b"secret"[..], 0o644, "chmod 600"),
            (b"secret", 0o602, "mode 602"),
            (b"", 0o600, "empty"),
            (b"\nsecret", 0o600, "empty"),
            ("sécret".as_bytes(), 0o600, "invalid in a token"),
            (b"two words", 0o600, "invalid in a token"),
            (&[b'x'; TOKEN_BYTES_MAX + 1], 0o600, "too long"),
        ] {
            let said = token(contents, mode).expect_err(why);
            assert!(said.contains(why) && !said.contains("secret"), "{said}");
        }
        let said = Token::of_file(Path::new("/nowhere/token")).expect_err("it is not there");
        assert!(said.contains("/nowhere/token"), "{said}");
        assert!(Token::of_file(Path::new("/")).is_err());
    }
}
