//! Quotas of concurrent resources, and of rates.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
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
