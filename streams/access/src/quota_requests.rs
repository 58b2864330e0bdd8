//! DescribeClientQuotas and AlterClientQuotas (KIP-546), by Kafka's schemas: rates of single users,
//! and the default rates of all others. The broker has already authorized the request:
//! DescribeConfigs or AlterConfigs on the cluster.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::{EntryData as WantedEntry, OpData};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, alter_client_quotas_response, describe_client_quotas_response,
};

use crate::error::{AccessError, text};
use crate::limits::QuotaSettings;
use crate::user_file::{UserFile, user_name};
use crate::users::UserTable;

const USER: &str = "user";
const OTHER_KINDS: [&str; 2] = ["client-id", "ip"];

const PRODUCE: &str = "producer_byte_rate";
const FETCH: &str = "consumer_byte_rate";

/// Match types of a filter.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

/// Error code and message of a rejected entry.
type Refused = (ResponseError, String);

/// Requested rates of one user, or the default rates.
struct Wanted<'a> {
    user: Option<&'a str>,
    rates: Vec<(bool, Option<NonZeroU64>)>,
}

fn invalid(what: impl Into<String>) -> Refused {
    (ResponseError::InvalidRequest, what.into())
}

impl UserFile {
    /// Returns the configured rates of the users that match a filter.
    pub fn describe_quotas(
        &self,
        request: &DescribeClientQuotasRequest,
    ) -> DescribeClientQuotasResponse {
        let response = DescribeClientQuotasResponse::default().with_error_message(None);
        if let Err((error, what)) = check_filter(&request.components) {
            return response
                .with_error_code(error.code())
                .with_error_message(Some(text(what)))
                .with_entries(None);
        }
        let is_user = |it: &ComponentData| &*it.entity_type == USER;
        let asks_for = |name: Option<&str>| {
            let fits = |it: &ComponentData| match it.match_type {
                EXACT => is_user(it) && name == it._match.as_deref(),
                DEFAULT => is_user(it) && name.is_none(),
                _ => is_user(it),
            };
            request.components.iter().all(fits)
                && !(request.strict && request.components.is_empty())
        };
        let users = self.users();
        let all = users.entries().map(|(name, user)| (Some(name), &user.quota));
        let all = std::iter::once((None, users.default_quota())).chain(all);
        let entries = all.filter(|(name, _)| asks_for(*name)).filter_map(|(name, quota)| {
            let values = values_of(quota);
            (!values.is_empty()).then(|| {
                let entity = describe_client_quotas_response::EntityData::default()
                    .with_entity_type(text(USER))
                    .with_entity_name(name.map(text));
                describe_client_quotas_response::EntryData::default()
                    .with_entity(vec![entity])
                    .with_values(values)
            })
        });
        response.with_entries(Some(entries.collect()))
    }

    /// Changes the rates of valid entries with one replacement of the file, and returns an error
    /// for each of the others.
    pub fn alter_quotas(
        &mut self,
        request: &AlterClientQuotasRequest,
    ) -> AlterClientQuotasResponse {
        let checked: Vec<_> = request.entries.iter().map(wanted_of).collect();
        let any = checked.iter().any(Result::is_ok);
        let stored = match any && !request.validate_only {
            true => self.change(|table| {
                checked.iter().flatten().try_for_each(|wanted| apply(table, wanted))
            }),
            false => Ok(()),
        };
        let stored = stored.map_err(AccessError::code_and_text);
        let results = checked.into_iter().map(|it| it.and_then(|_| stored.clone()));
        answered(request, results)
    }
}

/// Builds the response to a request that was rejected as a whole.
pub fn refuse_quotas(
    request: &AlterClientQuotasRequest,
    error: ResponseError,
    why: &str,
) -> AlterClientQuotasResponse {
    answered(request, request.entries.iter().map(|_| Err((error, why.to_owned()))))
}

fn answered(
    request: &AlterClientQuotasRequest,
    results: impl Iterator<Item = Result<(), Refused>>,
) -> AlterClientQuotasResponse {
    let entries = request.entries.iter().zip(results).map(|(entry, result)| {
        let entity = entry.entity.iter().map(|it| {
            alter_client_quotas_response::EntityData::default()
                .with_entity_type(it.entity_type.clone())
                .with_entity_name(it.entity_name.clone())
        });
        let answer = alter_client_quotas_response::EntryData::default()
            .with_error_message(None)
            .with_entity(entity.collect());
        match result {
            Ok(()) => answer,
            Err((error, what)) => {
                answer.with_error_code(error.code()).with_error_message(Some(text(what)))
            }
        }
    });
    AlterClientQuotasResponse::default().with_entries(entries.collect())
}

#[allow(clippy::cast_precision_loss, reason = "Kafka has rates as such numbers")]
fn values_of(quota: &QuotaSettings) -> Vec<describe_client_quotas_response::ValueData> {
    let rates = [(PRODUCE, quota.produce_bytes_per_second), (FETCH, quota.fetch_bytes_per_second)];
    let rates = rates.into_iter().filter_map(|(key, rate)| Some((key, rate?)));
    let values = rates.map(|(key, rate)| {
        describe_client_quotas_response::ValueData::default()
            .with_key(text(key))
            .with_value(rate.get() as f64)
    });
    values.collect()
}

fn check_filter(components: &[ComponentData]) -> Result<(), Refused> {
    let mut seen = BTreeSet::new();
    for component in components {
        let kind = &*component.entity_type;
        if kind != USER && !OTHER_KINDS.contains(&kind) {
            let what = format!("unsupported quota entity {kind:?}");
            return Err((ResponseError::UnsupportedVersion, what));
        }
        if !seen.insert(kind) {
            return Err(invalid(format!("duplicate entity type {kind:?} in the filter")));
        }
        match (component.match_type, &component._match) {
            (EXACT, Some(_)) | (DEFAULT | ANY, None) => {}
            (EXACT, None) => {
                return Err(invalid(format!("an exact-match filter for {kind} requires a name")));
            }
            (DEFAULT | ANY, Some(_)) => {
                return Err(invalid(format!("a filter for every {kind} must not have a name")));
            }
            (other, _) => return Err(invalid(format!("unknown match type {other}"))),
        }
    }
    Ok(())
}

fn wanted_of(entry: &WantedEntry) -> Result<Wanted<'_>, Refused> {
    let [entity] = &*entry.entity else {
        return Err(invalid(
            "quotas require one entity, a user or the default user; combinations are not supported",
        ));
    };
    if &*entity.entity_type != USER {
        return Err(invalid(format!(
            "unsupported quota entity {:?}: only users can have quotas",
            &*entity.entity_type
        )));
    }
    let user = entity.entity_name.as_deref();
    if let Some(name) = user {
        user_name(name).map_err(|error| invalid(error.to_string()))?;
    }
    let mut seen = BTreeSet::new();
    let rates = entry.ops.iter().map(|change| {
        if !seen.insert(&*change.key) {
            return Err(invalid(format!("duplicate quota key {:?} in the request", &*change.key)));
        }
        let is_produce = match &*change.key {
            PRODUCE => true,
            FETCH => false,
            key => {
                let what = format!("invalid quota key {key:?}; use {PRODUCE} or {FETCH}");
                return Err(invalid(what));
            }
        };
        Ok((is_produce, rate_of(change)?))
    });
    Ok(Wanted { user, rates: rates.collect::<Result<_, _>>()? })
}

/// Parses a rate, which must be a whole number of bytes; `None` if it is to be removed.
fn rate_of(change: &OpData) -> Result<Option<NonZeroU64>, Refused> {
    if change.remove {
        return Ok(None);
    }
    let whole = (change.value.fract() == 0.0).then(|| format!("{:.0}", change.value));
    let rate = whole.and_then(|it| it.parse::<i64>().ok()).and_then(|it| u64::try_from(it).ok());
    let rate = rate.and_then(NonZeroU64::new).ok_or_else(|| {
        invalid(format!(
            "invalid quota value {} = {}; use an integer greater than 0",
            &*change.key, change.value
        ))
    })?;
    Ok(Some(rate))
}

fn apply(table: &mut UserTable, wanted: &Wanted<'_>) -> Result<(), AccessError> {
    let set = |quota: &mut QuotaSettings| {
        for (is_produce, rate) in &wanted.rates {
            match is_produce {
                true => quota.produce_bytes_per_second = *rate,
                false => quota.fetch_bytes_per_second = *rate,
            }
        }
    };
    let Some(name) = wanted.user else {
        set(&mut table.default_quota);
        return Ok(());
    };
    let name = user_name(name)?;
    let user = table.users.entry(name.clone()).or_default();
    set(&mut user.quota);
    if user.is_empty() {
        table.users.remove(&name);
    }
    Ok(())
}
