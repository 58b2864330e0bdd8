//! Limits of the pool, and events.

use api::{ByteSize, Event, FillState, Method, Pool, PoolPatch};

use super::tasks::follow;
use super::{check_once, lines, or_dash, time_text, word_of};
use crate::arguments::PoolCommand;
use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Cell, Table, View};
use rest_client::Client;

pub(super) fn run(client: &Client, command: PoolCommand, form: Form) -> Result<Report, Failure> {
    match command {
        PoolCommand::Show => {
            let pool: Pool = client.get(api::POOL_PATH)?;
            Ok(Report::of(text(&pool), &pool))
        }
        PoolCommand::Set { settings, background } => {
            check_once("setting", settings.iter().map(|setting| setting.key()))?;
            let mut patch = PoolPatch::default();
            settings.into_iter().for_each(|setting| setting.apply_to(&mut patch));
            follow(client, background, form, || client.ask(Method::Patch, api::POOL_PATH, &patch))
        }
    }
}

/// Lists recent events.
pub(super) fn events(client: &Client, after: u64, view: &View) -> Result<Report, Failure> {
    let path = api::with_query(api::EVENTS_PATH, &[("after", &after.to_string())]);
    let events: Vec<Event> = client.get(&path)?;
    let table = Table::of(
        &events,
        &[
            ("ID", &|it| Cell::number(it.id)),
            ("TIME", &|it| Cell::text(time_text(it.unix_seconds))),
            ("LEVEL", &|it| Cell::text(word_of(&it.level))),
            ("EVENT", &|it| Cell::text(&it.kind)),
            ("VOLUME", &|it| Cell::text(or_dash(it.volume.clone()))),
            ("MESSAGE", &|it| Cell::text(&it.message)),
        ],
    );
    Ok(Report::of(table.viewed(view)?, &events))
}

fn text(pool: &Pool) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let thresholds: Vec<String> = pool.thresholds_percent.iter().map(u64::to_string).collect();
    lines(&[
        ("max-memory", size(pool.max_memory_bytes)),
        ("can grow to", size(pool.capacity_bytes)),
        ("used", size(pool.used_bytes)),
        ("guaranteed", format!("{} reserved for guaranteed volumes", size(pool.guaranteed_bytes))),
        ("reserve", size(pool.reserve_bytes)),
        ("daemon memory", size(pool.daemon_bytes)),
        ("thresholds", format!("{} %", thresholds.join(", "))),
        ("full in", forecast_text(pool)),
    ])
}

fn forecast_text(pool: &Pool) -> String {
    let Some(forecast) = &pool.forecast else {
        return match pool.fill_state {
            FillState::Steady => "- (usage is not growing)",
            FillState::Unknown | FillState::Filling => "- (not known yet)",
        }
        .to_owned();
    };
    let rate = |bytes| format!("{}/s", ByteSize(bytes).rounded());
    let volumes: Vec<String> = forecast
        .volumes
        .iter()
        .map(|it| format!("{} {}", it.volume, rate(it.bytes_per_second)))
        .collect();
    let seconds = forecast.full_in_seconds;
    let (hours, minutes) = (seconds / 3600, seconds % 3600 / 60);
    format!(
        "{hours} h {minutes} min at {}: {}",
        rate(forecast.bytes_per_second),
        volumes.join(", ")
    )
}
