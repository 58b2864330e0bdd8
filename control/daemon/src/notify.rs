//! Tells the service manager how far the daemon is: datagrams to the socket that
//! `NOTIFY_SOCKET` names. Without one, nothing is told.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::ticker::Ticker;

/// How much more time is asked for at once, and how often.
const MORE_TIME: Duration = Duration::from_secs(30);
const MORE_TIME_INTERVAL: Duration = Duration::from_secs(10);

/// What has made no progress for so long hangs, and no more time is asked for.
const STALL_TIME_MAX: Duration = Duration::from_secs(300);

/// Everything is served.
pub(crate) fn ready() {
    tell("READY=1\n");
}

/// The daemon is draining.
pub(crate) fn stopping() {
    tell("STOPPING=1\n");
}

/// Whatever is being done takes this much longer at most, from now on.
pub(crate) fn extend_timeout(time: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()));
}

/// The configuration is being read again; [`ready`] says that it was.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
}

/// The daemon gets on with its work.
pub(crate) fn alive() {
    tell("WATCHDOG=1\n");
}

/// How long the service manager waits to hear of that; `None` when it does not care.
pub(crate) fn watchdog_time() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_meant = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
    let time = Duration::from_micros(number("WATCHDOG_USEC")?);
    (is_meant && !time.is_zero()).then_some(time)
}

/// Asks the service manager for more time, again and again, until it is dropped or what goes on
/// makes no progress any more.
pub(crate) struct MoreTime {
    progressed: Arc<Mutex<Instant>>,
    _asking: Option<Ticker>,
}

impl MoreTime {
    /// Asks a first time before it returns. While it asks it also says that the daemon is alive.
    pub(crate) fn ask() -> Self {
        let often = watchdog_time().map_or(MORE_TIME_INTERVAL, |time_max| time_max / 2);
        Self::ask_every(often.min(MORE_TIME_INTERVAL), STALL_TIME_MAX, || {
            extend_timeout(MORE_TIME);
            if watchdog_time().is_some() {
                alive();
            }
        })
    }

    fn ask_every(interval: Duration, stall_max: Duration, ask: impl Fn() + Send + 'static) -> Self {
        ask();
        let progressed = Arc::new(Mutex::new(Instant::now()));
        let watched = Arc::clone(&progressed);
        let turn = move || {
            if watched.lock().expect(NO_PANIC).elapsed() < stall_max {
                ask();
            }
            interval
        };
        let started = Ticker::start("more-time", interval, turn).inspect_err(|error| {
            tracing::warn!(%error, "the service manager is asked for more time only once");
        });
        Self { progressed, _asking: started.ok() }
    }

    /// To be called whenever something was done.
    pub(crate) fn progress(&self) {
        *self.progressed.lock().expect(NO_PANIC) = Instant::now();
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

fn tell(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, message) {
        tracing::warn!(?socket, %error, "cannot tell the service manager");
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[track_caller]
    fn check(receiver: &UnixDatagram, socket: &OsStr) {
        send(socket, "READY=1\n").expect("the message is sent");
        let mut message = [0; 32];
        let length = receiver.recv(&mut message).expect("the message arrives");
        assert_eq!(&message[..length], b"READY=1\n");
    }

    #[test]
    fn more_time_is_asked_for_again_and_again_while_there_is_progress() {
        let (told, heard) = mpsc::channel();
        let ask = move || told.send(()).expect("the test listens");
        let patience = Duration::from_secs(60);
        let more_time = MoreTime::ask_every(Duration::from_millis(1), patience, ask);
        assert_eq!(heard.try_recv(), Ok(()), "the first time is before anything else");
        (0..3).for_each(|_| heard.recv_timeout(patience).expect("it is asked for again"));
        drop(more_time);
        assert!(heard.iter().count() < usize::MAX, "it ends when it is dropped");
    }

    #[test]
    fn no_more_time_is_asked_for_what_hangs() {
        let (told, heard) = mpsc::channel();
        let ask = move || told.send(()).expect("the test listens");
        let interval = Duration::from_millis(1);
        let more_time = MoreTime::ask_every(interval, Duration::ZERO, ask);
        more_time.progress();
        assert_eq!(heard.recv(), Ok(()));
        assert!(heard.recv_timeout(interval * 20).is_err(), "it was asked for again");
    }

    #[test]
    fn a_message_reaches_a_socket_in_the_file_system() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        check(&UnixDatagram::bind(&path).expect("a socket"), path.as_os_str());
    }

    #[test]
    fn a_message_reaches_a_socket_in_the_abstract_namespace() {
        let name = format!("memlane-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let receiver = UnixDatagram::bind_addr(&address).expect("a socket");
        check(&receiver, OsStr::new(&format!("@{name}")));
    }
}
