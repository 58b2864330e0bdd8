//! Running queries of a broker: listed, and cancelled as in PostgreSQL.

use serde_json::{Value, json};
use tokio_postgres::SimpleQueryMessage;

use super::connect::Server;
use crate::arguments::sql::QueryCommand;
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table};

const LIST: &str = "SELECT pid, usename, client_addr, query_start, state, rows, query \
     FROM pg_stat_activity WHERE pid <> pg_backend_pid() ORDER BY query_start";

struct RunningQuery {
    pid: i32,
    user: String,
    address: String,
    since: String,
    state: String,
    rows: u64,
    text: String,
}

pub(super) async fn run(server: Server, command: QueryCommand) -> Result<Report, Failure> {
    match command {
        QueryCommand::List(view) => {
            let queries = list(&server).await?;
            let json: Value = queries.iter().map(json_of).collect();
            let table = Table::of(
                &queries,
                &[
                    ("PID", &|it| Cell::number(u64::from(it.pid.unsigned_abs()))),
                    ("USER", &|it| Cell::text(&it.user)),
                    ("ADDRESS", &|it| Cell::text(&it.address)),
                    ("SINCE", &|it| Cell::text(&it.since)),
                    ("STATE", &|it| Cell::text(&it.state)),
                    ("ROWS", &|it| Cell::number(it.rows)),
                    ("QUERY", &|it| Cell::text(&it.text)),
                ],
            );
            Ok(Report::of(table.viewed(&view)?, &json))
        }
        QueryCommand::Cancel { pid } => {
            let query = format!("SELECT pg_cancel_backend({pid})");
            let messages = server.client.simple_query(&query).await?;
            let answer = messages.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            match answer {
                Some("t") => Ok(Report::silent(&json!({"cancelled": pid}))),
                _ => Err(Failure::not_found(format!(
                    "no connection has pid {pid}; see memlane query list"
                ))),
            }
        }
    }
}

async fn list(server: &Server) -> Result<Vec<RunningQuery>, Failure> {
    let messages = server.client.simple_query(LIST).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let query = |row: &tokio_postgres::SimpleQueryRow| {
        let text = |name| row.get(name).unwrap_or_default().to_owned();
        RunningQuery {
            pid: text("pid").parse().unwrap_or_default(),
            user: text("usename"),
            address: text("client_addr"),
            since: text("query_start"),
            state: text("state"),
            rows: text("rows").parse().unwrap_or_default(),
            text: text("query"),
        }
    };
    Ok(rows.map(query).collect())
}

fn json_of(query: &RunningQuery) -> Value {
    json!({
        "pid": query.pid,
        "user": query.user,
        "address": query.address,
        "since": query.since,
        "state": query.state,
        "rows": query.rows,
        "query": query.text,
    })
}
