//! The file of users: accepted and rejected contents, and the users in effect.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use access::{AccessError, AccessErrorKind, NewSecret, Principal, UserFile};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use kafka_protocol::messages::alter_client_quotas_request::{
    EntityData as QuotaEntity, EntryData as QuotaEntry, OpData,
};
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterUserScramCredentialsRequest, DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
};
use sasl::{ITERATIONS_MAX, ITERATIONS_MIN, ScramHash};
use tempfile::TempDir;

struct Setup {
    directory: TempDir,
    file: UserFile,
}

fn secret<'a>(name: &'a str, secret: &'a str) -> NewSecret<'a> {
    NewSecret { name, secret, iterations: ITERATIONS_MIN }
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = UserFile::open(directory.path().join("users.toml")).expect("none yet");
        Self { directory, file }
    }

    fn with_alice() -> Self {
        let mut setup = Self::new();
        setup.file.add(&secret("alice", "pencil")).expect("it is new");
        setup
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("users.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).expect("a file")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("a file");
    }

    fn names(&self) -> Vec<String> {
        self.file.users().list().map(|user| user.name.to_owned()).collect()
    }

    /// Checks that no file in the directory contains the secret, in plain text or encoded.
    #[track_caller]
    fn check_not_stored(&self, secret: &[u8]) {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        for entry in fs::read_dir(self.directory.path()).expect("a directory") {
            let bytes = fs::read(entry.expect("a file").path()).expect("it is ours");
            assert!(!bytes.windows(secret.len()).any(|it| it == secret), "it is stored as it is");
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            for form in [hex.clone(), BASE64.encode(secret).to_lowercase()] {
                assert!(!text.contains(&form), "{form} is stored: {text}");
            }
        }
    }

    /// Checks that a reload fails and alice remains in effect.
    #[track_caller]
    fn check_reload_refused(&mut self, kind: AccessErrorKind, expected: &str) {
        let error = self.file.reload().expect_err("it cannot be used");
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(self.file.users().verify("alice", b"pencil"));
    }
}

#[test]
fn users_come_back_and_their_secrets_are_nowhere() {
    let mut setup = Setup::with_alice();
    setup.file.add(&secret("b \"=b", "horse")).expect("it is new");
    assert_eq!(setup.names(), ["alice", "b \"=b"]);
    setup.check_not_stored(b"pencil");
    setup.check_not_stored(b"horse");
    // Equal secrets of two users are not recognizable, either.
    setup.file.add(&secret("dave", "pencil")).expect("it is new");
    let stored = setup.text();
    let keys: Vec<&str> = stored
        .split('"')
        .flat_map(|it| it.split(['$', ',', ':']))
        .filter(|it| it.len() > 20)
        .collect();
    let distinct: HashSet<&str> = keys.iter().copied().collect();
    assert_eq!(distinct.len(), keys.len(), "{stored}");
    setup.file.remove("dave").expect("it is there");
    let again = UserFile::open(setup.path()).expect("it is read");
    let users = again.users();
    assert!(users.verify("alice", b"pencil") && users.verify("b \"=b", b"horse"));
    assert!(!users.verify("alice", b"horse") && !users.verify("carol", b"pencil"));
    assert!(users.can_log_in("alice") && !users.can_log_in("carol"));
    let alice = users.list().next().expect("a user");
    assert_eq!(alice.hashes, [ScramHash::Sha256, ScramHash::Sha512]);
    let mode = fs::metadata(setup.path()).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_user_gets_another_secret_and_goes() {
    let mut setup = Setup::with_alice();
    let before = setup.text();
    setup.file.set_secret(&secret("alice", "horse")).expect("it is there");
    assert!(!setup.file.users().verify("alice", b"pencil"));
    assert!(setup.file.users().verify("alice", b"horse"));
    assert_ne!(setup.text(), before);
    setup.file.remove("alice").expect("it is there");
    assert!(!setup.file.users().verify("alice", b"horse"));
    assert!(setup.names().is_empty());
}

#[track_caller]
fn check(result: Result<(), AccessError>, kind: AccessErrorKind) {
    assert_eq!(result.expect_err("it is refused").kind, kind);
}

#[test]
fn changes_that_make_no_sense_change_nothing() {
    let mut setup = Setup::with_alice();
    let before = setup.text();
    let file = &mut setup.file;
    check(file.add(&secret("alice", "horse")), AccessErrorKind::Exists);
    check(file.set_secret(&secret("bob", "horse")), AccessErrorKind::Missing);
    check(file.remove("bob"), AccessErrorKind::Missing);
    for name in ["", "*", "ANONYMOUS", "b\u{fc}b", "b\nb", &"b".repeat(256)] {
        check(file.add(&secret(name, "horse")), AccessErrorKind::NotAllowed);
    }
    for wrong in ["", "h\u{f6}rse", "horse\n", &"h".repeat(1025)] {
        check(file.add(&secret("bob", wrong)), AccessErrorKind::NotAllowed);
    }
    for iterations in [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1] {
        let new = NewSecret { name: "bob", secret: "horse", iterations };
        check(file.add(&new), AccessErrorKind::NotAllowed);
    }
    assert_eq!(setup.text(), before);
    assert!(setup.file.users().verify("alice", b"pencil"));
}

#[test]
fn a_bad_file_leaves_the_old_users_and_names_its_line() {
    let mut setup = Setup::with_alice();
    let good = setup.text();
    let contents = AccessErrorKind::Contents;
    let line = |text: &str, part: &str| {
        let found = text.lines().position(|line| line.contains(part)).expect("the line");
        format!("line {}:", found + 1)
    };
    let cases = [
        (good.replace("SCRAM-SHA-512$4096", "SCRAM-SHA-512$4095"), "$4095"),
        (good.replace("SCRAM-SHA-256$", "SCRAM-SHA-257$"), "SHA-257"),
        (good.replace("secrets", "secretz"), "secretz"),
        (format!("{good}\n[users.bob.quota]\nconnections = 0\n"), "connections = 0"),
        (format!("{good}\n[users.bob.quota]\ncolour = 1\n"), "colour"),
        (format!("{good}\n[users.\"*\"]\n"), "\"*\""),
        (format!("{good}\n[users.alice]\n"), "[users.alice]\n"),
        (format!("{good}\n[users.bob\n"), "[users.bob"),
    ];
    for (text, part) in cases {
        setup.write(&text);
        let part = part.trim_end();
        let expected = if part == "[users.alice]" {
            format!("line {}:", text.lines().count())
        } else {
            line(&text, part)
        };
        setup.check_reload_refused(contents, &expected);
    }
    setup.write(&good.replace("version = 1", "version = 2"));
    setup.check_reload_refused(contents, "format version 2");
    setup.write(&good.replace("[users.alice]", "[users.ANONYMOUS]"));
    setup.check_reload_refused(contents, "ANONYMOUS");
    setup.write(&good.replace("decoy-key = \"", "decoy-key = \"?"));
    setup.check_reload_refused(contents, "decoy-key");
    setup.write(&good);
    setup.file.reload().expect("it is as before");
}

#[test]
fn an_error_never_repeats_a_value() {
    let mut setup = Setup::with_alice();
    setup.write("version = 1\n[users.alice]\nsecrets = \"hun\\\"ter2\"\n");
    let error = setup.file.reload().expect_err("it is no list").to_string();
    assert!(error.contains("line 3") && !error.contains("ter2"), "{error}");
    // Users who assume that the file contains plain-text secrets would write one of these forms.
    for line in [
        "secrets = [\"hunter2\"]",
        "secrets = [\"hunter2",
        "secrets = [hunter2]",
        "secrets = hunter2",
        "secrets = [\"SCRAM-SHA-256$hunter2\"]",
        "secrets = [\"SCRAM-SHA-256$4096:hunter2$hunter2:hunter2\"]",
        "secrets = { hunter2 = 1 }",
        "secret = \"hunter2\"",
        "password = \"hunter2\"",
        "hunter2",
        "quota = \"hunter2\"",
    ] {
        setup.write(&format!("version = 1\n[users.alice]\n{line}\n"));
        let error = setup.file.reload().expect_err(line);
        assert!(error.to_string().contains("line 3"), "{line}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter"), "{line}: {error:?}");
    }
    for wrong in ["hunter2\n", "hunt\u{e9}r2", &"hunter2".repeat(1_000)] {
        let error = setup.file.add(&secret("bob", wrong)).expect_err("it is not allowed");
        assert!(!format!("{error} {error:?}").contains("hunt"), "{error:?}");
    }
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let mut setup = Setup::with_alice();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(setup.path(), Permissions::from_mode(mode)).expect("it is ours");
        setup.check_reload_refused(AccessErrorKind::Permissions, "chmod go-w");
        let error = UserFile::open(setup.path()).expect_err("it is refused");
        assert_eq!(error.kind, AccessErrorKind::Permissions);
    }
    fs::set_permissions(setup.path(), Permissions::from_mode(0o644)).expect("it is ours");
    setup.file.reload().expect("others may read it");
}

#[test]
fn a_file_of_another_user_is_refused_and_a_change_keeps_its_group_and_mode() {
    let mut setup = Setup::with_alice();
    if chown(setup.path(), None, Some(4_000_001)).is_err() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    fs::set_permissions(setup.path(), Permissions::from_mode(0o640)).expect("it is ours");
    setup.file.add(&secret("bob", "horse")).expect("its owner is the same");
    let metadata = fs::metadata(setup.path()).expect("a file");
    assert_eq!((metadata.gid(), metadata.mode() & 0o777), (4_000_001, 0o640));
    chown(setup.path(), Some(4_000_001), None).expect("root gives files away");
    setup.check_reload_refused(AccessErrorKind::Permissions, "belongs to another user");
}

#[test]
fn what_is_no_file_or_gone_leaves_the_old_users() {
    let mut setup = Setup::with_alice();
    fs::remove_file(setup.path()).expect("it is ours");
    setup.check_reload_refused(AccessErrorKind::File, "was deleted");
    fs::create_dir(setup.path()).expect("a directory");
    setup.check_reload_refused(AccessErrorKind::Permissions, "not a regular file");
    fs::remove_dir(setup.path()).expect("it is empty");
    symlink(setup.path(), setup.path()).expect("a link to itself");
    setup.check_reload_refused(AccessErrorKind::File, "cannot read");
}

#[test]
fn an_edit_by_hand_is_not_lost() {
    let mut setup = Setup::with_alice();
    let edited = format!("{}\n[default-quota]\nconnections = 7\n", setup.text());
    setup.write(&edited);
    check(setup.file.add(&secret("bob", "horse")), AccessErrorKind::Edited);
    assert_eq!(setup.text(), edited);
    setup.file.reload().expect("it is right");
    setup.file.add(&secret("bob", "horse")).expect("it was reloaded");
    assert_eq!(setup.names(), ["alice", "bob"]);
    let bob = Principal::user("bob").expect("a name");
    assert_eq!(setup.file.users().quota_of(&bob).connections, 7);
}

#[test]
fn quotas_come_from_the_user_then_from_the_defaults() {
    let mut setup = Setup::new();
    setup.write(
        "version = 1\n[default-quota]\nconnections = 5\nproduce-bytes-per-second = 100\n\
         [users.bob.quota]\nconnections = 9\n[users.\"CN=x,O=y\".quota]\nrequest-bytes = 8\n",
    );
    setup.file.reload().expect("it is right");
    let users = setup.file.users();
    let quota = |name| users.quota_of(&Principal::user(name).expect("a name"));
    let rate = |name| quota(name).produce_bytes_per_second.map(u64::from);
    assert_eq!((quota("bob").connections, rate("bob")), (9, Some(100)));
    assert_eq!((quota("carol").connections, rate("carol")), (5, Some(100)));
    assert_eq!((quota("CN=x,O=y").request_bytes, quota("bob").request_bytes), (8, 100 << 20));
    assert_eq!(quota("bob").fetch_bytes_per_second, None);
    assert!(!users.can_log_in("bob"));
}

#[test]
fn the_example_of_the_guide_can_be_used() {
    let guide = include_str!("../../../docs/guides/access.md");
    let users = guide.split_once("## Users").expect("a section").1;
    let example = users.split_once("```toml\n").expect("an example").1;
    let example = example.split_once("```").expect("its end").0;
    let mut setup = Setup::with_alice();
    let own = setup.text();
    let secrets =
        own.split_once("secrets = [").expect("alice's").1.split_once(']').expect("its end");
    let start = example.find("secrets = [").expect("the example's") + "secrets = [".len();
    let end = start + example[start..].find(']').expect("its end");
    setup.write(&format!("{}{}{}", &example[..start], secrets.0, &example[end..]));
    setup.file.reload().expect("it can be used");
    assert!(setup.file.users().verify("alice", b"pencil"));
    let quota = |name| setup.file.users().quota_of(&Principal::user(name).expect("a name"));
    assert_eq!(quota("CN=loader,O=Example").connections, 10);
    assert_eq!(quota("alice").produce_bytes_per_second.map(u64::from), Some(50_000_000));
    assert_eq!(quota("bob").connections, 200);
}

/// Computes the salted password that a client sends.
fn salted(hash: ScramHash, secret: &str) -> Vec<u8> {
    let (algorithm, length) = match hash {
        ScramHash::Sha256 => (ring::pbkdf2::PBKDF2_HMAC_SHA256, 32),
        ScramHash::Sha512 => (ring::pbkdf2::PBKDF2_HMAC_SHA512, 64),
    };
    let rounds = std::num::NonZeroU32::new(ITERATIONS_MIN).expect("not zero");
    let mut salted = vec![0; length];
    ring::pbkdf2::derive(algorithm, rounds, SALT, secret.as_bytes(), &mut salted);
    salted
}

const SALT: &[u8] = b"0123456789abcdef";

/// Kafka's error codes.
const INVALID_REQUEST: i16 = 42;
const UNSUPPORTED_VERSION: i16 = 35;
const UNSUPPORTED_MECHANISM: i16 = 33;
const NOT_FOUND: i16 = 91;
const TWICE: i16 = 92;
const UNACCEPTABLE: i16 = 93;

fn upsertion(name: &str, mechanism: i8, secret: &str) -> ScramCredentialUpsertion {
    let hash = if mechanism == 1 { ScramHash::Sha256 } else { ScramHash::Sha512 };
    ScramCredentialUpsertion::default()
        .with_name(name.to_owned().into())
        .with_mechanism(mechanism)
        .with_iterations(i32::try_from(ITERATIONS_MIN).expect("a small number"))
        .with_salt(SALT.into())
        .with_salted_password(salted(hash, secret).into())
}

fn deletion(name: &str, mechanism: i8) -> ScramCredentialDeletion {
    ScramCredentialDeletion::default().with_name(name.to_owned().into()).with_mechanism(mechanism)
}

/// Returns the error codes of the response, ordered by name.
fn alter(
    setup: &mut Setup,
    deletions: &[ScramCredentialDeletion],
    upsertions: &[ScramCredentialUpsertion],
) -> Vec<i16> {
    let request = AlterUserScramCredentialsRequest::default()
        .with_deletions(deletions.to_vec())
        .with_upsertions(upsertions.to_vec());
    let answer = setup.file.alter_scram(&request);
    answer.results.iter().map(|it| it.error_code).collect()
}

#[test]
fn requests_give_users_secrets_and_take_them_away() {
    let mut setup = Setup::with_alice();
    let told = alter(&mut setup, &[], &[upsertion("bob", 1, "pen"), upsertion("carl", 2, "ink")]);
    assert_eq!(told, [0, 0]);
    // A salted password, and the client key derived from it, would allow anybody to log in.
    for (hash, algorithm, secret) in [
        (ScramHash::Sha256, ring::hmac::HMAC_SHA256, "pen"),
        (ScramHash::Sha512, ring::hmac::HMAC_SHA512, "ink"),
    ] {
        let salted = salted(hash, secret);
        setup.check_not_stored(&salted);
        let key = ring::hmac::Key::new(algorithm, &salted);
        setup.check_not_stored(ring::hmac::sign(&key, b"Client Key").as_ref());
    }
    for (name, secret) in [("alice", "pencil"), ("bob", "pen"), ("carl", "ink")] {
        assert!(setup.file.users().verify(name, secret.as_bytes()), "{name}");
        assert!(!setup.file.users().verify(name, b"a guess"), "{name}");
    }
    let request = DescribeUserScramCredentialsRequest::default().with_users(None);
    let described = setup.file.describe_scram(&request).results;
    let shown = |index: usize| -> Vec<i8> {
        described[index].credential_infos.iter().map(|it| it.mechanism).collect()
    };
    assert_eq!(described.len(), 3);
    assert_eq!([shown(0), shown(1), shown(2)], [vec![1, 2], vec![1], vec![2]]);
    // The credentials survive a restart.
    setup.file = UserFile::open(setup.path()).expect("a good file");
    assert_eq!(alter(&mut setup, &[deletion("alice", 1), deletion("bob", 1)], &[]), [0, 0]);
    assert!(setup.file.users().can_log_in("alice"), "by the other mechanism");
    assert_eq!(setup.names(), ["alice", "carl"]);
    let names = ["alice", "bob", "carl", "carl"];
    let named = names.map(|name| UserName::default().with_name(name.into()));
    let request = DescribeUserScramCredentialsRequest::default().with_users(Some(named.to_vec()));
    let codes: Vec<_> =
        setup.file.describe_scram(&request).results.iter().map(|it| it.error_code).collect();
    assert_eq!(codes, [0, NOT_FOUND, TWICE]);
}

#[test]
fn a_user_whose_change_is_wrong_stays_as_it_was_and_others_are_changed() {
    let mut setup = Setup::with_alice();
    let good = || upsertion("bob", 1, "pen");
    for (name, wrong, code) in [
        ("alice", upsertion("alice", 1, "other").with_iterations(100), UNACCEPTABLE),
        ("alice", upsertion("alice", 1, "other").with_salt((&SALT[..3]).into()), UNACCEPTABLE),
        ("alice", upsertion("alice", 1, "other").with_salted_password(SALT.into()), UNACCEPTABLE),
        ("alice", upsertion("alice", 7, "other"), UNSUPPORTED_MECHANISM),
        ("ANONYMOUS", upsertion("ANONYMOUS", 1, "other"), UNACCEPTABLE),
        ("", upsertion("", 1, "other"), UNACCEPTABLE),
    ] {
        assert_eq!(alter(&mut setup, &[], &[wrong, good()]), [code, 0], "{name:?}");
        assert!(setup.file.users().verify("alice", b"pencil"));
        assert!(setup.file.users().verify("bob", b"pen"));
    }
    let twice = [upsertion("alice", 1, "one"), upsertion("alice", 1, "two")];
    assert_eq!(alter(&mut setup, &[], &twice), [TWICE]);
    assert_eq!(alter(&mut setup, &[deletion("alice", 1), deletion("alice", 1)], &[]), [TWICE]);
    assert_eq!(alter(&mut setup, &[deletion("nobody", 1)], &[]), [NOT_FOUND]);
    let before = setup.text();
    let other = [upsertion("alice", 2, "other")];
    assert_eq!(alter(&mut setup, &[deletion("alice", 9)], &other), [UNSUPPORTED_MECHANISM]);
    assert_eq!(setup.text(), before, "a part of a user's change counts");
    assert!(setup.file.users().verify("alice", b"pencil"));
}

/// Builds a change of one rate, for a user or for the default.
fn rate(kind: &str, user: Option<&str>, key: &str, value: Option<f64>) -> QuotaEntry {
    let entity = QuotaEntity::default()
        .with_entity_type(kind.to_owned().into())
        .with_entity_name(user.map(|it| it.to_owned().into()));
    let change = OpData::default()
        .with_key(key.to_owned().into())
        .with_value(value.unwrap_or_default())
        .with_remove(value.is_none());
    QuotaEntry::default().with_entity(vec![entity]).with_ops(vec![change])
}

fn set_rates(setup: &mut Setup, entries: &[QuotaEntry], validate_only: bool) -> Vec<i16> {
    let request = AlterClientQuotasRequest::default()
        .with_entries(entries.to_vec())
        .with_validate_only(validate_only);
    setup.file.alter_quotas(&request).entries.iter().map(|it| it.error_code).collect()
}

/// Returns the names that match a filter, or the error code.
fn found(setup: &Setup, filter: &[(&str, i8, Option<&str>)]) -> Result<Vec<Option<String>>, i16> {
    let components = filter.iter().map(|(kind, how, name)| {
        ComponentData::default()
            .with_entity_type((*kind).to_owned().into())
            .with_match_type(*how)
            .with_match(name.map(|it| it.to_owned().into()))
    });
    let request = DescribeClientQuotasRequest::default().with_components(components.collect());
    let answer = setup.file.describe_quotas(&request);
    let entries = answer.entries.ok_or(answer.error_code)?;
    Ok(entries
        .iter()
        .map(|it| it.entity[0].entity_name.as_ref().map(|it| it.to_string()))
        .collect())
}

/// Returns a user's rates for producing and fetching.
fn limits(setup: &Setup, name: &str) -> [Option<u64>; 2] {
    let limits = setup.file.users().quota_of(&Principal::user(name).expect("a name"));
    let rates = [limits.produce_bytes_per_second, limits.fetch_bytes_per_second];
    rates.map(|rate| rate.map(std::num::NonZeroU64::get))
}

#[test]
fn of_the_rates_of_one_user_all_are_changed_or_none() {
    let mut setup = Setup::with_alice();
    let (produce, fetch) = ("producer_byte_rate", "consumer_byte_rate");
    let before = rate("user", Some("alice"), produce, Some(5000.0));
    assert_eq!(set_rates(&mut setup, &[before], false), [0]);
    let both = |second: QuotaEntry| {
        let mut both = rate("user", Some("alice"), produce, Some(2000.0));
        both.ops.extend(second.ops);
        both
    };
    let other = rate("user", Some("bob"), produce, Some(3000.0));
    for wrong in [
        both(rate("user", None, fetch, Some(-1.0))),
        both(rate("user", None, "request_percentage", Some(1.0))),
    ] {
        assert_eq!(set_rates(&mut setup, &[wrong, other.clone()], false), [INVALID_REQUEST, 0]);
        assert_eq!(limits(&setup, "alice"), [Some(5000), None], "a part of it counts");
        assert_eq!(limits(&setup, "bob"), [Some(3000), None]);
    }
    let right = both(rate("user", None, fetch, Some(7000.0)));
    assert_eq!(set_rates(&mut setup, &[right], false), [0]);
    assert_eq!(limits(&setup, "alice"), [Some(2000), Some(7000)]);
}

#[test]
fn requests_set_rates_of_users_and_of_all_others() {
    let mut setup = Setup::with_alice();
    let (produce, fetch) = ("producer_byte_rate", "consumer_byte_rate");
    let good = [
        rate("user", Some("alice"), produce, Some(5000.0)),
        rate("user", Some("CN=loader,O=Example"), fetch, Some(7000.0)),
        rate("user", None, produce, Some(1000.0)),
    ];
    assert_eq!(set_rates(&mut setup, &good, true), [0; 3]);
    assert_eq!(found(&setup, &[]), Ok(Vec::new()), "it was only checked");
    assert_eq!(set_rates(&mut setup, &good, false), [0; 3]);
    assert_eq!(limits(&setup, "alice"), [Some(5000), None]);
    assert_eq!(limits(&setup, "CN=loader,O=Example"), [Some(1000), Some(7000)]);
    assert_eq!(limits(&setup, "anybody"), [Some(1000), None]);
    let (loader, alice) = (Some("CN=loader,O=Example".to_owned()), Some("alice".to_owned()));
    assert_eq!(found(&setup, &[]), Ok(vec![None, loader.clone(), alice.clone()]));
    assert_eq!(found(&setup, &[("user", 0, Some("alice"))]), Ok(vec![alice.clone()]));
    assert_eq!(found(&setup, &[("user", 1, None)]), Ok(vec![None]));
    assert_eq!(found(&setup, &[("user", 2, None)]), Ok(vec![None, loader, alice]));
    assert_eq!(found(&setup, &[("client-id", 2, None)]), Ok(Vec::new()));
    for (filter, code) in [
        (&[("colour", 1, None)][..], UNSUPPORTED_VERSION),
        (&[("user", 0, None)], INVALID_REQUEST),
        (&[("user", 1, Some("alice"))], INVALID_REQUEST),
        (&[("user", 3, None)], INVALID_REQUEST),
        (&[("user", 1, None), ("user", 2, None)], INVALID_REQUEST),
    ] {
        assert_eq!(found(&setup, filter), Err(code), "{filter:?}");
    }
    let before = setup.text();
    for wrong in [
        rate("client-id", Some("app"), produce, Some(1.0)),
        rate("user", Some("*"), produce, Some(1.0)),
        rate("user", Some(""), produce, Some(1.0)),
        rate("user", Some("alice"), "request_percentage", Some(1.0)),
        rate("user", Some("alice"), produce, Some(0.0)),
        rate("user", Some("alice"), produce, Some(-1.0)),
        rate("user", Some("alice"), produce, Some(1.5)),
        rate("user", Some("alice"), produce, Some(1e30)),
        rate("user", Some("alice"), produce, Some(f64::NAN)),
        rate("user", Some("alice"), produce, Some(f64::INFINITY)),
        QuotaEntry::default(),
    ] {
        let told = set_rates(&mut setup, std::slice::from_ref(&wrong), false);
        assert_eq!(told, [INVALID_REQUEST], "{wrong:?}");
        assert_eq!(setup.text(), before, "{wrong:?}");
    }
    let gone = [
        rate("user", Some("alice"), produce, None),
        rate("user", Some("CN=loader,O=Example"), fetch, None),
        rate("user", None, produce, None),
    ];
    assert_eq!(set_rates(&mut setup, &gone, false), [0; 3]);
    assert_eq!(found(&setup, &[]), Ok(Vec::new()));
    assert_eq!(setup.names(), ["alice"]);
}
