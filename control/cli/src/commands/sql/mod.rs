//! Commands that use the SQL interface of a broker, over PostgreSQL's protocol.

mod connect;
mod copies;
mod print;
mod queries;
mod statements;
mod tls;

use self::connect::with_server;
use crate::arguments::sql::SqlCommand;
use crate::failure::Failure;
use crate::output::{Form, Report};

/// Executes an SQL command.
pub(super) fn run(command: SqlCommand, form: Form) -> Result<Report, Failure> {
    match command {
        SqlCommand::Sql(sql) => {
            with_server(&sql.server.clone(), |server| statements::run(server, sql, form))
        }
        SqlCommand::Subscribe(subscribe) => with_server(&subscribe.server.clone(), |server| {
            statements::subscribe(server, subscribe, form)
        }),
        SqlCommand::Query { server, command } => {
            with_server(&server, |server| queries::run(server, command))
        }
    }
}
