//! Sessions of browsers, in memory alone: a new console asks everybody to log in again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::access::caller::Caller;
use crate::access::secret::Secret;

/// A session ends when it was not used for so long, and at the latest after the second one.
const IDLE_SECONDS_MAX: u64 = 30 * 60;
const AGE_SECONDS_MAX: u64 = 12 * 60 * 60;

/// With more than this, the one that was used longest ago ends.
const SESSIONS_MAX: usize = 1_024;

#[derive(Debug)]
struct Session {
    user: String,
    /// Whom a provider named, with the rights that it gave them.
    foreign: Option<Caller>,
    csrf: Secret,
    begun: u64,
    used: u64,
}

impl Session {
    fn expires(&self) -> u64 {
        (self.used + IDLE_SECONDS_MAX).min(self.begun + AGE_SECONDS_MAX)
    }
}

/// What is known of a session that goes on.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    /// Whom a provider named; `None`: a user of the console.
    pub(crate) foreign: Option<Caller>,
    pub(crate) csrf: Secret,
    /// When it ends unless it is used: Unix seconds.
    pub(crate) expires: u64,
}

/// All sessions, by the hash of the secret in the browser's cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Session>>);

impl Sessions {
    /// Begins one. Its secret is new, whatever the browser had before.
    pub(crate) fn begin(&self, user: &str, now: u64) -> anyhow::Result<(Secret, Login)> {
        self.begin_as(user, None, now)
    }

    /// Begins one of somebody whom a provider named. They keep these rights as long as it goes on.
    pub(crate) fn begin_for(&self, caller: &Caller, now: u64) -> anyhow::Result<(Secret, Login)> {
        self.begin_as(&caller.user, Some(caller.clone()), now)
    }

    fn begin_as(
        &self,
        user: &str,
        foreign: Option<Caller>,
        now: u64,
    ) -> anyhow::Result<(Secret, Login)> {
        let (secret, csrf) = (Secret::make()?, Secret::make()?);
        let login = Login { user: user.to_owned(), foreign, csrf, expires: 0 };
        let session = Session {
            user: login.user.clone(),
            foreign: login.foreign.clone(),
            csrf: login.csrf.clone(),
            begun: now,
            used: now,
        };
        let expires = session.expires();
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, it| it.expires() > now);
        if sessions.len() >= SESSIONS_MAX {
            let idlest = sessions.iter().min_by_key(|(_, it)| it.used);
            let idlest = idlest.map(|(hash, _)| hash.clone());
            idlest.and_then(|hash| sessions.remove(&hash));
        }
        sessions.insert(secret.hash(), session);
        Ok((secret, Login { expires, ..login }))
    }

    /// The session of a secret, which is used by that.
    pub(crate) fn find(&self, secret: &Secret, now: u64) -> Option<Login> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get_mut(&secret.hash()).filter(|it| it.expires() > now)?;
        session.used = session.used.max(now);
        let expires = session.expires();
        Some(Login {
            user: session.user.clone(),
            foreign: session.foreign.clone(),
            csrf: session.csrf.clone(),
            expires,
        })
    }

    /// Whether a session goes on; it is not used by that.
    pub(crate) fn goes_on(&self, secret: &Secret, now: u64) -> bool {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&secret.hash()).is_some_and(|it| it.expires() > now)
    }

    pub(crate) fn end(&self, secret: &Secret) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret.hash());
    }

    /// Ends all sessions of a user but the one of `kept`, and tells how many went on until then.
    pub(crate) fn end_all_of(&self, user: &str, kept: Option<&Secret>, now: u64) -> usize {
        let kept = kept.map(Secret::hash);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, it| it.expires() > now);
        let before = sessions.len();
        sessions.retain(|hash, it| it.user != user || Some(hash) == kept.as_ref());
        before - sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
        let sessions = Sessions::default();
        let (secret, login) = sessions.begin("ann", 1_000).expect("random");
        assert_eq!(login.expires, 1_000 + IDLE_SECONDS_MAX);
        assert!(sessions.find(&secret, 1_000 + IDLE_SECONDS_MAX).is_none());
        let mut now = 1_000;
        while now + IDLE_SECONDS_MAX <= 1_000 + AGE_SECONDS_MAX {
            assert!(sessions.find(&secret, now).is_some(), "at {now}");
            now += IDLE_SECONDS_MAX - 1;
        }
        assert!(sessions.goes_on(&secret, now));
        assert!(sessions.find(&secret, 1_000 + AGE_SECONDS_MAX).is_none());
    }

    #[test]
    fn each_login_has_a_secret_of_its_own_and_ends_alone_or_with_its_user() {
        let sessions = Sessions::default();
        let begin = |user| sessions.begin(user, 5).expect("random").0;
        let (first, second, other) = (begin("ann"), begin("ann"), begin("bob"));
        sessions.end(&first);
        assert!(sessions.find(&first, 6).is_none() && sessions.find(&second, 6).is_some());
        let third = begin("ann");
        assert_eq!(sessions.end_all_of("ann", Some(&third), 6), 1);
        assert!(sessions.find(&second, 6).is_none() && sessions.find(&third, 6).is_some());
        assert_eq!(sessions.find(&other, 6).expect("it goes on").user, "bob");
        assert!(sessions.find(&Secret::shown("made up"), 6).is_none());
    }

    #[test]
    fn of_too_many_sessions_the_idlest_ends() {
        let sessions = Sessions::default();
        let (first, _) = sessions.begin("ann", 1).expect("random");
        for number in 0..SESSIONS_MAX as u64 {
            sessions.begin("bob", 2 + number / 100).expect("random");
        }
        assert!(sessions.find(&first, 20).is_none());
    }
}
