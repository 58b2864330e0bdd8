//! Names of volumes and snapshots, derived from those that the cluster gives.
//!
//! A name that the daemon accepts is kept, such as `pvc-` with a UUID, so that administrators
//! recognize it. Other names become `csi-` and a hash.

use tonic::Status;

/// Maximum length of a name in CSI.
const NAME_BYTES_MAX: usize = 128;

/// Maximum length of a name in the daemon.
const OWN_NAME_BYTES_MAX: usize = 63;

const HASHED: &str = "csi-";
const UNFINISHED: &str = "csi-new-";
const GROUP: &str = "group-";
const HASH_DIGITS: usize = 32;

/// Returns the name of a volume, or of a snapshot after the `@`, for a name from the cluster.
pub(crate) fn own_name(name: &str) -> Result<String, Status> {
    if name.is_empty() {
        return Err(Status::invalid_argument("the request has no name"));
    }
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Status::invalid_argument(format!(
            "invalid name {name:?}: use at most {NAME_BYTES_MAX} bytes without control \
             characters"
        )));
    }
    let is_taken = name.starts_with(HASHED) || name.starts_with(GROUP);
    Ok(if is_own(name) && !is_taken { name.to_owned() } else { hashed(HASHED, name) })
}

/// Returns the name after the `@` of a group's snapshots, for a name from the cluster.
pub(crate) fn group_name(name: &str) -> Result<String, Status> {
    own_name(name).map(|_| hashed(GROUP, name))
}

/// Returns whether a name after the `@` belongs to a group snapshot.
pub(crate) fn is_group(own_name: &str) -> bool {
    own_name.strip_prefix(GROUP).is_some_and(|hash| hash.len() == HASH_DIGITS)
}

/// Returns the temporary name of a volume until it is complete.
pub(crate) fn unfinished_name(own_name: &str) -> String {
    hashed(UNFINISHED, own_name)
}

/// Returns whether a volume has a temporary name, and so is incomplete.
pub(crate) fn is_unfinished(own_name: &str) -> bool {
    own_name.starts_with(UNFINISHED)
}

fn hashed(prefix: &str, name: &str) -> String {
    let hash = blake3::hash(name.as_bytes()).to_hex();
    format!("{prefix}{}", &hash[..HASH_DIGITS])
}

fn is_own(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= OWN_NAME_BYTES_MAX
        && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && name.bytes().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_daemon_takes_are_kept_and_others_are_hashed() {
        let claim = "pvc-5f1d2f0e-8d3e-4a0f-9a60-2b7c8d9e0f11";
        assert_eq!(own_name(claim).expect("a name"), claim);
        for name in ["a b", "-a", &"x".repeat(128), "csi-a", "group-a", "ä"] {
            let own = own_name(name).expect("a name");
            assert!(own.starts_with(HASHED) && is_own(&own) && !is_unfinished(&own), "{own}");
            assert_eq!(own_name(name).expect("a name"), own, "the same each time");
        }
        assert!(is_unfinished(&unfinished_name(claim)) && is_own(&unfinished_name(claim)));
        let group = group_name(claim).expect("a name");
        assert!(is_group(&group) && is_own(&group) && !is_group(claim), "{group}");
        for name in ["", "a\n", &"x".repeat(129)] {
            assert_eq!(own_name(name).expect_err(name).code(), tonic::Code::InvalidArgument);
        }
    }
}
