//! Exports of volumes as disks of virtual machines.

use api::{Export, ExportCreate, ExportProtocol, Method};
use serde_json::json;

use crate::arguments::ExportCommand;
use crate::commands::{connection, forced, or_dash, word_of};
use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Cell, Table, View};
use rest_client::Client;

pub(super) fn run(client: &Client, command: ExportCommand, form: Form) -> Result<Report, Failure> {
    match command {
        ExportCommand::VhostUser { name, queues, share, owner, group, mode } => {
            let protocol = ExportProtocol::VhostUser;
            let request =
                ExportCreate { volume: name, protocol, queues, share, owner, group, mode };
            let export: Export = client.ask(Method::Post, api::EXPORTS_PATH, &request)?;
            connection::remark_host(&client.address, "the socket is", form);
            Ok(Report::of(text(&export), &export))
        }
        ExportCommand::List(view) => {
            let exports: Vec<Export> = client.get(api::EXPORTS_PATH)?;
            Ok(Report::of(list_text(&exports, &view)?, &exports))
        }
        ExportCommand::Show { name } => {
            let export: Export = client.get(&api::path_of(api::EXPORT_PATH, &name))?;
            Ok(Report::of(text(&export), &export))
        }
        ExportCommand::Delete { name, force } => {
            client.delete(&forced(api::path_of(api::EXPORT_PATH, &name), force))?;
            Ok(Report::silent(&json!({"deleted": name})))
        }
    }
}

/// Formats an export: the socket on the first line, then its use in machines.
fn text(export: &Export) -> String {
    let Some(socket) = &export.socket else {
        return "not served; see memlane status".to_owned();
    };
    format!(
        "{socket}\n\nQEMU (from 9.2 on, reconnect-ms=1000 instead of reconnect=1):\n\n{}\n\n\
         libvirt:\n\n{}",
        export.qemu_words(),
        export.libvirt_xml()
    )
}

fn list_text(exports: &[Export], view: &View) -> Result<String, Failure> {
    let table = Table::of(
        exports,
        &[
            ("VOLUME", &|it| Cell::text(&it.volume)),
            ("PROTOCOL", &|it| Cell::text(word_of(&it.protocol))),
            ("QUEUES", &|it| Cell::number(it.queues.into())),
            ("USED", &|it| Cell::text(if it.connected { "yes" } else { "no" })),
            ("SOCKET", &|it| Cell::text(or_dash(it.socket.clone()))),
        ],
    );
    table.viewed(view)
}
