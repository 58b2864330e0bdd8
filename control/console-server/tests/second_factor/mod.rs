//! Black-box tests of the second factor: login and attacks.

mod rule;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use rustix::process::Signal;
use serde_json::{Value, json};
use system::wait_for;

use super::{TIME_LIMIT, check, whole_audit};
use crate::fixture::{Answer, Client, Fixture, PASSWORD, client_of};

const STEP_SECONDS: u64 = 30;
const WRONG: &str = "000000";

/// Concurrent logins with one code.
const LOGINS: usize = 8;

/// Authenticator app, set up by the base32 secret.
#[derive(Debug)]
struct Authenticator {
    key: Vec<u8>,
    /// Time step of the latest generated code.
    shown: u64,
}

impl Authenticator {
    fn new(secret: &str) -> Self {
        let letter = |it: u8| match it {
            b'A'..=b'Z' => it - b'A',
            _ => it - b'2' + 26,
        };
        let bits: Vec<u8> = secret
            .bytes()
            .flat_map(|it| (0..5).rev().map(move |bit| letter(it) >> bit & 1))
            .collect();
        let byte = |bits: &[u8]| bits.iter().fold(0, |sum, bit| sum << 1 | bit);
        Self { key: bits.chunks_exact(8).map(byte).collect(), shown: 0 }
    }

    fn code_of(&self, step: u64) -> String {
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.key);
        let tag = sign(&key, &step.to_be_bytes());
        let at = usize::from(tag.as_ref()[19] & 0xf);
        let bytes: [u8; 4] = tag.as_ref()[at..at + 4].try_into().expect("four bytes");
        format!("{:06}", (u32::from_be_bytes(bytes) & 0x7fff_ffff) % 1_000_000)
    }

    /// Generates the next unused code, once the console accepts it.
    fn code(&mut self) -> Result<String> {
        let next = self.shown + 1;
        wait_for("the time of the next code", TIME_LIMIT, || Ok(now_step()? + 1 >= next))?;
        // The oldest code that stays valid for another step, so that a slow host is in time.
        self.shown = next.max(now_step()?);
        Ok(self.code_of(self.shown))
    }

    /// Returns a code that is wrong at all times near now.
    fn wrong(&self) -> Result<String> {
        let step = now_step()?;
        let near: Vec<_> = (step - 3..step + 10).map(|it| self.code_of(it)).collect();
        let wrong = (0..1_000_000).map(|it| format!("{it:06}")).find(|it| !near.contains(it));
        wrong.context("there are more codes than steps")
    }
}

fn now_step() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / STEP_SECONDS)
}

fn log_in(fixture: &Fixture, name: &str, code: &str) -> Result<Answer> {
    let body = json!({"name": name, "password": PASSWORD, "code": code});
    fixture.post(&Client::nobody(), "/console/v1/session", &body)
}

fn own(fixture: &Fixture, client: &Client, what: &str, body: &Value) -> Result<Answer> {
    fixture.post(client, &format!("/console/v1/second-factor{what}"), body)
}

fn state_of(fixture: &Fixture, client: &Client) -> Result<Value> {
    fixture.get(client, "/console/v1/second-factor")?.json()
}

/// Enables the second factor. Returns the recovery codes.
fn enrol(fixture: &Fixture, client: &Client) -> Result<(Authenticator, Vec<String>)> {
    let begun = own(fixture, client, "", &json!({"password": PASSWORD}))?;
    ensure!(begun.status == 200, "{begun:?}");
    let begun = begun.json()?;
    let secret = begun["secret"].as_str().context("no secret")?;
    let uri = begun["uri"].as_str().context("no address")?;
    ensure!(uri.starts_with("otpauth://totp/Memlane") && uri.contains(secret), "{uri}");
    let mut authenticator = Authenticator::new(secret);
    let code = authenticator.code()?;
    let enabled = own(fixture, client, "/confirm", &json!({"code": code}))?;
    ensure!(enabled.status == 200, "{enabled:?}");
    let codes = enabled.json()?["recovery_codes"].as_array().context("no codes")?.clone();
    let codes = codes.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
    Ok((authenticator, codes))
}

#[test]
fn a_login_takes_a_code_once_the_second_factor_is_on_and_each_code_once() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let elsewhere = fixture.log_in("bob", PASSWORD)?;
    let token = json!({"name": "ci", "role": "viewer"});
    let token = fixture.post(&bob, "/console/v1/tokens", &token)?.json()?;
    let token = Client::with_token(token["secret"].as_str().context("no secret")?);
    let (mut authenticator, recovery) = enrol(&fixture, &bob)?;
    check(&fixture.get(&elsewhere, "/console/v1/session")?, 401, "unauthorized");
    let state = json!({"enabled": true, "available": true, "recovery_codes_left": 10});
    assert_eq!(state_of(&fixture, &bob)?, state);
    assert_eq!(fixture.get(&token, "/v1/volumes")?.status, 200);
    // A used code, no code and a wrong code have the same response as a wrong password.
    let wrong = fixture.try_log_in("bob", "not his password")?.json()?;
    let used = authenticator.code_of(authenticator.shown);
    for refused in [log_in(&fixture, "bob", &used)?, fixture.try_log_in("bob", PASSWORD)?] {
        check(&refused, 401, "unauthorized");
        assert_eq!(refused.json()?, wrong);
    }
    let code = authenticator.code()?;
    assert_eq!(log_in(&fixture, "bob", &code)?.status, 200);
    // Also after the console was killed right after its response.
    fixture.end_console(Signal::KILL)?;
    fixture.start_console()?;
    check(&log_in(&fixture, "bob", &code)?, 401, "unauthorized");
    check(&log_in(&fixture, "bob", &authenticator.wrong()?)?, 401, "unauthorized");
    let after = log_in(&fixture, "bob", &recovery[0].to_uppercase())?;
    assert_eq!(after.status, 200, "{after:?}");
    check(&log_in(&fixture, "bob", &recovery[0])?, 401, "unauthorized");
    assert_eq!(state_of(&fixture, &client_of(&after)?)?["recovery_codes_left"], 9);
    // Users without a second factor need no code.
    assert_eq!(fixture.try_log_in("ann", PASSWORD)?.status, 200);
    let stored = std::fs::read_to_string(fixture.state_dir().join("accounts.json"))?;
    let told = stored + &fixture.log();
    assert!(recovery.iter().all(|it| !told.contains(it.as_str())), "a recovery code is kept");
    Ok(())
}

#[test]
fn of_many_logins_with_one_code_at_once_one_gets_in() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let (mut authenticator, recovery) = enrol(&fixture, &bob)?;
    for code in [authenticator.code()?, recovery[1].clone()] {
        let begin = || log_in(&fixture, "bob", &code).map(|it| it.status);
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..LOGINS).map(|_| scope.spawn(begin)).collect();
            asked.into_iter().map(|it| it.join().expect("no panic")).collect::<Result<_>>()
        })?;
        assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 1, "{statuses:?}");
        let user = "/console/v1/users/bob";
        let enabled = fixture.ask(&administrator, "PATCH", user, Some(r#"{"disabled": false}"#))?;
        assert_eq!(enabled.status, 200, "it ends the wait");
    }
    Ok(())
}

#[test]
fn codes_of_others_and_guesses_get_nobody_in_and_are_in_the_audit_log() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let eve = fixture.user(&administrator, &json!({"name": "eve", "role": "viewer"}))?;
    let (mut of_bob, recovery_of_bob) = enrol(&fixture, &bob)?;
    let (_, recovery_of_eve) = enrol(&fixture, &eve)?;
    let code = of_bob.code()?;
    check(&log_in(&fixture, "eve", &code)?, 401, "unauthorized");
    check(&log_in(&fixture, "bob", &recovery_of_eve[0])?, 401, "unauthorized");
    assert_eq!(log_in(&fixture, "bob", &code)?.status, 200, "it was not used up by eve");
    assert_eq!(log_in(&fixture, "bob", &recovery_of_bob[0])?.status, 200);
    // A correct password before each guess does not reset the count of wrong codes.
    let guess = |address: &str| -> Result<u16> {
        let body = json!({"name": "bob", "password": PASSWORD, "code": of_bob.wrong()?});
        Ok(fixture.ask_from(address, "/console/v1/session", &body.to_string())?.status)
    };
    let mut looked_at = 0;
    for host in 20..45 {
        looked_at += usize::from(guess(&format!("127.0.0.{host}"))? == 401);
    }
    assert_eq!(looked_at, 25, "each address has attempts of its own");
    let entries = whole_audit(&fixture, &administrator)?;
    let told = |what: &str| {
        let is_it = |it: &&Value| it["change"]["new"]["second_factor"] == what;
        entries.iter().filter(is_it).map(|it| it["count"].as_u64().unwrap_or(0)).sum::<u64>()
    };
    let refused = told("ignored: too many wrong codes");
    assert!(told("wrong code") >= 10 && refused > 0, "{refused} refused: {entries:?}");
    // From a known network, the user can log in.
    assert_eq!(log_in(&fixture, "bob", &recovery_of_bob[1])?.status, 200);
    // From other networks, even a correct code is neither verified nor consumed now.
    let elsewhere = json!({"name": "bob", "password": PASSWORD, "code": recovery_of_bob[2]});
    let answer = fixture.ask_from("127.0.0.60", "/console/v1/session", &elsewhere.to_string())?;
    if answer.status == 401 {
        assert_eq!(log_in(&fixture, "bob", &recovery_of_bob[2])?.status, 200);
    }
    Ok(())
}

#[test]
fn a_stolen_session_neither_enrols_nor_disables_and_an_administrator_resets() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "operator"}))?;
    let wrong = json!({"password": "not his password"});
    check(&own(&fixture, &bob, "", &wrong)?, 422, "invalid_field");
    check(&own(&fixture, &bob, "/confirm", &json!({"code": WRONG}))?, 409, "conflict");
    let both = json!({"password": PASSWORD, "code": WRONG});
    check(&own(&fixture, &bob, "/disable", &both)?, 409, "conflict");
    // Nothing is enabled before the first code.
    let begun = own(&fixture, &bob, "", &json!({"password": PASSWORD}))?.json()?;
    let authenticator = Authenticator::new(begun["secret"].as_str().context("no secret")?);
    let wrong = json!({"code": authenticator.wrong()?});
    check(&own(&fixture, &bob, "/confirm", &wrong)?, 422, "invalid_field");
    assert_eq!(state_of(&fixture, &bob)?["enabled"], false);
    assert_eq!(fixture.try_log_in("bob", PASSWORD)?.status, 200);

    let (mut authenticator, recovery) = enrol(&fixture, &bob)?;
    check(&own(&fixture, &bob, "", &json!({"password": PASSWORD}))?, 409, "conflict");
    let half = json!({"password": PASSWORD, "code": authenticator.wrong()?});
    check(&own(&fixture, &bob, "/disable", &half)?, 422, "invalid_field");
    let half = json!({"password": "not his password", "code": recovery[0]});
    check(&own(&fixture, &bob, "/disable", &half)?, 422, "invalid_field");
    let reset = |client: &Client, name: &str| {
        let path = format!("/console/v1/users/{name}/second-factor");
        fixture.ask(client, "DELETE", &path, None)
    };
    check(&reset(&bob, "bob")?, 403, "forbidden");
    check(&reset(&administrator, "ann")?, 409, "conflict");
    check(&reset(&administrator, "nobody")?, 404, "not_found");
    let shown = fixture.get(&administrator, "/console/v1/users/bob")?.json()?;
    assert_eq!(shown["second_factor"], true);
    let both = json!({"password": PASSWORD, "code": authenticator.code()?});
    assert_eq!(own(&fixture, &bob, "/disable", &both)?.status, 204);
    assert_eq!(fixture.try_log_in("bob", PASSWORD)?.status, 200);

    enrol(&fixture, &bob)?;
    check(&fixture.try_log_in("bob", PASSWORD)?, 401, "unauthorized");
    assert_eq!(reset(&administrator, "bob")?.status, 204);
    check(&reset(&administrator, "bob")?, 409, "conflict");
    check(&fixture.get(&bob, "/console/v1/session")?, 401, "unauthorized");
    let bob = fixture.log_in("bob", PASSWORD)?;
    assert_eq!(state_of(&fixture, &bob)?["enabled"], false);
    let entries = whole_audit(&fixture, &administrator)?;
    let changes = |method: &str, end: &str, new: &Value| {
        let is_it = |it: &&Value| {
            let path = it["path"].as_str().unwrap_or_default();
            it["method"] == method && path.ends_with(end) && it["change"]["new"] == *new
        };
        entries.iter().filter(is_it).count()
    };
    let (on, off) = (json!({"second_factor": true}), json!({"second_factor": false}));
    assert_eq!(changes("POST", "/second-factor/confirm", &on), 2);
    assert_eq!(changes("POST", "/second-factor/disable", &off), 1);
    assert_eq!(changes("DELETE", "/users/bob/second-factor", &off), 1);
    let wrong = json!({"second_factor": "wrong code"});
    assert_eq!(changes("POST", "/second-factor/disable", &wrong), 1);
    assert_eq!(changes("POST", "/second-factor/confirm", &wrong), 1);
    assert!(changes("POST", "/session", &wrong) >= 1);
    Ok(())
}

#[test]
fn a_file_of_an_older_console_opens_and_a_damaged_second_factor_lets_nobody_in() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let path = fixture.state_dir().join("accounts.json");
    let older = std::fs::read_to_string(&path)?;
    assert!(!older.contains("second_factor"), "an older console reads it: {older}");
    enrol(&fixture, &bob)?;
    let newer = std::fs::read_to_string(&path)?;
    let mut changed: Value = serde_json::from_str(&newer)?;
    let secret = STANDARD_NO_PAD.encode([0; 3]);
    let users = changed["users"].as_array_mut().context("no users")?;
    let user = users.iter_mut().find(|it| it["name"] == "bob").context("no bob")?;
    user["second_factor"]["secret"] = secret.into();
    fixture.end_console(Signal::TERM)?;
    std::fs::write(&path, changed.to_string())?;
    fixture.start_console()?;
    assert_eq!(log_in(&fixture, "bob", WRONG)?.status, 500);
    assert_eq!(fixture.try_log_in("ann", PASSWORD)?.status, 200);
    Ok(())
}
