//! Rate limit of failed logins. After several failures, logins for the user name from that address
//! are delayed, and so are all logins from the address.
//!
//! Logins for the name from other addresses are not delayed, so attackers cannot lock a user out.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Now;

/// Number of failures before a user name is delayed at an address.
const FAILURES_FREE: u32 = 5;

/// Number of wrong second-factor codes before a user is delayed. Counted separately for each
/// network that the user has logged in from, and together for all other networks.
const CODE_FAILURES_FREE: u32 = 10;

/// Number of failures before an address is delayed. Higher, because many users may share an
/// address.
const ADDRESS_FAILURES_FREE: u32 = 20;

/// First delay. It doubles with each further failure.
const WAIT_SECONDS_MIN: u64 = 2;
const WAIT_SECONDS_MAX: u64 = 15 * 60;

/// Time without failures after which they are forgotten.
const FORGOTTEN_AFTER_SECONDS: u64 = 60 * 60;

/// Maximum number of entries in each table. The ones with the oldest failures are dropped.
const REMEMBERED_MAX: usize = 4_096;

/// Prefix length of the IPv6 network that one host typically has.
const NETWORK_BITS: u32 = 64;

/// Returns the IPv4 address, or the IPv6 network, because a host can use any address in its
/// network.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = Ipv6Addr::BITS - NETWORK_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    /// Of the steady clock.
    last: u64,
}

impl Failures {
    fn wait_until(self, free: u32) -> u64 {
        let Some(above) = self.count.checked_sub(free) else { return 0 };
        let wait = WAIT_SECONDS_MIN.checked_shl(above).unwrap_or(WAIT_SECONDS_MAX);
        self.last + wait.clamp(WAIT_SECONDS_MIN, WAIT_SECONDS_MAX)
    }
}

#[derive(Debug, Default)]
struct Remembered {
    names: HashMap<(String, IpAddr), Failures>,
    addresses: HashMap<IpAddr, Failures>,
    /// The network, or `None` for networks that the user has not logged in from.
    codes: HashMap<(String, Option<IpAddr>), Failures>,
}

/// Recent failures, in memory only.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Remembered>);

impl Attempts {
    /// Starts an attempt. It counts as failed until [`Attempts::succeeded`] or
    /// [`Attempts::not_made`], so that concurrent attempts are limited as well. If the name or the
    /// address is delayed, fails with the delay in seconds, and no attempt is counted.
    pub(crate) fn begin(&self, name: &str, address: IpAddr, now: Now) -> Result<(), u64> {
        let address = network_of(address);
        let key = (name.to_owned(), address);
        let mut remembered = self.lock();
        let of_name = remembered.names.get(&key).map_or(0, |it| it.wait_until(FAILURES_FREE));
        let of_address = remembered.addresses.get(&address);
        let of_address = of_address.map_or(0, |it| it.wait_until(ADDRESS_FAILURES_FREE));
        match of_name.max(of_address).saturating_sub(now.steady_seconds) {
            0 => {
                note(&mut remembered.names, key, now);
                note(&mut remembered.addresses, address, now);
                Ok(())
            }
            seconds => Err(seconds),
        }
    }

    /// Resets the failures of the name at this address after a correct password, and removes this
    /// attempt from the address's count.
    pub(crate) fn succeeded(&self, name: &str, address: IpAddr) {
        let address = network_of(address);
        let mut remembered = self.lock();
        remembered.names.remove(&(name.to_owned(), address));
        give_back(&mut remembered.addresses, &address, 1);
    }

    /// Starts the verification of a second-factor code, after the password was correct. It counts
    /// as failed until [`Attempts::code_succeeded`]; a correct password does not reset it. `known`
    /// is the address, if the user has logged in from its network before. Returns whether the code
    /// may be verified.
    pub(crate) fn begin_code(&self, name: &str, known: Option<IpAddr>, now: Now) -> bool {
        let key = (name.to_owned(), known.map(network_of));
        let codes = &mut self.lock().codes;
        if codes.get(&key).is_some_and(|it| it.wait_until(CODE_FAILURES_FREE) > now.steady_seconds)
        {
            return false;
        }
        note(codes, key, now);
        true
    }

    pub(crate) fn code_succeeded(&self, name: &str, known: Option<IpAddr>) {
        self.lock().codes.remove(&(name.to_owned(), known.map(network_of)));
    }

    /// Removes an attempt whose password was not verified from the counts.
    pub(crate) fn not_made(&self, name: &str, address: IpAddr) {
        let address = network_of(address);
        let mut remembered = self.lock();
        give_back(&mut remembered.names, &(name.to_owned(), address), 1);
        give_back(&mut remembered.addresses, &address, 1);
    }

    /// Resets all failures of a name, from any address, after an administrator intervened.
    pub(crate) fn forget(&self, name: &str) {
        let mut remembered = self.lock();
        let Remembered { names, addresses, codes } = &mut *remembered;
        codes.retain(|(it, _), _| it != name);
        names.retain(|(it, address), failures| {
            let is_other = it != name;
            if !is_other {
                give_back(addresses, address, failures.count);
            }
            is_other
        });
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn give_back<K: Eq + Hash>(failures: &mut HashMap<K, Failures>, key: &K, count: u32) {
    if let Some(failures) = failures.get_mut(key) {
        failures.count = failures.count.saturating_sub(count);
    }
}

fn note<K: Eq + Hash + Clone>(failures: &mut HashMap<K, Failures>, key: K, now: Now) {
    let now = now.steady_seconds;
    if failures.len() >= REMEMBERED_MAX && !failures.contains_key(&key) {
        failures.retain(|_, it| it.last + FORGOTTEN_AFTER_SECONDS > now);
        if failures.len() >= REMEMBERED_MAX {
            let oldest = failures.iter().min_by_key(|(_, it)| it.last).map(|(key, _)| key.clone());
            oldest.and_then(|key| failures.remove(&key));
        }
    }
    let known = failures.entry(key).or_default();
    if known.last + FORGOTTEN_AFTER_SECONDS <= now {
        known.count = 0;
    }
    *known = Failures { count: known.count.saturating_add(1), last: now };
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
    const NOW: u64 = 1_800;
    const YEAR_SECONDS: u64 = 365 * 24 * 60 * 60;

    fn at(steady_seconds: u64) -> Now {
        Now { steady_seconds, unix_seconds: 1_800_000_000 + steady_seconds }
    }

    #[test]
    fn a_name_waits_longer_with_each_failure_until_its_password_comes() {
        let attempts = Attempts::default();
        for _ in 0..FAILURES_FREE {
            attempts.begin("eve", HERE, at(NOW)).expect("it is free");
        }
        let (mut now, mut waits) = (NOW, Vec::new());
        for _ in 0..12 {
            let seconds = attempts.begin("eve", HERE, at(now)).expect_err("too many failed");
            waits.push(seconds);
            now += seconds;
            attempts.begin("eve", HERE, at(now)).expect("the wait is over");
        }
        assert_eq!(waits[..3], [2, 4, 8]);
        assert_eq!(waits[11], WAIT_SECONDS_MAX);
        attempts.begin("adam", HERE, at(now)).expect("another name");
        attempts.succeeded("eve", HERE);
        attempts.begin("eve", HERE, at(now)).expect("it is forgotten");
    }

    #[test]
    fn codes_of_one_user_are_guessed_no_faster_from_many_places_or_between_right_passwords() {
        for known in [None, Some(HERE)] {
            let attempts = Attempts::default();
            let try_at = |now| {
                attempts.succeeded("eve", HERE);
                attempts.begin_code("eve", known, at(now))
            };
            let free = (0..100).filter(|_| try_at(NOW)).count();
            assert_eq!(free, CODE_FAILURES_FREE as usize);
            let day = (NOW..NOW + 24 * 60 * 60).filter(|it| try_at(*it)).count();
            assert!((90..120).contains(&day), "{day}");
            let tomorrow = NOW + 24 * 60 * 60;
            assert!(!attempts.begin_code("eve", known, at(tomorrow - 1)));
            assert!(attempts.begin_code("eve", Some(ELSEWHERE), at(tomorrow)), "its owner's place");
            assert!(attempts.begin_code("adam", known, at(tomorrow)), "another user");
            attempts.code_succeeded("eve", known);
            while attempts.begin_code("eve", known, at(tomorrow)) {}
            attempts.forget("eve");
            assert!(attempts.begin_code("eve", known, at(tomorrow)));
        }
    }

    #[test]
    fn a_clock_that_is_set_delays_nobody_and_ends_no_delay() {
        for unix_seconds in [1_800_000_000 - YEAR_SECONDS, 1_800_000_000 + YEAR_SECONDS] {
            let attempts = Attempts::default();
            while attempts.begin("eve", HERE, at(NOW)).is_ok() {}
            while attempts.begin_code("eve", None, at(NOW)) {}
            let set = |steady_seconds| Now { steady_seconds, unix_seconds };
            assert_eq!(attempts.begin("eve", HERE, set(NOW + 1)), Err(1));
            assert!(!attempts.begin_code("eve", None, set(NOW + 1)));
            attempts.begin("eve", HERE, set(NOW + 2)).expect("the wait is over");
            assert!(attempts.begin_code("eve", None, set(NOW + 2)));
        }
    }

    #[test]
    fn who_fails_at_one_address_keeps_nobody_out_at_another() {
        let attempts = Attempts::default();
        while attempts.begin("eve", HERE, at(NOW)).is_ok() {}
        for _ in 0..50 {
            attempts.begin("eve", ELSEWHERE, at(NOW)).expect("nobody failed here");
            attempts.succeeded("eve", ELSEWHERE);
        }
        attempts.begin("eve", HERE, at(NOW)).expect_err("too many failed");
        attempts.forget("eve");
        attempts.begin("eve", HERE, at(NOW)).expect("an administrator decided");
    }

    #[test]
    fn an_attempt_at_which_nobody_looked_did_not_fail() {
        let attempts = Attempts::default();
        for _ in 0..50 {
            attempts.begin("eve", HERE, at(NOW)).expect("none failed");
            attempts.not_made("eve", HERE);
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_host() {
        let address = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(address("2001:db8:1:2:3:4:5:6"), address("2001:db8:1:2::1"));
        assert_ne!(address("2001:db8:1:3::1"), address("2001:db8:1:2::1"));
        assert_eq!(address("::ffff:192.0.2.7"), address("192.0.2.7"));
    }

    #[test]
    fn an_address_that_tries_many_names_waits_too_and_one_that_succeeds_does_not() {
        let attempts = Attempts::default();
        for number in 0..ADDRESS_FAILURES_FREE * 3 {
            let name = format!("user{number}");
            attempts.begin(&name, ELSEWHERE, at(NOW)).expect("it succeeds");
            attempts.succeeded(&name, ELSEWHERE);
        }
        for number in 0..ADDRESS_FAILURES_FREE {
            attempts.begin(&format!("user{number}"), HERE, at(NOW)).expect("it is free");
        }
        attempts.begin("nobody", HERE, at(NOW)).expect_err("too many failed");
        attempts.begin("nobody", ELSEWHERE, at(NOW)).expect("another address");
    }

    #[test]
    fn memory_is_bounded() {
        let mut names = HashMap::new();
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            note(&mut names, format!("user{number}"), at(NOW + number / 10));
        }
        assert_eq!(names.len(), REMEMBERED_MAX);
        assert!(!names.contains_key("user0"));
    }
}
