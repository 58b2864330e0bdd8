//! Addresses of daemons.

use std::path::PathBuf;
use std::sync::Arc;

use crate::console::Console;
use crate::url::{host_and_port, refused};

/// Address of a daemon.
#[derive(Clone, Debug)]
pub enum Address {
    Socket(PathBuf),
    /// Host and port of the daemon.
    Tcp(String),
    /// A console in front of the daemon.
    Console(Arc<Console>),
}

impl Address {
    /// Parses a URL of the form `http://HOST:PORT` or `unix:///PATH`. Consoles need more than a
    /// URL, see [`Console::new`].
    ///
    /// # Errors
    /// A sentence that says why the URL is invalid.
    pub fn of_url(url: &str) -> Result<Self, String> {
        if let Some(path) = url.strip_prefix("unix://") {
            return Ok(Self::Socket(path.into()));
        }
        let Some(host) = url.strip_prefix("http://") else {
            return Err(refused(url, "write http://HOST:PORT, https://HOST:PORT or unix:///PATH"));
        };
        let (host, port) = host_and_port(url, host, 80)?;
        Ok(Self::Tcp(format!("{host}:{port}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_a_port() {
        for (url, expected) in [
            ("http://localhost:8080", "localhost:8080"),
            ("http://localhost/", "localhost:80"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://[::1]", "[::1]:80"),
        ] {
            let address = Address::of_url(url).expect(url);
            assert!(matches!(&address, Address::Tcp(host) if host == expected), "{address:?}");
        }
        let address = Address::of_url("unix:///run/x").expect("a path");
        assert!(matches!(&address, Address::Socket(path) if path == "/run/x"), "{address:?}");
    }

    #[test]
    fn other_urls_are_wrong_usage() {
        for url in [
            "localhost:8080",
            "https://localhost",
            "http://",
            "http://a/b",
            "http://a@b",
            "http://:80",
            "http://a:b",
            "http://a:99999",
        ] {
            let why = Address::of_url(url).expect_err(url);
            assert!(why.contains(url), "{why}");
        }
    }
}
