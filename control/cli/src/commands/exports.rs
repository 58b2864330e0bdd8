//! Exports: volumes as disks of virtual machines.

use api::{Export, ExportCreate, ExportProtocol, Method};
use serde_json::json;

use crate::arguments::ExportCommand;
use crate::client::Client;
use crate::commands::{forced, or_dash, to_json, word_of};
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Side, Table, View};

pub(super) fn run(client: &Client, command: ExportCommand) -> Result<Report, Failure> {
    match command {
        ExportCommand::VhostUser { name, queues, share, owner, group, mode } => {
            let protocol = ExportProtocol::VhostUser;
            let request =
                ExportCreate { volume: name, protocol, queues, share, owner, group, mode };
            let export: Export = client.ask(Method::Post, api::EXPORTS_PATH, &request)?;
            Ok(Report { text: text(&export), json: to_json(&export) })
        }
        ExportCommand::List(view) => {
            let exports: Vec<Export> = client.get(api::EXPORTS_PATH)?;
            Ok(Report { text: list_text(&exports, &view)?, json: to_json(&exports) })
        }
        ExportCommand::Show { name } => {
            let export: Export = client.get(&api::path_of(api::EXPORT_PATH, &name))?;
            Ok(Report { text: text(&export), json: to_json(&export) })
        }
        ExportCommand::Delete { name, force } => {
            client.delete(&forced(api::path_of(api::EXPORT_PATH, &name), force))?;
            Ok(Report { text: String::new(), json: json!({"deleted": name}) })
        }
    }
}

/// The socket in a line of its own, then how machines use it.
fn text(export: &Export) -> String {
    let Some(socket) = &export.socket else {
        return "not served; memlane status says why".to_owned();
    };
    format!(
        "{socket}\n\nQEMU (from 9.2 on, reconnect-ms=1000 instead of reconnect=1):\n\n{}\n\n\
         libvirt:\n\n{}",
        export.qemu_words(),
        export.libvirt_xml()
    )
}

fn list_text(exports: &[Export], view: &View) -> Result<String, Failure> {
    let mut table = Table::new(&[
        ("VOLUME", Side::Left),
        ("PROTOCOL", Side::Left),
        ("QUEUES", Side::Right),
        ("USED", Side::Left),
        ("SOCKET", Side::Left),
    ]);
    for export in exports {
        let used = if export.connected { "yes" } else { "no" };
        table.row(vec![
            export.volume.clone().into(),
            word_of(&export.protocol).into(),
            Cell::number(export.queues.into()),
            used.to_owned().into(),
            or_dash(export.socket.clone()).into(),
        ]);
    }
    table.viewed(view)
}
