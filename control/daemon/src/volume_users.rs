//! Who may use which volume over the ring, besides those who may use the daemon: kept on disk.
//!
//! The file is replaced as a whole: whoever reads it sees the list before or after a change. It
//! names volumes by id, as names change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::attachments::replace_file;

const FORMAT_VERSION: u32 = 1;

/// Users of one volume, at most.
const USERS_MAX: usize = 64;

const USERS_PATH: &str = "/etc/passwd";

/// The users of volumes, by the volume's id.
#[derive(Debug)]
pub(crate) struct VolumeUsers {
    path: PathBuf,
    by_volume: Mutex<BTreeMap<u64, Vec<String>>>,
}

/// The list as it was read.
#[derive(Debug, Default)]
pub(crate) struct UserList(BTreeMap<u64, Vec<String>>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    volumes: Vec<StoredVolume>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredVolume {
    volume_id: u64,
    users: Vec<String>,
}

impl VolumeUsers {
    /// Reads the list in `state_dir`; an empty one when there is none.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join("users.json");
        let UserList(by_volume) = read_list(&path)?;
        Ok(Self { path, by_volume: Mutex::new(by_volume) })
    }

    /// Reads the list again, as somebody may have changed it, and changes nothing yet.
    pub(crate) fn read_again(&self) -> anyhow::Result<UserList> {
        read_list(&self.path)
    }

    /// What was read counts from now on.
    pub(crate) fn replace(&self, UserList(by_volume): UserList) {
        *self.lock() = by_volume;
    }

    /// Names or numbers, as they were given.
    pub(crate) fn of(&self, volume_id: u64) -> Vec<String> {
        self.lock().get(&volume_id).cloned().unwrap_or_default()
    }

    /// Whether a user is one of the volume's. Reads the user database.
    pub(crate) fn admits(&self, volume_id: u64, uid: u32) -> bool {
        let users = self.of(volume_id);
        !users.is_empty() && is_among(&users, uid, &user_database())
    }

    /// Whether a user is one of any volume's. Reads the user database.
    pub(crate) fn admits_somewhere(&self, uid: u32) -> bool {
        let all: Vec<String> = self.lock().values().flatten().cloned().collect();
        !all.is_empty() && is_among(&all, uid, &user_database())
    }

    /// Replaces the users of a volume, in memory and on disk; on an error in neither.
    pub(crate) fn set(&self, volume_id: u64, users: Vec<String>) -> io::Result<()> {
        let mut by_volume = self.lock();
        let mut changed = by_volume.clone();
        match users.is_empty() {
            true => changed.remove(&volume_id),
            false => changed.insert(volume_id, users),
        };
        if changed != *by_volume {
            store(&self.path, &changed)?;
            *by_volume = changed;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<String>>> {
        self.by_volume.lock().expect("nobody panics with the list of users")
    }
}

/// What is wrong with users that somebody names, if anything is.
pub(crate) fn refusal(users: &[String]) -> Option<String> {
    let database = user_database();
    let is_known = |user: &String| user.parse::<u32>().is_ok() || uid_of(&database, user).is_some();
    match users.iter().find(|user| !is_known(user)) {
        Some(unknown) => Some(format!("this host has no user {unknown:?}")),
        None if users.len() > USERS_MAX => {
            Some(format!("a volume has {USERS_MAX} users at most; use the group memlane"))
        }
        None => None,
    }
}

fn is_among(users: &[String], uid: u32, database: &str) -> bool {
    users.iter().any(|user| {
        user.parse()
            .map_or_else(|_| uid_of(database, user) == Some(uid), |number: u32| number == uid)
    })
}

/// A user of this host, by name or number.
pub(crate) fn uid_named(user: &str) -> Option<u32> {
    user.parse().ok().or_else(|| uid_of(&user_database(), user))
}

fn uid_of(database: &str, name: &str) -> Option<u32> {
    database.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

fn user_database() -> String {
    std::fs::read_to_string(USERS_PATH).unwrap_or_default()
}

fn read_list(path: &Path) -> anyhow::Result<UserList> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(UserList::default()),
        result => result.with_context(|| format!("cannot read {}", path.display()))?,
    };
    parse(&text)
        .map(UserList)
        .with_context(|| format!("{} is damaged; delete it and name users again", path.display()))
}

fn parse(text: &[u8]) -> anyhow::Result<BTreeMap<u64, Vec<String>>> {
    let stored: Stored = serde_json::from_slice(text)?;
    if stored.version != FORMAT_VERSION {
        bail!("it has format {}, this version reads {FORMAT_VERSION}", stored.version);
    }
    Ok(stored.volumes.into_iter().map(|volume| (volume.volume_id, volume.users)).collect())
}

fn store(path: &Path, by_volume: &BTreeMap<u64, Vec<String>>) -> io::Result<()> {
    let volume = |(&volume_id, users): (&u64, &Vec<String>)| StoredVolume {
        volume_id,
        users: users.clone(),
    };
    let volumes = by_volume.iter().map(volume).collect();
    let stored = Stored { version: FORMAT_VERSION, volumes };
    replace_file(path, &serde_json::to_vec_pretty(&stored)?)
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
