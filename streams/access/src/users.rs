//! Users in effect: credentials and quotas.
//!
//! Unknown names have decoy keys, whose salt and iteration count are derived from a keyed hash of
//! the name and look like those of an existing user. Therefore neither the responses nor their
//! timing reveal which names exist.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac};
use sasl::{ITERATIONS_DEFAULT, SALT_BYTES, ScramHash, ScramKeys, check_name};
use serde::{Deserialize, Serialize};

use crate::error::AccessError;
use crate::limits::{QuotaLimits, QuotaSettings};
use crate::policy_file::{FORMAT_VERSION, PolicyFile};
use crate::principal::Principal;

/// Maximum number of users.
pub const USER_COUNT_MAX: usize = 100_000;

/// Minimum length of the key for decoy salts, in bytes.
const DECOY_KEY_BYTES_MIN: usize = 16;

/// Immutable snapshot of the file of users. A reload creates a new one.
#[derive(Debug)]
pub struct Users {
    users: BTreeMap<String, UserEntry>,
    default_quota: QuotaSettings,
    decoy_key: hmac::Key,
    /// Visible parameters of the users' keys, for each hash and for PLAIN.
    shapes: [Vec<Shape>; 3],
}

/// Entry of one user in the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct UserEntry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<KeysText>,
    #[serde(default, skip_serializing_if = "QuotaSettings::is_empty")]
    pub(crate) quota: QuotaSettings,
}

/// Contents of the file of users.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct UserTable {
    pub(crate) version: u32,
    /// Key for decoy salts, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decoy_key: Option<String>,
    #[serde(default, skip_serializing_if = "QuotaSettings::is_empty")]
    pub(crate) default_quota: QuotaSettings,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) users: BTreeMap<UserName, UserEntry>,
}

/// A validated user name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct UserName(pub(crate) String);

/// Keys in text form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct KeysText(pub(crate) ScramKeys);

/// Parameters of a user's keys that a client can see.
#[derive(Clone, Copy, Debug)]
struct Shape {
    hash: ScramHash,
    iterations: u32,
    salt_bytes: usize,
}

/// Keys against which a login is verified.
pub(crate) struct Candidate {
    pub(crate) keys: ScramKeys,
    /// If false, the keys are decoys and no login succeeds.
    pub(crate) is_known: bool,
}

impl Users {
    /// Returns an empty set of users.
    pub fn none() -> Self {
        Self::of(UserTable::default())
    }

    pub(crate) fn parse(text: &str, file: &PolicyFile) -> Result<Self, AccessError> {
        let table: UserTable = file.parse(text)?;
        file.check_version(table.version)?;
        if table.users.len() > USER_COUNT_MAX {
            return Err(
                file.wrong(&format!("it has too many users; the limit is {USER_COUNT_MAX}"))
            );
        }
        for (UserName(name), user) in &table.users {
            if let Some(why) = why_wrong(name, user) {
                return Err(file.wrong(&format!("user {name}: {why}")));
            }
        }
        if table.decoy_key.as_deref().is_some_and(|key| decoy_key_of(key).is_none()) {
            let form = format!("{DECOY_KEY_BYTES_MIN} or more bytes in base64");
            return Err(file.wrong(&format!("decoy-key is not {form}; remove the line")));
        }
        Ok(Self::of(table))
    }

    pub(crate) fn of(table: UserTable) -> Self {
        let key = table.decoy_key.as_deref().and_then(decoy_key_of);
        let key = key.unwrap_or_else(|| fingerprint(&table));
        let users: BTreeMap<_, _> =
            table.users.into_iter().map(|(UserName(name), user)| (name, user)).collect();
        let shapes = [Some(ScramHash::Sha256), Some(ScramHash::Sha512), None]
            .map(|hash| users.values().filter_map(|user| Shape::of(user, hash)).collect());
        let decoy_key = hmac::Key::new(hmac::HMAC_SHA512, &key);
        Self { users, default_quota: table.default_quota, decoy_key, shapes }
    }

    /// Iterates over all names, in order, with the hashes for which they have keys.
    pub fn list(&self) -> impl Iterator<Item = UserInfo<'_>> {
        self.users.iter().map(|(name, user)| UserInfo {
            name,
            hashes: user.secrets.iter().map(|KeysText(keys)| keys.hash()).collect(),
        })
    }

    /// Iterates over the entries of the file, ordered by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &UserEntry)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user))
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&UserEntry> {
        self.users.get(name)
    }

    pub(crate) fn default_quota(&self) -> &QuotaSettings {
        &self.default_quota
    }

    /// Returns whether a user with this name exists and has keys.
    pub fn can_log_in(&self, name: &str) -> bool {
        self.users.get(name).is_some_and(|user| !user.secrets.is_empty())
    }

    /// Verifies a user's secret. Takes milliseconds, independent of the result.
    pub fn verify(&self, name: &str, secret: &[u8]) -> bool {
        let candidate = self.candidate(name, None);
        let fits = candidate.keys.are_of(secret);
        fits && candidate.is_known
    }

    /// Returns the quota of a principal. Settings are resolved in this order: its own, the file's
    /// defaults, the built-in defaults.
    pub fn quota_of(&self, principal: &Principal) -> QuotaLimits {
        let own = self.users.get(principal.name()).map(|user| &user.quota);
        QuotaLimits::resolve(own.unwrap_or(&QuotaSettings::default()), &self.default_quota)
    }

    /// Returns the user's keys for `hash`, or any keys for PLAIN. Returns decoy keys if there are
    /// none.
    pub(crate) fn candidate(&self, name: &str, hash: Option<ScramHash>) -> Candidate {
        // Decoys are always computed, so that existing names take the same time.
        let decoy = self.decoy(name, hash);
        let known = self.users.get(name).and_then(|user| user.keys(hash)).cloned();
        Candidate { is_known: known.is_some(), keys: known.unwrap_or(decoy) }
    }

    fn decoy(&self, name: &str, hash: Option<ScramHash>) -> ScramKeys {
        let (shapes, label) = match hash {
            Some(ScramHash::Sha256) => (&self.shapes[0], "256"),
            Some(ScramHash::Sha512) => (&self.shapes[1], "512"),
            None => (&self.shapes[2], "plain"),
        };
        let draw =
            |what: &str| hmac::sign(&self.decoy_key, format!("{what} {label} {name}").as_bytes());
        let choice = draw("shape");
        let choice = choice.as_ref()[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let usual = Shape {
            hash: hash.unwrap_or(ScramHash::Sha256),
            iterations: ITERATIONS_DEFAULT,
            salt_bytes: SALT_BYTES,
        };
        let index = usize::try_from(choice % (shapes.len().max(1) as u64)).expect("an index");
        let shape = shapes.get(index).copied().unwrap_or(usual);
        let salt = draw("salt");
        ScramKeys::without_secret(shape.hash, &salt.as_ref()[..shape.salt_bytes], shape.iterations)
            .expect("a user's keys have this shape, which are in bounds")
    }
}

/// A user in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo<'a> {
    pub name: &'a str,
    /// If empty, the user cannot log in by SASL, and the entry only sets quotas.
    pub hashes: Vec<ScramHash>,
}

impl UserEntry {
    /// Returns whether the entry contains no settings.
    pub(crate) fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.quota.is_empty()
    }

    pub(crate) fn keys(&self, hash: Option<ScramHash>) -> Option<&ScramKeys> {
        let mut all = self.secrets.iter().map(|KeysText(keys)| keys);
        all.find(|keys| hash.is_none_or(|hash| keys.hash() == hash))
    }
}

impl Shape {
    fn of(user: &UserEntry, hash: Option<ScramHash>) -> Option<Self> {
        let keys = user.keys(hash)?;
        let salt_bytes = keys.salt().len();
        Some(Self { hash: keys.hash(), iterations: keys.iterations(), salt_bytes })
    }
}

impl Default for UserTable {
    fn default() -> Self {
        Self {
            version: FORMAT_VERSION,
            decoy_key: None,
            default_quota: QuotaSettings::default(),
            users: BTreeMap::new(),
        }
    }
}

impl TryFrom<String> for UserName {
    type Error = AccessError;

    fn try_from(name: String) -> Result<Self, AccessError> {
        // Subjects of certificates can have entries for quotas, too.
        Principal::user(&name)?;
        if name == "*" {
            let what = "invalid user name *: in access lists it means every principal";
            return Err(AccessError::new(crate::error::AccessErrorKind::NotAllowed, what));
        }
        Ok(Self(name))
    }
}

impl From<UserName> for String {
    fn from(name: UserName) -> Self {
        name.0
    }
}

impl TryFrom<String> for KeysText {
    type Error = sasl::SaslError;

    fn try_from(text: String) -> Result<Self, sasl::SaslError> {
        text.parse().map(Self)
    }
}

impl From<KeysText> for String {
    fn from(keys: KeysText) -> Self {
        keys.0.to_string()
    }
}

/// Returns the reason for which a well-formed entry is invalid.
fn why_wrong(name: &str, user: &UserEntry) -> Option<String> {
    let hashes = |hash| user.secrets.iter().filter(|KeysText(keys)| keys.hash() == hash).count();
    if ScramHash::ALL.into_iter().any(|hash| hashes(hash) > 1) {
        return Some("it has several passwords for one mechanism; keep one".to_owned());
    }
    if user.secrets.is_empty() {
        return None;
    }
    if name == Principal::anonymous().name() {
        return Some("anonymous clients cannot have a password".to_owned());
    }
    check_name(name).err().map(|error| error.to_string())
}

fn decoy_key_of(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok().filter(|key| key.len() >= DECOY_KEY_BYTES_MIN)
}

/// Derives a decoy key if the file has none. It is as secret as the users' keys, and survives
/// restarts.
fn fingerprint(table: &UserTable) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA512);
    for user in table.users.values() {
        for KeysText(keys) in &user.secrets {
            context.update(keys.to_string().as_bytes());
        }
    }
    context.finish().as_ref().to_vec()
}
