//! Quotas of concurrent resources, and of rates.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use access::{PRINCIPAL_COUNT_MAX, Principal, QuotaError, QuotaLimits, Quotas};

const LIMITS: QuotaLimits = QuotaLimits {
    connections: 2,
    bytes_in_flight: 100,
    request_bytes: 150,
    produce_bytes_per_second: NonZeroU64::new(1000),
    fetch_bytes_per_second: None,
};

/// Limit of all principals, above the quota of one.
const BYTES_OF_ALL: u64 = 1 << 20;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn principal(name: &str) -> Principal {
    Principal::user(name).expect("a name")
}

#[test]
fn connections_take_places_and_give_them_back() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let connect = |name| quotas.connect((&principal(name), ADDRESS), LIMITS, now);
    let first = connect("alice").expect("there is a place");
    let _second = connect("alice").expect("there is a place");
    assert_eq!(connect("alice").expect_err("both are taken"), QuotaError::Connections);
    let _other = connect("bob").expect("alice's are not bob's");
    drop(first);
    connect("alice").expect("one was given back");
}

#[test]
fn bytes_in_flight_are_those_of_all_connections() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let connect = || quotas.connect((&principal("alice"), ADDRESS), LIMITS, now).expect("a place");
    let (one, other) = (connect(), connect());
    let half = one.admit(60).expect("there is room");
    assert_eq!(other.admit(41).expect_err("1 byte too many"), QuotaError::BytesInFlight);
    let rest = other.admit(40).expect("there is room");
    drop((half, rest));
    assert_eq!(one.admit(151).expect_err("too long"), QuotaError::RequestBytes);
    let alone = one.admit(150).expect("it is let in beside no other");
    assert_eq!(other.admit(0).map(drop), Err(QuotaError::BytesInFlight));
    drop(one);
    assert_eq!(other.admit(1).expect_err("it is in flight"), QuotaError::BytesInFlight);
    drop(alone);
    other.admit(100).expect("all was given back");
}

#[test]
fn bytes_in_flight_of_all_principals_are_bounded_and_each_leaves_some_to_others() {
    const MOST: u64 = 1000;
    let limits = QuotaLimits { bytes_in_flight: 900, request_bytes: 1200, ..LIMITS };
    let quotas = Quotas::new(MOST);
    let connect = |name: &str| {
        quotas.connect((&principal(name), ADDRESS), limits, Instant::now()).expect("a place")
    };
    let take_all = |place: &access::ConnectionPlace| {
        let admitted: Vec<_> = std::iter::from_fn(|| place.admit(10).ok()).collect();
        assert_eq!(place.admit(10).expect_err("no more is left"), QuotaError::BytesOfAll);
        admitted
    };
    let places: Vec<_> = (0..4).map(|index| connect(&index.to_string())).collect();
    let taken: Vec<_> = places.iter().map(take_all).collect();
    let counts: Vec<_> = taken.iter().map(Vec::len).collect();
    assert_eq!(counts, [50, 25, 12, 6], "a half of the rest each");
    assert_eq!(quotas.bytes_in_flight(), (930, MOST));
    let late = connect("late");
    let small = late.admit(35).expect("there is a rest");
    assert_eq!(late.admit(400).expect_err("it waits"), QuotaError::BytesOfAll);
    drop((small, taken));
    assert_eq!(quotas.bytes_in_flight(), (0, MOST));
    let alone = late.admit(1100).expect("it is longer than all may have, and alone");
    assert_eq!(places[0].admit(0).map(drop), Ok(()), "it takes nothing");
    assert_eq!(places[0].admit(1).expect_err("none are left"), QuotaError::BytesOfAll);
    drop(alone);
    places[0].admit(500).expect("all was given back");
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Polls a request that waits. Returns what it gets, if it gets something.
fn poll<T>(waiting: Pin<&mut impl Future<Output = T>>, wakes: &Arc<Wakes>) -> Option<T> {
    let waker = Waker::from(Arc::clone(wakes));
    match waiting.poll(&mut Context::from_waker(&waker)) {
        std::task::Poll::Ready(got) => Some(got),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn bytes_that_are_released_wake_the_shortest_request_that_waits_for_them() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let limits = QuotaLimits { connections: 2_000, ..LIMITS };
    let connect = || quotas.connect((&principal("alice"), ADDRESS), limits, now).expect("a place");
    let one = connect();
    let (small, large) = (one.admit(10).expect("there is room"), one.admit(85).expect("the same"));
    let wakes = Arc::new(Wakes::default());
    let refusals = Cell::new(0);
    let others: Vec<_> = (0..1_000).map(|_| connect()).collect();
    let mut waiting: Vec<_> =
        others.iter().map(|it| Box::pin(it.admit_in_turn(50, |_| {}))).collect();
    assert!(waiting.iter_mut().all(|it| poll(it.as_mut(), &wakes).is_none()));
    let mut shorter = pin!(one.admit_in_turn(20, |error| {
        assert_eq!(error, QuotaError::BytesInFlight);
        refusals.set(refusals.get() + 1);
    }));
    assert!(poll(shorter.as_mut(), &wakes).is_none());
    wakes.take();
    drop(small);
    assert_eq!(wakes.take(), 1, "the others stay asleep");
    assert!(poll(shorter.as_mut(), &wakes).is_none(), "85 and 20 are too many");
    drop(large);
    assert_eq!(wakes.take(), 1);
    let admitted = poll(shorter.as_mut(), &wakes).expect("there is room").expect("it fits");
    assert_eq!(
        (wakes.take(), refusals.get()),
        (1, 1),
        "the next one is woken, and it was noted once"
    );
    let got: Vec<_> = waiting.iter_mut().filter_map(|it| poll(it.as_mut(), &wakes)).collect();
    assert_eq!(got.len(), 1);
    drop(admitted);
}

#[test]
fn bytes_that_are_released_wake_requests_of_other_principals() {
    let quotas = Quotas::new(100);
    let limits = QuotaLimits { bytes_in_flight: 900, ..LIMITS };
    let connect = |name| {
        quotas.connect((&principal(name), ADDRESS), limits, Instant::now()).expect("a place")
    };
    let (alice, bob) = (connect("alice"), connect("bob"));
    let taken = alice.admit(50).expect("half of all");
    let wakes = Arc::new(Wakes::default());
    let mut waiting =
        pin!(bob.admit_in_turn(40, |error| assert_eq!(error, QuotaError::BytesOfAll)));
    assert!(poll(waiting.as_mut(), &wakes).is_none());
    drop(taken);
    assert_eq!(wakes.take(), 1);
    poll(waiting.as_mut(), &wakes).expect("there is room").expect("it fits");
    assert_eq!(quotas.bytes_in_flight(), (0, 100), "all was released");
}

#[test]
fn a_request_that_waits_is_refused_once_its_quota_no_longer_allows_it() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let place = quotas.connect((&principal("alice"), ADDRESS), LIMITS, now).expect("a place");
    let _taken = place.admit(100).expect("there is room");
    let wakes = Arc::new(Wakes::default());
    let mut waiting = pin!(place.admit_in_turn(20, |_| {}));
    assert!(poll(waiting.as_mut(), &wakes).is_none());
    quotas.set_limits(|_| QuotaLimits { request_bytes: 10, ..LIMITS });
    assert_eq!(wakes.take(), 1);
    let refused = poll(waiting.as_mut(), &wakes).expect("it waits no more");
    assert_eq!(refused.expect_err("it is too long now"), QuotaError::RequestBytes);
}

#[test]
fn a_rate_is_that_of_the_principal_and_outlives_its_connections() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let connect = |name| quotas.connect((&principal(name), ADDRESS), LIMITS, now).expect("a place");
    assert_eq!(connect("alice").produced(1500, now), 500);
    assert_eq!(connect("alice").produced(0, now + Duration::from_millis(100)), 400);
    assert_eq!(connect("bob").produced(500, now), 0);
    assert_eq!(connect("alice").fetched(u64::MAX, now), 0);
}

#[test]
fn a_reload_gives_connections_their_new_limits() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let place = quotas.connect((&principal("alice"), ADDRESS), LIMITS, now).expect("a place");
    assert_eq!(place.produced(3000, now), 2000);
    let rate = NonZeroU64::new(100);
    let less = QuotaLimits { request_bytes: 10, produce_bytes_per_second: rate, ..LIMITS };
    quotas.set_limits(|who| if who.name() == "alice" { less } else { LIMITS });
    assert_eq!(place.admit(11).expect_err("it is too long now"), QuotaError::RequestBytes);
    assert_eq!(place.produced(101, now), 10, "debts of the old rate are gone");
}

#[test]
fn who_has_not_logged_in_has_an_account_for_each_address() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let connect = |principal: &Principal, address: &str| {
        let address = address.parse().expect("an address");
        quotas.connect((principal, address), LIMITS, Instant::now())
    };
    let (anonymous, alice) = (Principal::anonymous(), principal("alice"));
    let _held = [(); 2].map(|()| connect(&anonymous, "2001:db8::1").expect("a place"));
    assert_eq!(connect(&anonymous, "2001:db8::2").expect_err("one net"), QuotaError::Connections);
    let other = connect(&anonymous, "192.0.2.1").expect("another's are not its");
    let _bytes = other.admit(100).expect("nor are the bytes");
    let _held_too = [(); 2].map(|()| connect(&alice, "192.0.2.1").expect("a place"));
    assert_eq!(connect(&alice, "192.0.2.2").expect_err("the same"), QuotaError::Connections);
}

#[test]
fn principals_are_bounded_and_idle_ones_give_way() {
    let quotas = Quotas::new(BYTES_OF_ALL);
    let now = Instant::now();
    let connect = |name: &str, now| quotas.connect((&principal(name), ADDRESS), LIMITS, now);
    let _connected = connect("connected", now).expect("a place");
    let owing = connect("owing", now).expect("a place");
    assert_eq!(owing.produced(3000, now), 2000);
    drop(owing);
    let mut places = Vec::new();
    for index in 2..PRINCIPAL_COUNT_MAX {
        places.push(connect(&index.to_string(), now).expect("a place"));
    }
    assert_eq!(connect("late", now).expect_err("all are there"), QuotaError::Principals);
    places.pop();
    let late = connect("late", now).expect("one was idle");
    assert_eq!(connect("later", now).expect_err("none is idle"), QuotaError::Principals);
    connect("later", now + Duration::from_secs(3)).expect("what was owed is paid");
    drop(late);
}
