//! The rule that all users need a second factor, and users who have none.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{enrol, log_in, own};
use crate::fixture::{Answer, Client, Fixture, PASSWORD, client_of};
use crate::{check, whole_audit};

const RULES: &str = "/console/v1/rules";
const CONFIRM: &str = "/console/v1/second-factor/confirm";
const REFUSED: &str = "second_factor_required";

/// Operations available to users who must enrol, besides those without authentication.
const LEFT: &[&str] = &[
    "show_own_session",
    "log_out",
    "show_second_factor",
    "begin_second_factor",
    "confirm_second_factor",
    "disable_second_factor",
];

fn require(fixture: &Fixture, client: &Client, is_required: bool) -> Result<Answer> {
    let rules = json!({"second_factor_required": is_required}).to_string();
    fixture.ask(client, "PATCH", RULES, Some(&rules))
}

/// An administrator with a second factor, who has enabled the rule.
fn required() -> Result<(Fixture, Client)> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    enrol(&fixture, &administrator)?;
    let answer = require(&fixture, &administrator, true)?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok((fixture, administrator))
}

#[test]
fn the_rule_is_set_by_an_administrator_who_keeps_it() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "operator"}))?;
    for client in [&bob, &fixture.log_in("bob", PASSWORD)?] {
        check(&fixture.get(client, RULES)?, 403, "forbidden");
        check(&require(&fixture, client, true)?, 403, "forbidden");
    }
    let rules = fixture.get(&administrator, RULES)?.json()?;
    assert_eq!(rules["second_factor_required"], false);
    check(&require(&fixture, &administrator, true)?, 409, "conflict");
    let odd = r#"{"second_factor_required": 1}"#;
    let odd = fixture.ask(&administrator, "PATCH", RULES, Some(odd))?;
    assert!([400, 422].contains(&odd.status), "{odd:?}");
    assert_eq!(fixture.get(&administrator, RULES)?.json()?, rules, "a refusal changes nothing");
    enrol(&fixture, &administrator)?;
    let tag = rules["etag"].as_str().context("no tag")?;
    let if_seen = administrator.with(&format!("If-Match: \"{tag}\""));
    assert_eq!(require(&fixture, &if_seen, true)?.status, 200);
    check(&require(&fixture, &if_seen, false)?, 412, "precondition_failed");
    assert_eq!(fixture.get(&administrator, RULES)?.json()?["second_factor_required"], true);
    let entries = whole_audit(&fixture, &administrator)?;
    let is_set = |it: &&Value| it["path"] == RULES && it["status"] == 200;
    let set: Vec<_> = entries.iter().filter(is_set).collect();
    assert_eq!(set.len(), 1);
    let (old, new) = (&set[0]["change"]["old"], &set[0]["change"]["new"]);
    assert_eq!(
        (&old["second_factor_required"], &new["second_factor_required"]),
        (&json!(false), &json!(true))
    );
    Ok(())
}

#[test]
fn who_has_no_second_factor_can_only_enrol_until_they_have() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let early = fixture.user(&administrator, &json!({"name": "bob", "role": "operator"}))?;
    let token = json!({"name": "ci", "role": "viewer"});
    let token = fixture.post(&early, "/console/v1/tokens", &token)?.json()?;
    let token = Client::with_token(token["secret"].as_str().context("no secret")?);
    let (mut of_ann, _) = enrol(&fixture, &administrator)?;
    assert_eq!(require(&fixture, &administrator, true)?.status, 200);
    let begun = fixture.try_log_in("bob", PASSWORD)?;
    assert_eq!(begun.json()?["must_enrol"], true, "{begun:?}");
    // Sessions from before the rule are restricted as well.
    for bob in [&early, &client_of(&begun)?] {
        check(&fixture.get(bob, "/v1/volumes")?, 403, REFUSED);
        let volume = json!({"name": "db", "size": "1MiB"});
        check(&fixture.post(bob, "/v1/volumes", &volume)?, 403, REFUSED);
        assert_eq!(fixture.get(bob, "/console/v1/session")?.json()?["must_enrol"], true);
        assert_eq!(fixture.get(bob, "/console/v1/second-factor")?.json()?["enabled"], false);
    }
    assert_eq!(fixture.get(&token, "/v1/volumes")?.status, 200, "tokens are for programs");
    // The rule survives a kill of the console.
    fixture.end_console(Signal::KILL)?;
    fixture.start_console()?;
    let administrator = client_of(&log_in(&fixture, "ann", &of_ann.code()?)?)?;
    let bob = fixture.log_in("bob", PASSWORD)?;
    check(&fixture.get(&bob, "/v1/volumes")?, 403, REFUSED);
    let (mut authenticator, _) = enrol(&fixture, &bob)?;
    assert_eq!(fixture.get(&bob, "/v1/volumes")?.status, 200);
    assert_eq!(fixture.get(&bob, "/console/v1/session")?.json()?["must_enrol"], false);
    let entries = whole_audit(&fixture, &administrator)?;
    let is_bobs = |it: &&Value| it["user"] == "bob" && it["path"] == CONFIRM && it["status"] == 200;
    assert_eq!(entries.iter().filter(is_bobs).count(), 1, "it is told who enrolled");
    // A user who disables the factor, to change the authenticator, can only enrol again.
    let both = json!({"password": PASSWORD, "code": authenticator.code()?});
    assert_eq!(own(&fixture, &bob, "/disable", &both)?.status, 204);
    check(&fixture.get(&bob, "/v1/volumes")?, 403, REFUSED);
    Ok(())
}

#[test]
fn without_the_rule_everything_is_as_before() -> Result<()> {
    let (fixture, administrator) = required()?;
    // New users must enrol, too.
    let bob = fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    check(&fixture.get(&bob, "/v1/volumes")?, 403, REFUSED);
    let stored = || std::fs::read_to_string(fixture.state_dir().join("accounts.json"));
    assert!(stored()?.contains("\"rules\""));
    assert_eq!(require(&fixture, &administrator, false)?.status, 200);
    assert_eq!(fixture.get(&bob, "/v1/volumes")?.status, 200);
    assert!(!stored()?.contains("\"rules\""), "an older console reads it");
    Ok(())
}

#[test]
fn each_operation_but_those_of_the_enrolment_is_refused() -> Result<()> {
    let (fixture, administrator) = required()?;
    let bob = json!({"name": "bob", "role": "administrator"});
    let bob = fixture.user(&administrator, &bob)?;
    let document = fixture.get(&administrator, "/console/v1/openapi.json")?.json()?;
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            let name = operation["operationId"].as_str().context("no name")?;
            let is_for_all = operation["security"] == json!([]);
            if LEFT.contains(&name) || is_for_all {
                continue;
            }
            let path = api::path_of(path, "bob");
            let answer = fixture.ask(&bob, &method.to_uppercase(), &path, Some("{}"))?;
            check(&answer, 403, REFUSED);
            refused += 1;
        }
    }
    for endpoint in api::ENDPOINTS.iter().chain(api::MACHINE_ENDPOINTS) {
        if [api::HEALTH_PATH, api::READINESS_PATH].contains(&endpoint.path) {
            continue;
        }
        let path = api::path_of(endpoint.path, "bob");
        check(&fixture.ask(&bob, endpoint.method.name(), &path, Some("{}"))?, 403, REFUSED);
        refused += 1;
    }
    ensure!(refused > api::ENDPOINTS.len() + 20, "{refused}");
    assert_eq!(fixture.ask(&bob, "DELETE", "/console/v1/session", None)?.status, 204);
    Ok(())
}
