//! Commands on images.

use api::{AcceptedLoss, ByteSize, Image, ImageRestore, ImageSave, Method};
use serde_json::json;

use super::tasks::follow;
use super::{or_dash, time_text, to_json};
use crate::arguments::ImageCommand;
use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Cell, Table, View};
use rest_client::Client;

pub(super) fn run(client: &Client, command: ImageCommand, form: Form) -> Result<Report, Failure> {
    let begin = |path: &str, body: serde_json::Value, background: bool| {
        follow(client, background, form, || client.ask(Method::Post, path, &body))
    };
    match command {
        ImageCommand::Save { also, label, background } => {
            let request = ImageSave { also, label: label.unwrap_or_default() };
            begin(api::IMAGES_PATH, to_json(&request), background)
        }
        ImageCommand::Restore { image, volumes, name, background } => {
            let number = number_of(client, image)?;
            let volumes = (!volumes.is_empty()).then_some(volumes);
            let path = api::path_of(api::IMAGE_RESTORE_PATH, &number.to_string());
            begin(&path, to_json(&ImageRestore { volumes, name }), background)
        }
        ImageCommand::Verify { image, background } => {
            let number = number_of(client, image)?;
            let path = api::path_of(api::IMAGE_VERIFY_PATH, &number.to_string());
            begin(&path, json!(null), background)
        }
        ImageCommand::AcceptLoss { volume } => {
            let path = api::path_of(api::ACCEPT_LOSS_PATH, &volume);
            let accepted: AcceptedLoss = client.ask(Method::Post, &path, &json!(null))?;
            Ok(Report::of(accepted_text(&volume, &accepted), &accepted))
        }
        ImageCommand::Rehearse { background } => {
            begin(api::IMAGE_REHEARSE_PATH, json!(null), background)
        }
        ImageCommand::List(view) => {
            let images: Vec<Image> = client.get(api::IMAGES_PATH)?;
            Ok(Report::of(list_text(&images, &view)?, &images))
        }
        ImageCommand::Delete { image } => {
            client.delete(&api::path_of(api::IMAGE_PATH, &image.to_string()))?;
            Ok(Report::silent(&json!({"deleted": image})))
        }
    }
}

fn accepted_text(volume: &str, accepted: &AcceptedLoss) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let mut text = format!("accepted the loss of {} of {volume}", size(accepted.lost_bytes));
    if accepted.fetched_bytes > 0 {
        text += &format!("; fetched {}", size(accepted.fetched_bytes));
    }
    if accepted.to_fetch_bytes > 0 {
        let left = size(accepted.to_fetch_bytes);
        text += &format!("; {left} left to fetch: the image store cannot be read now");
    }
    text
}

/// The given image number, or that of the newest image.
fn number_of(client: &Client, image: Option<u64>) -> Result<u64, Failure> {
    if let Some(number) = image {
        return Ok(number);
    }
    let images: Vec<Image> = client.get(api::IMAGES_PATH)?;
    let newest = images.iter().map(|image| image.number).max();
    newest
        .ok_or_else(|| Failure::not_found("the image store is empty; run memlane image save first"))
}

fn list_text(images: &[Image], view: &View) -> Result<String, Failure> {
    let volumes = |image: &Image| {
        let names: Vec<&str> = image.volumes.iter().map(|volume| &volume.name[..]).collect();
        let names = names.join(" ");
        match &image.failure {
            Some(failure) => format!("unreadable: {failure}"),
            None if image.lost_bytes > 0 => {
                format!("{names} ({} lost)", ByteSize(image.lost_bytes).rounded())
            }
            None => or_dash(Some(names).filter(|names| !names.is_empty())),
        }
    };
    let label = |image: &Image| or_dash(Some(image.label.clone()).filter(|it| !it.is_empty()));
    let table = Table::of(
        images,
        &[
            ("IMAGE", &|it| Cell::number(it.number)),
            ("SAVED", &|it| Cell::text(time_text(it.saved_unix_seconds))),
            ("STORED", &|it| Cell::size(it.stored_bytes)),
            ("LABEL", &|it| Cell::text(label(it))),
            ("VOLUMES", &|it| Cell::text(volumes(it))),
        ],
    );
    table.viewed(view)
}
