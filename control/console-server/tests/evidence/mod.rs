//! The audit log, conditional changes, API documents and histories.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use system::{NbdClient, Request, wait_for};

use crate::check;
use crate::fixture::{Client, Fixture, PASSWORD};

const TIME_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn the_audit_log_says_what_was_changed_and_goes_to_a_second_place() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit.jsonl");
    let flags = vec!["--audit-to".to_owned(), path.display().to_string()];
    let (fixture, administrator) = Fixture::with_administrator_and(flags)?;
    fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let patch = Some(r#"{"role": "operator", "password": "words and more words"}"#);
    let path_of_bob = "/console/v1/users/bob";
    assert_eq!(fixture.ask(&administrator, "PATCH", path_of_bob, patch)?.status, 200);
    assert_eq!(fixture.ask(&administrator, "DELETE", path_of_bob, None)?.status, 204);
    let audit = |query: &str| -> Result<Vec<Value>> {
        let found = fixture.get(&administrator, &format!("/console/v1/audit?{query}"))?.json()?;
        Ok(found.as_array().context("a list")?.clone())
    };
    let changed = audit("method=patch&path=bob&user=ann&status=200")?;
    let expected = json!({
        "old": {"role": "viewer"},
        "new": {"role": "operator", "password": "a new one"},
    });
    assert_eq!(changed.iter().map(|it| &it["change"]).collect::<Vec<_>>(), [&expected]);
    assert_eq!(audit("method=DELETE")?[0]["change"]["old"]["role"], "operator");
    assert_eq!(audit("user=nobody")?, Vec::<Value>::new());
    assert_eq!(audit("until=1")?, Vec::<Value>::new());
    let export = fixture.get(&administrator, "/console/v1/audit?export=true")?;
    let exported = export.body.lines().count();
    let kept = std::fs::read_to_string(&path)?;
    assert!(export.head.contains("attachment") && exported == kept.lines().count(), "{kept}");
    assert!(!kept.contains("words and more") && kept.contains("a new one"), "{kept}");
    let volume = json!({"name": "db", "size": "1MiB"});
    assert_eq!(fixture.post(&administrator, "/v1/volumes", &volume)?.status, 201);
    let patch = Some(r#"{"size": "2MiB"}"#);
    assert_eq!(fixture.ask(&administrator, "PATCH", "/v1/volumes/db", patch)?.status, 200);
    let resized = audit("path=/v1/volumes/db")?;
    let expected = json!({"old": {"size_bytes": 1 << 20}, "new": {"size": "2MiB"}});
    assert_eq!(resized[0]["change"], expected);
    assert_eq!(audit("path=/v1/volumes&method=POST")?[0]["change"]["new"], volume);
    // Rotate the file as logrotate does.
    std::fs::rename(&path, folder.path().join("audit.1"))?;
    fixture.signal_console(Signal::HUP)?;
    system::wait_for("the file", crate::TIME_LIMIT, || Ok(path.exists()))?;
    fixture.log_in("ann", PASSWORD)?;
    assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 1);
    Ok(())
}

#[test]
fn a_change_of_what_has_changed_since_is_refused() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let project = json!({"name": "shop", "prefix": "shop-"});
    assert_eq!(fixture.post(&administrator, "/console/v1/projects", &project)?.status, 201);
    for (path, mine, theirs) in [
        ("users", r#"{"role": "operator"}"#, r#"{"disabled": true}"#),
        ("projects", r#"{"prefix": "market-"}"#, r#"{"quota_bytes": 1048576}"#),
    ] {
        let name = if path == "users" { "bob" } else { "shop" };
        let list = fixture.get(&administrator, &format!("/console/v1/{path}"))?.json()?;
        let list = list.as_array().context("a list")?;
        let seen = list.iter().find(|it| it["name"] == name).context("it is there")?;
        let tag = seen["etag"].as_str().context("no tag")?;
        let path = format!("/console/v1/{path}/{name}");
        let if_seen = administrator.with(&format!("If-Match: \"{tag}\""));
        assert_eq!(fixture.ask(&administrator, "PATCH", &path, Some(theirs))?.status, 200);
        check(&fixture.ask(&if_seen, "PATCH", &path, Some(mine))?, 412, "precondition_failed");
        let odd = administrator.with("If-Match: odd");
        check(&fixture.ask(&odd, "PATCH", &path, Some(mine))?, 400, "invalid_request");
    }
    let bob = fixture.get(&administrator, "/console/v1/users/bob")?;
    assert_eq!(bob.json()?["disabled"], true);
    let tag = bob.head.lines().find_map(|it| it.strip_prefix("etag: ")).context("no tag")?;
    let if_seen = administrator.with(&format!("If-Match: {tag}"));
    let changed = fixture.ask(&if_seen, "PATCH", "/console/v1/users/bob", Some("{}"))?;
    assert_eq!(changed.status, 200, "{changed:?}");
    Ok(())
}

#[test]
fn sessions_are_listed_and_ended() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let vic = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let list = |client: &Client| -> Result<Vec<Value>> {
        let listed = fixture.get(client, "/console/v1/sessions")?.json()?;
        Ok(listed.as_array().context("a list")?.clone())
    };
    let all = list(&administrator)?;
    assert_eq!(all.len(), 2);
    let own = list(&vic)?;
    assert_eq!(own.iter().map(|it| &it["user"]).collect::<Vec<_>>(), ["vic"]);
    let end = |client: &Client, entry: &Value| {
        let id = entry["id"].as_str().unwrap_or_default();
        fixture.ask(client, "DELETE", &format!("/console/v1/sessions/{id}"), None)
    };
    let of_ann = all.iter().find(|it| it["user"] == "ann").context("it is there")?;
    check(&end(&vic, of_ann)?, 404, "not_found");
    assert_eq!(end(&administrator, &own[0])?.status, 204);
    check(&fixture.get(&vic, "/console/v1/session")?, 401, "unauthorized");
    check(&end(&administrator, &own[0])?, 404, "not_found");
    Ok(())
}

#[test]
fn it_outlives_a_console_when_a_token_was_used() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let body = json!({"name": "t", "role": "operator"});
    let made = fixture.post(&administrator, "/console/v1/tokens", &body)?.json()?;
    let secret = made["secret"].as_str().context("no secret")?;
    // The authentication scheme is case-insensitive.
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let token = Client::nobody().with(&format!("Authorization: {scheme} {secret}"));
        assert_eq!(fixture.get(&token, "/v1/volumes")?.status, 200, "{scheme}");
    }
    fixture.end_console(Signal::TERM)?;
    fixture.start_console()?;
    let token = Client::with_token(secret);
    // This use of the token is visible in the next response.
    let kept = std::fs::read_to_string(fixture.state_dir().join("accounts.json"))?;
    assert!(!kept.contains("\"last_used\": null"), "{kept}");
    assert_eq!(fixture.get(&token, "/console/v1/tokens")?.status, 200);
    Ok(())
}

#[test]
fn a_proxy_may_name_another_host_and_says_where_clients_are() -> Result<()> {
    let (fixture, _) = Fixture::with_administrator()?;
    let login = json!({"name": "ann", "password": PASSWORD});
    let log_in = |fixture: &Fixture, headers: &[&str]| {
        let client = headers.iter().fold(Client::nobody(), |client, it| client.with(it));
        fixture.post(&client, "/console/v1/session", &login)
    };
    let origin = "Origin: https://console.example";
    check(&log_in(&fixture, &[origin])?, 403, "forged");
    let same = "Sec-Fetch-Site: same-origin";
    assert_eq!(log_in(&fixture, &[origin, same])?.status, 200);
    check(&log_in(&fixture, &[origin, "Sec-Fetch-Site: cross-site"])?, 403, "forged");
    drop(fixture);
    let flags = "--public-url https://console.example --trusted-proxy 127.0.0.0/24";
    let flags = flags.split(' ').map(str::to_owned).collect();
    let (fixture, administrator) =
        Fixture::with_administrator_to(flags, "https://console.example")?;
    assert_eq!(log_in(&fixture, &[origin])?.status, 200);
    let foreign = "Origin: https://evil.example";
    check(&log_in(&fixture, &[foreign, same])?, 403, "forged");
    let forwarded = "X-Forwarded-For: 203.0.113.9, 198.51.100.7";
    assert_eq!(log_in(&fixture, &[origin, forwarded])?.status, 200);
    let audit = fixture.get(&administrator, "/console/v1/audit")?.json()?;
    assert_eq!(audit[0]["address"], "198.51.100.7", "{audit}");
    Ok(())
}

/// Checks a value against its schema: no unknown and no missing members.
fn conforms(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<()> {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(reference.trim_start_matches('#'));
        return conforms(document, found.context("it is not defined")?, value, place);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        conforms(document, part, value, place)?;
    }
    if let Some(parts) = schema["oneOf"].as_array() {
        let fits = parts.iter().any(|part| conforms(document, part, value, place).is_ok());
        ensure!(fits, "{place}: {value} is none of {parts:?}");
    }
    if let Some(words) = schema["enum"].as_array() {
        ensure!(words.contains(value), "{place}: {value} is none of {words:?}");
    }
    let is_of = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    let types = match &schema["type"] {
        Value::Null => return Ok(()),
        Value::Array(names) => names.clone(),
        name => vec![name.clone()],
    };
    let is_one = types.iter().filter_map(Value::as_str).any(is_of);
    ensure!(is_one, "{place}: {value} is none of {types:?}");
    for item in value.as_array().into_iter().flatten() {
        conforms(document, &schema["items"], item, place)?;
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        ensure!(value.get(name).is_some(), "{place}: {value} has no {name}");
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        let known = schema["properties"].get(name);
        match known {
            Some(known) => conforms(document, known, value, &place)?,
            None => ensure!(schema["additionalProperties"] != false, "{place} is not known"),
        }
    }
    Ok(())
}

#[test]
fn the_last_hour_of_a_volume_is_told_to_who_may_see_the_volume() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    for name in ["shop-a", "quiet"] {
        let volume = json!({"name": name, "size": "1MiB"});
        assert_eq!(fixture.post(&administrator, "/v1/volumes", &volume)?.status, 201);
    }
    let project = json!({"name": "shop", "prefix": "shop-"});
    assert_eq!(fixture.post(&administrator, "/console/v1/projects", &project)?.status, 201);
    let sam = json!({"name": "sam", "role": "viewer", "projects": ["shop"]});
    let sam = fixture.user(&administrator, &sam)?;
    let path = |name: &str| format!("/console/v1/volumes/{name}/history");
    check(&fixture.get(&Client::nobody(), &path("shop-a"))?, 401, "unauthorized");
    check(&fixture.get(&sam, &path("quiet"))?, 403, "forbidden");
    check(&fixture.get(&administrator, &path("nothing"))?, 404, "not_found");
    check(
        &fixture.get(&administrator, &format!("{}?seconds=x", path("quiet")))?,
        400,
        "invalid_request",
    );
    let mut client = NbdClient::connect(&fixture.daemon.nbd_socket(), "shop-a")?;
    // Returns the highest point of a series, or none if it is empty.
    let highest = |client: &Client, name: &str, series: &str| -> Result<Option<f64>> {
        let told = fixture.get(client, &path(name))?.json()?;
        let told = told.as_array().context("a list")?;
        let points = told.iter().find(|it| it["series"] == series);
        let points = points.and_then(|it| it["points"].as_array()).into_iter().flatten();
        Ok(points.filter_map(|it| it[1].as_f64()).reduce(f64::max))
    };
    // Send requests until a sample has seen some. The first sample only initializes the counters.
    wait_for("rates of the volume", TIME_LIMIT, || {
        for _ in 0..64 {
            client.ask(&Request::Read { offset: 0, length: 4096 })?;
        }
        let rates = highest(&sam, "shop-a", "read_iops")?;
        Ok(rates > Some(0.0) && highest(&sam, "shop-a", "read_latency_p99_us")? > Some(0.0))
    })?;
    ensure!(highest(&sam, "shop-a", "read_bytes_per_second")? > Some(0.0));
    assert_eq!(highest(&administrator, "quiet", "read_latency_p99_us")?, None, "it had no reads");
    let slowest = fixture.get(&administrator, "/console/v1/slowest")?.json()?;
    let names: Vec<_> = slowest.as_array().context("a list")?.iter().collect();
    ensure!(names.iter().all(|it| it["volume"] == "shop-a" && it["kind"] == "read"), "{slowest}");
    ensure!(names.len() == 1 && names[0]["p99_us"].as_f64() > Some(0.0), "{slowest}");
    let times = fixture.get(&sam, "/v1/volumes/shop-a/latencies")?.json()?;
    ensure!(times["reads"]["timed"].as_u64() > Some(0), "{times}");
    check(&fixture.get(&sam, "/v1/volumes/quiet/latencies")?, 403, "forbidden");
    let seen = fixture.get(&sam, "/v1/latencies")?.json()?;
    ensure!(
        seen.as_array().is_some_and(|it| it.iter().all(|it| it["volume"] == "shop-a")),
        "{seen}"
    );
    assert_eq!(highest(&administrator, "quiet", "read_iops")?, Some(0.0), "it is known to be idle");
    Ok(())
}

#[test]
fn an_entry_with_a_long_change_is_kept_and_says_that_it_was_shortened() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let name = "x".repeat(9_000);
    let asked = json!({"name": name, "size": "1MiB"});
    assert_eq!(fixture.post(&administrator, "/v1/volumes", &asked)?.status, 422);
    let found = fixture.get(&administrator, "/console/v1/audit?path=/v1/volumes")?.json()?;
    let change = &found[0]["change"];
    let length = json!({"old": null, "new": asked}).to_string().len();
    assert_eq!(change["truncated_bytes"], length, "{change}");
    let kept = change["new"]["name"].as_str().context("a name")?;
    ensure!(kept.starts_with("xxxx") && kept.ends_with('…'), "{kept}");
    assert_eq!(change["new"]["size"], "1MiB");
    Ok(())
}

#[test]
fn the_consoles_own_interface_is_as_its_document_says() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let path = "/console/v1/openapi.json";
    check(&fixture.get(&Client::nobody(), path)?, 401, "unauthorized");
    let viewer = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let document = fixture.get(&viewer, path)?.json()?;
    let schema_of = |path: &str, method: &str, status: u16| {
        let answer = &document["paths"][path][method]["responses"][status.to_string()];
        answer["content"]["application/json"]["schema"].clone()
    };
    let asked = |method: &str, path: &str, template: &str, body: Option<Value>, status: u16| {
        let body = body.map(|it| it.to_string());
        let answer = fixture.ask(&administrator, method, path, body.as_deref())?;
        ensure!(answer.status == status, "{method} {path}: {answer:?}");
        let schema = schema_of(template, &method.to_lowercase(), status);
        ensure!(!schema.is_null() || status == 204, "{method} {template} has no schema");
        match status {
            204 => Ok(()),
            _ => conforms(&document, &schema, &answer.json()?, path),
        }
    };
    let own = |name: &str| format!("/console/v1/{name}");
    let made = |method, path: &str, template: &str, body, status| {
        asked(method, &own(path), &own(template), Some(body), status)
    };
    let bob = json!({"name": "bob", "password": PASSWORD, "role": "viewer", "projects": ["shop"]});
    let shop = json!({"name": "shop", "prefix": "shop-", "quota_bytes": 1 << 30});
    made("POST", "projects", "projects", shop, 201)?;
    made("POST", "users", "users", bob, 201)?;
    made("POST", "tokens", "tokens", json!({"name": "ci", "role": "viewer"}), 201)?;
    made("PATCH", "users/bob", "users/{name}", json!({"role": "operator"}), 200)?;
    made("PATCH", "projects/shop", "projects/{name}", json!({"quota_bytes": null}), 200)?;
    let password = json!({"current": PASSWORD, "new": format!("{PASSWORD}!")});
    made("POST", "password", "password", password, 200)?;
    let password = json!({"password": format!("{PASSWORD}!")});
    made("POST", "second-factor", "second-factor", password, 200)?;
    asked("GET", "/console/v1/users/bob", "/console/v1/users/{name}", None, 200)?;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        let is_json = !schema_of(path, "get", 200).is_null();
        if methods.get("get").is_some() && is_json && !path.contains('{') {
            asked("GET", path, path, None, 200)?;
        }
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
            let path = api::path_of(path, "nothing");
            let answer = fixture.ask(&Client::nobody(), method, &path, Some("{}"))?;
            let is_served = methods.get(method.to_lowercase()).is_some();
            ensure!(is_served == (answer.status != 405), "{method} {path}: {answer:?}");
            let said = &methods[method.to_lowercase()]["responses"][answer.status.to_string()];
            ensure!(!is_served || !said.is_null(), "{method} {path}: {answer:?}");
        }
    }
    for (method, path) in [("DELETE", "users/bob"), ("DELETE", "projects/shop")] {
        let template = format!("{}/{{name}}", path.split('/').next().context("a path")?);
        asked(method, &own(path), &own(&template), None, 204)?;
    }
    Ok(())
}
