//! The example of RFC 7677, from both sides, and messages that each side rejects.
#![forbid(unsafe_code)]

use sasl::{
    ClientExchange, ClientFinal, ClientFirst, ClientStep, Mechanism, Nonce, PlainLogin, SaslError,
    SaslErrorKind, ScramHash, ScramKeys, server_final, server_first,
};

const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SALT: [u8; 16] = [
    0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81,
];
const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn nonce(text: &str) -> Nonce {
    Nonce::from_text(text).expect("it is printable")
}

fn client() -> ClientExchange {
    let mechanism = Mechanism::Scram(ScramHash::Sha256);
    ClientExchange::new(mechanism, "user", "pencil", nonce(CLIENT_NONCE)).expect("it is allowed")
}

fn keys(hash: ScramHash) -> ScramKeys {
    ScramKeys::derive(hash, b"pencil", &SALT, 4096).expect("they are in bounds")
}

#[test]
fn the_client_sends_what_the_rfc_says() {
    let mut client = client();
    assert_eq!(client.first_message(), CLIENT_FIRST.as_bytes());
    let step = client.answer(SERVER_FIRST.as_bytes()).expect("it is the RFC's");
    assert_eq!(step, ClientStep::Send(CLIENT_FINAL.as_bytes().to_vec()));
    let step = client.answer(SERVER_FINAL.as_bytes()).expect("it is the RFC's");
    assert_eq!(step, ClientStep::Done);
    client.answer(SERVER_FINAL.as_bytes()).expect_err("it is over");
}

/// The RFC's example with the other hash, computed with Python's `hashlib` and `hmac`.
#[test]
fn the_other_hash_agrees_with_another_implementation() {
    let mechanism = Mechanism::Scram(ScramHash::Sha512);
    let mut client = ClientExchange::new(mechanism, "user", "pencil", nonce(CLIENT_NONCE))
        .expect("it is allowed");
    let ClientStep::Send(message) = client.answer(SERVER_FIRST.as_bytes()).expect("in bounds")
    else {
        panic!("the server was not proved yet");
    };
    let proof = "p=gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYT\
                 xwnYPJQ==";
    assert!(message.ends_with(proof.as_bytes()));
    let signature = "v=ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq19\
                     9RVG2rR7N7Zw==";
    assert_eq!(client.answer(signature.as_bytes()).expect("it is right"), ClientStep::Done);
    assert_eq!(
        keys(ScramHash::Sha512).to_string(),
        "SCRAM-SHA-512$4096:W22ZaJ0SNY7soEsUEjb6gQ==$6AAub3065EYRmyFpM2RNwqK+eGnrkYuEWbXn19LsEmBqz\
         u8QaCXNc1FwpnX9NhH2hK/60dzj9DoO5DvVkOHbvg==:jZHbYjC1aHh0/hKbxyBuGFjDrgjgKTT1esA7awWiKcRZ0\
         o/0b1yWEebBeSVkkCFewf91nLDfKF24mvD5nmE6rA=="
    );
}

#[test]
fn the_server_accepts_and_sends_what_the_rfc_says() {
    let keys = keys(ScramHash::Sha256);
    let first = ClientFirst::parse(CLIENT_FIRST.as_bytes()).expect("it is the RFC's");
    assert_eq!((first.name.as_str(), first.nonce.as_str()), ("user", CLIENT_NONCE));
    let server_nonce = nonce(SERVER_NONCE);
    let challenge = server_first(&first.nonce, &server_nonce, &keys);
    assert_eq!(challenge, SERVER_FIRST);
    let last = ClientFinal::parse(CLIENT_FINAL.as_bytes()).expect("it is the RFC's");
    assert!(last.follows(&first, &server_nonce));
    let auth_message = first.auth_message(&challenge, &last);
    assert!(keys.accept_proof(&auth_message, &last.proof));
    assert_eq!(server_final(&keys, &auth_message), SERVER_FINAL);
}

#[test]
fn both_nonces_end_the_last_message_in_their_order_whatever_stands_before() {
    let first = ClientFirst::parse(CLIENT_FIRST.as_bytes()).expect("it is the RFC's");
    let (own, servers) = (CLIENT_NONCE, SERVER_NONCE);
    let cases = [
        (format!("{own}{servers}"), true),
        // librdkafka 2.0
        (format!("{own}{own}{servers}"), true),
        (format!("{own}{servers}x"), false),
        (format!("{own}x{servers}"), false),
        (format!("{servers}{own}"), false),
        (servers.to_owned(), false),
        (own.to_owned(), false),
    ];
    for (sent, expected) in cases {
        let message = format!("c=biws,r={sent},p=AAAA");
        let last = ClientFinal::parse(message.as_bytes()).expect("it follows the grammar");
        assert_eq!(last.follows(&first, &nonce(SERVER_NONCE)), expected, "{sent}");
    }
}

#[test]
fn keys_come_back_from_their_text_and_know_their_secret() {
    for hash in ScramHash::ALL {
        let keys = keys(hash);
        let again: ScramKeys = keys.to_string().parse().expect("it was just written");
        assert_eq!(again, keys);
        assert!(again.are_of(b"pencil"));
        assert!(!again.are_of(b"Pencil"));
    }
}

#[test]
fn keys_out_of_bounds_are_refused_and_never_repeated() {
    let good = keys(ScramHash::Sha256).to_string();
    let bad = [
        good.replace("4096", "4095"),
        good.replace("4096", "1000001"),
        good.replace("4096", "x"),
        good.replace("SHA-256", "SHA-512"),
        good.replace("SHA-256", "SHA-1"),
        good.replace("W22ZaJ0SNY7soEsUEjb6gQ==", "W22Z"),
        good.replace('$', ":"),
        format!("{good}$"),
        good[..good.len() - 4].to_owned(),
    ];
    for text in bad {
        let error = text.parse::<ScramKeys>().expect_err(&text);
        assert_eq!(error.kind, SaslErrorKind::Keys);
        assert!(!error.to_string().contains("W22"), "{error}");
    }
}

#[track_caller]
fn check_refused(challenge: &str, kind: SaslErrorKind) {
    let error = client().answer(challenge.as_bytes()).expect_err(challenge);
    assert_eq!(error.kind, kind, "{challenge}: {error}");
}

#[test]
fn the_client_refuses_challenges_that_weaken_the_exchange() {
    use SaslErrorKind::{Keys, Malformed};
    check_refused(&SERVER_FIRST.replace("rOpr", "xOpr"), Malformed);
    check_refused("r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", Malformed);
    check_refused(&SERVER_FIRST.replace("4096", "1"), Keys);
    check_refused(&SERVER_FIRST.replace("4096", "4294967295"), Keys);
    check_refused(&SERVER_FIRST.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s="), Keys);
    check_refused(&format!("m=x,{SERVER_FIRST}"), Malformed);
    check_refused("e=other-error", Malformed);
    check_refused(&format!("{SERVER_FIRST},x={}", "y".repeat(5000)), Malformed);
}

#[test]
fn the_client_refuses_a_server_that_does_not_know_the_keys() {
    for index in 0..SERVER_FINAL.len() {
        let mut message = SERVER_FINAL.as_bytes().to_vec();
        message[index] ^= 1;
        let mut client = client();
        client.answer(SERVER_FIRST.as_bytes()).expect("it is the RFC's");
        client.answer(&message).expect_err("a flipped bit");
    }
    let mut client = client();
    client.answer(SERVER_FIRST.as_bytes()).expect("it is the RFC's");
    let error = client.answer(b"e=invalid-proof").expect_err("it is refused");
    assert_eq!(error.kind, SaslErrorKind::Refused);
}

#[track_caller]
fn check_first(message: &str, expected: Result<&str, SaslErrorKind>) {
    let parsed = ClientFirst::parse(message.as_bytes());
    let got = parsed.as_ref().map(|first| first.name.as_str()).map_err(|error| error.kind);
    assert_eq!(got, expected, "{message}");
}

#[test]
fn first_messages_follow_the_grammar() {
    use SaslErrorKind::{Malformed, Unsupported};
    check_first("n,,n=a=2Cb=3Dc,r=x", Ok("a,b=c"));
    check_first("y,,n=user,r=x", Ok("user"));
    check_first("n,a=user,n=user,r=x", Ok("user"));
    check_first("n,,n=user,r=x,t=true,tokenauth=true", Err(Malformed));
    check_first("n,,n=user,r=x,t=true", Ok("user"));
    check_first("p=tls-unique,,n=user,r=x", Err(Unsupported));
    check_first("n,,m=x,n=user,r=x", Err(Unsupported));
    check_first("n,,n=user,r=x,m=x", Err(Malformed));
    for wrong in ["", "n", "n,", "n,,", "n,,n=user", "n,,r=x,n=user", "x,,n=user,r=x"] {
        check_first(wrong, Err(Malformed));
    }
    for wrong in ["n,,n=,r=x", "n,,n=user,r=", "n,,n=a=b,r=x", "n,b=c,n=user,r=x", "n,,n=u,r=x,"] {
        check_first(wrong, Err(Malformed));
    }
    check_first(&format!("n,,n=user,r={}", "x".repeat(257)), Err(Malformed));
    check_first(&format!("n,,n={},r=x", "x".repeat(256)), Err(Malformed));
}

fn plain(message: &[u8]) -> Result<(Option<&str>, &str, &[u8]), SaslError> {
    PlainLogin::parse(message).map(|login| (login.authorization, login.name, login.secret))
}

#[test]
fn plain_has_three_parts() {
    assert_eq!(plain(b"\0user\0pencil").expect("a login"), (None, "user", &b"pencil"[..]));
    assert_eq!(plain(b"a\0user\0pencil").expect("a login").0, Some("a"));
    for wrong in
        [&b""[..], b"user", b"\0user", b"\0\0pencil", b"\0user\0", b"\0u\0p\0", b"\0\xff\0p"]
    {
        let error = plain(wrong).expect_err("it is not one");
        assert_eq!(error.kind, SaslErrorKind::Malformed);
    }
    let mut client =
        ClientExchange::new(Mechanism::Plain, "user", "pencil", nonce("x")).expect("it is allowed");
    assert_eq!(client.first_message(), b"\0user\0pencil");
    assert_eq!(client.answer(b"").expect("accepted"), ClientStep::Done);
}
