//! Connection to a broker. Passwords are read from a file or the environment, because all users of
//! the host can read command lines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kafka_client::{
    Client, ClientError, Mechanism, SaslSettings, ScramHash, Settings, TlsTrust, WaitNotice,
};

use crate::arguments::streams::{BrokerOptions, Login};
use crate::failure::{Failure, chain_of};
use crate::output::tell;

const BROKER_DEFAULT: &str = "127.0.0.1:9092";
const BROKER_VARIABLE: &str = "MEMLANE_BROKER";
const USER_VARIABLE: &str = "MEMLANE_BROKER_USER";
const PASSWORD_VARIABLE: &str = "MEMLANE_BROKER_PASSWORD";

/// Maximum length of a password.
const PASSWORD_BYTES_MAX: usize = 4096;

/// Time after which a wait for the broker is reported. New groups wait three seconds for members
/// by default.
pub(super) const NOTICE_AFTER: Duration = Duration::from_secs(4);

/// A user and its password.
pub(in crate::commands) struct Credentials {
    pub(in crate::commands) user: String,
    pub(in crate::commands) password: String,
}

impl Login {
    /// Credentials of the login. `None` if no user is given.
    pub(in crate::commands) fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let Some(user) = self.sasl_user.clone().or_else(|| environment(USER_VARIABLE)) else {
            return Ok(None);
        };
        let password = password(self.password_file.as_deref(), PASSWORD_VARIABLE, &user)?;
        Ok(Some(Credentials { user, password }))
    }

    /// Trusted certificates. `None` if connections are not encrypted.
    pub(in crate::commands) fn trust(&self) -> Result<Option<TlsTrust>, Failure> {
        Ok(self.tls_ca.as_deref().map(TlsTrust::of_file).transpose()?)
    }
}

/// Runs the future of `asks` with a client of the broker.
pub(super) fn with_client<T, F>(
    options: &BrokerOptions,
    asks: impl FnOnce(Arc<Client>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let (host, port) = address(options.broker.as_deref(), BROKER_VARIABLE, BROKER_DEFAULT)?;
    let tls = options.login.trust()?;
    let mechanism = options.sasl_mechanism.unwrap_or(Mechanism::Scram(ScramHash::Sha256));
    let credentials = options.login.credentials()?;
    let sasl = credentials.map(|Credentials { user, password }| SaslSettings {
        mechanism,
        user,
        password,
    });
    let wait_notice = Some(WaitNotice { after: NOTICE_AFTER, tell: tell_wait });
    let settings = Settings { tls, sasl, wait_notice, ..Settings::default() };
    let client = Client::new(format!("{host}:{port}"), settings);
    block_on(asks(Arc::new(client)))
}

/// Tells the user what the command waits for.
pub(super) fn tell_wait(reason: &ClientError) {
    tell(format_args!("waiting: {}", chain_of(reason)));
}

/// Address of a broker: from the command line, the environment, or the default.
pub(in crate::commands) fn address(
    given: Option<&str>,
    variable: &str,
    default: &str,
) -> Result<(String, u16), Failure> {
    let address = given.map(str::to_owned).or_else(|| environment(variable));
    let address = address.unwrap_or_else(|| default.to_owned());
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) => Ok((host.to_owned(), port)),
        None => Err(Failure::usage(format!("invalid broker address {address:?}; use HOST:PORT"))),
    }
}

/// Runs a future to completion.
pub(in crate::commands) fn block_on<T>(
    asks: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::other(format!("cannot wait for the broker: {error}")))?;
    let done = runtime.block_on(asks);
    // A thread that waits for the name of a host does not delay the end.
    runtime.shutdown_background();
    done
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The password of `user`: the first line of the file, or the value of the variable.
pub(in crate::commands) fn password(
    file: Option<&Path>,
    variable: &str,
    user: &str,
) -> Result<String, Failure> {
    let Some(path) = file else {
        return std::env::var(variable).map_err(|_| {
            Failure::usage(format!(
                "no password for user {user:?}: set {variable}, or use --password-file \
                 (--new-password-file for a new user)"
            ))
        });
    };
    let unreadable = |why: &str| {
        Failure::other(format!("cannot read a password from {}: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error.to_string()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() && line.len() <= PASSWORD_BYTES_MAX => Ok(line.to_owned()),
        Some(line) if !line.is_empty() => Err(unreadable("the first line is too long")),
        _ => Err(unreadable("the first line is empty")),
    }
}
