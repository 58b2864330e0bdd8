//! Credentials of an object store, from a file readable only by its owner.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object_store::aws::AmazonS3Builder;
use rustix::process::geteuid;

/// Maximum size of the file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Permission bits that are rejected: write access of the group, and any access of others. (systemd
/// lets a service's user read a credential through its group.)
const FORBIDDEN_MODE: u32 = 0o027;

/// Contents of a credentials file.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    key_id: String,
    secret: String,
    token: Option<String>,
}

impl Credentials {
    /// Reads lines such as `AWS_ACCESS_KEY_ID=…`. Rejects a file that other users can read or
    /// change.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if ![0, geteuid().as_raw()].contains(&metadata.uid()) {
            return Err("its owner is neither root nor this user; run chown".into());
        }
        let mode = metadata.mode() & 0o777;
        if mode & FORBIDDEN_MODE != 0 {
            return Err(
                format!("other users have access to it (mode {mode:o}); run chmod 600").into()
            );
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Self::parse(&text)?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The line itself is not included, because it may contain a secret.
            let unknown = || format!("line {number} is neither a known key nor a comment");
            let (key, value) = line.split_once('=').ok_or_else(unknown)?;
            match key.trim_end() {
                "AWS_ACCESS_KEY_ID" => found.key_id = value.trim().to_owned(),
                "AWS_SECRET_ACCESS_KEY" => found.secret = value.trim().to_owned(),
                "AWS_SESSION_TOKEN" => found.token = Some(value.trim().to_owned()),
                _ => return Err(unknown()),
            }
        }
        if found.key_id.is_empty() || found.secret.is_empty() {
            return Err("AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is missing".to_owned());
        }
        Ok(found)
    }

    pub(crate) fn give_to(self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let builder = builder.with_access_key_id(self.key_id).with_secret_access_key(self.secret);
        match self.token {
            Some(token) => builder.with_token(token),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "# of the bucket\nAWS_ACCESS_KEY_ID=me\n\nAWS_SECRET_ACCESS_KEY = s=e\n";

    #[test]
    fn keys_are_read_line_by_line() {
        let found = Credentials::parse(TEXT).expect("they are complete");
        assert_eq!((&*found.key_id, &*found.secret, found.token), ("me", "s=e", None));
    }

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let error = Credentials::parse(text).err().expect("it is refused");
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
    }

    #[test]
    fn what_is_missing_or_unknown_is_named_and_no_secret_is_told() {
        check_refused("AWS_ACCESS_KEY_ID=me", "AWS_SECRET_ACCESS_KEY is missing");
        check_refused("AWS_ACCESS_KEY_ID=me\nsecret", "line 2");
        check_refused("KEY=secret", "line 1");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("memlane-keys-{}", std::process::id()));
        fs::write(&path, TEXT).expect("there is space");
        let read = |mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            Credentials::read(&path).map(|_| ()).map_err(|error| error.to_string())
        };
        let results = [0o600, 0o400, 0o440, 0o644, 0o660].map(read);
        fs::remove_file(&path).expect("it is there");
        assert!(results[..3].iter().all(Result::is_ok), "{results:?}");
        let told = |result: &Result<(), String>| matches!(result, Err(it) if it.contains("chmod"));
        assert!(results[3..].iter().all(told), "{results:?}");
    }
}
