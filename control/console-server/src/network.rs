//! IP networks in options.

use std::net::IpAddr;
use std::str::FromStr;

/// All addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid address {text:?}; use an IP address or ADDRESS/BITS");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(bits_max);
        if bits > bits_max {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl Network {
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                let differing = one.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                let differing = one.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "proxy", "10.0.0.1/33", "::1/129", "10.0.0.1/x", "10.0.0.1/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let all: Network = "0.0.0.0/0".parse().expect("it is one");
        assert!(all.holds(IpAddr::from([192, 0, 2, 1])) && !all.holds(IpAddr::from([0; 16])));
    }
}
