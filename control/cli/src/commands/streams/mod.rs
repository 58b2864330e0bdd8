//! Commands that use a broker over Kafka's protocol.

mod acls;
pub(super) mod connect;
mod consume;
mod groups;
mod json;
mod offsets;
mod produce;
mod topics;
mod users;

use crate::arguments::streams::StreamsCommand;
use crate::failure::Failure;
use crate::output::{Form, Report};

/// Executes a command that uses a broker.
pub(super) fn run(command: StreamsCommand, form: Form) -> Result<Report, Failure> {
    match command {
        StreamsCommand::Topic { broker, command } => {
            connect::with_client(&broker, |client| topics::run(client, command))
        }
        StreamsCommand::Group { broker, command } => {
            connect::with_client(&broker, |client| groups::run(client, command))
        }
        StreamsCommand::Produce(produce) => {
            connect::with_client(&produce.broker.clone(), |client| {
                produce::run(client, produce, form)
            })
        }
        StreamsCommand::Consume(consume) => {
            connect::with_client(&consume.broker.clone(), |client| {
                consume::run(client, consume, form)
            })
        }
        StreamsCommand::User { broker, command } => {
            connect::with_client(&broker, |client| users::run(client, command))
        }
        StreamsCommand::Acl { broker, command } => {
            connect::with_client(&broker, |client| acls::run(client, command))
        }
    }
}
