//! Users that may use the socket: root, the daemon's own user, and members of the group `memlane`.
//!
//! Members are processes whose credentials have the group, and users listed in `/etc/group`, who
//! need not log in again. The group itself must be in `/etc/group`; its members may come from any
//! user database.
//!
//! The mode of the socket grants the same access. This check also applies where a bind mount or a
//! namespace exposes the socket to others.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use export_kit::Peer;
use tokio::net::UnixStream;

use crate::accounts;

/// The group whose members may use the socket.
const GROUP_NAME: &str = "memlane";

/// The access rule, as of the start of the daemon.
#[derive(Clone, Debug)]
pub(crate) struct AccessRule {
    daemon_uid: u32,
    /// Id of the group `memlane`, if it exists.
    gid: Option<u32>,
}

impl AccessRule {
    /// Creates the rule for this process on this host.
    pub(crate) fn of_this_host() -> Self {
        let gid = accounts::number_of(&accounts::groups(), GROUP_NAME);
        Self { daemon_uid: rustix::process::geteuid().as_raw(), gid }
    }

    /// Returns whether the peer of `connection` may use the socket. Reads the user database.
    pub(super) fn admits(&self, connection: &UnixStream) -> bool {
        // If the credentials cannot be read, the peer has disconnected.
        Peer::of(connection).is_ok_and(|peer| self.admits_peer(&peer))
    }

    /// Returns whether a process may use the socket. Reads the user database.
    pub(crate) fn admits_peer(&self, peer: &Peer) -> bool {
        self.admits_by_kernel(peer)
            || is_listed_member(&accounts::groups(), &accounts::users(), peer.uid)
    }

    fn admits_by_kernel(&self, peer: &Peer) -> bool {
        let is_member = self.gid.is_some_and(|gid| peer.is_in_group(gid));
        peer.uid == 0 || peer.uid == self.daemon_uid || is_member
    }

    /// Sets the mode and group of a socket or file according to the rule.
    pub(crate) fn restrict(&self, socket: &Path) -> anyhow::Result<()> {
        let doing = |what: &str| format!("cannot change the {what} of {}", socket.display());
        if let Some(gid) = self.gid {
            // A daemon that does not run as root may lack membership in the group.
            let result = std::os::unix::fs::chown(socket, None, Some(gid));
            if let Err(error) = result {
                tracing::warn!(%error, "{}", doing("group"));
            }
        }
        std::fs::set_permissions(socket, Permissions::from_mode(0o660))
            .with_context(|| doing("mode"))
    }
}

/// Returns whether the user is a member of the group `memlane`, by its list of members or as
/// primary group.
fn is_listed_member(groups: &str, users: &str, uid: u32) -> bool {
    let Some(line) = groups.lines().find(|line| line.split(':').next() == Some(GROUP_NAME)) else {
        return false;
    };
    let members: Vec<&str> =
        line.split(':').nth(3).unwrap_or_default().split(',').map(str::trim).collect();
    let gid = accounts::number_of(groups, GROUP_NAME);
    users.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _password, user_uid, user_gid, ..] = fields[..] else { return false };
        let is_peer = user_uid.parse() == Ok(uid);
        is_peer
            && (members.contains(&name) || user_gid.parse().ok().is_some_and(|it| gid == Some(it)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &str = "root:x:0:\nmemlane:x:990:ann,bob\nmemlaner:x:991:eve\n";
    const USERS: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n\
                         bob:x:1001:1001::/:/bin/sh\neve:x:1002:1002::/:/bin/sh\n\
                         dan:x:1003:990::/:/bin/sh\n";

    #[test]
    fn members_of_the_group_are_found_in_the_user_database() {
        let member = |uid| is_listed_member(GROUPS, USERS, uid);
        assert!(member(1000) && member(1001), "they are listed");
        assert!(member(1003), "it is the user's own group");
        assert!(!member(1002) && !member(0) && !member(4242));
        assert!(!is_listed_member("", USERS, 1000), "there is no group");
    }

    #[test]
    fn root_the_daemon_and_the_group_need_no_look_into_the_database() {
        let rule = AccessRule { daemon_uid: 500, gid: accounts::number_of(GROUPS, GROUP_NAME) };
        let admits = |uid, gid| rule.admits_by_kernel(&Peer { uid, gid, ..Peer::default() });
        assert!(admits(0, 0) && admits(500, 500) && admits(1002, 990));
        assert!(!admits(1002, 1002) && !admits(1002, 0));
    }

    #[test]
    fn a_group_besides_the_users_own_counts_wherever_it_was_given() {
        let rule = AccessRule { daemon_uid: 500, gid: accounts::number_of(GROUPS, GROUP_NAME) };
        let peer = |groups: &[u32]| Peer { uid: 1002, gid: 1002, pid: 1, groups: groups.to_vec() };
        assert!(rule.admits_peer(&peer(&[27, 990])));
        assert!(!rule.admits_by_kernel(&peer(&[27, 991])));
    }

    #[test]
    fn without_the_group_no_group_is_admitted() {
        let rule =
            AccessRule { daemon_uid: 500, gid: accounts::number_of("root:x:0:\n", GROUP_NAME) };
        assert!(!rule.admits_by_kernel(&Peer { uid: 1002, ..Peer::default() }));
    }
}
