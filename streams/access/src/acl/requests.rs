//! CreateAcls, DescribeAcls and DeleteAcls, by Kafka's schemas. The broker has already authorized
//! the request: Alter or Describe on the cluster.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::acl::entry::{Acl, Operation, Pattern, PatternKind, Permission, ResourceKind};
use crate::acl::file::{ACL_COUNT_MAX, AclFile};
use crate::error::{AccessError, AccessErrorKind, text};

/// Filter value that matches every kind, operation, permission or pattern.
const ANY: i8 = 1;

/// Filter value that matches every pattern that covers the name.
const MATCH: i8 = 2;

/// Highest codes that Kafka defines: users, and two-phase commit.
const RESOURCE_CODE_MAX: i8 = 7;
const OPERATION_CODE_MAX: i8 = 15;

/// Maximum filters of one request, each of which scans all entries.
const FILTER_COUNT_MAX: usize = 1000;

impl AclFile {
    /// Adds the valid entries with one replacement of the file, and returns an error for each of
    /// the others.
    pub fn create(&mut self, request: &CreateAclsRequest) -> CreateAclsResponse {
        if request.creations.len() > ACL_COUNT_MAX {
            let why = format!(
                "the request has too many access list entries; the limit is {ACL_COUNT_MAX}"
            );
            let refused = || creation_result(Err((ResponseError::InvalidRequest, why.clone())));
            let results = request.creations.iter().map(|_| refused()).collect();
            return CreateAclsResponse::default().with_results(results);
        }
        let parsed: Vec<_> = request.creations.iter().map(acl_of).collect();
        let stored = self.add(parsed.iter().flatten().cloned()).map_err(AccessError::code_and_text);
        let results = parsed.into_iter().map(|acl| {
            let invalid = |error: AccessError| (ResponseError::InvalidRequest, error.to_string());
            creation_result(acl.map_err(invalid).and_then(|_| stored.clone()))
        });
        CreateAclsResponse::default().with_results(results.collect())
    }

    /// Returns the entries that match a filter, sorted by resource.
    pub fn describe(&self, request: &DescribeAclsRequest) -> DescribeAclsResponse {
        let filter = Filter {
            resource: request.resource_type_filter,
            name: request.resource_name_filter.as_ref(),
            pattern: request.pattern_type_filter,
            principal: request.principal_filter.as_ref(),
            host: request.host_filter.as_ref(),
            operation: request.operation,
            permission: request.permission_type,
        };
        if let Err(error) = filter.check() {
            return DescribeAclsResponse::default()
                .with_error_code(ResponseError::InvalidRequest.code())
                .with_error_message(Some(text(error.to_string())));
        }
        let mut resources: Vec<DescribeAclsResource> = Vec::new();
        let mut last: Option<&Pattern> = None;
        for acl in self.acls().entries().filter(|acl| filter.asks_for(acl)) {
            if last != Some(&acl.pattern) {
                resources.push(described(&acl.pattern));
                last = Some(&acl.pattern);
            }
            let resource = resources.last_mut().expect("one was pushed for the first line");
            resource.acls.push(
                AclDescription::default()
                    .with_principal(text(acl.principal.as_str()))
                    .with_host(text(acl.host.to_string()))
                    .with_operation(acl.operation.code())
                    .with_permission_type(acl.permission.code()),
            );
        }
        DescribeAclsResponse::default().with_error_message(None).with_resources(resources)
    }

    /// Removes the entries that match the filters with one replacement of the file, and returns
    /// them. An entry that matches several filters is returned for the first of them.
    pub fn delete(&mut self, request: &DeleteAclsRequest) -> DeleteAclsResponse {
        let mut gone = BTreeSet::new();
        let found: Vec<_> = if request.filters.len() > FILTER_COUNT_MAX {
            let what = format!("the request has too many filters; the limit is {FILTER_COUNT_MAX}");
            let refused = || AccessError::new(AccessErrorKind::NotAllowed, what.clone());
            request.filters.iter().map(|_| Err(refused())).collect()
        } else {
            request.filters.iter().map(|filter| self.find(filter, &mut gone)).collect()
        };
        let stored = self.remove(&gone).map_err(AccessError::code_and_text);
        let results = found.into_iter().map(|acls| match (acls, &stored) {
            (Err(error), _) => deletion_error(&(ResponseError::InvalidRequest, error.to_string())),
            (Ok(_), Err(error)) => deletion_error(error),
            (Ok(acls), Ok(())) => DeleteAclsFilterResult::default()
                .with_error_message(None)
                .with_matching_acls(acls.iter().map(deleted).collect()),
        });
        DeleteAclsResponse::default().with_filter_results(results.collect())
    }

    /// Returns the entries that match a filter and are not in `gone`, and adds them to it.
    fn find(
        &self,
        filter: &DeleteAclsFilter,
        gone: &mut BTreeSet<Acl>,
    ) -> Result<Vec<Acl>, AccessError> {
        let filter = Filter::of(filter);
        filter.check()?;
        let asked = self.acls().entries().filter(|acl| filter.asks_for(acl));
        let new: Vec<Acl> = asked.filter(|acl| !gone.contains(*acl)).cloned().collect();
        gone.extend(new.iter().cloned());
        Ok(new)
    }
}

/// A client's filter, with Kafka's codes.
struct Filter<'a> {
    resource: i8,
    name: Option<&'a StrBytes>,
    pattern: i8,
    principal: Option<&'a StrBytes>,
    host: Option<&'a StrBytes>,
    operation: i8,
    permission: i8,
}

impl<'a> Filter<'a> {
    fn of(filter: &'a DeleteAclsFilter) -> Self {
        Self {
            resource: filter.resource_type_filter,
            name: filter.resource_name_filter.as_ref(),
            pattern: filter.pattern_type_filter,
            principal: filter.principal_filter.as_ref(),
            host: filter.host_filter.as_ref(),
            operation: filter.operation,
            permission: filter.permission_type,
        }
    }

    /// Rejects codes that Kafka does not define, including 0. Codes that Kafka defines but this
    /// broker does not support match no entries.
    fn check(&self) -> Result<(), AccessError> {
        let is_known = (ANY..=RESOURCE_CODE_MAX).contains(&self.resource)
            && (ANY..=PatternKind::Prefixed.code()).contains(&self.pattern)
            && (ANY..=OPERATION_CODE_MAX).contains(&self.operation)
            && (ANY..=Permission::Allow.code()).contains(&self.permission);
        if is_known {
            return Ok(());
        }
        let what = "unknown resource, pattern, operation or permission in the filter";
        Err(AccessError::new(AccessErrorKind::NotAllowed, what))
    }

    fn asks_for(&self, acl: &Acl) -> bool {
        let fits = |wanted: i8, code: i8| wanted == ANY || wanted == code;
        fits(self.resource, acl.pattern.resource.code())
            && fits(self.operation, acl.operation.code())
            && fits(self.permission, acl.permission.code())
            && self.asks_for_pattern(&acl.pattern)
            && self.principal.is_none_or(|it| it.as_str() == acl.principal.as_str())
            && self.host.is_none_or(|it| it.as_str() == acl.host.to_string())
    }

    fn asks_for_pattern(&self, pattern: &Pattern) -> bool {
        let name = self.name.map(StrBytes::as_str);
        match self.pattern {
            MATCH => name.is_none_or(|name| pattern.covers(name)),
            ANY => name.is_none_or(|name| name == pattern.name),
            code => code == pattern.pattern.code() && name.is_none_or(|it| it == pattern.name),
        }
    }
}

/// Converts a requested creation to an entry.
fn acl_of(creation: &AclCreation) -> Result<Acl, AccessError> {
    let unknown = |what: &str, code: i8| {
        let what = format!("invalid {what} {code} in an access list entry");
        AccessError::new(AccessErrorKind::NotAllowed, what)
    };
    let resource = ResourceKind::ALL.into_iter().find(|it| it.code() == creation.resource_type);
    let pattern =
        PatternKind::ALL.into_iter().find(|it| it.code() == creation.resource_pattern_type);
    let operation = Operation::ALL.into_iter().find(|it| it.code() == creation.operation);
    let permission = Permission::ALL.into_iter().find(|it| it.code() == creation.permission_type);
    let acl = Acl {
        pattern: Pattern {
            resource: resource.ok_or_else(|| unknown("resource type", creation.resource_type))?,
            name: creation.resource_name.to_string(),
            pattern: pattern
                .ok_or_else(|| unknown("pattern type", creation.resource_pattern_type))?,
        },
        principal: creation.principal.parse()?,
        host: creation.host.parse()?,
        operation: operation.ok_or_else(|| unknown("operation", creation.operation))?,
        permission: permission.ok_or_else(|| unknown("permission", creation.permission_type))?,
    };
    acl.check()?;
    Ok(acl)
}

fn creation_result(result: Result<(), (ResponseError, String)>) -> AclCreationResult {
    match result {
        Ok(()) => AclCreationResult::default().with_error_message(None),
        Err((code, why)) => AclCreationResult::default()
            .with_error_code(code.code())
            .with_error_message(Some(text(&why))),
    }
}

fn deletion_error((code, why): &(ResponseError, String)) -> DeleteAclsFilterResult {
    DeleteAclsFilterResult::default()
        .with_error_code(code.code())
        .with_error_message(Some(text(why)))
}

fn deleted(acl: &Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(acl.pattern.resource.code())
        .with_resource_name(text(&acl.pattern.name))
        .with_pattern_type(acl.pattern.pattern.code())
        .with_principal(text(acl.principal.as_str()))
        .with_host(text(acl.host.to_string()))
        .with_operation(acl.operation.code())
        .with_permission_type(acl.permission.code())
}

fn described(pattern: &Pattern) -> DescribeAclsResource {
    DescribeAclsResource::default()
        .with_resource_type(pattern.resource.code())
        .with_resource_name(text(&pattern.name))
        .with_pattern_type(pattern.pattern.code())
}
