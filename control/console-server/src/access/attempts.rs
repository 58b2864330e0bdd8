//! Failed logins: after some of them a name has to wait at the address where they came from, and
//! so has the address.
//!
//! Elsewhere the name does not wait: who does not know a password keeps nobody out who does.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many failures are nothing special.
const FAILURES_FREE: u32 = 5;

/// Wrong codes of one user, from those who know the password: from one network where the user was
/// before, or from all others together.
const CODE_FAILURES_FREE: u32 = 10;

/// From an address come the failures of all who are behind it.
const ADDRESS_FAILURES_FREE: u32 = 20;

/// The wait after the first failure too many; it doubles with each more.
const WAIT_SECONDS_MIN: u64 = 2;
const WAIT_SECONDS_MAX: u64 = 15 * 60;

/// Who has not failed for so long begins anew.
const FORGOTTEN_AFTER_SECONDS: u64 = 60 * 60;

/// More than this are not remembered: the ones that failed longest ago go.
const REMEMBERED_MAX: usize = 4_096;

/// What one host has of the addresses of IPv6.
const NETWORK_BITS: u32 = 64;

/// The address, or for IPv6 the network: a host has as many addresses there as it likes.
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
    /// `None`: from networks where the user was never before.
    codes: HashMap<(String, Option<IpAddr>), Failures>,
}

/// The failures that are remembered, in memory alone.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Remembered>);

impl Attempts {
    /// Begins an attempt, which counts as failed until [`Attempts::succeeded`] or
    /// [`Attempts::not_made`]: so many at once are no more than one after the other. An error is
    /// how many seconds this name, from this address, has to wait; then nothing was begun.
    pub(crate) fn begin(&self, name: &str, address: IpAddr, now: u64) -> Result<(), u64> {
        let address = network_of(address);
        let key = (name.to_owned(), address);
        let mut remembered = self.lock();
        let of_name = remembered.names.get(&key).map_or(0, |it| it.wait_until(FAILURES_FREE));
        let of_address = remembered.addresses.get(&address);
        let of_address = of_address.map_or(0, |it| it.wait_until(ADDRESS_FAILURES_FREE));
        match of_name.max(of_address).saturating_sub(now) {
            0 => {
                note(&mut remembered.names, key, now);
                note(&mut remembered.addresses, address, now);
                Ok(())
            }
            seconds => Err(seconds),
        }
    }

    /// Forgets the failures of a name that has shown its password, here, and this attempt of its
    /// address.
    pub(crate) fn succeeded(&self, name: &str, address: IpAddr) {
        let address = network_of(address);
        let mut remembered = self.lock();
        remembered.names.remove(&(name.to_owned(), address));
        give_back(&mut remembered.addresses, &address, 1);
    }

    /// Begins a look at a code of a second factor, after the password was right. It counts as
    /// failed until [`Attempts::code_succeeded`]; the password alone makes up for none. `known`:
    /// the address, where the user has logged in from there before. Returns whether the code may
    /// be looked at.
    pub(crate) fn begin_code(&self, name: &str, known: Option<IpAddr>, now: u64) -> bool {
        let key = (name.to_owned(), known.map(network_of));
        let codes = &mut self.lock().codes;
        if codes.get(&key).is_some_and(|it| it.wait_until(CODE_FAILURES_FREE) > now) {
            return false;
        }
        note(codes, key, now);
        true
    }

    pub(crate) fn code_succeeded(&self, name: &str, known: Option<IpAddr>) {
        self.lock().codes.remove(&(name.to_owned(), known.map(network_of)));
    }

    /// Takes back an attempt at which nobody looked.
    pub(crate) fn not_made(&self, name: &str, address: IpAddr) {
        let address = network_of(address);
        let mut remembered = self.lock();
        give_back(&mut remembered.names, &(name.to_owned(), address), 1);
        give_back(&mut remembered.addresses, &address, 1);
    }

    /// Forgets all failures of a name, wherever they came from: an administrator has decided about
    /// it.
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

fn note<K: Eq + Hash + Clone>(failures: &mut HashMap<K, Failures>, key: K, now: u64) {
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
    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_name_waits_longer_with_each_failure_until_its_password_comes() {
        let attempts = Attempts::default();
        for _ in 0..FAILURES_FREE {
            attempts.begin("eve", HERE, NOW).expect("it is free");
        }
        let (mut now, mut waits) = (NOW, Vec::new());
        for _ in 0..12 {
            let seconds = attempts.begin("eve", HERE, now).expect_err("too many failed");
            waits.push(seconds);
            now += seconds;
            attempts.begin("eve", HERE, now).expect("the wait is over");
        }
        assert_eq!(waits[..3], [2, 4, 8]);
        assert_eq!(waits[11], WAIT_SECONDS_MAX);
        attempts.begin("adam", HERE, now).expect("another name");
        attempts.succeeded("eve", HERE);
        attempts.begin("eve", HERE, now).expect("it is forgotten");
    }

    #[test]
    fn codes_of_one_user_are_guessed_no_faster_from_many_places_or_between_right_passwords() {
        for known in [None, Some(HERE)] {
            let attempts = Attempts::default();
            let try_at = |now| {
                attempts.succeeded("eve", HERE);
                attempts.begin_code("eve", known, now)
            };
            let free = (0..100).filter(|_| try_at(NOW)).count();
            assert_eq!(free, CODE_FAILURES_FREE as usize);
            let day = (NOW..NOW + 24 * 60 * 60).filter(|it| try_at(*it)).count();
            assert!((90..120).contains(&day), "{day}");
            let tomorrow = NOW + 24 * 60 * 60;
            assert!(!attempts.begin_code("eve", known, tomorrow - 1));
            assert!(attempts.begin_code("eve", Some(ELSEWHERE), tomorrow), "its owner's place");
            assert!(attempts.begin_code("adam", known, tomorrow), "another user");
            attempts.code_succeeded("eve", known);
            while attempts.begin_code("eve", known, tomorrow) {}
            attempts.forget("eve");
            assert!(attempts.begin_code("eve", known, tomorrow));
        }
    }

    #[test]
    fn who_fails_at_one_address_keeps_nobody_out_at_another() {
        let attempts = Attempts::default();
        while attempts.begin("eve", HERE, NOW).is_ok() {}
        for _ in 0..50 {
            attempts.begin("eve", ELSEWHERE, NOW).expect("nobody failed here");
            attempts.succeeded("eve", ELSEWHERE);
        }
        attempts.begin("eve", HERE, NOW).expect_err("too many failed");
        attempts.forget("eve");
        attempts.begin("eve", HERE, NOW).expect("an administrator decided");
    }

    #[test]
    fn an_attempt_at_which_nobody_looked_did_not_fail() {
        let attempts = Attempts::default();
        for _ in 0..50 {
            attempts.begin("eve", HERE, NOW).expect("none failed");
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
            attempts.begin(&name, ELSEWHERE, NOW).expect("it succeeds");
            attempts.succeeded(&name, ELSEWHERE);
        }
        for number in 0..ADDRESS_FAILURES_FREE {
            attempts.begin(&format!("user{number}"), HERE, NOW).expect("it is free");
        }
        attempts.begin("nobody", HERE, NOW).expect_err("too many failed");
        attempts.begin("nobody", ELSEWHERE, NOW).expect("another address");
    }

    #[test]
    fn memory_is_bounded() {
        let mut names = HashMap::new();
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            note(&mut names, format!("user{number}"), NOW + number / 10);
        }
        assert_eq!(names.len(), REMEMBERED_MAX);
        assert!(!names.contains_key("user0"));
    }
}
