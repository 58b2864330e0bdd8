//! Host and port in URLs.

pub(crate) fn refused(url: &str, why: &str) -> String {
    format!("the URL {url:?} cannot be used: {why}")
}

/// Splits host and port. An IPv6 address keeps its brackets.
pub(crate) fn host_and_port(
    url: &str,
    authority: &str,
    port_default: u16,
) -> Result<(String, u16), String> {
    let authority = authority.trim_end_matches('/');
    let is_odd = |it: char| "/?#@\\".contains(it) || it.is_whitespace() || it.is_control();
    if authority.is_empty() || authority.contains(is_odd) {
        return Err(refused(url, "use only a host and a port, without user, path or query"));
    }
    match authority.rsplit_once(':') {
        // An IPv6 address without port has colons inside its brackets only.
        Some((host, port)) if !port.contains(']') => match port.parse() {
            Ok(port) if !host.is_empty() => Ok((host.to_owned(), port)),
            _ => Err(refused(url, "its port is not a number")),
        },
        _ => Ok((authority.to_owned(), port_default)),
    }
}
