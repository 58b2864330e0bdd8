//! Conversion of measurements to rows.

use results::{Row, Suite};
use serde_json::{Value, json};

use super::cores::{Cores, Used};
use super::turns::Tally;

/// Name of a measured program.
pub(super) const BROKER: &str = "memlane-broker";
pub(super) const POSTGRESQL: &str = "PostgreSQL";
pub(super) const CONSUMER: &str = "Kafka consumer of memlane-broker";
pub(super) const LIVE_QUERY: &str = "live query of memlane-broker";

/// Creates a row of the suite with its parameters.
pub(super) fn row(
    (case, target): (&str, &str),
    repeat: u32,
    params: &[(&str, Value)],
    cores: &Cores,
) -> Row {
    let mut row = Row::new(Suite::Sql, case, target);
    row.repeat = repeat;
    row.add_params(params.iter().cloned());
    // Everything is written before queries start.
    row.params.insert("preconditioned".to_owned(), json!(true));
    cores.flag().into_iter().for_each(|flag| row.flag(flag));
    row
}

/// Creates the row of a system that took turns, with its figure.
pub(super) fn row_of_turns(
    case: &str,
    (figure, tally): (&str, &Tally),
    (repeat, params): (u32, &[(&str, Value)]),
    cores: &Cores,
) -> Row {
    let mut row = row((case, tally.target), repeat, params, cores);
    row.figures.insert(figure.to_owned(), tally.median());
    row.rounds.clone_from(&tally.figures);
    row.params.insert("turns".to_owned(), json!(tally.figures.len()));
    row.time.started_unix_ms = tally.started_unix_ms;
    add_used(&mut row, tally.used);
    row
}

/// Minimum time for utilisation figures, because the kernel counts processor time in ticks of 10
/// ms.
const BUSY_SECONDS_MIN: f64 = 1.0;

/// Adds the duration and the utilisation of cores.
pub(super) fn add_used(row: &mut Row, used: Used) {
    row.time.duration_s = used.seconds;
    if used.seconds < BUSY_SECONDS_MIN {
        return;
    }
    let share = |seconds: f64| seconds / used.seconds;
    row.figures.insert("server_cores_busy".to_owned(), share(used.server_s));
    row.figures.insert("client_cores_busy".to_owned(), share(used.clients_s));
}
