//! A semaphore for each user: a request without a free permit waits for one of the same user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use access::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const NO_PANIC: &str = "no thread panics with this lock";
const NEVER_CLOSED: &str = "permits are never closed";

/// Permits of all users. A user's entry is removed when none of its permits is held or waited for.
#[derive(Debug)]
pub(crate) struct PermitsByUser {
    of_each: usize,
    by_principal: Mutex<HashMap<Principal, Weak<Semaphore>>>,
}

/// Permits of one user.
#[derive(Clone, Debug)]
pub(crate) struct UserPermits(Arc<Semaphore>);

/// One permit, held until dropped.
#[derive(Debug)]
pub(crate) struct Permit(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl PermitsByUser {
    pub(crate) fn new(of_each: usize) -> Self {
        Self { of_each, by_principal: Mutex::default() }
    }

    pub(crate) fn of(&self, principal: &Principal) -> UserPermits {
        let mut all = self.by_principal.lock().expect(NO_PANIC);
        let own = all.get(principal).and_then(Weak::upgrade).unwrap_or_else(|| {
            all.retain(|_, it| it.strong_count() > 0);
            let own = Arc::new(Semaphore::new(self.of_each));
            all.insert(principal.clone(), Arc::downgrade(&own));
            own
        });
        UserPermits(own)
    }
}

impl UserPermits {
    /// Creates permits shared by all users.
    pub(crate) fn shared(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a permit, in first-come, first-served order.
    pub(crate) async fn wait(&self) -> Permit {
        Permit(Arc::clone(&self.0).acquire_owned().await.expect(NEVER_CLOSED))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_user_has_so_many_turns_and_no_other_waits_for_them() {
        let permits = PermitsByUser::new(1);
        let take = |name| {
            let own = permits.of(&Principal::user(name).expect("a name"));
            own.wait().now_or_never()
        };
        let first = take("ann").expect("the first");
        assert!(take("ann").is_none());
        let other = take("bob").expect("another user's");
        drop(first);
        let again = take("ann").expect("it is free again");
        drop((other, again));
        drop(take("cat"));
        assert_eq!(permits.by_principal.lock().expect(NO_PANIC).len(), 1);
    }
}
