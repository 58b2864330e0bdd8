//! Users that may use each volume over NBD, the ring and vhost-user, in addition to users of the
//! daemon; stored on disk.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::accounts;
use crate::volume_list::{Listed, ReadAgain, VolumeList};

/// Maximum number of users of a volume.
const USERS_MAX: usize = 64;

/// Users of all volumes.
#[derive(Debug)]
pub(crate) struct VolumeUsers(VolumeList<Users>);

/// A list of users that was read again.
pub(crate) type UserList<'users> = ReadAgain<'users, Users>;

/// Users of one volume: names or numbers, as given in the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Users {
    volume_id: u64,
    users: Vec<String>,
}

impl Listed for Users {
    const KEY: &str = "volumes";
    const FILE_NAME: &str = "users.json";
    const REMEDY: &str = "delete it and set users again";

    fn volume_id(&self) -> u64 {
        self.volume_id
    }
}

impl VolumeUsers {
    /// Reads the list in `state_dir`. If there is no file, the list is empty.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        VolumeList::read(state_dir).map(Self)
    }

    /// Reads the list again, because its file may have been edited, without applying it. Until the
    /// result is applied or dropped, the list cannot be changed.
    pub(crate) fn read_again(&self) -> anyhow::Result<UserList<'_>> {
        self.0.read_again()
    }

    /// Users of a volume: names or numbers, as given in the request.
    pub(crate) fn of(&self, volume_id: u64) -> Vec<String> {
        self.0.get(volume_id).map(|entry| entry.users).unwrap_or_default()
    }

    /// Returns whether the user may use this volume. Reads the user database.
    pub(crate) fn admits(&self, volume_id: u64, uid: u32) -> bool {
        let users = self.of(volume_id);
        !users.is_empty() && is_among(&users, uid, &accounts::users())
    }

    /// Returns whether the user may use any volume. Reads the user database.
    pub(crate) fn admits_somewhere(&self, uid: u32) -> bool {
        let all: Vec<String> = self.0.all().into_iter().flat_map(|entry| entry.users).collect();
        !all.is_empty() && is_among(&all, uid, &accounts::users())
    }

    /// Replaces the users of a volume in memory and on disk. On an error, neither is changed.
    pub(crate) fn set(&self, volume_id: u64, users: Vec<String>) -> io::Result<()> {
        match users.is_empty() {
            true => self.0.remove(volume_id),
            false => self.0.insert(Users { volume_id, users }),
        }
    }
}

/// Returns an error message for unknown users in a request, if there are any.
pub(crate) fn refusal(users: &[String]) -> Option<String> {
    let database = accounts::users();
    let is_known = |user: &String| {
        user.parse::<u32>().is_ok() || accounts::number_of(&database, user).is_some()
    };
    match users.iter().find(|user| !is_known(user)) {
        Some(unknown) => Some(format!("no user {unknown:?} on this host")),
        None if users.len() > USERS_MAX => {
            Some(format!("a volume can have at most {USERS_MAX} users; use the group memlane"))
        }
        None => None,
    }
}

fn is_among(users: &[String], uid: u32, database: &str) -> bool {
    let number = |user: &String| user.parse().ok().or_else(|| accounts::number_of(database, user));
    users.iter().any(|user| number(user) == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: &str = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn users_are_known_by_name_or_number() {
        assert!(is_among(&names(&["ann"]), 1000, DATABASE));
        assert!(is_among(&names(&["bob", "1001"]), 1001, DATABASE));
        assert!(!is_among(&names(&["ann", "1001"]), 1002, DATABASE));
        assert!(!is_among(&names(&["bob"]), 1000, DATABASE));
    }

    #[test]
    fn the_list_comes_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let users = VolumeUsers::read(dir.path()).expect("an empty list");
        users.set(7, names(&["1000"])).expect("it is stored");
        users.set(8, names(&["1001"])).expect("it is stored");
        users.set(8, Vec::new()).expect("it is stored");
        let users = VolumeUsers::read(dir.path()).expect("the list");
        assert_eq!((users.of(7), users.of(8)), (names(&["1000"]), Vec::new()));
        assert!(users.admits(7, 1000) && !users.admits(7, 1001) && !users.admits(8, 1001));
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let users = VolumeUsers::read(dir.path()).expect("an empty list");
        drop(dir);
        users.set(7, names(&["1000"])).expect_err("the directory is gone");
        assert!(!users.admits(7, 1000));
    }

    #[test]
    fn what_is_changed_while_the_list_is_read_again_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let users = VolumeUsers::read(dir.path()).expect("an empty list");
        users.set(7, names(&["1000"])).expect("it is stored");
        let (begin, begun) = std::sync::mpsc::channel();
        let users = &users;
        std::thread::scope(|scope| {
            let read = users.read_again().expect("the list");
            let change = scope.spawn(move || {
                begin.send(()).expect("it is waited for");
                users.set(7, Vec::new()).expect("it is stored");
            });
            begun.recv().expect("it begins");
            for _ in 0..100 {
                // Without the lock, the change would most likely be complete by now.
                std::thread::yield_now();
            }
            read.use_it();
            change.join().expect("no panic");
        });
        assert!(!users.admits(7, 1000), "who was taken off is off");
        let stored = VolumeUsers::read(dir.path()).expect("the list");
        assert_eq!(users.of(7), stored.of(7));
    }

    #[track_caller]
    fn check_refused(contents: &str, expected: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("users.json"), contents).expect("a file");
        let error = format!("{:#}", VolumeUsers::read(dir.path()).expect_err("refused"));
        assert!(error.contains("users.json") && error.contains(expected), "{error}");
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        check_refused("{\"version\": 1, \"vol", "damaged");
        check_refused("{\"version\": 2, \"volumes\": []}", "format 2");
    }

    #[test]
    fn unknown_users_are_named() {
        assert!(refusal(&names(&["no-such-user"])).is_some_and(|text| text.contains("no-such")));
        assert_eq!(refusal(&names(&["root", "4242"])), None);
    }
}
