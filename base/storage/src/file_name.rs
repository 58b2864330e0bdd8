//! Valid file names.

use crate::error::{StorageAction, StorageError, StorageErrorKind};

const NAME_BYTES_MAX: usize = 200;

/// Returns whether `name` is a valid name of a file or folder. Other names could refer outside of
/// the folder, or be confused with unfinished files.
pub(crate) fn is_valid(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && !name.contains(['/', '\0'])
}

pub(crate) fn check(name: &str, action: StorageAction) -> Result<(), StorageError> {
    if is_valid(name) {
        return Ok(());
    }
    let kind = StorageErrorKind::Invalid(
        "invalid file name; use 1 to 200 bytes without a slash, not starting with a dot",
    );
    Err(StorageError::new(kind, action, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        assert!(is_valid("journal-00000001"));
        for name in ["", ".", "..", ".new-x", "a/b", "a\0b", &"x".repeat(201)] {
            assert!(!is_valid(name), "{name:?}");
        }
    }
}
