//! Commands on SCRAM users. The broker is sent the salted password, not the password.

use std::sync::Arc;

use kafka_client::{Client, ScramCredential};
use serde_json::{Value, json};

use super::connect::password;
use crate::arguments::streams::UserCommand;
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table};

const NEW_PASSWORD_VARIABLE: &str = "MEMLANE_NEW_PASSWORD";

pub(super) async fn run(client: Arc<Client>, command: UserCommand) -> Result<Report, Failure> {
    match command {
        UserCommand::List(view) => {
            let users = client.users(None).await?;
            let json = users.iter().map(|it| {
                json!({
                    "name": it.user,
                    "mechanism": it.hash.mechanism_name(),
                    "iterations": it.iterations,
                })
            });
            let json: Value = json.collect();
            let table = Table::of(
                &users,
                &[
                    ("NAME", &|it| Cell::text(&it.user)),
                    ("MECHANISM", &|it| Cell::text(it.hash.mechanism_name())),
                    ("ITERATIONS", &|it| Cell::number(u64::from(it.iterations.unsigned_abs()))),
                ],
            );
            Ok(Report::of(table.viewed(&view)?, &json))
        }
        UserCommand::Set { name, new_password_file, mechanism } => {
            let password = password(new_password_file.as_deref(), NEW_PASSWORD_VARIABLE, &name)?;
            client.set_user(&ScramCredential::new(&name, &password, mechanism)?).await?;
            Ok(Report::silent(&json!({"set": name})))
        }
        UserCommand::Delete { name } => {
            let users = client.users(None).await?;
            let own: Vec<_> = users.iter().filter(|it| it.user == name).collect();
            if own.is_empty() {
                return Err(Failure::not_found(format!(
                    "cannot delete user {name:?}: no such user"
                )));
            }
            for user in own {
                client.delete_user(&name, user.hash).await?;
            }
            Ok(Report::silent(&json!({"deleted": name})))
        }
    }
}
