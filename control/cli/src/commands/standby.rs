//! Status and promotion of a standby.

use std::thread;
use std::time::{Duration, Instant};

use api::{
    ByteSize, Method, Promotion, Standby, StandbyMirroring, StandbyPromote, Status, counted,
};
use rest_client::Client;

use super::{lines, or_dash, time_text, word_of};
use crate::arguments::StandbyCommand;
use crate::failure::Failure;
use crate::output::Report;

/// Maximum wait for the restart of a promoted daemon, and the polling interval.
const START_TIME_MAX: Duration = Duration::from_secs(120);
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn run(client: &Client, command: StandbyCommand) -> Result<Report, Failure> {
    match command {
        StandbyCommand::Status => {
            let standby: Standby = client.get(api::STANDBY_PATH)?;
            Ok(Report::of(text(&standby), &standby))
        }
        StandbyCommand::Promote { force, accept_loss } => {
            let request = StandbyPromote { force, accept_loss };
            let promotion: Promotion =
                client.ask(Method::Post, api::STANDBY_PROMOTE_PATH, &request)?;
            wait_for_primary(client);
            Ok(Report::of(promotion_text(&promotion), &promotion))
        }
    }
}

/// Waits until the daemon is a writer. The promotion itself has succeeded in any case.
fn wait_for_primary(client: &Client) {
    let begun = Instant::now();
    while begun.elapsed() < START_TIME_MAX {
        let status: Result<Status, _> = client.get(api::STATUS_PATH);
        if status.is_ok_and(|status| status.standby.is_none()) {
            return;
        }
        thread::sleep(START_POLL_INTERVAL);
    }
}

/// Formats the state and lag of a standby.
pub(super) fn text(standby: &Standby) -> String {
    let image = |number: Option<u64>| or_dash(number.map(|number| number.to_string()));
    let saved = standby.newest_saved_unix_seconds.map(time_text);
    let newest = match (standby.newest_image, saved) {
        (Some(number), Some(saved)) => format!("{number}, saved {saved}"),
        _ => or_dash(None),
    };
    let seconds = standby.lag_seconds.map(|seconds| format!("{seconds:.1} s"));
    let mut fields = vec![
        ("standby", word_of(&standby.state)),
        ("follows", standby.store.clone()),
        ("image read", image(standby.image)),
        ("newest image", newest),
        ("lag", seconds.unwrap_or_else(|| "unknown".to_owned())),
        (
            "journal lag",
            standby
                .journal_lag_seconds
                .map_or_else(|| "that of the image".to_owned(), |it| format!("{it:.1} s")),
        ),
        ("to fetch", ByteSize(standby.lag_bytes).rounded()),
    ];
    let flushes = match standby.mirroring {
        StandbyMirroring::Off => None,
        StandbyMirroring::MayStop => Some("mirrored, unless the writer went on alone"),
        StandbyMirroring::Always => Some("mirrored"),
    };
    fields.extend(flushes.map(|flushes| ("flushes", flushes.to_owned())));
    fields.extend(standby.journal_gap.clone().map(|gap| ("journal gap", gap)));
    fields.extend(standby.cause.clone().map(|cause| ("cause", cause)));
    let skipped = standby.skipped.iter();
    fields.extend(skipped.map(|image| ("skipped", format!("{}: {}", image.number, image.cause))));
    lines(&fields)
}

fn promotion_text(promotion: &Promotion) -> String {
    let lost = promotion.lost_seconds.map_or_else(
        || "writes since then are lost".to_owned(),
        |seconds| format!("at most the last {seconds:.1} s of writes are lost"),
    );
    let before = if promotion.is_repeated { "was promoted before, " } else { "promoted " };
    let mut text = format!("{before}from image {}: {lost}", promotion.image);
    if promotion.replayed_transactions > 0 {
        let count = counted(promotion.replayed_transactions, "transaction");
        text += &format!("; replayed {count} of the journal");
        if let Some(seconds) = promotion.journal_lost_seconds {
            text += &format!(": of class journal, at most the last {seconds:.1} s are lost");
        }
    }
    if promotion.is_complete {
        text += &match promotion.unmirrored.as_slice() {
            [] => "; no acknowledged flush of class journal is lost".to_owned(),
            names => format!(
                "; no acknowledged flush of class journal is lost, except of volumes that are not \
                 mirrored: {}",
                names.join(", ")
            ),
        };
    }
    if let Some(ended) = &promotion.replay_ended {
        text += &format!("; the replay ended early: {ended}");
    }
    if promotion.to_fetch_bytes > 0 {
        let left = ByteSize(promotion.to_fetch_bytes).rounded();
        text += &format!("; {left} are fetched in the background");
    }
    if !promotion.guarantees_lost.is_empty() {
        let names = promotion.guarantees_lost.join(", ");
        text +=
            &format!("; thin, because the pool has too little memory to guarantee them: {names}");
    }
    text
}
