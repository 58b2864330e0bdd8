//! Browser sessions, in memory only: after a restart of the console, users log in again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

use crate::access::caller::Caller;
use crate::access::secret::Secret;
use crate::clock::Now;

/// Idle timeout and maximum age of a session.
const IDLE_SECONDS_MAX: u64 = 30 * 60;
const AGE_SECONDS_MAX: u64 = 12 * 60 * 60;

/// Maximum number of sessions per user, and in total. At the limit, the least recently used session
/// ends: of the user, or of the user with the most sessions.
const SESSIONS_OF_USER_MAX: usize = 32;
const SESSIONS_MAX: usize = 4_096;

const ID_CHARACTERS: usize = 12;

#[derive(Debug)]
struct Session {
    /// Id for listing and ending the session. It reveals nothing about the secret.
    id: String,
    /// Client address at login.
    address: IpAddr,
    user: String,
    /// User of an identity provider, with the rights that it granted.
    foreign: Option<Caller>,
    csrf: Secret,
    /// Of the steady clock.
    begun: u64,
    used: u64,
}

impl Session {
    fn expires(&self) -> u64 {
        (self.used + IDLE_SECONDS_MAX).min(self.begun + AGE_SECONDS_MAX)
    }

    fn is_valid(&self, now: Now) -> bool {
        self.expires() > now.steady_seconds
    }
}

/// A session in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) address: String,
    /// Unix seconds.
    pub(crate) begun: u64,
    pub(crate) used: u64,
}

/// A valid session.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    /// User of an identity provider, or `None` for a user of the console.
    pub(crate) foreign: Option<Caller>,
    pub(crate) csrf: Secret,
    /// Time of expiry if the session is not used again, in Unix seconds.
    pub(crate) expires: u64,
}

/// All sessions, by the hash of the secret in the cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Session>>);

impl Sessions {
    /// Creates a session with a new secret, regardless of the browser's earlier session.
    pub(crate) fn begin(
        &self,
        user: &str,
        address: IpAddr,
        now: Now,
    ) -> anyhow::Result<(Secret, Login)> {
        self.begin_as((user, address), None, now)
    }

    /// Creates a session for a user of an identity provider, whose rights stay fixed for the
    /// session.
    pub(crate) fn begin_for(
        &self,
        caller: &Caller,
        address: IpAddr,
        now: Now,
    ) -> anyhow::Result<(Secret, Login)> {
        self.begin_as((&caller.user, address), Some(caller.clone()), now)
    }

    fn begin_as(
        &self,
        (user, address): (&str, IpAddr),
        foreign: Option<Caller>,
        now: Now,
    ) -> anyhow::Result<(Secret, Login)> {
        let (secret, csrf) = (Secret::make()?, Secret::make()?);
        let login = Login { user: user.to_owned(), foreign, csrf, expires: 0 };
        let id = Secret::make()?.hash();
        let id = id.chars().filter(char::is_ascii_alphanumeric).take(ID_CHARACTERS).collect();
        let session = Session {
            id,
            address,
            user: login.user.clone(),
            foreign: login.foreign.clone(),
            csrf: login.csrf.clone(),
            begun: now.steady_seconds,
            used: now.steady_seconds,
        };
        let expires = now.unix_of(session.expires());
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, it| it.is_valid(now));
        make_room(&mut sessions, user);
        sessions.insert(secret.hash(), session);
        Ok((secret, Login { expires, ..login }))
    }

    /// Returns the session of a secret, and resets its idle timeout.
    pub(crate) fn find(&self, secret: &Secret, now: Now) -> Option<Login> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get_mut(&secret.hash()).filter(|it| it.is_valid(now))?;
        session.used = session.used.max(now.steady_seconds);
        let expires = now.unix_of(session.expires());
        Some(Login {
            user: session.user.clone(),
            foreign: session.foreign.clone(),
            csrf: session.csrf.clone(),
            expires,
        })
    }

    /// Returns whether a session is valid, without resetting its idle timeout.
    pub(crate) fn goes_on(&self, secret: &Secret, now: Now) -> bool {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&secret.hash()).is_some_and(|it| it.is_valid(now))
    }

    pub(crate) fn end(&self, secret: &Secret) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret.hash());
    }

    /// Lists the valid sessions of a user, or all, most recently used first.
    pub(crate) fn list(&self, user: Option<&str>, now: Now) -> Vec<Listed> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = sessions.values().filter(|it| user.is_none_or(|user| it.user == user));
        let going_on = theirs.filter(|it| it.is_valid(now));
        let mut listed: Vec<_> = going_on
            .map(|it| Listed {
                id: it.id.clone(),
                user: it.user.clone(),
                address: it.address.to_string(),
                begun: now.unix_of(it.begun),
                used: now.unix_of(it.used),
            })
            .collect();
        listed.sort_by_key(|it| std::cmp::Reverse(it.used));
        listed
    }

    /// Ends the session with this id. With `user`, only if it belongs to that user. Returns its
    /// user.
    pub(crate) fn end_listed(&self, id: &str, user: Option<&str>) -> Option<String> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &Session| it.id == id && user.is_none_or(|user| it.user == user);
        let hash = sessions.iter().find(|(_, it)| is_it(it)).map(|(hash, _)| hash.clone())?;
        sessions.remove(&hash).map(|it| it.user)
    }

    /// Ends all sessions of a user except `kept`. Returns the number of those that were valid.
    pub(crate) fn end_all_of(&self, user: &str, kept: Option<&Secret>, now: Now) -> usize {
        let kept = kept.map(Secret::hash);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, it| it.is_valid(now));
        let before = sessions.len();
        sessions.retain(|hash, it| it.user != user || Some(hash) == kept.as_ref());
        before - sessions.len()
    }
}

/// Makes room for another session of `user`.
fn make_room(sessions: &mut HashMap<String, Session>, user: &str) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    sessions.values().for_each(|it| *counts.entry(&it.user).or_default() += 1);
    let is_full = sessions.len() >= SESSIONS_MAX;
    let most = counts.iter().max_by_key(|(_, count)| **count).map(|(name, _)| *name);
    let gives_way = match counts.get(user) {
        Some(&count) if count >= SESSIONS_OF_USER_MAX => Some(user),
        _ => most.filter(|_| is_full),
    };
    let theirs = sessions.iter().filter(|(_, it)| gives_way == Some(it.user.as_str()));
    let idlest = theirs.min_by_key(|(_, it)| it.used).map(|(hash, _)| hash.clone());
    idlest.and_then(|hash| sessions.remove(&hash));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    const UNIX_SECONDS: u64 = 1_800_000_000;

    fn at(steady_seconds: u64) -> Now {
        Now { steady_seconds, unix_seconds: UNIX_SECONDS + steady_seconds }
    }

    #[test]
    fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
        let sessions = Sessions::default();
        let (secret, login) = sessions.begin("ann", HERE, at(1_000)).expect("random");
        assert_eq!(login.expires, UNIX_SECONDS + 1_000 + IDLE_SECONDS_MAX);
        assert!(sessions.find(&secret, at(1_000 + IDLE_SECONDS_MAX)).is_none());
        let mut now = 1_000;
        while now + IDLE_SECONDS_MAX <= 1_000 + AGE_SECONDS_MAX {
            assert!(sessions.find(&secret, at(now)).is_some(), "at {now}");
            now += IDLE_SECONDS_MAX - 1;
        }
        assert!(sessions.goes_on(&secret, at(now)));
        assert!(sessions.find(&secret, at(1_000 + AGE_SECONDS_MAX)).is_none());
    }

    #[test]
    fn a_clock_that_is_set_ends_no_session_and_prolongs_none() {
        for unix_seconds in [0, UNIX_SECONDS / 2, UNIX_SECONDS * 2] {
            let sessions = Sessions::default();
            let (secret, _) = sessions.begin("ann", HERE, at(1_000)).expect("random");
            let set = |steady_seconds| Now { steady_seconds, unix_seconds };
            let found = sessions.find(&secret, set(1_010)).expect("it goes on");
            assert_eq!(found.expires, unix_seconds + IDLE_SECONDS_MAX);
            let listed = sessions.list(None, set(1_010));
            assert_eq!(listed[0].begun, unix_seconds.saturating_sub(10));
            assert_eq!(listed[0].used, unix_seconds);
            assert!(!sessions.goes_on(&secret, set(1_010 + IDLE_SECONDS_MAX)));
        }
    }

    #[test]
    fn each_login_has_a_secret_of_its_own_and_ends_alone_or_with_its_user() {
        let sessions = Sessions::default();
        let begin = |user| sessions.begin(user, HERE, at(5)).expect("random").0;
        let (first, second, other) = (begin("ann"), begin("ann"), begin("bob"));
        sessions.end(&first);
        assert!(sessions.find(&first, at(6)).is_none() && sessions.find(&second, at(6)).is_some());
        let third = begin("ann");
        assert_eq!(sessions.end_all_of("ann", Some(&third), at(6)), 1);
        assert!(sessions.find(&second, at(6)).is_none() && sessions.find(&third, at(6)).is_some());
        assert_eq!(sessions.find(&other, at(6)).expect("it goes on").user, "bob");
        assert!(sessions.find(&Secret::shown("made up"), at(6)).is_none());
    }

    #[test]
    fn who_logs_in_again_and_again_ends_their_own_sessions_alone() {
        let sessions = Sessions::default();
        let (of_ann, _) = sessions.begin("ann", HERE, at(1)).expect("random");
        let (first, _) = sessions.begin("bob", HERE, at(2)).expect("random");
        for number in 0..2 * SESSIONS_MAX as u64 {
            sessions.begin("bob", HERE, at(3 + number / 100)).expect("random");
        }
        assert!(sessions.find(&of_ann, at(90)).is_some());
        assert!(sessions.find(&first, at(90)).is_none());
        assert_eq!(sessions.end_all_of("bob", None, at(90)), SESSIONS_OF_USER_MAX);
        for number in 0..2 * SESSIONS_MAX {
            sessions.begin(&format!("sso:{number}"), HERE, at(91)).expect("random");
        }
        assert_eq!(sessions.0.lock().expect("no panic").len(), SESSIONS_MAX);
    }
}
