//! Limits on the clients of a server, so that one user cannot take all slots.

use crate::peer::Peer;

/// Limits on the clients of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of clients.
    pub total: usize,
    /// Maximum number of clients of one user other than root and the server's own.
    pub per_user: usize,
    /// Slots reserved for root and the server's own user.
    pub reserved: usize,
}

impl Quota {
    /// Returns whether the limits admit `peer` in addition to the present clients.
    pub fn has_room<'peers>(
        &self,
        present: impl Iterator<Item = &'peers Peer>,
        peer: &Peer,
    ) -> bool {
        let (mut all, mut guests, mut same_user) = (0, 0, 0);
        for other in present {
            all += 1;
            guests += usize::from(!other.is_owner());
            same_user += usize::from(other.uid == peer.uid);
        }
        let has_share =
            same_user < self.per_user && guests < self.total.saturating_sub(self.reserved);
        all < self.total && (peer.is_owner() || has_share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { total: 10, per_user: 4, reserved: 3 };
    const ROOT: u32 = 0;
    const ANN: u32 = 4_000_001;
    const BOB: u32 = 4_000_002;

    #[track_caller]
    fn check(present: &[(u32, usize)], uid: u32, expected: bool) {
        let peer = |uid| Peer { uid, ..Peer::default() };
        let present: Vec<Peer> = present
            .iter()
            .flat_map(|&(uid, count)| std::iter::repeat_with(move || peer(uid)).take(count))
            .collect();
        assert_eq!(QUOTA.has_room(present.iter(), &peer(uid)), expected);
    }

    #[test]
    fn one_user_cannot_take_all_places() {
        check(&[(ANN, 3)], ANN, true);
        check(&[(ANN, 4)], ANN, false);
        check(&[(ANN, 4)], BOB, true);
    }

    #[test]
    fn users_together_leave_some_places_to_root() {
        check(&[(ANN, 4), (BOB, 3)], BOB, false);
        check(&[(ANN, 4), (BOB, 3)], ROOT, true);
        check(&[(ANN, 4), (BOB, 3), (ROOT, 2)], ROOT, true);
        check(&[(ANN, 4), (BOB, 3), (ROOT, 3)], ROOT, false);
    }

    #[test]
    fn root_has_no_share_of_its_own() {
        check(&[(ROOT, 9)], ROOT, true);
        check(&[(ROOT, 10)], ROOT, false);
        check(&[(ROOT, 10)], ANN, false);
    }
}
