//! Logins between the crate's client and server: accepted and rejected logins, and that rejections
//! reveal nothing.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::{LoginRefusal, LoginSettings, LoginStep, Logins, NewSecret, Session, UserFile, Users};
use kafka_protocol::ResponseError;
use sasl::{ClientExchange, ClientStep, ITERATIONS_MIN, Mechanism, Nonce};
use tempfile::TempDir;

const SECRET: &str = "pen=cil,1";

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("users.toml")
}

/// Creates a file in which `alice` and `a,b=c` have a secret.
fn user_file(directory: &TempDir) -> UserFile {
    let mut file = UserFile::open(path(directory)).expect("there is none yet");
    for name in ["alice", "a,b=c"] {
        let new = NewSecret { name, secret: SECRET, iterations: ITERATIONS_MIN };
        file.add(&new).expect("it is new");
    }
    file
}

fn users() -> Arc<Users> {
    let directory = tempfile::tempdir().expect("a directory");
    Arc::clone(user_file(&directory).users())
}

fn logins() -> Logins {
    let mechanisms = Mechanism::ALL.to_vec();
    let session_lifetime = Some(Duration::from_secs(60));
    Logins::new(LoginSettings { mechanisms, session_lifetime })
}

fn nonce() -> Nonce {
    Nonce::random().expect("the system has random bytes")
}

fn client(mechanism: Mechanism, name: &str, secret: &str) -> ClientExchange {
    ClientExchange::new(mechanism, name, secret, nonce()).expect("they are allowed")
}

/// Performs a login. `change` may modify each message in transit; its argument is the index.
fn try_login(
    logins: &mut Logins,
    users: &Arc<Users>,
    mechanism: Mechanism,
    mut client: ClientExchange,
    change: impl Fn(usize, &mut Vec<u8>),
) -> Result<Session, LoginRefusal> {
    logins.handshake(mechanism.name(), Arc::clone(users), nonce())?;
    let mut message = client.first_message().to_vec();
    for number in 0.. {
        change(number, &mut message);
        let bytes = match logins.authenticate(&message)? {
            LoginStep::Continue(bytes) => bytes,
            LoginStep::Done { bytes, session } => {
                let step = client.answer(&bytes).expect("the server has the keys");
                assert_eq!(step, ClientStep::Done);
                return Ok(session);
            }
        };
        match client.answer(&bytes) {
            Ok(ClientStep::Send(next)) => message = next,
            Ok(ClientStep::Done) => panic!("the client was not accepted yet"),
            // The client has detected the modified message and gives up.
            Err(_) => message = b"*".to_vec(),
        }
    }
    unreachable!("an exchange ends")
}

fn login(
    users: &Arc<Users>,
    mechanism: Mechanism,
    name: &str,
    secret: &str,
) -> Result<Session, LoginRefusal> {
    try_login(&mut logins(), users, mechanism, client(mechanism, name, secret), |_, _| {})
}

#[test]
fn a_user_logs_in_with_each_mechanism() {
    let users = users();
    for mechanism in Mechanism::ALL {
        for name in ["alice", "a,b=c"] {
            let session = login(&users, mechanism, name, SECRET).expect(name);
            assert_eq!(session.principal.as_str(), format!("User:{name}"));
            assert_eq!((session.mechanism, session.lifetime_ms()), (mechanism, 60_000));
        }
    }
}

/// Checks that a modification of any byte of any message is rejected.
#[track_caller]
fn check_changes_refused(mechanism: Mechanism, change: fn(&mut Vec<u8>, usize)) {
    let users = users();
    let message_count = if mechanism == Mechanism::Plain { 1 } else { 2 };
    for target in 0..message_count {
        for index in 0.. {
            let was_changed = std::cell::Cell::new(false);
            let client = client(mechanism, "alice", SECRET);
            let result = try_login(&mut logins(), &users, mechanism, client, |number, message| {
                if number == target && index < message.len() {
                    change(message, index);
                    was_changed.set(true);
                }
            });
            if !was_changed.get() {
                result.expect("nothing was changed");
                break;
            }
            let refusal = result.expect_err("a changed message");
            assert_eq!(refusal.code, ResponseError::SaslAuthenticationFailed);
            assert!(!format!("{refusal:?}").contains("=cil"), "a part of the secret: {refusal:?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_any_byte_is_refused() {
    for mechanism in Mechanism::ALL {
        check_changes_refused(mechanism, |message, index| message[index] ^= 1);
        // Letters in the other case, and bytes that are not ASCII.
        check_changes_refused(mechanism, |message, index| message[index] ^= 0x20);
        check_changes_refused(mechanism, |message, index| message[index] ^= 0x80);
    }
}

#[test]
fn a_missing_byte_is_refused() {
    for mechanism in Mechanism::ALL {
        check_changes_refused(mechanism, |message, index| {
            message.remove(index);
        });
    }
}

#[test]
fn a_message_that_is_cut_is_refused() {
    for mechanism in Mechanism::ALL {
        check_changes_refused(mechanism, |message, index| message.truncate(index));
    }
}

/// Goal: an attacker cannot find out which names exist.
/// Method: compare all bytes of both rejections except the nonce and the value of the salt.
#[test]
fn a_name_that_is_not_known_gets_what_a_wrong_secret_gets() {
    let users = users();
    for mechanism in Mechanism::ALL {
        let wrong = login(&users, mechanism, "alice", "pencil").expect_err("the secret is wrong");
        let unknown = login(&users, mechanism, "bob", SECRET).expect_err("there is no bob");
        assert_eq!(wrong, unknown);
        let challenges = ["alice", "bob"].map(|name| challenge(&users, mechanism, name));
        let [known, unknown] = challenges.map(|it| {
            it.map(|text| {
                let (salt, rest) = text.split_once(',').expect("the iterations");
                (salt.len(), rest.to_owned())
            })
        });
        assert_eq!(known, unknown);
    }
}

/// Iteration counts and salt lengths reveal nothing, either, though they may differ between users:
/// an unknown name has those of an existing user.
#[test]
fn names_that_are_not_known_have_rounds_and_salts_as_users_have() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut file = UserFile::open(path(&directory)).expect("there is none yet");
    let rounds = [ITERATIONS_MIN + 1, 3 * ITERATIONS_MIN];
    for (name, iterations) in ["alice", "bob"].into_iter().zip(rounds) {
        file.add(&NewSecret { name, secret: SECRET, iterations }).expect("it is new");
    }
    for mechanism in [Mechanism::ALL[0], Mechanism::ALL[1]] {
        let shape = |name: &str| {
            let text = challenge(file.users(), mechanism, name).expect("SCRAM has one");
            let (salt, rest) = text.split_once(',').expect("the iterations");
            (salt.len(), rest.to_owned())
        };
        let known: BTreeSet<_> = ["alice", "bob"].map(shape).into();
        let unknown: BTreeSet<_> = (0..40).map(|it| shape(&format!("nobody-{it}"))).collect();
        assert_eq!(unknown, known, "{}", mechanism.name());
    }
}

/// Returns the server-first message without the nonce; `None` for PLAIN.
fn challenge(users: &Arc<Users>, mechanism: Mechanism, name: &str) -> Option<String> {
    if mechanism == Mechanism::Plain {
        return None;
    }
    let mut logins = logins();
    logins.handshake(mechanism.name(), Arc::clone(users), nonce()).expect("it is enabled");
    let client = client(mechanism, name, SECRET);
    match logins.authenticate(client.first_message()).expect("it is a first message") {
        LoginStep::Continue(bytes) => {
            let text = String::from_utf8(bytes).expect("it is text");
            Some(text.split_once(',').expect("a salt").1.to_owned())
        }
        LoginStep::Done { .. } => panic!("nothing was proved"),
    }
}

#[test]
fn the_salt_of_a_name_that_is_not_known_stays_as_a_users_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut file = user_file(&directory);
    for mechanism in [Mechanism::ALL[0], Mechanism::ALL[1]] {
        let salt = |users: &Arc<Users>, name| challenge(users, mechanism, name);
        let before = salt(file.users(), "bob");
        assert_ne!(before, salt(file.users(), "carol"));
        assert_eq!(before, salt(file.users(), "bob"));
        let again = UserFile::open(path(&directory)).expect("it is read");
        assert_eq!(before, salt(again.users(), "bob"), "after a restart");
    }
    let new = NewSecret { name: "dave", secret: SECRET, iterations: ITERATIONS_MIN };
    let before = challenge(file.users(), Mechanism::ALL[0], "bob");
    file.add(&new).expect("it is new");
    assert_eq!(before, challenge(file.users(), Mechanism::ALL[0], "bob"), "beside a new user");
}

#[test]
fn a_client_acts_for_no_other_user() {
    let users = users();
    let act_for = |message: &mut Vec<u8>, name: &str| {
        let text = String::from_utf8(message.clone()).expect("it is text");
        let changed = if text.starts_with('\0') {
            format!("{name}{text}")
        } else {
            text.replacen("n,,", &format!("n,a={name},"), 1)
        };
        *message = changed.into_bytes();
    };
    for mechanism in Mechanism::ALL {
        let client = client(mechanism, "alice", SECRET);
        let refusal = try_login(&mut logins(), &users, mechanism, client, |number, message| {
            if number == 0 {
                act_for(message, "root");
            }
        });
        assert_eq!(
            refusal.expect_err("another name").code,
            ResponseError::SaslAuthenticationFailed
        );
    }
    let mut logins = logins();
    logins.handshake("PLAIN", users, nonce()).expect("it is enabled");
    let message = format!("alice\0alice\0{SECRET}");
    logins.authenticate(message.as_bytes()).expect("it acts for itself");
}

#[test]
fn messages_out_of_turn_are_refused_for_good() {
    let users = users();
    let mut logins = logins();
    let refusal = logins.authenticate(b"\0alice\0x").expect_err("no handshake");
    assert_eq!(refusal.code, ResponseError::IllegalSaslState);
    let refusal = logins.handshake("PLAIN", Arc::clone(&users), nonce()).expect_err("it is closed");
    assert_eq!(refusal.code, ResponseError::IllegalSaslState);

    let mut logins = self::logins();
    logins.handshake("PLAIN", Arc::clone(&users), nonce()).expect("it is enabled");
    let refusal = logins.handshake("PLAIN", Arc::clone(&users), nonce()).expect_err("it is begun");
    assert_eq!(refusal.code, ResponseError::IllegalSaslState);
    let refusal = logins.authenticate(b"\0alice\0x").expect_err("it is closed");
    assert_eq!(refusal.code, ResponseError::IllegalSaslState);
}

#[test]
fn a_mechanism_that_is_not_enabled_may_be_followed_by_one_that_is() {
    let users = users();
    let mechanism = Mechanism::from_name("SCRAM-SHA-256").expect("it is one");
    let settings = LoginSettings { mechanisms: vec![mechanism], session_lifetime: None };
    let mut logins = Logins::new(settings);
    for name in ["PLAIN", "GSSAPI", "", "scram-sha-256"] {
        let refusal = logins.handshake(name, Arc::clone(&users), nonce()).expect_err(name);
        assert_eq!(refusal.code, ResponseError::UnsupportedSaslMechanism);
    }
    let client = client(mechanism, "alice", SECRET);
    let session = try_login(&mut logins, &users, mechanism, client, |_, _| {});
    assert_eq!(session.expect("it is enabled").lifetime_ms(), 0);
}

#[test]
fn another_login_keeps_name_and_mechanism() {
    let users = users();
    let [scram, other, _] = Mechanism::ALL;
    let again = |mechanism, name| {
        let mut logins = logins();
        let first = client(scram, "alice", SECRET);
        try_login(&mut logins, &users, scram, first, |_, _| {}).expect("the first login");
        let second = client(mechanism, name, SECRET);
        try_login(&mut logins, &users, mechanism, second, |_, _| {}).map_err(|it| it.code)
    };
    assert_eq!(again(scram, "alice").expect("the same").principal.name(), "alice");
    assert_eq!(again(scram, "a,b=c"), Err(ResponseError::SaslAuthenticationFailed));
    assert_eq!(again(other, "alice"), Err(ResponseError::IllegalSaslState));
}

#[test]
fn a_proof_of_another_exchange_is_refused() {
    let users = users();
    let mechanism = Mechanism::ALL[0];
    let recorded = std::cell::RefCell::new(Vec::new());
    let first = client(mechanism, "alice", SECRET);
    try_login(&mut logins(), &users, mechanism, first, |_, message| {
        recorded.borrow_mut().push(message.clone());
    })
    .expect("it is right");
    let replayed = client(mechanism, "alice", SECRET);
    let refusal = try_login(&mut logins(), &users, mechanism, replayed, |number, message| {
        *message = recorded.borrow()[number].clone();
    });
    assert_eq!(refusal.expect_err("a replay").code, ResponseError::SaslAuthenticationFailed);
}
