//! Client address of a request: that of the connection, or the one that a trusted proxy reports.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::connections::Connection;
use crate::http::console::{Console, Peer};
use crate::network::Network;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Connection of a request.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) address: IpAddr,
    pub(super) connection: Arc<Connection>,
}

/// Adds the client address to each request.
pub(super) async fn identify(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let line = request.extensions().get::<Line>();
    if let Some(address) = line.map(|it| it.address) {
        let peer = Peer(client_of(address, request.headers(), &console.proxies));
        request.extensions_mut().insert(peer);
    }
    next.run(request).await
}

/// Returns the last address in `X-Forwarded-For` that is not a trusted proxy. Each proxy appends
/// the address that it sees.
fn client_of(address: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let is_proxy = |address| proxies.iter().any(|it| it.holds(address));
    let lists = headers.get_all(FORWARDED_FOR).iter().filter_map(|it| it.to_str().ok());
    let named: Vec<_> = lists.flat_map(|it| it.split(',')).collect();
    let mut client = address;
    for name in named.iter().rev() {
        if !is_proxy(client) {
            break;
        }
        let Ok(address) = name.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
    }
    client
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_trusted_proxies_add_is_believed() {
        let networks = ["127.0.0.1", "10.1.0.0/16", "fd00::/8"];
        let proxies: Vec<Network> =
            networks.iter().map(|it| it.parse().expect("a network")).collect();
        let client = |peer: &str, lists: &[&str]| {
            let mut headers = HeaderMap::new();
            for list in lists {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(list).expect("text"));
            }
            client_of(peer.parse().expect("an address"), &headers, &proxies).to_string()
        };
        assert_eq!(client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("127.0.0.1", &["1.2.3.4, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("127.0.0.1", &["1.2.3.4", "198.51.100.7, 10.1.2.3"]), "198.51.100.7");
        assert_eq!(client("fd00::5", &["2001:db8::9"]), "2001:db8::9");
        assert_eq!(client("127.0.0.1", &["198.51.100.7, unknown"]), "127.0.0.1");
    }
}
