//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Initial size of the group list. Few users have more groups.
const GROUP_COUNT_USUAL: usize = 64;

/// Maximum number of groups of a process (`NGROUPS_MAX`).
const GROUP_COUNT_MAX: usize = 65_536;

/// Returns the supplementary groups that the peer of a Unix socket had when it connected, from the
/// kernel's credentials.
pub fn groups_of_peer(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUP_COUNT_USUAL];
    let mut result = sys::peer_groups(socket, &mut groups);
    if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ERANGE)) {
        groups = vec![0; GROUP_COUNT_MAX];
        result = sys::peer_groups(socket, &mut groups);
    }
    groups.truncate(result?);
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_has_the_groups_of_its_process() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let mut found = groups_of_peer(here.as_fd()).expect("the kernel knows");
        let own = rustix::process::getgroups().expect("the kernel knows");
        let mut own: Vec<u32> = own.into_iter().map(rustix::process::Gid::as_raw).collect();
        found.sort_unstable();
        own.sort_unstable();
        assert_eq!(found, own);
    }
}
