//! Owners and labels of volumes, stored on disk by volume id, so that they survive renames,
//! restarts and a restore of the pool from an image.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use anyhow::Context;

use crate::label_file::LabelFile;
pub(crate) use crate::label_file::Labelled;

const FILE_NAME: &str = "labels.json";

/// Maximum number of labels of a volume.
const LABELS_MAX: usize = 32;

/// Maximum length of an owner and of a label's key.
const WORD_BYTES_MAX: usize = 63;

/// Maximum length of a label's value.
const TEXT_BYTES_MAX: usize = 255;

/// Owners and labels of volumes; thread-safe. The lock is held during writes to disk, and is the
/// last one taken.
#[derive(Debug)]
pub(crate) struct VolumeLabels(Mutex<LabelFile>);

impl Labelled {
    /// Copy with a new owner, if one is given, and with these labels; an empty label removes one.
    pub(crate) fn changed(&self, owner: Option<&str>, labels: &BTreeMap<String, String>) -> Self {
        let mut changed = self.clone();
        owner.unwrap_or(&self.owner).clone_into(&mut changed.owner);
        changed.labels.extend(labels.clone());
        changed.labels.retain(|_, text| !text.is_empty());
        changed
    }

    /// Returns the invalid field and the reason, if there is one.
    pub(crate) fn refusal(&self) -> Option<(&'static str, String)> {
        if !self.owner.is_empty() && !is_word(&self.owner) {
            return Some(("owner", format!("invalid owner {:?}: {WORD_RULE}", self.owner)));
        }
        let key = self.labels.keys().find(|key| !is_word(key));
        if let Some(key) = key {
            return Some(("labels", format!("invalid label key {key:?}: {WORD_RULE}")));
        }
        let is_text =
            |text: &String| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
        if let Some((key, _)) = self.labels.iter().find(|(_, text)| !is_text(text)) {
            let detail = format!(
                "the value of label {key:?} is longer than {TEXT_BYTES_MAX} bytes or has \
                 control characters"
            );
            return Some(("labels", detail));
        }
        let is_many = self.labels.len() > LABELS_MAX;
        is_many.then(|| ("labels", format!("a volume can have at most {LABELS_MAX} labels")))
    }
}

const WORD_RULE: &str = "use 1 to 63 of a-z A-Z 0-9 . _ / -, starting with a letter or a digit";

fn is_word(word: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    word.len() <= WORD_BYTES_MAX
        && word.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && word.bytes().all(is_known)
}

impl VolumeLabels {
    /// Reads the list in `state_dir`. If there is no file, the list is empty.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join(FILE_NAME);
        let file = LabelFile::read(path.clone()).with_context(|| {
            let path = path.display();
            format!(
                "cannot read {path}; if it is damaged, delete it and set owners and labels again"
            )
        });
        file.map(Mutex::new).map(Self)
    }

    pub(crate) fn of(&self, volume_id: u64) -> Labelled {
        let nothing = Labelled { volume_id, ..Labelled::default() };
        self.lock().get(volume_id).cloned().unwrap_or(nothing)
    }

    /// Replaces owner and labels of a volume in memory and on disk. On an error, neither is
    /// changed.
    pub(crate) fn set(&self, labelled: Labelled) -> io::Result<()> {
        if self.of(labelled.volume_id) == labelled {
            return Ok(());
        }
        self.lock().set(labelled)
    }

    fn lock(&self) -> MutexGuard<'_, LabelFile> {
        self.0.lock().expect("no thread panics with this lock")
    }

    /// Removes owner and labels of a deleted volume. Its id is never reused.
    pub(crate) fn forget(&self, volume_id: u64) -> io::Result<()> {
        self.set(Labelled { volume_id, ..Labelled::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: &str, labels: &[(&str, &str)]) -> Labelled {
        let labels = labels.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        Labelled { volume_id: 7, owner: owner.to_owned(), labels: labels.collect() }
    }

    #[test]
    fn labels_are_kept_on_disk_until_they_are_taken_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = VolumeLabels::read(folder.path()).expect("an empty list");
        let said = of("broker", &[("topic", "orders"), ("team", "shop")]);
        list.set(said.clone()).expect("it is stored");
        let again = VolumeLabels::read(folder.path()).expect("the list");
        assert_eq!(again.of(7), said);
        let less = again.of(7).changed(None, &of("", &[("team", ""), ("site", "b")]).labels);
        assert_eq!(less, of("broker", &[("site", "b"), ("topic", "orders")]));
        again
            .set(less.changed(Some(""), &of("", &[("topic", ""), ("site", "")]).labels))
            .expect("it is stored");
        assert_eq!(VolumeLabels::read(folder.path()).expect("the list").of(7), of("", &[]));
    }

    #[track_caller]
    fn check_refused(labelled: &Labelled, field: &str) {
        assert_eq!(labelled.refusal().expect("refused").0, field, "{labelled:?}");
    }

    #[test]
    fn what_is_no_owner_or_no_label_is_refused() {
        assert_eq!(of("a/b.c-d_9", &[("k", "any words, ünd more")]).refusal(), None);
        for owner in ["-a", "a b", "ä", "a\n", &"x".repeat(64)] {
            check_refused(&of(owner, &[]), "owner");
        }
        for key in ["", ".a", "a b", "a=b"] {
            check_refused(&of("", &[(key, "x")]), "labels");
        }
        check_refused(&of("", &[("a", "\u{1b}[31m")]), "labels");
        check_refused(&of("", &[("a", &"x".repeat(256))]), "labels");
        let many: Vec<String> = (0..33).map(|number| format!("k{number}")).collect();
        let many: Vec<_> = many.iter().map(|key| (key.as_str(), "x")).collect();
        check_refused(&of("", &many), "labels");
    }
}
