//! The same stored procedures called by pgbench: another driver with another random number
//! generator, whose rate is also read from the database.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, chmod};
use system::Background;
use system::database::Server;
use tempfile::TempDir;

use super::database::{NAME, RETRIES_MAX};
use super::draw::{
    CUSTOMER_SPREAD, CUSTOMERS, Constants, DISTRICTS, ITEM_SPREAD, ITEMS, LAST_NAME_SPREAD,
    LAST_NAMES,
};
use super::drive::{Load, Measured, Observer, sleep_until};
use super::input::{
    BY_NAME_PERCENT, Kind, LINES_MAX, LINES_MIN, REMOTE_LINE_PERCENT, REMOTE_PAYMENT_PERCENT,
    ROLLED_BACK_PERCENT,
};
use super::postgresql::Postgresql;

/// Additional run time after the window, so that it does not end early.
const BEYOND: Duration = Duration::from_secs(1);
const END_TIME_LIMIT: Duration = Duration::from_secs(120);
const TRIES_MAX: u32 = RETRIES_MAX + 1;

/// Work of pgbench as counted by the database, and the new orders that pgbench reports as
/// requested.
pub(super) struct Checked {
    pub(super) measured: Measured,
    pub(super) new_orders_asked_for: u64,
}

/// Runs pgbench with the load's users, mix, warm-up and duration, in a closed loop.
pub(super) fn drive(server: &Server, load: &Load) -> Result<Checked> {
    let folder = folder_of_scripts()?;
    let mut observer = Observer::new(&Postgresql::of(server))?;
    let output_path = folder.path().join("output");
    let begun = Instant::now();
    let mut running = start((server, &[]), load, &folder, &output_path)?;
    let must_stop = AtomicBool::new(false);
    let mut sample = |after: Duration| {
        sleep_until(begun + after, &must_stop)?;
        if let Some(status) = running.has_ended()? {
            bail!("pgbench ended early with {status}: {}", said_in(&output_path));
        }
        observer.sample()
    };
    let samples = (sample(load.ramp)?, sample(load.ramp + load.duration)?);
    let said = finish(running, END_TIME_LIMIT, &output_path)?;
    let asked_for = new_orders_in(&said);
    let new_orders_asked_for = asked_for.with_context(|| {
        format!("cannot parse the number of orders in the output of pgbench: {said}")
    })?;
    Ok(Checked { measured: observer.finish(samples, None, 0)?, new_orders_asked_for })
}

/// Runs pgbench with a command prefix, without querying the database.
pub(crate) fn rush(server: &Server, load: &Load, starter: &[String]) -> Result<()> {
    let folder = folder_of_scripts()?;
    let output = folder.path().join("output");
    let running = start((server, starter), load, &folder, &output)?;
    finish(running, load.ramp + load.duration + END_TIME_LIMIT, &output).map(|_| ())
}

fn folder_of_scripts() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("memlane-tpcc-").tempdir_in("/tmp");
    let folder = folder.context("cannot create a directory for scripts")?;
    chmod(folder.path(), Mode::from_raw_mode(0o755))
        .context("cannot change the mode of a directory")?;
    Ok(folder)
}

/// Waits for the end. Returns the final output.
fn finish(running: Background, time_limit: Duration, output: &Path) -> Result<String> {
    let ended = running.finish(time_limit);
    let said = said_in(output);
    ended.with_context(|| format!("pgbench said: {said}"))?;
    ensure!(!said.contains("aborted"), "a client of pgbench was aborted: {said}");
    Ok(said)
}

fn start(
    (server, starter): (&Server, &[String]),
    load: &Load,
    folder: &TempDir,
    output: &Path,
) -> Result<Background> {
    let seconds = (load.ramp + load.duration + BEYOND).as_secs_f64().ceil();
    let mut words = vec![
        "--no-vacuum".to_owned(),
        "--protocol=prepared".to_owned(),
        format!("--client={}", load.users),
        format!("--jobs={}", load.users.min(2)),
        format!("--time={seconds}"),
        format!("--max-tries={TRIES_MAX}"),
        format!("--random-seed={}", load.seed),
    ];
    for (kind, weight) in Kind::ALL.into_iter().zip(load.mix.weights()) {
        let path = folder.path().join(format!("{}.sql", kind.name()));
        fs::write(&path, script(kind, load.warehouses, &load.constants))
            .with_context(|| format!("cannot write {}", path.display()))?;
        words.push(format!("--file={}@{weight}", path.display()));
    }
    let output = File::create(output).context("cannot create a file for output")?;
    let pgbench =
        server.client_behind(starter, "pgbench").args(words).arg(NAME).output_to(output)?;
    Background::start(pgbench)
}

fn said_in(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Parses pgbench's number of transactions of its first script, that of new orders.
fn new_orders_in(said: &str) -> Option<u64> {
    let (_, of_first) = said.split_once("SQL script 1:")?;
    let line = of_first.lines().find(|line| line.contains(" transactions ("))?;
    line.trim_start_matches([' ', '-']).split(' ').next()?.parse().ok()
}

/// Returns a transaction in pgbench's language, with the distributions of [`super::input`].
fn script(kind: Kind, warehouses: u32, constants: &Constants) -> String {
    let mut text = format!("\\set w :client_id % {warehouses} + 1\n");
    let mut set = |name: &str, value: &str| {
        writeln!(text, "\\set {name} {value}").expect("text grows");
    };
    let district = format!("random(1, {DISTRICTS})");
    let customer = uneven(CUSTOMER_SPREAD, (1, CUSTOMERS), constants.customer);
    let name = uneven(LAST_NAME_SPREAD, (0, LAST_NAMES - 1), constants.last_name_at_run);
    // With only one warehouse, the other one is the same.
    let other = match warehouses {
        1 => "1".to_owned(),
        _ => format!("(:w + random(0, {})) % {warehouses} + 1", warehouses - 2),
    };
    let choice = format!("CASE WHEN :named <= {BY_NAME_PERCENT} THEN NULL ELSE :c END::int");
    let call = match kind {
        Kind::NewOrder => {
            set("d", &district);
            set("c", &customer);
            set("n", &format!("random({LINES_MIN}, {LINES_MAX})"));
            set("absent", "random(1, 100)");
            set_lines(&mut set, other.as_str(), constants);
            let array = |letter: char| {
                let places: Vec<String> =
                    (1..=LINES_MAX).map(|line| format!(":{letter}{line}")).collect();
                format!("ARRAY[{}]::int[]", places.join(", "))
            };
            let (items, supplies, quantities) = (array('i'), array('s'), array('q'));
            format!("tpcc_new_order(:w, :d, :c, :n, {items}, {supplies}, {quantities}, NULL)")
        }
        Kind::Payment => {
            set("d", &district);
            let share = if warehouses == 1 { 0 } else { REMOTE_PAYMENT_PERCENT };
            set("remote", "random(1, 100)");
            set("cw", &format!("case when :remote <= {share} then {other} else :w end"));
            set("cd", &format!("case when :remote <= {share} then {district} else :d end"));
            set("named", "random(1, 100)");
            set("c", &customer);
            set("name", &name);
            set("cents", "random(100, 500000)");
            format!(
                "tpcc_payment(:w, :d, :cw, :cd, {choice}, tpcc_last_name(:name), \
                 :cents::numeric / 100, NULL)"
            )
        }
        Kind::OrderStatus => {
            set("d", &district);
            set("named", "random(1, 100)");
            set("c", &customer);
            set("name", &name);
            format!("tpcc_order_status(:w, :d, {choice}, tpcc_last_name(:name), NULL)")
        }
        Kind::Delivery => {
            set("carrier", "random(1, 10)");
            "tpcc_delivery(:w, :carrier, NULL)".to_owned()
        }
        Kind::StockLevel => {
            set("d", &format!(":client_id / {warehouses} % {DISTRICTS} + 1"));
            set("threshold", "random(10, 20)");
            "tpcc_stock_level(:w, :d, :threshold, NULL)".to_owned()
        }
    };
    writeln!(text, "CALL {call};").expect("text grows");
    text
}

/// Sets fifteen lines. The procedure uses as many as the order has.
fn set_lines(set: &mut impl FnMut(&str, &str), other: &str, constants: &Constants) {
    for line in 1..=LINES_MAX {
        let item = uneven(ITEM_SPREAD, (1, ITEMS), constants.item);
        let is_absent = format!(":absent <= {ROLLED_BACK_PERCENT} and :n = {line}");
        let item = format!("case when {is_absent} then {} else {item} end", ITEMS + 1);
        set(&format!("i{line}"), &item);
        let is_remote = format!("random(1, 100) <= {REMOTE_LINE_PERCENT}");
        set(&format!("s{line}"), &format!("case when {is_remote} then {other} else :w end"));
        set(&format!("q{line}"), "random(1, 10)");
    }
}

/// Returns the specification's NURand.
fn uneven(spread: u32, (low, high): (u32, u32), constant: u32) -> String {
    let range = high - low + 1;
    format!("((random(0, {spread}) | random({low}, {high})) + {constant}) % {range} + {low}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_of_new_orders_is_read() {
        let said = "SQL script 1: /tmp/a/new_order.sql\n - weight: 10 (targets 43.5% of total)\n \
                    - 4711 transactions (43.6% of total, tps = 99.1)\nSQL script 2: b\n";
        assert_eq!(new_orders_in(said), Some(4_711));
        assert_eq!(new_orders_in("pgbench: error"), None);
    }

    #[test]
    fn scripts_draw_by_the_constants_of_the_run() {
        let constants = Constants { customer: 259, ..Constants::new(1) };
        let text = script(Kind::NewOrder, 4, &constants);
        assert!(text.contains("((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1"), "{text}");
        assert_eq!(text.matches("\\set i").count(), 15);
        assert!(text.contains("(:w + random(0, 2)) % 4 + 1"), "{text}");
    }
}
