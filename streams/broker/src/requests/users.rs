//! SCRAM credentials and quotas of users, if the broker has a user file.

use access::{Operation, Resource, UserFile, refuse_quotas};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials_response,
};

use super::{Context, on_file_thread, text};

/// Error of a request about users.
type Refused = (ResponseError, &'static str);

/// Runs work on the user file, if the client is authorized.
fn with_file<T>(
    context: &Context,
    operation: Operation,
    work: impl FnOnce(&mut UserFile) -> T,
) -> Result<T, Refused> {
    if !context.may(operation, Resource::cluster()) {
        let error = ResponseError::ClusterAuthorizationFailed;
        return Err((error, "permission denied: users require rights on the cluster"));
    }
    let none = "users are disabled: start the broker with --user-file";
    context.broker.rules.with_user_file(work).ok_or((ResponseError::SecurityDisabled, none))
}

pub(super) async fn describe_scram(
    context: Context,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    on_file_thread(context.client.owner(), move || {
        let described =
            with_file(&context, Operation::Describe, |file| file.describe_scram(&request));
        described.unwrap_or_else(|(error, message)| {
            DescribeUserScramCredentialsResponse::default()
                .with_error_code(error.code())
                .with_error_message(Some(text(message)))
        })
    })
    .await
}

pub(super) async fn alter_scram(
    context: Context,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    use alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
    on_file_thread(context.client.owner(), move || {
        let altered = with_file(&context, Operation::Alter, |file| file.alter_scram(&request));
        altered.unwrap_or_else(|(error, message)| {
            let deleted = request.deletions.iter().map(|it| &it.name);
            let names = deleted.chain(request.upsertions.iter().map(|it| &it.name));
            let results = names.map(|name| {
                AlterUserScramCredentialsResult::default()
                    .with_user(name.clone())
                    .with_error_code(error.code())
                    .with_error_message(Some(text(message)))
            });
            AlterUserScramCredentialsResponse::default().with_results(results.collect())
        })
    })
    .await
}

pub(super) async fn describe_quotas(
    context: Context,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    on_file_thread(context.client.owner(), move || {
        let operation = Operation::DescribeConfigs;
        let described = with_file(&context, operation, |file| file.describe_quotas(&request));
        described.unwrap_or_else(|(error, message)| {
            DescribeClientQuotasResponse::default()
                .with_error_code(error.code())
                .with_error_message(Some(text(message)))
                .with_entries(None)
        })
    })
    .await
}

pub(super) async fn alter_quotas(
    context: Context,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse {
    on_file_thread(context.client.owner(), move || {
        let operation = Operation::AlterConfigs;
        let altered = with_file(&context, operation, |file| file.alter_quotas(&request));
        altered.unwrap_or_else(|(error, message)| refuse_quotas(&request, error, message))
    })
    .await
}
