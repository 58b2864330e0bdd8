//! Which listeners are served, and who their clients are.
#![forbid(unsafe_code)]

use access::{
    AccessErrorKind, ClientCertificates, Exposure, ListenerPolicy, LoginSettings, Principal,
    SecurityProtocol,
};
use sasl::Mechanism;

fn policy(protocol: &str, exposure: Exposure) -> ListenerPolicy {
    ListenerPolicy {
        protocol: protocol.parse().expect("a protocol"),
        certificates: ClientCertificates::None,
        logins: LoginSettings { mechanisms: Mechanism::ALL.to_vec(), session_lifetime: None },
        exposure,
    }
}

#[track_caller]
fn check(policy: &ListenerPolicy, address: &str, is_served: bool) {
    let result = policy.check(address.parse().expect("an address"));
    assert_eq!(result.is_ok(), is_served, "{policy:?} at {address}: {result:?}");
    if let Err(error) = result {
        assert_eq!(error.kind, AccessErrorKind::NotAllowed);
    }
}

#[test]
fn anonymous_clients_are_let_in_only_where_that_is_asked_for() {
    for protocol in ["PLAINTEXT", "SSL"] {
        for loopback in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            check(&policy(protocol, Exposure::Refused), loopback, false);
            check(&policy(protocol, Exposure::Loopback), loopback, true);
        }
        for reachable in ["0.0.0.0", "::", "192.0.2.1"] {
            check(&policy(protocol, Exposure::Loopback), reachable, false);
            check(&policy(protocol, Exposure::Everywhere), reachable, true);
        }
    }
    let with = |certificates| ListenerPolicy { certificates, ..policy("SSL", Exposure::Refused) };
    check(&with(ClientCertificates::Requested), "0.0.0.0", false);
    check(&with(ClientCertificates::Required), "0.0.0.0", true);
}

#[test]
fn secrets_cross_a_network_only_inside_tls() {
    check(&policy("SASL_SSL", Exposure::Refused), "0.0.0.0", true);
    check(&policy("SASL_PLAINTEXT", Exposure::Refused), "0.0.0.0", false);
    check(&policy("SASL_PLAINTEXT", Exposure::Loopback), "127.0.0.1", true);
    let mut scram = policy("SASL_PLAINTEXT", Exposure::Refused);
    scram.logins.mechanisms.retain(|it| *it != Mechanism::Plain);
    check(&scram, "0.0.0.0", true);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let mut silent = policy("SASL_SSL", Exposure::Everywhere);
    silent.logins.mechanisms.clear();
    check(&silent, "127.0.0.1", false);
    let mut plain = policy("PLAINTEXT", Exposure::Everywhere);
    plain.certificates = ClientCertificates::Requested;
    check(&plain, "127.0.0.1", false);
    "TLS".parse::<SecurityProtocol>().expect_err("Kafka calls it SSL");
}

#[test]
fn a_client_without_a_certificate_is_anonymous_until_sasl_says_who_it_is() {
    let before = |protocol| policy(protocol, Exposure::Loopback).principal(None).expect("no error");
    assert_eq!(before("PLAINTEXT"), Some(Principal::anonymous()));
    assert_eq!(before("SSL"), Some(Principal::anonymous()));
    assert_eq!(before("SASL_SSL"), None);
    assert_eq!(Principal::anonymous().as_str(), "User:ANONYMOUS");
}
