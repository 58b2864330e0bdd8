//! The broker that is asked, and as whom. Passwords come from a file or the environment: a command
//! line can be read by everyone on the host.

use std::path::Path;
use std::sync::Arc;

use kafka_client::{Client, Mechanism, SaslSettings, ScramHash, Settings, TlsTrust};

use crate::arguments::streams::BrokerOptions;
use crate::failure::Failure;

const BROKER_DEFAULT: &str = "127.0.0.1:9092";
const BROKER_VARIABLE: &str = "MEMLANE_BROKER";
const USER_VARIABLE: &str = "MEMLANE_BROKER_USER";
const PASSWORD_VARIABLE: &str = "MEMLANE_BROKER_PASSWORD";

/// Far more than a password needs.
const PASSWORD_BYTES_MAX: usize = 4096;

/// Runs what `asks` returns with a client of the broker.
pub(super) fn with_client<T, F>(
    options: &BrokerOptions,
    asks: impl FnOnce(Arc<Client>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let address = options.broker.clone().or_else(|| environment(BROKER_VARIABLE));
    let address = address.unwrap_or_else(|| BROKER_DEFAULT.to_owned());
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port {
        return Err(Failure::usage(format!("{address:?} names no broker; write HOST:PORT")));
    }
    let tls = options.tls_ca.as_deref().map(TlsTrust::of_file).transpose()?;
    let user = options.sasl_user.clone().or_else(|| environment(USER_VARIABLE));
    let sasl = match user {
        None => None,
        Some(user) => Some(SaslSettings {
            mechanism: options.sasl_mechanism.unwrap_or(Mechanism::Scram(ScramHash::Sha256)),
            password: password(options.password_file.as_deref(), PASSWORD_VARIABLE, &user)?,
            user,
        }),
    };
    let client = Client::new(address, Settings { tls, sasl, ..Settings::default() });
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("cannot wait for the broker: {error}")))?
        .block_on(asks(Arc::new(client)))
}

/// The password of `user`: the first line of the file, or the value of the variable.
pub(super) fn password(file: Option<&Path>, variable: &str, user: &str) -> Result<String, Failure> {
    let Some(path) = file else {
        return std::env::var(variable).map_err(|_| {
            Failure::usage(format!(
                "there is no password of {user:?}: set {variable}, or name a file that holds it"
            ))
        });
    };
    let unreadable = |why: &str| {
        Failure::other(format!("cannot read a password from {}: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error.to_string()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() && line.len() <= PASSWORD_BYTES_MAX => Ok(line.to_owned()),
        Some(line) if !line.is_empty() => Err(unreadable("its first line is too long")),
        _ => Err(unreadable("its first line is empty")),
    }
}
