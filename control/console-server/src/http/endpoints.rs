//! Every path and method of the console's own interface: one table for the router and for the
//! OpenAPI document.

use api::{Query, QueryKind, schema};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};

use crate::access::{AuditEntry, Listed, Project, ShownUser};
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
use crate::http::sign_on::{self, Ways};
use crate::http::topics::{self, QueryRequest, RecordCreate};
use crate::http::{machine_consoles, watching};
use crate::refusal::Kind::{
    BrokerDown, Busy, Changed, Conflict, Exists, Forbidden, Forged, Invalid, InvalidField,
    MachinesDown, NoBroker, NoMachines, NotFound, TooManyAttempts, Unauthorized,
};
use crate::sign_on::CALLBACK_PATH;

const SECONDS: &[Query] =
    &[Query::new("seconds", QueryKind::Number, "So long until now [default: 3600]")];

const HISTORY: &[Query] = &[
    Query::new("series", QueryKind::Text, "Its name; without one, names are listed"),
    Query::new("seconds", QueryKind::Number, "So long until now [default: 3600]"),
];

const AUDIT: &[Query] = &[
    Query::new("before", QueryKind::Number, "Only what is older than the entry of this id"),
    Query::new("limit", QueryKind::Number, "So many at most [default: 100, at most 1000]"),
    Query::new("user", QueryKind::Text, "What this user did"),
    Query::new("method", QueryKind::Text, "Only requests of this method"),
    Query::new("path", QueryKind::Text, "Only paths in which this is"),
    Query::new("status", QueryKind::Number, "Only what was answered with this"),
    Query::new("since", QueryKind::Number, "Unix seconds"),
    Query::new("until", QueryKind::Number, "Unix seconds"),
    Query::new("export", QueryKind::Flag, "All of them, as lines of JSON"),
];

const FORCE: &[Query] =
    &[Query::new("force", QueryKind::Flag, "Take the terminal from who has it now")];

const USER: Answer = Answer::Tagged(schema::<ShownUser<'static>>());
const OWN_SESSION: Answer = Answer::One(schema::<OwnSession>());
const LINES: Answer = Answer::Stream("application/x-ndjson");

pub(super) static ENDPOINTS: &[Endpoint] = &[
    Endpoint::post("/console/v1/setup", "set_up", || post(login::set_up))
        .about("Make the first administrator, with the code of the set-up link, and log them in")
        .asked_by(Who::Everybody)
        .takes(schema::<SetupRequest>())
        .answers(OWN_SESSION)
        .refuses(&[Forged, Forbidden, InvalidField, Conflict, TooManyAttempts, Busy]),
    Endpoint::get(SESSION_PATH, "show_own_session", || get(login::show))
        .about("Who is logged in, and what goes with requests that change something")
        .asked_by(Who::Session)
        .answers(OWN_SESSION),
    Endpoint::post(SESSION_PATH, "log_in", || post(login::log_in))
        .about("Log in by a password; the answer sets the session's cookie")
        .asked_by(Who::Everybody)
        .takes(schema::<LoginRequest>())
        .answers(OWN_SESSION)
        .refuses(&[Forged, Unauthorized, TooManyAttempts, Busy]),
    Endpoint::delete(SESSION_PATH, "log_out", || delete(login::log_out))
        .about("End one's own session")
        .asked_by(Who::Session),
    Endpoint::get("/console/v1/logins", "show_logins", || get(sign_on::ways))
        .about("Ways to log in")
        .asked_by(Who::Everybody)
        .answers(Answer::One(schema::<Ways>())),
    Endpoint::get("/console/v1/oidc/login", "begin_login_by_provider", || get(sign_on::begin))
        .about("Send the browser to the provider of logins; 503 where that cannot be asked")
        .asked_by(Who::Everybody)
        .with_status(303)
        .answers(Answer::Redirect)
        .refuses(&[NotFound]),
    Endpoint::get(CALLBACK_PATH, "finish_login_by_provider", || get(sign_on::finish))
        .about("Begin a session for whom the provider has sent back; 403 where it is in doubt")
        .asked_by(Who::Everybody)
        .with_status(303)
        .answers(Answer::Redirect)
        .refuses(&[NotFound]),
    Endpoint::post("/console/v1/password", "change_password", || post(login::change_password))
        .about("Change one's own password, which ends one's other sessions")
        .asked_by(Who::Session)
        .takes(schema::<PasswordRequest>())
        .answers(Answer::One(schema::<PasswordChanged>()))
        .refuses(&[InvalidField, Conflict, TooManyAttempts, Busy]),
    Endpoint::get("/console/v1/users", "list_users", || get(accounts::users))
        .about("All users")
        .asked_by(Who::Administrator)
        .answers(Answer::ManyTagged(schema::<ShownUser<'static>>())),
    Endpoint::post("/console/v1/users", "create_user", || post(accounts::add_user))
        .about("Add a user")
        .asked_by(Who::Administrator)
        .takes(schema::<UserCreate>())
        .with_status(201)
        .answers(Answer::One(schema::<ShownUser<'static>>()))
        .refuses(&[InvalidField, NotFound, Exists, Conflict, Busy]),
    Endpoint::get("/console/v1/users/{name}", "show_user", || get(accounts::user))
        .about("One user")
        .asked_by(Who::Administrator)
        .answers(USER)
        .refuses(&[NotFound]),
    Endpoint::patch("/console/v1/users/{name}", "change_user", || patch(accounts::change_user))
        .about("Change a user; what is left out stays. A new password ends their sessions")
        .asked_by(Who::Administrator)
        .takes(schema::<UserChange>())
        .answers(USER)
        .refuses(&[InvalidField, NotFound, Conflict, Changed, Busy]),
    Endpoint::delete("/console/v1/users/{name}", "delete_user", || delete(accounts::remove_user))
        .about("Delete a user, with all sessions and tokens")
        .asked_by(Who::Administrator)
        .refuses(&[NotFound, Conflict]),
    Endpoint::get("/console/v1/projects", "list_projects", || get(accounts::projects))
        .about("All projects for administrators, one's own for others")
        .answers(Answer::ManyTagged(schema::<Project>())),
    Endpoint::post("/console/v1/projects", "create_project", || post(accounts::add_project))
        .about("Add a project")
        .asked_by(Who::Administrator)
        .takes(schema::<Project>())
        .with_status(201)
        .answers(Answer::One(schema::<Project>()))
        .refuses(&[InvalidField, Exists, Conflict]),
    Endpoint::patch("/console/v1/projects/{name}", "change_project", || {
        patch(accounts::change_project)
    })
    .about("Change a project; what is left out stays")
    .asked_by(Who::Administrator)
    .takes(schema::<ProjectChange>())
    .answers(Answer::Tagged(schema::<Project>()))
    .refuses(&[InvalidField, NotFound, Conflict, Changed]),
    Endpoint::delete("/console/v1/projects/{name}", "delete_project", || {
        delete(accounts::remove_project)
    })
    .about("Delete a project that limits nobody; its volumes stay")
    .asked_by(Who::Administrator)
    .refuses(&[NotFound, Conflict]),
    Endpoint::get("/console/v1/tokens", "list_tokens", || get(accounts::tokens))
        .about("All tokens for administrators, one's own for others")
        .answers(Answer::Many(schema::<ShownToken<'static>>())),
    Endpoint::post("/console/v1/tokens", "create_token", || post(accounts::add_token))
        .about("Make a token of one's own; its secret is in this answer alone. A token makes none")
        .takes(schema::<TokenCreate>())
        .with_status(201)
        .answers(Answer::One(schema::<NewTokenShown<'static>>()))
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict]),
    Endpoint::delete("/console/v1/tokens/{id}", "delete_token", || delete(accounts::remove_token))
        .about("Delete a token, which is refused from then on")
        .refuses(&[NotFound]),
    Endpoint::get("/console/v1/sessions", "list_sessions", || get(accounts::sessions))
        .about("All sessions for administrators, one's own for others")
        .answers(Answer::Many(schema::<Listed>())),
    Endpoint::delete("/console/v1/sessions/{id}", "end_session", || delete(accounts::end_session))
        .about("End a session, also one that a provider's login began")
        .refuses(&[NotFound]),
    Endpoint::get("/console/v1/audit", "list_audit", || get(accounts::audit))
        .about("The audit log, newest first; with export=true as application/x-ndjson")
        .asked_by(Who::Administrator)
        .asks(AUDIT)
        .answers(Answer::Many(schema::<AuditEntry>()))
        .refuses(&[Invalid]),
    Endpoint::get("/console/v1/events", "watch", || get(watching::events))
        .about("The daemon's state, its pool, volumes and tasks, each second")
        .answers(Answer::Stream("text/event-stream"))
        .refuses(&[Busy]),
    Endpoint::get("/console/v1/history", "show_history", || get(watching::history))
        .about("The names of all series, or the points of one; not for who is limited to projects")
        .asks(HISTORY)
        .answers(Answer::Json)
        .refuses(&[Invalid, Forbidden, NotFound]),
    Endpoint::get("/console/v1/charts", "show_charts", || get(watching::charts))
        .about("All series of the history; not for who is limited to projects")
        .asks(SECONDS)
        .answers(Answer::Json)
        .refuses(&[Invalid, Forbidden]),
    Endpoint::get("/console/v1/busiest", "list_busiest", || get(watching::busiest))
        .about("Volumes to which most requests come; not for who is limited to projects")
        .answers(Answer::Json)
        .refuses(&[Forbidden]),
    Endpoint::get("/console/v1/topics", "list_topics", || get(topics::list))
        .about("Topics and groups of the broker, or why there are none")
        .answers(Answer::Json)
        .refuses(&[Forbidden]),
    Endpoint::get("/console/v1/topics/{name}", "show_topic", || get(topics::show))
        .about("A topic with its partitions and settings")
        .answers(Answer::Json)
        .refuses(&[Forbidden, NotFound, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/topics/{name}/records", "produce_record", || post(topics::produce))
        .about("Write a record to a topic; takes the role operator")
        .takes(schema::<RecordCreate>())
        .with_status(204)
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict, NoBroker, BrokerDown]),
    Endpoint::get("/console/v1/groups/{name}", "show_group", || get(groups::show))
        .about("A group of the broker with its offset and its lag in each partition")
        .answers(Answer::Json)
        .refuses(&[Forbidden, NotFound, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/groups/{name}/offsets", "reset_group", || post(groups::reset))
        .about("Reset the offsets of a group that has no members; takes the role operator")
        .takes(schema::<OffsetsReset>())
        .answers(Answer::Many(schema::<OffsetChange>()))
        .refuses(&[Forbidden, InvalidField, NotFound, Conflict, NoBroker, BrokerDown]),
    Endpoint::post("/console/v1/query", "query_topics", || post(topics::query))
        .about("Run a query over topics: a line of JSON for columns, for rows, and for the end")
        .takes(schema::<QueryRequest>())
        .answers(LINES)
        .refuses(&[Forbidden, InvalidField, Conflict, NoBroker, BrokerDown]),
    Endpoint::get("/console/v1/machines/{name}/serial", "open_terminal", || {
        get(machine_consoles::serial)
    })
    .about("The terminal of a virtual machine as a WebSocket; takes the role operator")
    .asks(FORCE)
    .with_status(101)
    .answers(Answer::Upgrade)
    .refuses(&[Invalid, Forged, Forbidden, Busy, NoMachines, MachinesDown]),
    Endpoint::get("/console/v1/machines/{name}/screen", "open_screen", || {
        get(machine_consoles::screen)
    })
    .about("The screen of a virtual machine (RFB) as a WebSocket; takes the role operator")
    .with_status(101)
    .answers(Answer::Upgrade)
    .refuses(&[Invalid, Forged, Forbidden, Busy, NoMachines, MachinesDown]),
    Endpoint::get("/console/v1/openapi.json", "openapi", || get(openapi))
        .about("This document")
        .answers(Answer::Json),
];

async fn openapi(_: Known) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document::json_of(ENDPOINTS)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// To accept a change: `UPDATE_OPENAPI=1 cargo test -p console-server`, and look at the
    /// difference.
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
