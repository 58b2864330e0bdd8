//! Changes of settings: incremental, or replacing all settings of a resource.

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
use crate::broker_settings;
use crate::topics::{Change, Kind, Refusal, Setting, find_setting};

/// Operations on a setting (KIP-339).
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Resource in a request: its kind, its name, and the names of its settings.
struct Named<'a> {
    kind: i8,
    name: &'a StrBytes,
    settings: Vec<&'a StrBytes>,
}

/// Common part of both kinds of requests.
struct Request<'a> {
    context: &'a Context,
    validate_only: bool,
    resources: Vec<Named<'a>>,
    /// Resources that the request names more than once.
    twice: BTreeSet<(i8, StrBytes)>,
}

pub(in super::super) async fn alter(
    context: Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    use incremental_alter_configs_response::AlterConfigsResourceResponse;
    on_blocking_thread(context.client.owner(), move || {
        let named = request.resources.iter().map(|resource| Named {
            kind: resource.resource_type,
            name: &resource.resource_name,
            settings: resource.configs.iter().map(|it| &it.name).collect(),
        });
        let named = Request::new(&context, request.validate_only, named);
        let responses = request.resources.iter().zip(&named.resources).map(|(resource, it)| {
            let known = Known::of(&context, resource.resource_type);
            let (code, message) = named.change(it, &|own| {
                resource.configs.iter().try_for_each(|change| known.apply(own, change))
            });
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

/// AlterConfigs, the older request: settings that it does not name are reset to their defaults.
pub(in super::super) async fn replace(
    context: Context,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    use alter_configs_response::AlterConfigsResourceResponse;
    on_blocking_thread(context.client.owner(), move || {
        let named = request.resources.iter().map(|resource| Named {
            kind: resource.resource_type,
            name: &resource.resource_name,
            settings: resource.configs.iter().map(|it| &it.name).collect(),
        });
        let named = Request::new(&context, request.validate_only, named);
        let responses = request.resources.iter().zip(&named.resources).map(|(resource, it)| {
            let known = Known::of(&context, resource.resource_type);
            let (code, message) = named.change(it, &|own| {
                own.clear();
                resource.configs.iter().try_for_each(|it| {
                    known.set(own, &it.name, it.value.as_deref().ok_or_else(|| no_value(&it.name))?)
                })
            });
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

impl<'a> Request<'a> {
    fn new(
        context: &'a Context,
        validate_only: bool,
        resources: impl Iterator<Item = Named<'a>>,
    ) -> Self {
        let resources: Vec<_> = resources.collect();
        let mut seen = BTreeSet::new();
        let keys = resources.iter().map(|it| (it.kind, it.name.clone()));
        let twice = keys.filter(|key| !seen.insert(key.clone())).collect();
        Self { context, validate_only, resources, twice }
    }

    /// Changes the settings of one resource. Returns the error's code and message, or 0.
    fn change(&self, named: &Named<'_>, change: &Change<'_>) -> (i16, Option<StrBytes>) {
        match self.check(named).and_then(|()| self.try_change(named, change)) {
            Ok(()) => (0, None),
            Err(refusal) => (refusal.error.code(), Some(text(refusal.message))),
        }
    }

    /// Rejects repeated names, which are ambiguous.
    fn check(&self, named: &Named<'_>) -> Result<(), Refusal> {
        let refuse = |what| Err(Refusal::new(ResponseError::InvalidRequest, what));
        if self.twice.contains(&(named.kind, named.name.clone())) {
            return refuse(format!("duplicate resource {:?} in the request", &**named.name));
        }
        let mut seen = BTreeSet::new();
        match named.settings.iter().find(|setting| !seen.insert(**setting)) {
            Some(setting) => refuse(format!("duplicate setting {:?} in the request", &***setting)),
            None => Ok(()),
        }
    }

    fn try_change(&self, named: &Named<'_>, change: &Change<'_>) -> Result<(), Refusal> {
        let Named { kind, name, settings } = named;
        check(self.context, Operation::AlterConfigs, *kind, name)?;
        let refuse = |what: &str| Err(Refusal::new(ResponseError::InvalidRequest, what));
        match *kind {
            TOPIC => self.context.broker.topics.configure(name, self.validate_only, change),
            BROKER if !name.is_empty() && check_node(name).is_err() => check_node(name),
            BROKER => self.context.broker.settings.configure(name, self.validate_only, change),
            GROUP if settings.is_empty() => Ok(()),
            GROUP => refuse("groups have no settings of their own; they use the broker's"),
            _ => Err(no_such_resource()),
        }
    }
}

/// Settings that exist for a kind of resource.
struct Known<'a> {
    find: fn(&str) -> Option<&'static Setting>,
    defaults: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Known<'a> {
    fn of(context: &'a Context, kind: i8) -> Self {
        match kind {
            BROKER => Self { find: broker_settings::find, defaults: None },
            _ => Self { find: find_setting, defaults: Some(&context.broker.topics.defaults) },
        }
    }

    fn apply(
        &self,
        own: &mut BTreeMap<String, String>,
        change: &AlterableConfig,
    ) -> Result<(), Refusal> {
        let name = &*change.name;
        let refuse = |what: String| Err(Refusal::new(ResponseError::InvalidConfig, what));
        if change.config_operation == DELETE {
            // Unknown settings can be deleted, too.
            own.remove(name);
            return Ok(());
        }
        let setting = (self.find)(name).ok_or_else(|| self.no_setting(name))?;
        let value = change.value.as_deref().ok_or_else(|| no_value(name))?;
        let is_list = matches!(setting.kind, Kind::Choices(_) | Kind::Replicas);
        let before = own.get(name).or_else(|| self.defaults?.get(name));
        let before = before.map_or(setting.default, |it| it);
        let parts = |list: &str| -> Vec<String> {
            let parts = list.split(',').map(str::trim).filter(|it| !it.is_empty());
            parts.map(str::to_owned).collect()
        };
        let (mut listed, named) = (parts(before), parts(value));
        let changed = match change.config_operation {
            SET => value.to_owned(),
            APPEND if is_list => {
                let added: Vec<_> = named.into_iter().filter(|it| !listed.contains(it)).collect();
                listed.extend(added);
                listed.join(",")
            }
            SUBTRACT if is_list => {
                listed.retain(|it| !named.contains(it));
                listed.join(",")
            }
            APPEND | SUBTRACT => return refuse(format!("setting {name:?} is not a list")),
            other => return refuse(format!("unknown operation {other} on settings")),
        };
        self.set(own, name, &changed)
    }

    fn set(
        &self,
        own: &mut BTreeMap<String, String>,
        name: &str,
        value: &str,
    ) -> Result<(), Refusal> {
        (self.find)(name).ok_or_else(|| self.no_setting(name))?;
        own.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn no_setting(&self, name: &str) -> Refusal {
        match self.defaults {
            Some(_) => {
                let what = format!("unknown topic setting {name:?}");
                Refusal::new(ResponseError::InvalidConfig, what)
            }
            None => {
                let what = format!(
                    "broker setting {name:?} cannot be changed at run time; change the \
                     configuration file and restart the broker"
                );
                Refusal::new(ResponseError::InvalidRequest, what)
            }
        }
    }
}

fn no_value(name: &str) -> Refusal {
    Refusal::new(
        ResponseError::InvalidRequest,
        format!("null value not supported for setting {name:?}"),
    )
}
