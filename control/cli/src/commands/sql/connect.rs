//! Connection to a broker's SQL interface.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config};

use super::tls::Tls;
use crate::arguments::sql::SqlOptions;
use crate::commands::streams::connect::{address, block_on};
use crate::failure::Failure;
use crate::output::tell;

const SERVER_DEFAULT: &str = "127.0.0.1:5433";
const SERVER_VARIABLE: &str = "MEMLANE_SQL";

/// Name of the only database of each server.
const DATABASE: &str = "memlane";

/// User name if no login is required.
const USER_DEFAULT: &str = "anonymous";

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time of connecting and logging in.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection, with a handle to cancel its statements.
pub(super) struct Server {
    pub(super) client: Client,
    tls: Tls,
}

impl Server {
    /// Returns a handle that cancels the running statement through another connection.
    pub(super) fn canceller(&self) -> Canceller {
        Canceller { token: self.client.cancel_token(), tls: self.tls.clone() }
    }
}

pub(super) struct Canceller {
    token: CancelToken,
    tls: Tls,
}

impl Canceller {
    pub(super) async fn cancel(self) -> Result<(), Failure> {
        Ok(self.token.cancel_query(self.tls).await?)
    }
}

/// Runs the future of `asks` with a connection to the server.
pub(super) fn with_server<T, F>(
    options: &SqlOptions,
    asks: impl FnOnce(Server) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let (host, port) = address(options.server.as_deref(), SERVER_VARIABLE, SERVER_DEFAULT)?;
    let tls = Tls::new(options.login.trust()?);
    let credentials = options.login.credentials()?;
    let mut config = Config::new();
    config.host(&host).port(port).dbname(DATABASE).application_name("memlane");
    config.connect_timeout(CONNECT_TIME_MAX);
    config.ssl_mode(if tls.is_wanted() { SslMode::Require } else { SslMode::Disable });
    match &credentials {
        Some(known) => config.user(&known.user).password(&known.password),
        None => config.user(USER_DEFAULT),
    };
    block_on(async move {
        let connecting = timeout(LOGIN_TIME_MAX, config.connect(tls.clone())).await;
        let connected = connecting.map_err(|_| {
            let seconds = LOGIN_TIME_MAX.as_secs();
            Failure::unreachable(format!(
                "the server at {host}:{port} accepted the connection, but did not answer within \
                 {seconds} s; check that this is the address of the broker's --sql"
            ))
        })?;
        let (client, mut connection) = connected.map_err(|error| {
            let failure = Failure::from(error);
            let message =
                format!("cannot connect to the SQL server at {host}:{port}: {}", failure.message);
            Failure { message, ..failure }
        })?;
        tokio::spawn(async move {
            // An error of the connection is also reported to the waiting statement.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message {
                    let severity = notice.severity().to_lowercase();
                    tell(format_args!("{severity}: {}", notice.message()));
                }
            }
        });
        asks(Server { client, tls }).await
    })
}
