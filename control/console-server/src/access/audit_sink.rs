//! Second destination of the audit log: a file or the systemd journal. The console cannot change
//! entries there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// Configured destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditPlace {
    Journal(PathBuf),
    File(PathBuf),
}

impl FromStr for AuditPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "journal" => Ok(Self::Journal(JOURNAL_SOCKET.into())),
            _ if text.starts_with('/') => Ok(Self::File(text.into())),
            _ => match text.strip_prefix("journal:/") {
                Some(path) => Ok(Self::Journal(Path::new("/").join(path))),
                None => Err(format!("{text:?} is neither journal nor the path of a file")),
            },
        }
    }
}

/// An open destination.
#[derive(Debug)]
pub(crate) enum AuditSink {
    Journal(UnixDatagram, PathBuf),
    /// File with one JSON object per line.
    File(Mutex<File>, PathBuf),
}

impl AuditSink {
    pub(crate) fn open(place: &AuditPlace) -> anyhow::Result<Self> {
        match place {
            AuditPlace::Journal(path) => {
                let socket = UnixDatagram::unbound().context("cannot create a socket")?;
                // Non-blocking, because the journal may hang. An entry is then dropped, which is
                // logged.
                socket.set_nonblocking(true).context("cannot create a socket")?;
                Ok(Self::Journal(socket, path.clone()))
            }
            AuditPlace::File(path) => {
                let file = append_to(path);
                let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                Ok(Self::File(Mutex::new(file), path.clone()))
            }
        }
    }

    /// Reopens a rotated file.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Self::File(file, path) = self {
            *file.lock().unwrap_or_else(PoisonError::into_inner) = append_to(path)?;
        }
        Ok(())
    }

    /// Appends an entry, given as JSON without a line end.
    pub(super) fn add(&self, entry: &[u8]) {
        let added = match self {
            Self::Journal(socket, path) => {
                let mut message =
                    b"PRIORITY=5\nSYSLOG_IDENTIFIER=memlane-console\nMESSAGE=".to_vec();
                message.extend_from_slice(entry);
                message.push(b'\n');
                socket.send_to(&message, path).map(drop)
            }
            Self::File(file, _) => {
                let line = [entry, b"\n"].concat();
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
            }
        };
        if let Err(error) = added {
            tracing::error!(%error, "cannot write an entry of the audit log to its second \
                                     destination (--audit-to)");
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_to_a_file_that_may_be_moved_away_and_to_the_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let place: AuditPlace = path.display().to_string().parse().expect("a place");
        let sink = AuditSink::open(&place).expect("it can be written");
        sink.add(b"{\"id\":1}");
        std::fs::rename(&path, &moved).expect("it is there");
        sink.reopen().expect("it can be written");
        sink.add(b"{\"id\":2}");
        let text = |path| std::fs::read_to_string(path).expect("it is there");
        assert_eq!((text(&moved), text(&path)), ("{\"id\":1}\n".into(), "{\"id\":2}\n".into()));
        let socket_path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&socket_path).expect("a socket");
        let place: AuditPlace = format!("journal:{}", socket_path.display()).parse().expect("one");
        AuditSink::open(&place).expect("a socket").add(b"{\"id\":3}");
        let mut buffer = [0; 200];
        let length = journal.recv(&mut buffer).expect("a message");
        assert!(buffer[..length].ends_with(b"\nMESSAGE={\"id\":3}\n"));
        assert!("syslog".parse::<AuditPlace>().is_err());
        assert_eq!("journal".parse(), Ok(AuditPlace::Journal(JOURNAL_SOCKET.into())));
    }
}
