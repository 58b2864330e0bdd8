//! Access control lists (ACLs).

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};

use crate::client::{Client, text};
use crate::error::{ClientError, check};
use crate::topics::no_result;

/// Code for "any" in a filter.
const ANY: i8 = 1;

/// Defines an enum with the code of each case in the protocol and its name in Kafka's tools.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($case:ident = $code:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($case),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$case),*];

            /// The name in Kafka's tools.
            pub fn name(self) -> &'static str {
                match self { $(Self::$case => $word),* }
            }

            fn code(self) -> i8 {
                match self { $(Self::$case => $code),* }
            }

            fn of_code(code: i8) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.code() == code)
            }
        }
    };
}

codes! {
    /// Type of the resource that an ACL applies to.
    ResourceType {
        Topic = 2, "topic";
        Group = 3, "group";
        Cluster = 4, "cluster";
        TransactionalId = 5, "transactional-id";
    }
}

codes! {
    /// Interpretation of an ACL's resource name: an exact name or a prefix.
    PatternType {
        Literal = 3, "literal";
        Prefixed = 4, "prefixed";
    }
}

codes! {
    AclOperation {
        All = 2, "all";
        Read = 3, "read";
        Write = 4, "write";
        Create = 5, "create";
        Delete = 6, "delete";
        Alter = 7, "alter";
        Describe = 8, "describe";
        ClusterAction = 9, "cluster-action";
        DescribeConfigs = 10, "describe-configs";
        AlterConfigs = 11, "alter-configs";
        IdempotentWrite = 12, "idempotent-write";
    }
}

codes! {
    Permission {
        Deny = 2, "deny";
        Allow = 3, "allow";
    }
}

/// An access control entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclBinding {
    pub resource_type: ResourceType,
    pub resource_name: String,
    pub pattern: PatternType,
    /// For example `User:alice`, or `User:*` for all users.
    pub principal: String,
    /// Client address, or `*` for all.
    pub host: String,
    pub operation: AclOperation,
    pub permission: Permission,
}

/// Filter of ACLs. An ACL matches if it has all values that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclFilter {
    pub resource_type: Option<ResourceType>,
    pub resource_name: Option<String>,
    pub pattern: Option<PatternType>,
    pub principal: Option<String>,
    pub host: Option<String>,
    pub operation: Option<AclOperation>,
    pub permission: Option<Permission>,
}

/// Codes of an ACL in a response, not yet validated.
struct Codes<'a> {
    resource_type: i8,
    resource_name: &'a str,
    pattern: i8,
    principal: &'a str,
    host: &'a str,
    operation: i8,
    permission: i8,
}

impl Codes<'_> {
    /// Returns `None` if a code is unknown to this client.
    fn binding(&self) -> Option<AclBinding> {
        Some(AclBinding {
            resource_type: ResourceType::of_code(self.resource_type)?,
            resource_name: self.resource_name.to_owned(),
            pattern: PatternType::of_code(self.pattern)?,
            principal: self.principal.to_owned(),
            host: self.host.to_owned(),
            operation: AclOperation::of_code(self.operation)?,
            permission: Permission::of_code(self.permission)?,
        })
    }
}

impl Client {
    /// Lists the ACLs that match `filter`.
    pub async fn acls(&self, filter: &AclFilter) -> Result<Vec<AclBinding>, ClientError> {
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(filter.resource_type.map_or(ANY, ResourceType::code))
            .with_resource_name_filter(filter.resource_name.as_deref().map(text))
            .with_pattern_type_filter(filter.pattern.map_or(ANY, PatternType::code))
            .with_principal_filter(filter.principal.as_deref().map(text))
            .with_host_filter(filter.host.as_deref().map(text))
            .with_operation(filter.operation.map_or(ANY, AclOperation::code))
            .with_permission_type(filter.permission.map_or(ANY, Permission::code));
        let response = self.ask(&request).await?;
        check(response.error_code, response.error_message.as_deref(), "list access rules")?;
        let mut bindings = Vec::new();
        for resource in &response.resources {
            bindings.extend(resource.acls.iter().filter_map(|acl| {
                let codes = Codes {
                    resource_type: resource.resource_type,
                    resource_name: &resource.resource_name,
                    pattern: resource.pattern_type,
                    principal: &acl.principal,
                    host: &acl.host,
                    operation: acl.operation,
                    permission: acl.permission_type,
                };
                codes.binding()
            }));
        }
        Ok(bindings)
    }

    pub async fn add_acl(&self, binding: &AclBinding) -> Result<(), ClientError> {
        let creation = AclCreation::default()
            .with_resource_type(binding.resource_type.code())
            .with_resource_name(text(&binding.resource_name))
            .with_resource_pattern_type(binding.pattern.code())
            .with_principal(text(&binding.principal))
            .with_host(text(&binding.host))
            .with_operation(binding.operation.code())
            .with_permission_type(binding.permission.code());
        let request = CreateAclsRequest::default().with_creations(vec![creation]);
        let response = self.ask(&request).await?;
        let attempt = "add an access rule";
        let result = response.results.first().ok_or_else(|| no_result(attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }

    /// Deletes the ACLs that match `filter`, and returns them.
    pub async fn remove_acls(&self, filter: &AclFilter) -> Result<Vec<AclBinding>, ClientError> {
        let request = DeleteAclsRequest::default().with_filters(vec![
            DeleteAclsFilter::default()
                .with_resource_type_filter(filter.resource_type.map_or(ANY, ResourceType::code))
                .with_resource_name_filter(filter.resource_name.as_deref().map(text))
                .with_pattern_type_filter(filter.pattern.map_or(ANY, PatternType::code))
                .with_principal_filter(filter.principal.as_deref().map(text))
                .with_host_filter(filter.host.as_deref().map(text))
                .with_operation(filter.operation.map_or(ANY, AclOperation::code))
                .with_permission_type(filter.permission.map_or(ANY, Permission::code)),
        ]);
        let response = self.ask(&request).await?;
        let attempt = "remove access rules";
        let result = response.filter_results.first().ok_or_else(|| no_result(attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)?;
        let mut bindings = Vec::new();
        for acl in &result.matching_acls {
            check(acl.error_code, acl.error_message.as_deref(), attempt)?;
            let codes = Codes {
                resource_type: acl.resource_type,
                resource_name: &acl.resource_name,
                pattern: acl.pattern_type,
                principal: &acl.principal,
                host: &acl.host,
                operation: acl.operation,
                permission: acl.permission_type,
            };
            bindings.extend(codes.binding());
        }
        Ok(bindings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_words_are_one_to_one() {
        for &it in AclOperation::ALL {
            assert_eq!(AclOperation::of_code(it.code()), Some(it));
        }
        for &it in ResourceType::ALL {
            assert_eq!(ResourceType::of_code(it.code()), Some(it));
        }
        assert_eq!(PatternType::of_code(0), None);
        assert_eq!(Permission::of_code(3), Some(Permission::Allow));
    }
}
