//! Options that choose the daemon, or a console in front of it.

use std::path::PathBuf;

use clap::Args;
use rest_client::Pin;

/// Heading of these options in help texts, below the options of the command.
const DAEMON: &str = "Connection to the daemon or a console";

/// Address of the daemon. Missing options are taken from the environment.
#[derive(Debug, Args)]
pub(crate) struct ConnectionOptions {
    /// The daemon's socket [default: $MEMLANE_SOCKET, or /run/memlane/api.sock]
    #[arg(long, global = true, help_heading = DAEMON, value_name = "PATH")]
    #[arg(conflicts_with = "url")]
    pub(crate) socket: Option<PathBuf>,

    /// URL of a console, for example https://HOST:PORT; or of the daemon, if its socket is
    /// forwarded over TCP, for example http://localhost:8080 [default: $MEMLANE_URL]
    #[arg(long, global = true, help_heading = DAEMON, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// File that contains the token for the console, readable only by its owner [default:
    /// $MEMLANE_TOKEN_FILE]
    #[arg(long, global = true, help_heading = DAEMON, value_name = "FILE")]
    #[arg(conflicts_with = "socket")]
    pub(crate) token_file: Option<PathBuf>,

    /// SHA-256 fingerprint of the console's certificate, as the console logs it at its start
    /// [default: $MEMLANE_PIN]
    #[arg(long, global = true, help_heading = DAEMON, value_name = "SHA256")]
    #[arg(conflicts_with = "socket")]
    pub(crate) pin: Option<Pin>,

    /// Certificate of the console or of its CA, in PEM format [default: $MEMLANE_CA, or the host's
    /// trusted certificates]
    #[arg(long, global = true, help_heading = DAEMON, value_name = "FILE")]
    #[arg(conflicts_with_all = ["socket", "pin"])]
    pub(crate) ca: Option<PathBuf>,
}
