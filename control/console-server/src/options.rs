//! Command-line options of the console.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Parser;

use crate::access::AuditPlace;
use crate::broker::HttpPlace;
use crate::network::Network;
use crate::sign_on::SignOnOptions;

/// Number of threads. Requests wait for the daemon, not for CPU time.
pub(crate) const THREAD_COUNT: usize = 2;

/// Public URL of the page: scheme, host, and optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl(pub(crate) String);

impl PublicUrl {
    /// Host name, as in a certificate.
    pub(crate) fn host(&self) -> String {
        let url: Result<axum::http::Uri, _> = self.0.parse();
        let host = url.ok().and_then(|it| it.host().map(str::to_owned)).unwrap_or_default();
        host.trim_matches(['[', ']']).to_owned()
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not https://HOST or https://HOST:PORT");
        let url = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
        let host = url.strip_prefix("https://").ok_or_else(wrong)?;
        let authority: axum::http::uri::Authority = host.parse().map_err(|_| wrong())?;
        let is_plain = !authority.host().is_empty() && !host.contains('@');
        if !is_plain {
            return Err(wrong());
        }
        // Browsers omit the default port.
        Ok(Self(url.strip_suffix(":443").unwrap_or(&url).to_owned()))
    }
}

/// Web console of Memlane: serve the web page and the REST interface over HTTPS.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-console", version)]
pub(crate) struct Options {
    /// Configuration file in TOML; its keys are the names of options. Options on the command line
    /// override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub(crate) listen: SocketAddr,

    /// Directory for users, tokens, the audit log and the history; readable only by its owner
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/memlane-console")]
    pub(crate) state_dir: PathBuf,

    /// Socket of the daemon's REST interface
    #[arg(long, value_name = "SOCKET", default_value = "/run/memlane/api.sock")]
    pub(crate) daemon_socket: PathBuf,

    /// Socket of memlane-machines; without it, virtual machines are not shown
    #[arg(long, value_name = "SOCKET")]
    pub(crate) machines_socket: Option<PathBuf>,

    /// HTTP interface of the broker: the path of its --http-socket, or the ADDRESS:PORT of its
    /// --http on this host; without it, topics are not shown
    #[arg(long, value_name = "PLACE")]
    pub(crate) broker: Option<HttpPlace>,

    /// ADDRESS:PORT of the broker's --sql on this host, for queries over topics
    #[arg(long, value_name = "ADDRESS", requires = "broker")]
    pub(crate) broker_sql: Option<SocketAddr>,

    /// ADDRESS:PORT of the broker's Kafka listener on this host, without TLS; needed to reset
    /// offsets of groups and to delete topics
    #[arg(long, value_name = "ADDRESS", requires = "broker")]
    pub(crate) broker_kafka: Option<SocketAddr>,

    /// Broker user as which the console runs queries, resets offsets and deletes topics; the
    /// broker's access lists apply to it
    #[arg(long, value_name = "NAME", requires = "broker", requires = "broker_password_file")]
    pub(crate) broker_user: Option<String>,

    /// File with that user's password, which other users cannot read
    #[arg(long, value_name = "FILE", requires = "broker_user")]
    pub(crate) broker_password_file: Option<PathBuf>,

    /// Restrict each query to what both --broker-user and the broker user with the name of the
    /// console user may read
    #[arg(
        long,
        requires = "broker_user",
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub(crate) broker_users: bool,

    #[command(flatten)]
    pub(crate) sign_on: SignOnOptions,

    /// TLS certificate chain, as PEM; without it, a self-signed certificate is created in the state
    /// directory. Reloaded at SIGHUP
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,

    /// Private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,

    /// Name of this host, for the self-signed certificate and the setup link
    #[arg(long, value_name = "NAME")]
    pub(crate) host_name: Option<String>,

    /// Public URL of the console behind a reverse proxy: https://HOST or https://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<PublicUrl>,

    /// Proxy whose X-Forwarded-For header is trusted: an address, or ADDRESS/BITS; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) trusted_proxy: Vec<Network>,

    /// Second destination of the audit log: journal, or the path of a file, which is reopened at
    /// SIGHUP
    #[arg(long, value_name = "PLACE")]
    pub(crate) audit_to: Option<AuditPlace>,

    /// Serve the web page from this directory instead of the built-in one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) page: Option<PathBuf>,

    /// Log level or filter, for example info or console=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    /// Print completions for this shell, and do nothing else
    #[arg(long, value_name = "SHELL", hide = true)]
    pub(crate) completions: Option<clap_complete::Shell>,

    /// Fail where no page was built into the program, and do nothing else
    #[arg(long, hide = true)]
    pub(crate) has_page: bool,

    /// Write the manual page to man8 in this folder, and do nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,
}

impl Options {
    /// Returns the broker user of the console, and the file with its password.
    pub(crate) fn broker_login(&self) -> Option<(&str, &Path)> {
        self.broker_user.as_deref().zip(self.broker_password_file.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Options>(concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref());
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        Options::command().debug_assert();
        let sample = include_str!("../memlane-console.toml");
        let lines = option_file::sample_lines(Options::command(), sample).expect("all keys");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, lines.join("\n")).expect("it is written");
        let words = ["memlane-console".into(), "--config".into(), file.path().into()];
        let words = option_file::with_file(Options::command(), words.into());
        let options = Options::try_parse_from(words.expect("all keys are known"));
        assert_eq!(options.expect("the sample, uncommented").log, "info");
    }

    #[test]
    fn a_public_url_is_a_scheme_and_a_host() {
        let read = |text: &str| text.parse::<PublicUrl>().map(|it| it.0);
        let expected = Ok("https://console.example".to_owned());
        assert_eq!(read("https://Console.Example:443/"), expected);
        assert_eq!(read("https://[::1]:8443"), Ok("https://[::1]:8443".to_owned()));
        for text in ["", "console.example", "http://a", "https://", "https://a/b", "https://b@a"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
