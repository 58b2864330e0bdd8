//! Virtual users on one or more databases, and the databases' own counts of their work.
//!
//! Each user is a thread with a connection. In a closed loop a user sends the next request after
//! the response, immediately or after keying and thinking. In an open loop transactions are due at
//! fixed times, the next free user takes one, and its latency is measured from when it was due.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use system::{Interruption, wait_for};

use super::conditions;
use super::database::{Database, Observe, Session, Way};
use super::draw::Constants;
use super::input::{Kind, Mix, User};
use super::meter::{Meter, Moments, Window};

/// Delay between the last connection and the first transaction.
const START_DELAY: Duration = Duration::from_millis(20);
/// Maximum interval at which a user checks for the end of the measurement.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time for ended sessions to leave the server, which then counts their work.
const LEAVING_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Maximum relative difference of counts between driver and database before a run is void.
const DISAGREEMENT_MAX: f64 = 0.005;

const NEXT_ORDERS: &str = "SELECT sum(d_next_o_id) FROM district";

/// Start condition of the next transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pacing {
    Closed,
    /// Closed, with the specification's keying and thinking times.
    Thinking,
    Open {
        transactions_per_s: f64,
    },
}

/// Parameters of the users of each database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) users: u32,
    pub(crate) warehouses: u32,
    pub(crate) mix: Mix,
    pub(crate) way: Way,
    pub(crate) pacing: Pacing,
    pub(crate) constants: Constants,
    pub(crate) seed: u64,
    /// Time that the same load has already run, so that caches are warm.
    pub(crate) warmed: Duration,
    /// Warm-up time, not measured.
    pub(crate) ramp: Duration,
    pub(crate) duration: Duration,
}

/// Warm-up time of a load on a database that it has just run on.
pub(crate) const WARM_RAMP: Duration = Duration::from_secs(3);

impl Load {
    /// Returns the same load for another run on the warmed database, with different random numbers.
    pub(crate) fn warmed(self) -> Self {
        Self {
            warmed: self.warmed + self.ramp + self.duration,
            ramp: self.ramp.min(WARM_RAMP),
            seed: self.seed.wrapping_add(1 << 24),
            ..self
        }
    }
}

/// Results of one database and its users.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// New orders per minute in the window, as counted by the database.
    pub(crate) nopm: f64,
    /// Transactions per minute: over the whole run as counted by the database, or in the window as
    /// counted by the driver if the database does not count.
    pub(crate) tpm: f64,
    pub(crate) window_s: f64,
    /// `None` if another program was the driver.
    pub(crate) meter: Option<Meter>,
    pub(crate) new_orders: Counts,
    /// Number of due transactions of an open loop that were not executed in time.
    pub(crate) missed: u64,
    /// Reasons why the run is void.
    pub(crate) faults: Vec<String>,
}

/// Number of new orders over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) by_database: i64,
    pub(crate) by_driver: Option<u64>,
}

impl Counts {
    fn fault(self) -> Option<String> {
        let (database, driver) = (self.by_database, self.by_driver?);
        let difference = (driver as f64 - database as f64).abs();
        (difference > DISAGREEMENT_MAX * (database.max(0) as f64))
            .then(|| format!("the driver counts {driver} new orders and the database {database}"))
    }
}

/// Runs the load on all databases concurrently.
pub(crate) fn drive(databases: &[Box<dyn Database>], load: &Load) -> Result<Vec<Measured>> {
    let mut benches = Vec::new();
    for (index, database) in databases.iter().enumerate() {
        let seed = load.seed.wrapping_add(index as u64 * 0x1_0000);
        benches.push(Bench::connect(&**database, Load { seed, ..*load })?);
    }
    let begin = Instant::now() + START_DELAY + load.ramp;
    let window = Window { begin, end: begin + load.duration };
    thread::scope(|scope| {
        let running: Vec<_> =
            benches.into_iter().map(|bench| scope.spawn(move || bench.run(window))).collect();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread of the load panicked"))?);
        ended.collect()
    })
}

/// An observer that samples a database's counters.
pub(crate) struct Observer {
    own: Box<dyn Observe>,
    next_orders: i64,
    transactions: Option<i64>,
    begun: Instant,
}

/// Number of new orders up to a moment.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    next_orders: i64,
    moment: Instant,
}

impl Observer {
    /// Creates an observer before the first transaction.
    pub(crate) fn new(database: &dyn Database) -> Result<Self> {
        let mut own = database.observer()?;
        let next_orders = own.number(NEXT_ORDERS)?;
        let transactions = own.transactions()?;
        Ok(Self { own, next_orders, transactions, begun: Instant::now() })
    }

    /// Takes a sample. Its time is the middle of the query.
    pub(crate) fn sample(&mut self) -> Result<Sample> {
        let asked = Instant::now();
        let next_orders = self.own.number(NEXT_ORDERS)?;
        Ok(Sample { next_orders, moment: asked + asked.elapsed() / 2 })
    }

    /// Finishes after the last transaction: reads the counters and checks consistency.
    pub(crate) fn finish(
        mut self,
        (first, last): (Sample, Sample),
        meter: Option<Meter>,
        missed: u64,
    ) -> Result<Measured> {
        let spent_s = self.begun.elapsed().as_secs_f64();
        let own = &mut *self.own;
        wait_for("the users' sessions to end", LEAVING_TIME_LIMIT, || Ok(own.user_count()? == 0))?;
        let window_s = (last.moment - first.moment).as_secs_f64();
        ensure!(window_s > 0.0, "nothing was measured");
        let counted = own.transactions()?.zip(self.transactions);
        let tpm = match (counted, &meter) {
            (Some((after, before)), _) => (after - before) as f64 * 60.0 / spent_s,
            (None, Some(meter)) => meter.transactions_ended() as f64 * 60.0 / window_s,
            (None, None) => 0.0,
        };
        let new_orders = Counts {
            by_database: own.number(NEXT_ORDERS)? - self.next_orders,
            by_driver: meter.as_ref().map(|meter| meter.new_orders_ever),
        };
        let mut faults = conditions::violated(own)?;
        faults.extend(new_orders.fault());
        Ok(Measured {
            nopm: (last.next_orders - first.next_orders) as f64 * 60.0 / window_s,
            tpm,
            window_s,
            meter,
            new_orders,
            missed,
            faults,
        })
    }
}

/// A database with its connected users.
struct Bench {
    observer: Observer,
    users: Vec<(User, Box<dyn Session>)>,
    load: Load,
}

impl Bench {
    fn connect(database: &dyn Database, load: Load) -> Result<Self> {
        let users = (0..load.users).map(|number| {
            let user = User::new(number, load.warehouses, load.mix, load.constants);
            let user = user.seeded(load.seed.wrapping_add(u64::from(number) * 0x10_0000));
            Ok((user, database.user(load.way)?))
        });
        let users = users.collect::<Result<Vec<_>>>().context("cannot connect the users")?;
        Ok(Self { observer: Observer::new(database)?, users, load })
    }

    fn run(self, window: Window) -> Result<Measured> {
        let shared = Shared {
            window,
            pacing: self.load.pacing,
            begun: window.begin - self.load.ramp,
            next: AtomicU64::new(0),
            must_stop: AtomicBool::new(false),
            meter: Mutex::new(Meter::new(window)),
            missed: AtomicU64::new(0),
        };
        let mut observer = self.observer;
        let samples = thread::scope(|scope| {
            let shared = &shared;
            let threads: Vec<_> = self
                .users
                .into_iter()
                .map(|(user, mut session)| scope.spawn(move || shared.work(user, &mut *session)))
                .collect();
            let samples = watch(&mut observer, shared);
            if samples.is_err() {
                shared.must_stop.store(true, Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a user's thread panicked"))??;
            }
            samples
        })?;
        let Shared { meter, missed, .. } = shared;
        let meter = meter.into_inner().map_err(|_| anyhow!("a user's thread panicked"))?;
        observer.finish(samples, Some(meter), missed.into_inner())
    }
}

/// Takes samples at both ends of the window.
fn watch(observer: &mut Observer, shared: &Shared) -> Result<(Sample, Sample)> {
    sleep_until(shared.window.begin, &shared.must_stop)?;
    let first = observer.sample()?;
    sleep_until(shared.window.end, &shared.must_stop)?;
    Ok((first, observer.sample()?))
}

/// Sleeps until a moment. Fails if the user interrupts or another thread has failed.
pub(crate) fn sleep_until(moment: Instant, must_stop: &AtomicBool) -> Result<()> {
    loop {
        ensure!(!Interruption::is_asked_for(), "interrupted during a load");
        ensure!(!must_stop.load(Ordering::Relaxed), "a user's transaction failed");
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// Shared state of a database's users.
struct Shared {
    window: Window,
    pacing: Pacing,
    begun: Instant,
    /// Next transaction of an open loop.
    next: AtomicU64,
    must_stop: AtomicBool,
    meter: Mutex<Meter>,
    missed: AtomicU64,
}

impl Shared {
    /// Works until the end of the measurement.
    fn work(&self, user: User, session: &mut dyn Session) -> Result<()> {
        let done = self.work_until_stopped(user, session);
        if done.is_err() {
            self.must_stop.store(true, Ordering::Relaxed);
        }
        done
    }

    fn work_until_stopped(&self, mut user: User, session: &mut dyn Session) -> Result<()> {
        self.sleep(self.begun);
        while !self.is_over() {
            let input = user.next();
            let kind = input.kind();
            let due = match self.pacing {
                Pacing::Closed => None,
                Pacing::Thinking => {
                    let (keying_s, _) = kind.keying_and_thinking_s();
                    self.sleep(Instant::now() + Duration::from_secs_f64(keying_s));
                    None
                }
                Pacing::Open { transactions_per_s } => {
                    let number = self.next.fetch_add(1, Ordering::Relaxed);
                    let after_s = number as f64 / transactions_per_s;
                    let due = self.begun + Duration::from_secs_f64(after_s);
                    self.sleep(due);
                    Some(due)
                }
            };
            if self.is_over() {
                self.miss(kind, due);
                break;
            }
            let sent = Instant::now();
            let done = session.run(user.warehouse, &input)?;
            let moments = Moments { due, sent, answered: Instant::now() };
            self.meter().record(kind, done, moments);
            if self.pacing == Pacing::Thinking {
                let thinking_s = user.thinking_s(kind);
                self.sleep(Instant::now() + Duration::from_secs_f64(thinking_s));
            }
        }
        self.miss_the_rest();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.must_stop.load(Ordering::Relaxed) || Instant::now() >= self.window.end
    }

    fn sleep(&self, moment: Instant) {
        while !self.is_over() {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK_INTERVAL));
        }
    }

    /// Records a transaction that was taken but not executed.
    fn miss(&self, kind: Kind, due: Option<Instant>) {
        if let Some(due) = due.filter(|due| *due < self.window.end) {
            self.missed.fetch_add(1, Ordering::Relaxed);
            self.meter().record_missed(kind, due);
        }
    }

    /// Records due transactions of an open loop that no user took. Their kinds were not drawn, so
    /// they count as the most frequent one.
    fn miss_the_rest(&self) {
        let Pacing::Open { transactions_per_s } = self.pacing else { return };
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let after_s = number as f64 / transactions_per_s;
            let due = self.begun + Duration::from_secs_f64(after_s);
            if due >= self.window.end || self.must_stop.load(Ordering::Relaxed) {
                return;
            }
            self.miss(Kind::NewOrder, Some(due));
        }
    }

    fn meter(&self) -> std::sync::MutexGuard<'_, Meter> {
        self.meter.lock().expect("nothing panics while the meter is held")
    }
}

#[cfg(test)]
mod tests {
    use results::LatencyKind;

    use super::super::database::{Done, End};
    use super::super::input::Input;
    use super::*;
    use crate::latency::{Latencies, count_from};

    #[test]
    fn counts_may_differ_by_half_a_percent() {
        let fault =
            |by_driver, by_database| Counts { by_database, by_driver: Some(by_driver) }.fault();
        assert_eq!(fault(1_000, 1_000), None);
        assert_eq!(fault(1_005, 1_000), None);
        let text = fault(1_006, 1_000).expect("they differ by more");
        assert!(text.contains("1006") && text.contains("1000"), "{text}");
        assert!(fault(994, 1_000).is_some());
        assert!(fault(1, 0).is_some());
        assert_eq!(Counts { by_database: 7, by_driver: None }.fault(), None);
    }

    const STALL: Duration = Duration::from_millis(100);
    const STALLED: u32 = 10;
    const TRANSACTIONS_PER_S: f64 = 1_000.0;
    /// Number of transactions: twice as many follow the stalled one as are due during the stall.
    const TRANSACTIONS: u32 = STALLED + 200;

    /// A database in which one transaction stalls. It fails after all transactions due meanwhile.
    struct Stalling(u32);

    impl Session for Stalling {
        fn run(&mut self, _warehouse: i32, _input: &Input) -> Result<Done> {
            self.0 += 1;
            if self.0 == STALLED {
                thread::sleep(STALL);
            }
            ensure!(self.0 <= TRANSACTIONS, "gone");
            Ok(Done { end: End::Committed, retries: 0 })
        }
    }

    #[test]
    fn transactions_at_a_rate_are_measured_from_when_they_were_due() {
        let begin = Instant::now();
        let window = Window { begin, end: begin + Duration::from_secs(60) };
        let shared = Shared {
            window,
            pacing: Pacing::Open { transactions_per_s: TRANSACTIONS_PER_S },
            begun: begin,
            next: AtomicU64::new(0),
            must_stop: AtomicBool::new(false),
            meter: Mutex::new(Meter::new(window)),
            missed: AtomicU64::new(0),
        };
        let user = User::new(0, 1, Mix::Spec, Constants::new(1)).seeded(1);
        let ended = shared.work(user, &mut Stalling(0));
        assert_eq!(ended.expect_err("the database is gone").to_string(), "gone");
        let due = begin.elapsed().as_secs_f64() * TRANSACTIONS_PER_S;
        assert!(f64::from(TRANSACTIONS) <= due + 1.0, "{due} were due");
        let mut intended = Latencies::new();
        Kind::ALL.iter().for_each(|kind| intended.add(&shared.meter().of(*kind).intended));
        assert_eq!(intended.count(), u64::from(TRANSACTIONS));
        let intended = intended.recorded(LatencyKind::Intended).expect("they were made");
        // Transactions due during the stall waited for the rest of it.
        let interval = Duration::from_secs_f64(1.0 / TRANSACTIONS_PER_S);
        for late in 1..100 {
            let count = count_from(&intended, STALL - interval * late);
            assert!(count > u64::from(late), "{late} are late: {intended:?}");
        }
    }
}
