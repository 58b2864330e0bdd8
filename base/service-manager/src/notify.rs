//! Datagrams to the socket that `NOTIFY_SOCKET` names. Without one, nothing is told.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Everything is served.
pub fn ready() {
    tell("READY=1\n");
}

/// The program is draining.
pub fn stopping() {
    tell("STOPPING=1\n");
}

/// Whatever is being done takes this much longer at most, from now on.
pub fn extend_timeout(time: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()));
}

/// The configuration is being read again; [`ready`] says that it was.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
}

/// The program gets on with its work.
pub fn alive() {
    tell("WATCHDOG=1\n");
}

/// Time that the service manager waits to hear of that; `None` when it does not care.
pub fn watchdog_time() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_meant = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
    let time = Duration::from_micros(number("WATCHDOG_USEC")?);
    (is_meant && !time.is_zero()).then_some(time)
}

fn tell(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, message) {
        tracing::warn!(?socket, %error, "cannot notify systemd (sd_notify)");
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
    use super::*;

    #[track_caller]
    fn check(receiver: &UnixDatagram, socket: &OsStr) {
        send(socket, "READY=1\n").expect("the message is sent");
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
}
