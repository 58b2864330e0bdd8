//! Changes of settings: one by one, or all of a resource at once.

use std::collections::{BTreeMap, BTreeSet};

use access::Operation;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};
use kafka_protocol::protocol::StrBytes;

use super::super::{Context, on_blocking_thread, text};
use super::{BROKER, GROUP, TOPIC, check, check_node, no_such_resource};
use crate::topics::{Change, Kind, Refusal, find_setting};

/// Operations on a setting (KIP-339).
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// A resource of a request: its kind, its name, and the names of the settings that it has.
struct Named<'a> {
    kind: i8,
    name: &'a StrBytes,
    settings: Vec<&'a StrBytes>,
}

pub(in super::super) async fn alter(
    context: Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    use incremental_alter_configs_response::AlterConfigsResourceResponse;
    on_blocking_thread(move || {
        let named = request.resources.iter().map(|resource| Named {
            kind: resource.resource_type,
            name: &resource.resource_name,
            settings: resource.configs.iter().map(|it| &it.name).collect(),
        });
        let named: Vec<_> = named.collect();
        let twice = named_twice(&named);
        let defaults = &context.broker.topics.defaults;
        let responses = request.resources.iter().zip(&named).map(|(resource, named)| {
            let changed = named.check(&twice).and_then(|()| {
                change(&context, named, request.validate_only, &|own| {
                    resource.configs.iter().try_for_each(|change| apply(own, defaults, change))
                })
            });
            let (code, message) = told(changed);
            AlterConfigsResourceResponse::default()
                .with_error_code(code)
                .with_error_message(message)
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
        });
        IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
    })
    .await
}

/// AlterConfigs, which came before the other: what it does not name has its default again.
pub(in super::super) async fn replace(
    context: Context,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    use alter_configs_response::AlterConfigsResourceResponse;
    on_blocking_thread(move || {
        let named = request.resources.iter().map(|resource| Named {
            kind: resource.resource_type,
            name: &resource.resource_name,
            settings: resource.configs.iter().map(|it| &it.name).collect(),
        });
        let named: Vec<_> = named.collect();
        let twice = named_twice(&named);
        let responses = request.resources.iter().zip(&named).map(|(resource, named)| {
            let changed = named.check(&twice).and_then(|()| {
                change(&context, named, request.validate_only, &|own| {
                    own.clear();
                    resource.configs.iter().try_for_each(|it| {
                        set(own, &it.name, it.value.as_deref().ok_or_else(|| no_value(&it.name))?)
                    })
                })
            });
            let (code, message) = told(changed);
            AlterConfigsResourceResponse::default()
                .with_error_code(code)
                .with_error_message(message)
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
        });
        AlterConfigsResponse::default().with_responses(responses.collect())
    })
    .await
}

/// The error's code and message, or 0.
fn told(changed: Result<(), Refusal>) -> (i16, Option<StrBytes>) {
    match changed {
        Ok(()) => (0, None),
        Err(refusal) => (refusal.error.code(), Some(text(refusal.message))),
    }
}

/// Resources that a request names more than once.
fn named_twice(named: &[Named<'_>]) -> BTreeSet<(i8, StrBytes)> {
    let mut seen = BTreeSet::new();
    let keys = named.iter().map(|it| (it.kind, it.name.clone()));
    keys.filter(|key| !seen.insert(key.clone())).collect()
}

impl Named<'_> {
    /// What is named twice means nothing.
    fn check(&self, twice: &BTreeSet<(i8, StrBytes)>) -> Result<(), Refusal> {
        let refuse = |what| Err(Refusal::new(ResponseError::InvalidRequest, what));
        if twice.contains(&(self.kind, self.name.clone())) {
            return refuse(format!("the request names {:?} more than once", &**self.name));
        }
        let mut seen = BTreeSet::new();
        match self.settings.iter().find(|setting| !seen.insert(**setting)) {
            Some(setting) => {
                refuse(format!("the request names setting {:?} more than once", &***setting))
            }
            None => Ok(()),
        }
    }
}

fn change(
    context: &Context,
    Named { kind, name, settings }: &Named<'_>,
    validate_only: bool,
    change: &Change<'_>,
) -> Result<(), Refusal> {
    check(context, Operation::AlterConfigs, *kind, name)?;
    let refuse = |what: &str| Err(Refusal::new(ResponseError::InvalidRequest, what));
    match *kind {
        TOPIC => context.broker.topics.configure(name, validate_only, change),
        BROKER if !name.is_empty() && check_node(name).is_err() => check_node(name),
        BROKER | GROUP if settings.is_empty() => Ok(()),
        BROKER => refuse("the broker's settings are in its configuration file"),
        GROUP => refuse("groups have the broker's settings, and none of their own"),
        _ => Err(no_such_resource()),
    }
}

fn apply(
    own: &mut BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
    change: &AlterableConfig,
) -> Result<(), Refusal> {
    let name = &*change.name;
    let refuse = |what: String| Err(Refusal::new(ResponseError::InvalidConfig, what));
    let setting = find_setting(name).ok_or_else(|| no_setting(name))?;
    if change.config_operation == DELETE {
        own.remove(name);
        return Ok(());
    }
    let value = change.value.as_deref().ok_or_else(|| no_value(name))?;
    let is_list = matches!(setting.kind, Kind::Choices(_));
    let before = own.get(name).or_else(|| defaults.get(name)).map_or(setting.default, |it| it);
    let listed = before.split(',').map(str::trim).filter(|it| !it.is_empty());
    let changed = match change.config_operation {
        SET => value.to_owned(),
        APPEND if is_list => {
            let added = value.split(',').map(str::trim).filter(|it| !before.contains(it));
            listed.chain(added).collect::<Vec<_>>().join(",")
        }
        SUBTRACT if is_list => {
            let removed: Vec<&str> = value.split(',').map(str::trim).collect();
            listed.filter(|it| !removed.contains(it)).collect::<Vec<_>>().join(",")
        }
        APPEND | SUBTRACT => return refuse(format!("setting {name:?} is not a list")),
        other => return refuse(format!("there is no operation {other} on settings")),
    };
    set(own, name, &changed)
}

fn set(own: &mut BTreeMap<String, String>, name: &str, value: &str) -> Result<(), Refusal> {
    find_setting(name).ok_or_else(|| no_setting(name))?;
    own.insert(name.to_owned(), value.to_owned());
    Ok(())
}

fn no_setting(name: &str) -> Refusal {
    let what = format!("there is no setting {name:?} of topics");
    Refusal::new(ResponseError::InvalidConfig, what)
}

fn no_value(name: &str) -> Refusal {
    Refusal::new(ResponseError::InvalidRequest, format!("setting {name:?} is given no value"))
}
