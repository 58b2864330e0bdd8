//! Accept loop of an export.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sync::atomic::{AtomicBool, Ordering};

use crate::log_limit::LogLimit;

/// Pause after the system had no descriptor, memory or thread for a client.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Signal by which the owner of an export stops its accepting thread.
#[derive(Debug)]
pub struct StopSignal {
    is_given: AtomicBool,
    wake: OwnedFd,
}

impl StopSignal {
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { is_given: AtomicBool::new(false), wake })
    }

    pub fn give(&self) {
        // PAIRS-WITH: StopSignal::is_given, "what was said before the signal".
        self.is_given.store(true, Ordering::Release);
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("an event can be counted");
    }

    pub fn is_given(&self) -> bool {
        // PAIRS-WITH: StopSignal::give, "what was said before the signal".
        self.is_given.load(Ordering::Acquire)
    }
}

/// Calls `accept` for each of `listeners`, which must be non-blocking, whenever clients may have
/// connected, until `stop` is given. If `accept` fails because a descriptor, memory or a thread is
/// lacking, it is called again after a pause. `clients` names the clients in the log.
pub fn accept_until<L: AsFd>(
    stop: &StopSignal,
    listeners: &[L],
    clients: &str,
    mut accept: impl FnMut(&L) -> io::Result<()>,
) {
    let log = LogLimit::new();
    let mut outcome = Ok(());
    loop {
        match &outcome {
            Ok(()) => wait(stop, listeners, None),
            Err(error) => {
                if let Some(left_out) = log.admit() {
                    tracing::warn!(%error, left_out, "cannot accept {clients}; retrying");
                }
                wait::<L>(stop, &[], Some(&ACCEPT_PAUSE));
            }
        }
        if stop.is_given() {
            return;
        }
        outcome = listeners.iter().try_for_each(&mut accept);
    }
}

/// Waits until a client connects, the stop signal is given, or the time has elapsed.
fn wait<L: AsFd>(stop: &StopSignal, listeners: &[L], time_max: Option<&Timespec>) {
    let mut events = vec![PollFd::new(&stop.wake, PollFlags::IN)];
    events.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
    match poll(&mut events, time_max) {
        // The caller checks all sources anyway, so an interruption is harmless.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => panic!("cannot wait for clients: {error}"),
    }
}
