//! Commands on access rules (ACLs).

use std::sync::Arc;

use kafka_client::{AclBinding, AclFilter, Client, PatternType, Permission, ResourceType};
use serde_json::{Value, json};

use crate::arguments::streams::{AclCommand, AclResource};
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table, View};

/// Name of the only resource of type cluster.
const CLUSTER: &str = "kafka-cluster";

pub(super) async fn run(client: Arc<Client>, command: AclCommand) -> Result<Report, Failure> {
    match command {
        AclCommand::List { resource, user, view } => {
            let principal = user.as_deref().map(principal);
            let rules = client.acls(&AclFilter { principal, ..filter(&resource) }).await?;
            rules_report(&rules, &view)
        }
        AclCommand::Add { user, operations, resource, deny, host } => {
            let Some((resource_type, resource_name)) = named(&resource) else {
                return Err(Failure::usage(
                    "no resource given; use --topic, --group, --transactional-id or --cluster",
                ));
            };
            let pattern =
                if resource.prefix { PatternType::Prefixed } else { PatternType::Literal };
            let rule = |operation| AclBinding {
                resource_type,
                resource_name: resource_name.clone(),
                pattern,
                principal: principal(&user),
                host: host.clone(),
                operation,
                permission: if deny { Permission::Deny } else { Permission::Allow },
            };
            let rules: Vec<_> = operations.into_iter().map(rule).collect();
            for rule in &rules {
                client.add_acl(rule).await?;
            }
            Ok(Report::silent(&rules.iter().map(rule_json).collect::<Value>()))
        }
        AclCommand::Remove { user, operations, resource } => {
            let filter = AclFilter { principal: Some(principal(&user)), ..filter(&resource) };
            let wanted = match operations.is_empty() {
                true => vec![None],
                false => operations.into_iter().map(Some).collect(),
            };
            let mut removed = Vec::new();
            for operation in wanted {
                let filter = AclFilter { operation, ..filter.clone() };
                removed.extend(client.remove_acls(&filter).await?);
            }
            if removed.is_empty() {
                let context =
                    format!("no access rule of user {user:?} matches; see memlane acl list");
                return Err(Failure::not_found(context));
            }
            rules_report(&removed, &View::default())
        }
    }
}

/// Returns the principal of a user in rules.
fn principal(user: &str) -> String {
    if user.contains(':') { user.to_owned() } else { format!("User:{user}") }
}

fn named(resource: &AclResource) -> Option<(ResourceType, String)> {
    let AclResource { topic, group, transactional_id, cluster, .. } = resource;
    let cluster = cluster.then(|| CLUSTER.to_owned());
    [
        (ResourceType::Topic, topic.clone()),
        (ResourceType::Group, group.clone()),
        (ResourceType::TransactionalId, transactional_id.clone()),
        (ResourceType::Cluster, cluster),
    ]
    .into_iter()
    .find_map(|(resource_type, name)| Some((resource_type, name?)))
}

fn filter(resource: &AclResource) -> AclFilter {
    let named = named(resource);
    AclFilter {
        resource_type: named.as_ref().map(|(resource_type, _)| *resource_type),
        resource_name: named.map(|(_, name)| name),
        pattern: resource.prefix.then_some(PatternType::Prefixed),
        ..AclFilter::default()
    }
}

fn rule_json(it: &AclBinding) -> Value {
    json!({
        "user": it.principal,
        "permission": it.permission.name(),
        "operation": it.operation.name(),
        "resource": it.resource_type.name(),
        "name": it.resource_name,
        "pattern": it.pattern.name(),
        "host": it.host,
    })
}

fn rules_report(rules: &[AclBinding], view: &View) -> Result<Report, Failure> {
    let table = Table::of(
        rules,
        &[
            ("USER", &|it| Cell::text(&it.principal)),
            ("PERMISSION", &|it| Cell::text(it.permission.name())),
            ("OPERATION", &|it| Cell::text(it.operation.name())),
            ("RESOURCE", &|it| Cell::text(it.resource_type.name())),
            ("NAME", &|it| Cell::text(&it.resource_name)),
            ("PATTERN", &|it| Cell::text(it.pattern.name())),
            ("HOST", &|it| Cell::text(&it.host)),
        ],
    );
    Ok(Report::of(table.viewed(view)?, &rules.iter().map(rule_json).collect::<Value>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_in_rules_have_their_kind_before_them() {
        assert_eq!(principal("alice"), "User:alice");
        assert_eq!(principal("User:alice"), "User:alice");
        assert_eq!(principal("*"), "User:*");
    }

    #[test]
    fn a_rule_is_about_what_is_named() {
        let none = AclResource {
            topic: None,
            group: None,
            transactional_id: None,
            cluster: false,
            prefix: false,
        };
        assert_eq!(named(&none), None);
        let cluster = AclResource { cluster: true, ..none.clone() };
        assert_eq!(named(&cluster), Some((ResourceType::Cluster, CLUSTER.to_owned())));
        let topics = AclResource { topic: Some("a".to_owned()), prefix: true, ..none };
        let filter = filter(&topics);
        assert_eq!(filter.resource_name.as_deref(), Some("a"));
        assert_eq!(filter.pattern, Some(PatternType::Prefixed));
        assert_eq!(filter.operation, None);
    }
}
