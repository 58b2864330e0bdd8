//! Users and groups of this host, from `/etc/passwd` and `/etc/group`.

use std::path::Path;

const GROUPS_PATH: &str = "/etc/group";
const USERS_PATH: &str = "/etc/passwd";

/// Contents of `/etc/passwd`; empty if it cannot be read.
pub(crate) fn users() -> String {
    read_or_empty(Path::new(USERS_PATH))
}

/// Contents of `/etc/group`; empty if it cannot be read.
pub(crate) fn groups() -> String {
    read_or_empty(Path::new(GROUPS_PATH))
}

/// Looks up the id of a user of this host, by name or number.
pub(crate) fn uid_named(user: &str) -> Option<u32> {
    user.parse().ok().or_else(|| number_of(&users(), user))
}

/// Looks up the id of a group of this host, by name or number.
pub(crate) fn gid_named(group: &str) -> Option<u32> {
    group.parse().ok().or_else(|| number_of(&groups(), group))
}

/// Looks up the id of a user or group in the contents of `/etc/passwd` or `/etc/group`.
pub(crate) fn number_of(list: &str, name: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

fn read_or_empty(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
