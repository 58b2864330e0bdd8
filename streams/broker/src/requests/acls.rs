//! Access lists, if the broker has a file of them.

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};

use super::{Context, on_file_thread, text};

/// Error message without a file of access lists.
const NONE: &str = "access lists are disabled: start the broker with --acl-file";

/// Error of a request about access lists.
struct Refused {
    error: ResponseError,
    message: &'static str,
}

fn check(context: &Context, operation: Operation) -> Result<(), Refused> {
    let error = ResponseError::ClusterAuthorizationFailed;
    let message = "permission denied: access lists require rights on the cluster";
    context.check(operation, Resource::cluster(), error).map_err(|error| Refused { error, message })
}

fn no_file() -> Refused {
    Refused { error: ResponseError::SecurityDisabled, message: NONE }
}

pub(super) async fn describe(
    context: Context,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    on_file_thread(context.client.owner(), move || {
        let described = check(&context, Operation::Describe).and_then(|()| {
            context.broker.rules.with_acl_file(|file| file.describe(&request)).ok_or_else(no_file)
        });
        described.unwrap_or_else(|refused| {
            DescribeAclsResponse::default()
                .with_error_code(refused.error.code())
                .with_error_message(Some(text(refused.message)))
        })
    })
    .await
}

pub(super) async fn create(context: Context, request: CreateAclsRequest) -> CreateAclsResponse {
    on_file_thread(context.client.owner(), move || {
        let created = check(&context, Operation::Alter).and_then(|()| {
            context.broker.rules.with_acl_file(|file| file.create(&request)).ok_or_else(no_file)
        });
        created.unwrap_or_else(|refused| {
            let result = AclCreationResult::default()
                .with_error_code(refused.error.code())
                .with_error_message(Some(text(refused.message)));
            CreateAclsResponse::default().with_results(vec![result; request.creations.len()])
        })
    })
    .await
}

pub(super) async fn delete(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse {
    on_file_thread(context.client.owner(), move || {
        let deleted = check(&context, Operation::Alter).and_then(|()| {
            context.broker.rules.with_acl_file(|file| file.delete(&request)).ok_or_else(no_file)
        });
        deleted.unwrap_or_else(|refused| {
            let result = DeleteAclsFilterResult::default()
                .with_error_code(refused.error.code())
                .with_error_message(Some(text(refused.message)));
            DeleteAclsResponse::default().with_filter_results(vec![result; request.filters.len()])
        })
    })
    .await
}
