//! A TOML file of users or access lists that only its owner may write, and that is replaced
//! atomically.
//!
//! The owner must be this process's user or root. A change is rejected if the file was modified
//! since it was read, so that manual edits are not lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use ring::digest::{SHA256, digest};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use state_file::replace_private_file;

use crate::error::{AccessError, AccessErrorKind};

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Current version of both file formats.
pub(crate) const FORMAT_VERSION: u32 = 1;

#[derive(Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    /// SHA-256 of the contents in effect; `None` if there is no file.
    seen: Option<Vec<u8>>,
}

impl PolicyFile {
    /// Creates a handle of a file that was not read yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    /// Returns the contents, or `None` if there is no file. Does not put them into effect.
    pub(crate) fn read(&self) -> Result<Option<String>, AccessError> {
        // Non-blocking, so that a FIFO in place of the file is rejected below instead of blocking
        // the open.
        let mut options = OpenOptions::new();
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of a few bits");
        let file = match options.read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.failed("read", error))?,
        };
        self.check_owner(&file)?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        if read.map_err(|error| self.failed("read", error))? as u64 > FILE_BYTES_MAX {
            let what = format!("{} is longer than {FILE_BYTES_MAX} bytes", self.path.display());
            return Err(AccessError::new(AccessErrorKind::Contents, what));
        }
        Ok(Some(text))
    }

    /// Parses the contents. An error contains the line number.
    pub(crate) fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, AccessError> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            self.wrong(&format!("line {line}: {}", without_value(error.message())))
        })
    }

    pub(crate) fn wrong(&self, why: &str) -> AccessError {
        let what = format!("cannot use {}: {why}", self.path.display());
        AccessError::new(AccessErrorKind::Contents, what)
    }

    pub(crate) fn check_version(&self, version: u32) -> Result<(), AccessError> {
        if version == FORMAT_VERSION {
            return Ok(());
        }
        Err(self.wrong(&format!(
            "unsupported format version {version}; this program reads version {FORMAT_VERSION}"
        )))
    }

    /// Error for a file that was deleted since it was read.
    pub(crate) fn gone(&self) -> AccessError {
        let what =
            format!("{} was deleted; the contents last read remain in effect", self.path.display());
        AccessError::new(AccessErrorKind::File, what)
    }

    /// Remembers these contents as those in effect.
    pub(crate) fn remember(&mut self, text: Option<&str>) {
        self.seen = text.map(fingerprint);
    }

    pub(crate) fn was_there(&self) -> bool {
        self.seen.is_some()
    }

    /// Atomically replaces the contents in effect.
    pub(crate) fn replace(
        &mut self,
        heading: &str,
        contents: &impl Serialize,
    ) -> Result<(), AccessError> {
        let body = toml::to_string(contents).map_err(|error| self.failed("write", error))?;
        let text = format!("{heading}\n{body}");
        if text.len() as u64 > FILE_BYTES_MAX {
            let what = format!("{} would exceed the maximum file size", self.path.display());
            return Err(AccessError::new(AccessErrorKind::Full, what));
        }
        if self.read()?.as_deref().map(fingerprint) != self.seen {
            let what = format!(
                "{} was edited since it was read; reload it (SIGHUP) and retry",
                self.path.display()
            );
            return Err(AccessError::new(AccessErrorKind::Edited, what));
        }
        replace_private_file(&self.path, text.as_bytes())
            .map_err(|error| self.failed("replace", error))?;
        self.remember(Some(&text));
        Ok(())
    }

    fn check_owner(&self, file: &File) -> Result<(), AccessError> {
        let metadata = file.metadata().map_err(|error| self.failed("read", error))?;
        let path = self.path.display();
        let what = if !metadata.is_file() {
            format!("{path} is not a regular file")
        } else if metadata.mode() & 0o022 != 0 {
            format!("{path} is writable for other users than its owner; run chmod go-w")
        } else if metadata.uid() != 0 && metadata.uid() != geteuid().as_raw() {
            format!(
                "{path} belongs to another user; change its owner to this user or root with \
                     chown"
            )
        } else {
            return Ok(());
        };
        Err(AccessError::new(AccessErrorKind::Permissions, what))
    }

    fn failed(
        &self,
        action: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> AccessError {
        let what = format!("cannot {action} {}", self.path.display());
        AccessError::new(AccessErrorKind::File, what).because(source)
    }
}

fn fingerprint(text: &str) -> Vec<u8> {
    digest(&SHA256, text.as_bytes()).as_ref().to_vec()
}

/// Removes a value quoted in the parser's message, as it may be a secret.
fn without_value(message: &str) -> String {
    let message = message.replace('\n', " ");
    let quoted = message.find("string \"").zip(message.rfind('"'));
    match quoted {
        Some((start, end)) => format!("{}string{}", &message[..start], &message[end + 1..]),
        None => message,
    }
}
