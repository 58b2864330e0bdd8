//! Where the daemon is, and how a console before it is reached.

use std::path::PathBuf;

use clap::Args;
use rest_client::Pin;

/// The daemon that is asked. What is not given comes from the environment.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The daemon's socket [default: $MEMLANE_SOCKET, or /run/memlane/api.sock]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    pub(crate) socket: Option<PathBuf>,

    /// A console before the daemon, as https://HOST:PORT, or the daemon itself where its socket is
    /// forwarded over TCP, as http://localhost:8080 [default: $MEMLANE_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// A file with the token for the console, which only its owner may read [default:
    /// $MEMLANE_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "socket")]
    pub(crate) token_file: Option<PathBuf>,

    /// The SHA-256 of the console's certificate, which it logs when it starts [default:
    /// $MEMLANE_PIN]
    #[arg(long, global = true, value_name = "SHA256", conflicts_with = "socket")]
    pub(crate) pin: Option<Pin>,

    /// The console's certificate, or that of who signed it, in PEM [default: $MEMLANE_CA, or what
    /// this host believes]
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["socket", "pin"])]
    pub(crate) ca: Option<PathBuf>,
}
