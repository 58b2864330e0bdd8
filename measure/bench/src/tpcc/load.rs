//! Creation of the initial database: tables, rows, indexes and statistics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use system::Interruption;

use super::database::{Database, Fill};
use super::rows::{self, Sink, TABLES, Warehouse};
use crate::run::show_part;

const SHOW_INTERVAL: Duration = Duration::from_millis(200);

/// Amount of data to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) warehouses: u32,
    pub(crate) seed: u64,
}

/// Creates the database. On return everything is on storage.
pub(crate) fn load(database: &dyn Database, extent: Extent) -> Result<()> {
    database.create().context("cannot create the database")?;
    fill(database, extent).context("cannot fill the tables")?;
    show_part("making indexes and statistics");
    database.complete()
}

/// Progress of the loaders, and their stop flag.
#[derive(Default)]
struct Advance {
    rows: AtomicU64,
    must_stop: AtomicBool,
    ended: AtomicU64,
}

fn fill(database: &dyn Database, extent: Extent) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let loaders = cores.min(database.fillers_max()).min(extent.warehouses);
    let advance = Advance::default();
    let all = rows::row_count(extent.warehouses);
    std::thread::scope(|scope| {
        let advance = &advance;
        let load = |loader: u32| {
            move || {
                let done = load_share(database, extent, (loader, loaders), advance);
                if done.is_err() {
                    advance.must_stop.store(true, Ordering::Relaxed);
                }
                advance.ended.fetch_add(1, Ordering::Relaxed);
                done
            }
        };
        let threads: Vec<_> = (0..loaders).map(|loader| scope.spawn(load(loader))).collect();
        while advance.ended.load(Ordering::Relaxed) < u64::from(loaders) {
            if Interruption::is_asked_for() {
                advance.must_stop.store(true, Ordering::Relaxed);
            }
            show_part(&bar(advance.rows.load(Ordering::Relaxed), all));
            std::thread::sleep(SHOW_INTERVAL);
        }
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a thread that loads panicked"))?
        })
    })
}

/// Formats `[#####-----] 50 % of 1000 rows`.
fn bar(done: u64, all: u64) -> String {
    const WIDTH: u64 = 20;
    let filled = (done * WIDTH / all.max(1)).min(WIDTH);
    let part = |sign: &str, count: u64| (0..count).map(|_| sign).collect::<String>();
    let percent = (done * 100 / all.max(1)).min(100);
    let (filled, empty) = (part("#", filled), part("-", WIDTH - filled));
    format!("loading [{filled}{empty}] {percent} % of {all} rows")
}

/// Loads a loader's warehouses, and the items if it is the first.
fn load_share(
    database: &dyn Database,
    extent: Extent,
    (loader, loaders): (u32, u32),
    advance: &Advance,
) -> Result<()> {
    let mut fill = database.filler()?;
    if loader == 0 {
        let mut rows = Rows::begin(&mut *fill, "item", advance)?;
        rows::items(extent.seed, &mut rows)?;
        rows.end()?;
    }
    for id in (1..=extent.warehouses).filter(|id| id % loaders == loader) {
        let warehouse = Warehouse { id, seed: extent.seed };
        for (table, _) in TABLES {
            let mut rows = Rows::begin(&mut *fill, table, advance)?;
            warehouse.rows(table, &mut rows)?;
            rows.end()?;
        }
    }
    Ok(())
}

/// A stream of rows to a table.
struct Rows<'load> {
    fill: &'load mut dyn Fill,
    table: &'static str,
    advance: &'load Advance,
}

impl<'load> Rows<'load> {
    fn begin(
        fill: &'load mut dyn Fill,
        table: &'static str,
        advance: &'load Advance,
    ) -> Result<Self> {
        fill.begin(table).with_context(|| format!("cannot begin to fill {table}"))?;
        Ok(Self { fill, table, advance })
    }

    fn end(self) -> Result<()> {
        self.fill.end().with_context(|| format!("cannot fill {}", self.table))
    }
}

impl Sink for Rows<'_> {
    type Error = anyhow::Error;

    fn take(&mut self, rows: &mut String) -> Result<()> {
        let must_stop = self.advance.must_stop.load(Ordering::Relaxed);
        ensure!(!must_stop, "interrupted while {} is filled", self.table);
        self.fill.take(rows).with_context(|| format!("cannot fill {}", self.table))?;
        self.advance.rows.fetch_add(rows.lines().count() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn the_bar_shows_how_far_the_load_is() {
        assert_eq!(bar(50, 100), "loading [##########----------] 50 % of 100 rows");
        assert_eq!(bar(120, 100), "loading [####################] 100 % of 100 rows");
    }
}
