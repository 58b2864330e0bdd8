//! Single sign-on with OpenID Connect: accepted and rejected logins, and roles.

mod provider;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use provider::{Asked, CLIENT, Case, Provider, SECRET};
use serde_json::{Value, json};

use crate::check;
use crate::fixture::{Answer, Client, Fixture, client_of};

const LOGIN: &str = "/console/v1/oidc/login";
const CALLBACK: &str = "/console/v1/oidc/callback";

/// Decodes the parameters of a query or form.
fn pairs(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|it| it.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
            let digits = std::str::from_utf8(&digits).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("text")
}

struct Together {
    provider: Provider,
    fixture: Fixture,
    _folder: tempfile::TempDir,
}

/// A login in progress at the provider.
struct Begun {
    asked: Asked,
    browser: Client,
}

impl Together {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let provider = Provider::start(folder.path())?;
        let secret = folder.path().join("secret");
        std::fs::write(&secret, format!("{SECRET}\n"))?;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let flags = [
            "--oidc-issuer",
            provider.issuer(),
            "--oidc-client",
            CLIENT,
            "--oidc-secret-file",
            &path("secret"),
            "--oidc-ca",
            &path("provider.pem"),
            "--oidc-role",
            "operators=operator",
            "--oidc-role",
            "root=administrator",
        ];
        let flags = flags.map(str::to_owned).to_vec();
        let (fixture, _) = Fixture::with_administrator_and(flags)?;
        Ok(Self { provider, fixture, _folder: folder })
    }

    fn begin(&self) -> Result<Begun> {
        let answer = self.fixture.get(&Client::nobody(), LOGIN)?;
        ensure!(answer.status == 303, "{answer:?}");
        let location = header(&answer, "location")?;
        let start = format!("{}/authorize?tenant=a&", self.provider.issuer());
        let query = location.strip_prefix(&start).context(location.clone())?;
        let cookie = format!("Cookie: {}", answer.cookie()?);
        Ok(Begun { asked: pairs(query), browser: Client { headers: vec![cookie] } })
    }

    /// Follows the provider's redirect back to the console.
    fn back(&self, begun: &Begun, case: Case) -> Result<Answer> {
        let code = self.provider.approve(&begun.asked, case);
        self.come(&begun.browser, &format!("code={code}&state={}", begun.asked["state"]))
    }

    fn come(&self, browser: &Client, query: &str) -> Result<Answer> {
        self.fixture.get(browser, &format!("{CALLBACK}?{query}"))
    }

    fn log_in(&self, case: Case) -> Result<Answer> {
        self.back(&self.begin()?, case)
    }

    /// Returns the client whose session the login has started.
    fn client(&self, answer: &Answer) -> Result<Client> {
        ensure!(answer.status == 303 && header(answer, "location")? == "/", "{answer:?}");
        ensure!(answer.head.contains("SameSite=Strict"), "{answer:?}");
        let cookie = format!("Cookie: {}", answer.cookie()?);
        let shown =
            self.fixture.get(&Client { headers: vec![cookie.clone()] }, "/console/v1/session")?;
        let csrf = shown.json()?["csrf"].as_str().context("no csrf")?.to_owned();
        Ok(Client { headers: vec![cookie, format!("X-Memlane-CSRF: {csrf}")] })
    }

    fn refuses(&self, answer: &Answer) -> Result<()> {
        ensure!(answer.status == 403, "{answer:?}");
        ensure!(!answer.head.contains("memlane-session="), "a session began: {answer:?}");
        ensure!(answer.body.contains("The login was refused."), "{answer:?}");
        Ok(())
    }
}

fn header(answer: &Answer, name: &str) -> Result<String> {
    let line = answer.head.lines().find_map(|it| it.strip_prefix(&format!("{name}: ")));
    Ok(line.with_context(|| format!("{answer:?}"))?.to_owned())
}

#[test]
fn a_login_by_the_provider_gives_the_role_that_its_claims_are_mapped_to() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    assert_eq!(fixture.get(&Client::nobody(), "/console/v1/logins")?.json()?["provider"], true);
    let begun = together.begin()?;
    let redirect = format!("https://{}{CALLBACK}", fixture.address());
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", &redirect),
        ("scope", "openid profile"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(begun.asked[name], value, "{:?}", begun.asked);
    }
    let other = together.begin()?.asked;
    for name in ["state", "nonce", "code_challenge"] {
        assert!(begun.asked[name].len() > 30 && begun.asked[name] != other[name], "{name}");
    }
    let operator = together.client(&together.back(&begun, Case::right())?)?;
    let shown = fixture.get(&operator, "/console/v1/session")?.json()?;
    assert_eq!((&shown["name"], &shown["role"]), (&json!("sso:ann"), &json!("operator")));
    assert_eq!(
        fixture.post(&operator, "/v1/volumes", &json!({"name": "a", "size": "1MiB"}))?.status,
        201
    );
    check(&fixture.get(&operator, "/console/v1/users")?, 403, "forbidden");
    let token = json!({"name": "t", "role": "viewer"});
    check(&fixture.post(&operator, "/console/v1/tokens", &token)?, 403, "forbidden");
    let password = json!({"current": "x", "new": "four words are long enough"});
    check(&fixture.post(&operator, "/console/v1/password", &password)?, 409, "conflict");

    let by_rsa = Case {
        claims: json!({"sub": "bob", "groups": "root"}),
        ..Case::header(json!({"alg": "RS256", "kid": "rsa"}))
    };
    let root = together.client(&together.log_in(by_rsa)?)?;
    let audit = fixture.get(&root, "/console/v1/audit")?;
    assert_eq!(audit.status, 200);
    for name in ["sso:ann", "sso:bob", CALLBACK] {
        assert!(audit.body.contains(name), "{name}: {}", audit.body);
    }
    assert!(!audit.body.contains("code-"), "{}", audit.body);
    assert!(!fixture.log().contains(SECRET), "{}", fixture.log());
    let ended = fixture.ask(&operator, "DELETE", "/console/v1/session", None)?;
    assert_eq!(ended.status, 204);
    check(&fixture.get(&operator, "/v1/volumes")?, 401, "unauthorized");
    Ok(())
}

#[test]
fn sessions_that_the_provider_began_are_listed_and_ended_one_by_one() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    // Returns the ids of the sessions of that user in a client's list, and of all in it.
    let listed = |client: &Client| -> Result<[BTreeSet<String>; 2]> {
        let list = fixture.get(client, "/console/v1/sessions")?.json()?;
        let ids = |of: &dyn Fn(&Value) -> bool| {
            let entries = list.as_array().into_iter().flatten().filter(|it| of(it));
            entries.filter_map(|it| it["id"].as_str()).map(str::to_owned).collect()
        };
        Ok([ids(&|it| it["user"] == "sso:ann"), ids(&|_| true)])
    };
    let first = together.client(&together.log_in(Case::right())?)?;
    let [of_first, _] = listed(&first)?;
    let second = together.client(&together.log_in(Case::right())?)?;
    let as_root = Case { claims: json!({"sub": "bob", "groups": "root"}), ..Case::right() };
    let root = together.client(&together.log_in(as_root)?)?;

    let [of_ann, seen_by_ann] = listed(&first)?;
    assert_eq!((of_first.len(), of_ann.len()), (1, 2));
    assert_eq!(seen_by_ann, of_ann, "an operator sees the own ones");
    let [seen_by_root, all] = listed(&root)?;
    assert_eq!((&seen_by_root, all.len()), (&of_ann, 4));

    let of_second = of_ann.difference(&of_first).next().context("it is listed")?;
    let path = format!("/console/v1/sessions/{of_second}");
    assert_eq!(fixture.ask(&root, "DELETE", &path, None)?.status, 204);
    check(&fixture.get(&second, "/console/v1/session")?, 401, "unauthorized");
    check(&fixture.ask(&root, "DELETE", &path, None)?, 404, "not_found");
    for goes_on in [&first, &root] {
        assert_eq!(fixture.get(goes_on, "/console/v1/session")?.status, 200);
    }
    assert_eq!(listed(&root)?[0], of_first);
    Ok(())
}

#[test]
fn a_token_that_is_in_doubt_begins_no_session() -> Result<()> {
    let together = Together::start()?;
    let mut cases = vec![
        Case { is_forged: true, ..Case::right() },
        Case { signature: Some(""), ..Case::right() },
        Case { signature: Some("AAAA"), ..Case::right() },
        Case { signature: Some(""), ..Case::header(json!({"alg": "none"})) },
        Case::header(json!({"alg": "HS256", "kid": "ec"})),
        Case::header(json!({"alg": "ES256", "kid": "unknown"})),
        Case::header(json!({"alg": "RS256", "kid": "enc"})),
        Case::header(json!({"alg": "RS256", "kid": "ec"})),
    ];
    let claims = [
        ("iss", json!("https://evil.example")),
        ("aud", json!("other")),
        ("aud", json!([CLIENT, "other"])),
        ("azp", json!("other")),
        ("nonce", json!("another")),
        ("nonce", json!(null)),
        ("exp", json!(1)),
        ("exp", json!(null)),
        ("iat", json!(1)),
        ("sub", json!(null)),
        ("sub", json!("a b")),
        ("groups", json!(null)),
        ("groups", json!(["Operators"])),
        ("groups", json!([])),
    ];
    cases.extend(claims.map(|(name, value)| Case::claim(name, value)));
    for case in cases {
        let answer = together.log_in(case.clone())?;
        together.refuses(&answer).with_context(|| format!("{case:?}"))?;
    }
    together.client(&together.log_in(Case::right())?)?;
    Ok(())
}

#[test]
fn only_the_browser_that_began_a_login_ends_it_and_once() -> Result<()> {
    let together = Together::start()?;
    let (begun, other) = (together.begin()?, together.begin()?);
    let code = together.provider.approve(&begun.asked, Case::right());
    let state = &begun.asked["state"];
    let right = format!("code={code}&state={state}");
    for (browser, query) in [
        // A browser that is tricked into another user's callback.
        (&Client::nobody(), right.clone()),
        (&other.browser, right.clone()),
        (&begun.browser, format!("code={code}&state={}", other.asked["state"])),
        (&begun.browser, format!("code={code}")),
        (&begun.browser, format!("state={state}")),
        (&begun.browser, format!("{right}&state={state}")),
        (&begun.browser, format!("{right}&iss=https%3A%2F%2Fevil.example")),
        (&begun.browser, format!("{right}&error=access_denied")),
        (&begun.browser, format!("code=%ff&state={state}")),
        (&begun.browser, String::new()),
    ] {
        together.refuses(&together.come(browser, &query)?).with_context(|| query.clone())?;
    }
    let issuer = together.provider.issuer().replace(':', "%3A").replace('/', "%2F");
    let answer = together.come(&begun.browser, &format!("{right}&iss={issuer}"))?;
    together.client(&answer)?;
    together.refuses(&together.come(&begun.browser, &right)?)?;
    // A code that was issued for another login.
    let code = together.provider.approve(&other.asked, Case::right());
    let third = together.begin()?;
    let query = format!("code={code}&state={}", third.asked["state"]);
    together.refuses(&together.come(&third.browser, &query)?)?;
    let head = together.fixture.ask(&other.browser, "POST", CALLBACK, Some("{}"))?;
    check(&head, 405, "method_not_allowed");
    Ok(())
}

#[test]
fn without_a_provider_that_answers_users_of_the_console_log_in_as_ever() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    check(&fixture.get(&Client::nobody(), LOGIN)?, 404, "not_found");
    check(&fixture.get(&Client::nobody(), CALLBACK)?, 404, "not_found");
    assert_eq!(fixture.get(&Client::nobody(), "/console/v1/logins")?.json()?["provider"], false);
    assert_eq!(fixture.get(&administrator, "/console/v1/session")?.status, 200);

    let nowhere = system::free_address()?;
    let flags = format!(
        "--oidc-issuer https://{nowhere} --oidc-client a --oidc-role a=viewer --oidc-ca {}",
        fixture.state_dir().join("certificate.pem").display()
    );
    let flags = flags.split(' ').map(str::to_owned).collect();
    let (other, _) = Fixture::with_administrator_and(flags)?;
    let answer = other.get(&Client::nobody(), LOGIN)?;
    assert_eq!(answer.status, 503, "{answer:?}");
    let answer = other.try_log_in("ann", crate::fixture::PASSWORD)?;
    client_of(&answer).map(|_| ())
}
