//! The market data example (`docs/guides/market-data.md`): kcat publishes orders and quotes. The
//! broker maintains a topic of the big orders and a view of the positions. It is killed meanwhile,
//! and the results are compared with queries on the orders themselves. Needs no root.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{
    Broker, Daemon, DaemonOptions, Interruption, Tool, free_address, product_path, wait_for,
};

use crate::demo::kcat::{self, Kcat};
use crate::demo::progress::Progress;
use crate::demo::table::{Table, thousands};

const STEPS: usize = 4;

const ORDER_COUNT: u64 = 20_000;
const QUOTE_COUNT: u64 = 20_000;
const SYMBOL_COUNT: u64 = 50;

/// Number of shares from which on an order is big.
const BIG: u64 = 900;

const TIME_LIMIT: Duration = Duration::from_secs(60);

const DEFINITIONS: &str = "
CREATE TABLE trades (symbol text, qty bigint, price double precision)
    WITH (topic = 'orders', format = 'json');
CREATE TOPIC big AS SELECT * FROM orders WHERE (value->>'qty')::bigint >= 900;
CREATE MATERIALIZED VIEW positions AS
    SELECT value->>'symbol' AS symbol, sum((value->>'qty')::bigint) AS qty, count(*) AS orders
    FROM orders GROUP BY 1;
";

/// Query that counts positions that differ from the sums of the orders.
const WRONG: &str = r#"
SELECT count(*) FROM (SELECT symbol, sum(qty) AS qty FROM trades GROUP BY symbol) AS o
FULL JOIN positions AS p ON p.symbol = o.symbol
WHERE p.qty IS DISTINCT FROM o.qty"#;

const WORTH: &str = r#"
SELECT p.symbol, p.qty, (q.value->>'bid')::float8 AS bid,
    p.qty * (q.value->>'bid')::float8 AS worth
FROM positions AS p JOIN "quotes$current" AS q ON q.key = p.symbol
ORDER BY worth DESC, symbol LIMIT 5"#;

/// Result of the example.
pub(crate) struct Market {
    big_count: u64,
    /// Largest positions, as printed by `memlane sql`.
    positions: String,
}

/// Defines topics and views by SQL, and kills the broker while they are filled.
pub(crate) fn run() -> Result<()> {
    Interruption::listen()?;
    kcat::check_that_it_is_there()?;
    let progress = Progress::new(STEPS);
    progress.step("start memlaned and memlane-broker; topics are of class journal");
    let daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    let sql_address = free_address()?.to_string();
    let flags = format!("--topic-default memlane.durability=journal --sql {sql_address}");
    let mut broker = Broker::on_daemon(&daemon.run_dir(), &flags)?;
    let market = show(&mut broker, &sql_address, &progress)?;
    broker.stop()?;
    daemon.finish()?;
    drop(progress);
    let mut table = Table::default();
    let cell = |number| [Some(thousands(number))];
    table.row("orders, killed in the middle", &cell(ORDER_COUNT));
    table.row("big ones in their own topic", &cell(market.big_count));
    table.row("positions as the orders add up to", &cell(SYMBOL_COUNT));
    table.print()?;
    let positions = format!("\n{}", market.positions);
    io::stdout().write_all(positions.as_bytes()).context("cannot print the positions")
}

/// Publishes orders and quotes, and kills the broker meanwhile.
fn show(broker: &mut Broker, sql_address: &str, progress: &Progress) -> Result<Market> {
    progress.step("orders and quotes: a topic of big orders and a view of positions are kept");
    for words in ["topic create orders", "topic create quotes --config memlane.values=latest"] {
        memlane(words).args(["--broker", &broker.address()]).check()?;
    }
    sql(sql_address, DEFINITIONS)?;
    publish(broker, "quotes", (0..QUOTE_COUNT).map(quote))?.finish()?;
    let orders = |range: std::ops::Range<u64>| range.map(order);
    publish(broker, "orders", orders(0..ORDER_COUNT / 2))?.finish()?;
    progress.step("kill -9 the broker while more orders come, and start it again");
    let mut producer = publish(broker, "orders", orders(ORDER_COUNT / 2..ORDER_COUNT))?;
    broker.kill()?;
    broker.start_again()?;
    producer.finish()?;
    progress.step("compare the positions with what the orders add up to");
    let counted = "SELECT sum(orders) FROM positions";
    wait_for("the view to be up to date", TIME_LIMIT, || {
        Ok(number(sql_address, counted)? == Some(ORDER_COUNT))
    })?;
    let wrong = number(sql_address, WRONG)?;
    ensure!(wrong == Some(0), "{wrong:?} positions are wrong");
    let expected = (0..ORDER_COUNT).filter(|it| quantity(*it) >= BIG).count() as u64;
    wait_for("the topic of big orders to be up to date", TIME_LIMIT, || {
        Ok(number(sql_address, "SELECT count(*) FROM big")? >= Some(expected))
    })?;
    // Read by a consumer, which knows nothing of SQL.
    let big = Kcat::start(broker, &["-C", "-t", "big", "-o", "beginning", "-e", "-q"])?.lines()?;
    let big_count = big.len() as u64;
    ensure!(big_count == expected, "the topic has {big_count} of {expected} big orders");
    Ok(Market { big_count, positions: sql(sql_address, WORTH)? })
}

fn quantity(number: u64) -> u64 {
    number * 37 % 1_000
}

fn order(number: u64) -> String {
    let symbol = number * 7 % SYMBOL_COUNT;
    let (qty, price) = (quantity(number), 100.0 + (number % 13) as f64 / 4.0);
    format!("{number}|{{\"symbol\": \"S{symbol:02}\", \"qty\": {qty}, \"price\": {price}}}")
}

fn quote(number: u64) -> String {
    let bid = 100.0 + (number % 17) as f64 / 4.0;
    format!("S{:02}|{{\"bid\": {bid}, \"ask\": {}}}", number % SYMBOL_COUNT, bid + 0.5)
}

/// Passes records to kcat, one in each line. It continues while the broker is down.
fn publish(broker: &Broker, topic: &str, records: impl Iterator<Item = String>) -> Result<Kcat> {
    let words = ["-P", "-t", topic, "-K", "|", "-X", "enable.idempotence=true"];
    let mut kcat = Kcat::start(broker, &words)?;
    let lines: String = records.map(|it| it + "\n").collect();
    kcat.input()?.write_all(lines.as_bytes()).context("kcat takes no more records")?;
    Ok(kcat)
}

fn memlane(words: &str) -> Tool {
    Tool::new(&format!("{} {words}", product_path("memlane").display()))
}

fn sql(address: &str, statements: &str) -> Result<String> {
    memlane("sql").args(["--server", address, "-c", statements]).check()
}

/// Returns the single number of a query's result, or `None` for NULL.
fn number(address: &str, query: &str) -> Result<Option<u64>> {
    let printed = sql(address, query)?;
    let cell = printed.lines().nth(1).context("the query gave nothing")?;
    if cell == "NULL" {
        return Ok(None);
    }
    cell.parse().map(Some).with_context(|| format!("{cell:?} is no number"))
}
