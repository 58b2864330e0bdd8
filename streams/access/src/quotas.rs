//! Resource usage of principals, and enforcement of their quotas.
//!
//! Rates are limited by token buckets of one second. Traffic is counted but never rejected; the
//! response tells the client how long to wait. The caller passes the time, which must be monotonic.
//!
//! Lock order: the table of accounts, then one account. Both are held briefly. The total bytes of
//! all principals are an atomic counter.
//!
//! Only the shortest of a principal's waiting requests tries to reserve bytes: if it does not fit,
//! no other does. Released bytes wake it. Each request that is admitted or stops waiting wakes the
//! next one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use shares::leaves_enough;
use tokio::sync::Notify;

use crate::limits::QuotaLimits;
use crate::owner::network_of;
use crate::principal::Principal;

/// Maximum number of accounts. Idle ones without debt are evicted for new ones.
pub const PRINCIPAL_COUNT_MAX: usize = 10_000;

/// Burst after an idle period, as time at the full rate.
const BURST: Duration = Duration::from_secs(1);

/// Maximum throttle time of one response, which is below the timeouts of clients. Remaining debt is
/// included in the throttle time of the next response.
pub const THROTTLE_MAX: Duration = Duration::from_secs(10);

/// Reason for which a connection or request is rejected or delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("too many connections of the principal; close some, or raise its quota")]
    Connections,
    /// The principal would have more connections than it leaves for others.
    #[error("the principal has used up its share of the connections; close some")]
    Shares,
    #[error("{PRINCIPAL_COUNT_MAX} principals are connected or throttled; try again later")]
    Principals,
    /// The request can never be accepted.
    #[error("the request is longer than the principal's quota for one request")]
    RequestBytes,
    /// The request can be read once other requests of the principal are answered.
    #[error("the principal's requests in flight have reached its quota of bytes")]
    BytesInFlight,
    /// The request can be read once requests of any principals are answered.
    #[error("the requests in flight of all principals have reached the memory limit for this one")]
    BytesOfAll,
}

/// Accounts of all principals. Unauthenticated clients have an account for each address, so that
/// one of them cannot use up the quota of the others.
#[derive(Debug)]
pub struct Quotas {
    accounts: Mutex<HashMap<AccountKey, Arc<Account>>>,
    all: Arc<BytesOfAll>,
}

/// Bytes of in-flight requests of all principals. Each principal must leave a part to others.
#[derive(Debug)]
struct BytesOfAll {
    most: u64,
    taken: AtomicU64,
    /// Wakes the shortest waiting request of each principal.
    released: Notify,
}

/// A principal, and the network address if it has not logged in.
type AccountKey = (Principal, Option<u64>);

/// A connection of a principal, with a reference to its account. Dropping it releases the
/// connection.
#[derive(Debug)]
pub struct ConnectionPlace {
    account: Arc<Account>,
}

/// Bytes of one request in flight. Dropping it, after the response, releases them.
#[derive(Debug)]
pub struct BytesInFlight {
    account: Arc<Account>,
    bytes: u64,
}

#[derive(Debug)]
struct Account {
    usage: Mutex<Usage>,
    all: Arc<BytesOfAll>,
}

#[derive(Debug)]
struct Usage {
    limits: QuotaLimits,
    connections: u32,
    bytes_in_flight: u64,
    /// Requests that wait for memory, the shortest first.
    waiting: BTreeMap<WaitingKey, Arc<Notify>>,
    last_waiting: u64,
    produce: Bucket,
    fetch: Bucket,
}

/// Bytes of a waiting request, and its sequence number.
type WaitingKey = (u64, u64);

/// Place of a request among those that wait for memory. Dropping it removes the request.
struct Waiting<'a> {
    account: &'a Account,
    key: WaitingKey,
    woken: Arc<Notify>,
}

impl Quotas {
    /// `bytes_in_flight_max` is the limit for all principals together.
    pub fn new(bytes_in_flight_max: u64) -> Self {
        let (taken, released) = (AtomicU64::new(0), Notify::new());
        let all = BytesOfAll { most: bytes_in_flight_max, taken, released };
        Self { accounts: Mutex::default(), all: Arc::new(all) }
    }

    /// Returns the bytes in flight of all principals, and their limit.
    pub fn bytes_in_flight(&self) -> (u64, u64) {
        (self.all.taken.load(Ordering::Relaxed), self.all.most)
    }

    /// Registers a connection once its principal is known. `address` is the client's.
    pub fn connect(
        &self,
        (principal, address): (&Principal, IpAddr),
        limits: QuotaLimits,
        now: Instant,
    ) -> Result<ConnectionPlace, QuotaError> {
        let is_anonymous = *principal == Principal::anonymous();
        let key = (principal.clone(), is_anonymous.then(|| network_of(address)));
        let mut accounts = self.accounts();
        if !accounts.contains_key(&key) {
            if accounts.len() >= PRINCIPAL_COUNT_MAX {
                accounts.retain(|_, account| !account.usage().is_idle(now));
            }
            if accounts.len() >= PRINCIPAL_COUNT_MAX {
                return Err(QuotaError::Principals);
            }
            accounts.insert(key.clone(), Arc::new(Account::new(limits, &self.all)));
        }
        let account = Arc::clone(&accounts[&key]);
        let mut usage = account.usage();
        usage.set_limits(limits);
        if usage.connections >= limits.connections {
            return Err(QuotaError::Connections);
        }
        usage.connections += 1;
        drop(usage);
        Ok(ConnectionPlace { account })
    }

    /// Applies new limits to all principals after a reload. Existing connections above a limit are
    /// kept.
    pub fn set_limits(&self, limits_of: impl Fn(&Principal) -> QuotaLimits) {
        for ((principal, _), account) in self.accounts().iter() {
            let mut usage = account.usage();
            usage.set_limits(limits_of(principal));
            usage.wake_shortest();
        }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountKey, Arc<Account>>> {
        self.accounts.lock().expect("no thread panics while it holds the lock")
    }
}

impl ConnectionPlace {
    /// Reserves the bytes of a request before it is read. A principal without other requests in
    /// flight is not subject to its own quota of bytes in flight, so that every client makes
    /// progress. The limit of all principals admits a request as long as its principal then has no
    /// more than what remains for others.
    pub fn admit(&self, bytes: u64) -> Result<BytesInFlight, QuotaError> {
        let mut usage = self.account.usage();
        if bytes > usage.limits.request_bytes {
            return Err(QuotaError::RequestBytes);
        }
        let sum = usage.bytes_in_flight.saturating_add(bytes);
        if usage.bytes_in_flight > 0 && sum > usage.limits.bytes_in_flight {
            return Err(QuotaError::BytesInFlight);
        }
        if !self.account.all.take(usage.bytes_in_flight, bytes) {
            return Err(QuotaError::BytesOfAll);
        }
        usage.bytes_in_flight = sum;
        drop(usage);
        Ok(BytesInFlight { account: Arc::clone(&self.account), bytes })
    }

    /// Reserves the bytes as [`Self::admit`] does, waiting until they are available. Calls
    /// `note_refusal` with the reason if the request has to wait.
    ///
    /// # Errors
    /// The request can never be admitted.
    pub async fn admit_in_turn(
        &self,
        bytes: u64,
        note_refusal: impl FnOnce(QuotaError),
    ) -> Result<BytesInFlight, QuotaError> {
        let mut error = match self.admit(bytes) {
            Err(error) if error.is_passing() => error,
            admitted_or_never => return admitted_or_never,
        };
        note_refusal(error);
        let waiting = Waiting::new(&self.account, bytes);
        loop {
            // Registered before the attempt, so that no later release is missed.
            let mut of_all = pin!(self.account.all.released.notified());
            of_all.as_mut().enable();
            if waiting.is_first() {
                error = match self.admit(bytes) {
                    Err(error) if error.is_passing() => error,
                    admitted_or_never => return admitted_or_never,
                };
                if error == QuotaError::BytesOfAll {
                    tokio::select! {
                        () = waiting.woken.notified() => {}
                        () = of_all => {}
                    }
                    continue;
                }
            }
            waiting.woken.notified().await;
        }
    }

    /// Counts produced bytes. Returns `throttle_time_ms` of the response.
    pub fn produced(&self, bytes: u64, now: Instant) -> i32 {
        let mut usage = self.account.usage();
        let rate = usage.limits.produce_bytes_per_second;
        usage.produce.take(bytes, rate, now)
    }

    /// Counts fetched bytes. Returns `throttle_time_ms` of the response.
    pub fn fetched(&self, bytes: u64, now: Instant) -> i32 {
        let mut usage = self.account.usage();
        let rate = usage.limits.fetch_bytes_per_second;
        usage.fetch.take(bytes, rate, now)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.account.usage().connections -= 1;
    }
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        let mut usage = self.account.usage();
        usage.bytes_in_flight -= self.bytes;
        self.account.all.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        usage.wake_shortest();
        drop(usage);
        self.account.all.released.notify_waiters();
    }
}

impl BytesOfAll {
    /// Reserves `more` bytes for an owner that has `own`, if enough remains for others. The only
    /// request in flight is always admitted.
    fn take(&self, own: u64, more: u64) -> bool {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // Relaxed: the counter guards no other memory.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            let left = self.most.saturating_sub(taken);
            let has_room = leaves_enough(size(own), size(more), size(left));
            (taken == 0 || has_room).then(|| taken.saturating_add(more))
        });
        taken.is_ok()
    }
}

impl Account {
    fn new(limits: QuotaLimits, all: &Arc<BytesOfAll>) -> Self {
        let usage = Usage {
            limits,
            connections: 0,
            bytes_in_flight: 0,
            waiting: BTreeMap::new(),
            last_waiting: 0,
            produce: Bucket::default(),
            fetch: Bucket::default(),
        };
        Self { usage: Mutex::new(usage), all: Arc::clone(all) }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().expect("no thread panics while it holds the lock")
    }
}

impl<'a> Waiting<'a> {
    fn new(account: &'a Account, bytes: u64) -> Self {
        let woken = Arc::new(Notify::new());
        let mut usage = account.usage();
        usage.last_waiting += 1;
        let key = (bytes, usage.last_waiting);
        usage.waiting.insert(key, Arc::clone(&woken));
        drop(usage);
        Self { account, key, woken }
    }

    fn is_first(&self) -> bool {
        self.account.usage().waiting.first_key_value().is_some_and(|(key, _)| *key == self.key)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut usage = self.account.usage();
        usage.waiting.remove(&self.key);
        usage.wake_shortest();
    }
}

impl QuotaError {
    /// Returns whether the request can be admitted later.
    fn is_passing(self) -> bool {
        matches!(self, Self::BytesInFlight | Self::BytesOfAll)
    }
}

impl Usage {
    fn wake_shortest(&self) {
        if let Some((_, shortest)) = self.waiting.first_key_value() {
            shortest.notify_one();
        }
    }

    /// A bucket whose rate changes starts without debt, which was counted at the old rate.
    fn set_limits(&mut self, limits: QuotaLimits) {
        if limits.produce_bytes_per_second != self.limits.produce_bytes_per_second {
            self.produce = Bucket::default();
        }
        if limits.fetch_bytes_per_second != self.limits.fetch_bytes_per_second {
            self.fetch = Bucket::default();
        }
        self.limits = limits;
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_in_use = self.connections > 0 || self.bytes_in_flight > 0;
        !is_in_use && self.produce.is_full(now) && self.fetch.is_full(now)
    }
}

/// A token bucket, represented by the time at which it is full again.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// Takes tokens, with debt if necessary. Returns the time that the client must wait in ms.
    fn take(&mut self, bytes: u64, rate: Option<NonZeroU64>, now: Instant) -> i32 {
        let Some(rate) = rate else { return 0 };
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.get()));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let start = self.full_at.map_or(now, |full_at| full_at.max(now));
        // On overflow of the clock, after centuries, the debt stays unchanged.
        let full_at = start.checked_add(cost).unwrap_or(start);
        self.full_at = Some(full_at);
        let wait = full_at.saturating_duration_since(now).saturating_sub(BURST).min(THROTTLE_MAX);
        let millis = wait.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis).expect("the longest wait is far below")
    }

    fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(rate: u64, takes: &[(u64, u64)]) -> Vec<i32> {
        let start = Instant::now();
        let mut bucket = Bucket::default();
        let take = |&(millis, bytes): &(u64, u64)| {
            bucket.take(bytes, NonZeroU64::new(rate), start + Duration::from_millis(millis))
        };
        takes.iter().map(take).collect()
    }

    #[test]
    fn a_bucket_holds_one_second_and_asks_for_what_is_owed() {
        assert_eq!(take_all(1000, &[(0, 1000), (0, 1)]), [0, 1]);
        assert_eq!(take_all(1000, &[(0, 1500), (500, 0), (500, 250)]), [500, 0, 250]);
        assert_eq!(take_all(1000, &[(0, 1000), (1000, 1000), (5000, 1001)]), [0, 0, 1]);
        assert_eq!(take_all(0, &[(0, u64::MAX)]), [0]);
    }

    #[test]
    fn a_long_debt_is_asked_for_in_several_answers() {
        assert_eq!(
            take_all(1000, &[(0, 26_000), (10_000, 0), (20_000, 0)]),
            [10_000, 10_000, 5000]
        );
        assert_eq!(take_all(1, &[(0, u64::MAX), (10_000, u64::MAX)]), [10_000, 10_000]);
    }

    #[test]
    fn over_a_long_time_the_rate_holds() {
        let start = Instant::now();
        let mut bucket = Bucket::default();
        let rate = NonZeroU64::new(7777).expect("not zero");
        let mut now = start;
        let mut bytes = 0;
        for step in 0..10_000 {
            let taken = step * 31 % 1000;
            bytes += taken;
            let wait = bucket.take(taken, Some(rate), now);
            now += Duration::from_millis(u64::try_from(wait).expect("a wait"));
        }
        // The burst of the first second is not delayed. Each wait is rounded up by less than 1 ms.
        let due = bytes - rate.get();
        let seconds = (now - start).as_secs_f64();
        assert!(seconds * 7777.0 >= due as f64, "{seconds} s for {due} bytes");
        assert!((seconds - 10.0) * 7777.0 <= due as f64, "{seconds} s for {due} bytes");
    }
}
