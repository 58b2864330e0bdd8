//! libnbd as a client of a device: a Python program with its module, controlled through a pipe.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use block_device::{ByteRange, Zeroes};
use conformance::{Abilities, Refusal, Subject};

/// Program that receives requests of 17 bytes (operation, offset, length), followed by the bytes to
/// write. It answers with a byte for success and the bytes read, or with the length of a message
/// and the message.
const SERVANT: &str = r#"
import nbd, struct, sys
h = nbd.NBD()
h.set_strict_mode(0)
h.connect_uri(sys.argv[1])
take, give = sys.stdin.buffer, sys.stdout.buffer
def answer(what, offset, count):
    if what == b"r": return h.pread(count, offset)
    elif what == b"w": h.pwrite(take.read(count), offset)
    elif what == b"d": h.pwrite(take.read(count), offset, nbd.CMD_FLAG_FUA)
    elif what == b"z": h.zero(count, offset)
    elif what == b"k": h.zero(count, offset, nbd.CMD_FLAG_NO_HOLE)
    elif what == b"t": h.trim(count, offset)
    elif what == b"f": h.flush()
    elif what == b"s": return struct.pack("<Q", h.get_size())
    return b""
while True:
    request = take.read(17)
    if len(request) < 17: break
    try:
        reply = b"\0" + answer(*struct.unpack("<cQQ", request))
    except nbd.Error as error:
        text = str(error).encode()[:255]
        reply = bytes([len(text)]) + text
    give.write(reply)
    give.flush()
"#;

/// Maximum number of connections, one for each concurrent thread.
const CONNECTIONS: usize = 4;

/// An export of an NBD server, accessed through libnbd.
pub struct NbdShell {
    connections: Vec<Mutex<Servant>>,
    size_bytes: u64,
}

/// A Python process with one connection. It ends when its input is closed.
struct Servant {
    process: Child,
    requests: Option<ChildStdin>,
    answers: ChildStdout,
}

impl NbdShell {
    pub fn connect(uri: &str) -> Result<Self> {
        let connections: Result<Vec<_>> =
            (0..CONNECTIONS).map(|_| Ok(Mutex::new(Servant::start(uri)?))).collect();
        let mut shell = Self { connections: connections?, size_bytes: 0 };
        let mut size = [0; 8];
        let answer = shell.ask(b's', ByteRange::new(0, 0), &[], &mut size);
        answer.ok().with_context(|| format!("libnbd does not see {uri}"))?;
        shell.size_bytes = u64::from_le_bytes(size);
        Ok(shell)
    }

    /// Returns whether this host has Python with libnbd's module.
    pub fn is_here() -> bool {
        Path::new("/usr/bin/python3").exists()
            && Command::new("/usr/bin/python3")
                .args(["-c", "import nbd"])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
    }

    /// Returns an unused connection, or the first.
    fn connection(&self) -> MutexGuard<'_, Servant> {
        let free = self.connections.iter().find_map(|connection| connection.try_lock().ok());
        free.unwrap_or_else(|| self.connections[0].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ask(&self, what: u8, range: ByteRange, from: &[u8], into: &mut [u8]) -> Result<(), Refusal> {
        self.connection().ask(what, range, from, into).map_err(Refusal::of)?
    }
}

impl Servant {
    fn start(uri: &str) -> Result<Self> {
        let mut process = Command::new("/usr/bin/python3")
            .args(["-c", SERVANT, uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run Python")?;
        let requests = process.stdin.take();
        let answers = process.stdout.take().context("it was asked for")?;
        Ok(Self { process, requests, answers })
    }

    fn ask(
        &mut self,
        what: u8,
        range: ByteRange,
        from: &[u8],
        into: &mut [u8],
    ) -> Result<Result<(), Refusal>> {
        let requests = self.requests.as_mut().context("the connection is open")?;
        let mut request = vec![what];
        request.extend(range.start.to_le_bytes());
        request.extend(range.length.to_le_bytes());
        request.extend(from);
        requests.write_all(&request).context("Python takes no request")?;
        let mut length = [0];
        self.answers.read_exact(&mut length).context("Python does not answer")?;
        if length[0] == 0 {
            self.answers.read_exact(into).context("Python does not answer")?;
            return Ok(Ok(()));
        }
        let mut text = vec![0; length[0].into()];
        self.answers.read_exact(&mut text).context("Python does not answer")?;
        Ok(Err(Refusal(String::from_utf8_lossy(&text).into_owned())))
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        drop(self.requests.take());
        // Its input is closed, so it ends. A failure cannot be reported here.
        let _status = self.process.wait();
    }
}

impl Subject for NbdShell {
    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        self.ask(b'r', ByteRange::new(offset_bytes, into.len() as u64), &[], into)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.ask(b'w', ByteRange::new(offset_bytes, from.len() as u64), from, &mut [])
    }

    fn write_durably(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.ask(b'd', ByteRange::new(offset_bytes, from.len() as u64), from, &mut [])
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        let what = match zeroes {
            Zeroes::Unmap => b'z',
            Zeroes::KeepAllocated => b'k',
        };
        self.ask(what, range, &[], &mut [])
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        self.ask(b't', range, &[], &mut [])
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.ask(b'f', ByteRange::new(0, 0), &[], &mut [])
    }
}
