//! Verification of passwords, with counting of failed attempts.

use crate::access::{Asker, NotHashed, PasswordHash};
use crate::clock::Now;
use crate::http::console::{Console, Peer};
use crate::refusal::{Kind, Refusal};

/// `Retry-After` if the queue for password hashing is full.
const BUSY_WAIT_SECONDS: u64 = 2;

pub(super) async fn new_password(
    console: &Console,
    asker: &Asker,
    field: &'static str,
    password: String,
) -> Result<PasswordHash, Refusal> {
    let hashed = console.passwords.hash(asker, password).await;
    hashed.map_err(|why| match why {
        NotHashed::Refused(what) => Refusal::in_field(field, &what),
        why => not_hashed(&why),
    })
}

fn not_hashed(why: &NotHashed) -> Refusal {
    match why {
        NotHashed::Busy => {
            Refusal::busy("too many logins at the same time; retry", BUSY_WAIT_SECONDS)
        }
        NotHashed::Refused(what) => Refusal::new(Kind::Invalid, what),
        NotHashed::Failed(error) => Refusal::internal(error),
    }
}

pub(super) fn begin_attempt(console: &Console, name: &str, peer: Peer) -> Result<(), Refusal> {
    console.attempts.begin(name, peer.0, Now::read()).map_err(|seconds| {
        let what = format!("too many failed attempts; wait {seconds} s");
        Refusal::wait(&what, seconds)
    })
}

/// Verifies a password. An attempt that could not be verified is not counted.
pub(super) async fn verify(
    console: &Console,
    (name, peer): (&str, Peer),
    asker: &Asker,
    (password, kept): (String, Option<PasswordHash>),
) -> Result<bool, Refusal> {
    let verified = console.passwords.verify(asker, password, kept).await;
    verified.map_err(|why| {
        console.attempts.not_made(name, peer.0);
        not_hashed(&why)
    })
}
