//! SCRAM credentials and quotas of users, if the broker has a user file.

use std::sync::Arc;

use access::{Operation, Resource, UserFile, refuse_quotas};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials_response,
};

use super::{Context, denied, on_file_thread, text};

/// Error of a request about users.
type Refused = (ResponseError, String);

/// Authorizes the client, then runs `work` on the file. Unauthorized requests take no place in the
/// queue for file operations.
async fn with_file<T: Send + 'static>(
    context: &Context,
    operation: Operation,
    work: impl FnOnce(&mut UserFile) -> T + Send + 'static,
) -> Result<T, Refused> {
    if !context.may(operation, Resource::cluster()) {
        let error = ResponseError::ClusterAuthorizationFailed;
        return Err((error, denied(operation, Resource::cluster())));
    }
    let none = "users are disabled: start the broker with --user-file";
    let rules = Arc::clone(&context.broker.rules);
    let worked = on_file_thread(context.client.owner(), move || rules.with_user_file(work)).await;
    worked.ok_or_else(|| (ResponseError::SecurityDisabled, none.to_owned()))
}

pub(super) async fn describe_scram(
    context: Context,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let describe = move |file: &mut UserFile| file.describe_scram(&request);
    let described = with_file(&context, Operation::Describe, describe).await;
    described.unwrap_or_else(|(error, message)| {
        DescribeUserScramCredentialsResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(text(message)))
    })
}

pub(super) async fn alter_scram(
    context: Context,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    use alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
    let request = Arc::new(request);
    let asked = Arc::clone(&request);
    let alter = move |file: &mut UserFile| file.alter_scram(&asked);
    let altered = with_file(&context, Operation::Alter, alter).await;
    altered.unwrap_or_else(|(error, message)| {
        let deleted = request.deletions.iter().map(|it| &it.name);
        let names = deleted.chain(request.upsertions.iter().map(|it| &it.name));
        let results = names.map(|name| {
            AlterUserScramCredentialsResult::default()
                .with_user(name.clone())
                .with_error_code(error.code())
                .with_error_message(Some(text(&*message)))
        });
        AlterUserScramCredentialsResponse::default().with_results(results.collect())
    })
}

pub(super) async fn describe_quotas(
    context: Context,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let describe = move |file: &mut UserFile| file.describe_quotas(&request);
    let described = with_file(&context, Operation::DescribeConfigs, describe).await;
    described.unwrap_or_else(|(error, message)| {
        DescribeClientQuotasResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(text(message)))
            .with_entries(None)
    })
}

pub(super) async fn alter_quotas(
    context: Context,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse {
    let request = Arc::new(request);
    let asked = Arc::clone(&request);
    let alter = move |file: &mut UserFile| file.alter_quotas(&asked);
    let altered = with_file(&context, Operation::AlterConfigs, alter).await;
    altered.unwrap_or_else(|(error, message)| refuse_quotas(&request, error, &message))
}
