//! Sources of data that are read from beginning to end.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::programs::Programs;
use super::volume::LiveVolume;
use crate::corpus::{Corpus, Kind};

/// Read size.
const PIECE_BYTES: usize = 1 << 20;

/// Prefix of the name of a live volume.
const VOLUME_PREFIX: &str = "volume:";

/// A source of data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// A file or block device.
    Path(PathBuf),
    /// A volume served by a daemon, by name.
    Volume(String),
    /// Files of this machine's programs and libraries, of this total size.
    Programs { bytes: u64 },
    /// Pages generated from a seed, alternating between kinds.
    Pages { bytes: u64 },
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word.strip_prefix(VOLUME_PREFIX) {
            Some(name) => Self::Volume(name.to_owned()),
            None => Self::Path(PathBuf::from(word)),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Volume(name) => write!(f, "{VOLUME_PREFIX}{name}"),
            Self::Programs { .. } => f.write_str("programs and libraries"),
            Self::Pages { .. } => f.write_str("made-up pages"),
        }
    }
}

impl Source {
    /// Describes the layout, if the name does not.
    pub(crate) fn layout(&self) -> &'static str {
        match self {
            Self::Path(_) | Self::Volume(_) => "as it is",
            Self::Programs { .. } => {
                "files of /usr/bin and /usr/lib, one after the other, each from a block's \
                 beginning on"
            }
            Self::Pages { .. } => "pages of databases, text, code and logs in turn",
        }
    }
}

/// Environment for opening a source.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings<'run> {
    /// Directory of a daemon's sockets.
    pub(crate) run_dir: &'run Path,
    pub(crate) seed: u64,
}

/// An open source.
pub(crate) struct Opened {
    reader: Box<dyn Read>,
    size_bytes: u64,
    piece: Vec<u8>,
}

impl Source {
    pub(crate) fn open(&self, context: &Surroundings<'_>) -> Result<Opened> {
        let (reader, size_bytes): (Box<dyn Read>, u64) = match self {
            Self::Path(path) => open_path(path)?,
            Self::Volume(name) => {
                let volume = LiveVolume::connect(context.run_dir, name)?;
                let size_bytes = volume.size_bytes();
                (Box::new(volume), size_bytes)
            }
            Self::Programs { bytes } => {
                let programs = Programs::find(*bytes)?;
                let size_bytes = programs.size_bytes();
                (Box::new(programs), size_bytes)
            }
            Self::Pages { bytes } => (Box::new(Pages::new(context.seed, *bytes)), *bytes),
        };
        Ok(Opened { reader, size_bytes, piece: vec![0; PIECE_BYTES] })
    }
}

fn open_path(path: &Path) -> Result<(Box<dyn Read>, u64)> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot stat {shown}"))?;
    if metadata.is_dir() {
        bail!("{shown} is a directory; use a file, a block device or volume:NAME");
    }
    let mut file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let size = file.seek(SeekFrom::End(0)).and_then(|size| file.rewind().map(|()| size));
    let size_bytes = size.with_context(|| format!("cannot determine the size of {shown}"))?;
    ensure!(size_bytes > 0, "{shown} is empty");
    Ok((Box::new(file), size_bytes))
}

impl Opened {
    /// Returns the number of bytes to be read. A file that grows meanwhile is read no further.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the next piece, in whole blocks except for the last, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut filled = 0;
        while filled < self.piece.len() {
            match self.reader.read(&mut self.piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the data to its end"),
            }
        }
        Ok((filled > 0).then(|| &self.piece[..filled]))
    }
}

/// Pages of all kinds, generated while reading.
struct Pages {
    corpus: Corpus,
    left_bytes: u64,
    next_kind: usize,
    block: Box<[u8; codec::BLOCK_BYTES]>,
    /// Number of bytes read from the current block.
    read_bytes: usize,
}

impl Pages {
    fn new(seed: u64, bytes: u64) -> Self {
        let block = Box::new([0; codec::BLOCK_BYTES]);
        let corpus = Corpus::new(seed);
        Self { corpus, left_bytes: bytes, next_kind: 0, read_bytes: block.len(), block }
    }
}

impl Read for Pages {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.read_bytes == self.block.len() {
            if self.left_bytes == 0 {
                return Ok(0);
            }
            let kind = Kind::ALL[self.next_kind % Kind::ALL.len()];
            self.next_kind += 1;
            self.corpus.fill(kind, &mut self.block);
            self.left_bytes = self.left_bytes.saturating_sub(self.block.len() as u64);
            self.read_bytes = 0;
        }
        let count = into.len().min(self.block.len() - self.read_bytes);
        into[..count].copy_from_slice(&self.block[self.read_bytes..self.read_bytes + count]);
        self.read_bytes += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Surroundings<'static> {
        Surroundings { run_dir: Path::new("/nowhere"), seed: 1 }
    }

    fn refused(word: &str) -> String {
        let source: Source = word.parse().expect("every word is a source");
        format!("{:#}", source.open(&context()).err().expect("it cannot be opened"))
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        assert!(refused("/nowhere/at/all").contains("/nowhere/at/all"));
        assert!(refused("/usr").contains("is a directory"));
        assert!(refused("/dev/null").contains("is empty"));
        assert!(refused("volume:db").contains("/nowhere/nbd.sock"));
    }

    #[test]
    fn made_up_pages_are_as_many_as_asked_for() {
        let mut opened =
            Source::Pages { bytes: 3 << 20 }.open(&context()).expect("it is made here");
        let mut bytes = 0;
        while let Some(piece) = opened.next().expect("it can be read") {
            bytes += piece.len();
        }
        assert_eq!(bytes, 3 << 20);
    }
}
