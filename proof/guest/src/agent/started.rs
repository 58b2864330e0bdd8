//! One program started for the host: its input, its output and its end.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use guest::{FRAME_BYTES_MAX, Frame, FrameKind};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::sender::{Sender, send};

/// Maximum number of input frames queued for a program. A program that exceeds it is killed,
/// because the others on the line must not wait for it.
const WAITING_FRAMES_MAX: usize = 1024;

/// Time to wait for output after the end, because children of the program may keep it open.
const LAST_OUTPUT_TIME_MAX: Duration = Duration::from_secs(20);

const PATH: &str = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Exit code of a program that cannot be started, as in shells.
const NOT_STARTED: i32 = 127;

/// A started program.
pub(crate) struct Started {
    group: Option<Pid>,
    input: Option<SyncSender<Vec<u8>>>,
    has_ended: Arc<AtomicBool>,
}

/// Starts the program in the frame. A failure is reported to the host.
pub(crate) fn start(frame: &Frame, sender: &Sender) -> Option<Started> {
    let text = String::from_utf8_lossy(&frame.bytes).into_owned();
    let words: Vec<&str> = text.split_terminator('\0').collect();
    let id = frame.id;
    let spawned = Command::new(words.first().copied().unwrap_or_default())
        .args(words.iter().skip(1))
        .env("PATH", PATH)
        .env("HOME", "/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    match spawned {
        Ok(child) => Some(watched(child, id, sender)),
        Err(error) => {
            let complaint = format!("cannot start {}: {error}\n", words.join(" "));
            send(sender, FrameKind::Complaint, id, complaint.as_bytes());
            send(sender, FrameKind::Ended, id, &NOT_STARTED.to_le_bytes());
            None
        }
    }
}

impl Started {
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Passes bytes to the program's input. Empty bytes close it.
    pub(crate) fn feed(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            self.input = None;
        } else if let Some(input) = &self.input
            && input.try_send(bytes).is_err()
        {
            // It reads nothing, or has closed its input.
            self.input = None;
            self.signal(u8::try_from(Signal::KILL.as_raw()).expect("signals are small numbers"));
        }
    }

    /// Sends a signal to the program and its children.
    pub(crate) fn signal(&self, number: u8) {
        if let (Some(group), Some(signal)) = (self.group, Signal::from_named_raw(number.into())) {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, signal);
        }
    }
}

fn watched(mut child: Child, id: u32, sender: &Sender) -> Started {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let has_ended = Arc::new(AtomicBool::new(false));
    let (input, waiting) = mpsc::sync_channel(WAITING_FRAMES_MAX);
    let stdin = child.stdin.take().expect("the input is a pipe");
    thread::spawn(move || feed(stdin, &waiting));
    let stdout = child.stdout.take().expect("the output is a pipe");
    let stderr = child.stderr.take().expect("the output is a pipe");
    let outputs = [
        carry(stdout, FrameKind::Output, id, sender),
        carry(stderr, FrameKind::Complaint, id, sender),
    ];
    let (sender, flag) = (Arc::clone(sender), Arc::clone(&has_ended));
    thread::spawn(move || {
        let status = child.wait();
        for output in outputs {
            // The channel carries nothing: its disconnection is the signal.
            let _ = output.recv_timeout(LAST_OUTPUT_TIME_MAX);
        }
        let code = status.map_or(NOT_STARTED, code_of);
        flag.store(true, Ordering::Release);
        send(&sender, FrameKind::Ended, id, &code.to_le_bytes());
    });
    Started { group, input: Some(input), has_ended }
}

fn feed(mut stdin: ChildStdin, waiting: &Receiver<Vec<u8>>) {
    for bytes in waiting {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Forwards the program's output. The receiver is notified of its end.
fn carry(
    mut from: impl Read + Send + 'static,
    kind: FrameKind,
    id: u32,
    sender: &Sender,
) -> Receiver<()> {
    let (ended, end) = mpsc::sync_channel(0);
    let sender = Arc::clone(sender);
    thread::spawn(move || {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            send(&sender, kind, id, &buffer[..length]);
        }
        drop(ended);
    });
    end
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(NOT_STARTED)
}
