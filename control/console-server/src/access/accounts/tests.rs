//! Tests of account changes and of their rejection.

use super::*;

const NOW: u64 = 1_800_000_000;

fn hash() -> PasswordHash {
    serde_json::from_str(r#"{"memory_kib": 8, "passes": 1, "salt": "", "hash": ""}"#)
        .expect("it is one")
}

struct Fixture {
    _folder: tempfile::TempDir,
    accounts: Accounts,
}

/// Accounts with an administrator `ann`, and projects `shop` and `bank`.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = Accounts::open(folder.path()).expect("nothing is there");
    assert!(accounts.is_empty());
    accounts.make_first("ann".to_owned(), hash()).expect("the first");
    for name in ["shop", "bank"] {
        accounts.add_project(project(name, &format!("{name}-"))).expect("it is new");
    }
    Fixture { _folder: folder, accounts }
}

fn project(name: &str, prefix: &str) -> Project {
    Project {
        name: name.to_owned(),
        prefix: prefix.to_owned(),
        quota_bytes: None,
        quota_volumes: 100,
    }
}

fn new_user(name: &str, role: Role, projects: &[&str]) -> NewUser {
    let projects = projects.iter().map(|it| (*it).to_owned()).collect();
    NewUser { name: name.to_owned(), password: hash(), role, projects }
}

fn new_token(role: Role, projects: &[&str]) -> NewToken {
    let projects = projects.iter().map(|it| (*it).to_owned()).collect();
    NewToken { name: "ci".to_owned(), role, projects, expires_in_seconds: 60 }
}

#[test]
fn the_networks_that_a_user_logged_in_from_last_are_known_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = Accounts::open(folder.path()).expect("nothing is there");
    accounts.make_first("ann".to_owned(), hash()).expect("the first");
    accounts.add_user(new_user("bob", Role::Viewer, &[])).expect("he is new");
    let network = |number: u16| IpAddr::from([0x2001, 0xdb8, 1, number, 0, 0, 0, 1]);
    let seen = accounts.user("ann").expect("she is there").shown();
    for number in (0..).take(NETWORKS_OF_USER_MAX) {
        assert!(accounts.note_login("ann", network(number)));
        assert!(!accounts.note_login("ann", network(number)));
    }
    assert!(!accounts.note_login("ann", network(0)), "it is known, and the newest now");
    assert!(accounts.note_login("ann", network(100)));
    assert!(!accounts.note_login("eve", network(0)), "nobody");
    accounts.keep();
    let accounts = Accounts::open(folder.path()).expect("it was stored");
    let (ann, bob) = (accounts.user("ann").expect("ann"), accounts.user("bob").expect("bob"));
    assert!(ann.is_known_at(network(0)) && ann.is_known_at(network(100)));
    assert!(!ann.is_known_at(network(1)), "the one that was used longest ago went");
    assert!(!bob.is_known_at(network(0)));
    assert_eq!(ann.shown(), seen, "a login changes nothing of what is administered");
}

#[test]
fn the_last_administrator_stays() {
    let Fixture { accounts, .. } = &fixture();
    let disabled = UserPatch { disabled: Some(true), ..UserPatch::default() };
    let demoted = UserPatch { role: Some(Role::Viewer), ..UserPatch::default() };
    let is_conflict = |it: AccountError| matches!(it, AccountError::Conflict(_));
    assert!(is_conflict(accounts.remove_user("ann").expect_err("she is the last")));
    assert!(is_conflict(accounts.change_user("ann", disabled, None).expect_err("she is the last")));
    assert!(is_conflict(accounts.change_user("ann", demoted, None).expect_err("she is the last")));
    accounts.add_user(new_user("bob", Role::Administrator, &[])).expect("he is new");
    accounts.remove_user("ann").expect("bob is there");
    assert!(accounts.caller_of_user("ann").is_none());
    assert_eq!(accounts.caller_of_user("bob").expect("he is there").role, Role::Administrator);
    let again = accounts.make_first("eve".to_owned(), hash());
    assert!(is_conflict(again.expect_err("bob is there")));
}

#[test]
fn accounts_come_back_from_the_file() {
    let Fixture { _folder: folder, accounts } = fixture();
    accounts.add_user(new_user("bob", Role::Operator, &["shop"])).expect("he is new");
    let bob = accounts.caller_of_user("bob").expect("he is there");
    let (token, secret) =
        accounts.add_token(&bob, new_token(Role::Viewer, &["shop"]), NOW).expect("ok");
    let (users, projects) = (accounts.users(), accounts.projects());
    drop(accounts);
    let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).expect("a file");
    assert!(!text.contains(secret.reveal()));
    let accounts = Accounts::open(folder.path()).expect("it is read");
    assert_eq!((accounts.users(), accounts.projects()), (users, projects));
    assert_eq!(accounts.tokens(None), [token]);
    assert!(accounts.caller_of_token(&secret, NOW).is_some());
}

#[test]
fn a_token_may_no_more_than_its_owner_now() {
    let Fixture { accounts, .. } = &fixture();
    accounts.add_user(new_user("bob", Role::Operator, &[])).expect("he is new");
    let bob = accounts.caller_of_user("bob").expect("he is there");
    let above = accounts.add_token(&bob, new_token(Role::Administrator, &[]), NOW);
    assert!(matches!(above, Err(AccountError::Invalid("role", _))));
    let (token, secret) =
        accounts.add_token(&bob, new_token(Role::Operator, &[]), NOW).expect("ok");
    let caller = |now| accounts.caller_of_token(&secret, now);
    assert_eq!(caller(NOW).expect("it is valid").role, Role::Operator);
    assert!(caller(NOW + 60).is_none(), "it has expired");
    let limited = UserPatch {
        role: Some(Role::Viewer),
        projects: Some(vec!["bank".to_owned()]),
        ..UserPatch::default()
    };
    accounts.change_user("bob", limited, None).expect("it is possible");
    let now = caller(NOW).expect("it is valid");
    assert_eq!((now.role, now.projects), (Role::Viewer, vec!["bank".to_owned()]));
    let last_used = || accounts.tokens(Some("bob"))[0].last_used;
    assert_eq!(last_used(), Some(NOW));
    assert!(caller(NOW - 3600).is_some() && last_used() == Some(NOW - 3600), "the clock was set");
    assert!(accounts.remove_token(&token.id, Some("ann")).is_err());
    accounts.remove_token(&token.id, Some("bob")).expect("it is his");
    assert!(caller(NOW).is_none());
}

#[test]
fn who_is_limited_makes_limited_tokens_and_a_token_that_lost_its_projects_is_void() {
    let Fixture { accounts, .. } = &fixture();
    accounts.add_user(new_user("bob", Role::Operator, &["shop"])).expect("he is new");
    let bob = accounts.caller_of_user("bob").expect("he is there");
    for projects in [&[][..], &["bank"], &["shop", "bank"]] {
        let wider = accounts.add_token(&bob, new_token(Role::Viewer, projects), NOW);
        assert!(matches!(wider, Err(AccountError::Invalid("projects", _))), "{projects:?}");
    }
    let (_, secret) =
        accounts.add_token(&bob, new_token(Role::Viewer, &["shop"]), NOW).expect("ok");
    let moved = UserPatch { projects: Some(vec!["bank".to_owned()]), ..UserPatch::default() };
    accounts.change_user("bob", moved, None).expect("it is possible");
    assert!(accounts.caller_of_token(&secret, NOW).is_none());
    let used = accounts.remove_project("bank").expect_err("bob is limited to it");
    assert!(matches!(used, AccountError::Conflict(_)));
    accounts.remove_user("bob").expect("ann is left");
    assert!(accounts.tokens(None).is_empty());
    accounts.remove_project("bank").expect("nobody is limited to it");
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let Fixture { accounts, .. } = &fixture();
    let before = (accounts.users(), accounts.projects());
    for name in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(accounts.add_user(new_user(name, Role::Viewer, &[])).is_err(), "{name:?}");
        assert!(accounts.add_project(project(name, "x-")).is_err(), "{name:?}");
        assert!(accounts.add_project(project("new", name)).is_err(), "{name:?}");
    }
    assert!(accounts.add_user(new_user("ann", Role::Viewer, &[])).is_err());
    assert!(accounts.add_user(new_user("bob", Role::Viewer, &["none"])).is_err());
    assert!(accounts.add_user(new_user("bob", Role::Administrator, &["shop"])).is_err());
    assert!(accounts.add_project(project("new", "shop-new-")).is_err(), "it is inside another");
    assert!(accounts.add_project(project("new", "sh")).is_err(), "another is inside it");
    let patch = ProjectPatch { prefix: Some("ba".to_owned()), ..ProjectPatch::default() };
    assert!(accounts.change_project("shop", patch, None).is_err());
    assert_eq!((accounts.users(), accounts.projects()), before);
}
