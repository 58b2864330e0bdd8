//! Accepted and rejected listener settings, and principals of clients.
#![forbid(unsafe_code)]

use std::fs;
use std::sync::Arc;

use access::{
    AccessErrorKind, ClientCertificates, Exposure, ListenerPolicy, LoginSettings, Principal,
    SecurityProtocol,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use sasl::Mechanism;
use tls::{ClientCertificate, TlsFiles, TlsSettings};

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

/// Returns the certificate that a server receives from a client with this name, over TLS in memory.
fn shown_certificate(common_name: &str) -> ClientCertificate {
    let directory = tempfile::tempdir().expect("a directory");
    let store = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let mut params = CertificateParams::new(["broker".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let mut params = CertificateParams::new(["broker".to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &issuer).expect("a certificate"), key)
    };
    let (certificate, key) = issue("broker");
    let settings = TlsSettings::load(&TlsFiles {
        certificate: store("certificate", certificate.pem()),
        key: store("key", key.serialize_pem()),
        client_authorities: Some(store("authority", authority.pem())),
    });
    let mut server =
        ServerConnection::new(settings.expect("they fit").server_config()).expect("a server");
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("an authority");
    let (certificate, key) = issue(common_name);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key)
        .expect("they fit");
    let name = ServerName::try_from("broker").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory takes all");
        server.read_tls(&mut bytes.as_slice()).expect("memory gives all");
        server.process_new_packets().expect("the client is right");
        bytes.clear();
        server.write_tls(&mut bytes).expect("memory takes all");
        client.read_tls(&mut bytes.as_slice()).expect("memory gives all");
        client.process_new_packets().expect("the server is right");
    }
    ClientCertificate::of(&server).expect("it was required")
}

#[test]
fn a_client_with_a_certificate_is_its_whole_subject_unless_it_logs_in() {
    let shown = shown_certificate("alice, of sales");
    let with = |protocol| {
        let policy = ListenerPolicy {
            certificates: ClientCertificates::Required,
            ..policy(protocol, Exposure::Refused)
        };
        policy.principal(Some(&shown))
    };
    let principal = with("SSL").expect("it has a subject").expect("it is known at once");
    assert_eq!(principal.as_str(), "User:CN=alice\\, of sales,O=Example");
    assert_eq!(with("SASL_SSL").expect("it does not matter"), None);
    let line_break = shown_certificate("alice\nbob");
    let policy = policy("SSL", Exposure::Everywhere);
    let error = policy.principal(Some(&line_break)).expect_err("it is no name");
    assert_eq!(error.kind, AccessErrorKind::NotAllowed);
}
