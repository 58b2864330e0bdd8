//! The file of users, and changes to it.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use sasl::{SALT_BYTES, ScramHash, ScramKeys, check_name, check_secret};

use crate::error::{AccessError, AccessErrorKind};
use crate::policy_file::PolicyFile;
use crate::principal::Principal;
use crate::users::{KeysText, USER_COUNT_MAX, UserEntry, UserName, UserTable, Users};

const HEADING: &str = "# Users of the broker: salted SCRAM keys, which do not reveal passwords.\n\
                       # Rewritten with each change; comments are not kept.";

/// Length of a new key for decoy salts, in bytes.
const DECOY_KEY_BYTES: usize = 32;

/// Current users, and the file that they were read from.
#[derive(Debug)]
pub struct UserFile {
    file: PolicyFile,
    users: Arc<Users>,
}

/// New secret of a user, from which keys for both hashes are derived.
pub struct NewSecret<'a> {
    pub name: &'a str,
    pub secret: &'a str,
    /// From [`sasl::ITERATIONS_MIN`] to [`sasl::ITERATIONS_MAX`].
    pub iterations: u32,
}

impl UserFile {
    /// Reads the file. Without a file, there are no users, and the first change creates it.
    pub fn open(path: PathBuf) -> Result<Self, AccessError> {
        let mut file = PolicyFile::new(path);
        let text = file.read()?;
        let users = text.as_deref().map(|text| Users::parse(text, &file)).transpose()?;
        file.remember(text.as_deref());
        Ok(Self { file, users: Arc::new(users.unwrap_or_else(Users::none)) })
    }

    /// Returns the current users. A login in progress keeps those with which it started.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Reads the file again. On an error, including a deleted file, the current users remain in
    /// effect.
    pub fn reload(&mut self) -> Result<(), AccessError> {
        let text = self.file.read()?;
        if text.is_none() && self.file.was_there() {
            return Err(self.file.gone());
        }
        let users = text.as_deref().map(|text| Users::parse(text, &self.file)).transpose()?;
        self.file.remember(text.as_deref());
        self.users = Arc::new(users.unwrap_or_else(Users::none));
        Ok(())
    }

    /// Adds a user. Deriving the keys takes milliseconds. Blocks on the disk.
    pub fn add(&mut self, new: &NewSecret<'_>) -> Result<(), AccessError> {
        self.change(|table| {
            let can_log_in = |user: &UserEntry| !user.secrets.is_empty();
            if table.users.get(&user_name(new.name)?).is_some_and(can_log_in) {
                let what = format!("user {} already exists", new.name);
                return Err(AccessError::new(AccessErrorKind::Exists, what));
            }
            if table.users.len() >= USER_COUNT_MAX {
                let what = format!(
                    "cannot add {}: the limit of {USER_COUNT_MAX} users is reached",
                    new.name
                );
                return Err(AccessError::new(AccessErrorKind::Full, what));
            }
            table.users.entry(user_name(new.name)?).or_default().secrets = secrets(new)?;
            Ok(())
        })
    }

    /// Replaces the secret of a user. Existing sessions are not affected.
    pub fn set_secret(&mut self, new: &NewSecret<'_>) -> Result<(), AccessError> {
        self.change(|table| {
            let user = table.users.get_mut(&user_name(new.name)?);
            user.ok_or_else(|| missing(new.name))?.secrets = secrets(new)?;
            Ok(())
        })
    }

    /// Removes a user and all its settings.
    pub fn remove(&mut self, name: &str) -> Result<(), AccessError> {
        self.change(|table| {
            let removed = table.users.remove(&UserName(name.to_owned()));
            removed.map(|_| ()).ok_or_else(|| missing(name))
        })
    }

    /// Changes the file atomically, and then the users in effect.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut UserTable) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let mut table = match self.file.read()? {
            Some(text) => self.file.parse(&text)?,
            None => UserTable::default(),
        };
        change(&mut table)?;
        if table.users.len() > USER_COUNT_MAX {
            let what = format!("too many users; the limit is {USER_COUNT_MAX}");
            return Err(AccessError::new(AccessErrorKind::Full, what));
        }
        if table.decoy_key.is_none() {
            table.decoy_key = Some(BASE64.encode(random::<DECOY_KEY_BYTES>()?));
        }
        self.file.replace(HEADING, &table)?;
        self.users = Arc::new(Users::of(table));
        Ok(())
    }
}

fn secrets(new: &NewSecret<'_>) -> Result<Vec<KeysText>, AccessError> {
    let refused = |error: sasl::SaslError| {
        let what = format!("cannot set the password of {}: {error}", new.name.escape_debug());
        AccessError::new(AccessErrorKind::NotAllowed, what)
    };
    check_name(new.name).map_err(refused)?;
    check_secret(new.secret).map_err(refused)?;
    if new.name == Principal::anonymous().name() {
        let what =
            "ANONYMOUS is the principal of unauthenticated clients and cannot have a password";
        return Err(AccessError::new(AccessErrorKind::NotAllowed, what));
    }
    let mut secrets = Vec::new();
    for hash in ScramHash::ALL {
        let salt = random::<SALT_BYTES>()?;
        let keys = ScramKeys::derive(hash, new.secret.as_bytes(), &salt, new.iterations);
        secrets.push(KeysText(keys.map_err(refused)?));
    }
    Ok(secrets)
}

pub(crate) fn user_name(name: &str) -> Result<UserName, AccessError> {
    UserName::try_from(name.to_owned())
}

fn missing(name: &str) -> AccessError {
    let what = format!("user {} does not exist", name.escape_debug());
    AccessError::new(AccessErrorKind::Missing, what)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], AccessError> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        AccessError::new(AccessErrorKind::File, "cannot get random bytes for a salt")
    })?;
    Ok(bytes)
}
