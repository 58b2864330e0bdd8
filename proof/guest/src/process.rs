//! Host's view of a program that runs in a guest.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use system::{Interruption, ToolOutput};

use crate::channel::{Channel, Event, Events};
use crate::frame::{FRAME_BYTES_MAX, FrameKind};

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A program in a guest. Dropping it does not end it; the end of the guest does.
pub struct GuestProcess {
    id: u32,
    name: String,
    channel: Arc<Channel>,
    events: Events,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit_code: Option<i32>,
    /// True if no more events will arrive, and the reason of the end may be unknown.
    is_lost: bool,
}

impl GuestProcess {
    pub(crate) fn start(channel: &Arc<Channel>, words: &[&str]) -> Result<Self> {
        let (id, events) = channel.run(words)?;
        Ok(Self {
            id,
            name: words.join(" "),
            channel: Arc::clone(channel),
            events,
            stdout: Vec::new(),
            stderr: Vec::new(),
            exit_code: None,
            is_lost: false,
        })
    }

    /// Sends bytes to the standard input.
    pub fn feed(&self, bytes: &[u8]) -> Result<()> {
        bytes
            .chunks(FRAME_BYTES_MAX)
            .try_for_each(|part| self.channel.send(FrameKind::Input, self.id, part))
    }

    /// Closes the standard input.
    pub fn end_input(&self) -> Result<()> {
        self.channel.send(FrameKind::Input, self.id, &[])
    }

    /// Sends a signal to the program and its children.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let number = u8::try_from(signal.as_raw())?;
        self.channel.send(FrameKind::Signal, self.id, &[number])
    }

    /// Returns the standard output since the last call. Does not wait.
    pub fn take_output(&mut self) -> Vec<u8> {
        while let Ok(event) = self.events.receiver.try_recv() {
            self.take(event);
        }
        std::mem::take(&mut self.stdout)
    }

    /// Returns the exit code once the program has ended, negative for a signal. Does not wait.
    pub fn has_ended(&mut self) -> Option<i32> {
        let mut stdout = self.take_output();
        stdout.append(&mut self.stdout);
        self.stdout = stdout;
        self.exit_code
    }

    /// Standard error so far.
    pub fn complaints(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Waits for the program's end. It is killed when the time limit passes.
    pub fn wait(self, time_limit: Duration) -> Result<ToolOutput> {
        let (code, stdout, stderr) = self.wait_for_bytes(time_limit)?;
        Ok(ToolOutput { exit_code: Some(code), stdout: text(&stdout), stderr })
    }

    /// Same, with exit code, raw standard output and standard error.
    pub(crate) fn wait_for_bytes(mut self, time_limit: Duration) -> Result<(i32, Vec<u8>, String)> {
        let deadline = Instant::now() + time_limit;
        loop {
            if let Some(code) = self.exit_code {
                return Ok((code, std::mem::take(&mut self.stdout), self.complaints()));
            }
            ensure!(!self.is_lost, "the guest went away during {}, or it said too much", self.name);
            let is_late = Instant::now() >= deadline;
            if is_late || Interruption::is_asked_for() {
                // In a guest that is gone, no process is left to kill.
                let _ = self.signal(Signal::KILL);
                ensure!(is_late, "interrupted during {}", self.name);
                let said = format!("{}{}", text(&self.stdout), text(&self.stderr));
                bail!("{} did not end within {time_limit:?} in the guest: {said}", self.name);
            }
            self.listen_a_little();
        }
    }

    fn listen_a_little(&mut self) {
        match self.events.receiver.recv_timeout(LOOK_INTERVAL) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_lost = true,
        }
    }

    fn take(&mut self, event: Event) {
        self.events.taken(&event);
        match event {
            Event::Output(bytes) => self.stdout.extend(bytes),
            Event::Complaint(bytes) => self.stderr.extend(bytes),
            Event::Ended(code) => self.exit_code = Some(code),
        }
    }
}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        self.channel.forget(self.id);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
