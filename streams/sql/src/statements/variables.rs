//! Run-time parameters that clients set and show. Drivers send many, of which few have an effect
//! here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::text::Words;
use super::transaction::{Access, read_modes};
use crate::engine::{ON_BEHALF_OF, READ_ONLY, SERVER_VERSION, TRANSACTION_READ_ONLY, switch};
use crate::error::{SqlError, SqlState};
use crate::wire::IntervalStyle;

/// Limits: length of names and values, and number of unknown parameters stored.
const NAME_BYTES_MAX: usize = 63;
const VALUE_BYTES_MAX: usize = 1_000;
const OTHER_COUNT_MAX: usize = 100;

const STATEMENT_TIMEOUT: &str = "statement_timeout";

const INTERVAL_STYLE: &str = "intervalstyle";
const ISO_8601: &str = "iso_8601";

/// Parameters that name another user: only the login's own values can be set.
const ROLE: &str = "role";
const NO_ROLE: &str = "none";
const SESSION_AUTHORIZATION: &str = "session_authorization";

/// Name by which SHOW returns all parameters.
const ALL: &str = "all";

/// Parameters reported to the client after the login and when they change.
const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    READ_ONLY,
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    SESSION_AUTHORIZATION,
    "standard_conforming_strings",
    "TimeZone",
];

/// Lower-case names of read-only parameters, and their values.
const FIXED: [(&str, &str); 16] = [
    ("block_size", "8192"),
    ("client_encoding", "UTF8"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("is_superuser", "off"),
    ("lc_collate", "C"),
    ("lc_ctype", "C.UTF-8"),
    ("max_function_args", "100"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("server_encoding", "UTF8"),
    ("server_version", SERVER_VERSION),
    ("server_version_num", "150000"),
    ("standard_conforming_strings", "on"),
    ("transaction_deferrable", "off"),
    ("transaction_isolation", "read committed"),
];

/// Lower-case names and default values of parameters.
const DEFAULTS: [(&str, &str); 23] = [
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_table_access_method", "heap"),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "read committed"),
    (READ_ONLY, "off"),
    ("escape_string_warning", "on"),
    ("extra_float_digits", "1"),
    ("idle_in_transaction_session_timeout", "0"),
    (INTERVAL_STYLE, "postgres"),
    ("jit", "off"),
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("lock_timeout", "0"),
    (ROLE, "none"),
    ("row_security", "on"),
    ("search_path", "\"$user\", public"),
    ("synchronous_commit", "on"),
    ("timezone", "UTC"),
];

/// Lower-case names of PostgreSQL's other parameters that a session can set. They have no effect.
const WITHOUT_EFFECT: &str = include_str!("settings.txt");

/// Lower-case names of PostgreSQL's parameters that no session can set, each group behind its
/// context.
const OF_SERVER: &str = include_str!("settings_fixed.txt");

/// `SET name = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// `None` resets to the value at the login.
    pub(crate) value: Option<String>,
    pub(crate) scope: Scope,
}

/// Scope of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    /// Until the end of the transaction. Holds the statement's words for warnings.
    Transaction(&'static str),
}

impl Assignment {
    pub(crate) fn read(words: &Words) -> Result<Self, SqlError> {
        let syntax =
            || SqlError::new(SqlState::SYNTAX, "syntax error: SET requires a name and a value");
        let first = words.keyword(1);
        // SET SESSION AUTHORIZATION and similar statements have no equals sign.
        let at = if matches!(first.as_str(), "SESSION" | "LOCAL") { 2 } else { 1 };
        let scope = match first.as_str() {
            "LOCAL" => Scope::Transaction("SET LOCAL"),
            "TRANSACTION" => Scope::Transaction("SET TRANSACTION"),
            _ => Scope::Session,
        };
        let first = words.keyword(at);
        let (name, rest) = match first.as_str() {
            "TIME" => return Self::of_zone(&words.after(at + 2), scope),
            "NAMES" => ("client_encoding".to_owned(), words.after(at + 1)),
            "TRANSACTION" if at == 1 => {
                return Ok(Self::of_modes(read_modes(words, 2)?, TRANSACTION_READ_ONLY, scope));
            }
            "CHARACTERISTICS" if words.keyword(at + 1) == "AS" => {
                if words.keyword(at + 2) != "TRANSACTION" {
                    return Err(syntax());
                }
                return Ok(Self::of_modes(read_modes(words, at + 3)?, READ_ONLY, scope));
            }
            "AUTHORIZATION" => (SESSION_AUTHORIZATION.to_owned(), words.after(at + 1)),
            "ROLE" if !words.iter().nth(at + 1).is_some_and(is_sign) => {
                (ROLE.to_owned(), words.after(at + 1))
            }
            _ => {
                let sign = words.iter().position(is_sign);
                let sign = sign.filter(|sign| *sign > at).ok_or_else(syntax)?;
                let name = words.iter().take(sign).skip(at).map(|it| match it {
                    Token::Word(word) => word.value.clone(),
                    other => other.to_string(),
                });
                (name.collect::<String>().to_ascii_lowercase(), words.after(sign + 1))
            }
        };
        let values = rest.iter().map(|it| match it {
            Token::SingleQuotedString(text) => text.clone(),
            Token::Comma => ", ".to_owned(),
            Token::Word(word) => word.value.clone(),
            other => other.to_string(),
        });
        let value: String = values.collect();
        let is_too_long = name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX;
        if value.is_empty() && rest.iter().next().is_none() || is_too_long {
            return Err(syntax());
        }
        let is_default = rest.keyword(0) == "DEFAULT";
        Ok(Self { name, value: (!is_default).then_some(value), scope })
    }

    /// Parses the value of `SET TIME ZONE`: a name, an offset, or an interval.
    fn of_zone(words: &Words, scope: Scope) -> Result<Self, SqlError> {
        let is_interval = words.keyword(0) == "INTERVAL";
        let (rest, end) = match is_interval {
            true => (words.after(1), &["HOUR", "TO", "MINUTE"][..]),
            false => (words.clone(), &[][..]),
        };
        let text: String =
            rest.iter().map(zone_word).take(if is_interval { 1 } else { 9 }).collect();
        let behind: Vec<String> = rest.keywords().skip(1).collect();
        if text.is_empty() || is_interval && !behind.is_empty() && behind != end {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "syntax error: SET TIME ZONE requires a zone",
            ));
        }
        let is_default = words.keyword(0) == "DEFAULT";
        Ok(Self { name: "timezone".to_owned(), value: (!is_default).then_some(text), scope })
    }

    /// Returns the assignment for transaction modes: the access mode, or the isolation level, of
    /// which only one exists.
    fn of_modes(access: Option<Access>, name: &str, scope: Scope) -> Self {
        match access {
            Some(access) => {
                let value = Some(access.as_switch().to_owned());
                Self { name: name.to_owned(), value, scope }
            }
            None => Self { name: "transaction_isolation".to_owned(), value: None, scope },
        }
    }
}

fn zone_word(word: &Token) -> String {
    match word {
        Token::SingleQuotedString(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns whether a word separates the name of a parameter from its value.
fn is_sign(word: &Token) -> bool {
    *word == Token::Eq || word.to_string().eq_ignore_ascii_case("to")
}

/// Run-time parameters of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    now: Values,
    /// Values at the login.
    first: Arc<Values>,
    /// Access mode of the open transaction, explicit or implicit. `None` if the default applies.
    access: Option<Access>,
}

#[derive(Clone, Debug, Default)]
struct Values {
    set: BTreeMap<String, String>,
    statement_time: Option<Duration>,
    /// True if the client has set the timeout.
    is_time_set: bool,
}

impl Variables {
    /// Creates the parameters of a session of the user `login`.
    pub(crate) fn new(statement_time: Option<Duration>, login: &str) -> Self {
        let set = BTreeMap::from([(SESSION_AUTHORIZATION.to_owned(), login.to_owned())]);
        let now = Values { set, statement_time, is_time_set: false };
        Self { first: Arc::new(now.clone()), now, access: None }
    }

    /// Saves the current values as those that RESET restores.
    pub(crate) fn begin_session(&mut self) {
        self.first = Arc::new(self.now.clone());
    }

    /// Restores the values saved by [`Self::begin_session`].
    pub(crate) fn reset_all(&mut self) {
        self.now = self.first.as_ref().clone();
    }

    /// Starts a transaction with an access mode, or with the default one.
    pub(crate) fn begin_transaction(&mut self, access: Option<Access>) {
        self.access = Some(access.unwrap_or_else(|| self.default_access()));
    }

    /// Ends the transaction. Returns whether it had an access mode of its own.
    pub(crate) fn end_transaction(&mut self) -> bool {
        self.access.take().is_some()
    }

    /// Returns the access mode of the open transaction, else the default one.
    pub(crate) fn access(&self) -> Access {
        self.access.unwrap_or_else(|| self.default_access())
    }

    fn default_access(&self) -> Access {
        let only_reads = self.now.set.get(READ_ONLY).is_some_and(|it| switch(it) == Some(true));
        if only_reads { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// Returns the statement timeout; `None` means no limit.
    pub(crate) fn statement_time(&self) -> Option<Duration> {
        self.now.statement_time
    }

    /// Returns the timeout of a live query, which only applies if the client has set it.
    pub(crate) fn live_time(&self) -> Option<Duration> {
        self.now.statement_time.filter(|_| self.now.is_time_set)
    }

    /// Returns the style of intervals in results.
    pub(crate) fn interval_style(&self) -> IntervalStyle {
        match self.now.set.get(INTERVAL_STYLE).map(String::as_str) {
            Some(ISO_8601) => IntervalStyle::Iso8601,
            _ => IntervalStyle::Postgres,
        }
    }

    /// Sets a parameter.
    pub(crate) fn set(&mut self, assignment: &Assignment) -> Result<(), SqlError> {
        let Assignment { name, value, .. } = assignment;
        let invalid = |value: &str| invalid(name, value);
        if let Some(error) = of_server(name) {
            return Err(error);
        }
        if let Some((_, fixed)) = FIXED.iter().find(|it| it.0 == name) {
            return check_fixed((name, fixed), value.as_deref());
        }
        if name == ON_BEHALF_OF {
            let what = format!(
                "parameter \"{name}\" cannot be set after connection start: set it in the \
                 connection's options"
            );
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
        }
        if name == ROLE || name == SESSION_AUTHORIZATION {
            return self.set_own(name, value.as_deref());
        }
        if name == STATEMENT_TIMEOUT {
            (self.now.statement_time, self.now.is_time_set) = match value {
                None => (self.first.statement_time, self.first.is_time_set),
                Some(value) => (read_time(value).ok_or_else(|| invalid(value))?, true),
            };
            return Ok(());
        }
        if matches!(name.as_str(), READ_ONLY | TRANSACTION_READ_ONLY) {
            let is_read_only = value.as_deref().map(|it| switch(it).ok_or_else(|| invalid(it)));
            let is_read_only = is_read_only.transpose()?;
            if name == TRANSACTION_READ_ONLY {
                self.access = is_read_only.map(|it| match it {
                    true => Access::ReadOnly,
                    false => Access::ReadWrite,
                });
                return Ok(());
            }
        }
        let value = match value {
            Some(value) => form_of(name, value, || self.get(name).unwrap_or_default())?,
            None if !is_known(name) => return Err(unrecognized(name)),
            None => self.first.set.get(name).cloned(),
        };
        match &value {
            None => drop(self.now.set.remove(name)),
            Some(value) if name == "timezone" => {
                if !is_utc(value) {
                    let what = format!("time zone {value:?} is not supported: sessions use UTC");
                    return Err(SqlError::unsupported(what).with_hint(
                        "Write timestamps with their offset, such as '2026-01-01 12:00+01', and \
                         convert them to local time in the client.",
                    ));
                }
            }
            Some(value) => {
                if self.now.set.len() >= OTHER_COUNT_MAX && !self.now.set.contains_key(name) {
                    let what = format!(
                        "too many configuration parameters: at most {OTHER_COUNT_MAX} per \
                         connection"
                    );
                    return Err(SqlError::new(SqlState::TOO_LARGE, what));
                }
                self.now.set.insert(name.clone(), value.clone());
            }
        }
        Ok(())
    }

    /// Sets a parameter that names a user. Only the session's own user is accepted.
    fn set_own(&mut self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        let own = self.get(SESSION_AUTHORIZATION);
        let named = value.filter(|it| name != ROLE || !it.eq_ignore_ascii_case(NO_ROLE));
        if named.is_some_and(|it| own.as_deref() != Some(it)) {
            return Err(SqlError::unsupported(
                "SET ROLE and SET SESSION AUTHORIZATION to another user are not supported",
            ));
        }
        if name == ROLE {
            self.now.set.remove(ROLE);
            self.now.set.extend(named.map(|it| (ROLE.to_owned(), it.to_owned())));
        }
        Ok(())
    }

    /// Checks a value of a parameter, and returns the form in which it is shown.
    ///
    /// # Errors
    /// No session can set it.
    pub(crate) fn check(name: &str, value: &str) -> Result<String, SqlError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(invalid(name, value));
        }
        let mut variables = Self::default();
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        let assignment = Assignment { name, value, scope: Scope::Session };
        variables.set(&assignment)?;
        Ok(variables.get(&assignment.name).unwrap_or_default())
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        if name == STATEMENT_TIMEOUT {
            return Some(time_text(self.now.statement_time.unwrap_or_default()));
        }
        if name == TRANSACTION_READ_ONLY {
            return Some(self.access().as_switch().to_owned());
        }
        let known = FIXED.iter().chain(&DEFAULTS).find(|it| it.0 == name);
        self.now.set.get(&name).cloned().or_else(|| known.map(|it| it.1.to_owned()))
    }

    /// Returns all known parameters by their lower-case names.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let known = FIXED.iter().chain(&DEFAULTS).map(|it| it.0);
        let set = self.now.set.keys().map(String::as_str);
        let names = known.chain(set).chain([STATEMENT_TIMEOUT, TRANSACTION_READ_ONLY]);
        names.filter_map(|name| Some((name.to_owned(), self.get(name)?))).collect()
    }

    /// Returns the rows of SHOW: the parameter's value, or of all parameters name, value and
    /// description.
    pub(crate) fn show(&self, name: &str) -> Result<Vec<Vec<String>>, SqlError> {
        if name == ALL {
            let row = |(name, value): (String, String)| {
                vec![Self::own_name(&name).to_owned(), value, String::new()]
            };
            return Ok(self.all().into_iter().map(row).collect());
        }
        let value = self.get(name).ok_or_else(|| match has_no_value(name) {
            true => SqlError::unsupported(format!("SHOW {name} is not supported"))
                .with_hint("The parameter has no effect on this server."),
            false => unrecognized(name),
        })?;
        Ok(vec![vec![value]])
    }

    /// Returns the names of the columns of SHOW.
    pub(crate) fn shown_columns(name: &str) -> Vec<&str> {
        match name {
            ALL => vec!["name", "setting", "description"],
            name => vec![Self::own_name(name)],
        }
    }

    /// Returns a parameter's name with its capitals.
    fn own_name(name: &str) -> &str {
        REPORTED.iter().find(|it| it.eq_ignore_ascii_case(name)).copied().unwrap_or(name)
    }

    /// Returns the parameters reported to clients.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (&'static str, String)> {
        REPORTED.iter().map(|name| (*name, self.get(name).unwrap_or_default()))
    }
}

/// Error: PostgreSQL has no parameter of this name.
fn unrecognized(name: &str) -> SqlError {
    let what = format!("unrecognized configuration parameter {name:?}");
    SqlError::new(SqlState::UNDEFINED_OBJECT, what)
}

/// Checks a value of a parameter that has only one.
fn check_fixed((name, fixed): (&str, &str), value: Option<&str>) -> Result<(), SqlError> {
    let plain = |text: &str| text.replace('-', "").to_ascii_lowercase();
    let is_same = |value: &str| {
        plain(value) == plain(fixed) || name == "client_encoding" && value == "UNICODE"
    };
    match value {
        Some(value) if !is_same(value) => Err(invalid(name, value)),
        _ => Ok(()),
    }
}

/// Returns the error of setting a parameter that PostgreSQL has, but that no session can set.
fn of_server(name: &str) -> Option<SqlError> {
    let mut reason = "";
    for word in OF_SERVER.split_whitespace() {
        match word.strip_suffix(':') {
            Some("internal") => reason = "cannot be changed",
            Some("postmaster") => reason = "cannot be changed without restarting the server",
            Some("sighup") => reason = "cannot be changed now",
            Some(_) => reason = "cannot be set after connection start",
            None if word == name => {
                let what = format!("parameter {name:?} {reason}");
                return Some(SqlError::new(SqlState("55P02"), what));
            }
            None => {}
        }
    }
    None
}

/// Returns whether PostgreSQL has a parameter that has no value here.
fn has_no_value(name: &str) -> bool {
    has_no_effect(name) || of_server(name).is_some()
}

fn has_no_effect(name: &str) -> bool {
    WITHOUT_EFFECT.split_whitespace().any(|it| it == name)
}

fn invalid(name: &str, value: &str) -> SqlError {
    let what = format!("invalid value for parameter {name:?}: {value:?}");
    SqlError::new(SqlState::INVALID_PARAMETER, what)
}

/// Returns the form in which a value of a parameter is stored and shown, or `None` for its
/// default. `now` returns the current value.
///
/// # Errors
/// The parameter does not exist, or values would be written in a form that is not supported.
fn form_of(name: &str, value: &str, now: impl Fn() -> String) -> Result<Option<String>, SqlError> {
    let plain = value.trim().to_ascii_lowercase();
    let unsupported =
        || SqlError::unsupported(format!("value {value:?} of parameter {name:?} is not supported"));
    match name {
        "datestyle" => {
            let mut order = now().rsplit(' ').next().unwrap_or_default().to_owned();
            for word in plain.split([',', ' ']).filter(|it| !it.is_empty()) {
                match word {
                    "iso" => {}
                    "ymd" => "YMD".clone_into(&mut order),
                    "default" => return Ok(None),
                    "sql" | "postgres" | "german" => return Err(unsupported()),
                    it if it == "dmy" || it.starts_with("euro") => "DMY".clone_into(&mut order),
                    it if it == "mdy" || it == "us" || it.starts_with("noneuro") => {
                        "MDY".clone_into(&mut order);
                    }
                    _ => return Err(invalid(name, value)),
                }
            }
            Ok(Some(format!("ISO, {order}")))
        }
        INTERVAL_STYLE => match plain.as_str() {
            "postgres" | ISO_8601 => Ok(Some(plain)),
            "postgres_verbose" | "sql_standard" => Err(unsupported()),
            _ => Err(invalid(name, value)),
        },
        "bytea_output" => match plain.as_str() {
            "hex" => Ok(Some(plain)),
            "escape" => Err(unsupported()),
            _ => Err(invalid(name, value)),
        },
        "array_nulls" | "transform_null_equals" => match switch(&plain) {
            Some(is_on) if is_on == (name == "array_nulls") => Ok(Some(plain)),
            Some(_) => Err(unsupported()),
            None => Err(invalid(name, value)),
        },
        "extra_float_digits" => match plain.parse() {
            Ok(1..=3) => Ok(Some(plain)),
            Ok(-15..=0) => Err(unsupported()),
            _ => Err(invalid(name, value)),
        },
        _ if is_known(name) => Ok(Some(value.to_owned())),
        _ => Err(unrecognized(name)),
    }
}

/// Returns whether a session can set a parameter. Names with a point are for clients to choose.
fn is_known(name: &str) -> bool {
    name.contains('.') || DEFAULTS.iter().any(|it| it.0 == name) || has_no_effect(name)
}

/// Writes a time in the largest unit in which it is a whole number, as PostgreSQL does.
fn time_text(time: Duration) -> String {
    const UNITS: [(u128, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let ms = time.as_millis();
    match UNITS.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// Returns whether a time zone is an alias of UTC.
fn is_utc(zone: &str) -> bool {
    const NAMES: &[&str] = &["utc", "gmt", "uct", "zulu", "z", "universal", "greenwich", "local"];
    let zone = zone.trim().to_ascii_lowercase();
    let zone = zone.strip_prefix("etc/").unwrap_or(&zone);
    let offset = zone.strip_prefix("gmt").unwrap_or(zone).trim_start_matches(['+', '-']);
    NAMES.contains(&zone)
        || !offset.is_empty() && offset.len() <= 5 && offset.bytes().all(|it| b"0:".contains(&it))
}

/// Parses a time in milliseconds, or with a unit. `Some(None)` is 0: no limit.
fn read_time(text: &str) -> Option<Option<Duration>> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let time = match unit.trim() {
        "" | "ms" => Duration::from_millis(number),
        "us" => Duration::from_micros(number),
        "s" => Duration::from_secs(number),
        "min" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3_600)?),
        "d" => Duration::from_secs(number.checked_mul(86_400)?),
        _ => return None,
    };
    Some((!time.is_zero()).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::text::split;

    fn set(variables: &mut Variables, text: &str) -> Result<(), SqlError> {
        let assignment = Assignment::read(&split(text)?[0])?;
        variables.set(&assignment)
    }

    #[test]
    fn what_drivers_set_is_shown_again() {
        let mut variables = Variables::new(Some(Duration::from_secs(9)), "ann");
        for (text, name, expected) in [
            ("SET extra_float_digits = 3", "extra_float_digits", "3"),
            ("set session datestyle to 'ISO'", "DateStyle", "ISO, MDY"),
            ("SET DateStyle = ISO, European", "DateStyle", "ISO, DMY"),
            ("SET DateStyle = 'iso'", "DateStyle", "ISO, DMY"),
            ("SET DateStyle TO DEFAULT", "DateStyle", "ISO, MDY"),
            ("SET IntervalStyle = 'Postgres'", "IntervalStyle", "postgres"),
            ("SET intervalstyle = iso_8601", "IntervalStyle", "iso_8601"),
            ("SET bytea_output = HEX", "bytea_output", "hex"),
            ("SET SESSION AUTHORIZATION DEFAULT", "session_authorization", "ann"),
            ("SET SESSION AUTHORIZATION 'ann'", "session_authorization", "ann"),
            ("SET ROLE NONE", "role", "none"),
            ("SET ROLE ann", "role", "ann"),
            ("SET LOCAL ROLE 'none'", "role", "none"),
            ("SET role TO DEFAULT", "role", "none"),
            ("SET application_name = 'psql'", "application_name", "psql"),
            ("SET client_encoding TO 'utf-8'", "client_encoding", "UTF8"),
            ("SET NAMES 'UTF8'", "client_encoding", "UTF8"),
            ("SET TIME ZONE 'Etc/UTC'", "TimeZone", "UTC"),
            ("SET TimeZone = '+00:00'", "TimeZone", "UTC"),
            ("SET TIME ZONE LOCAL", "TimeZone", "UTC"),
            ("SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE", "TimeZone", "UTC"),
            ("SET SESSION TIME ZONE 0", "TimeZone", "UTC"),
            ("set my.own = 1", "my.own", "1"),
            ("set Work_Mem = '64MB'", "work_mem", "64MB"),
            ("set array_nulls = on", "array_nulls", "on"),
            ("SET search_path = a, public", "search_path", "a, public"),
            ("set statement_timeout = '2s'", "statement_timeout", "2s"),
            ("set statement_timeout = 0", "statement_timeout", "0"),
            ("set statement_timeout = default", "statement_timeout", "9s"),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "transaction_isolation",
                "read committed",
            ),
            ("SET TRANSACTION READ ONLY", "transaction_read_only", "on"),
            ("SET transaction_read_only = off", "transaction_read_only", "off"),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                "default_transaction_read_only",
                "on",
            ),
        ] {
            set(&mut variables, text).expect(text);
            assert_eq!(variables.get(name).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_reset_is_what_it_was_when_the_client_connected() {
        let mut variables = Variables::new(Some(Duration::from_secs(9)), "ann");
        let texts = ["set application_name = 'a'", "set statement_timeout = 5"];
        texts.iter().for_each(|it| set(&mut variables, it).expect(it));
        variables.begin_session();
        let check = |variables: &Variables, expected: [&str; 3]| {
            let names = ["application_name", "statement_timeout", "extra_float_digits"];
            assert_eq!(names.map(|it| variables.get(it).expect(it)), expected);
        };
        let change = |variables: &mut Variables| {
            for it in ["application_name = b", "statement_timeout = 7", "extra_float_digits = 3"] {
                set(variables, &format!("set {it}")).expect(it);
            }
        };
        change(&mut variables);
        check(&variables, ["b", "7ms", "3"]);
        for name in ["application_name", "statement_timeout", "extra_float_digits"] {
            set(&mut variables, &format!("set {name} = default")).expect(name);
        }
        check(&variables, ["a", "5ms", "1"]);
        change(&mut variables);
        variables.reset_all();
        check(&variables, ["a", "5ms", "1"]);
    }

    #[test]
    fn all_parameters_are_shown_with_their_names() {
        let shown = Variables::new(None, "ann").show("all").expect("it is known");
        let row = |name: &str, value: &str| [name, value, ""].map(str::to_owned).to_vec();
        assert!(shown.contains(&row("DateStyle", "ISO, MDY")), "{shown:?}");
        assert!(shown.contains(&row("statement_timeout", "0")), "{shown:?}");
        assert_eq!(Variables::shown_columns("all"), ["name", "setting", "description"]);
        assert_eq!(Variables::shown_columns("timezone"), ["TimeZone"]);
    }

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        for (ms, expected) in [
            (0, "0"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (120_000, "2min"),
            (7_200_000, "2h"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(time_text(Duration::from_millis(ms)), expected);
            assert_eq!(read_time(expected), Some((ms > 0).then(|| Duration::from_millis(ms))));
        }
    }

    #[test]
    fn forms_of_values_that_are_not_written_are_refused() {
        let mut variables = Variables::default();
        for (text, state) in [
            ("set datestyle = 'German'", SqlState::NOT_SUPPORTED),
            ("set datestyle = 'SQL, DMY'", SqlState::NOT_SUPPORTED),
            ("set datestyle = 'nice'", SqlState::INVALID_PARAMETER),
            ("set intervalstyle = 'sql_standard'", SqlState::NOT_SUPPORTED),
            ("set intervalstyle = 'hex'", SqlState::INVALID_PARAMETER),
            ("set bytea_output = 'escape'", SqlState::NOT_SUPPORTED),
            ("set bytea_output = 'postgres'", SqlState::INVALID_PARAMETER),
            ("set extra_float_digits = 0", SqlState::NOT_SUPPORTED),
            ("set extra_float_digits = 4", SqlState::INVALID_PARAMETER),
            ("set transform_null_equals = on", SqlState::NOT_SUPPORTED),
            ("set nope = 1", SqlState::UNDEFINED_OBJECT),
            ("set local nope to default", SqlState::UNDEFINED_OBJECT),
            ("set server_version = '15.0'", SqlState("55P02")),
            ("set shared_buffers = '1GB'", SqlState("55P02")),
            ("set fsync to default", SqlState("55P02")),
            ("set role ann", SqlState::NOT_SUPPORTED),
            ("set role = ann", SqlState::NOT_SUPPORTED),
            ("set session authorization ann", SqlState::NOT_SUPPORTED),
        ] {
            let error = set(&mut variables, text).expect_err(text);
            assert_eq!(error.state, state, "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut variables = Variables::default();
        for text in [
            "set client_encoding = 'latin1'",
            "set server_version = '9'",
            "set statement_timeout = 'soon'",
            "set x",
            "set time zone 'Europe/Berlin'",
            "set timezone = '+01'",
            "set time zone interval '+01:00' hour to minute",
            "set time zone interval '+00:00' year",
            "set time zone",
            "set role a",
            "set transaction_read_only = maybe",
            "set transaction read",
            "set session characteristics as read only",
        ] {
            set(&mut variables, text).expect_err(text);
        }
        for (name, state) in [
            ("no_such", SqlState::UNDEFINED_OBJECT),
            ("work_mem", SqlState::NOT_SUPPORTED),
            ("shared_buffers", SqlState::NOT_SUPPORTED),
        ] {
            assert_eq!(variables.show(name).expect_err(name).state, state, "{name}");
        }
        for number in 0..OTHER_COUNT_MAX {
            set(&mut variables, &format!("set a.v{number} = 1")).expect("there is room");
        }
        set(&mut variables, "set a.more = 1").expect_err("too many");
        set(&mut variables, "set a.v0 = 2").expect("it is there");
    }
}
