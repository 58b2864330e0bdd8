//! Programs and libraries of this machine as one stream: the contents of all files, each aligned to
//! a block as in file systems. Names and other metadata are not included.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use codec::BLOCK_BYTES;
use twox_hash::XxHash3_64;

const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/lib"];

/// Files whose contents are read in sequence.
pub(crate) struct Programs {
    files: std::vec::IntoIter<(PathBuf, u64)>,
    size_bytes: u64,
    /// The current file with its remaining length, and the remaining padding after it.
    file: Option<(File, u64)>,
    padding_bytes: u64,
}

impl Programs {
    /// Selects about this many bytes of files in the folders of programs and libraries. If there
    /// are more, their names determine the selection, which is reproducible and covers all folders
    /// equally.
    pub(crate) fn find(bytes: u64) -> Result<Self> {
        let mut files = Vec::new();
        for folder in FOLDERS {
            list(Path::new(folder), &mut files)
                .with_context(|| format!("cannot list the files of {folder}"))?;
        }
        ensure!(!files.is_empty(), "there are no files in {}", FOLDERS.join(" and "));
        Ok(Self::of(chosen(files, bytes)))
    }

    fn of(files: Vec<(PathBuf, u64)>) -> Self {
        let size_bytes = files.iter().map(|(_, size)| in_blocks(*size)).sum();
        Self { files: files.into_iter(), size_bytes, file: None, padding_bytes: 0 }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_file(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some((file, left_bytes)) = &mut self.file else { return Ok(0) };
        let room = into.len().min(usize::try_from(*left_bytes).unwrap_or(usize::MAX));
        let count = file.read(&mut into[..room])?;
        if count == 0 && *left_bytes > 0 {
            // The file was truncated meanwhile. Zeros replace the missing bytes, so that sizes stay
            // correct.
            self.padding_bytes += *left_bytes;
            *left_bytes = 0;
        }
        *left_bytes -= count as u64;
        if *left_bytes == 0 {
            self.file = None;
        }
        Ok(count)
    }
}

impl Read for Programs {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.read_file(into)?;
            if count > 0 {
                return Ok(count);
            }
            if self.padding_bytes > 0 {
                let padding = usize::try_from(self.padding_bytes).unwrap_or(usize::MAX);
                let count = into.len().min(padding);
                into[..count].fill(0);
                self.padding_bytes -= count as u64;
                return Ok(count);
            }
            let Some((path, size)) = self.files.next() else { return Ok(0) };
            self.file = Some((File::open(path)?, size));
            self.padding_bytes = in_blocks(size) - size;
        }
    }
}

/// Lists nonempty regular files, sorted by name.
fn list(folder: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            let size = entry.metadata()?.len();
            if size > 0 && File::open(entry.path()).is_ok() {
                files.push((entry.path(), size));
            }
        }
    }
    Ok(())
}

/// Selects the files whose names have the lowest hashes until there are enough bytes, in their
/// original order.
fn chosen(files: Vec<(PathBuf, u64)>, bytes: u64) -> Vec<(PathBuf, u64)> {
    let hash = |path: &Path| XxHash3_64::oneshot(path.as_os_str().as_encoded_bytes());
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|&index| hash(&files[index].0));
    let mut is_chosen = vec![false; files.len()];
    let mut sum_bytes = 0;
    for index in order {
        let size = in_blocks(files[index].1);
        if sum_bytes + size <= bytes {
            sum_bytes += size;
            is_chosen[index] = true;
        }
    }
    files
        .into_iter()
        .zip(is_chosen)
        .filter_map(|(file, is_chosen)| is_chosen.then_some(file))
        .collect()
}

fn in_blocks(size: u64) -> u64 {
    size.next_multiple_of(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(contents: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        for (name, bytes) in contents {
            fs::write(folder.path().join(name), bytes).expect("it can be written");
        }
        folder
    }

    fn files_of(folder: &tempfile::TempDir) -> Vec<(PathBuf, u64)> {
        let mut files = Vec::new();
        list(folder.path(), &mut files).expect("it can be listed");
        files
    }

    #[test]
    fn each_file_begins_with_a_block() {
        let folder = folder(&[("b", &[2; 5000]), ("a", &[1; 10]), ("empty", &[])]);
        let mut programs = Programs::of(files_of(&folder));
        assert_eq!(programs.size_bytes(), 3 * 4096);
        let mut bytes = Vec::new();
        programs.read_to_end(&mut bytes).expect("it can be read");
        assert_eq!(bytes.len(), 3 * 4096);
        assert_eq!((bytes[0], bytes[10], bytes[4096], bytes[4096 + 5000]), (1, 0, 2, 0));
    }

    #[test]
    fn a_file_that_became_shorter_is_filled_up() {
        let folder = folder(&[("a", &[1; 10])]);
        let mut programs = Programs::of(vec![(folder.path().join("a"), 5000)]);
        let mut bytes = Vec::new();
        programs.read_to_end(&mut bytes).expect("it can be read");
        assert_eq!((bytes.len(), bytes[9], bytes[10]), (2 * 4096, 1, 0));
    }

    #[test]
    fn no_more_is_chosen_than_asked_for_and_the_same_each_time() {
        let contents: Vec<(String, Vec<u8>)> =
            (0..40).map(|number| (format!("f{number}"), vec![1; 4000])).collect();
        let contents: Vec<(&str, &[u8])> =
            contents.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
        let folder = folder(&contents);
        let some = chosen(files_of(&folder), 10 * 4096);
        assert_eq!(some.len(), 10);
        assert_eq!(some, chosen(files_of(&folder), 10 * 4096));
        assert!(some.is_sorted());
    }
}
