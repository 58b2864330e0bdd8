//! Database applications: a B-tree, and sales data in row and column stores.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::application::{Application, ON_FOLDERS};
use super::workdir::{PYTHON, Workdir};

const BTREE: &str = include_str!("programs/btree.py");
const DUCKDB: &str = include_str!("programs/duckdb.py");
const BUSINESS: &str = include_str!("programs/business.sql");

/// Size of a row in the B-tree, and in the sales table.
const ROW_BYTES: u64 = 408;
const SALE_BYTES: u64 = 28;
/// Size in a column store.
const DUCKDB_SALE_BYTES: u64 = 20;
/// Minimum memory of DuckDB. The rest is spilled.
const DUCKDB_MEBIBYTES_MIN: u64 = 64;
const CATEGORIES: usize = 20;
const BEST_OF_CATEGORY: usize = 10;

pub(super) const ALL: &[Application] = &[
    Application {
        name: "lmdb",
        stands_for: "BDB",
        programs: &[PYTHON],
        modules: &["lmdb"],
        install_hint: "apt install python3-lmdb",
        prepare: |workdir| {
            fs::create_dir(workdir.path("tree")).context("cannot create a directory")?;
            workdir.python_tool(BTREE, &["fill", "tree", &rows(workdir).to_string()]).check()?;
            Ok(())
        },
        run: |workdir| {
            let numbers =
                [rows(workdir), updates(workdir), workdir.seed].map(|number| number.to_string());
            let words = ["work", "tree", &numbers[0], &numbers[1], &numbers[2]];
            workdir.python(BTREE, &words).check().map(drop)
        },
        verify: |workdir| {
            let said = workdir.python_tool(BTREE, &["sum", "tree"]).check()?;
            let expected = format!("{} rows, {} updates", rows(workdir), updates(workdir));
            ensure!(said.trim() == expected, "the tree has {said:?} instead of {expected:?}");
            Ok(())
        },
        ..ON_FOLDERS
    },
    Application {
        name: "business",
        stands_for: "Tariff",
        programs: &["sqlite3"],
        install_hint: "apt install sqlite3",
        prepare: |workdir| {
            // Sorts and groups spill to files, because the cache is small.
            let settings = "PRAGMA temp_store=FILE; PRAGMA cache_size=-4096;\n.output answers\n";
            let work = format!("{settings}{BUSINESS}");
            fs::write(workdir.path("work.sql"), work).context("cannot write statements")?;
            workdir.tool("sqlite3 business.db").arg(sales(workdir)).check().map(drop)
        },
        run: |workdir| {
            workdir.program("sqlite3 business.db").arg(".read work.sql").check().map(drop)
        },
        verify: check_business,
        ..ON_FOLDERS
    },
    Application {
        name: "duckdb",
        stands_for: "Tariff",
        programs: &[PYTHON],
        modules: &["duckdb"],
        install_hint: "pip install duckdb, for /usr/bin/python3",
        prepare: |workdir| {
            fs::create_dir(workdir.path("spill")).context("cannot create a directory")?;
            let (count, seed) =
                (duckdb_sales(workdir).to_string(), (workdir.seed >> 1).to_string());
            workdir.python_tool(DUCKDB, &["fill", &count, &seed]).check().map(drop)
        },
        run: |workdir| {
            let mebibytes = (workdir.bytes >> 22).max(DUCKDB_MEBIBYTES_MIN).to_string();
            workdir.python(DUCKDB, &["work", &workdir.cores.to_string(), &mebibytes]).check()?;
            Ok(())
        },
        verify: |workdir| {
            let said = workdir.python_tool(DUCKDB, &["check"]).check()?;
            let expected = format!("{} sales", duckdb_sales(workdir));
            ensure!(said.trim() == expected, "there are {said:?} instead of {expected:?}");
            Ok(())
        },
        ..ON_FOLDERS
    },
];

fn duckdb_sales(workdir: &Workdir) -> u64 {
    workdir.bytes / 2 / DUCKDB_SALE_BYTES
}

fn rows(workdir: &Workdir) -> u64 {
    workdir.bytes / 2 / ROW_BYTES
}

fn updates(workdir: &Workdir) -> u64 {
    (workdir.bytes >> 14).clamp(100, 20_000)
}

fn sale_count(workdir: &Workdir) -> u64 {
    workdir.bytes / 2 / SALE_BYTES
}

/// Returns SQL that generates two years of sales in 100 shops, with a generator started from the
/// seed.
fn sales(workdir: &Workdir) -> String {
    let (count, seed) = (sale_count(workdir), workdir.seed % (1 << 31));
    format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;
         CREATE TABLE store(id INTEGER PRIMARY KEY, region INTEGER);
         CREATE TABLE product(id INTEGER PRIMARY KEY, category INTEGER);
         CREATE TABLE sale(id INTEGER PRIMARY KEY, day INTEGER, store INTEGER, product INTEGER,
           customer INTEGER, quantity INTEGER, cents INTEGER);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<99)
           INSERT INTO store SELECT i, i%8 FROM n;
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<1999)
           INSERT INTO product SELECT i, i%{CATEGORIES} FROM n;
         WITH RECURSIVE n(i,h) AS (SELECT 1, {seed}
             UNION ALL SELECT i+1, (h*1103515245+12345)%2147483648 FROM n WHERE i<{count})
           INSERT INTO sale SELECT i, h/65536%730, h/128%100, h/64%2000, h/32%20000,
             1+h/4096%9, 100+h/1024%9900 FROM n;
         PRAGMA wal_checkpoint(TRUNCATE);"
    )
}

/// Checks the sums of the answers against other queries.
fn check_business(workdir: &Workdir) -> Result<()> {
    let path = workdir.path("answers");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let of = |question: &str| -> Vec<Vec<u64>> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(question)?.strip_prefix('|'));
        lines.map(|line| line.split('|').filter_map(|cell| cell.parse().ok()).collect()).collect()
    };
    let said =
        workdir.tool("sqlite3 business.db").arg("SELECT sum(cents*quantity) FROM sale").check();
    let earned: u64 = said?.trim().parse().context("the sum of sales is no number")?;
    let by_month: u64 = of("month").iter().filter_map(|row| row.last()).sum();
    ensure!(by_month == earned, "the months earned {by_month} and the sales {earned}");
    let sold: u64 = of("again").iter().filter_map(|row| Some(row.first()? * row.get(1)?)).sum();
    let sales = sale_count(workdir);
    ensure!(sold == sales, "customers bought {sold} times and shops sold {sales} times");
    let (best, reach) = (of("best").len(), of("reach").len());
    ensure!(best == CATEGORIES * BEST_OF_CATEGORY, "{best} best products");
    ensure!(reach == CATEGORIES, "{reach} categories");
    Ok(())
}
