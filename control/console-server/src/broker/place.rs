//! Address of the broker's HTTP interface. It must be on this host, because the interface has
//! neither authentication nor TLS.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Unix socket, or TCP address on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpPlace {
    Socket(PathBuf),
    Address(SocketAddr),
}

impl FromStr for HttpPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Socket(PathBuf::from(text)));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("{text:?} is neither an absolute path of a socket nor ADDRESS:PORT")
        })?;
        check_host(address)?;
        Ok(Self::Address(address))
    }
}

impl fmt::Display for HttpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Rejects addresses on other hosts, because the connection is not encrypted.
pub(super) fn check_host(address: SocketAddr) -> Result<(), String> {
    match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(format!(
            "{address} is on another host, and the connection would not be encrypted; run the \
             console on the broker's host, or use a tunnel"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_socket_or_an_address_of_this_host() {
        let socket = HttpPlace::Socket("/run/b.sock".into());
        assert_eq!("/run/b.sock".parse(), Ok(socket));
        let address: HttpPlace = "[::1]:9644".parse().expect("an address");
        assert_eq!(address.to_string(), "[::1]:9644");
        for text in ["", "b.sock", "localhost:9644", "127.0.0.1", "10.0.0.1:9644", "0.0.0.0:1"] {
            assert!(text.parse::<HttpPlace>().is_err(), "{text}");
        }
    }
}
