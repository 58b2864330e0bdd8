//! DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), by Kafka's schemas. The
//! broker has already authorized the request: Describe or Alter on the cluster.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials_response as altered,
};
use sasl::{ScramHash, ScramKeys, check_name};

use crate::error::{AccessError, text};
use crate::principal::Principal;
use crate::user_file::{UserFile, user_name};
use crate::users::{KeysText, UserEntry, Users};

/// Error code and message for a rejected user.
type Refused = (ResponseError, String);

/// A change of one user's keys for one hash. `None` deletes them.
struct Step {
    hash: ScramHash,
    keys: Option<ScramKeys>,
}

/// Requested changes of one user.
#[derive(Default)]
struct Wanted {
    steps: Vec<Step>,
    refused: Option<Refused>,
}

fn hash_of(mechanism: i8) -> Option<ScramHash> {
    match mechanism {
        1 => Some(ScramHash::Sha256),
        2 => Some(ScramHash::Sha512),
        _ => None,
    }
}

fn code_of(hash: ScramHash) -> i8 {
    match hash {
        ScramHash::Sha256 => 1,
        ScramHash::Sha512 => 2,
    }
}

impl UserFile {
    /// Returns mechanisms and iteration counts of all users with credentials, or of the named ones.
    pub fn describe_scram(
        &self,
        request: &DescribeUserScramCredentialsRequest,
    ) -> DescribeUserScramCredentialsResponse {
        let users = self.users();
        let response = DescribeUserScramCredentialsResponse::default().with_error_message(None);
        let named = request.users.as_deref().unwrap_or_default();
        if named.is_empty() {
            let all = users.entries().filter(|(_, user)| !user.secrets.is_empty());
            return response.with_results(all.map(|(name, user)| described(name, user)).collect());
        }
        let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
        for user in named {
            if !seen.insert(&*user.name) {
                twice.insert(&*user.name);
            }
        }
        let results = seen.into_iter().map(|name| {
            let known = users.entry(name).filter(|user| !user.secrets.is_empty());
            let (error, what) = match known {
                _ if twice.contains(name) => (
                    ResponseError::DuplicateResource,
                    "cannot describe SCRAM credentials for the same user twice in a single request",
                ),
                Some(user) => return described(name, user),
                None => (
                    ResponseError::ResourceNotFound,
                    "attempt to describe a user credential that does not exist",
                ),
            };
            DescribeUserScramCredentialsResult::default()
                .with_user(text(name))
                .with_error_code(error.code())
                .with_error_message(Some(text(what)))
        });
        response.with_results(results.collect())
    }

    /// Sets and deletes credentials with one replacement of the file. The changes of each user are
    /// applied completely or not at all.
    pub fn alter_scram(
        &mut self,
        request: &AlterUserScramCredentialsRequest,
    ) -> AlterUserScramCredentialsResponse {
        let mut wanted = wanted_of(self.users(), request);
        if wanted.values().any(|it| it.refused.is_none()) {
            let stored = self.change(|table| {
                for (name, wanted) in wanted.iter_mut().filter(|(_, it)| it.refused.is_none()) {
                    let name = user_name(name)?;
                    let user = table.users.entry(name.clone()).or_default();
                    for Step { hash, keys } in wanted.steps.drain(..) {
                        user.secrets.retain(|KeysText(known)| known.hash() != hash);
                        user.secrets.extend(keys.map(KeysText));
                    }
                    if user.is_empty() {
                        table.users.remove(&name);
                    }
                }
                Ok(())
            });
            if let Err(refused) = stored.map_err(AccessError::code_and_text) {
                for wanted in wanted.values_mut().filter(|it| it.refused.is_none()) {
                    wanted.refused = Some(refused.clone());
                }
            }
        }
        let results = wanted.into_iter().map(|(name, wanted)| {
            let result = altered::AlterUserScramCredentialsResult::default()
                .with_user(text(name))
                .with_error_message(None);
            match wanted.refused {
                None => result,
                Some((error, what)) => {
                    result.with_error_code(error.code()).with_error_message(Some(text(what)))
                }
            }
        });
        AlterUserScramCredentialsResponse::default().with_results(results.collect())
    }
}

fn described(name: &str, user: &UserEntry) -> DescribeUserScramCredentialsResult {
    let infos = user.secrets.iter().map(|KeysText(keys)| {
        CredentialInfo::default()
            .with_mechanism(code_of(keys.hash()))
            .with_iterations(i32::try_from(keys.iterations()).unwrap_or(i32::MAX))
    });
    DescribeUserScramCredentialsResult::default()
        .with_user(text(name))
        .with_error_message(None)
        .with_credential_infos(infos.collect())
}

fn wanted_of<'a>(
    users: &Users,
    request: &'a AlterUserScramCredentialsRequest,
) -> BTreeMap<&'a str, Wanted> {
    let deletions = request.deletions.iter().map(|it| (&*it.name, deletion(users, it)));
    let upsertions = request.upsertions.iter().map(|it| (&*it.name, upsertion(it)));
    let mut all: BTreeMap<&str, Wanted> = BTreeMap::new();
    for (name, step) in deletions.chain(upsertions) {
        let wanted = all.entry(name).or_default();
        let checked = step.and_then(|step| {
            if wanted.steps.iter().any(|other| other.hash == step.hash) {
                let what = "a user credential cannot be altered twice in the same request";
                return Err((ResponseError::DuplicateResource, what.to_owned()));
            }
            Ok(step)
        });
        match checked {
            Ok(step) => wanted.steps.push(step),
            Err(refused) => {
                wanted.refused.get_or_insert(refused);
            }
        }
    }
    all
}

fn mechanism(code: i8) -> Result<ScramHash, Refused> {
    hash_of(code).ok_or_else(|| {
        let what = format!("unknown SCRAM mechanism {code}; use 1 (SHA-256) or 2 (SHA-512)");
        (ResponseError::UnsupportedSaslMechanism, what)
    })
}

fn deletion(users: &Users, deletion: &ScramCredentialDeletion) -> Result<Step, Refused> {
    let hash = mechanism(deletion.mechanism)?;
    let known = users.entry(&deletion.name).is_some_and(|user| user.keys(Some(hash)).is_some());
    if known {
        return Ok(Step { hash, keys: None });
    }
    let what = format!(
        "attempt to delete a user credential that does not exist: {}",
        hash.mechanism_name()
    );
    Err((ResponseError::ResourceNotFound, what))
}

fn upsertion(upsertion: &ScramCredentialUpsertion) -> Result<Step, Refused> {
    let hash = mechanism(upsertion.mechanism)?;
    let refused = |what: String| (ResponseError::UnacceptableCredential, what);
    check_name(&upsertion.name).map_err(|error| refused(error.to_string()))?;
    user_name(&upsertion.name).map_err(|error| refused(error.to_string()))?;
    if &*upsertion.name == Principal::anonymous().name() {
        let what =
            "ANONYMOUS is the principal of unauthenticated clients and cannot have a password";
        return Err(refused(what.to_owned()));
    }
    let iterations = u32::try_from(upsertion.iterations).unwrap_or(0);
    let keys = ScramKeys::of_salted_password(
        hash,
        &upsertion.salted_password,
        &upsertion.salt,
        iterations,
    );
    let keys = keys.map_err(|error| refused(error.to_string()))?;
    Ok(Step { hash, keys: Some(keys) })
}
