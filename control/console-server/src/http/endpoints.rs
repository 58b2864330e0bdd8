//! Table of all endpoints of the console's own interface, for the router and the OpenAPI document.

use api::{Query, QueryKind, schema};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};

use crate::access::{AuditEntry, Listed, Project, Rules, ShownUser};
use crate::http::accounts::{
    self, NewTokenShown, ProjectChange, ShownToken, TokenCreate, UserChange, UserCreate,
};
use crate::http::caller::{Known, SESSION_PATH};
use crate::http::document;
use crate::http::endpoint::{Answer, Endpoint, Who};
use crate::http::groups::{self, OffsetChange, OffsetsReset};
use crate::http::login::{
    self, LoginRequest, OwnSession, PasswordChanged, PasswordRequest, SetupRequest,
};
use crate::http::second_factor::{
    self, SecondFactorBegin, SecondFactorConfirm, SecondFactorDisable, SecondFactorEnabled,
    SecondFactorSecret, SecondFactorState,
};
use crate::http::sign_on::{self, Ways};
use crate::http::topics::{self, QueryRequest, RecordCreate};
use crate::http::{machine_consoles, watching};
use crate::refusal::Kind::{
    BrokerDown, Busy, Changed, Conflict, DaemonDown, Exists, Forbidden, Forged, Invalid,
    InvalidField, MachinesDown, NoBroker, NoMachines, NotFound, TooManyAttempts, Unauthorized,
};
use crate::sign_on::CALLBACK_PATH;

const SECONDS: &[Query] =
    &[Query::new("seconds", QueryKind::Number, "Seconds of history [default: 3600]")];

const HISTORY: &[Query] = &[
    Query::new("series", QueryKind::Text, "Name of the series; without it, lists the names"),
    Query::new("seconds", QueryKind::Number, "Seconds of history [default: 3600]"),
];

const AUDIT: &[Query] = &[
    Query::new("before", QueryKind::Number, "List only entries older than the one with this id"),
    Query::new(
        "limit",
        QueryKind::Number,
        "Maximum number of entries [default: 100, at most 1000]",
    ),
    Query::new("user", QueryKind::Text, "List only requests of this user"),
    Query::new("method", QueryKind::Text, "List only requests of this method"),
    Query::new("path", QueryKind::Text, "List only paths that contain this text"),
    Query::new("status", QueryKind::Number, "List only requests answered with this status code"),
    Query::new("since", QueryKind::Number, "Unix time in seconds"),
    Query::new("until", QueryKind::Number, "Unix time in seconds"),
    Query::new("export", QueryKind::Flag, "Return all entries, as lines of JSON"),
];

const FORCE: &[Query] =
    &[Query::new("force", QueryKind::Flag, "Disconnect the client that has the terminal now")];

const USER: Answer = Answer::Tagged(schema::<ShownUser<'static>>());
const OWN_SESSION: Answer = Answer::One(schema::<OwnSession>());
const LINES: Answer = Answer::Stream("application/x-ndjson");

pub(super) static ENDPOINTS: &[Endpoint] = &[
    Endpoint::post("/console/v1/setup", "set_up", || post(login::set_up))
        .about("Create the first administrator with the code of the set-up link, and log in")
        .asked_by(Who::Everybody)
        .takes(schema::<SetupRequest>())
        .answers(OWN_SESSION)
        .refuses(&[Forged, Forbidden, InvalidField, Conflict, TooManyAttempts, Busy]),
    Endpoint::get(SESSION_PATH, "show_own_session", || get(login::show))
        .about("Get the caller's session, with its CSRF token")
        .asked_by(Who::Session)
        .answers(OWN_SESSION),
    Endpoint::post(SESSION_PATH, "log_in", || post(login::log_in))
        .about(
            "Log in with a password, and a code if two-factor login is on; sets the session cookie",
        )
        .asked_by(Who::Everybody)
        .takes(schema::<LoginRequest>())
        .answers(OWN_SESSION)
        .refuses(&[Forged, Unauthorized, TooManyAttempts, Busy]),
    Endpoint::delete(SESSION_PATH, "log_out", || delete(login::log_out))
        .about("Log out: end the caller's session")
        .asked_by(Who::Session),
    Endpoint::get("/console/v1/logins", "show_logins", || get(sign_on::ways))
        .about("List the ways to log in")
        .asked_by(Who::Everybody)
        .answers(Answer::One(schema::<Ways>())),
    Endpoint::get("/console/v1/oidc/login", "begin_login_by_provider", || get(sign_on::begin))
        .about("Redirect the browser to the identity provider; 503 if it cannot be reached")
        .asked_by(Who::Everybody)
        .with_status(303)
        .answers(Answer::Redirect)
        .refuses(&[NotFound]),
    Endpoint::get(CALLBACK_PATH, "finish_login_by_provider", || get(sign_on::finish))
        .about("Complete a login by the identity provider; 403 if it cannot be verified")
        .asked_by(Who::Everybody)
        .with_status(303)
        .answers(Answer::Redirect)
        .refuses(&[NotFound]),
    Endpoint::post("/console/v1/password", "change_password", || post(login::change_password))
        .about("Change the caller's password and end the caller's other sessions")
        .asked_by(Who::Enrolled)
        .takes(schema::<PasswordRequest>())
        .answers(Answer::One(schema::<PasswordChanged>()))
        .refuses(&[InvalidField, Conflict, TooManyAttempts, Busy]),
    Endpoint::get("/console/v1/second-factor", "show_second_factor", || get(second_factor::show))
        .about("Get the state of the caller's second factor")
        .asked_by(Who::Session)
        .answers(Answer::One(schema::<SecondFactorState>())),
    Endpoint::post("/console/v1/second-factor", "begin_second_factor", || {
        post(second_factor::begin)
    })
    .about("Begin the enrolment of a second factor (TOTP). Only this response contains its secret")
    .asked_by(Who::Session)
    .takes(schema::<SecondFactorBegin>())
    .answers(Answer::One(schema::<SecondFactorSecret>()))
    .refuses(&[InvalidField, Conflict, TooManyAttempts, Busy]),
    Endpoint::post("/console/v1/second-factor/confirm", "confirm_second_factor", || {
        post(second_factor::confirm)
    })
    .about("Enable the second factor by its first code, and end the caller's other sessions")
    .asked_by(Who::Session)
    .takes(schema::<SecondFactorConfirm>())
    .answers(Answer::One(schema::<SecondFactorEnabled>()))
    .refuses(&[InvalidField, NotFound, Conflict, TooManyAttempts]),
    Endpoint::post("/console/v1/second-factor/disable", "disable_second_factor", || {
        post(second_factor::disable)
    })
    .about("Disable the caller's second factor")
    .asked_by(Who::Session)
    .takes(schema::<SecondFactorDisable>())
    .with_status(204)
    .refuses(&[InvalidField, NotFound, Conflict, TooManyAttempts, Busy]),
    Endpoint::get("/console/v1/users", "list_users", || get(accounts::users))
        .about("List users")
        .asked_by(Who::Administrator)
        .answers(Answer::ManyTagged(schema::<ShownUser<'static>>())),
    Endpoint::post("/console/v1/users", "create_user", || post(accounts::add_user))
        .about("Create a user")
        .asked_by(Who::Administrator)
        .takes(schema::<UserCreate>())
        .with_status(201)
        .answers(Answer::One(schema::<ShownUser<'static>>()))
        .refuses(&[InvalidField, NotFound, Exists, Conflict, Busy]),
    Endpoint::get("/console/v1/users/{name}", "show_user", || get(accounts::user))
        .about("Get a user")
        .asked_by(Who::Administrator)
        .answers(USER)
        .refuses(&[NotFound]),
    Endpoint::patch("/console/v1/users/{name}", "change_user", || patch(accounts::change_user))
        .about("Update the given fields of a user. A new password ends the user's sessions")
        .asked_by(Who::Administrator)
        .takes(schema::<UserChange>())
        .answers(USER)
        .refuses(&[InvalidField, NotFound, Conflict, Changed, Busy]),
    Endpoint::delete("/console/v1/users/{name}", "delete_user", || delete(accounts::remove_user))
        .about("Delete a user with all sessions and tokens")
        .asked_by(Who::Administrator)
        .refuses(&[NotFound, Conflict]),
    Endpoint::delete("/console/v1/users/{name}/second-factor", "reset_second_factor", || {
        delete(second_factor::reset)
    })
    .about("Remove the second factor of another user, and end the user's sessions")
    .asked_by(Who::Administrator)
    .refuses(&[NotFound, Conflict]),
    Endpoint::get("/console/v1/rules", "show_rules", || get(second_factor::rules))
        .about("Get the rules for all users")
        .asked_by(Who::Administrator)
        .answers(Answer::Tagged(schema::<Rules>())),
    Endpoint::patch("/console/v1/rules", "change_rules", || patch(second_factor::change_rules))
        .about(
            "Change the rules for all users. Requiring a second factor takes one of the caller's \
             own; users without one can then do nothing but enable it",
        )
        .asked_by(Who::Administrator)
        .takes(schema::<Rules>())
        .answers(Answer::Tagged(schema::<Rules>()))
        .refuses(&[Conflict, Changed]),
    Endpoint::get("/console/v1/projects", "list_projects", || get(accounts::projects))
        .about("List projects: all for administrators, otherwise the caller's")
        .answers(Answer::ManyTagged(schema::<Project>())),
    Endpoint::post("/console/v1/projects", "create_project", || post(accounts::add_project))
        .about("Create a project")
        .asked_by(Who::Administrator)
        .takes(schema::<Project>())
        .with_status(201)
        .answers(Answer::One(schema::<Project>()))
        .refuses(&[InvalidField, Exists, Conflict]),
    Endpoint::patch("/console/v1/projects/{name}", "change_project", || {
        patch(accounts::change_project)
    })
    .about("Update the given fields of a project")
    .asked_by(Who::Administrator)
    .takes(schema::<ProjectChange>())
    .answers(Answer::Tagged(schema::<Project>()))
    .refuses(&[InvalidField, NotFound, Conflict, Changed]),
    Endpoint::delete("/console/v1/projects/{name}", "delete_project", || {
        delete(accounts::remove_project)
    })
    .about("Delete a project that has no users; its volumes are kept")
    .asked_by(Who::Administrator)
    .refuses(&[NotFound, Conflict]),
    Endpoint::get("/console/v1/tokens", "list_tokens", || get(accounts::tokens))
        .about("List tokens: all for administrators, otherwise the caller's")
        .answers(Answer::Many(schema::<ShownToken<'static>>())),
    Endpoint::post("/console/v1/tokens", "create_token", || post(accounts::add_token))
        .about("Create a token, with a session. Only this response contains the secret")
        .takes(schema::<TokenCreate>())
        .with_status(201)
        .answers(Answer::One(schema::<NewTokenShown<'static>>()))
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict]),
    Endpoint::delete("/console/v1/tokens/{id}", "delete_token", || delete(accounts::remove_token))
        .about("Revoke a token")
        .refuses(&[NotFound]),
    Endpoint::get("/console/v1/sessions", "list_sessions", || get(accounts::sessions))
        .about("List sessions: all for administrators, otherwise the caller's")
        .answers(Answer::Many(schema::<Listed>())),
    Endpoint::delete("/console/v1/sessions/{id}", "end_session", || delete(accounts::end_session))
        .about("End a session, also one that an identity provider began")
        .refuses(&[NotFound]),
    Endpoint::get("/console/v1/audit", "list_audit", || get(accounts::audit))
        .about("List the audit log, newest first; with export=true as application/x-ndjson")
        .asked_by(Who::Administrator)
        .asks(AUDIT)
        .answers(Answer::Many(schema::<AuditEntry>()))
        .refuses(&[Invalid]),
    Endpoint::get("/console/v1/events", "watch", || get(watching::events))
        .about("Stream the state of the daemon, its pool, volumes and tasks each second")
        .answers(Answer::Stream("text/event-stream"))
        .refuses(&[Busy]),
    Endpoint::get("/console/v1/history", "show_history", || get(watching::history))
        .about("List series, or get the points of one. Refused to users limited to projects")
        .asks(HISTORY)
        .answers(Answer::Json)
        .refuses(&[Invalid, Forbidden, NotFound]),
    Endpoint::get("/console/v1/charts", "show_charts", || get(watching::charts))
        .about("Get all series of the history. Refused to users limited to projects")
        .asks(SECONDS)
        .answers(Answer::Json)
        .refuses(&[Invalid, Forbidden]),
    Endpoint::get("/console/v1/busiest", "list_busiest", || get(watching::busiest))
        .about("List the volumes with most requests. Refused to users limited to projects")
        .answers(Answer::Json)
        .refuses(&[Forbidden]),
    Endpoint::get("/console/v1/slowest", "list_slowest", || get(watching::slowest))
        .about(
            "List the volumes whose requests took longest in the last minute. Refused to users \
             limited to projects",
        )
        .answers(Answer::Json)
        .refuses(&[Forbidden]),
    Endpoint::get("/console/v1/volumes/{name}/history", "show_volume_history", || {
        get(watching::volume)
    })
    .about("Get the last hour of a volume's requests, and of how long they took")
    .asks(SECONDS)
    .answers(Answer::Json)
    .refuses(&[Invalid, Forbidden, NotFound, DaemonDown]),
    Endpoint::get("/console/v1/topics", "list_topics", || get(topics::list))
        .about("List topics and groups of the broker, or the reason why there are none")
        .answers(Answer::Json)
        .refuses(&[Forbidden]),
    Endpoint::get("/console/v1/topics/{name}", "show_topic", || get(topics::show))
        .about("Get a topic with its partitions and settings")
        .answers(Answer::Json)
        .refuses(&[Forbidden, NotFound, NoBroker, BrokerDown]),
    Endpoint::delete("/console/v1/topics/{name}", "delete_topic", || delete(topics::delete))
        .about("Delete a topic with its records; requires the role operator")
        .refuses(&[Forbidden, NotFound, Conflict, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/topics/{name}/records", "produce_record", || post(topics::produce))
        .about("Write a record to a topic; requires the role operator")
        .takes(schema::<RecordCreate>())
        .with_status(204)
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict, NoBroker, BrokerDown]),
    Endpoint::get("/console/v1/groups/{name}", "show_group", || get(groups::show))
        .about("Get a group with its offset and lag in each partition")
        .answers(Answer::Json)
        .refuses(&[Forbidden, NotFound, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/groups/{name}/offsets", "reset_group", || post(groups::reset))
        .about("Reset the offsets of a group without members; requires the role operator")
        .takes(schema::<OffsetsReset>())
        .answers(Answer::Many(schema::<OffsetChange>()))
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/query", "query_topics", || post(topics::query))
        .about("Run a query over topics; streams lines of JSON: columns, rows, end")
        .takes(schema::<QueryRequest>())
        .answers(LINES)
        .refuses(&[Forbidden, InvalidField, Conflict, NoBroker, BrokerDown]),
    Endpoint::get("/console/v1/machines/{name}/serial", "open_terminal", || {
        get(machine_consoles::serial)
    })
    .about("Open the serial console of a machine as a WebSocket; requires the role operator")
    .asks(FORCE)
    .with_status(101)
    .answers(Answer::Upgrade)
    .refuses(&[Invalid, Forged, Forbidden, Busy, NoMachines, MachinesDown]),
    Endpoint::get("/console/v1/machines/{name}/screen", "open_screen", || {
        get(machine_consoles::screen)
    })
    .about("Open the screen of a machine (RFB) as a WebSocket; requires the role operator")
    .with_status(101)
    .answers(Answer::Upgrade)
    .refuses(&[Invalid, Forged, Forbidden, Busy, NoMachines, MachinesDown]),
    Endpoint::get("/console/v1/openapi.json", "openapi", || get(openapi))
        .about("Get this OpenAPI document")
        .answers(Answer::Json),
];

async fn openapi(_: Known) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document::json_of(ENDPOINTS)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// To accept a change, run `UPDATE_OPENAPI=1 cargo test -p console-server` and review the diff.
    #[test]
    fn the_committed_document_is_what_the_code_says() {
        let document = document::json_of(ENDPOINTS);
        let path = format!("{}/openapi.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, &document).expect("the document can be written");
        }
        let committed = std::fs::read_to_string(&path).expect("the document is committed");
        let committed: Value = serde_json::from_str(&committed).expect("JSON");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        assert!(committed == document, "stale; run UPDATE_OPENAPI=1 cargo test -p console-server");
    }

    #[test]
    fn each_operation_has_a_name_of_its_own_and_is_explained() {
        let mut names: Vec<_> = ENDPOINTS.iter().map(|it| it.operation).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ENDPOINTS.len());
        assert!(ENDPOINTS.iter().all(|it| !it.summary.is_empty()));
    }
}
