//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

use kernel::groups_of_peer;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// Process at the other end of a Unix socket, as the kernel recorded it when the connection was
/// made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    /// Process id; zero for a process in another pid namespace.
    pub pid: u32,
    /// Supplementary groups, from any user database.
    pub groups: Vec<u32>,
}

impl Peer {
    /// Reads the peer from the kernel.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let known = socket_peercred(socket)?;
        Ok(Self {
            uid: known.uid.as_raw(),
            gid: known.gid.as_raw(),
            pid: known.pid.as_raw_nonzero().get().unsigned_abs(),
            groups: groups_of_peer(socket.as_fd())?,
        })
    }

    /// Returns whether the peer is root, or the user of this process.
    pub fn is_owner(&self) -> bool {
        self.uid == 0 || self.uid == geteuid().as_raw()
    }

    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn this_process_is_its_own_peer() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = Peer::of(&here).expect("the kernel knows");
        assert_eq!(peer.pid, std::process::id());
        assert!(peer.is_owner() && peer.is_in_group(peer.gid));
    }

    #[test]
    fn groups_are_those_of_the_user_and_those_besides() {
        let peer = Peer { uid: 1000, gid: 1000, pid: 1, groups: vec![27, 990] };
        assert!(peer.is_in_group(1000) && peer.is_in_group(990) && !peer.is_in_group(0));
    }
}
