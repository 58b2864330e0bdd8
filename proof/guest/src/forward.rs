//! A Unix socket of the host that is forwarded to a server in the guest.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use crate::channel::{Channel, Event, Events};
use crate::frame::{FRAME_BYTES_MAX, FrameKind};

const CONNECT: &[&str] = &["/usr/local/bin/guest-agent", "connect"];

/// Forwards each connection to the guest until it is dropped or the guest is gone.
pub(crate) struct Forward {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Forward {
    /// Starts to forward `path` to the socket `in_guest`.
    pub(crate) fn start(channel: &Arc<Channel>, path: PathBuf, in_guest: &Path) -> Result<Self> {
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (channel, flag) = (Arc::clone(channel), Arc::clone(&is_over));
        let in_guest = in_guest.to_string_lossy().into_owned();
        let listening = thread::Builder::new()
            .name("guest-forward".to_owned())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    if flag.load(Ordering::Acquire) {
                        return;
                    }
                    // A guest without an agent has no server either: the client is disconnected.
                    let _ = connect(&channel, client, &in_guest);
                }
            })
            .context("cannot start a thread for a guest's socket")?;
        Ok(Self { path, is_over, listening: Some(listening) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let is_woken = UnixStream::connect(&self.path).is_ok();
        if let Some(listening) = self.listening.take().filter(|_| is_woken) {
            // It returns nothing, and a panic was printed.
            let _ = listening.join();
        }
        // The folder is removed too.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects a client to the server, with a thread for each direction.
fn connect(channel: &Arc<Channel>, client: UnixStream, in_guest: &str) -> Result<()> {
    let (id, events) = channel.run(&[CONNECT, &[in_guest]].concat())?;
    let from_client = client.try_clone().context("cannot share a socket")?;
    let channel = Arc::clone(channel);
    thread::spawn(move || carry_to_guest(&from_client, &channel, id));
    thread::spawn(move || carry_to_client(&events, &client));
    Ok(())
}

fn carry_to_guest(mut client: &UnixStream, channel: &Channel, id: u32) {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        if channel.send(FrameKind::Input, id, &buffer[..length]).is_err() {
            return;
        }
    }
    // If the guest is gone, nothing needs the message.
    let _ = channel.send(FrameKind::Input, id, &[]);
}

fn carry_to_client(events: &Events, mut client: &UnixStream) {
    for event in &events.receiver {
        events.taken(&event);
        match event {
            Event::Output(bytes) if client.write_all(&bytes).is_ok() => {}
            Event::Complaint(_) => {}
            Event::Output(_) | Event::Ended(_) => break,
        }
    }
    // The client may have closed it first.
    let _ = client.shutdown(Shutdown::Both);
}
