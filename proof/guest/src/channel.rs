//! Host's end of the connection to a guest's agent: one socket, many processes.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use system::Interruption;

use crate::frame::{Frame, FrameKind};

/// Maximum number of bytes of unread output of one process. Output beyond it is lost, and reads
/// report that.
const WAITING_BYTES_MAX: usize = 64 << 20;

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Event of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Output(Vec<u8>),
    Complaint(Vec<u8>),
    /// Exit code, or the negative number of the signal that ended the process.
    Ended(i32),
}

/// Receiver of the events of one process.
struct Listener {
    events: Sender<Event>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Events of one process, in order. The sequence ends early when the guest does.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) receiver: Receiver<Event>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Events {
    /// Must be called with every received event.
    pub(crate) fn taken(&self, event: &Event) {
        if let Event::Output(bytes) | Event::Complaint(bytes) = event {
            // Relaxed: the count carries no data.
            self.waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct State {
    is_ready: bool,
    is_gone: bool,
    next_id: u32,
    listeners: HashMap<u32, Listener>,
}

/// Connection to one guest.
pub(crate) struct Channel {
    socket: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Channel {
    /// Reads from `socket` until its other end is closed.
    pub(crate) fn open(socket: UnixStream) -> Result<Arc<Self>> {
        let reader = BufReader::new(socket.try_clone().context("cannot share a guest's socket")?);
        let channel = Arc::new(Self {
            socket: Mutex::new(socket),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let listening = Arc::clone(&channel);
        thread::Builder::new()
            .name("guest-channel".to_owned())
            .spawn(move || listening.listen(reader))
            .context("cannot start a thread for a guest")?;
        Ok(channel)
    }

    /// Waits until the agent is ready. Returns whether it is before `deadline`.
    pub(crate) fn wait_until_ready(&self, deadline: Instant) -> Result<bool> {
        let mut state = self.state();
        while !state.is_ready {
            ensure!(!state.is_gone, "the guest ended before it was ready");
            ensure!(!Interruption::is_asked_for(), "interrupted while a guest starts");
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(true)
    }

    /// Starts a program in the guest. Returns its number and its events.
    pub(crate) fn run(&self, words: &[&str]) -> Result<(u32, Events)> {
        ensure!(!words.iter().any(|word| word.contains('\0')), "a word with a zero: {words:?}");
        let (events, receiver) = mpsc::channel();
        let waiting_bytes = Arc::default();
        let id = {
            let mut state = self.state();
            ensure!(!state.is_gone, "the guest is gone");
            state.next_id += 1;
            let id = state.next_id;
            let listener = Listener { events, waiting_bytes: Arc::clone(&waiting_bytes) };
            state.listeners.insert(id, listener);
            id
        };
        let line: String = words.iter().flat_map(|word| [word, "\0"]).collect();
        self.send(FrameKind::Run, id, line.as_bytes())?;
        Ok((id, Events { receiver, waiting_bytes }))
    }

    pub(crate) fn send(&self, kind: FrameKind, id: u32, bytes: &[u8]) -> Result<()> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        Frame::new(kind, id, bytes).write(&mut *socket).context("the guest takes nothing more")
    }

    /// Ends the reception of this process's events.
    pub(crate) fn forget(&self, id: u32) {
        self.state().listeners.remove(&id);
    }

    /// Closes the connection. The agent then turns its machine off.
    pub(crate) fn close(&self) {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be closed already.
        let _ = socket.flush();
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }

    fn listen(&self, mut reader: BufReader<UnixStream>) {
        // A powered-off machine may end in the middle of a frame, so an error is an end too.
        while let Ok(Some(frame)) = Frame::read(&mut reader) {
            if let Err(error) = self.take(frame) {
                eprintln!("the guest's agent: {error:#}");
                break;
            }
        }
        let mut state = self.state();
        state.is_gone = true;
        state.listeners.clear();
        self.changed.notify_all();
    }

    fn take(&self, frame: Frame) -> Result<()> {
        let mut state = self.state();
        let event = match frame.kind {
            FrameKind::Ready => {
                state.is_ready = true;
                self.changed.notify_all();
                return Ok(());
            }
            FrameKind::Output => Event::Output(frame.bytes),
            FrameKind::Complaint => Event::Complaint(frame.bytes),
            FrameKind::Ended => {
                let code = frame.bytes.as_slice().try_into().context("an exit code is short")?;
                Event::Ended(i32::from_le_bytes(code))
            }
            kind => bail!("it sent a frame of kind {kind:?}"),
        };
        let Some(listener) = state.listeners.get(&frame.id) else { return Ok(()) };
        let length = match &event {
            Event::Output(bytes) | Event::Complaint(bytes) => bytes.len(),
            Event::Ended(_) => 0,
        };
        // Relaxed: the count carries no data.
        let waiting = listener.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        let is_last = matches!(event, Event::Ended(_));
        let is_lost = waiting > WAITING_BYTES_MAX || listener.events.send(event).is_err();
        if is_last || is_lost {
            state.listeners.remove(&frame.id);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_line_and_hear_only_of_themselves() {
        let (socket, mut agent) = UnixStream::pair().expect("sockets come in pairs");
        let channel = Channel::open(socket).expect("a thread can be started");
        Frame::new(FrameKind::Ready, 0, []).write(&mut agent).expect("the host listens");
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(channel.wait_until_ready(deadline).expect("the agent is there"));
        let started = ["a", "b"].map(|word| channel.run(&[word]).expect("the agent is there"));
        for (id, _) in &started {
            let frame = Frame::read(&mut agent).expect("it is a frame").expect("one was sent");
            assert_eq!((frame.kind, frame.id), (FrameKind::Run, *id));
            Frame::new(FrameKind::Output, *id, frame.bytes).write(&mut agent).expect("it listens");
        }
        for ((_, events), expected) in started.iter().zip([b"a\0", b"b\0"]) {
            let event = events.receiver.recv().expect("output was sent");
            assert_eq!(event, Event::Output(expected.to_vec()));
        }
    }

    #[test]
    fn a_guest_that_goes_takes_its_processes_along() {
        let (socket, agent) = UnixStream::pair().expect("sockets come in pairs");
        let channel = Channel::open(socket).expect("a thread can be started");
        let (_, events) = channel.run(&["a"]).expect("the agent is there");
        drop(agent);
        events.receiver.recv().expect_err("nobody is left to tell anything");
        channel.run(&["b"]).expect_err("nobody is left to run it");
    }
}
