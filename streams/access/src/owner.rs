//! Owners to whom shares of common resources are assigned: users, or source addresses.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use shares::Owner;

use crate::principal::Principal;

/// Returns the owner for a principal, or for the address of a client that has not logged in. An
/// unauthenticated user name is not used.
pub fn owner_of(principal: &Principal, address: IpAddr) -> Owner {
    match *principal == Principal::anonymous() {
        true => owner_at(address),
        false => owner(principal),
    }
}

/// Returns the owner for an address. All addresses of an IPv6 /64 network have the same owner.
pub fn owner_at(address: IpAddr) -> Owner {
    owner(network_of(address))
}

/// Returns an IPv4 address, or the /64 network of an IPv6 address.
pub(crate) fn network_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

fn owner(of: impl std::hash::Hash) -> Owner {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // 0 means no owner.
    Owner(HASHES.hash_one(of).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_users_and_else_of_addresses() {
        let owner = |principal: &Principal, address: &str| {
            owner_of(principal, address.parse().expect("an address"))
        };
        let anonymous = Principal::anonymous();
        let user = |name| Principal::user(name).expect("a good name");
        assert_eq!(owner(&user("a"), "10.0.0.1"), owner(&user("a"), "10.0.0.2"));
        assert_ne!(owner(&user("a"), "10.0.0.1"), owner(&user("b"), "10.0.0.1"));
        assert_ne!(owner(&user("a"), "10.0.0.1"), owner(&anonymous, "10.0.0.1"));
        assert_ne!(owner(&anonymous, "10.0.0.1"), owner(&anonymous, "10.0.0.2"));
        assert_eq!(owner(&anonymous, "10.0.0.1"), owner(&anonymous, "::ffff:10.0.0.1"));
        assert_eq!(owner(&anonymous, "2001:db8::1"), owner(&anonymous, "2001:db8::2"));
        assert_ne!(owner(&anonymous, "2001:db8::1"), owner(&anonymous, "2001:db8:1::1"));
    }
}
