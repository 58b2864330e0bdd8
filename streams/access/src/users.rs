//! Users as they are in force: keys for logging in, and quotas.
//!
//! A name that is not there gets keys too, made up of a hash of the name, with salt and iterations
//! as a user's that is there could be. So the answers, and the time that they take, tell nothing
//! of which names there are.

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

/// Most users of one file.
pub const USER_COUNT_MAX: usize = 100_000;

/// Shortest key that made-up salts are drawn with, in bytes.
const DECOY_KEY_BYTES_MIN: usize = 16;

/// The users of one file at one instant. Never changes: a reload makes others.
#[derive(Debug)]
pub struct Users {
    users: BTreeMap<String, UserEntry>,
    default_quota: QuotaSettings,
    decoy_key: hmac::Key,
    /// How keys of users look, for each hash and for PLAIN.
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

/// The file of users.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct UserTable {
    pub(crate) version: u32,
    /// Key from which made-up salts are drawn, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decoy_key: Option<String>,
    #[serde(default, skip_serializing_if = "QuotaSettings::is_empty")]
    pub(crate) default_quota: QuotaSettings,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) users: BTreeMap<UserName, UserEntry>,
}

/// A name that the file may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct UserName(pub(crate) String);

/// Keys in their text form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct KeysText(pub(crate) ScramKeys);

/// How the keys of a user look from outside.
#[derive(Clone, Copy, Debug)]
struct Shape {
    hash: ScramHash,
    iterations: u32,
    salt_bytes: usize,
}

/// The keys that a login is checked against.
pub(crate) struct Candidate {
    pub(crate) keys: ScramKeys,
    /// Otherwise they are made up and no login succeeds.
    pub(crate) is_known: bool,
}

impl Users {
    /// No user at all.
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
            return Err(file.wrong(&format!("decoy-key is not {form}; take the line out")));
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

    /// All names, in order, with the hashes that they have secrets for.
    pub fn list(&self) -> impl Iterator<Item = UserInfo<'_>> {
        self.users.iter().map(|(name, user)| UserInfo {
            name,
            hashes: user.secrets.iter().map(|KeysText(keys)| keys.hash()).collect(),
        })
    }

    /// Entries of each user in the file, in the order of names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &UserEntry)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user))
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&UserEntry> {
        self.users.get(name)
    }

    pub(crate) fn default_quota(&self) -> &QuotaSettings {
        &self.default_quota
    }

    /// Returns whether there is a user of this name that can log in.
    pub fn can_log_in(&self, name: &str) -> bool {
        self.users.get(name).is_some_and(|user| !user.secrets.is_empty())
    }

    /// Returns whether this is the user's secret. Takes milliseconds, whatever the answer.
    pub fn verify(&self, name: &str, secret: &[u8]) -> bool {
        let candidate = self.candidate(name, None);
        let fits = candidate.keys.are_of(secret);
        fits && candidate.is_known
    }

    /// Quota of the principal: its own settings, else the file's defaults, else the built-in.
    pub fn quota_of(&self, principal: &Principal) -> QuotaLimits {
        let own = self.users.get(principal.name()).map(|user| &user.quota);
        QuotaLimits::resolve(own.unwrap_or(&QuotaSettings::default()), &self.default_quota)
    }

    /// The user's keys for `hash`, or for PLAIN the first that there are; or made-up ones.
    pub(crate) fn candidate(&self, name: &str, hash: Option<ScramHash>) -> Candidate {
        // They are always made up, so that a name that is there takes as long.
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

/// A user as it appears in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo<'a> {
    pub name: &'a str,
    /// Without any the user cannot log in by SASL; the entry gives quotas.
    pub hashes: Vec<ScramHash>,
}

impl UserEntry {
    /// Returns whether the file says nothing by it.
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
        // The subjects of certificates have entries as well, for quotas.
        Principal::user(&name)?;
        if name == "*" {
            let what = "* is no user's name: in access lists it is each principal";
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

/// Why an entry that can be read cannot be used.
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

/// A key for files without one: as secret as the users' keys, and the same after a restart.
fn fingerprint(table: &UserTable) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA512);
    for user in table.users.values() {
        for KeysText(keys) in &user.secrets {
            context.update(keys.to_string().as_bytes());
        }
    }
    context.finish().as_ref().to_vec()
}
