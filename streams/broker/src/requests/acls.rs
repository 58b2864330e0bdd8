//! Access lists, if the broker has a file of them.

use std::sync::Arc;

use access::{AclFile, Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};

use super::{Context, denied, on_file_thread, text};

/// Error message without a file of access lists.
const NONE: &str = "access lists are disabled: start the broker with --acl-file";

/// Error of a request about access lists.
struct Refused {
    error: ResponseError,
    message: String,
}

/// Authorizes the client, then runs `work` on the file. Unauthorized requests take no place in the
/// queue for file operations.
async fn with_file<T: Send + 'static>(
    context: &Context,
    operation: Operation,
    work: impl FnOnce(&mut AclFile) -> T + Send + 'static,
) -> Result<T, Refused> {
    let error = ResponseError::ClusterAuthorizationFailed;
    let checked = context.check(operation, Resource::cluster(), error);
    checked.map_err(|error| Refused { error, message: denied(operation, Resource::cluster()) })?;
    let rules = Arc::clone(&context.broker.rules);
    let worked = on_file_thread(context.client.owner(), move || rules.with_acl_file(work)).await;
    worked.ok_or(Refused { error: ResponseError::SecurityDisabled, message: NONE.to_owned() })
}

pub(super) async fn describe(
    context: Context,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    let describe = move |file: &mut AclFile| file.describe(&request);
    let described = with_file(&context, Operation::Describe, describe).await;
    described.unwrap_or_else(|refused| {
        DescribeAclsResponse::default()
            .with_error_code(refused.error.code())
            .with_error_message(Some(text(refused.message)))
    })
}

pub(super) async fn create(context: Context, request: CreateAclsRequest) -> CreateAclsResponse {
    let count = request.creations.len();
    let create = move |file: &mut AclFile| file.create(&request);
    let created = with_file(&context, Operation::Alter, create).await;
    created.unwrap_or_else(|refused| {
        let result = AclCreationResult::default()
            .with_error_code(refused.error.code())
            .with_error_message(Some(text(refused.message)));
        CreateAclsResponse::default().with_results(vec![result; count])
    })
}

pub(super) async fn delete(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse {
    let count = request.filters.len();
    let delete = move |file: &mut AclFile| file.delete(&request);
    let deleted = with_file(&context, Operation::Alter, delete).await;
    deleted.unwrap_or_else(|refused| {
        let result = DeleteAclsFilterResult::default()
            .with_error_code(refused.error.code())
            .with_error_message(Some(text(refused.message)));
        DeleteAclsResponse::default().with_filter_results(vec![result; count])
    })
}
