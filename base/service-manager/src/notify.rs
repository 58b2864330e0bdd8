//! Datagrams to the socket in `NOTIFY_SOCKET`. Without this variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Maximum time that a message waits for a service manager that does not read. Messages that only
/// inform wait less.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
const STATUS_TIME_MAX: Duration = Duration::from_millis(100);

/// Reports that the program serves.
pub fn ready() {
    tell("READY=1\nSTATUS=serving\n");
}

/// Reports that the program is stopping.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=stopping\n");
}

/// Reports the current step of a start or stop, which `systemctl status` shows.
pub fn status(doing: &str) {
    // A line break would begin another message.
    let message = format!("STATUS={}\n", doing.replace(char::is_control, " "));
    tell_within(STATUS_TIME_MAX, &message);
}

/// Extends the timeout of the current start or stop by `time` from now.
pub(crate) fn extend_timeout(time: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()));
}

/// Reports that the configuration is being reloaded; [`ready`] must report the end.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
}

/// Sends the keep-alive message of the watchdog.
pub fn alive() {
    tell("WATCHDOG=1\n");
}

/// Timeout of the watchdog. `None` if it is not enabled for this process.
pub fn watchdog_time() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_meant = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
    let time = Duration::from_micros(number("WATCHDOG_USEC")?);
    (is_meant && !time.is_zero()).then_some(time)
}

fn tell(message: &str) {
    tell_within(SEND_TIME_MAX, message);
}

fn tell_within(time_max: Duration, message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, message, time_max) {
        tracing::warn!(?socket, %error, "cannot notify systemd (sd_notify)");
    }
}

/// Sends a datagram. A name that begins with `@` is in the abstract namespace.
fn send(socket: &OsStr, message: &str, time_max: Duration) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(time_max))?;
    sender.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(receiver: &UnixDatagram, socket: &OsStr) {
        send(socket, "READY=1\n", SEND_TIME_MAX).expect("the message is sent");
        let mut message = [0; 32];
        let length = receiver.recv(&mut message).expect("the message arrives");
        assert_eq!(&message[..length], b"READY=1\n");
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

    #[test]
    fn a_service_manager_that_does_not_read_is_not_waited_for_without_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let _receiver = UnixDatagram::bind(&path).expect("a socket");
        let full = loop {
            if let Err(error) = send(path.as_os_str(), "STATUS=starting\n", STATUS_TIME_MAX) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
