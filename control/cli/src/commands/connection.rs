//! Address of the daemon, or of the console in front of it, from the command line or the
//! environment.

use std::path::PathBuf;
use std::sync::Arc;

use rest_client::{Address, Console, ConsoleTrust, Proof, Token};

use crate::arguments::connection::ConnectionOptions;
use crate::failure::Failure;
use crate::output::{Form, tell};

const SOCKET_DEFAULT: &str = "/run/memlane/api.sock";
const SOCKET_VARIABLE: &str = "MEMLANE_SOCKET";
const URL_VARIABLE: &str = "MEMLANE_URL";
const TOKEN_VARIABLE: &str = "MEMLANE_TOKEN_FILE";
const PIN_VARIABLE: &str = "MEMLANE_PIN";
const CA_VARIABLE: &str = "MEMLANE_CA";

/// Credentials that the console gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProvedBy {
    Token,
    /// A password, which the command sends itself.
    Password,
}

/// Determines the address. A socket on the command line has priority, then a URL, then a socket
/// from the environment.
pub(super) fn address(
    options: &ConnectionOptions,
    proved_by: ProvedBy,
) -> Result<Address, Failure> {
    if let Some(socket) = &options.socket {
        return Ok(Address::Socket(socket.clone()));
    }
    let url = options.url.clone().or_else(|| text(URL_VARIABLE));
    let Some(url) = url else {
        refuse_options_of_consoles(options, "no console given; use --url https://HOST:PORT")?;
        let socket = path(SOCKET_VARIABLE);
        return Ok(Address::Socket(socket.unwrap_or_else(|| SOCKET_DEFAULT.into())));
    };
    if Console::is_named_by(&url) {
        return Ok(Address::Console(Arc::new(console(options, &url, proved_by)?)));
    }
    refuse_options_of_consoles(options, "tokens are sent only over https://; use an https:// URL")?;
    Address::of_url(&url).map_err(Failure::usage)
}

fn refuse_options_of_consoles(options: &ConnectionOptions, why: &str) -> Result<(), Failure> {
    let given = [
        ("--token-file", options.token_file.is_some()),
        ("--pin", options.pin.is_some()),
        ("--ca", options.ca.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::usage(format!("{option} is only for consoles: {why}"))),
        None => Ok(()),
    }
}

fn console(
    options: &ConnectionOptions,
    url: &str,
    proved_by: ProvedBy,
) -> Result<Console, Failure> {
    if proved_by == ProvedBy::Password {
        return match options.token_file {
            Some(_) => Err(Failure::usage(
                "a token cannot create tokens: leave out --token-file and log in with --user"
                    .to_owned(),
            )),
            None => Console::new(url, &trust(options)?, Proof::Nothing).map_err(Failure::usage),
        };
    }
    let token_file = options.token_file.clone().or_else(|| path(TOKEN_VARIABLE));
    let Some(token_file) = token_file else {
        return Err(Failure::usage(format!(
            "the console requires a token: give a file that holds one with --token-file or \
             {TOKEN_VARIABLE}; create tokens with memlane console token create or on the \
             console's page"
        )));
    };
    let trust = trust(options)?;
    let token = Token::of_file(&token_file).map_err(Failure::other)?;
    Console::new(url, &trust, Proof::Token(token)).map_err(Failure::usage)
}

/// Determines the trusted certificates. Options on the command line have priority over the
/// environment.
fn trust(options: &ConnectionOptions) -> Result<ConsoleTrust, Failure> {
    if let Some(pin) = options.pin {
        return Ok(ConsoleTrust::Pinned(pin));
    }
    if let Some(path) = &options.ca {
        return Ok(ConsoleTrust::Signed(path.clone()));
    }
    match (text(PIN_VARIABLE), path(CA_VARIABLE)) {
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "{PIN_VARIABLE} and {CA_VARIABLE} are both set; unset one of them"
        ))),
        (Some(pin), None) => match pin.parse() {
            Ok(pin) => Ok(ConsoleTrust::Pinned(pin)),
            Err(why) => Err(Failure::usage(format!("{PIN_VARIABLE}: {why}"))),
        },
        (None, Some(path)) => Ok(ConsoleTrust::Signed(path)),
        (None, None) => Ok(ConsoleTrust::Host),
    }
}

/// Prints a remark if something was created on another host, where users might not expect it.
pub(super) fn remark_host(address: &Address, what: &str, form: Form) {
    if let (Address::Console(_), Form::Text) = (address, form) {
        tell(format_args!("{what} on the daemon's host, not on this one"));
    }
}

fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
