//! One-time code for creating the first administrator.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use crate::access::secret::Secret;

/// File with the setup link until it is used. Only its owner may read it.
const FILE_NAME: &str = "setup-link";

/// Setup code of this start, until it is used.
#[derive(Debug)]
pub(crate) struct Setup {
    path: PathBuf,
    code: Mutex<Option<Secret>>,
}

impl Setup {
    /// Generates a code and writes its link to a file in the state folder.
    pub(crate) fn offer(folder: &Path, origin: &str) -> anyhow::Result<(Self, String)> {
        let (path, code) = (folder.join(FILE_NAME), Secret::make()?);
        let link = format!("{origin}/#/setup/{}", code.reveal());
        state_file::replace_private_file(&path, format!("{link}\n").as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok((Self { path, code: Mutex::new(Some(code)) }, link))
    }

    /// State without a code, for a console that has users.
    pub(crate) fn none(folder: &Path) -> Self {
        let setup = Self { path: folder.join(FILE_NAME), code: Mutex::new(None) };
        setup.remove_file();
        setup
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this is the code and it is unused.
    pub(crate) fn is(&self, shown: &str) -> bool {
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.as_ref().is_some_and(|it| it.is(shown))
    }

    /// Invalidates the code once the first administrator exists.
    pub(crate) fn end(&self) {
        *self.code.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.remove_file();
    }

    fn remove_file(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // The code in it is no longer valid.
                tracing::warn!(path = %self.path.display(), %error, "cannot remove the setup link");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_for_one_use_and_its_file_goes_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (setup, link) = Setup::offer(folder.path(), "https://here").expect("a code");
        let code = link.rsplit('/').next().expect("it ends with the code").to_owned();
        assert_eq!(fs::read_to_string(setup.path()).expect("a file").trim_end(), link);
        assert!(setup.is(&code) && !setup.is("") && !setup.is(&code[1..]));
        setup.end();
        assert!(!setup.is(&code) && !setup.path().exists());
        assert!(!Setup::none(folder.path()).is(""));
    }
}
