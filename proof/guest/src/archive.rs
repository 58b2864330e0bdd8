//! The initial RAM file system of the kernel: a cpio archive in the format "newc".
//!
//! Not compressed, because decompression is slower than copying on the emulated processor.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive under construction. Parent folders are added automatically.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds an executable file. The first file of a name stays.
    pub(crate) fn add_file(&mut self, path: &str, bytes: &[u8]) {
        self.add(path, PROGRAM, bytes);
    }

    /// Adds a symbolic link.
    pub(crate) fn add_link(&mut self, path: &str, target: &str) {
        self.add(path, LINK, target.as_bytes());
    }

    pub(crate) fn add_folder(&mut self, path: &str) {
        self.add(path, FOLDER, &[]);
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.names.contains(path.trim_matches('/'))
    }

    /// Returns the whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        let name = path.trim_matches('/');
        if name.is_empty() || !self.names.insert(name.to_owned()) {
            return;
        }
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.add_folder(folder);
        }
        self.append(name, mode, bytes);
    }

    fn append(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("no file of a guest has 4 GiB");
        let name_length = u32::try_from(name.len() + 1).expect("names are short");
        let inode = u32::try_from(self.names.len()).expect("a guest has few files");
        let fields = [inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0]
            .map(|it| format!("{it:08X}"));
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.concat().bytes());
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names in an archive, in order.
    fn names(mut archive: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        while !archive.is_empty() {
            let field = |index: usize| {
                let text = std::str::from_utf8(&archive[6 + index * 8..14 + index * 8]);
                usize::from_str_radix(text.expect("it is text"), 16).expect("it is a number")
            };
            let (length, name_length) = (field(6), field(11));
            let name = &archive[110..110 + name_length - 1];
            names.push(String::from_utf8_lossy(name).into_owned());
            let end = (110 + name_length).next_multiple_of(4) + length.next_multiple_of(4);
            archive = &archive[end..];
        }
        names
    }

    #[test]
    fn folders_come_before_what_they_hold_and_once() {
        let mut archive = Archive::default();
        archive.add_file("/a/b/c", b"12345");
        archive.add_link("/a/b/d", "c");
        archive.add_file("/a/b/c", b"again");
        assert_eq!(names(&archive.finish()), ["a", "a/b", "a/b/c", "a/b/d", "TRAILER!!!"]);
    }
}
