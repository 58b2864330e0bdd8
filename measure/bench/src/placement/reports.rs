//! Reports: sorts and joins over a warehouse's rows that exceed a session's memory, so that they
//! use temporary files, and whose result is a temporary table.
//!
//! A report modifies no permanent data. It counts if it starts and ends in the measured time, and
//! returns as many rows as on the new database.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use system::wait_for;

use super::engines::{Report, reports, session_settings, temporary_work};
use crate::latency::Latencies;
use crate::tpcc::{Clerk, Engine, Observe, Reporting, Window, sleep_until};

/// Delay between the last connection and the first report.
const START_DELAY: Duration = Duration::from_millis(20);
/// Maximum time for ended sessions to leave the server, which then counts their work.
const LEAVING_TIME_LIMIT: Duration = Duration::from_secs(10);

fn of_warehouse(words: &str, warehouse: u32) -> String {
    words.replace("$w", &warehouse.to_string())
}

/// Expected number of rows of each report, by warehouse, on a new database.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    rows: Vec<Vec<u64>>,
}

impl Expected {
    /// Queries the expected numbers for all warehouses.
    pub(super) fn of(engine: Engine, database: &dyn Reporting, warehouses: u32) -> Result<Self> {
        let mut own = database.observer()?;
        let mut count = |report: &Report, warehouse| {
            let count = own.number(&of_warehouse(report.rows, warehouse))?;
            u64::try_from(count).context("a count of rows is negative")
        };
        let mut rows = Vec::new();
        for warehouse in 1..=warehouses {
            let of_one = reports(engine).iter().map(|report| count(report, warehouse));
            rows.push(of_one.collect::<Result<Vec<_>>>()?);
        }
        Ok(Self { rows })
    }

    fn get(&self, warehouse: u32, report: usize) -> u64 {
        self.rows[warehouse as usize - 1][report]
    }
}

/// Parameters of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportLoad {
    pub(super) engine: Engine,
    pub(super) users: u32,
    pub(super) warehouses: u32,
    pub(super) ramp: Duration,
    pub(super) duration: Duration,
}

/// Results of the load.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) per_minute: f64,
    pub(super) window: Window,
    /// Number of reports that ended in each second of the window.
    pub(super) by_second: Vec<u64>,
    pub(super) service: Latencies,
    /// Number of users without a completed report in the window.
    pub(super) idle_users: u32,
    /// Temporary work per report, including reports outside the window: see [`temporary_work`].
    pub(super) temporary_each: f64,
    /// Reasons why the run is void.
    pub(super) faults: Vec<String>,
}

pub(super) fn run(
    database: &dyn Reporting,
    load: &ReportLoad,
    expected: &Expected,
) -> Result<Reported> {
    let mut observer = database.observer()?;
    let before = temporary_count(load.engine, &mut *observer)?;
    let sessions = (0..load.users).map(|_| {
        let mut own = database.clerk()?;
        own.batch(session_settings(load.engine))?;
        Ok(own)
    });
    let sessions = sessions.collect::<Result<Vec<_>>>().context("cannot connect the users")?;
    let begin = Instant::now() + START_DELAY + load.ramp;
    let window = Window { begin, end: begin + load.duration };
    let shared = Shared {
        load: *load,
        window,
        expected,
        must_stop: AtomicBool::new(false),
        faults: Mutex::default(),
    };
    let users = thread::scope(|scope| {
        let shared = &shared;
        let threads: Vec<_> = (0..)
            .zip(sessions)
            .map(|(number, mut session)| scope.spawn(move || shared.work(number, &mut *session)))
            .collect();
        let waited = sleep_until(window.end, &shared.must_stop);
        shared.must_stop.store(true, Ordering::Relaxed);
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a user's thread panicked"))?);
        let users = ended.collect::<Result<Vec<_>>>()?;
        waited.map(|()| users)
    })?;
    wait_for("the users' sessions to end", LEAVING_TIME_LIMIT, || Ok(observer.user_count()? == 0))?;
    let used = temporary_count(load.engine, &mut *observer)? - before;
    let faults = shared.faults.into_inner().map_err(|_| anyhow!("a user's thread panicked"))?;
    Ok(sum_up(window, &users, used, faults))
}

fn temporary_count(engine: Engine, observer: &mut dyn Observe) -> Result<i64> {
    temporary_work(engine).queries.iter().map(|query| observer.number(query)).sum()
}

/// A counted report.
#[derive(Clone, Copy, Debug)]
struct Ended {
    sent: Instant,
    answered: Instant,
}

/// Results of a user.
#[derive(Debug, Default)]
struct UserDone {
    ended: Vec<Ended>,
    /// Including reports outside the window.
    ever: u64,
}

impl UserDone {
    /// Returns the rate from the first report that began in the window to the end of the last one.
    fn per_minute(&self) -> f64 {
        let ends = self.ended.first().zip(self.ended.last());
        let spent_s = ends.map_or(0.0, |(a, b)| (b.answered - a.sent).as_secs_f64());
        if spent_s > 0.0 { self.ended.len() as f64 * 60.0 / spent_s } else { 0.0 }
    }
}

fn sum_up(window: Window, users: &[UserDone], used: i64, mut faults: Vec<String>) -> Reported {
    let mut service = Latencies::new();
    let mut by_second = vec![0; window.whole_seconds()];
    for ended in users.iter().flat_map(|user| &user.ended) {
        service.record_time(ended.answered - ended.sent);
        if let Some(second) = window.second(ended.answered) {
            by_second[second] += 1;
        }
    }
    let ever: u64 = users.iter().map(|user| user.ever).sum();
    if ever > 0 && used <= 0 {
        faults.push("no report needed temporary files".to_owned());
    }
    let idle = users.iter().filter(|user| user.ended.is_empty()).count();
    Reported {
        per_minute: users.iter().map(UserDone::per_minute).sum(),
        window,
        by_second,
        service,
        idle_users: u32::try_from(idle).unwrap_or(u32::MAX),
        temporary_each: used as f64 / (ever as f64).max(1.0),
        faults,
    }
}

/// Shared state of the users.
struct Shared<'run> {
    load: ReportLoad,
    window: Window,
    expected: &'run Expected,
    must_stop: AtomicBool,
    faults: Mutex<Vec<String>>,
}

impl Shared<'_> {
    /// Works until the end of the measurement. Completes a started report.
    fn work(&self, number: u32, session: &mut dyn Clerk) -> Result<UserDone> {
        let done = self.work_until_stopped(number, session);
        if done.is_err() {
            self.must_stop.store(true, Ordering::Relaxed);
        }
        done
    }

    fn work_until_stopped(&self, number: u32, session: &mut dyn Clerk) -> Result<UserDone> {
        let warehouse = number % self.load.warehouses + 1;
        let mut done = UserDone::default();
        let mut next = number as usize;
        while !self.must_stop.load(Ordering::Relaxed) {
            let reports = reports(self.load.engine);
            let report = next % reports.len();
            next += 1;
            let sent = Instant::now();
            let rows = make(&reports[report], warehouse, session)?;
            let answered = Instant::now();
            self.check(report, warehouse, rows);
            done.ever += 1;
            if sent >= self.window.begin && answered <= self.window.end {
                done.ended.push(Ended { sent, answered });
            }
        }
        Ok(done)
    }

    fn check(&self, report: usize, warehouse: u32, rows: u64) {
        let expected = self.expected.get(warehouse, report);
        if rows == expected {
            return;
        }
        let name = reports(self.load.engine)[report].name;
        let fault = format!(
            "the {name} of warehouse {warehouse} returned {rows} rows instead of {expected}"
        );
        let mut faults = self.faults.lock().expect("nothing panics while the faults are held");
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
}

/// Creates a report and drops it. Returns its number of rows.
fn make(report: &Report, warehouse: u32, session: &mut dyn Clerk) -> Result<u64> {
    session.batch(report.settings)?;
    let query = of_warehouse(report.query, warehouse);
    let made = session.count_of(&format!("CREATE TEMPORARY TABLE report AS {query}"));
    let rows = made.with_context(|| format!("the report {} failed", report.name))?;
    session.batch("DROP TABLE report")?;
    ensure!(rows > 0, "the report {} returned no row", report.name);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn window() -> Window {
        let begin = Instant::now() + 100 * S;
        Window { begin, end: begin + 10 * S }
    }

    fn user(window: Window, ends: &[(u32, u32)]) -> UserDone {
        let ended = |(sent, answered): &(u32, u32)| Ended {
            sent: window.begin + *sent * S,
            answered: window.begin + *answered * S,
        };
        UserDone { ended: ends.iter().map(ended).collect(), ever: ends.len() as u64 + 1 }
    }

    #[test]
    fn the_rate_is_of_the_time_that_reports_took() {
        let window = window();
        let users = [user(window, &[(1, 3), (3, 5)]), user(window, &[(0, 6)])];
        let reported = sum_up(window, &users, 5_000, Vec::new());
        assert!((reported.per_minute - (30.0 + 10.0)).abs() < 1e-9, "{}", reported.per_minute);
        assert_eq!(reported.by_second, [0, 0, 0, 1, 0, 1, 1, 0, 0, 0]);
        assert_eq!((reported.idle_users, reported.temporary_each), (0, 1_000.0));
        assert_eq!(reported.faults, Vec::<String>::new());
        assert_eq!(reported.service.count(), 3);
    }

    #[test]
    fn users_without_a_report_are_told_of() {
        let window = window();
        let users = [user(window, &[]), user(window, &[(2, 4)])];
        assert_eq!(sum_up(window, &users, 5_000, Vec::new()).idle_users, 1);
    }

    #[test]
    fn reports_without_temporary_files_are_no_reports() {
        let window = window();
        let users = [user(window, &[(1, 3)])];
        let reported = sum_up(window, &users, 0, Vec::new());
        assert!(reported.faults[0].contains("temporary files"), "{:?}", reported.faults);
    }

    #[test]
    fn reports_name_their_warehouse_everywhere() {
        for report in [Engine::Postgresql, Engine::Mariadb].into_iter().flat_map(reports) {
            let query = of_warehouse(report.query, 7);
            assert!(!query.contains('$') && query.contains("= 7"), "{query}");
        }
    }
}
